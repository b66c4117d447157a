"""A file that was renamed stands in the lists once, with all its names; one that only has its number is another."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import f2tools
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.forensics import renames
from f2tools.forensics.index import open_index
from f2tools.forensics.undelete import Undelete
from tests import images
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, writable
from tests.forensics.history_cases import CASES, image_of
from tests.forensics.score import load


def test_a_renamed_file_shows_once_with_both_names() -> None:
    phone = images.reference("phone").path
    rows = [json.loads(line) for line in f2("undelete", phone, "--json").text.splitlines()]
    directory = "data/com.browser.app/shared_prefs"
    renamed = [row for row in rows if f"{directory}/pref2.xml.bak" in row.get("also_known_as", [])]
    assert {(row["path"], row["grade"]) for row in renamed} == {(f"{directory}/pref2.xml", "certain")}
    assert len({row["ino"] for row in renamed}) == len(renamed) > 1
    assert f"{directory}/pref2.xml.bak" not in {row["path"] for row in rows}
    text = f2("undelete", phone, "pref2.xml").text.splitlines()
    assert text[0].split() == ["GRADE", "TYPE", "SIZE", "MODIFIED", "(UTC)", "PATH"]
    at = next(i for i, line in enumerate(text) if line.endswith(f"{directory}/pref2.xml"))
    assert text[at + 1].strip() == f"also known as {directory}/pref2.xml.bak"


def test_a_picture_that_went_through_the_trash_shows_once() -> None:
    rows = [
        json.loads(line)
        for line in f2("undelete", image_of("phone"), "IMG_20240301_082121_3.jpg", "--json").text.splitlines()
    ]
    assert [(row["path"], row["grade"]) for row in rows] == [
        ("media/0/DCIM/Camera/IMG_20240301_082121_3.jpg", "certain")
    ]
    assert rows[0]["also_known_as"] == ["media/0/.Trash-1000/IMG_20240301_082121_3.jpg"]


@pytest.mark.parametrize("name", ["history-b", "history-c-small", "history-d", "phone", "phone-discard"])
def test_no_file_is_given_the_name_of_another_one_with_its_number(name: str) -> None:
    truth = load(CASES / name / "recoverable.json.gz")
    had: dict[tuple[int, str], set[int | None]] = defaultdict(set)
    for entry in truth["deleted"]:
        had[entry["ino"], entry["path"]].add(entry["gen"])
        for version in entry.get("versions") or []:
            for path in version["paths"]:
                had[entry["ino"], path].add(entry["gen"])
    for entry in truth["changed"]:
        for version in entry["older_versions"]:
            for path in version["paths"]:
                had[entry["ino"], path].add(None)  # of the file that lives
    given = 0
    with f2tools.open(image_of(name)) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        for (directory, base, ino), life in run.renames.entries.items():
            path = run.names.path_of(directory, base, life.first.age, ino).decode()
            if (ino, path) in had:
                given += 1
                assert had[ino, path] & {life.generation, None}, path
    assert given or name in ("history-d",)


def test_reasons_stand_below_what_is_not_certain() -> None:
    text = f2("undelete", image_of("history-c-small")).text.splitlines()
    for before, line in zip(text, [*text[1:], ""], strict=True):
        if before.startswith(("probable ", "partial ", "name only ")):
            grade = before[:9].strip()
            assert line.strip().startswith((f"{grade}: ", "also known as", "linked as")), line


def lines_run(image: Path) -> int:
    """How many lines of Python it takes to find whose the names of a volume are."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != renames.__file__:
            return None
        count += event == "line"
        return trace

    with f2tools.open(image) as volume, open_index(volume) as index:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            assert not Undelete(volume, index).renames.others
        finally:
            sys.settrace(before)
    return count


def test_an_inode_of_many_names_takes_as_many_steps_as_it_has_names(tmp_path: Path) -> None:
    run = []
    for links in (100, 400):
        image = fresh(tmp_path, name=str(links))
        with writable(image) as volume:
            ino = volume.create(ROOT, b"base", 0o100644)
            for number in range(links):
                volume.link(ino, ROOT, b"link%d" % number)
        run.append(lines_run(image))
    assert run[1] < 5 * run[0]
