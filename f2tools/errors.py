"""The errors of f2tools, told apart by who must act.

What a system call would report is an `OSError` with its errno.  What is wrong with the image or with the request is an
`F2fsError`: it says where and what, carries the exit code of the command, and is printed once, without a traceback, by
`f2tools.cli`.  Anything else is a bug.
"""

from __future__ import annotations

from f2tools.lazy import dataclass

UNFORESEEN = 70  # exit code of a bug: EX_SOFTWARE of sysexits.h


@dataclass(frozen=True)
class Where:
    """A place in an image; whatever is known of it."""

    area: str | None = None
    blkaddr: int | None = None
    segno: int | None = None
    nid: int | None = None
    ino: int | None = None
    path: str | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts: list[str] = []
        for name, value in vars(self).items():
            if value is None:
                continue
            if name == "area":
                parts.append(str(value))
            elif name in ("blkaddr", "offset"):
                parts.append(f"{name} {value:#x}")
            else:
                parts.append(f"{name} {value}")
        return ", ".join(parts)


class F2fsError(Exception):
    """Something about the image or the request that the user must know; never a bug of ours."""

    exit_code = 8
    several_lines = False  # of our own, or of a program that ran; a name in them is made printable by who raises this


class SeveralLines(F2fsError):
    """What is told in several lines."""

    several_lines = True


class NotF2fs(F2fsError):
    """There is no F2FS volume here, or nothing of it can be read."""


class DeviceError(F2fsError):
    """The place where the blocks live can't be opened, read or written.

    `errno` is the system's, where it gave one; `failing` the path of a medium that a part can't be read of.
    """

    def __init__(self, message: str, errno: int | None = None, failing: str = "") -> None:
        super().__init__(message)
        self.errno = errno
        self.failing = failing


class NoRoom(DeviceError):
    """A device that holds less than its size is full."""


class NoFreeSegment(F2fsError):
    """No segment can be opened to be written to: the caller did not keep enough of them free."""

    def __init__(self, message: str = "no segment is free; remove some files, or make the volume larger") -> None:
        super().__init__(message)


class Unsealed(DeviceError):
    """All was changed and can be taken back, but the undo log lacks its seal."""

    exit_code = 1


class Gone(F2fsError):
    """The place where the blocks live is out of reach as a whole; unlike with DeviceError, reading on is of no use."""


class Corrupt(F2fsError):
    """A structure contradicts the format."""

    exit_code = 1

    def __init__(self, where: Where, message: str) -> None:
        self.where = where
        self.message = message
        super().__init__(f"{where}: {message}" if str(where) else message)

    def __reduce__(self) -> tuple[type[Corrupt], tuple[Where, str]]:
        return type(self), (self.where, self.message)  # so that it reaches the process that asked for the work


class Unsupported(F2fsError):
    """The image is sound but uses something that can't be done here."""

    exit_code = 1


class Usage(F2fsError):
    """The request contradicts itself or the image; nothing was done."""

    exit_code = 2


class Taken(F2fsError):
    """What a command was to write is there already."""

    exit_code = 1
