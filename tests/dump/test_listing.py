"""ls, tree, stat and cat show what the kernel's manifest says."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import f2tools
from f2tools import options
from f2tools.copyout.walk import Lost
from f2tools.dump.listing import directories, file_at
from tests import images
from tests.dump.craft import copy_of, f2, inode_offset, poke


def test_ls_prints_the_names_of_a_directory() -> None:
    case = images.reference("plain")
    names = {p.split("/")[1] for p in case.manifest()["entries"] if p.startswith("links/") and p.count("/") == 1}
    result = f2("dump", "ls", case.path, "/links")
    assert result.code == 0
    assert result.text.split("\n")[:-1] == sorted(names)


def test_ls_long_is_like_ls() -> None:
    case = images.reference("plain")
    entries = case.manifest()["entries"]
    lines = f2("dump", "ls", "-li", case.path, "/links").text.splitlines()
    for line in lines:
        ino, mode, nlink, uid, gid, *rest = line.split()
        name = line.split(" -> ")[0].split()[-1]
        entry = entries[f"links/{name}"]
        assert (int(ino), int(nlink), int(uid), int(gid)) == tuple(entry[k] for k in ("ino", "nlink", "uid", "gid"))
        assert mode[0] == {"file": "-", "dir": "d", "symlink": "l", "fifo": "p"}.get(entry["type"], entry["type"][0])
        if entry["type"] == "symlink":
            assert line.endswith(f" -> {entry['target']}")
        if entry["type"] in ("char", "block"):
            assert rest[0] == f"{entry['rdev'][0]},"
            assert rest[1] == str(entry["rdev"][1])


def test_ls_hides_dotted_names_unless_asked(tmp_path: Path) -> None:
    from tests.dump.craft import rename

    case = copy_of("base", tmp_path)
    name = next(p for p in case.manifest()["entries"] if "/" not in p and p != ".")
    rename(case.path, "/", os.fsencode(name), b"." + os.fsencode(name)[1:])
    hidden = "." + name[1:]
    assert hidden not in f2("dump", "ls", case.path).text.splitlines()
    assert hidden in f2("dump", "ls", "-a", case.path).text.splitlines()


def test_ls_json_has_every_entry_of_the_tree() -> None:
    case = images.reference("casefold")
    entries = case.manifest()["entries"]
    found = {}
    for directory in json.loads(f2("dump", "ls", "-R", "--json", case.path).out):
        for row in directory["entries"]:
            found[(directory["path"].rstrip("/") + "/" + row.pop("name")).lstrip("/")] = row
    assert found.keys() == entries.keys() - {"."}
    for path, row in found.items():
        assert row == {key: entries[path][key] for key in row}, path


@pytest.mark.parametrize("seed", range(4))
def test_short_rows_say_what_whole_ones_say_where_inodes_are_damaged(seed: int, tmp_path: Path) -> None:
    case = copy_of("plain", tmp_path)
    rng = random.Random(seed)
    with f2tools.open(case.path) as volume:
        nids = [nid for nid in volume.nat.used().tolist() if nid > volume.root.inode.ino and rng.random() < 0.3]
        nodes = {volume.nat.get(nid)[2] * 4096: volume.nodes.read([nid])[0] for nid in nids}
    for place, block in nodes.items():
        at = rng.choice((0, 1, 2, 3, 16, 20, 360, 4072, 4076, 4077))  # mode, i_inline, i_size, i_addr, the footer
        poke(case.path, place + at, bytes([int(block[at]) ^ rng.choice((1, 0x20, 0x80, 0xC0))]))
    said: list[Any] = []
    for brief in (True, False):
        lost: list[Lost] = []
        with f2tools.open(case.path) as volume:
            found = directories(volume, file_at(volume, "/", follow=False), lost, recursive=True, brief=brief)
            rows = [
                (path, row.name, row.ino, row.kind, row.target, row.error) for path, _, below in found for row in below
            ]
        said.append((rows, lost))
    assert said[0] == said[1]
    assert len(said[0][0]) > 20
    assert any(row[-1] for row in said[0][0])


def test_a_name_of_bytes_or_control_characters_is_escaped_on_the_terminal(tmp_path: Path) -> None:
    from tests.dump.craft import rename

    case = copy_of("base", tmp_path)
    name = max((p for p in case.manifest()["entries"] if "/" not in p), key=len)
    rename(case.path, "/", os.fsencode(name), b"\xff\x1b[2"[: len(name)])
    assert "\\xff\\x1b" in f2("dump", "ls", case.path).text
    assert "\x1b" not in f2("dump", "tree", case.path).text


def test_tree_counts_and_draws() -> None:
    case = images.reference("plain")
    entries = case.manifest()["entries"]
    text = f2("dump", "tree", case.path).text
    directories = len([e for e in entries.values() if e["type"] == "dir"]) - 1
    assert text.endswith(f"\n{directories} directories, {len(entries) - 1 - directories} files\n")
    assert "├── links\n│   ├── " in text
    assert len(text.splitlines()) == len(entries) + 2
    found = json.loads(f2("dump", "tree", "--json", case.path).out)
    assert {item["path"].lstrip("/") for item in found} == entries.keys() - {"."}
    assert {item["depth"] for item in json.loads(f2("dump", "tree", "-L", "1", "--json", case.path).out)} == {1}


@pytest.mark.parametrize("name", ["features", "plain", "compress-zstd"])
def test_stat_says_what_the_kernel_says(name: str) -> None:
    case = images.reference(name)
    entries = {p: e for p, e in case.manifest()["entries"].items() if p.isascii()}
    paths = list(entries)[:300]
    for facts in json.loads(f2("dump", "stat", "--json", case.path, *("/" + p for p in paths)).out):
        entry = entries[facts["path"].lstrip("/") or "."] if facts["path"] != "/." else entries["."]
        for key in facts.keys() & entry.keys() - {"compress", "verity"}:
            assert facts[key] == entry[key], (facts["path"], key)
        assert {"mode", "atime_ns", "disk"} <= facts.keys()
    text = f2("dump", "stat", case.path, *("/" + p for p in paths)).text
    assert text.count("  File: ") == len(paths)


def test_cat_joins_files_and_unpacks_compressed_ones() -> None:
    case = images.reference("compress-lz4")
    entries = case.manifest()["entries"]
    path = next(p for p, e in entries.items() if e.get("compress", {}).get("saved_blocks"))
    result = f2("dump", "cat", case.path, "/" + path, f"ino:{entries[path]['ino']}")
    half = len(result.out) // 2
    assert hashlib.sha256(result.out[:half]).hexdigest() == entries[path]["sha256"]
    assert result.out[:half] == result.out[half:]


def test_cat_goes_on_after_what_it_can_not_read() -> None:
    case = images.reference("plain")
    small = next(p for p, e in case.manifest()["entries"].items() if e["type"] == "file" and 0 < e["size"] < 100)
    result = f2("dump", "cat", case.path, "/nope", "/links", small)
    assert result.code == 1
    assert "/nope: No such file or directory" in result.err
    assert "/links: Is a directory" in result.err
    assert hashlib.sha256(result.out).hexdigest() == case.manifest()["entries"][small]["sha256"]


def test_cat_says_that_content_is_encrypted() -> None:
    case = images.reference("fscrypt")
    path = next(p for p, e in case.manifest("nokey")["entries"].items() if "open_error" in e)
    result = f2("dump", "cat", case.path, path)
    assert (result.code, result.out) == (1, b"")
    assert "encrypted" in result.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    case = images.reference("plain")
    big = max((e["size"], p) for p, e in case.manifest()["entries"].items() if e["type"] == "file" and p.isascii())[1]
    command = [sys.executable, "-c", "from f2tools.cli import run; run()", "dump", "cat", str(case.path), big]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode in (1, 141)  # 1 is what click makes of EPIPE
    assert b"Traceback" not in errors


def test_times_that_no_calendar_has_are_shown_as_numbers(tmp_path: Path) -> None:
    case = copy_of("base", tmp_path / "image")
    name = next(p for p, e in case.manifest()["entries"].items() if e["type"] == "file" and p.isascii())
    poke(case.path, inode_offset(case.path, name) + 48, (1 << 62).to_bytes(8, "little"))
    for command in (["ls", "-l"], ["stat"], ["manifest"], ["tar", "-o", tmp_path / "x.tar"]):
        assert f2("dump", command[0], case.path, name, *command[1:]).code == 0, command
    assert f2("dump", "extract", case.path, name, "-o", tmp_path / "out").code == 0


def test_a_volume_that_was_never_written_to_has_no_older_checkpoint(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", image, "--size", "64M").code == 0
    done = f2("dump", "ls", "--checkpoint", "older", image)
    assert (done.code, "there is no older checkpoint: only mkfs has written one" in done.err) == (8, True)


def test_the_older_checkpoint_can_be_looked_at() -> None:
    case = images.reference("history-d")
    now = f2("dump", "ls", "-R", case.path).text
    older = f2("dump", "ls", "-R", "--checkpoint", "older", case.path).text
    assert now != older


def test_a_wrong_inode_number_is_wrong_usage() -> None:
    case = images.reference("base")
    assert f2("dump", "stat", case.path, "ino:x").code == 2
    assert f2("dump", "stat", case.path, "ino:999999").code == 1


@pytest.mark.parametrize("verb", ["ls", "stat", "cat"])
def test_a_file_that_is_missing_does_not_hide_the_others(verb: str) -> None:
    case = images.reference("base")
    path = next("/" + path for path, entry in case.manifest()["entries"].items() if entry["type"] == "file")
    plain = f2("dump", verb, case.path, path)
    with_json = f2("dump", verb, "--json", case.path, path)
    for others in (("/nix", path), (path, "/nix"), (path, "ino:999999")):
        for alone, more in ((plain, ()), (with_json, ("--json",))):
            done = f2("dump", verb, *more, case.path, *others)
            assert (alone.code, done.code, done.out) == (0, 1, alone.out)
            assert done.err.startswith("f2tools: /nix: No such file" if "/nix" in others else "f2tools: ino:999999: ")
    assert json.loads(f2("dump", verb, "--json", case.path, "/nix").out) == []
    wrong = f2("dump", verb, "--json", case.path, path, "ino:x")
    assert (wrong.code, wrong.out) == (2, b"")


def test_json_of_a_listing_is_printed_as_it_is_read_and_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    image, longest = images.reference("history-a").path, 0
    echo = click.echo

    def counting(text: Any = None, **how: Any) -> None:
        nonlocal longest
        longest = max(longest, len(str(text)))
        echo(text, **how)

    monkeypatch.setattr(options, "PIECES_AT_ONCE", 10)
    monkeypatch.setattr(click, "echo", counting)
    text = f2("dump", "ls", "-R", "--json", image).text
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
    assert longest < 500 < len(text)
