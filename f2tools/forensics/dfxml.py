"""The states of all files as Digital Forensics XML, valid by its schema: where bytes lie, hashes, times.

A fileobject is a state: a living file, a deleted one, an older version.  What only F2FS has is in elements of another
namespace after it, as the schema requires.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator

from f2tools.copyout.walk import shown
from f2tools.device import Device
from f2tools.device.containers.partition import Slice
from f2tools.device.media.image import FileDevice
from f2tools.f2fs.volume.data import Extent
from f2tools.forensics.known import HASHES
from f2tools.forensics.past import InodeVersion
from f2tools.forensics.states import Line, lines
from f2tools.forensics.times import iso, utc
from f2tools.forensics.undelete import Found, Undelete
from f2tools.text import markup, printable_name
from f2tools.version import __version__

VERSION = "2.0.0-beta.0"  # of the schema
DFXML = "http://www.forensicswiki.org/wiki/Category:Digital_Forensics_XML"
OURS = "urn:f2tools:dfxml"
_TYPES = {
    stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFREG: "r", stat.S_IFIFO: "p", stat.S_IFCHR: "c", stat.S_IFBLK: "b",
    stat.S_IFSOCK: "h",
}  # fmt: skip


def document(run: Undelete, hashes: bool = True) -> Iterator[str]:
    """The document, a line at a time; `hashes` costs reading each content."""
    geo, device = run.past.geo, run.volume.device
    base = offset_in_image(device)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<dfxml xmlns="{DFXML}" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:f2fs="{OURS}" version="{VERSION}">'
    )
    yield "  <metadata><dc:type>File system timeline</dc:type></metadata>"
    yield f"  <creator><program>f2tools</program><version>{markup(__version__)}</version></creator>"
    yield f"  <source><image_filename>{markup(device.name)}</image_filename></source>"
    if base is None:
        yield "  <volume>"
    else:
        yield f'  <volume offset="{base}">'
        yield f"    <partition_offset>{base}</partition_offset>"
    yield f"    <block_size>{geo.block_size}</block_size>"
    yield "    <ftype_str>f2fs</ftype_str>"
    yield f"    <block_count>{geo.block_count}</block_count>"
    yield f"    <first_block>0</first_block><last_block>{geo.block_count - 1}</last_block>"
    before: Line | None = None
    number = 0
    for line in lines(run):
        if before is not None and line.inode is not None and line.inode is before.inode and line.life is before.life:
            continue  # a further name of the same state, which has all of them
        before = line
        number += 1
        yield from _fileobject(run, line, number, base, hashes)
    yield "  </volume>"
    yield "</dfxml>"


def offset_in_image(device: Device) -> int | None:
    """Where in the file that was given the volume begins; None where its bytes don't lie there as they are."""
    if isinstance(device, FileDevice):
        return 0
    if isinstance(device, Slice):
        base = offset_in_image(device.base)
        return None if base is None else base + device.start
    return None


def _fileobject(run: Undelete, line: Line, number: int, base: int | None, hashes: bool) -> Iterator[str]:
    inode = line.inode
    yield "    <fileobject>"
    for path in dict.fromkeys((line.path, *line.names)):
        yield f"      <filename>{markup(printable_name(shown(path)))}</filename>"
    yield f"      <id>{number}</id>"
    living = int(line.state == "live")
    if inode is None:
        yield f"      <alloc>{living}</alloc><inode>{line.ino}</inode>"
    else:
        yield from _inode(inode, living, line.deleted_ns)
    found = None if inode is None or line.life is None else run.found(line.life, inode, line.state)
    if found is not None and found.content is not None:
        yield from _runs(run, found, base)
        if hashes and found.type == "file":
            yield from _hashes(run, found)
    yield f"      <f2fs:state>{markup(line.which())}</f2fs:state>"
    if inode is not None:
        yield f"      <f2fs:generation>{inode.generation}</f2fs:generation>"
        yield f"      <f2fs:inode_block>{inode.blkaddr}</f2fs:inode_block>"
    if found is not None and not living:
        yield f"      <f2fs:grade>{markup(found.grade)}</f2fs:grade>"
        for reason in found.reasons:
            yield f"      <f2fs:reason>{markup(reason)}</f2fs:reason>"
    for path in line.also:
        yield f"      <f2fs:also_known_as>{markup(printable_name(shown(path)))}</f2fs:also_known_as>"
    yield "    </fileobject>"


def _inode(inode: InodeVersion, living: int, deleted_ns: int | None) -> Iterator[str]:
    yield f"      <name_type>{_TYPES.get(stat.S_IFMT(inode.mode), '-')}</name_type>"
    yield f"      <filesize>{inode.size}</filesize>"
    yield f"      <alloc>{living}</alloc>"
    yield f"      <inode>{inode.ino}</inode>"
    yield f"      <mode>{inode.mode & 0o7777}</mode><nlink>{inode.links}</nlink>"
    yield f"      <uid>{inode.uid}</uid><gid>{inode.gid}</gid>"
    for name, time in (
        ("mtime", inode.mtime_ns), ("ctime", inode.ctime_ns), ("atime", inode.atime_ns), ("crtime", inode.crtime_ns),
        ("dtime", deleted_ns),
    ):  # fmt: skip
        if time is not None and utc(time) is not None:
            yield f"      <{name}>{iso(time)}</{name}>"


def _runs(run: Undelete, found: Found, base: int | None) -> Iterator[str]:
    """Where the bytes lie that are still there; nothing for holes and what is gone."""
    content = found.content
    assert content is not None
    inode, size = content.inode, run.past.geo.block_size
    yield "      <byte_runs>"
    if inode.has_inline_data:
        if not content.gaps and inode.i_size:
            at = inode.blkaddr * size + int(inode.inline_area.ctypes.data) - int(inode.block.ctypes.data)
            yield _run(0, at, inode.i_size, base, ' type="resident"')
    else:
        for item in run.contents.items(content):
            if isinstance(item, Extent):
                length = min(item.count * size, max(0, inode.i_size - item.fofs * size))
                if length:
                    yield _run(item.fofs * size, item.blkaddr * size, length, base)
                continue
            more = f' uncompressed_len="{inode.cluster_size * size}"'
            at = 0
            for first, count in _in_a_row(item.blkaddrs.tolist()):
                yield _run(item.fofs * size, first * size, count * size, base, more if not at else "")
                at += count
    yield "      </byte_runs>"


def _run(file_offset: int, fs_offset: int, length: int, base: int | None, more: str = "") -> str:
    image = "" if base is None else f' img_offset="{base + fs_offset}"'
    return f'        <byte_run file_offset="{file_offset}" fs_offset="{fs_offset}"{image} len="{length}"{more}/>'


def _in_a_row(blkaddrs: list[int]) -> Iterator[tuple[int, int]]:
    first, count = 0, 0
    for blkaddr in blkaddrs:
        if count and first + count == blkaddr:
            count += 1
            continue
        if count:
            yield first, count
        first, count = blkaddr, 1
    if count:
        yield first, count


def _hashes(run: Undelete, found: Found) -> Iterator[str]:
    for name, value in (run.hashes(found, HASHES) or {}).items():
        yield f'      <hashdigest type="{name}">{value}</hashdigest>'
