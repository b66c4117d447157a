"""The C tools as judges: what mkfs.f2fs makes, what fsck.f2fs and dump.f2fs say of an image.

Independent of f2tools on purpose.  A tool that is not installed fails the test in CI and skips it, by name, elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from tests.images import copy_sparse

TOOL_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
TIMEOUT = 300

# All that fsck.f2fs says of a volume without fault.  What is not among these lines is a complaint: with --dry-run it
# exits with 0 after some of them, e.g. a wrong dentry hash or a dead superblock copy.
LONG_NAME = 240  # bytes of a line of fsck.f2fs with a name that may be too long when folded
HARMLESS = re.compile(
    r"""\s*$ | Info:\s(?!Fix|Force) | Done: | exit\ status\ 0$
    | \s+(from\ |to\ )?"           # kernel versions
    | \s+\d+\ (zones,|blocks\ per)  # a zoned device
    | \[update_superblock:.*\]\ Info:  # sectors of another size than when it was made: 512 bytes in a file
    | \[FSCK\]\ .*\[Ok\.\.\]
    | \[FSCK\]\ (Max\ image\ size:|Check\ node|fixing\ SIT\ types|Check:)""",
    re.VERBOSE,
)
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

NUMBER = re.compile(r"^(\S.*?)\s*\[0x\s*([0-9a-f]+)\s*:\s*\d+\]\s*$")
TEXT = re.compile(r"^(\S.*?)\s*\[(.*)\]\s*$")
BANNER = re.compile(r"^\|\s*(.*?)\s*\|$")

# struct f2fs_super_block: where devs[8] lies, an entry being a path of 64 bytes and a count of segments
SB_OFFSETS = (1024, 4096 + 1024)
SB_CHECKSUM_OFFSET, SB_FEATURE, SB_DEVS, SB_DEV_SIZE, SB_DEV_PATH, SB_SIZE = 32, 2180, 2201, 68, 64, 3072
SB_FEATURE_CHECKSUM = 0x800
F2FS_MAGIC = 0xF2F52010


def in_ci() -> bool:
    """Whether a missing judge is a failure."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def missing_judge(what: str, consequence: str) -> NoReturn:
    """A judge is not there: fail in CI; elsewhere skip, saying what was not tried."""
    message = f"missing judge: {what}; not tried: {consequence}"
    if in_ci():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def find_tool(name: str) -> str | None:
    """The path of a program, looked for in the system directories too."""
    return shutil.which(name, path=TOOL_PATH)


def need_tool(name: str) -> str:
    """The path of a program, or the end of the test."""
    return find_tool(name) or missing_judge(f"{name} is not installed", f"whatever {name} would say")


@dataclass(frozen=True)
class Run:
    """One finished run of a tool."""

    command: tuple[str, ...]
    rc: int
    output: str
    """stdout and stderr in the order they came, without terminal colours."""

    def __str__(self) -> str:
        return f"$ {' '.join(self.command)}\n{self.output}\nexit status {self.rc}"


def run_tool(name: str, *args: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> Run:
    """Run a C tool that is told "n" whatever it asks; any exit status is fine."""
    command = (need_tool(name), *map(str, args))
    done = subprocess.run(
        command,
        input=b"n\n" * 100,  # fsck.f2fs asks about lost files even with --dry-run, and dies without an answer
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
        cwd=cwd,
        env=None if env is None else os.environ | env,
    )
    return Run(command, done.returncode, ANSI.sub("", done.stdout.decode(errors="replace")))


# ---- mkfs.f2fs ----------------------------------------------------------


def mkfs(image: Path, *options: str, size: int | None = None, devices: Sequence[Path] = ()) -> Run:
    """Format `image` with mkfs.f2fs -f; `size` in bytes makes the file anew; it must succeed.

    Further `devices` must exist already.  Their paths go into the superblock, which has room for 63 bytes.
    """
    if size is not None:
        with image.open("wb") as f:
            f.truncate(size)
    more = [word for d in devices for word in ("-c", str(d))]
    run = run_tool("mkfs.f2fs", "-f", *options, *more, image)
    assert run.rc == 0, str(run)
    return run


# ---- fsck.f2fs ----------------------------------------------------------


def fsck(image: Path, *devices: Path, options: Sequence[str] = ()) -> Run:
    """What fsck.f2fs --dry-run says; `devices` are the second and later ones, wherever the superblock says they are."""
    with _readable_by_c_tools(image, devices) as path:
        return run_tool("fsck.f2fs", "--dry-run", *options, path)


def complaints(output: str) -> list[str]:
    """The lines of fsck.f2fs that a volume without fault does not cause."""
    return [line for line in output.splitlines() if not HARMLESS.match(line)]


def complaints_in_words(output: str) -> list[str]:
    """Of these lines those that say that something is wrong: for volumes that were damaged and repaired.

    Version strings of a torn superblock are printed as they are: no complaint.  It also folds names that grow beyond
    255 bytes by that, where the kernel takes them as they are.
    """
    words = ("ASSERT", "FSCK", "FIX", "Error", "rror:", "Invalid", "nvalid", "orrupt", "Fail")
    lines = [line for line in complaints(output) if any(word in line for word in words)]
    return [line for line in lines if not ("Mismatch hash_code" in line and len(line.encode()) > LONG_NAME)]


def fsck_clean(image: Path, *devices: Path) -> Run:
    """Demand that fsck.f2fs --dry-run ends with 0, asserts nothing, would fix nothing and complains of nothing."""
    run = fsck(image, *devices)
    bad = complaints(run.output)
    assert run.rc == 0, str(run)
    assert not bad, "fsck.f2fs complains:\n" + "\n".join(bad[:40]) + f"\n\n{run}"
    assert "other corrupted bugs" in run.output, f"fsck.f2fs did not get to its end:\n{run}"
    return run


# ---- dump.f2fs ----------------------------------------------------------


def superblock_fields(image: Path, *devices: Path) -> dict[str, int | str]:
    """The superblock's fields by their kernel names as dump.f2fs -d 1 prints them."""
    return _sections(_dumped(image, devices)).get("Super block", {})


def checkpoint_fields(image: Path, *devices: Path) -> dict[str, int | str]:
    """The live checkpoint's fields as dump.f2fs -d 1 prints them, such as "cur_node_segno[0]" and "ckpt_flags"."""
    return _sections(_dumped(image, devices)).get("Checkpoint", {})


def _dumped(image: Path, devices: Sequence[Path]) -> str:
    with _readable_by_c_tools(image, devices) as path:
        run = run_tool("dump.f2fs", "-d", "1", path)
    assert "Super block" in run.output, str(run)
    return run.output


def _sections(output: str) -> dict[str, dict[str, int | str]]:
    """Field tables of the tools' debug output, by the title in the box above each."""
    found: dict[str, dict[str, int | str]] = {}
    table: dict[str, int | str] | None = None
    for line in output.splitlines():
        if m := BANNER.match(line):
            table = found.setdefault(m[1], {})
        elif table is None or not line or line.startswith("+--"):
            continue
        elif line.startswith(("Info:", "[")):
            table = None  # the tables are printed without a break
        elif m := NUMBER.match(line):
            table[m[1]] = int(m[2], 16)
        elif m := TEXT.match(line):
            table[m[1]] = m[2]
        elif len(words := line.split(None, 1)) == 2:
            table[words[0]] = words[1].strip()
    return found


# ---- ground under the tools ---------------------------------------------


@contextmanager
def _readable_by_c_tools(image: Path, devices: Sequence[Path]) -> Iterator[Path]:
    """A path the C tools can open.

    They open for writing even when they won't write, and find further devices only by the paths in the superblock: so
    a read-only image, or one on several devices, is shown to them as a private sparse copy.
    """
    if not devices and os.access(image, os.W_OK) and image.stat().st_mode & 0o200:
        yield image
        return
    with tempfile.TemporaryDirectory(prefix="f2j") as name, _short(Path(name)) as directory:
        copies = [copy_sparse(p, directory / str(n)) for n, p in enumerate((image, *devices))]
        if devices:
            set_device_paths(copies[0], copies)
        yield copies[0]


@contextmanager
def _short(directory: Path) -> Iterator[Path]:
    """A name of a directory that fits into a superblock with a file's."""
    if len(os.fsencode(directory)) + len("/0") < SB_DEV_PATH:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="f2j", dir="/tmp") as near:
        link = Path(near) / "d"
        link.symlink_to(directory)
        yield link


def set_device_paths(image: Path, paths: Sequence[Path]) -> None:
    """Rewrite the device table's paths in both superblocks of `image`, and their checksums where there are any."""
    with image.open("r+b") as f:
        for offset in SB_OFFSETS:
            f.seek(offset)
            block = bytearray(f.read(SB_SIZE))
            (magic,) = struct.unpack_from("<I", block)
            if magic != F2FS_MAGIC:
                continue
            for n, path in enumerate(paths):
                raw = os.fsencode(path)
                assert len(raw) < SB_DEV_PATH, f"{path}: the superblock has no room for a path this long"
                struct.pack_into(f"{SB_DEV_PATH}s", block, SB_DEVS + n * SB_DEV_SIZE, raw)
            (features,) = struct.unpack_from("<I", block, SB_FEATURE)
            if features & SB_FEATURE_CHECKSUM:
                (at,) = struct.unpack_from("<I", block, SB_CHECKSUM_OFFSET)
                struct.pack_into("<I", block, at, f2fs_crc32(block[:at]))
            f.seek(offset)
            f.write(block)


def f2fs_crc32(data: bytes | bytearray) -> int:
    """CRC-32 as f2fs uses it: the usual polynomial, seeded with the magic and not inverted."""
    return zlib.crc32(data, F2FS_MAGIC ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
