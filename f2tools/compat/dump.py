"""dump.f2fs: tables into files of the current directory, what an inode or a block is, files copied out."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from f2tools import newfile
from f2tools.compat.common import Program, Words, done_line, state_line, volume_lines
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import OFFSET_BIT_SHIFT, SUM_TYPE_NODE
from f2tools.f2fs.layout.footers import footers_of
from f2tools.text import join, printable

if TYPE_CHECKING:
    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume

LETTERS = "d:fi:I:n:LMo:Prs:Sa:b:VyN"
HELP = """[options] device
[options]:
  -d debug level [default:0]
  -i inode number, -I the same looked for in every block
  -n [NAT from nid~nid, for all 0~-1] into ./dump_nat
  -s [SIT from segno~segno, for all 0~-1] into ./dump_sit
  -a [SSA from segno~segno, for all 0~-1] into ./dump_ssa
  -M show a block map
  -b block address (in blocks of the volume)
  -r dump out from the root inode
  -f, -y do not ask before dumping
  -N answer "No" for all questions
  -o dump inodes to the given path [default:./lost_found]
  -P preserve owner, mode and attributes of what is dumped
  -L is taken and changes nothing: links stay links
  -S is taken and changes nothing: a sparse image is known as one
  -V print the version number and exit"""


def main(name: str, arguments: Sequence[str]) -> int:
    """Show as dump.f2fs does; the exit code."""
    program = Program(name, LETTERS, HELP)
    return program.run(lambda: _main(program, arguments))


def _main(program: Program, arguments: Sequence[str]) -> int:
    from f2tools.compat.tables import checkpoint_lines, superblock_lines
    from f2tools.f2fs.volume.volume import open_volume

    began = time.monotonic()
    words = program.parse(arguments)
    quiet = words.has("-M")
    with open_volume(words.rest[0]) as volume:
        if not quiet:
            print("\n".join(volume_lines(volume.sb, volume.cp)))
        if program.number(words, "-d", 0):
            print("\n".join((*superblock_lines(volume.sb), *checkpoint_lines(volume.cp))))
        _tables(program, words, volume)
        code = _things(program, words, volume)
        if not quiet:
            print(state_line(volume.cp))
            print(done_line(time.monotonic() - began))
    return code


# ---- tables -----------------------------------------------------------------------------------------------------


def _tables(program: Program, words: Words, volume: Volume) -> None:
    for option, name, most, lines in (
        ("-n", "dump_nat", len(volume.nat), _nat_lines),
        ("-s", "dump_sit", volume.geo.segment_count_main, _sit_lines),
        ("-a", "dump_ssa", volume.geo.segment_count_main, _ssa_lines),
    ):
        text = words.last(option)
        if text is None:
            continue
        match = re.fullmatch(r"(-?\d+)(?:~(-?\d+))?", text)
        if match is None:
            program.wrong(f"Wrong option {option} {text}")
        end = int(match[2] or -1)
        with newfile.text_output(os.path.join(os.getcwd(), name)) as out:
            for line in lines(volume, max(0, int(match[1])), most if end < 0 else min(end, most)):
                out.write(line)


def _nat_lines(volume: Volume, start: int, end: int) -> Iterator[str]:
    """As nat_dump() of fsck/dump.c."""
    from f2tools.dump.tables import nat_rows

    per_block = volume.geo.nat_entries_per_block
    wanted = volume.nat.used()
    for rows in nat_rows(volume, wanted[(wanted >= start) & (wanted < end) & (wanted > 2)]):
        for nid, ino, version, blkaddr in zip(
            *(rows[name].tolist() for name in ("nid", "ino", "version", "block_addr")), strict=True
        ):
            raw = np.frombuffer(volume.device.pread(blkaddr * volume.geo.block_size, volume.geo.block_size), np.uint8)
            footer = footers_of(raw[None])[0]
            pack = 1 + int(volume.pack.nat_bitmap[nid // per_block])
            yield (
                f"nid:{nid:>5}\tino:{ino:>5}\tver:{version:>3}\toffset:{int(footer['flag']) >> OFFSET_BIT_SHIFT:>5}"
                f"\tblkaddr:{blkaddr:>10}\tpack:{pack}\tcp_ver:0x{int(footer['cp_ver']):x}\n"
            )


def _sit_lines(volume: Volume, start: int, end: int) -> Iterator[str]:
    """As sit_dump() of fsck/dump.c."""
    sit = volume.sit
    yield "segment_type(0:HD, 1:WD, 2:CD, 3:HN, 4:WN, 5:CN)\n"
    for segno in range(start, end):
        pack = 1 + int(volume.pack.sit_bitmap[segno // volume.geo.sit_entries_per_block])
        yield (
            f"\nsegno:{segno:>8}\tvblocks:{int(sit.vblocks[segno]):>3}\tseg_type:{int(sit.types[segno])}"
            f"\tmtime:{int(sit.mtime[segno])}\tsit_pack:{pack}\n\n"
        )
        if sit.vblocks[segno]:
            bitmap = sit.valid_map(np.array([segno]))[0]
            for at in range(0, len(bitmap), 16):
                yield "".join(f"  {byte:02x}" for byte in bitmap[at : at + 16].tolist()) + "\n"
    counts = sit.vblocks[start:end]
    used = int((counts != 0).sum())
    free = len(counts) - used
    yield (
        f"valid_blocks:[0x{int(counts.sum()):x}]\tvalid_segs:{volume.geo.segment_count_main - free}"
        f"\t free_segs:{free}\n"
    )


def _ssa_lines(volume: Volume, start: int, end: int) -> Iterator[str]:
    """As ssa_dump() of fsck/dump.c."""
    main = volume.geo.main_blkaddr
    yield f"Note: dump.f2fs -b blkaddr = 0x{main:x} + segno *  0x200 + offset\n"
    open_logs = {log.segno for log in volume.summaries.cursegs}
    for segno in range(start, end):
        kind, entries = volume.summaries.of_segment(segno)
        now = "Current " if segno in open_logs else ""
        yield f"\n\nsegno: {segno:x}, {now}{'Node' if kind == SUM_TYPE_NODE else 'Data'}\n"
        for number, nid in enumerate(entries["nid"][: volume.geo.blocks_per_seg].tolist()):
            yield ("\n" if number % 10 == 0 else "") + f"[{number:>3}: {nid:>6x}]"


# ---- inodes, blocks, files --------------------------------------------------------------------------------------


def _things(program: Program, words: Words, volume: Volume) -> int:
    """What -b, -i, -I and -r ask for; the exit code."""
    block, ino = program.number(words, "-b"), program.number(words, "-i")
    code = 0
    if block is not None:
        from f2tools.dump.structures_cli import block as show_block

        print("\n== Dump data from block address ==\n")
        sys.stdout.flush()
        code = show_block.main(["--", words.rest[0], str(block)], prog_name=program.name, standalone_mode=False) or 0
    if words.has("-r"):
        ino = volume.sb.root_ino
    if ino:
        code = code or _inode(words, volume, ino)
    wanted = program.number(words, "-I")
    if wanted is not None:
        for place in _everywhere(volume, wanted):
            print(f"Info: nid: {wanted}, blkaddr: {place}")
    return code


def _inode(words: Words, volume: Volume, ino: int) -> int:
    """An inode, and its content into files where that is wanted."""
    from f2tools.compat.tables import blocks_of_file, inode_lines

    file = volume.inode(ino)
    if words.has("-M"):
        if file.inode.is_file:
            print(printable(os.fsdecode(b"/" + _name(file.inode))) + blocks_of_file(volume, file.inode))
        return 0
    print(f"Node ID [0x{ino:x}:{ino}] is inode")
    print("\n".join(inode_lines(file.inode)))
    target = words.last("-o") or "./lost_found"
    is_dir = file.inode.is_dir
    if not (words.has("-f") or words.has("-y") or words.has("-r")):
        if words.has("-N"):
            return 0
        print(
            f"Do you want to dump this {'directory' if is_dir else 'file'} into {target}/? [Y/N] ", end="", flush=True
        )
        if sys.stdin.readline().strip().lower() != "y":
            print()
            return 0
    from f2tools.copyout.extract import extract
    from f2tools.copyout.keep import NOTHING, Keep

    keep = Keep(owners=True, special_bits=True) if words.has("-P") else NOTHING
    paths = [] if ino == volume.sb.root_ino else [replace(file, path=join(b"/", _name(file.inode)))]
    report = extract(volume, target, paths, keep=keep, force=True)
    for lost in (*report.partial, *report.lost):
        print(f"Info: not whole: {printable(report.place(lost))}: {printable(lost.reason)}")
    return 0 if report.complete else 1


def _name(inode: Inode) -> bytes:
    name = bytes(inode.i_name)[: int(inode.i_namelen)]
    if not name or b"/" in name or b"\0" in name:
        raise F2fsError(f"inode {inode.ino}: Wrong name info")
    return name


def _everywhere(volume: Volume, nid: int) -> Iterator[int]:
    """Blocks of the main area whose footer says that they are this node, old copies included."""

    geo, piece = volume.geo, 512
    for start in range(geo.main_blkaddr, geo.end_blkaddr, piece):
        count = min(piece, geo.end_blkaddr - start)
        raw = np.frombuffer(volume.device.pread(start * geo.block_size, count * geo.block_size), np.uint8)
        found = footers_of(raw.reshape(count, geo.block_size))["nid"] == nid
        yield from (start + np.flatnonzero(found)).tolist()
