"""Forged trees: every command ends in time, in memory and with a word; nothing is made outside the target directory."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC
from tests.dump.craft import f2
from tests.hostile.exercise import COMMANDS, exercise, in_child
from tests.hostile.forge import DIR, FILE, LINK, SIZE, Forge

PER = 1018  # addresses or nids in a node
MOST = (923 + 2 * PER + 2 * PER**2 + PER**3) * SIZE


def names(forge: Forge) -> None:
    """Names that no file may have."""
    bad = [b"a/b", b"../up", b"/abs", b"x\0y", b"\0", b"..", b".", b"...", b"//", b"\n", b"\xff", b"A" * 255]
    forge.root(
        *((name, forge.text(b"evil")) for name in bad), (b"../folder", forge.directory((b"in", forge.text(b"x"))))
    )


def loops(forge: Forge) -> None:
    """Directories that hold themselves, each other and the root."""
    one, two = forge.new_nid(), forge.new_nid()
    forge.directory((b"self", one), (b"two", two), (b"root", 3), nid=one)
    forge.directory((b"one", one), nid=two)
    forge.root((b"one", one), (b"two", two), (b"root", 3))


def sizes(forge: Forge) -> None:
    """Files, directories and links that claim to be huge."""
    block = forge.block(b"x")
    made = [
        forge.inode(mode, size, [block])
        for size in (1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1, MOST + 1)
        for mode in (FILE, DIR, LINK)
    ]
    forge.root(*((b"%d" % ino, ino) for ino in made))


def node_circles(forge: Forge) -> None:
    """Nodes that lead to themselves, to each other and to the inode."""
    made: list[int] = []
    for mode in (FILE, DIR):
        ino, nid, other = forge.new_nid(), forge.new_nid(), forge.new_nid()
        forge.node(ino, [other, nid] * (PER // 2), nid)
        forge.node(ino, [nid] * PER, other)
        forge.inode(mode, 1 << 42, nids=[0, nid, nid, ino, other], nid=ino, xattr_nid=ino)
        made.append(ino)
    forge.root(*((b"%d" % ino, ino) for ino in made))


def attributes(forge: Forge) -> None:
    """Attribute areas of entries without end, without length, past their end."""
    rng = random.Random(1)
    made: list[int] = []
    for number in range(40):
        area = bytearray(4072)
        struct.pack_into("<II", area, 0, F2FS_XATTR_MAGIC, 1)
        at = 24
        while at < 4060:
            length, value = ((0, 0), (1, 1), (rng.choice([0, 255, 3]), rng.choice([0, 65535, 40])))[number % 3]
            struct.pack_into("<BBH", area, at, rng.choice([1, 2, 3, 4, 6, 7, 9, 11, 200]), length, value)
            at += (4 + length + value + 3) // 4 * 4
            area[at : at + 8] = rng.randbytes(max(0, min(8, 4072 - at)))
        ino = forge.new_nid()
        nid = forge.node(ino, list(struct.unpack("<1018I", area)))
        made.append(forge.inode(FILE, 3, [forge.block(b"abc")], nid=ino, xattr_nid=nid))
    forge.root(*((b"%d" % ino, ino) for ino in made))


def deep(forge: Forge) -> None:
    """9000 directories below each other, with long names: the paths of all of them are 10 GB."""
    below = forge.text(b"bottom")
    for _ in range(9000):
        below = forge.directory((b"n" * 250, below))
    forge.root((b"d", below))


def deep_short(forge: Forge) -> None:
    """The same with the shortest of names."""
    below = forge.text(b"bottom")
    for _ in range(20000):
        below = forge.directory((b"d", below))
    forge.root((b"d", below))


def one_block_many_times(forge: Forge) -> None:
    """A directory of a million blocks that are all the same one."""
    ino, block = forge.new_nid(), forge.entries(*((b"%03d" % n, forge.text(b"x")) for n in range(200)))
    indirect = forge.node(ino, [forge.node(ino, [block] * PER) for _ in range(PER)])
    forge.inode(DIR, (923 + 2 * PER + PER**2) * SIZE, [block] * 923, [0, 0, indirect], nid=ino)
    forge.root((b"d", ino))


def one_file_under_many_names(forge: Forge) -> None:
    """20,000 names of a file of 7 MiB that has one link."""
    ino = forge.new_nid()
    nid = forge.node(ino, [forge.block(b"%d" % n) for n in range(PER)])
    forge.inode(FILE, (923 + PER) * SIZE, [forge.block(b"y")] * 923, [nid], nid=ino)
    blocks = [forge.entries(*((b"%d-%d" % (b, n), ino) for n in range(200))) for b in range(100)]
    forge.root((b"d", forge.inode(DIR, len(blocks) * SIZE, blocks)))


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Removed by a program that can go as deep as these trees; pytest could not."""
    yield tmp_path
    subprocess.run(["rm", "-rf", tmp_path], check=True)


@pytest.mark.parametrize(
    "make",
    [names, loops, sizes, node_circles, attributes, deep, deep_short, one_block_many_times, one_file_under_many_names],
)
def test_every_command_survives(make: Callable[[Forge], None], tmp_path: Path) -> None:
    with Forge(tmp_path / "forged.img") as forge:
        make(forge)
        image, nid = forge.path, forge.new_nid() - 1
    commands = (
        *(command for command in COMMANDS if command[1] != "cat"),  # a hole of terabytes is that many zeros
        ("dump", "ls", "-lR", "{image}"),
        ("dump", "ls", "-R", "--json", "{image}"),
        ("dump", "stat", "{image}", "ino:101"),
    )
    inside = tmp_path / "inside"
    inside.mkdir()
    failures: list[str] = []
    for command in commands:  # each in a process of its own, whose memory is measured
        failures += in_child(lambda command=command: exercise(image, inside, nid, 7000, (command,)))
    assert not failures, "\n\n".join(failures[:5])
    assert set(os.listdir(tmp_path)) == {"forged.img", "inside"}


def test_three_thousand_directories_deep_is_no_obstacle(tmp_path: Path) -> None:
    with Forge(tmp_path / "image") as forge:
        below = forge.text(b"bottom")
        for _ in range(3000):
            below = forge.directory((b"d", below))
        forge.root((b"d", below))
    assert f2("dump", "extract", forge.path, "-o", tmp_path / "out").code == 0
    assert f2("dump", "tar", forge.path, "-o", tmp_path / "x.tar").code == 0
    assert len(f2("dump", "tree", forge.path).text.splitlines()) > 3000


def duplicates(tmp_path: Path) -> Path:
    """Names that stand twice: two files; a link to somewhere else, then a directory and a file of that name."""
    (tmp_path / "elsewhere").mkdir()
    with Forge(tmp_path / "image") as forge:
        away = forge.text(os.fsencode(tmp_path / "elsewhere"), LINK)
        file = forge.text(b"planted")
        forge.root(
            (b"x", forge.text(b"first")), (b"x", forge.text(b"second")), (b"a", away),
            (b"a", forge.directory((b"pwn", file))), (b"b", forge.directory((b"pwn", file))), (b"b", away),
            (b"a", file),
        )  # fmt: skip
    return forge.path


def test_of_two_entries_of_one_name_the_first_is_the_file(tmp_path: Path) -> None:
    image = duplicates(tmp_path)
    done = f2("dump", "extract", image, "-o", tmp_path / "out")
    assert done.code == 1
    assert done.err.count("a second entry of that name") == 4
    assert (tmp_path / "out/x").read_bytes() == b"first"
    assert os.listdir(tmp_path / "elsewhere") == []
    entries = json.loads(f2("dump", "manifest", image).text)["entries"]
    assert entries["x"]["size"] == len("first")
    assert entries["a"]["type"] == "symlink"


def test_an_archive_never_holds_a_name_twice(tmp_path: Path) -> None:
    image = duplicates(tmp_path)
    assert f2("dump", "tar", image, "-o", tmp_path / "x.tar").code == 1
    listed = subprocess.run(["tar", "-tf", tmp_path / "x.tar"], capture_output=True, text=True, check=True)
    held = [name.rstrip("/") for name in listed.stdout.splitlines()]
    assert sorted(held) == [".", "a", "b", "b/pwn", "x"]


def test_stat_of_a_damaged_file_says_so(tmp_path: Path) -> None:
    with Forge(tmp_path / "image") as forge:
        forge.root((b"f", forge.inode(FILE, 1, xattr_nid=9999)))
    done = f2("dump", "stat", forge.path, "/f")
    assert done.code == 1
    assert "/f: " in done.err
