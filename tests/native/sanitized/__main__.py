"""Runs Python with the compiled core as gcc's sanitizers of addresses and undefined behaviour watch it.

    python -m tests.native.sanitized [-m pytest -q tests/native | SCRIPT ...]

The exit code is Python's, or 1 where a sanitizer had something to say; that goes to standard error.
"""

from __future__ import annotations

import sys

from tests.native.sanitized import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
