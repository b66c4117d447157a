"""The structure commands as a user runs them: text, JSON, CSV, exit codes, damaged images."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import f2tools
from f2tools.cli import main
from f2tools.dump.cli import COMMANDS
from f2tools.f2fs.layout import structures
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.checkpoint import read_nat_bits
from tests import images
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, writable
from tests.unreadable import lose

Reference = Callable[[str], images.Reference]
STRUCTURE_COMMANDS = [name for name, (where, _) in COMMANDS.items() if "structures_cli" in where]


def dump(*args: object) -> Result:
    """Run a command in this process; what is no error of the user's is raised."""
    return CliRunner().invoke(main, ["dump", *map(str, args)], catch_exceptions=False)


def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, as errors become exit codes there."""
    code = "from f2tools.cli import run; run()"
    command = [sys.executable, "-c", code, "dump", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | env)


def devices_of(case: images.Reference) -> list[str]:
    return [word for device in case.extra for word in ("--device", str(device))]


ALL_WAYS: list[tuple[str, ...]] = [
    ("info",), ("superblock",), ("checkpoint",), ("nat",), ("sit",), ("segments",), ("ssa",), ("node", "3"),
    ("inode", "/"), ("dentries", "/"), ("map", "/"), ("block", "0"),
]  # fmt: skip


@pytest.mark.parametrize("words", ALL_WAYS, ids=lambda w: w[0])
@pytest.mark.parametrize(
    "name", ["plain", "features", "multi-device", "blocks16k", "packed-ssa", "zoned", "fscrypt", "crash-several"]
)
def test_every_command_speaks_text_and_json(name: str, words: tuple[str, ...], reference: Reference) -> None:
    case = reference(name)
    args = [words[0], case.path, *words[1:], *devices_of(case)]
    text = dump(*args)
    said = [line for line in text.stderr.splitlines() if "fsync'ed after the last checkpoint" not in line]
    assert (text.exit_code, said) == (0, [])
    assert text.stdout.strip()
    assert isinstance(json.loads(dump(*args, "--json").stdout), dict)


@pytest.mark.parametrize("words", ALL_WAYS, ids=lambda w: w[0])
def test_every_command_can_look_through_the_older_checkpoint(words: tuple[str, ...], reference: Reference) -> None:
    assert dump(words[0], reference("crash-several").path, *words[1:], "--checkpoint", "older").exit_code == 0


def test_the_older_checkpoint_shows_older_tables(reference: Reference) -> None:
    image = reference("crash-several").path
    used = [len(json.loads(dump("nat", image, "--json", *o).stdout)["rows"]) for o in ([], ["--checkpoint", "older"])]
    assert used[0] - used[1] == 1  # valid_node_count of the packs: 27 and 26


@pytest.mark.parametrize("command", ["nat", "sit", "ssa"])
def test_csv_and_json_hold_the_same_rows(command: str, reference: Reference) -> None:
    image = reference("features").path
    rows = list(csv.DictReader(io.StringIO(dump(command, image, "--csv").stdout)))
    objects = json.loads(dump(command, image, "--json").stdout)["rows"]
    assert len(rows) == len(objects) > 5
    for row, one in zip(rows, objects, strict=True):
        assert row == {key: str(int(value) if isinstance(value, bool) else value) for key, value in one.items()}


def test_ranges_choose_rows(reference: Reference) -> None:
    image = reference("features").path

    def chosen(*args: str) -> list[int]:
        return [row[key] for row in json.loads(dump(args[0], image, *args[1:], "--json").stdout)["rows"]]

    key = "nid"
    assert chosen("nat", "--nid", "3-5", "--nid", "9") == [3, 4, 5, 9]
    assert chosen("nat", "--nid", "170-") == [170, 171, 172, 173, 174, 175]
    key = "segno"
    assert chosen("sit", "--segno", "2-20", "--all") == list(range(2, 21))
    assert set(chosen("ssa", "2-13")) == {2, 3, 13}
    for words in (("nat", "--nid", "x"), ("sit", "--segno", "9-3"), ("ssa", "56"), ("sit", "--json", "--csv")):
        done = run(words[0], image, *words[1:])
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", STRUCTURE_COMMANDS)
def test_help_has_an_example(command: str) -> None:
    text = dump(command, "--help").stdout
    assert f"f2tools dump {command}" in text.partition("Example:")[2]


def test_exit_codes_tell_who_must_act(tmp_path: Path, reference: Reference) -> None:
    image = reference("plain").path
    empty = tmp_path / "empty.img"
    empty.write_bytes(bytes(1 << 20))
    for words, code in (
        (("info", image), 0),
        (("inode", image, "/no/such/file"), 1),
        (("dentries", image, "ino:999999999"), 1),
        (("node", image, "3000000000"), 1),
        (("block", image, "0xfffffff0"), 2),
        (("block", image, "zero"), 2),
        (("info", image, "--checkpoint", "first"), 2),
        (("layout", "nonsense"), 2),
        (("info", empty), 8),
        (("superblock", empty), 8),
        (("checkpoint", empty), 8),
        (("info", tmp_path / "nothing.img"), 8),
    ):
        done = run(*words)
        assert done.returncode == code, (words, done)
        assert "Traceback" not in done.stderr
        assert bool(done.stderr) == bool(code)


def test_a_volume_that_does_not_open_still_shows_superblocks_and_checkpoints(
    tmp_path: Path, reference: Reference
) -> None:
    case = reference("features").copy(tmp_path)
    with case.path.open("r+b") as f:
        for offset in (1024 + 40, 4096 + 1024 + 40, 0x200 * 4096 + 8, 0x400 * 4096 + 8):
            f.seek(offset)
            f.write(b"\xff")
    assert run("info", case.path).returncode == 8
    shown = run("superblock", case.path, "--json")
    assert shown.returncode == 1
    assert [c["problems"][0].split(" is ")[0] for c in json.loads(shown.stdout)["copies"]] == ["checksum"] * 2
    assert json.loads(shown.stdout)["live"] is None
    shown = run("checkpoint", case.path)
    assert shown.returncode == 1
    assert "no pack is live: neither pack is usable" in shown.stdout
    assert "valid_block_count" in shown.stdout
    assert "pack 1: checksum of the head is wrong" in shown.stderr


@pytest.mark.parametrize("name", images.DAMAGED)
def test_damaged_structures_are_shown_as_far_as_they_go(name: str, damaged: Reference) -> None:
    case = damaged(name)
    for words in (*ALL_WAYS, ("segments", "--json"), ("ssa", "--all"), ("inode", "4"), ("block", "0x1000")):
        done = CliRunner().invoke(main, ["dump", words[0], str(case.path), *words[1:]])
        error = done.exception
        assert error is None or isinstance(error, SystemExit | OSError) or hasattr(error, "exit_code"), (words, error)


def test_text_fits_the_columns_and_has_no_escapes_in_a_pipe(reference: Reference) -> None:
    image = reference("features").path
    for words in (("info", image), ("checkpoint", image), ("layout", "superblock"), ("segments", image)):
        done = run(*words, COLUMNS="80")
        assert "\x1b" not in done.stdout
        assert max(len(line) for line in done.stdout.splitlines()[1:]) <= 80
        assert not any(line != line.rstrip() for line in done.stdout.splitlines()), words
    assert len(run("info", image, COLUMNS="80").stdout.splitlines()) <= 24


def test_a_narrow_terminal_hides_nothing(reference: Reference) -> None:
    lines = run("segments", reference("features").path, COLUMNS="40").stdout.splitlines()
    assert "  name       segno  next_blkoff  alloc  valid_blocks  type" in lines
    assert "  hot_data       3          123  lfs             103  hot_data" in lines


def test_the_escapes_of_a_label_are_not_escaped_again(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert CliRunner().invoke(main, ["mkfs", "-q", str(image), "--size", "64M", "-l", "lab\x1b[31m<b>"]).exit_code == 0
    assert r" volume 'lab\x1b[31m<b>', 64 MiB" in run("info", image).stdout


@pytest.mark.parametrize("columns", ["0", "00", "-1", "²", "x"])
def test_no_width_is_as_wide_as_a_pipe(reference: Reference, columns: str) -> None:
    image = reference("features").path
    for words in (("info", image), ("checkpoint", image), ("segments", image)):
        done = run(*words, COLUMNS=columns)
        assert (done.returncode, done.stdout) == (0, run(*words, COLUMNS="200").stdout)


def test_the_plain_picture_says_type_and_fill_of_each_segment(reference: Reference) -> None:
    lines = run("segments", reference("features").path, COLUMNS="80").stdout.splitlines()
    at = lines.index("main area, a cell is a segment")
    assert lines[at + 1].split()[:6] == ["0", "H0*W2*C0*h2*.", ".", ".", ".", "."]
    assert "c cold_data" in lines[at + 4]


def test_names_with_control_characters_do_not_reach_the_terminal(reference: Reference) -> None:
    for name in ("plain", "noinline"):
        case = reference(name)
        odd = [path for path in case.manifest()["entries"] if any(ord(c) < 32 for c in path)]
        for path in odd[:5]:
            shown = dump("inode", case.path, os.fsencode("/" + path).decode("utf-8", "surrogateescape"))
            assert shown.exit_code == 0
            assert not any(ord(c) < 32 and c != "\n" for c in shown.stdout)


def test_a_block_can_be_had_as_raw_bytes(reference: Reference) -> None:
    image = reference("plain").path
    with image.open("rb") as f:
        expected = f.read(4096)
    assert dump("block", image, "0", "--raw").stdout_bytes == expected
    last = dump("block", image, "0").stdout.splitlines()
    assert "00000400  10 20 f5 f2 " in "\n".join(last)
    assert bytes.fromhex(json.loads(dump("block", image, "0", "--json").stdout)["data"]) == expected


def test_layout_lists_all_structures_and_explains_each() -> None:
    listed = json.loads(dump("layout", "--json").stdout)
    assert [one["name"] for one in listed] == [one.__name__ for one in structures()]
    for one in listed:
        assert one["meaning"]
        for called in (one["name"], one["kernel_name"], one["name"].lower()):
            shown: dict[str, Any] = json.loads(dump("layout", called, "--json").stdout)
            assert (shown["name"], shown["size"]) == (one["name"], one["size"])
            assert sum(field["size"] for field in shown["fields"]) == one["size"]
    text = dump("layout", "F2FS_NAT_ENTRY").stdout
    assert text.startswith("NatEntry (f2fs_nat_entry), 9 bytes: where the node with this nid lives")
    assert json.loads(dump("layout", "inode", "--block-size", "16384", "--json").stdout)["size"] == 16384
    assert "close to it: Summary" in run("layout", "f2fs_summry").stderr


def test_a_checkpoint_pack_that_cannot_be_read_is_told_and_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    path = images.reference("plain").path
    with f2tools.open(path) as volume:
        lost = volume.pack.blkaddr * volume.geo.block_size  # the newest state of all
    lose(monkeypatch, lost)
    done = f2("dump", "info", path)
    assert "is not usable: can't be read: " in done.err
    text = " ".join(done.text.split())  # wrapped where a terminal's width is known
    assert "empty, as mkfs leaves it" not in text
    assert f"reading at offset {lost:#x} failed: Input/output error" in done.err
    assert "not usable: can't be read" in text


def test_nat_bits_that_cannot_be_read_are_told_and_not_called_none(monkeypatch: pytest.MonkeyPatch) -> None:
    path = images.reference("plain").path
    with f2tools.open(path) as volume:
        bits = read_nat_bits(volume.device, volume.geo, volume.pack)
        assert bits is not None
        lost = bits.blkaddr * volume.geo.block_size
    lose(monkeypatch, lost)
    monkeypatch.setenv("COLUMNS", "1000")  # one line of the table
    done = f2("dump", "checkpoint", path)
    assert f"yes, but {path}: reading at offset {lost:#x} failed: Input/output error" in " ".join(done.text.split())


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_map_of_many_extents_is_not_held_in_memory(tmp_path: Path, words: tuple[str, ...]) -> None:
    image = fresh(tmp_path, "--size 128M")
    with writable(image) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"pieces", stat.S_IFREG | 0o644, 0, 0)
        for at in range(8000):
            volume.fallocate(ino, 0, at * 8192, 4096)
    dump("map", *words, image, "/")  # what is imported stays
    tracemalloc.start()
    try:
        shown = dump("map", *words, image, "/pieces")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown.exit_code == 0
    assert shown.stdout.count("unwritten") == shown.stdout.count("hole") + 1 == 8000
    assert peak < 7 * len(shown.stdout_bytes)
