"""What the tests of `f2tools dump` share: the command line in this process, changed images, trees of the host."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import f2tools
from f2tools.cli import run as run_cli
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, bitmap_size, dentries_in, reserved_size
from tests import images


@dataclass
class Result:
    """What a command left: exit code, standard output as bytes, standard error."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


class Terminal(io.TextIOWrapper):
    """A standard output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def f2(*args: object, terminal: bool = False) -> Result:
    """Run `f2tools ARGS` in this process; what nobody has foreseen fails the test."""
    raw = io.BytesIO()
    out = (Terminal if terminal else io.TextIOWrapper)(raw, encoding="utf-8", write_through=True)
    err = io.StringIO()
    before = sys.argv
    sys.argv = ["f2tools", *(os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in args)]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run_cli()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    out.flush()
    assert "this is a mistake in f2tools" not in err.getvalue(), err.getvalue()
    return Result(int(code), raw.getvalue(), err.getvalue())


def poke(path: Path, offset: int, data: bytes) -> None:
    """Change bytes of an image; they must change."""
    with path.open("r+b") as file:
        file.seek(offset)
        assert file.read(len(data)) != data, "nothing would change"
        file.seek(offset)
        file.write(data)


def dentry_at(path: Path, directory: str, name: bytes) -> tuple[int, int]:
    """(byte offset in the image of the struct f2fs_dir_entry, of the file name) of an entry."""
    with f2tools.open(path) as volume:
        inode = volume.path(directory).inode
        found = volume.dirs.lookup(inode, name)
        assert found is not None
        if found.block < 0:
            size = inode.inline_area.size
            base = inode.blkaddr * 4096 + 360 + inode.extra_isize + 4
        else:
            size = 4096
            base = int(volume.data.addresses(inode, found.block, 1)[0]) * 4096
    slots = dentries_in(size)
    entries = base + bitmap_size(slots) + reserved_size(size)
    return entries + SIZE_OF_DIR_ENTRY * found.slot, entries + SIZE_OF_DIR_ENTRY * slots + 8 * found.slot


def rename(path: Path, directory: str, old: bytes, new: bytes) -> None:
    """Write another name, of no more slots, over that of an entry; hashes are not listings' concern."""
    assert -(-len(new) // 8) <= -(-len(old) // 8)
    entry, name = dentry_at(path, directory, old)
    poke(path, name, new.ljust(len(old), b"\0"))
    with path.open("r+b") as file:
        file.seek(entry + 8)
        file.write(len(new).to_bytes(2, "little"))


def set_ino(path: Path, directory: str, name: bytes, ino: int) -> None:
    """Let an entry lead to another inode."""
    entry, _ = dentry_at(path, directory, name)
    poke(path, entry + 4, ino.to_bytes(4, "little"))


def inode_offset(path: Path, name: str) -> int:
    """The byte offset of a file's inode in the image."""
    with f2tools.open(path) as volume:
        return volume.path(name, follow=False).inode.blkaddr * 4096


def copy_of(name: str, directory: Path) -> images.Reference:
    """A private copy of a reference image."""
    return images.reference(name).copy(directory)


KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
}


def host_tree(root: Path) -> dict[str, dict[str, Any]]:
    """A tree of the host in the form of a manifest, as far as any file system keeps it."""
    found: dict[str, dict[str, Any]] = {}
    top = os.fsencode(root)
    todo = [b"."]
    while todo:
        relative = todo.pop()
        path = os.path.join(top, relative)
        status = os.lstat(path)
        kind = KINDS[stat.S_IFMT(status.st_mode)]
        entry: dict[str, Any] = {
            "type": kind,
            "mode": f"{stat.S_IMODE(status.st_mode):04o}",
            "uid": status.st_uid,
            "gid": status.st_gid,
            "mtime_ns": status.st_mtime_ns,
        }
        if kind == "file":
            entry["size"] = status.st_size
            digest = hashlib.sha256()
            if status.st_size <= 64 << 20:
                with open(path, "rb") as file:
                    digest.update(file.read())
                entry["sha256"] = digest.hexdigest()
            entry["host_blocks"] = status.st_blocks
        if kind != "dir":
            entry["host_key"] = (status.st_dev, status.st_ino)
            entry["nlink"] = status.st_nlink
        else:
            names = os.listdir(path)
            todo += [name if relative == b"." else relative + b"/" + name for name in names]
        if kind in ("char", "block"):
            entry["rdev"] = [os.major(status.st_rdev), os.minor(status.st_rdev)]
        if kind == "symlink":
            entry["target"] = os.fsdecode(os.readlink(path))
        found[os.fsdecode(relative)] = entry
    return found
