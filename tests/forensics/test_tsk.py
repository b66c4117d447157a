"""fls, icat, istat, blkcat and fsstat beside those of The Sleuth Kit: one reader must understand both."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.dump.craft import f2
from tests.forensics.history_cases import image_of
from tests.judges import need_tool

LINE = re.compile(r"(?:(\++) )?([-rdlpcbhV])/([-rdlpcbhV]) (\* )?([\d-]+)(\(realloc\))?:\t([^\t]*)(?:\t(.*))?")


class Row(NamedTuple):
    depth: int
    kinds: str
    deleted: bool
    address: str
    name: str
    rest: tuple[str, ...]


def parse(text: str) -> list[Row]:
    """Lines of fls, short or long, whoever printed them."""
    rows = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        plus, name, meta, star, address, _, path, rest = match.groups()
        rows.append(Row(len(plus or ""), name + meta, bool(star), address, path, tuple((rest or "").split("\t"))))
    return [row for row in rows if row.name.partition("/")[0] not in ("lost+found", "$OrphanFiles")]


class Pair(NamedTuple):
    """The same tree on ext4, as The Sleuth Kit shows it, and on F2FS."""

    ext4: Path
    f2fs: Path
    tree: Path

    def tsk(self, name: str, *words: object) -> str:
        done = subprocess.run([need_tool(name), *map(str, words)], capture_output=True, check=True)
        return done.stdout.decode()

    def both(self, name: str, *words: str) -> tuple[str, str]:
        return self.tsk(name, *words, self.ext4), f2(name, *words, self.f2fs).text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    need_tool("fls")
    directory = tmp_path_factory.mktemp("tsk")
    tree = directory / "tree"
    (tree / "sub" / "deep").mkdir(parents=True)
    (tree / "a.txt").write_text("hello\n")
    (tree / "sub" / "big").write_bytes(bytes(range(256)) * 1200)
    (tree / "sub" / "deep" / "empty").touch()
    (tree / "link").symlink_to("sub/big")
    os.mkfifo(tree / "fifo")
    os.link(tree / "a.txt", tree / "sub" / "hard")
    for number, path in enumerate(sorted(tree.rglob("*"))):
        os.utime(path, (1_700_000_000 + number, 1_710_000_000 + number), follow_symlinks=False)
    os.utime(tree, (1_700_000_000, 1_710_000_000))
    ext4, f2fs = directory / "ext4.img", directory / "f2fs.img"
    subprocess.run([need_tool("mkfs.ext4"), "-q", "-F", "-d", tree, ext4, "16M"], check=True, capture_output=True)
    assert f2("mkfs", "-q", f2fs, "--size", "64M", "--from", tree).code == 0
    return Pair(ext4, f2fs, tree)


def said_by_mactime(done: subprocess.CompletedProcess[str]) -> str:
    """Its complaints, without what Perl since 5.38 says of mactime's own text."""
    lines = done.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("Old package separator"))


@pytest.mark.parametrize("words", [(), ("-r",), ("-r", "-p"), ("-r", "-D", "-p"), ("-r", "-F"), ("-u", "-r", "-p")])
def test_names_are_listed_as_fls_lists_them(pair: Pair, words: tuple[str, ...]) -> None:
    theirs, ours = (
        sorted((row.depth, row.kinds, row.deleted, row.name) for row in parse(text))
        for text in pair.both("fls", *words)
    )
    assert ours == theirs
    assert theirs


@pytest.mark.parametrize("zone", ["EST5EDT", "ABC5DEF", "CET-1CEST,M3.5.0,M10.5.0/3", "XYZ-5:30", "Europe/Berlin"])
def test_the_long_form_has_the_same_times_sizes_and_owners(pair: Pair, zone: str) -> None:
    theirs, ours = (
        {row.name: (row.rest[0], *row.rest[5:], *((row.rest[4],) if row.kinds[0] in "rlp" else ())) for row in parse(t)}
        for t in pair.both("fls", "-r", "-p", "-l", "-z", zone)
    )
    assert ours == theirs
    assert "(UTC)" not in ours["a.txt"][0]


@pytest.mark.parametrize("zone", ["nonsense", "ABC5DEF,nonsense", "5", "../zone", "ÄÖÜ5"])
def test_what_is_no_time_zone_is_refused(pair: Pair, zone: str) -> None:
    done = f2("fls", "-l", "-z", zone, pair.f2fs)
    assert (done.code != 0, "is no time zone" in done.err) == (True, True)


def test_mactime_reads_the_body_files_of_both(pair: Pair, tmp_path: Path) -> None:
    written = []
    for number, text in enumerate(pair.both("fls", "-r", "-h", "-m", "/mnt")):
        body = tmp_path / f"body.{number}"
        body.write_text(text)
        done = subprocess.run(
            [need_tool("mactime"), "-d", "-y", "-b", body, "-z", "UTC"], capture_output=True, text=True, check=True
        )
        assert said_by_mactime(done) == ""
        rows = csv.DictReader(done.stdout.splitlines())
        written.append({
            (row["Date"], row["File Name"], row["Mode"], row["UID"], row["GID"])
            for row in rows
            if row["Type"].startswith("m") and "$" not in row["File Name"] and "lost+" not in row["File Name"]
        })  # fmt: skip
    assert written[0] == written[1]
    assert len(written[0]) == 8
    md5 = hashlib.md5(pair.tree.joinpath("sub/big").read_bytes(), usedforsecurity=False).hexdigest()
    assert f"{md5}|/mnt/sub/big|" in (tmp_path / "body.1").read_text()


def test_a_file_comes_out_by_the_address_that_is_listed(pair: Pair) -> None:
    for row in parse(f2("fls", "-r", "-p", "-u", pair.f2fs).text):
        path = pair.tree / row.name
        if row.kinds == "rr":
            assert f2("icat", pair.f2fs, row.address).out == path.read_bytes()
        elif row.kinds == "ll":
            assert f2("icat", pair.f2fs, row.address).text == os.readlink(path)


def test_an_inode_is_shown_in_the_lines_of_istat(pair: Pair) -> None:
    shown = []
    for text, of in zip(pair.both("fls", "-r", "-p"), ("tsk", "f2tools"), strict=True):
        address = next(row.address for row in parse(text) if row.name == "sub/big")
        lines = (pair.tsk("istat", pair.ext4, address) if of == "tsk" else f2("istat", pair.f2fs, address).text).split(
            "\n"
        )
        blocks = " ".join(lines[lines.index("Direct Blocks:") + 1 :]).split()
        head = dict(re.split(r":\s", line, maxsplit=1) for line in lines if re.match(r"[^:]+:\s+\S", line))
        shown.append({key: head[key] for key in ("uid / gid", "mode", "size", "num of links", "File Modified")})
        shown[-1] |= {"allocated": "Allocated" in lines, "times": "Inode Times:" in lines}
        data = pair.tree.joinpath("sub/big").read_bytes()
        size = 4096 if of == "f2tools" else 1024
        assert len(blocks) == -(-len(data) // size)
        with (pair.f2fs if of == "f2tools" else pair.ext4).open("rb") as image:
            image.seek(int(blocks[0]) * size)
            assert image.read(size) == data[:size]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("form", ["-h", "-a", ""])
def test_blocks_are_printed_as_blkcat_prints_them(pair: Pair, form: str) -> None:
    address = next(row.address for row in parse(f2("fls", pair.f2fs, "-r").text) if row.name == "big")
    block = re.search(r"Direct Blocks:\n(\d+)", f2("istat", pair.f2fs, address).text)
    assert block
    words = [word for word in (form, pair.f2fs, block[1]) if word]
    done = subprocess.run([need_tool("blkcat"), "-f", "raw", "-u", "4096", *words], capture_output=True, check=True)
    assert f2("blkcat", *words).out == done.stdout


def test_a_deleted_file_has_an_address_of_its_own(tmp_path: Path) -> None:
    image = image_of("phone")
    known = {row["path"]: row for row in map(json.loads, f2("undelete", image, "--json").text.splitlines())}
    rows = [row for row in parse(f2("fls", "-r", "-p", image).text) if row.deleted]
    gone = [one for one in known.values() if one["size"] is not None and one["state"] == "deleted"]
    assert {row.address for row in rows} >= {f"{one['ino']}-{one['blkaddr']}" for one in gone}
    picture = next(one for one in known.values() if one["path"].endswith("_3.jpg"))
    content = f2("icat", image, f"{picture['ino']}-{picture['blkaddr']}")
    assert (content.code, hashlib.sha256(content.out).hexdigest()) == (0, picture["sha256"])
    assert "Not Allocated" in f2("istat", image, f"{picture['ino']}-{picture['blkaddr']}").text
    body = tmp_path / "body"
    body.write_text(f2("fls", "-r", "-m", "/", image).text)
    done = subprocess.run(
        [need_tool("mactime"), "-d", "-b", body, "-z", "UTC"], capture_output=True, text=True, check=True
    )
    assert said_by_mactime(done) == ""
    assert "_3.jpg (deleted)" in done.stdout
    assert len({line.split("|")[1] for line in body.read_text().splitlines()}) > 300


def test_the_names_work_as_links_and_end_with_1_as_theirs_do(pair: Pair, tmp_path: Path) -> None:
    subprocess.run(["f2tools", "links", "--tsk", tmp_path / "bin"], check=True, capture_output=True)
    for name, words, code in (
        ("fls", [pair.f2fs], 0), ("fls", [tmp_path / "no image"], 1), ("icat", [pair.f2fs], 1),
        ("icat", [pair.f2fs, "99999"], 1), ("fls", [pair.f2fs, "--nonsense"], 1), ("fsstat", ["-t", pair.f2fs], 0),
        ("istat", ["-f", "ext4", pair.f2fs, "3"], 1), ("blkcat", [pair.f2fs, "99999999"], 1),
    ):  # fmt: skip
        done = subprocess.run([tmp_path / "bin" / name, *map(str, words)], capture_output=True, text=True, check=False)
        assert (name, words, done.returncode) == (name, words, code), done.stderr
        assert "Traceback" not in done.stderr
    assert f2("fsstat", "-t", pair.f2fs).text == "f2fs\n"
    assert "Block Range: 0 - 16383" in f2("fsstat", pair.f2fs).text
