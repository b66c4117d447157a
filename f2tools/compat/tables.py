"""Structures and trees as dump.f2fs and fsck.f2fs print them, field by field in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_EXTENSION_LEN
from f2tools.text import join, printable, printable_name

if TYPE_CHECKING:
    from f2tools.f2fs.layout.checkpoint import Checkpoint
    from f2tools.f2fs.layout.super import SuperBlock
    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume

_SUPER = (
    "magic", "major_ver", "volume_name", "minor_ver", "log_sectorsize", "log_sectors_per_block", "log_blocksize",
    "log_blocks_per_seg", "segs_per_sec", "secs_per_zone", "checksum_offset", "block_count", "section_count",
    "segment_count", "segment_count_ckpt", "segment_count_sit", "segment_count_nat", "segment_count_ssa",
    "segment_count_main", "segment0_blkaddr", "cp_blkaddr", "sit_blkaddr", "nat_blkaddr", "ssa_blkaddr",
    "main_blkaddr", "root_ino", "node_ino", "meta_ino",
)  # fmt: skip
_LOGS = ("HOT", "WARM", "COLD")
_CHECKPOINT = (
    "ckpt_flags", "cp_pack_total_block_count", "cp_pack_start_sum", "valid_node_count", "valid_inode_count",
    "next_free_nid", "sit_ver_bitmap_bytesize", "nat_ver_bitmap_bytesize", "checksum_offset", "elapsed_time",
)  # fmt: skip
_INODE = (
    "i_mode", "i_advise", "i_uid", "i_gid", "i_links", "i_size", "i_blocks", "i_atime", "i_atime_nsec", "i_ctime",
    "i_ctime_nsec", "i_mtime", "i_mtime_nsec", "i_generation", "i_current_depth", "i_xattr_nid", "i_flags", "i_inline",
    "i_pino", "i_dir_level", "i_namelen",
)  # fmt: skip


class _Printer:
    """A field as a table has it, or with `layout` as a list."""

    def __init__(self, layout: bool) -> None:
        self._layout = layout

    def number(self, name: str, value: int) -> str:
        return f"{name + ':':<30} {value}" if self._layout else f"{name:<30}\t\t[0x{value:>8x} : {value}]"

    def text(self, name: str, value: str) -> str:
        value = printable(value)
        return f"{name + ':':<30} {value}" if self._layout else f"{name:<30}\t\t[{value}]"


def _box(title: str, layout: bool) -> list[str]:
    line = "+" + "-" * 56 + "+"
    return [] if layout else ["", line, f"| {title:<55}|", line]


def superblock_lines(sb: SuperBlock, layout: bool = False) -> Iterator[str]:
    """The superblock, as print_raw_sb_info() of fsck/mount.c."""
    show = _Printer(layout)
    yield from _box("Super block", layout)
    for name in _SUPER:
        if name == "volume_name":
            if layout:
                yield f"{'Filesystem volume name:':<30} {printable(_label(sb))}"
        else:
            yield show.number(name, int(getattr(sb, name)))
    yield show.text("uuid", str(UUID(bytes=bytes(sb.uuid))))
    if not layout:
        yield show.text("volum_name", _label(sb))  # the C tool spells it so
    yield from _extensions(sb, show)
    yield show.number("cp_payload", sb.cp_payload)
    for name in ("version", "init_version"):
        yield show.text(name, _text(getattr(sb, name)))
    yield show.number("feature", sb.feature)
    yield show.number("encryption_level", sb.encryption_level)
    yield show.text("encrypt_pw_salt", str(UUID(bytes=bytes(sb.encrypt_pw_salt))))
    for number, device in enumerate(sb.devs):
        if not _text(device.path):
            break
        yield show.text("devs[i].path", _text(device.path))
        yield show.number(f"devs[{number}].total_segments", device.total_segments)
    for name, value in zip(("USRQUOTA", "GRPQUOTA", "PRJQUOTA"), sb.qf_ino, strict=True):
        yield show.number(f"qf_ino[{name}]", int(value))
    for name in ("s_encoding", "s_encoding_flags", "crc"):
        yield show.number(name, int(getattr(sb, name)))
    yield ""


def checkpoint_lines(cp: Checkpoint, layout: bool = False) -> Iterator[str]:
    """The live checkpoint, as print_ckpt_info() of fsck/mount.c."""
    show = _Printer(layout)
    yield from _box("Checkpoint", layout)
    for name in ("checkpoint_ver", "user_block_count", "valid_block_count", "rsvd_segment_count",
                 "overprov_segment_count", "free_segment_count"):  # fmt: skip
        yield show.number(name, int(getattr(cp, name)))
    for kind, first in (("NODE", 3), ("DATA", 0)):
        for number, log in enumerate(_LOGS):
            yield show.number(f"alloc_type[CURSEG_{log}_{kind}]", cp.alloc_type[first + number])
        for what in ("segno", "blkoff"):
            name = f"cur_{kind.lower()}_{what}"
            yield from (show.number(f"{name}[{number}]", int(getattr(cp, name)[number])) for number in range(3))
    for name in _CHECKPOINT:
        yield show.number(name, int(getattr(cp, name)))
    yield ""


def inode_lines(inode: Inode) -> Iterator[str]:
    """An inode, as print_inode_info() of fsck/mount.c."""
    show = _Printer(False)
    for name in _INODE:
        yield show.number(name, int(getattr(inode, name)))
    yield show.text("i_name", _text(inode.i_name))
    for name, value in inode.extra.items():
        yield show.number(name, int(value))
    yield ""


def tree_lines(volume: Volume) -> Iterator[str]:
    """The directory tree, as fsck.f2fs -t has it."""
    todo = [("", entry) for entry in reversed(volume.listdir(volume.path("/").inode))]
    met: set[int] = set()
    while todo:
        ahead, entry = todo.pop()
        inode = entry.inode
        there = not isinstance(inode, F2fsError)
        locked = int(there and volume.locked(inode))
        yield f"{ahead}|-- {printable_name(_name(entry.name))} <ino = {entry.dentry.ino:#x}>, <encrypted ({locked})>"
        if there and inode.is_dir and entry.dentry.ino not in met:
            met.add(entry.dentry.ino)
            todo += [(f"{ahead}|   ", below) for below in reversed(volume.listdir(inode))]


def file_map_lines(volume: Volume) -> Iterator[str]:
    """A line for each file: its path, and the blocks in which it lies, as block maps of Android have them."""
    for path, _, entries in volume.walk():
        for entry in entries:
            if not isinstance(entry.inode, F2fsError) and entry.inode.is_file:
                name = printable_name(_name(join(path, entry.name)))
                yield f"{name}{blocks_of_file(volume, entry.inode)}"


def blocks_of_file(volume: Volume, inode: Inode) -> str:
    """` 6657-6660 0 7000`: runs of blocks in the order of the file, 0 for each block of a hole."""
    from f2tools.dump.mapping import parts_of

    parts: list[str] = []
    for part in parts_of(volume, inode, []):
        if part["kind"] == "extent":
            first, count = part["blkaddr"], part["count"]
            parts.append(f" {first}" if count == 1 else f" {first}-{first + count - 1}")
        elif part["kind"] == "hole":
            parts += [" 0"] * part["count"]
        elif part["kind"] == "compressed":
            parts += [f" {number}" for number in part["blocks"]]
    return "".join(parts)


def _extensions(sb: SuperBlock, show: _Printer) -> Iterator[str]:
    raw = bytes(sb.extension_list)
    names = [_text(raw[at : at + F2FS_EXTENSION_LEN]) for at in range(0, len(raw), F2FS_EXTENSION_LEN)]
    for title, count, listed in (
        ("extension_count", sb.extension_count, names[: sb.extension_count]),
        ("hot_ext_count", sb.hot_ext_count, names[sb.extension_count :][: sb.hot_ext_count]),
    ):
        yield show.number(title, int(count))
        kind = "cold" if title == "extension_count" else "hot"
        yield f"{kind + ' file extensions':<30}"
        for at in range(0, len(listed), 4):
            yield f"{'':<30}" + "".join(f"\t[{printable(name):>8}]" for name in listed[at : at + 4])


def _label(sb: SuperBlock) -> str:
    return bytes(sb.volume_name).decode("utf-16-le", "replace").split("\0")[0]


def _text(raw: bytes) -> str:
    return _name(bytes(raw).split(b"\0")[0])


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
