"""istat, fsstat and blkcat of The Sleuth Kit: their layouts, with what F2FS has."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING

from f2tools.copyout.walk import shown
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import ADVISE_FLAGS, CP_FLAGS, FEATURES, INLINE_FLAGS, INODE_FLAGS, flag_names
from f2tools.forensics.tsk.meta import Clock, File, Meta
from f2tools.text import printable, printable_name

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume

RULE = "-" * 44
PER_LINE = 8


# ---- istat ------------------------------------------------------------------------------------------------------


def inode_lines(file: File, clock: Clock, runs: bool = False) -> Iterator[str]:
    """What istat prints about an inode."""
    meta, inode = file.meta, file.inode
    yield f"inode: {meta.address}"
    yield "Allocated" if file.found is None else "Not Allocated"
    yield f"Inode Block: {meta.blkaddr}"
    yield f"Generation Id: {meta.generation}"
    if inode.kind == "symlink":
        yield f"symbolic link to: {printable_name(_target(file))}"
    yield f"uid / gid: {meta.uid} / {meta.gid}"
    yield f"mode: {meta.filemode}"
    if inode.kind in ("char", "block"):
        yield "Device Major: {}   Minor: {}".format(*inode.rdev)
    flags = flag_names(inode.i_flags, INODE_FLAGS) + flag_names(vars(inode)["i_inline"], INLINE_FLAGS)
    flags += flag_names(inode.i_advise, ADVISE_FLAGS)
    if flags:
        yield f"Flags: {', '.join(flags)}"
    yield f"size: {meta.size}"
    yield f"num of links: {meta.links}"
    if file.found is not None:
        yield f"grade: {file.found.grade} ({printable('; '.join(file.found.reasons))})"
    yield from _attributes(file)
    yield ""
    if clock.skew:
        yield "Adjusted Inode Times:"
        yield from _times(file, clock)
        yield ""
    yield f"{'Original ' if clock.skew else ''}Inode Times:"
    yield from _times(file, Clock(clock.zone))
    yield ""
    yield "Direct Blocks:"
    if runs:
        for first, count in _runs(file.addresses()):
            yield f"  Starting address: {first or 'X'}, length: {count}  {'' if first else 'Sparse'}".rstrip()
        return
    addresses = file.addresses()
    while some := list(islice(addresses, PER_LINE)):
        yield "".join(f"{address} " for address in some)


def _times(file: File, clock: Clock) -> Iterator[str]:
    meta = file.meta
    yield f"Accessed:\t{clock.text(meta.atime_ns, True)}"
    yield f"File Modified:\t{clock.text(meta.mtime_ns, True)}"
    yield f"Inode Modified:\t{clock.text(meta.ctime_ns, True)}"
    if meta.crtime_ns is not None:
        yield f"File Created:\t{clock.text(meta.crtime_ns, True)}"
    if file.found is not None and file.found.deleted_by_ns:
        yield f"Deleted:\t{clock.text(file.found.deleted_by_ns, True)}"


def _target(file: File) -> str:
    try:
        if file.found is None:
            return shown(file.case.volume.inode(file.meta.ino).readlink())
        return shown(b"".join(bytes(data) for _, data in file.chunks()))
    except F2fsError:
        return "(not readable)"


def _attributes(file: File) -> Iterator[str]:
    if file.found is not None:
        return
    try:
        found = file.case.volume.inode(file.meta.ino).xattrs()
    except F2fsError as error:
        yield f"Extended Attributes: {printable(str(error))}"
        return
    if found:
        yield "Extended Attributes:"
        for name, value in found.items():
            yield f"{printable_name(name)}={printable_name(shown(value))}"


def _runs(addresses: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first address, blocks) of what lies in a row; 0 for holes."""
    numbered = enumerate(addresses)
    for _, group in groupby(numbered, key=lambda pair: pair[1] - pair[0] if pair[1] else None):
        rows = list(group)
        yield rows[0][1], len(rows)


# ---- fsstat -----------------------------------------------------------------------------------------------------


def volume_lines(volume: Volume, clock: Clock) -> Iterator[str]:
    """What fsstat prints about a volume."""
    geo, sb, cp = volume.geo, volume.sb, volume.cp
    root = Meta.living(volume.root.inode)
    yield "FILE SYSTEM INFORMATION"
    yield RULE
    yield "File System Type: F2FS"
    yield f"Volume Name: {printable(volume_name(volume))}"
    yield f"Volume ID: {bytes(sb.uuid).hex()}"
    yield ""
    yield f"Root Last Changed at: {clock.text(root.ctime_ns)}"
    yield f"Formatted by: {printable(_text(sb.init_version))}"
    yield f"Last Mounted by: {printable(_text(sb.version))}"
    yield "Unmounted properly" if volume.clean else "Unmounted Improperly"
    yield ""
    yield "Source OS: Linux"
    yield f"Features: {', '.join(flag_names(sb.feature, FEATURES)) or 'none'}"
    yield f"Checkpoint: {cp.checkpoint_ver:#x}"
    yield f"Checkpoint Flags: {', '.join(flag_names(cp.ckpt_flags, CP_FLAGS)) or 'none'}"
    yield ""
    stats = volume.statfs()
    yield "METADATA INFORMATION"
    yield RULE
    yield f"Inode Range: 3 - {geo.max_nid}"
    yield f"Root Directory: {sb.root_ino}"
    yield f"Free Inodes: {stats['f_ffree']}"
    yield f"Inodes: {cp.valid_inode_count}"
    yield f"Inode Size: {geo.block_size}"
    yield ""
    yield "CONTENT INFORMATION"
    yield RULE
    yield f"Block Range: 0 - {geo.block_count - 1}"
    yield f"Block Size: {geo.block_size}"
    yield f"Free Blocks: {stats['f_bfree']}"
    yield f"Blocks per Segment: {geo.blocks_per_seg}"
    yield f"Segments per Section: {geo.segs_per_sec}"
    yield f"Sections per Zone: {geo.secs_per_zone}"
    yield ""
    yield "AREA INFORMATION"
    yield RULE
    starts = {
        "Superblocks": 0, "Checkpoint": geo.cp_blkaddr, "SIT": geo.sit_blkaddr, "NAT": geo.nat_blkaddr,
        "SSA": geo.ssa_blkaddr, "Main": geo.main_blkaddr,
    }  # fmt: skip
    ends = [*list(starts.values())[1:], geo.end_blkaddr]
    for (name, first), end in zip(starts.items(), ends, strict=True):
        yield f"{name}: {first} - {end - 1}"


def volume_name(volume: Volume) -> str:
    """The label of a volume."""
    return bytes(volume.sb.volume_name).decode("utf-16-le", "replace").partition("\0")[0]


def _text(raw: bytes) -> str:
    return bytes(raw).split(b"\0")[0].decode("utf-8", "surrogateescape").strip()


# ---- blkcat -----------------------------------------------------------------------------------------------------


def hex_lines(data: bytes) -> Iterator[str]:
    """As `blkcat -h`: 16 bytes a line, then the same as characters."""
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        groups = [row[n : n + 4] for n in range(0, len(row), 4)]
        text = "".join("".join(chr(byte) if 32 <= byte < 127 else "." for byte in group) + " " for group in groups)
        yield f"{at}\t{''.join(f'{group.hex()} ' for group in groups)}\t{text}"


def plain(data: bytes) -> str:
    """As `blkcat -a`: bytes that are no characters as dots."""
    return "".join(chr(byte) if 32 <= byte < 127 or byte in (9, 10, 13) else "." for byte in data)


def web_page(first: int, data: bytes, block: int) -> str:
    """As `blkcat -w`: a page that shows the block, nothing of it as markup."""
    title = f"Unit: {first}   Size: {len(data)} bytes"
    body = html.escape("\n".join(hex_lines(data)))
    return (
        f"<html>\n<head>\n<title>{title}</title>\n</head>\n<body>\n<!-- {len(data) // block} x {block} bytes -->\n"
        f"<pre>\n{body}\n</pre>\n</body>\n</html>"
    )
