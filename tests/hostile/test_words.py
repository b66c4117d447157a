"""Names that steer a terminal, break a table or are formulas: in every output they are text and nothing else."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import f2tools
from f2tools.errors import F2fsError
from f2tools.fuse.needed import require_fuse
from f2tools.fuse.options import ServeOptions
from f2tools.options import said_of
from f2tools.text import (
    bodyfile_field,
    command_line,
    csv_line,
    csv_text,
    l2t_field,
    markup,
    printable,
    printable_name,
)
from tests.dump.craft import f2
from tests.hostile.forge import LINK, Forge

NASTY = [
    b"esc\x1b]0;owned\x07\x1b[2J",
    b"row\n=HYPERLINK(1)",
    b"back\r\b\b",
    b"c1\xc2\x9b31m",
    b"del\x7f",
    b"bidi\xe2\x80\xaegpj.exe",
    b"line\xe2\x80\xa8sep",
    b"raw\xff\x9b1m",
    b'quote",|<b>&amp;',
    b"=1+cmd",
    b"-2+3",
    b"@SUM",
    b"\xef\xbc\x9d1",
]
FORBIDDEN = {"Cc", "Cf", "Zl", "Zp"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, directories and links of these names; the links lead to them too."""
    with Forge(tmp_path_factory.mktemp("words") / "image") as forge:
        made = [(name, forge.text(b"x" + name)) for name in NASTY]
        made += [(b"l" + name, forge.text(name, LINK)) for name in NASTY]
        inner = [(b"in" + name, forge.text(b"y")) for name in NASTY]
        made.append((b"d" + NASTY[0], forge.directory(*inner)))
        made += [(b"m" + NASTY[0], 4000), (b"n/" + NASTY[0], forge.text(b"z"))]  # no inode; no name
        forge.root(*made)
    return forge.path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of these names, made as any are, in an image whose own name is one of them."""
    directory = tmp_path_factory.mktemp("written")
    (directory / "tree").mkdir()
    for name in NASTY:
        with open(os.path.join(os.fsencode(directory / "tree"), name), "wb") as file:
            file.write(name)
    image = directory / NASTY[0].decode()
    assert f2("mkfs", image, "--size", "64M", "--from", directory / "tree", "-q").code == 0
    return image


def raw_characters(text: str) -> set[str]:
    """What a terminal, or a reader of lines, might obey."""
    return {c for c in text if (unicodedata.category(c) in FORBIDDEN and c not in "\n\t") or "\ud800" <= c <= "\udfff"}


@pytest.mark.parametrize(
    "command",
    [
        ("dump", "ls", "-laR", "{image}"),
        ("dump", "tree", "-s", "{image}"),
        ("dump", "stat", "{image}", "/" + NASTY[0].decode()),
        ("dump", "stat", "{image}", "/no" + NASTY[0].decode()),
        ("dump", "cat", "{image}", "/no" + NASTY[0].decode()),
        ("dump", "dentries", "{image}", "/"),
        ("dump", "inode", "{image}", "/" + NASTY[0].decode()),
        ("dump", "map", "{image}", "/" + NASTY[0].decode()),
        ("dump", "verify", "{image}"),
        ("dump", "extract", "{image}", "-o", "{out}"),
        ("dump", "extract", "{image}", "-o", "{out}/" + NASTY[0].decode()),
        ("dump", "extract", "{image}", "/no" + NASTY[0].decode(), "-o", "{out}"),
        ("dump", "tar", "{image}", "-o", "{out}/" + NASTY[0].decode()),
        ("fsck", "-n", "{image}"),
        ("fsck", "-y", "--dry-run", "-v", "{image}"),
        ("fsck", "--salvage", "{out}", "{image}"),
        ("fsck", "--salvage", "{out}/" + NASTY[0].decode(), "{image}"),
        ("undelete", "{image}"),
        ("undelete", "{image}", "-o", "{out}/" + NASTY[0].decode()),
        ("history", "{image}", "/" + NASTY[0].decode()),
        ("history", "{image}", "/no" + NASTY[0].decode()),
        ("timeline", "{image}", "--format", "csv"),
        ("timeline", "{image}", "--format", "bodyfile"),
        ("timeline", "{image}", "--format", "dfxml"),
        ("slack", "{image}"),
        ("strings", "{image}", "-e", "utf-8"),
        ("carve", "{image}"),
        ("defrag", "--report", "{image}"),
        ("scan", "{image}", "-o", "{out}/" + NASTY[0].decode()),
        ("rm", "{image}:/no" + NASTY[0].decode()),
        ("mkdir", "{image}:/" + NASTY[0].decode() + "/x"),
        ("dump", "info", "{out}/" + NASTY[0].decode()),
    ],
    ids=lambda command: "-".join(word for word in command if word.isalpha()),
)
def test_no_name_steers_a_terminal(command: tuple[str, ...], image: Path, tmp_path: Path) -> None:
    done = f2(*(word.format(image=image, out=tmp_path / "out") for word in command))
    said = done.out.decode("utf-8", "surrogateescape") + done.err
    assert said.strip()
    assert not raw_characters(said), said


@pytest.mark.parametrize(
    "command",
    [
        "fsck -n", "fsck -y --dry-run", "recover", "resize --min", "clean --dry-run", "defrag --dry-run",
        "defrag --report", "tune", "dump info", "scan", "undelete", "dump block", "mkfs --dry-run", "undo -n /none",
    ],
)  # fmt: skip
def test_no_name_of_an_image_steers_a_terminal(
    command: str, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = f2(*command.split(), written)
    said = done.out.decode("utf-8", "surrogateescape") + done.err
    assert said.strip()
    assert not raw_characters(said), said


@pytest.mark.parametrize("form", ["md5", "sha1", "sha256"])
def test_no_name_in_a_list_of_hashes_steers_a_terminal(form: str, written: Path, tmp_path: Path) -> None:
    """A program that checks the hashes gets the names as they are."""
    words = ("hashes", written, "--living", "--format", form)
    said = f2(*words, terminal=True).text
    assert len(said.splitlines()) == len(NASTY)
    assert not raw_characters(said)
    assert f2(*words, "-o", tmp_path / "list").code == 0
    assert b"bidi\xe2\x80\xaegpj.exe" in f2(*words).out
    assert f2(*words).out == (tmp_path / "list").read_bytes()


def test_a_newline_in_a_name_begins_no_row(written: Path) -> None:
    lines = f2("timeline", written, "--format", "csv").text.splitlines()
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    assert {row["type"] for row in rows} <= {"-", "d"}
    assert len(rows) == len(lines) - 1
    assert all(re.fullmatch(r"\d+", row["ino"]) for row in rows)
    assert {row["path"] for row in rows if row["ino"] != "3"} >= {"/row\\x0a=HYPERLINK(1)", "/" + NASTY[8].decode()}


def test_a_bodyfile_has_eleven_fields_whatever_a_name_holds(written: Path) -> None:
    lines = f2("timeline", written, "--format", "bodyfile").text.splitlines()
    assert {line.count("|") for line in lines} == {10}


def test_dfxml_is_sound_whatever_a_name_holds(written: Path) -> None:
    tree = ElementTree.fromstring(f2("timeline", written, "--format", "dfxml").text)
    names = {element.text for element in tree.iter() if element.tag.endswith("filename")}
    assert NASTY[8].decode() in names
    assert "row\\x0a=HYPERLINK(1)" in names


def test_names_in_json_are_the_bytes_that_they_are(image: Path) -> None:
    listed = json.loads(f2("dump", "ls", "-a", "--json", image).text)[0]["entries"]
    assert {entry["name"].encode("utf-8", "surrogateescape") for entry in listed} >= set(NASTY)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff201"])
def test_no_cell_is_a_formula(text: str) -> None:
    (cell,) = next(csv.reader([csv_line([text])]))
    assert cell[0] in "'\\"


def test_numbers_and_plain_texts_stay_as_they_are() -> None:
    assert csv_line(["a", 1, -2, None, 'say "x", twice', 1.5]) == '"a",1,-2,"","say ""x"", twice",1.5'
    assert next(csv.reader([csv_line(["a;=b"])])) == ["a;=b"]


def test_one_function_escapes_for_each_kind_of_reader() -> None:
    name = "a\x1b|<\n\u202e\udcff"
    assert printable(name) == "a\\x1b|<\\x0a\\xe2\\x80\\xae\\xff"
    assert bodyfile_field(name) == "a\\x1b\\x7c<\\x0a\\xe2\\x80\\xae\\xff"
    assert markup(name) == "a\\x1b|&lt;\\x0a\\xe2\\x80\\xae\\xff"


def read_back(text: str) -> bytes:
    """The name that `printable_name` was given."""
    raw = re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    assert printable_name(os.fsdecode(raw)) == text
    return raw


@pytest.mark.parametrize("write", [printable_name, bodyfile_field, l2t_field, csv_text])
def test_no_two_names_look_alike(write: Callable[[str], str]) -> None:
    signs = ["\\", "x", "0", "a", "\n", "|", ","] if write is not csv_text else ["\\", "x", "0a", "\n", '"', "'", "="]
    names = ["".join(some) for length in range(6) for some in itertools.product(signs, repeat=length)]
    names += [rf"a\x{byte:02x}b" for byte in range(256)] + [f"a{os.fsdecode(bytes([byte]))}b" for byte in range(256)]
    names += [r"\x5c", r"\\x5c", r"\x5cx5c", r"\x5Cx", r"C:\xfade", r"\xe2\x80\xae", "\u202e", "\\\u202e", r"\x5c\x5c"]
    texts = {write(name) for name in dict.fromkeys(names)}
    assert len(texts) == len(set(names))
    assert not any(raw_characters(text) or "\n" in text for text in texts)


@given(st.binary(max_size=12) | st.text(r"\xX05cab" + "\n\u202e", max_size=12).map(str.encode))
def test_a_name_can_be_read_back_and_stays_in_a_message(raw: bytes) -> None:
    text = printable_name(os.fsdecode(raw))
    assert read_back(text) == raw
    assert printable(text) == text


@pytest.mark.parametrize("name", ["plain", r"C:\Users\x", r"a\b", r"\\server\xenon", "ü|,", r"\x", r"\xg0"])
def test_an_ordinary_name_is_not_changed(name: str) -> None:
    assert printable_name(name) == name


def test_a_name_with_a_newline_and_one_that_looks_like_it_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("a\nb", r"a\x0ab"):
        (tmp_path / "tree" / name).write_bytes(b"x")
    image = tmp_path / "image"
    assert f2("mkfs", image, "--size", "64M", "--from", tmp_path / "tree", "-q").code == 0
    for command in (
        ["dump", "ls"], ["dump", "ls", "-l"], ["dump", "ls", "-i"], ["dump", "tree"], ["dump", "dentries"], ["fls"],
        ["hashes"], ["hashes", "--format", "nsrl"], ["timeline"],
        *(["timeline", "--format", form] for form in ("bodyfile", "l2tcsv", "dfxml")),
    ):  # fmt: skip
        said = f2(*command, image, *(["/"] if command[-1] == "dentries" else [])).text
        assert len(re.findall(r"a\\x0ab", said)) == len(re.findall(r"a\\x5cx0ab", said)) > 0, command


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash reads $'...'")
def test_a_command_that_is_advised_can_be_pasted_whatever_a_file_is_called() -> None:
    names = [*NASTY, b"it's \\ and\nmore\xff1", b"with a blank", "ü".encode(), b"-\n", b"--help", b""]
    line = command_line(r"printf '%s\0'", *(os.fsdecode(name) for name in names))
    assert line == printable(line)
    pasted = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.split(b"\0")[:-1]
    assert pasted == [b"./" + name if name.startswith(b"-") else name for name in names]


def test_the_way_to_repair_an_image_of_any_name_can_be_pasted(tmp_path: Path) -> None:
    image = os.path.join(tmp_path, os.fsdecode(b"a b\xff\n.img"))
    assert f2("mkfs", image, "--size", "48M", "-q").code == 0
    with open(image, "r+b") as file:
        file.write(bytes(2 << 20))
    said = f2("dump", "info", image).err
    command = re.search(r"`(f2tools fsck --rescue --salvage DIR .*?)`", said)
    assert command is not None, said
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {command[1]}"], capture_output=True, check=True).stdout
    assert words.split(b"\0")[-2] == os.fsencode(image)


@pytest.mark.skipif(shutil.which("bash") is None, reason="a shell runs what was pasted")
@pytest.mark.parametrize("name", ["-q.img", "--help.img"])
def test_what_is_advised_for_an_image_called_like_an_option_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f2("mkfs", "--size", "48M", "-q", "--", name).code == 0
    assert f2("mkfs", "--size", "48M", "-q", "other").code == 0
    with f2tools.open(name) as volume:
        sit = volume.sb.sit_blkaddr * volume.geo.block_size
    said = [f2("doctor", "--", name).text]
    with open(name, "r+b") as file:
        file.seek(sit)
        file.write(b"\x55" * 4096)
    said += [f2("doctor", "--", name).text, f2("fsck", "--", name).text]
    done = f2("fsck", "-y", "--undo", "-q.undo", "--", name)
    said.append(done.text + done.err)
    with open(name, "r+b") as file:
        file.write(bytes(2 << 20))
    said.append(f2("dump", "info", "--", name).err)
    commands = [command for text in said for command in re.findall(r"(?m)(?:`|^ +)(f2tools .*?)(?:`|  |$)", text)]
    commands = [command for command in commands if "COPY" not in command]
    assert len({command.split(" ")[1] for command in commands}) >= 4, said
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for number, command in enumerate(commands):
        pasted = command.replace("DIR", f"out{number}")
        ran = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, env=environment)
        assert "Usage: " not in ran.stdout + ran.stderr, command
        assert "no such" not in ran.stderr.lower(), command


FORGED = "x\nf2tools: forged"


@pytest.mark.parametrize(
    "line",
    [
        "dump info {gone}", "dump info {junk}", "doctor {gone}", "fsck {gone}", "fsck {junk}", "label {gone} NEW",
        "vsl info {junk}", "dfs fsck {junk}", "dffs fsck {junk}", "trace analyze {junk}", "umount {out}",
        "undo {junk} {image}", "mkfs {image}", "mkfs --dry-run -f {image}", "mkfs {out} --from {gone} --size 64M",
        "mkfs {out} --from {image}.d --size 64M", "cp {image}:/f {gone}/x", "cp {gone} {image}:/",
        "dump extract {image} -o {out}", "dump tar {image} -o {junk}", "dump ls {image} --key {junk}",
        "dump cat {image} {gone}", "hashes {image} --known {junk}", "history {image} / --index {gone}",
        "report {image} -o {out} --no-hashes", "fls {gone}", "fleet info {junk} -o {out}", "fleet info {gone} -o {out}",
    ],
    ids=lambda line: "-".join(word for word in re.sub(r"[{}]", "", line).split() if word.isalpha()),
)  # fmt: skip
def test_no_name_on_the_host_makes_a_line_of_its_own(line: str, tmp_path: Path) -> None:
    places = {name: str(tmp_path / f"{FORGED} {name}") for name in ("gone", "junk", "image", "out")}
    Path(places["junk"]).write_text("junk\n")
    (Path(places["image"] + ".d") / FORGED).mkdir(parents=True)
    assert f2("mkfs", places["image"], "--size", "48M", "-q").code == 0
    done = f2(*(word.format(**places) for word in line.split()))
    said = done.out.decode("utf-8", "surrogateescape") + done.err
    assert "x\\x0af2tools: forged" in said
    assert not [one for one in said.splitlines() if one.startswith("f2tools: forged")], said


def test_what_is_told_in_several_lines_stays_so() -> None:
    with pytest.raises(F2fsError) as told:
        require_fuse(ServeOptions(server="direct"), device="/no/fuse")
    assert said_of(told.value).count("\n") == str(told.value).count("\n") > 0
    missing = f2("mknod", "card.img:/x")
    assert missing.err.endswith("Error: Missing argument '{b|c|p|s}'. Choose from: b, c, p, s\n"), missing.err


def test_the_c_tools_names_make_no_line_of_a_name(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "f2tools"
    for name in ("dump.f2fs", "fsck.f2fs", "fls", "mkfs.f2fs"):
        (tmp_path / name).symlink_to(program)
        ran = subprocess.run([tmp_path / name, tmp_path / FORGED], capture_output=True, text=True)
        assert ran.returncode != 0
        assert "\nf2tools: forged" not in ran.stdout + ran.stderr
