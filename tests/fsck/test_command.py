"""The command: exit codes of fsck(8), one JSON object a line, codes chosen, words for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.fsck.problems import CATALOGUE
from tests.dump.craft import f2
from tests.images import Reference, reference

FIELDS = {
    "record", "code", "name", "severity", "area", "blkaddr", "segno", "nid", "ino", "path", "found", "expected",
    "count", "message", "repair",
}  # fmt: skip


def test_a_sound_image_is_exit_code_0() -> None:
    done = f2("fsck", reference("checksums").path)
    assert done.code == 0
    assert re.search(r": sound; [\d,]+ inodes, [\d,]+ directory entries$", done.text.strip())


def test_damage_is_exit_code_4_and_says_where(damaged: Callable[[str], Reference]) -> None:
    done = f2("fsck", damaged("inode-blocks").path)
    assert done.code == 4
    assert "I004 error   main, blkaddr 0x125b, ino 43, /medium/one: i_blocks is not the number of blocks" in done.text
    assert "where the damage is" in done.text
    assert re.search(r"^  main +0x\w+ \|[.1]{64}\| 0x\w+$", done.text, re.MULTILINE)
    assert "DAMAGED: 1 error; 159 inodes" in done.text


def test_json_is_a_finding_a_line(damaged: Callable[[str], Reference]) -> None:
    done = f2("fsck", "--json", damaged("inode-blocks").path)
    assert done.code == 4
    *found, summary = [json.loads(line) for line in done.text.splitlines()]
    assert summary["record"] == "summary"
    assert all(set(item) == FIELDS for item in found)
    wrong = next(item for item in found if item["code"] == "I004")
    assert (wrong["ino"], wrong["path"], wrong["found"], wrong["expected"]) == (43, "/medium/one", 979, 972)
    assert wrong["repair"] == {"name": "inode-field", "ino": 43, "field": "i_blocks", "value": 972}


@pytest.mark.parametrize(
    ("options", "code", "codes"),
    [
        (["--only", "I004"], 4, {"I004"}),
        (["--only", "I"], 4, {"I004", "I035"}),
        (["--skip", "I004"], 0, {"I035"}),
        (["--only", "n,i035"], 0, {"I035"}),
    ],
)
def test_codes_can_be_chosen(
    options: list[str], code: int, codes: set[str], damaged: Callable[[str], Reference]
) -> None:
    done = f2("fsck", "--json", *options, damaged("inode-blocks").path)
    assert done.code == code
    *found, summary = [json.loads(line) for line in done.text.splitlines()]
    assert {item["code"] for item in found} == codes
    assert summary["sound"] is False
    assert summary.get("left_out", 0) == (0 if code else 1)
    said = f2("fsck", *options, damaged("inode-blocks").path).text
    assert ("1 other finding left out" in said) is (code == 0)
    assert "sound" not in said


@pytest.mark.parametrize("options", [["--only", "Y9"], ["--no-such-option"], ["--memory", "much"]])
def test_wrong_usage_is_exit_code_16(options: list[str]) -> None:
    assert f2("fsck", *options, reference("base").path).code == 16


def test_no_f2fs_is_exit_code_8(tmp_path: Path) -> None:
    other = tmp_path / "x"
    other.write_bytes(b"noise" * (1 << 18))
    done = f2("fsck", other)
    assert done.code == 8
    assert f"{other}: not an F2FS image" in done.err
    assert "fsck --rescue" in done.err
    assert "neither a superblock nor nodes" in f2("fsck", "--rescue", other).err
    assert f2("fsck", tmp_path / "nothing").code == 8


def test_the_image_is_never_written(damaged: Callable[[str], Reference]) -> None:
    for name in ("superblock-both", "checkpoint-both", "sit-count"):
        image = damaged(name).path
        before = image.read_bytes()
        assert f2("fsck", "-f", "-n", image).code == 4
        assert image.read_bytes() == before


def test_a_code_is_explained() -> None:
    done = f2("fsck", "--explain", "d006")
    assert done.code == 0
    assert done.text.startswith("D006 dentry-place (error): ")
    assert f2("fsck", "--explain", "dentry-place").text == done.text
    assert f2("fsck", "--explain", "D999").code == 16


def test_every_code_has_a_letter_of_a_group_and_three_digits() -> None:
    assert all(re.fullmatch(r"[SCJNGALFIBDXZVQORWUH]\d{3}", code) for code in CATALOGUE)
    assert len({problem.name for problem in CATALOGUE.values()}) == len(CATALOGUE)


def test_many_findings_are_cut_short_unless_all_are_asked_for(damaged: Callable[[str], Reference]) -> None:
    image = damaged("nat-outside").path
    assert f2("fsck", image).text.count("D001 error") == 9
    from f2tools.fsck import report

    assert report.SHOWN_PER_CODE == 10
