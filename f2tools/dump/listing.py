"""What `ls`, `tree`, `stat` and `cat` show: rows of plain facts, taken from the volume a batch at a time."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from f2tools.copyout.walk import Lost, name_problem, shortened, shown, too_deep
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import ADVISE_FLAGS, COMPRESS_ALGORITHMS, INLINE_FLAGS, INODE_FLAGS, flag_names
from f2tools.f2fs.layout.file_type import kind_of_mode
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.lazy import dataclass
from f2tools.options import human_size
from f2tools.text import join, printable_name

_NO_MORE_TO_READ = frozenset(("file", "dir", "fifo", "socket"))  # of which `row_of` reads nothing but the inode


class Row(NamedTuple):
    """One name in a directory; `mode` has the type in it; `error` says why the inode can't be read."""

    name: bytes
    ino: int
    mode: int = 0
    kind: str = "unknown"
    nlink: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    blocks: int = 0
    mtime_ns: int = 0
    rdev: tuple[int, int] | None = None
    target: bytes | None = None
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        if self.error is not None:
            return {"name": shown(self.name), "ino": self.ino, "error": self.error}
        found: dict[str, Any] = {
            "name": shown(self.name),
            "type": self.kind,
            "mode": f"{stat.S_IMODE(self.mode):04o}",
            "nlink": self.nlink,
            "uid": self.uid,
            "gid": self.gid,
            "size": self.size,
            "blocks": self.blocks,
            "mtime_ns": self.mtime_ns,
            "ino": self.ino,
        }
        if self.rdev is not None:
            found["rdev"] = list(self.rdev)
        if self.target is not None:
            found["target"] = shown(self.target)
        return found


def file_at(volume: Volume, path: str, *, follow: bool) -> File:
    """The file of a PATH argument: a path, or `ino:NUMBER`; OSError as a system call, Usage for no number."""
    number = number_of(path)
    return volume.path(path, follow=follow) if number is None else volume.inode(number)


def number_of(path: str) -> int | None:
    """The NUMBER of a PATH argument that is `ino:NUMBER`; Usage where it is no number."""
    if not path.startswith("ino:"):
        return None
    try:
        return int(path[4:], 0)
    except ValueError:
        raise Usage(f"{path!r}: an inode number is wanted after ino:, like ino:4 or ino:0x4") from None


def row_of(volume: Volume, name: bytes, inode: Inode | F2fsError, ino: int) -> Row:
    """One row; it says what can't be read."""
    if not isinstance(inode, Inode):
        return Row(name, ino, error=str(inode))
    file = File(volume, inode)
    kind = inode.kind
    target: bytes | None = None
    try:
        if kind == "symlink":
            target = file.readlink()
        return Row(
            name,
            inode.ino,
            inode.i_mode,
            kind,
            inode.i_links,
            inode.i_uid,
            inode.i_gid,
            file.st_size,
            inode.st_blocks,
            inode.mtime_ns,
            inode.rdev if kind in ("char", "block") else None,
            target,
        )
    except F2fsError as error:
        return Row(name, ino, error=str(error))


def _whole(volume: Volume, directory: Inode, problems: list[str]) -> Iterator[Row]:
    for batch in volume.scandir(directory, problems):
        for entry in batch:
            yield row_of(volume, entry.name, entry.inode, entry.dentry.ino)


def _brief(volume: Volume, directory: Inode, problems: list[str]) -> Iterator[Row]:
    """Rows with no more than name, number and kind; they are errors where those of `_whole` are."""
    for names, inos in volume.scan_numbers(directory, problems):
        modes = volume.nodes.modes(inos)
        kinds = [kind_of_mode(mode) if isinstance(mode, int) else None for mode in modes]
        rest = [ino for ino, kind in zip(inos, kinds, strict=True) if kind is not None and kind not in _NO_MORE_TO_READ]
        inodes = iter(volume.nodes.inodes(rest) if rest else ())
        for name, ino, mode, kind in zip(names, inos, modes, kinds, strict=True):
            if isinstance(mode, F2fsError):
                yield row_of(volume, name, mode, ino)
            elif kind in _NO_MORE_TO_READ:
                yield Row(name, ino, mode, kind)
            else:
                yield row_of(volume, name, next(inodes), ino)


def rows(volume: Volume, inode: Inode, lost: list[Lost], path: bytes, *, brief: bool = False) -> list[Row]:
    """The entries of a directory by name; what is wrong with the directory is added to `lost`.

    `brief`: name, number and kind are enough.
    """
    found: list[Row] = []
    problems: list[str] = []
    try:
        for row in (_brief if brief else _whole)(volume, inode, problems):
            reason = name_problem(row.name)
            if reason is not None:
                problems.append(reason)
            found.append(row)
    except F2fsError as error:
        problems.append(str(error))
    lost += [Lost(path, text) for text in problems]
    lost += [Lost(join(path, row.name), row.error) for row in found if row.error is not None]
    return sorted(found, key=attrgetter("name"))


def directories(
    volume: Volume, top: File, lost: list[Lost], *, recursive: bool, brief: bool = False
) -> Iterator[tuple[bytes, Inode, list[Row]]]:
    """(path, inode, rows) of a directory, and with `recursive` of all below, in the order of `ls -R`.

    `brief` as for `rows`.
    """
    start = top.path or b"ino:%d" % top.inode.ino
    todo: list[tuple[bytes, int]] = [(start, top.inode.ino)]
    met = {top.inode.ino}
    while todo:
        path, ino = todo.pop()
        try:
            inode = volume.nodes.inode(ino)
        except F2fsError as error:
            lost.append(Lost(path, str(error)))
            continue
        found = rows(volume, inode, lost, path, brief=brief)
        yield path, inode, found
        if recursive:
            below = list(_to_enter(found, path, met, lost))
            todo += below[::-1]


def _to_enter(found: Iterable[Row], path: bytes, met: set[int], lost: list[Lost]) -> Iterator[tuple[bytes, int]]:
    for row in found:
        if row.kind != "dir" or name_problem(row.name):
            continue
        if row.ino in met:
            lost.append(Lost(join(path, row.name), "the directory stands at a second place; not followed"))
            continue
        met.add(row.ino)
        child = join(path, row.name)
        if (reason := too_deep(child)) is not None:
            lost.append(Lost(shortened(child), reason))
            continue
        yield child, row.ino


# -- ls ---------------------------------------------------------------------------------------------------------------


def short_lines(found: list[Row], *, inodes: bool) -> Iterator[str]:
    """Names, one a line."""
    if not inodes:
        text = shown(b"".join([row.name for row in found]))
        if text.isprintable() and "\\" not in text:  # as nearly all are
            yield from [shown(row.name) for row in found]
        else:
            yield from [printable_name(shown(row.name)) for row in found]
        return
    width = max((len(str(row.ino)) for row in found), default=0)
    for row in found:
        yield f"{row.ino:>{width}} {printable_name(shown(row.name))}"


def long_lines(found: list[Row], *, inodes: bool, human: bool = False) -> Iterator[str]:
    """Lines like those of `ls -l`; owners are numbers, as the image has no names for them."""

    def size_of(row: Row) -> str:
        if row.rdev is not None:
            return f"{row.rdev[0]}, {row.rdev[1]}"
        return human_size(row.size) if human else str(row.size)

    def width(column: Callable[[Row], object]) -> int:
        return max((len(str(column(row))) for row in found if row.error is None), default=1)

    ino, nlink, uid, gid = (width(attrgetter(name)) for name in ("ino", "nlink", "uid", "gid"))
    size = width(size_of)
    for row in found:
        number = f"{row.ino:>{ino}} " if inodes else ""
        name = printable_name(shown(row.name))
        if row.error is not None:
            yield f"{number}?????????? {name}: {row.error}"
            continue
        target = "" if row.target is None else f" -> {printable_name(shown(row.target))}"
        yield (
            f"{number}{stat.filemode(row.mode)} {row.nlink:>{nlink}} {row.uid:>{uid}} {row.gid:>{gid}} "
            f"{size_of(row):>{size}} {minute(row.mtime_ns)} {name}{target}"
        )


def minute(ns: int) -> str:
    """A local time for people; the bare number where no calendar has it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(ns // 1_000_000_000))
    except (OverflowError, ValueError, OSError):
        return f"@{ns // 1_000_000_000}"


def instant(ns: int) -> str:
    """A time to the nanosecond, UTC."""
    seconds, rest = divmod(ns, 1_000_000_000)
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f".{rest:09d} UTC"
    except (OverflowError, ValueError, OSError):
        return f"@{seconds}.{rest:09d}"


# -- tree -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """A row at its place in the tree; `prefix` is what is drawn before the name."""

    path: bytes
    row: Row
    depth: int
    prefix: str


def branches(
    volume: Volume, top: File, lost: list[Lost], *, deepest: int | None, directories_only: bool
) -> Iterator[Branch]:
    """Everything below `top`, drawn like tree(1); a directory's entries follow it."""
    start = top.path or b"ino:%d" % top.inode.ino
    met = {top.inode.ino}

    def below(path: bytes, ino: int, depth: int, stem: str) -> Iterator[tuple[Branch, str]]:
        if deepest is not None and depth > deepest:
            return
        try:
            inode = volume.nodes.inode(ino)
        except F2fsError as error:
            lost.append(Lost(path, str(error)))
            return
        found = rows(volume, inode, lost, path)
        if directories_only:
            found = [row for row in found if row.kind == "dir"]
        for index, row in enumerate(found):
            last = index == len(found) - 1
            branch = Branch(join(path, row.name), row, depth, stem + ("└── " if last else "├── "))
            yield branch, stem + ("    " if last else "│   ")

    stack = [below(start, top.inode.ino, 1, "")]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            continue
        branch, stem = found
        yield branch
        row = branch.row
        if row.kind != "dir" or name_problem(row.name):
            continue
        if row.ino in met:
            lost.append(Lost(branch.path, "the directory stands at a second place; not followed"))
            continue
        met.add(row.ino)
        if (reason := too_deep(branch.path)) is not None:
            lost.append(Lost(shortened(branch.path), reason))
            continue
        stack.append(below(branch.path, row.ino, branch.depth + 1, stem))


# -- stat -------------------------------------------------------------------------------------------------------------


def facts(file: File) -> dict[str, Any]:
    """Everything about a file except its content: what the system calls say, and what only the disk knows."""
    from f2tools.dump.manifest import entry_of, errno_of
    from f2tools.f2fs.volume.verity import read_verity

    inode = file.inode
    found: dict[str, Any] = {"path": shown(file.path) if file.path else None, **entry_of(file, content=False)}
    found["disk"] = disk = {
        "blkaddr": inode.blkaddr,
        "name": shown(inode.name),
        "parent_ino": inode.i_pino,
        "generation": inode.i_generation,
        "flags": flag_names(inode.i_flags, INODE_FLAGS),
        "inline": flag_names(inode.i_inline, INLINE_FLAGS),
        "advise": flag_names(inode.i_advise, ADVISE_FLAGS),
        "xattr_nid": inode.i_xattr_nid,
        "blocks": inode.i_blocks,
    }
    if inode.is_dir:
        disk["current_depth"], disk["dir_level"] = inode.i_current_depth, inode.i_dir_level
    try:
        if inode.compressed:
            number = inode.extra["i_compress_algorithm"]
            found["compress"] = {
                "algorithm": COMPRESS_ALGORITHMS[number] if number < len(COMPRESS_ALGORITHMS) else number,
                "log_cluster_size": inode.extra["i_log_cluster_size"],
                "saved_blocks": inode.extra["i_compr_blocks"],
                "chksum": bool(inode.extra["i_compress_flag"] & 1),
            }
        if inode.verity and not file.volume.locked(inode):
            verity = read_verity(file.volume.nodes, file.volume.data, inode)
            if verity:
                found["verity"] = {"algorithm": verity.algorithm_name, "digest": verity.digest.hex()}
    except F2fsError as error:
        found["read_error"] = errno_of(error)
    return found


def stat_lines(found: dict[str, Any]) -> Iterator[str]:
    """The facts for people."""
    disk = found["disk"]
    target = f" -> {printable_name(found['target'])}" if "target" in found else ""
    name = "by number" if found["path"] is None else printable_name(found["path"])
    yield f"  File: {name}{target}"
    device = f"  Device: {found['rdev'][0]}, {found['rdev'][1]}" if "rdev" in found else ""
    yield f"  Type: {found['type']}  Size: {found['size']}  Blocks: {found['blocks']} of 512 bytes{device}"
    yield (
        f" Inode: {found['ino']}  Links: {found['nlink']}  Block: {disk['blkaddr']:#x}  "
        f"Generation: {disk['generation']:#x}"
    )
    yield f"  Mode: {found['mode']}  Uid: {found['uid']}  Gid: {found['gid']}" + (
        f"  Project: {found['projid']}" if found.get("projid") else ""
    )
    for label, key in (("Access", "atime_ns"), ("Modify", "mtime_ns"), ("Change", "ctime_ns"), (" Birth", "btime_ns")):
        if key in found:
            yield f"{label}: {instant(found[key])}"
    flags = [*disk["flags"], *disk["inline"], *disk["advise"]]
    yield f" Flags: {' '.join(flags) or 'none'}"
    yield f"Parent: inode {disk['parent_ino']}, last known there as {printable_name(disk['name'])}"
    if "compress" in found:
        c = found["compress"]
        checks = "with checksums" if c["chksum"] else "without checksums"
        yield (
            f"Packed: {c['algorithm']}, clusters of {1 << c['log_cluster_size']} blocks, "
            f"{c['saved_blocks']} blocks saved, {checks}"
        )
    if "verity" in found:
        yield f"Verity: {found['verity']['algorithm']}:{found['verity']['digest']}"
    if "policy" in found:
        yield f"Policy: {found['policy']} (fscrypt)"
    for name, value in found.get("xattrs", {}).items():
        yield f" Xattr: {printable_name(name)} = {_value(bytes.fromhex(value))}"
    for key in ("read_error", "xattr_error"):
        if key in found:
            yield f" Error: {found[key]}"


def _value(value: bytes) -> str:
    """An attribute's value: text where it is text, with the NUL that some end with, else hex."""
    text = value.rstrip(b"\0")
    try:
        if len(value) - len(text) <= 1 and text.decode().isprintable():
            return f'"{text.decode()}"'
    except UnicodeDecodeError:
        pass
    return "0x" + value.hex()
