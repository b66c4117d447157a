"""What the programs of f2fs-tools have in common: how they take options, and what they print about any volume."""

from __future__ import annotations

import errno
import getopt
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from f2tools.errors import F2fsError
from f2tools.options import said_by_system, said_of, say_bug
from f2tools.text import printable
from f2tools.version import __version__

if TYPE_CHECKING:
    from f2tools.f2fs.layout.super import SuperBlock
    from f2tools.f2fs.volume.checkpoint import Checkpoint

VERSION = "1.16.0"  # of f2fs-tools, whose options these are
FAILED = 255  # the -1 that their main() returns
USAGE = 1

# print_cp_state() of fsck/mount.c: flags in its order, by its names
_STATES = (
    (0x800, "quota_need_fsck"), (0x400, "large_nat_bitmap"), (0x200, "allow_nocrc"), (0x100, "trimmed"),
    (0x80, "nat_bits"), (0x40, "crc"), (0x20, "fastboot"), (0x10, "fsck"), (0x8, "error"), (0x4, "compacted_summary"),
    (0x2, "orphan_inodes"), (0x1000, "disabled"), (0x4000, "resizefs"),
)  # fmt: skip


class Stop(Exception):
    """The end of a program, with its exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


class Words(NamedTuple):
    """A command line taken apart: options in their order, an empty value where they take none; and the rest."""

    options: list[tuple[str, str]]
    rest: list[str]

    def last(self, option: str) -> str | None:
        """The effective value of an option that may be repeated."""
        return next((value for name, value in reversed(self.options) if name == option), None)

    def all(self, option: str) -> tuple[str, ...]:
        return tuple(value for name, value in self.options if name == option)

    def has(self, option: str) -> bool:
        return any(name == option for name, _ in self.options)


class Program:
    """One of the programs: its name, its letters as getopt(3) has them, its help."""

    def __init__(self, name: str, letters: str, usage: str, long: Sequence[str] = ()) -> None:
        self.name = name
        self._letters = letters
        self._long = list(long)
        self._usage = usage

    def parse(self, arguments: Sequence[str], least: int = 1, most: int = 1) -> Words:
        """Options anywhere, as getopt(3) has it; ends the program after -V, and where something is wrong."""
        try:
            words = Words(*getopt.gnu_getopt(list(arguments), self._letters, self._long))
        except getopt.GetoptError as error:
            self.wrong(f"Unknown option {error.opt}" if "not recognized" in error.msg else error.msg)
        if words.has("-V"):
            print(f"{self.name} {VERSION} (f2tools {__version__})")
            raise Stop(0)
        if len(words.rest) < least:
            self.wrong("Device not specified")
        if len(words.rest) > most:
            self.wrong(f"Unknown argument {words.rest[most]}")
        return words

    def wrong(self, text: str) -> NoReturn:
        """Say what is wrong with the command line, and the right usage."""
        print(f"\tError: {printable(text)}\n", file=sys.stderr)
        print(f"Usage: {self.name} {self._usage}")
        raise Stop(USAGE)

    def number(self, words: Words, option: str, default: int | None = None) -> int | None:
        """The value of an option as strtoul(3) with base 0 takes it."""
        text = words.last(option)
        if text is None:
            return default
        try:
            return int(text, 0) if text.lower().startswith("0x") else int(text, 10)
        except ValueError:
            self.wrong(f"Wrong option {option} {text}")

    def leading_number(self, words: Words, option: str, default: int) -> int:
        """The value of an option as atoi(3) takes it: the number that it begins with, 0 where it begins with none."""
        match = re.match(r"\s*([+-]?[0-9]+)", words.last(option) or "")
        return default if not words.has(option) else int(match[1]) if match else 0

    def run(self, body: Callable[[], int], failed: int = FAILED) -> int:
        """The exit code of a body; its errors are printed, and end with `failed`."""
        try:
            code = body()
            sys.stdout.flush()  # a full disk has the exit code of this program
            return code
        except Stop as stop:
            return stop.code
        except F2fsError as error:
            print(f"\tError: {said_of(error)}", file=sys.stderr)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            print(f"\tError: {said_by_system(error)}", file=sys.stderr)
        except KeyboardInterrupt:
            print(f"{self.name}: interrupted", file=sys.stderr)
        except Exception as error:
            say_bug(error)
        return failed


# ---- what they print of a volume --------------------------------------------------------------------------------


def volume_lines(sb: SuperBlock, cp: Checkpoint | None) -> Iterator[str]:
    """The lines with which every program that opens a volume begins."""
    from f2tools.f2fs.layout.constants import FEATURES, flag_names

    yield "Info: MKFS version"
    yield f'  "{_text(sb.init_version)}"'
    yield "Info: FSCK version"
    yield f'  from "{_text(sb.version)}"'
    yield f'    to "f2tools {__version__}"'
    names = "".join(f" {name}" for name in flag_names(sb.feature, FEATURES))
    yield f"Info: superblock features = {sb.feature:x} : {names}"
    yield f"Info: superblock encrypt level = {sb.encryption_level}, salt = {bytes(sb.encrypt_pw_salt).hex()}"
    yield f"Info: Segments per section = {sb.segs_per_sec}"
    yield f"Info: Sections per zone = {sb.secs_per_zone}"
    sectors = sb.block_count << sb.log_sectors_per_block
    yield f"Info: sector size = {1 << sb.log_sectorsize}"
    yield f"Info: total FS sectors = {sectors} ({(sb.block_count << sb.log_blocksize) >> 20} MB)"
    if cp is not None:
        yield f"Info: CKPT version = {cp.checkpoint_ver:x}"


def state_line(cp: Checkpoint) -> str:
    """The flags of a checkpoint."""
    flags = cp.ckpt_flags
    names = [name for bit, name in _STATES if flags & bit] + ["unmount" if flags & 1 else "sudden-power-off"]
    return f"Info: checkpoint state = {flags:x} : " + "".join(f" {name}" for name in names)


def _text(raw: bytes) -> str:
    return printable(bytes(raw).split(b"\0")[0].decode("utf-8", "surrogateescape"))


def done_line(seconds: float) -> str:
    """Their last line."""
    return f"\nDone: {seconds:f} secs"
