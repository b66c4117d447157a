"""Volumes to write to: fresh ones by mkfs options, the engine and the model side by side, and the judgement of both."""

from __future__ import annotations

import errno
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.constants import F2FS_COMPR_FL, F2FS_FEATURE_PRJQUOTA, F2FS_INDEX_FL, FEATURES
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.flash.vsl import create_vsl
from tests import judges
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK, Model, Node
from tests.images import copy_sparse, lasting_directory
from tests.mkfs.tools import f2mkfs

FULL = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,project_quota,quota,sb_checksum"
SECTOR = 512  # what a disk writes whole
MAKING = ("create", "mkdir", "symlink")
FIELDS = ("uid", "gid", "links", "size", "target", "rdev", "flags", "projid", "xattrs")


def thin_layer(directory: Path, held: int, space: int) -> Path:
    """A fresh volume as large as `space` on a storage layer that holds so many bytes."""
    path = directory / "layer.vsl"
    create_vsl(path, held, space_blocks=space // 512).close()
    f2mkfs("-q", path)
    return path


@cache
def _directory() -> Path:
    return lasting_directory("f2-fresh-")


@cache
def formatted(options: str = "--size 64M") -> Path:
    """An image made with these options, the same at every call: to be copied."""
    path = _directory() / f"{len(list(_directory().iterdir()))}.img"
    f2mkfs("-q", path, "-r", "-R", "0:0", *shlex.split(options))
    return path


def fresh(directory: Path, options: str = "--size 64M", name: str = "image") -> Path:
    """A private image made with these options."""
    directory.mkdir(parents=True, exist_ok=True)
    return copy_sparse(formatted(options), directory / name)


class Above(Overlay):
    """An overlay in memory that leaves the device below open."""

    def close(self) -> None:
        self._slots.close()


class Ticks:
    """A clock that goes on by a microsecond at every look."""

    def __init__(self, start: int = 1_700_000_000 * 10**9) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def writable(path: Path, wrap: Callable[[Device], Device] | None = None, **policy: Any) -> WritableVolume:
    """The engine on an image."""
    device = open_device(path, write=True)
    return WritableVolume(wrap(device) if wrap else device, Policy(**policy), Ticks(), seed=1)


@contextmanager
def reading(path: Path) -> Iterator[Volume]:
    """The read-only engine on an image."""
    device = open_device(path)
    try:
        yield Volume(device)
    finally:
        device.close()


class Twin:
    """The engine and the model, told the same; whatever one of them refuses, so must the other.

    A volume that is full may refuse what the model allows: that is counted in `full`, and the model stays as it was.
    """

    def __init__(self, volume: WritableVolume, model: Model | None = None) -> None:
        self.volume = volume
        self.model = model or model_of(volume)
        self.full = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **keywords: self.do(name, *args, **keywords)

    def do(self, name: str, *args: Any, **keywords: Any) -> Any:
        """Call a method of both; its result, or an OSError that both agree on."""
        result, said = _outcome(lambda: getattr(self.volume, name)(*args, **keywords))
        if said is not None and said.errno in (errno.ENOSPC, errno.EDQUOT):
            self.full += 1
            raise said
        more: dict[str, Any] = {}
        if name in MAKING:
            more["ino"] = result or 0
        elif name == "rename" and keywords.get("flags", args[4] if len(args) > 4 else 0) & 4 and said is None:
            more["ino"] = self.volume.lookup(args[0], args[1])
        if name == "write" and said is None and result < len(args[2]):
            assert result > 0, "a write of nothing is an error"
            self.full += 1
            args = (*args[:2], args[2][:result])  # a volume that gets full takes a part
        trial = self.model.copy()
        expected, wanted = _outcome(lambda: getattr(trial, name)(*args, **keywords, **more))
        assert (said and said.errno) == (wanted and wanted.errno), f"{name}{args}: {said!r}, must be {wanted!r}"
        if said is not None:
            raise said
        self.model = trial
        if name == "listxattr":
            result = sorted(result)
        if name not in MAKING:
            assert expected is None or result == expected, f"{name}{args}: {result!r}, must be {expected!r}"
        return result

    def attempt(self, name: str, *args: Any, **keywords: Any) -> Any:
        """As `do`, None where both refuse."""
        try:
            return self.do(name, *args, **keywords)
        except OSError:
            return None


def _outcome(call: Callable[[], Any]) -> tuple[Any, OSError | None]:
    """What a call returns, or the error of a system call that it raises."""
    try:
        return call(), None
    except OSError as error:
        return None, error


# -- what a volume holds, as a model -----------------------------------------------------------------------------------


def node_of(volume: Volume, inode: Inode) -> Node:
    """An inode read from a volume, in the model's form; without its children."""
    file = File(volume, inode)
    is_file = inode.is_file
    return Node(
        kind=stat.S_IFMT(inode.i_mode),
        mode=stat.S_IMODE(inode.i_mode),
        uid=inode.i_uid,
        gid=inode.i_gid,
        links=inode.i_links,
        size=0 if inode.is_dir else inode.i_size,
        blocks=_blocks_of(file) if is_file else {},
        target=file.readlink() if inode.kind == "symlink" else b"",
        rdev=inode.rdev if inode.kind in ("char", "block") else (0, 0),
        xattrs=file.xattrs(),
        flags=inode.i_flags & ~F2FS_INDEX_FL,  # every directory has it, and nobody can set it
        projid=inode.extra.get("i_projid", 0) if volume.geo.feature & F2FS_FEATURE_PRJQUOTA else 0,
        atime_ns=inode.atime_ns,
        mtime_ns=inode.mtime_ns,
    )


def _blocks_of(file: File) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for offset, data in file.chunks():
        assert offset % BLOCK == 0
        for at in range(0, len(data), BLOCK):
            block = bytes(data[at : at + BLOCK])
            if any(block):
                found[(offset + at) // BLOCK] = block.ljust(BLOCK, b"\0")
    return found


def model_of(volume: Volume) -> Model:
    """All that a volume holds."""
    features = frozenset(name for name, bit in FEATURES.items() if volume.geo.feature & bit)
    model = Model(features)
    problems: list[tuple[bytes, str]] = []
    root = volume.root.inode
    model.nodes = {root.ino: node_of(volume, root)}
    model.change(root.ino, parent=root.ino)
    for _, directory, entries in volume.walk(problems=problems):
        children = dict(model.nodes[directory.ino].children)
        for entry in entries:
            assert isinstance(entry.inode, Inode), f"{entry.name!r}: {entry.inode}"
            children[entry.name] = entry.inode.ino
            if entry.inode.ino not in model.nodes:
                model.nodes[entry.inode.ino] = replace(node_of(volume, entry.inode), parent=directory.ino)
        model.change(directory.ino, children=children)
    assert not problems, problems
    return model


def differences(
    found: Model, expected: Model, other_blocks: Callable[[int, int], list[bytes]] | None = None
) -> list[str]:
    """All in which two models differ, in words.  `other_blocks(ino, number)` gives contents that are fine as well."""
    said: list[str] = []
    here, there = found.paths(), expected.paths()
    said += [f"{path!r} is there and should not be" for path in sorted(here.keys() - there.keys())]
    said += [f"{path!r} is missing" for path in sorted(there.keys() - here.keys())]
    done: set[int] = set()
    for path in sorted(here.keys() & there.keys()):
        if here[path] != there[path]:
            said.append(f"{path!r} is inode {here[path]}, must be {there[path]}")
        elif here[path] not in done:
            done.add(here[path])
            said += [f"{path!r}: {text}" for text in _node_differences(here[path], found, expected, other_blocks)]
    return said


def _node_differences(
    ino: int, found: Model, expected: Model, other_blocks: Callable[[int, int], list[bytes]] | None
) -> Iterator[str]:
    mine, other = found.nodes[ino], expected.nodes[ino]
    if (mine.kind, mine.mode) != (other.kind, other.mode):
        yield f"mode {mine.kind | mine.mode:o}, must be {other.kind | other.mode:o}"
    for name in FIELDS:
        a, b = getattr(mine, name), getattr(other, name)
        if name == "size" and mine.is_dir:
            continue
        if a != b:
            yield f"{name} {a!r}, must be {b!r}"
    for name in ("atime_ns", "mtime_ns"):
        if getattr(other, name) is not None and getattr(mine, name) != getattr(other, name):
            yield f"{name} {getattr(mine, name)}, must be {getattr(other, name)}"
    for number in sorted(mine.blocks.keys() | other.blocks.keys()):
        a, b = mine.blocks.get(number, bytes(BLOCK)), other.blocks.get(number, bytes(BLOCK))
        if a == b:
            continue
        fine = [b] if other_blocks is None else [b, *other_blocks(ino, number)]
        end = max(0, min(BLOCK, mine.size - number * BLOCK))
        fine = [one[:end].ljust(BLOCK, b"\0") for one in fine] if other_blocks else fine
        sectors = (slice(at, at + SECTOR) for at in range(0, BLOCK, SECTOR))
        bad = next((at for at in sectors if all(a[at] != one[at] for one in fine)), None)
        if bad is None:
            continue
        at = next(i for i in range(bad.start, BLOCK) if a[i] != b[i])
        yield f"content differs at byte {number * BLOCK + at}: {a[at : at + 8].hex()}, must be {b[at : at + 8].hex()}"


def assert_same(volume: Volume, model: Model, context: str = "") -> None:
    """The volume's tree is the model's."""
    found = differences(model_of(volume), model)
    assert not found, f"{context}: not what was written:\n" + "\n".join(found[:40])


def _miscounted(model: Model) -> bool:
    """Whether fsck.f2fs may miscount a compressed file.

    Up to 1.16 it takes a direct node that is missing below an indirect one for 1,018 blocks, where those of compressed
    files have 1,016, and then finds the clusters behind it at the wrong place (f2fs-tools a35353d mended that).
    """
    return any(node.flags & F2FS_COMPR_FL and node.size > (923 + 2 * 1016) * BLOCK for node in model.nodes.values())


def judge(path: Path, model: Model | None = None, *, fsck: bool = True, context: str = "") -> None:
    """After a clean close: consistent, fsck.f2fs has nothing to say, the tree is the model's."""
    with reading(path) as volume:
        assert volume.clean
        assert_consistent(volume, context)
        if model is not None:
            assert_same(volume, model, context)
        torn = not all(pack.valid for pack in volume.packs)
    if model is not None and _miscounted(model):
        return
    if fsck and torn:
        run = judges.fsck(path)  # it tells of the other pack, which a power cut may have torn
        bad = [line for line in judges.complaints(run.output) if "CP CRC" not in line]
        assert run.rc == 0, str(run)
        assert not bad, str(run)
    elif fsck:
        judges.fsck_clean(path)
