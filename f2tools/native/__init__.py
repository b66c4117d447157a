"""The compiled core: loops over many small things, in C, for which the interpreter is what takes the time.

Every function of it has a twin in Python beside its caller, which is its definition: `core` is None where the package
was installed without a compiler, where F2TOOLS_CORE=off is set, where the core was built from older files, and on a
machine that stores the high byte first; callers then take the twin.  Nobody but them calls the core, and tests hold
both to the same results.
"""

from __future__ import annotations

import os
import sys

CORE = 24  # as in core.h

try:
    from f2tools.native import _core as built
except ImportError:
    core = None
else:
    wanted = os.environ.get("F2TOOLS_CORE") != "off" and sys.byteorder == "little"
    core = built if wanted and built.CORE == CORE else None

__all__ = ["core"]
