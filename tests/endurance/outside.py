"""Says of all that this process creates, writes or changes outside given directories, by what Python tells of it.

Names below an open directory are told without that directory, and are harmless if they are one component that is not
followed; whoever opens the directories is told of too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
UNFOLLOWED = os.O_NOFOLLOW | os.O_EXCL
# event -> which arguments are paths, and where the descriptor of their directory stands
NAMED: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
}


class Watch:
    """What was changed outside; an audit hook can't be taken away, so it is told when to look."""

    def __init__(self) -> None:
        self.inside: tuple[str, ...] | None = None
        self.said: list[str] = []
        sys.addaudithook(self._told)

    @contextmanager
    def only_in(self, directories: Sequence[Path]) -> Iterator[None]:
        """Within this, changes are to lie below these directories."""
        self.inside, self.said = tuple(f"{os.path.realpath(path)}/" for path in directories), []
        try:
            yield
        finally:
            self.inside = None

    def _told(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.inside is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES and not isinstance(path, int):
                if flags & os.O_TMPFILE == os.O_TMPFILE:  # a file without a name, in the directory that is named
                    path = os.path.join(os.fsdecode(path), "file")
                self._look(event, path, bool(flags & UNFOLLOWED))
            return
        for at, directory in NAMED.get(event, ()):
            path = arguments[at]
            if not isinstance(path, int):
                below = directory is not None and arguments[directory] not in (None, -1)
                self._look(event, path, below)

    def _look(self, event: str, path: Any, below: bool) -> None:
        text = os.fsdecode(path)
        if not text.startswith("/") and below and "/" not in text and text not in ("", ".", ".."):
            return
        whole = os.path.realpath(os.path.dirname(os.path.abspath(text))) + "/" + os.path.basename(text)
        assert self.inside is not None
        # what is named by its descriptor was told of when it was opened
        harmless = *self.inside, "/proc/self/fd/", f"/proc/{os.getpid()}/fd/"
        device = whole.startswith("/dev/") and not whole.startswith("/dev/shm/")  # where files lie as elsewhere
        if not device and not whole.startswith(harmless) and "/__pycache__" not in whole:
            self.said.append(f"{event} {whole}")
