"""Which server a mount gets, what it needs besides this package, and what to do where that is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TypeVar

from f2tools.errors import SeveralLines
from f2tools.fuse.options import ServeOptions

FUSE_CONF = "/etc/fuse.conf"
AnyOptions = TypeVar("AnyOptions", bound=ServeOptions)


def with_server(options: AnyOptions, warnings: list[str]) -> AnyOptions:
    """The options with a server: pyfuse3, which a machine may lack; then direct, and a warning says so."""
    if options.server is not None:
        return options
    if find_spec("pyfuse3") is not None:
        return replace(options, server="pyfuse3")
    warnings.append("pyfuse3 is not installed, so this process speaks with the kernel itself (--server direct)")
    return replace(options, server="direct")


def require_fuse(options: ServeOptions, device: str = "/dev/fuse", conf: str = FUSE_CONF) -> None:
    """SeveralLines that names every package and permission that is missing."""
    missing = list(what_is_missing(options, device, conf))
    if missing:
        raise SeveralLines("this machine can't mount it:\n" + "\n".join(f"  {text}" for text in missing))


def what_is_missing(options: ServeOptions, device: str = "/dev/fuse", conf: str = FUSE_CONF) -> Iterator[str]:
    """A sentence for each thing."""
    if options.server != "direct":
        try:
            import pyfuse3  # noqa: F401
        except ModuleNotFoundError as error:
            yield (
                f"the Python package {error.name} is not installed: pip install 'f2tools[mount]'\n"
                "    (it is compiled then: that takes gcc, pkg-config, libfuse3-dev and python3-dev);\n"
                "    --server direct does without it"
            )
        except ImportError as error:
            yield (
                f"pyfuse3 does not load ({error}): install libfuse 3 (Debian: apt install fuse3)"
                "; --server direct does without it"
            )
    if not os.path.exists(device):
        yield (
            f"{device} is not there: modprobe fuse; in a container it must be given"
            " (docker run --device /dev/fuse --cap-add SYS_ADMIN)"
        )
    elif not os.access(device, os.R_OK | os.W_OK):
        yield f"{device} can't be opened by this user: its permissions should be 0666"
    if shutil.which("fusermount3") is None and os.geteuid() != 0:
        yield "fusermount3 is not installed, which mounts for users other than root (Debian: apt install fuse3)"
    if os.geteuid() != 0 and "allow_other" in options.for_kernel and not _user_allow_other(conf):
        yield f"-o allow_other takes the line user_allow_other in {conf}, which root can add"


def _user_allow_other(conf: str) -> bool:
    try:
        with open(conf, encoding="utf-8", errors="replace") as lines:
            return any(line.strip() == "user_allow_other" for line in lines)
    except OSError:
        return False
