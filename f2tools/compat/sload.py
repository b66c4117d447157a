"""sload.f2fs and sload_f2fs: a directory into an image that mkfs made, or that holds files already."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from f2tools.compat.common import Program, Stop, Words, done_line, state_line, volume_lines
from f2tools.compat.unpacked import unpacked
from f2tools.errors import Usage
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.f2fs.write.bulk.tree import CompressPolicy
    from f2tools.mkfs.populate import Fill

LETTERS = "cL:a:i:x:m:rC:d:f:p:s:St:T:VP"
HELP = """[options] device
[options]:
  -C fs_config
  -f source directory
  -p product out directory
  -s file_contexts
  -S the image is an Android sparse image
  -t mount point [prefix of target fs path, default:/]
  -T timestamp
  -P preserve owner: user and group [default: 0:0]
  -c compress files
    -L log of blocks per cluster [default:2]
    -a algorithm: lz4, lzo, zstd or lzo-rle [default:lz4]
    -x ext, -i ext: all but these files, or only these [repeatable]
    -m blocks that a cluster must save [default:1]
    -r free the saved blocks
  -d debug level
  -V print the version number and exit"""
CLUSTER = 2
NO_TREE = 254  # -ENOENT of scandir(3)
_NEED_C = ("-L", "-a", "-i", "-x", "-m", "-r")


def main(name: str, arguments: Sequence[str]) -> int:
    """Load a directory as sload.f2fs does; the exit code."""
    program = Program(name, LETTERS, HELP)
    return program.run(lambda: _main(program, arguments))


def _main(program: Program, arguments: Sequence[str]) -> int:
    from f2tools.compat.status import size_line, status_lines
    from f2tools.fsck.check import check
    from f2tools.fsck.facts.image import open_image
    from f2tools.load.load import load_into

    began = time.monotonic()
    words = program.parse(arguments)
    try:
        fill = _fill(program, words)
    except Usage as error:
        program.wrong(str(error))
    when = program.number(words, "-T")
    with ExitStack() as stack:
        path = stack.enter_context(unpacked(words.rest[0], write=fill is not None))
        if fill is not None and not os.path.isdir(fill.source):
            open_image(path, ()).close()  # an image that can't be opened comes first
            print(f"\tError: {printable(fill.source)}: no such directory", file=sys.stderr)
            raise Stop(NO_TREE)
        if fill is None:
            print("Info: No source directory, but it's okay.")
        else:
            done = load_into(path, fill, timestamp=None if when in (None, -1) else when)
            for note in done.filling.notes:
                print(f"Info: {printable(note)}")
            for name in done.skipped:
                print(f'Skip the existing "{printable(os.fsdecode(name))}"')
        image = open_image(path, ())
        try:
            report = check(image)
            lines = [*volume_lines(image.sb, image.cp), state_line(image.cp), size_line(image)]
            print("\n".join((*lines, *status_lines(report, image))))
        finally:
            image.close()
    print(done_line(time.monotonic() - began))
    return 0 if report.sound else 4


def _fill(program: Program, words: Words) -> Fill | None:
    from f2tools.mkfs.populate import Fill

    how = _compress(program, words)
    source = words.last("-f")
    if source is None:
        return None
    contexts = [part for text in words.all("-s") for part in text.split(",")]
    return Fill(
        source,
        xattrs=False,  # as the C tool, which knows none but labels and capabilities
        map_owner=() if words.has("-P") else ("all:0",),
        selinux=tuple(contexts),
        fs_config=words.last("-C"),
        mount_point=words.last("-t") or "/",
        compress=how,
    )


def _compress(program: Program, words: Words) -> CompressPolicy | None:
    from f2tools.mkfs.populate import parse_compress

    if not words.has("-c"):
        if any(words.has(option) for option in _NEED_C):
            program.wrong("compression sub-options are used without the compression enable (-c) option")
        return None
    if words.has("-i") and words.has("-x"):
        program.wrong("could not mix option -i and -x")
    log = program.number(words, "-L", CLUSTER) or 0
    least = program.number(words, "-m", 1) or 0
    if not 1 <= least < 1 << max(log, 1):
        program.wrong(f"-m {least}: 1 to {(1 << log) - 1} blocks can be saved in a cluster")
    how = parse_compress((words.last("-a") or "lz4").lower(), words.all("-i"), log, words.has("-r"))
    return replace(how, unless=tuple(map(os.fsencode, words.all("-x"))), least_saved=least)
