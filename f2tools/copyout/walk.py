"""Walking a tree for the commands that go through all of it: bounded memory whatever a directory holds, no recursion.

Assumes nothing about names and the shape of the tree: what can't be followed is noted, and the walk goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from f2tools.errors import F2fsError
from f2tools.text import join

if TYPE_CHECKING:
    from f2tools.f2fs.volume.data import Cluster, Extent
    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import File, Volume

THERE_ALREADY = "something of that name is there already; --force replaces files"
MAX_REASONS = 100  # of one file; more would only fill the memory
MAX_PATH_BYTES = 1 << 16  # a deeper directory is not entered: paths alone would fill memory, disk and days
MAX_DEPTH = 4096  # directories inside one another; likewise
LONG_PATH_BYTES = 1 << 14  # a longer one is shortened where it is kept
SAME_NAME = "the target takes it for another name that is there; both can't be"  # it folds case, or normalises
_OTHER_REASONS = re.compile(
    "|".join(
        (
            f"^{re.escape(THERE_ALREADY)}$", f"^{re.escape(SAME_NAME)}$", "^can't be made: ",
            "^mode, owner or times can't be set: ", "not followed$", "encrypted(, and no key| and there is no key)",
            "^the root has no name", "which an archive can't hold$", "^ENAMETOOLONG$",
        )
    )
)  # fmt: skip
_DOTS = (b".", b"..")
_UNFIT = (*_DOTS, b"")
MAX_NAMES = 1 << 20  # names of one directory held to find those that stand there twice


class Lost(NamedTuple):
    """Something that could not be read, and why; for a file that was read in part, (offset, length) of what was not."""

    path: bytes
    reason: str
    ranges: tuple[tuple[int, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain: dict[str, Any] = {"path": shown(self.path), "reason": self.reason}
        return plain | {"ranges": [list(item) for item in self.ranges]} if self.ranges else plain


class Found(NamedTuple):
    """A name in the tree: its path from the root (`/` is the root) and its inode."""

    path: bytes
    inode: Inode

    @property
    def name(self) -> bytes:
        """The last part of the path."""
        return self.path.rpartition(b"/")[2]


def not_in_full(count: int) -> str:
    """What a manifest's errors are called on standard error."""
    return f'{count} could not be read in full; see "errors"'


def shown(path: bytes) -> str:
    """A path as text; bytes that are not UTF-8 become lone surrogates."""
    return path.decode("utf-8", "surrogateescape")


def placed(target: str, path: bytes) -> str:
    """Where a directory has, or would have, what is copied into it by this path, as text."""
    below = shown(path).lstrip("/")
    return os.path.join(target, below) if below else target


def name_problem(name: bytes) -> str | None:
    """Why no file may have this name; None where it may."""
    if name in _DOTS:
        return f"an entry is named {shown(name)!r}"
    if b"/" in name or b"\0" in name:
        return f"the name {name!r} holds a slash or a NUL"
    return None if name else "an entry without a name"


def too_deep(path: bytes, max_path: int = MAX_PATH_BYTES) -> str | None:
    """Why a directory is not entered by this path; None where it may be."""
    if len(path) > max_path:
        return f"the path has more than {max_path} bytes; not followed"
    if path.count(b"/") > MAX_DEPTH:
        return f"more than {MAX_DEPTH} directories inside one another; not followed"
    return None


def shortened(path: bytes) -> bytes:
    """A path as it is kept for a report."""
    return path if len(path) <= LONG_PATH_BYTES else path[:200] + b"..."


def byte_ranges(gaps: Iterable[tuple[int, int]], block_size: int, file_size: int) -> tuple[tuple[int, int], ...]:
    """(offset, length) of runs of file blocks, in order, joined where they touch, and only within the file."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(gaps):
        start, end = first * block_size, min((first + count) * block_size, file_size)
        if found and start <= sum(found[-1]):
            start, end = found[-1][0], max(end, sum(found.pop()))
        if start < end:
            found.append((start, end - start))
    return tuple(found)


def is_of_image(reason: str) -> bool:
    """Whether something is lost by what the image holds: not for want of a key, or by what the target can't take."""
    return bool(reason) and _OTHER_REASONS.search(reason) is None


class SeenNames:
    """The names met in one directory.  A look-up finds the first of two that are the same, so the second is no file."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def again(self, name: bytes) -> bool:
        """Whether this name was met before; beyond MAX_NAMES of them nothing new is remembered."""
        if name in self._met:
            return True
        if len(self._met) < MAX_NAMES:
            self._met.add(name)
        return False

    def all_new_and_sound(self, names: Sequence[bytes]) -> bool:
        """Whether none of these names was met before, stands there twice or is unfit for a file; only then they count
        as met from now on."""
        fresh = set(names)
        if len(fresh) < len(names) or len(fresh) + len(self._met) > MAX_NAMES or not fresh.isdisjoint(self._met):
            return False
        together = b"/".join(names)
        if together.count(b"/") != len(names) - 1 or b"\0" in together or not fresh.isdisjoint(_UNFIT):
            return False
        self._met |= fresh
        return True


MORE_NAMES = "a further name of an inode that has only one by its link count; not copied again"
SECOND_ENTRY = "a second entry of that name; look-ups find the first"


def walk(volume: Volume, top: File, lost: list[Lost], *, max_path: int = MAX_PATH_BYTES) -> Iterator[Found]:
    """Everything from `top` on; what can't be read is added to `lost`.

    A directory comes right before all that is in it, its files before its directories.
    """
    from f2tools.f2fs.volume.inode import Inode

    start = top.path or b"/"
    if not top.inode.is_dir:
        yield Found(start, top.inode)
        return
    todo: list[tuple[bytes, bytes, int]] = [(start, b"", top.inode.ino)]  # path of the directory above, name, ino
    met = {top.inode.ino}
    while todo:
        above, last, ino = todo.pop()
        path = join(above, last) if last else above
        below: list[tuple[bytes, bytes, int]] = []
        problems: list[str] = []
        names = SeenNames()
        try:
            inode = volume.nodes.inode(ino)
            yield Found(path, inode)
            reason = too_deep(path, max_path)
            if reason is not None:
                lost.append(Lost(shortened(path), reason))
                continue
            for batch in volume.scandir(inode, problems):
                for entry in batch:
                    child = join(path, entry.name)
                    reason = name_problem(entry.name)
                    if reason is not None:
                        lost.append(Lost(path, reason))
                    elif names.again(entry.name):
                        lost.append(Lost(child, SECOND_ENTRY))
                    elif not isinstance(entry.inode, Inode):
                        lost.append(Lost(child, str(entry.inode)))
                    elif not entry.inode.is_dir:
                        yield Found(child, entry.inode)
                    elif entry.inode.ino in met:
                        lost.append(Lost(child, "the directory stands at a second place; not followed"))
                    else:
                        met.add(entry.inode.ino)
                        below.append((path, entry.name, entry.inode.ino))
        except F2fsError as error:
            lost.append(Lost(path, str(error)))
        lost += [Lost(path, text) for text in problems]
        todo += below[::-1]


def mapped(
    volume: Volume, inode: Inode, reasons: list[str], gaps: list[tuple[int, int]] | None = None
) -> Iterator[Extent | Cluster]:
    """What `DataReader.layout` yields, going on behind damage, which is noted in `reasons`.

    `gaps` gets (first file block, count) of what was passed over.  Corrupt where i_size is absurd.
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
            if gaps is not None:
                gaps.append((start, min(step, stop - start)))
            start += step
            step *= 2  # a damaged node may stand for any number of blocks
