"""fsck.f2fs: a check always, a repair where its options ask for one; f2tools' fsck does both."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from f2tools.compat.common import FAILED, Program, Words, done_line, state_line, volume_lines
from f2tools.device.media.mounted import mounted_by_the_kernel
from f2tools.errors import NotF2fs
from f2tools.options import said_of

if TYPE_CHECKING:
    from f2tools.fsck.check import CheckReport
    from f2tools.fsck.facts.image import Image

LETTERS = "aC:c:m:Md:fg:HlO:p:q:StyNV"
LONG = ("dry-run", "no-kernel-check", "kernel-check", "debug-cache", "nolinear-lookup=", "fault_injection=",
        "fault_type=")  # fmt: skip
HELP = """[options] device
[options]:
  -a repair what can be without giving anything up
  -p preen mode [0|1|2]: the same
  -f, -y repair all that can be
  -N answer "No" for all questions
  -g android: its defaults, among them -a
  -l show superblock/checkpoint, -M a file map, -t the directory tree
  -d debug level [default:0]
  --dry-run do not repair
  -c, -C, -H, -m, -O, -q, -S, --debug-cache, --[no-]kernel-check, --nolinear-lookup are taken and change nothing
  -V print the version number and exit"""
UNCORRECTED, OPERATIONAL = 4, 8  # of fsck(8)


def main(name: str, arguments: Sequence[str]) -> int:
    """Check, and repair, as fsck.f2fs does; the exit code."""
    program = Program(name, LETTERS, HELP, LONG)
    return program.run(lambda: _main(program, _with_preen_level(arguments)), OPERATIONAL)


def _with_preen_level(arguments: Sequence[str]) -> list[str]:
    """The C tool takes `-p` without a level where no number follows, or only the device."""
    found: list[str] = []
    for at, word in enumerate(arguments):
        found.append(word)
        follows = arguments[at + 1] if at + 1 < len(arguments) else ""
        if word == "-p" and (not follows.isdecimal() or at + 2 >= len(arguments)):
            found.append("0")
    return found


def _main(program: Program, arguments: Sequence[str]) -> int:
    began = time.monotonic()
    words = program.parse(arguments)
    if not (words.last("-d") or "0").isdecimal():
        program.wrong(f"Wrong option -d {words.last('-d')}")
    path = words.rest[0]
    if words.has("--fault_injection") or words.has("--fault_type"):
        program.wrong("faults are not injected here")
    where = mounted_by_the_kernel(path)
    if where:
        print("\tError: Not available on mounted device!", file=sys.stderr)
        return OPERATIONAL
    for line in _told(words):
        print(line)
    try:
        sound = _check(path, words)
    except NotF2fs as error:
        print(f"\tError: {said_of(error)}", file=sys.stderr)
        return FAILED
    if sound:
        if not words.has("-M"):
            print(done_line(time.monotonic() - began))
        return 0
    code = _repair(path, words)
    print(done_line(time.monotonic() - began))
    return code


def _told(words: Words) -> Iterator[str]:
    """What it prints about its options."""
    if words.has("--dry-run"):
        yield "Info: Dry run"
    if words.has("-a"):
        yield "Info: Automatic fix mode enabled."
    if "android" in words.all("-g"):
        yield "Info: Set conf for android"
    if words.has("-p"):
        yield f"Info: Fix the reported corruption in preen mode {words.last('-p')}"
    if words.has("-d"):
        yield f"Info: Debug level = {words.last('-d')}"
    if words.has("-f") or words.has("-y"):
        yield "Info: Force to fix corruption"
    if words.has("-q"):
        yield f"Info: Preserve quota limits = {words.last('-q')}"


def _check(path: str, words: Words) -> bool:
    """Check and print; whether the volume is sound."""
    from f2tools.compat.status import size_line, status_lines
    from f2tools.compat.tables import checkpoint_lines, file_map_lines, superblock_lines, tree_lines
    from f2tools.f2fs.volume.volume import open_volume
    from f2tools.fsck.check import check
    from f2tools.fsck.facts.image import open_image

    image = open_image(path, ())
    try:
        report = check(image)
        for line in _head(image, report, words):
            print(line)
        if words.has("-l"):
            print("\n".join((*superblock_lines(image.sb, layout=True), *checkpoint_lines(image.cp, layout=True))))
        elif int(words.last("-d") or 0):
            print("\n".join((*superblock_lines(image.sb), *checkpoint_lines(image.cp))))
        if words.has("-t") or words.has("-M"):
            with open_volume(path) as volume:
                for line in file_map_lines(volume) if words.has("-M") else tree_lines(volume):
                    print(line)
        if not words.has("-M"):
            if words.last("-p") == "1":
                print(f"[FSCK] F2FS metadata   [{'Ok..' if report.sound else 'Fail'}]")
            print(size_line(image))
            for line in status_lines(report, image):
                print(line)
        return report.sound
    finally:
        image.close()


def _head(image: Image, report: CheckReport, words: Words) -> Iterator[str]:
    if words.has("-M"):
        return
    yield from volume_lines(image.sb, image.cp)
    yield state_line(image.cp)


def _repair(path: str, words: Words) -> int:
    """Repair where that is asked for; the exit code of fsck(8)."""
    from f2tools.fsck.cli import fsck

    careful = words.has("-a") or words.has("-p") or "android" in words.all("-g")
    all_of_it = words.has("-f") or words.has("-y")
    if words.has("--dry-run") or (words.has("-N") and not (careful or all_of_it)):
        return UNCORRECTED
    if not (careful or all_of_it) and not _asked("Do you want to fix this partition? [Y/N] "):
        return UNCORRECTED
    sys.stdout.flush()
    option = "-p" if careful and not all_of_it else "-y"
    return fsck.main([option, "--", path], prog_name="fsck.f2fs", standalone_mode=False) or 0


def _asked(question: str) -> bool:
    """The answer to a question; no, where there is none."""
    print(question, end="", flush=True)
    for line in sys.stdin:
        if line.strip().lower() in ("y", "n"):
            return line.strip().lower() == "y"
        print(question, end="", flush=True)
    print()
    return False
