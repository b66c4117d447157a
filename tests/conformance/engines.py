"""Every engine that can be mounted, as what the model of the F2FS engine's tests speaks to: through `vfs` alone."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from f2tools.dffs.check import check as check_dffs
from f2tools.dffs.files import LiveFiles as DffsFiles
from f2tools.dfs.check import check as check_dfs
from f2tools.dfs.files import LiveFiles as DfsFiles
from f2tools.flash.nand import Geometry
from f2tools.flash.vsl import Shape
from f2tools.mount.tree import LiveTree
from f2tools.vfs import FileSystem
from tests.dffs import volumes as dffs
from tests.dfs import volumes as dfs
from tests.f2fs.write.model import BLOCK, Model, Node
from tests.f2fs.write.volumes import fresh, judge, writable

MODELS_ROOT = 3  # the number of the root in the model; others are moved out of its way
APART = 100
SMALL_IMAGE = Shape(page_size=4096, pages_per_block=64, blocks=192)  # 48 MiB
SMALL_CHIP = Geometry(blocks=384, page_size=2048, spare_size=64, pages_per_block=64)


class Served:
    """A mounted volume, with the calls and the numbers of the model."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files

    def _ino(self, number: int) -> int:
        return self.files.root_ino if number == MODELS_ROOT else number - APART

    def _number(self, ino: int) -> int:
        return MODELS_ROOT if ino == self.files.root_ino else ino + APART

    def lookup(self, parent: int, name: bytes) -> int:
        if len(name) > self.files.name_max:  # the server says so itself
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        found = self.files.lookup(self._ino(parent), name)
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._number(found)

    def create(
        self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, rdev: tuple[int, int] = (0, 0)
    ) -> int:
        return self._number(self.files.create(self._ino(parent), name, mode, uid, gid, os.makedev(*rdev)))

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0) -> int:
        return self._number(self.files.mkdir(self._ino(parent), name, mode, uid, gid))

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int = 0, gid: int = 0) -> int:
        return self._number(self.files.symlink(self._ino(parent), name, target, uid, gid))

    def link(self, number: int, parent: int, name: bytes) -> None:
        self.files.link(self._ino(number), self._ino(parent), name)

    def unlink(self, parent: int, name: bytes) -> None:
        self.files.unlink(self._ino(parent), name)

    def rmdir(self, parent: int, name: bytes) -> None:
        self.files.rmdir(self._ino(parent), name)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0) -> None:
        self.files.rename(self._ino(parent), name, self._ino(new_parent), new_name, flags)

    def read_at(self, number: int, offset: int, length: int) -> bytes:
        return bytes(self.files.read(self._ino(number), offset, length))

    def write(self, number: int, offset: int, data: bytes) -> int:
        return self.files.write(self._ino(number), offset, data)

    def truncate(self, number: int, size: int) -> None:
        self.files.truncate(self._ino(number), size)

    def setattr(self, number: int, **given: Any) -> None:
        self.files.setattr(self._ino(number), **given)

    def getxattr(self, number: int, name: str) -> bytes:
        value = self.files.getxattr(self._ino(number), name.encode())
        if value is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return value

    def listxattr(self, number: int) -> list[str]:
        return [name.decode() for name in self.files.listxattr(self._ino(number))]

    def setxattr(self, number: int, name: str, value: bytes) -> None:
        self.files.setxattr(self._ino(number), name.encode(), value)

    def removexattr(self, number: int, name: str) -> None:
        self.files.removexattr(self._ino(number), name.encode())

    def hold(self, number: int) -> None:
        self.files.hold(self._ino(number))

    def release(self, number: int) -> None:
        self.files.release(self._ino(number))

    def fsync(self, number: int, datasync: bool = False) -> None:
        self.files.fsync(self._ino(number), datasync)

    def sync(self) -> None:
        self.files.sync()

    # -- all of it ----------------------------------------------------------------------------------------------

    def model(self) -> Model:
        """All that the volume holds."""
        found = Model()
        found.nodes = {}
        todo = [(MODELS_ROOT, MODELS_ROOT)]
        while todo:
            number, parent = todo.pop()
            node = self._node(number, parent)
            found.nodes[number] = node
            todo += [(child, number) for child in node.children.values() if child not in found.nodes]
        return found

    def _node(self, number: int, parent: int) -> Node:
        ino = self._ino(number)
        said = self.files.attributes(ino)
        assert said.ino == ino
        kind, children, dots = stat.S_IFMT(said.mode), dict[bytes, int](), dict[bytes, int]()
        if stat.S_ISDIR(said.mode):
            for entry in self.files.entries(ino, 0):
                if entry.kind:
                    assert entry.kind == stat.S_IFMT(self.files.attributes(entry.ino).mode), entry
                into = dots if entry.name in (b".", b"..") else children
                assert entry.name not in into, entry
                into[entry.name] = self._number(entry.ino)
            assert dots == {b".": number, b"..": parent}
        content = self.files.read(ino, 0, said.size) if kind == stat.S_IFREG else b""
        blocks = {
            at // BLOCK: bytes(content[at : at + BLOCK]).ljust(BLOCK, b"\0") for at in range(0, len(content), BLOCK)
        }
        return Node(
            kind, stat.S_IMODE(said.mode), said.uid, said.gid, said.nlink, 0 if children or dots else said.size,
            {number: block for number, block in blocks.items() if any(block)},
            self.files.readlink(ino) if kind == stat.S_IFLNK else b"",
            (os.major(said.rdev), os.minor(said.rdev)) if kind in (stat.S_IFCHR, stat.S_IFBLK) else (0, 0),
            children, parent, {name: self.getxattr(number, name) for name in self.listxattr(number)}, 0, 0,
            said.atime_ns, said.mtime_ns,
        )  # fmt: skip


class Engine:
    """One engine with an empty volume; `again` closes it, judges it, and opens it anew."""

    def __init__(self, served: Served, again: Callable[[], Served]) -> None:
        self.served = served
        self._again = again

    def again(self) -> Served:
        self.served.files.close()
        self.served = self._again()
        return self.served


def _f2fs(directory: Path) -> Engine:
    path = fresh(directory)

    def again() -> Served:
        judge(path, fsck=False)
        return Served(LiveTree(writable(path)))

    return Engine(Served(LiveTree(writable(path))), again)


def _dfs(hashed: bool) -> Engine:
    dfs.hashed = hashed
    made = dfs.volume(shape=SMALL_IMAGE, size=40 << 20, chunk=None, slot=None)
    dfs.hashed = False

    def again() -> Served:
        image = dfs.content(engine.served.files.volume)  # type: ignore[attr-defined]
        assert check_dfs(dfs.reading(image)).findings == []
        return Served(DfsFiles(dfs.writing(image)))

    engine = Engine(Served(DfsFiles(made)), again)
    return engine


def _dffs() -> Engine:
    def again() -> Served:
        image = bytes(dffs.device_of(engine.served.files.volume).content)  # type: ignore[attr-defined]
        assert check_dffs(dffs.reading(image)).findings == []
        return Served(DffsFiles(dffs.writing(image)))

    engine = Engine(Served(DffsFiles(dffs.volume(SMALL_CHIP))), again)
    return engine


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "f2fs": _f2fs,
    "dfs": lambda _: _dfs(False),
    "dfs hashed": lambda _: _dfs(True),
    "dffs": lambda _: _dffs(),
}
