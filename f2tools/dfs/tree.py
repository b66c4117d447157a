"""Walking a tree for the commands that go through all of it: no recursion, and nothing believed of names and shape."""

from __future__ import annotations

from collections.abc import Iterator

from f2tools.copyout.walk import MORE_NAMES, SECOND_ENTRY, Lost, name_problem, shortened, too_deep
from f2tools.dfs.dentries import Dentry
from f2tools.dfs.inode import Inode
from f2tools.dfs.names import DOTS
from f2tools.dfs.volume import Volume
from f2tools.errors import F2fsError


def children(volume: Volume, folder: Inode, path: bytes, lost: list[Lost]) -> list[Dentry]:
    """The entries of a directory but for `.` and `..`, sorted by name; what can't be used is noted."""
    problems: list[str] = []
    names: dict[bytes, Dentry] = {}
    try:
        for entry in volume.dentries(folder, problems=problems):
            if entry.name in DOTS:
                continue
            problem = name_problem(entry.name)
            if problem is not None:
                lost.append(Lost(path, problem))
            elif entry.name in names:
                lost.append(Lost(under(path, entry.name), SECOND_ENTRY))
            else:
                names[entry.name] = entry
    except F2fsError as error:
        problems.append(str(error))
    lost += [Lost(path, text) for text in problems]
    return [names[name] for name in sorted(names)]


def walk(volume: Volume, top: Inode, path: bytes, lost: list[Lost]) -> Iterator[tuple[bytes, Inode]]:
    """(path, inode) of everything from `top` on, a directory right before all that is in it."""
    todo: list[tuple[bytes, Inode]] = [(path, top)]
    met: set[int] = {top.ino} if top.is_dir else set()
    copied: set[int] = set()
    while todo:
        here, inode = todo.pop()
        if not inode.is_dir:
            if inode.links < 2 and inode.ino in copied:
                lost.append(Lost(here, MORE_NAMES))
                continue
            copied.add(inode.ino)
            yield here, inode
            continue
        yield here, inode
        reason = too_deep(here)
        if reason is not None:
            lost.append(Lost(shortened(here), reason))
            continue
        below: list[tuple[bytes, Inode]] = []
        for entry in children(volume, inode, here, lost):
            try:
                child = volume.inode(entry.ino)
            except F2fsError as error:
                lost.append(Lost(under(here, entry.name), str(error)))
                continue
            if child.is_dir and child.ino in met:
                lost.append(Lost(under(here, entry.name), "the directory stands at a second place; not followed"))
                continue
            if child.is_dir:
                met.add(child.ino)
            below.append((under(here, entry.name), child))
        todo += below[::-1]


def under(path: bytes, name: bytes) -> bytes:
    """The path of a name in a directory."""
    return path + name if path.endswith(b"/") else path + b"/" + name
