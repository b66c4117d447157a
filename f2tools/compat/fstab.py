"""fsck.f2tools and fsck.fuse.f2tools: what fsck(8) and systemd-fsck run for a line of fstab."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from f2tools.compat.common import Program
from f2tools.fsck.cli import fsck
from f2tools.options import WRONG_USAGE

HELP = """[options] device
[options]:
  -a, -p repair what can be without giving anything up
  -y repair all that can be
  -n check only
  -f, -v, -T, -M, -l, -r, -C fd are taken from fsck(8)
  -V print the version number and exit"""
LETTERS = "apynfvTMlrC:V"
OPERATIONAL = 8  # of fsck(8)


def main(name: str, arguments: Sequence[str]) -> int:
    """Check a volume for fsck(8); its exit codes."""
    program = Program(name, LETTERS, HELP)
    return program.run(lambda: _main(program, [word for word in arguments if not _is_progress(word)]), OPERATIONAL)


def _is_progress(word: str) -> bool:
    """`-C5` and a lone `-C`, by which fsck(8) asks for a bar on a descriptor."""
    return word == "-C" or (word.startswith("-C") and word[2:].isdecimal())


def _main(program: Program, arguments: Sequence[str]) -> int:
    words = program.parse(arguments)
    how = "-y" if words.has("-y") else "-p" if words.has("-a") or words.has("-p") else "-n"
    if words.has("-n"):
        how = "-n"
    try:
        return fsck.main([how, "--", words.rest[0]], prog_name=program.name, standalone_mode=False) or 0
    except click.UsageError as error:  # the device has an empty name
        print(f"\tError: {error.format_message()}", file=sys.stderr)
        return WRONG_USAGE
