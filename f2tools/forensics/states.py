"""Every state of every file as one line: living, deleted and older ones, and names that are left without an inode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from f2tools.copyout.walk import shown
from f2tools.forensics.past import InodeVersion, Life
from f2tools.forensics.undelete import Undelete


class Line(NamedTuple):
    """A state of a file; `deleted_ns` is the time by which it was gone, of the last state of a deleted file."""

    path: bytes
    state: str  # live, deleted, unlinked, older, or name (nothing but the name is left)
    version: int | None
    ino: int
    inode: InodeVersion | None
    deleted_ns: int | None = None
    also: tuple[bytes, ...] = ()  # paths that it had before
    life: Life | None = None
    names: tuple[bytes, ...] = ()  # all paths of this state, of which `path` is one

    def which(self) -> str:
        """The state in words."""
        return {"older": f"older version {self.version}", "name": "deleted, name only"}.get(self.state, self.state)

    def before(self) -> str:
        """The paths that it had before, as one text."""
        return ", ".join("/" + shown(path) for path in self.also)


def lines(run: Undelete) -> Iterator[Line]:
    """Every state of every file."""
    for life in run.past.lives:
        living = run.is_living(life)
        newest = life.last if living else run.last_state(life)
        for number, versions in enumerate(run.states(life), run.number_before(life) + 1):
            if newest in versions:
                state = "live" if living else "unlinked" if life.orphan else "deleted"
                gone = None if living or life.orphan else run.gone_by(life)
                lasting = run.renames.lasting_path(life)
                if lasting is not None:
                    yield Line(lasting, state, number, life.ino, newest, gone, (), life, (lasting,))
                    continue
                paths = run.names.paths(life, versions[-1])
                also = tuple(run.renames.of(life, paths))
                for path in paths:
                    yield Line(path, state, number, life.ino, newest, gone, also, life, tuple(paths))
            else:
                path = run.names.paths(life, versions[0], first=True)[0]
                yield Line(path, "older", number, life.ino, versions[-1], None, (), life, (path,))
    for found in run.names_only():
        yield Line(found.path, "name", None, found.ino, None)
