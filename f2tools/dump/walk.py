"""Walking a tree for the commands that go through all of it: bounded memory whatever a directory holds, no recursion.

Assumes nothing of names and of the shape of the tree: what can't be followed is noted and the walk goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from f2tools.errors import F2fsError

if TYPE_CHECKING:
    from f2tools.volume.data import Cluster, Extent
    from f2tools.volume.inode import Inode
    from f2tools.volume.volume import File, Volume

MAX_REASONS = 100  # of one file; more would only fill the memory
MAX_PATH_BYTES = 1 << 20  # a deeper directory is not entered: its paths alone would fill the memory
LONG_PATH_BYTES = 1 << 14  # a longer one is shortened where it is kept


class Lost(NamedTuple):
    """Something that could not be read, and why."""

    path: bytes
    reason: str

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"path": shown(self.path), "reason": self.reason}


class Found(NamedTuple):
    """A name in the tree: its path from the root (`/` is the root) and its inode."""

    path: bytes
    inode: Inode

    @property
    def name(self) -> bytes:
        """The last part of the path."""
        return self.path.rpartition(b"/")[2]


def shown(path: bytes) -> str:
    """A path as text; bytes that are not UTF-8 become lone surrogates."""
    return path.decode("utf-8", "surrogateescape")


def name_problem(name: bytes) -> str | None:
    """Why no file may have this name; None where it may."""
    if name in (b".", b".."):
        return f"an entry is named {shown(name)!r}"
    if b"/" in name or b"\0" in name:
        return f"the name {name!r} holds a slash or a NUL"
    return None if name else "an entry without a name"


def walk(volume: Volume, top: File, lost: list[Lost], *, max_path: int = MAX_PATH_BYTES) -> Iterator[Found]:
    """Everything from `top` on, a directory before what is in it; what can't be read is added to `lost`."""
    from f2tools.volume.inode import Inode

    start = top.path or b"/"
    yield Found(start, top.inode)
    if not top.inode.is_dir:
        return
    todo: list[tuple[bytes, int]] = [(start, top.inode.ino)]
    met = {top.inode.ino}
    while todo:
        path, ino = todo.pop()
        below: list[tuple[bytes, int]] = []
        problems: list[str] = []
        try:
            for batch in volume.scandir(volume.nodes.inode(ino), problems):
                for entry in batch:
                    child = path + entry.name if path == b"/" else path + b"/" + entry.name
                    reason = name_problem(entry.name)
                    if reason is not None:
                        lost.append(Lost(path, reason))
                    elif not isinstance(entry.inode, Inode):
                        lost.append(Lost(child, str(entry.inode)))
                    elif not entry.inode.is_dir:
                        yield Found(child, entry.inode)
                    elif entry.inode.ino in met:
                        lost.append(Lost(child, "the directory stands at a second place; not followed"))
                    elif len(child) > max_path:
                        yield Found(child, entry.inode)
                        named = child if len(child) <= LONG_PATH_BYTES else child[:200] + b"..."
                        lost.append(Lost(named, f"the path has more than {max_path} bytes; not followed"))
                    else:
                        met.add(entry.inode.ino)
                        yield Found(child, entry.inode)
                        below.append((child, entry.inode.ino))
        except F2fsError as error:
            lost.append(Lost(path, str(error)))
        lost += [Lost(path, text) for text in problems]
        todo += below[::-1]


def mapped(volume: Volume, inode: Inode, reasons: list[str]) -> Iterator[Extent | Cluster]:
    """What `DataReader.layout` yields, going on behind damage, which is noted in `reasons`.

    Corrupt where i_size is absurd.
    """
    data, size = volume.data, inode.cluster_size
    start, stop, step = 0, data.block_count(inode), size
    while start < stop:
        try:
            for item in data.layout(inode, start, stop):
                yield item
                start = item.fofs + getattr(item, "count", size) if size == 1 else item.fofs - item.fofs % size + size
                step = size
            return
        except F2fsError as error:
            if len(reasons) < MAX_REASONS:
                reasons.append(str(error))
            start += step
            step *= 2  # a damaged node may stand for any number of blocks
