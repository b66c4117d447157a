"""The guest of the tests: that of the package, in .cache/guest, with programs that write down trees and make them.

`python -m tests.kernel.build_guest` builds it and prints its directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from f2tools.guest.build import Built, NoGuest
from f2tools.guest.build import build as build_in

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "guest"


def build() -> Built:
    """The guest, built if it is not there yet; NoGuest says what is missing."""
    return build_in(CACHE, HERE / "inside" / "bin")


if __name__ == "__main__":
    try:
        print(build().directory)
    except NoGuest as e:
        sys.exit(f"no guest kernel: {e}")
