"""A volume opened for reading: every structure under one checkpoint, and files by path."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device, open_device
from f2tools.errors import DeviceError, F2fsError, Gone, NotF2fs, Unsupported, Where
from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    CP_ERROR_FLAG,
    CP_FSCK_FLAG,
    CP_UMOUNT_FLAG,
    F2FS_FEATURE_ENCRYPT,
    F2FS_FT_DIR,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.volume.checkpoint import Pack, Which, choose_pack, read_orphans, read_packs, was_begun
from f2tools.f2fs.volume.data import DataReader
from f2tools.f2fs.volume.dentries import Dentry, Listed, names_in, parse_dentries
from f2tools.f2fs.volume.dir import DirReader, nokey_name
from f2tools.f2fs.volume.fscrypt import (
    Keyring,
    PolicyUse,
    Secrets,
    decrypt_target,
    idle_sources,
    policies_in_use,
    symlink_ciphertext,
)
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.members import check_order
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.node import NodeReader
from f2tools.f2fs.volume.sit import Sit
from f2tools.f2fs.volume.stale import FEW, stale_nat
from f2tools.f2fs.volume.summary import SHOWN_OLDER, Summaries
from f2tools.f2fs.volume.super import (
    SuperCopy,
    choose_superblock,
    lay_out_devices,
    missing_of,
    overwritten_by,
    read_superblocks,
    unknown_features,
)
from f2tools.f2fs.volume.xattr import encryption_context, visible_xattrs
from f2tools.lazy import dataclass
from f2tools.text import join

if TYPE_CHECKING:
    from pathlib import Path

    from f2tools.f2fs.volume.newer import Newer

_DOTS = (b".", b"..")
RESERVED_NODES = 3  # nids 0 to 2 are never handed out
SYMLINKS_FOLLOWED = 40
SCAN_ENTRIES = 1024  # of a directory, whose inodes are held at a time


class Entry(NamedTuple):
    """A name in a directory and the inode behind it, or what is wrong with that."""

    dentry: Dentry
    name: bytes  # as shown: encrypted names are decrypted with their key, encoded without
    inode: Inode | F2fsError


class Volume:
    """An F2FS volume, read-only.

    `vol.path("/etc/passwd").read()`, `for path, inode, entries in vol.walk()`; `vol.sb`, `vol.cp`, `vol.nat`,
    `vol.sit`.
    `warnings` says in words what a reader should know: a missing second superblock, an unknown feature, a short device.
    """

    def __init__(self, device: Device, which: Which = "newest", keyring: Keyring | None = None) -> None:
        self.device = device
        self.keyring = keyring or Keyring()
        self.warnings: list[str] = []
        self.super_copies: tuple[SuperCopy, SuperCopy] = read_superblocks(device)
        chosen = choose_superblock(self.super_copies, device)
        assert chosen.sb is not None
        self.sb = chosen.sb
        self.geo = Geometry.of(self.sb)
        lay_out_devices(self.device, self.sb, self.geo)
        self.packs: tuple[Pack, Pack] = read_packs(device, self.geo)
        self.pack: Pack = choose_pack(self.packs, which, device.name)
        check_order(device, self.sb, self.geo, self.pack)
        self.cp = self.pack.cp
        self._warn()

    def _warn(self) -> None:
        other = overwritten_by(self.device, self.super_copies)
        if other:
            self.warnings.append(f"{other} was made over this volume; what is shown is what is left of it")
        if self.device.loss:
            self.warnings.append(self.device.loss)
        for copy in self.super_copies:
            if not copy.valid:
                self.warnings.append(f"superblock copy {copy.index} is not usable: {', '.join(copy.problems)}")
        if unknown_features(self.sb):
            self.warnings.append(f"unknown feature bits {unknown_features(self.sb):#x}: reading may go wrong")
        for name, missing in missing_of(self.device, self.geo.end_blkaddr * self.geo.block_size):
            which = name if hasattr(self.device, "set_layout") else "the image"
            self.warnings.append(f"{which} is cut off: {missing} bytes of the volume are missing at its end")
        for pack in self.packs:
            written = not pack.valid and (pack.cp.checkpoint_ver or not pack.head)
            if written and not self.is_unfinished(pack):
                self.warnings.append(f"checkpoint pack {pack.index + 1} is not usable: {', '.join(pack.problems)}")
        if self.cp.ckpt_flags & (CP_ERROR_FLAG | CP_FSCK_FLAG):
            self.warnings.append("the volume was marked as in need of a check")

    def is_unfinished(self, pack: Pack) -> bool:
        """Whether a power cut left a pack that is not valid: no damage, the next checkpoint is written over it."""
        return not pack.valid and was_begun(self.device, self.geo, pack, self.pack)

    closed = False

    def close(self) -> None:
        """Close the device: what is not in memory can't be read any more.  More than once is fine."""
        self.closed = True
        self.device.close()

    def must_be_open(self) -> None:
        """ValueError once it is closed, as of Python's files."""
        if self.closed:
            raise ValueError(f"{self.device.name}: the volume is closed")

    def __enter__(self) -> Self:
        self.must_be_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- structures ---------------------------------------------------------------------------------------------

    @cached_property
    def summaries(self) -> Summaries:
        """SSA, summaries of the open logs, journals."""
        return Summaries(self.device, self.geo, self.pack)

    @cached_property
    def nat(self) -> Nat:
        """The node address table."""
        return Nat(self.device, self.geo, self.pack, self.summaries.journals.nat)

    @cached_property
    def journals_lost(self) -> bool:
        """Whether what the journals held may be gone, as far as a quick look tells: then files may be older."""
        with suppress(F2fsError):  # what can't be read says nothing
            if stale_nat(self.device, self.geo, self.pack, self.nat, most=FEW) is not None:
                return True
        return self.summaries.journals_lost(self.cp, lambda: self.sit)

    @cached_property
    def newer(self) -> Newer | None:
        """The state that is surely newer than the one shown, behind a checkpoint pack that is not usable any more."""
        if all(pack.valid for pack in self.packs):
            return None
        from f2tools.f2fs.volume.newer import newer_state

        with suppress(F2fsError):  # what can't be read says nothing
            found = newer_state(self.device, self.geo, self.packs, self.pack, self.nat, tuple)
            return found if found is not None and found.sure else None
        return None

    @cached_property
    def shown_older(self) -> str:
        """Why what is shown may be older than what was written last, and what finds that; else empty."""
        if self.journals_lost:
            return SHOWN_OLDER
        if self.newer is None:
            return ""
        from f2tools.f2fs.volume.newer import newer_than_shown

        finds = "`f2tools fsck --salvage DIR` copies out both, `f2tools fsck` says more (C018)"
        return f"{newer_than_shown(self.newer)}, and is not shown; {finds}"

    @cached_property
    def sit(self) -> Sit:
        """The segment information table."""
        return Sit(self.device, self.geo, self.pack, self.summaries.journals.sit)

    @cached_property
    def nodes(self) -> NodeReader:
        """Node blocks by number."""
        return NodeReader(self.device, self.geo, self.nat)

    @cached_property
    def data(self) -> DataReader:
        """File mapping and content."""
        return DataReader(self.device, self.geo, self.nodes, self.secrets)

    @cached_property
    def dirs(self) -> DirReader:
        """Directory entries."""
        return DirReader(self.geo, self.data, self.secrets)

    @cached_property
    def secrets(self) -> Secrets:
        """The files that the keys that were given open."""
        return Secrets(self.keyring, self.sb.uuid, self.nodes)

    def policies(self) -> list[PolicyUse]:
        """The encryption policies in use, most used first.  Reads every inode."""
        if not self.geo.feature & F2FS_FEATURE_ENCRYPT:
            return []
        return policies_in_use(self.nat, self.nodes, self.keyring)

    def idle_keys(self, most: int) -> list[str]:
        """Sentences about given keys that open nothing.  Reads inodes until each key has opened one, at most so many.

        Nothing is said where there are more inodes, unless nothing in the volume is encrypted.
        """
        if not self.geo.feature & F2FS_FEATURE_ENCRYPT:
            return self.keyring.say_idle(self.keyring.sources)
        return self.keyring.say_idle(idle_sources(self.nat, self.nodes, self.keyring, most))

    def locked(self, inode: Inode) -> bool:
        """Whether content, names or target of an inode are ciphertext for which there is no key."""
        return inode.encrypted and self.secrets.of(inode) is None

    def orphans(self) -> NDArray[np.uint32]:
        """Inodes that were open without a name at the checkpoint."""
        return read_orphans(self.device, self.geo, self.pack)

    @property
    def clean(self) -> bool:
        """Whether an unmount made the checkpoint; see also `recovery.ended_cleanly`."""
        return bool(self.cp.ckpt_flags & CP_UMOUNT_FLAG)

    def statfs(self) -> dict[str, int]:
        """What statfs(2) says of the volume, under the kernel's names; see f2fs_statfs() in fs/f2fs/super.c."""
        cp, geo = self.cp, self.geo
        free = cp.user_block_count - cp.valid_block_count + self._orphan_blocks()
        if cp.ckpt_flags & CP_DISABLED_FLAG:
            free -= self._unusable_blocks()
        blocks = geo.block_count - geo.segment0_blkaddr
        free = min(max(0, free), blocks)  # where the checkpoint is damaged
        nodes = geo.max_nid - RESERVED_NODES
        if nodes > cp.user_block_count:
            files, free_files = cp.user_block_count, free
        else:
            files, free_files = nodes, min(max(0, nodes - cp.valid_node_count), free)
        return {
            "f_bsize": geo.block_size,
            "f_frsize": geo.block_size,
            "f_blocks": blocks,
            "f_bfree": free,
            "f_bavail": free,
            "f_files": files,
            "f_ffree": free_files,
            "f_namemax": 255,
        }

    def _orphan_blocks(self) -> int:
        """Blocks of files without a name: a mount gives them back first, a read-only one in memory."""
        try:
            found = self.nodes.inodes(sorted(set(self.orphans().tolist())))
        except F2fsError:  # the list is damaged; a mount would fail, but the rest can be read
            return 0
        return sum(inode.i_blocks for inode in found if isinstance(inode, Inode))

    def _unusable_blocks(self) -> int:
        """Blocks that can't be used while checkpoints are disabled: holes in dirty segments beyond overprovision."""
        vblocks = self.sit.vblocks
        dirty = (vblocks > 0) & (vblocks < self.geo.blocks_per_seg)
        for curseg in self.summaries.cursegs:
            dirty[curseg.segno] = False
        types = self.sit.types[dirty]
        holes = self.geo.blocks_per_seg - vblocks[dirty].astype(np.int64)
        worst = max(int(holes[types < 3].sum()), int(holes[types >= 3].sum()))
        overprovision = self.cp.overprov_segment_count - self.cp.rsvd_segment_count
        return max(0, worst - overprovision * self.geo.blocks_per_seg)

    # -- files --------------------------------------------------------------------------------------------------

    @property
    def root(self) -> File:
        """The root directory."""
        return self.inode(F2FS_ROOT_INO, b"/")

    def inode(self, ino: int, path: bytes | None = None) -> File:
        """A file by inode number."""
        return File(self, self.nodes.inode(ino), path)

    def path(self, path: str | bytes | os.PathLike[str], follow: bool = True) -> File:
        """A file by path, symbolic links followed (the last one only with `follow`).

        OSError as a system call would report it: ENOENT, ENOTDIR, ELOOP.
        """
        raw = os.fsencode(path)
        here = self.root
        stack = [here]
        todo = [part for part in raw.split(b"/") if part][::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part == b".":
                continue
            if part == b"..":
                if len(stack) > 1:
                    stack.pop()
                continue
            found = stack[-1].child(part)
            if found.inode.kind == "symlink" and (todo or follow):
                links += 1
                if links > SYMLINKS_FOLLOWED:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(raw))
                target = found.readlink()
                if target.startswith(b"/"):
                    stack = [here]
                todo += [step for step in target.split(b"/") if step][::-1]
                continue
            stack.append(found)
        return stack[-1]

    def scandir(self, inode: Inode, problems: list[str] | None = None) -> Iterator[list[Entry]]:
        """The entries of a directory with their inodes, `.` and `..` left out, in pieces that are read in one go.

        F2fsError where the directory can't be read further.  Impossible entries are noted in `problems`.
        """
        for dentries, names in self.scan_names(inode, problems):
            inodes = self.nodes.inodes([dentry.ino for dentry in dentries])
            yield [Entry(*found) for found in zip(dentries, names, inodes, strict=True)]

    def scan_names(self, inode: Inode, problems: list[str] | None = None) -> Iterator[tuple[list[Dentry], list[bytes]]]:
        """The entries that `scandir` gives, in the same pieces, with their names as they are shown."""
        noted = problems if problems is not None else []
        held: list[Dentry] = []
        dots = 0
        for dentry in self.dirs.entries(inode, noted):
            if dentry.name in _DOTS:
                dots += 1
                _note_dots(dentry, dots, noted)
                continue
            held.append(dentry)
            if len(held) == SCAN_ENTRIES:
                yield held, self.dirs.shown(inode, held, noted)
                held = []
        if held:
            yield held, self.dirs.shown(inode, held, noted)

    def scan_numbers(
        self, inode: Inode, problems: list[str] | None = None
    ) -> Iterator[tuple[Sequence[bytes], Sequence[int]]]:
        """Names and inode numbers of the entries that `scan_names` gives, in the same pieces."""
        if self.dirs.encrypted(inode):
            for dentries, shown in self.scan_names(inode, problems):
                yield shown, [dentry.ino for dentry in dentries]
            return
        noted = problems if problems is not None else []
        names: list[bytes] = []
        inos: list[int] = []
        dots = 0
        for first, areas in self.dirs.areas(inode, noted):
            found = names_in(areas)
            if found is None or dots + found.dots > 2:
                found = _parsed(areas, first, dots, noted)
            names += found.names
            inos += found.inos
            dots += found.dots
            end = len(names) - len(names) % SCAN_ENTRIES
            for at in range(0, end, SCAN_ENTRIES):
                yield names[at : at + SCAN_ENTRIES], inos[at : at + SCAN_ENTRIES]
            if end:
                names, inos = names[end:], inos[end:]
        if names:
            yield names, inos

    def listdir(self, inode: Inode, problems: list[str] | None = None) -> list[Entry]:
        """All of `scandir` at once: some 4 KiB of memory for each entry."""
        return [entry for piece in self.scandir(inode, problems) for entry in piece]

    def walk(
        self, top: str | bytes = "/", problems: list[tuple[bytes, str]] | None = None
    ) -> Iterator[tuple[bytes, Inode, list[Entry]]]:
        """(path, inode, entries) of each directory below `top`, parents first; paths start with `/`.

        A directory of more than 1024 entries comes in several pieces, one after the other.  A directory that can't be
        read, or that is met a second time, is noted in `problems` and left out; one whose inode can't be read has an
        error in its entry.  Without `problems`, a device that fails where a directory is ends the walk: DeviceError.
        Where nothing can be read any more, Gone ends it in any case.
        """
        start = self.path(top)
        noted = problems if problems is not None else []
        todo: list[tuple[bytes, int]] = [(start.path or b"/", start.inode.ino)]
        met: set[int] = {start.inode.ino}
        while todo:
            path, ino = todo.pop()
            said: list[str] = []
            below: list[tuple[bytes, int]] = []
            try:
                inode = self.nodes.inode(ino)
                empty = True
                for entries in self.scandir(inode, said):
                    empty = False
                    yield path, inode, entries
                    if problems is None:
                        _must_be_within_reach(entries)
                    below += self._directories(path, entries, met, noted)
                if empty:
                    yield path, inode, []
            except F2fsError as error:
                if isinstance(error, Gone) or (problems is None and isinstance(error, DeviceError)):
                    raise
                noted.append((path, str(error)))
            noted += [(path, text) for text in said]
            todo += below[::-1]

    def _directories(
        self, path: bytes, entries: list[Entry], met: set[int], noted: list[tuple[bytes, str]]
    ) -> Iterator[tuple[bytes, int]]:
        """(path, inode number) of the directories among entries that were not met before."""
        for entry in entries:
            if not isinstance(entry.inode, Inode) or not entry.inode.is_dir:
                continue
            child = join(path, entry.name)
            if entry.inode.ino in met:
                noted.append((child, "the directory stands at a second place; not followed"))
                continue
            met.add(entry.inode.ino)
            yield child, entry.inode.ino


def _must_be_within_reach(entries: list[Entry]) -> None:
    """DeviceError where the inode of a directory can't be read: what lies below it would be left out unsaid."""
    for entry in entries:
        if isinstance(entry.inode, DeviceError) and entry.dentry.file_type == F2FS_FT_DIR:
            raise entry.inode


def _parsed(areas: NDArray[np.uint8], first: int, dots: int, problems: list[str]) -> Listed:
    """What `names_in` gives, one entry after another; `dots` of the directory were met before."""
    names: list[bytes] = []
    inos: list[int] = []
    before = dots
    for number, area in enumerate(areas, first):
        for dentry in parse_dentries(area, number, problems):
            if dentry.name in _DOTS:
                dots += 1
                _note_dots(dentry, dots, problems)
                continue
            names.append(dentry.name)
            inos.append(dentry.ino)
    return Listed(names, inos, dots - before)


def _note_dots(dentry: Dentry, number: int, problems: list[str]) -> None:
    if number > 2:
        problems.append(f"an entry is named {os.fsdecode(dentry.name)!r} beyond the first two")


@dataclass(frozen=True)
class File:
    """A file of any kind on a volume; `path` is how it was reached, None when by number."""

    volume: Volume
    inode: Inode
    path: bytes | None = None

    def child(self, name: bytes) -> File:
        """The file with this name in this directory; OSError ENOENT or ENOTDIR."""
        shown = os.fsdecode(join(self.path or b"/", name))
        if not self.inode.is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), shown)
        found = self.volume.dirs.find(self.inode, name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
        return File(self.volume, self.volume.nodes.inode(found[1].ino), join(self.path or b"/", name))

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """So many bytes from `offset` on, or all (None or -1), holes as zeros.

        IsADirectoryError for a directory, OSError EINVAL for another negative number, Unsupported without the file's
        key.
        """
        self._must_be_readable()
        return self.volume.data.read(self.inode, offset, length)

    def chunks(self) -> Iterator[tuple[int, memoryview]]:
        """(byte offset, bytes) of everything that is not a hole."""
        self._must_be_readable()
        return self.volume.data.chunks(self.inode)

    def readlink(self) -> bytes:
        """Where a symbolic link leads; for an encrypted one without its key, the encoded ciphertext."""
        if self.inode.kind != "symlink":
            raise OSError(errno.EINVAL, "not a symbolic link", os.fsdecode(self.path or b""))
        if self.inode.i_size > self.volume.geo.block_size:
            raise F2fsError(f"{Where(ino=self.inode.ino)}: a symbolic link of {self.inode.i_size} bytes")
        target = self.volume.data.read(self.inode)
        if self.inode.encrypted:
            key = self.volume.secrets.of(self.inode)
            if key is not None:
                return decrypt_target(key, target, Where(ino=self.inode.ino))
            return nokey_name(symlink_ciphertext(target), 0)
        return target

    def iterdir(self) -> Iterator[File]:
        """The files in this directory; those whose inode can't be read are left out."""
        for piece in self.volume.scandir(self.inode):
            for entry in piece:
                if isinstance(entry.inode, Inode):
                    yield File(self.volume, entry.inode, join(self.path or b"/", entry.name))

    def xattrs(self) -> dict[str, bytes]:
        """Extended attributes as getxattr shows them to root."""
        return visible_xattrs(self.volume.nodes, self.inode)

    def stat(self) -> os.stat_result:
        """What lstat(2) says."""
        inode = self.inode
        size = self.volume.geo.block_size
        times = (inode.atime_ns, inode.mtime_ns, inode.ctime_ns)
        rdev = os.makedev(*inode.rdev) if inode.kind in ("char", "block") else 0
        head = (inode.i_mode, inode.ino, 0, inode.i_links, inode.i_uid, inode.i_gid, self.st_size)
        seconds = tuple(t // 1_000_000_000 for t in times)
        floats = tuple(t / 1e9 for t in times)
        return os.stat_result((*head, *seconds, *floats, *times, size, inode.st_blocks, rdev))

    @property
    def st_size(self) -> int:
        """The size as stat(2) tells it: of an encrypted symbolic link, that of what it shows."""
        if self.inode.encrypted and self.inode.kind == "symlink":  # as fscrypt_symlink_getattr() counts it
            return len(self.readlink())
        return self.inode.i_size

    def encryption_context(self) -> bytes | None:
        """The fscrypt context; None where the file is not encrypted."""
        return encryption_context(self.volume.nodes, self.inode)

    def _must_be_readable(self) -> None:
        shown = os.fsdecode(self.path) if self.path else f"inode {self.inode.ino}"
        if self.inode.is_dir:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
        if not self.inode.is_file and not stat.S_ISLNK(self.inode.i_mode):
            raise OSError(errno.EINVAL, f"a {self.inode.kind} has no content", shown)
        if self.volume.locked(self.inode):
            raise Unsupported(f"{shown}: the content is {self.volume.secrets.why_locked(self.inode)}")


def open_volume(
    path: str | Path,
    devices: Sequence[str | Path] = (),
    checkpoint: Which = "newest",
    keys: Sequence[str | os.PathLike[str] | bytes] = (),
) -> Volume:
    """Open an image, a device or an Android sparse image for reading; NotF2fs where there is no volume.

    keys: master keys of fscrypt, or files that hold one.
    """
    keyring = Keyring(keys)
    device = open_device(path, extra=list(devices))
    try:
        return Volume(device, checkpoint, keyring)
    except BaseException:
        device.close()
        raise


__all__ = ["Entry", "File", "NotF2fs", "Volume", "join", "open_volume"]
