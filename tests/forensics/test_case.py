"""A case: several images, one page over them, a chain of custody that shows what was changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.errors import Corrupt
from f2tools.forensics.case import add
from tests.dump.craft import f2


def volume(path: Path, names: tuple[str, ...]) -> Path:
    """A small volume on which files with these names were deleted."""
    assert f2("mkfs", "-q", path, "--size", "64M").code == 0
    with f2tools.open(path, write=True) as writer:
        root = writer.root.inode.ino
        for name in names:
            writer.write(writer.create(root, name.encode(), 0o644), 0, name.encode() * 3000)
        writer.sync()
        for name in names:
            writer.unlink(root, name.encode())
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two images and a case on them."""
    directory = tmp_path_factory.mktemp("case")
    one, two = volume(directory / "one.img", ("both", "mine")), volume(directory / "two.img", ("both", "<b>theirs"))
    assert f2("report", one, two, "-o", directory / "case", "--note", "two cards").code == 0
    return directory


@pytest.fixture
def case(made: Path, tmp_path: Path) -> Path:
    """A copy of the case, to be changed."""
    shutil.copytree(made / "case", tmp_path / "case")
    return tmp_path / "case"


def custody(case: Path) -> list[dict[str, Any]]:
    return json.loads((case / "case.json").read_text())["custody"]


def test_a_case_has_a_report_on_each_image_and_a_page_over_them(made: Path) -> None:
    case = made / "case"
    first, second = custody(case)
    for entry, name in ((first, "one.img"), (second, "two.img")):
        assert entry["image"] == str(made / name)
        assert entry["content"]["sha256"] == hashlib.sha256((made / name).read_bytes()).hexdigest()
        assert entry["tool"] == f"f2tools {f2tools.__version__}"
        assert entry["note"] == "two cards"
        report = case / name / "report.json"
        assert entry["report_sha256"] == hashlib.sha256(report.read_bytes()).hexdigest()
        assert (case / name / "report.html").is_file()
    page = (case / "index.html").read_text()
    assert "Case of 2 images" in page
    assert "one.img: /both; two.img: /both" in page
    assert "<b>" not in page


def again(made: Path, name: str = "one.img") -> dict[str, Any]:
    """The report on an image, as another examination would make it."""
    return json.loads((made / "case" / name / "report.json").read_text())


def test_an_image_that_is_examined_again_is_compared_and_nothing_is_written_over(made: Path, case: Path) -> None:
    before = {path: path.read_bytes() for path in case.glob("*/report.*")}
    add(str(case), [again(made)], ["report", "one.img"])
    assert (custody(case)[-1]["unchanged"], custody(case)[-1]["arguments"]) == (True, ["report", "one.img"])
    report = again(made)
    report["images"][0]["path"] += ".copy"
    add(str(case), [report], [])
    assert custody(case)[-1]["unchanged"] is None  # another path
    report["images"][0]["content"]["sha256"] = "0" * 64
    add(str(case), [report], [])
    assert custody(case)[-1]["unchanged"] is False
    assert "was another one" in (case / "index.html").read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in case.iterdir() if path.is_dir()) == [
        "one.img", "one.img-2", "one.img.copy", "one.img.copy-2", "two.img"
    ]  # fmt: skip


def test_a_chain_that_was_changed_is_not_added_to(made: Path, case: Path) -> None:
    found = json.loads((case / "case.json").read_text())
    found["custody"][0]["note"] = "nobody saw that"
    (case / "case.json").write_text(json.dumps(found))
    with pytest.raises(Corrupt, match="entry 2 of the custody does not follow"):
        add(str(case), [again(made)], [])
    assert not (case / "one.img-2").exists()


FORGED: dict[str, dict[str, Any]] = {  # what is changed in the only entry
    "hashes that are none": {"content": 7},
    "files that are none": {"files": [7]},
    "arguments that are none": {"arguments": None},
    "a verdict that there is not": {"unchanged": "perhaps"},
}


@pytest.mark.parametrize("how", FORGED)
def test_a_case_that_no_page_can_be_made_of_is_refused(how: str, made: Path, case: Path) -> None:
    found = json.loads((case / "case.json").read_text())
    found["custody"] = [found["custody"][0] | FORGED[how]]
    (case / "case.json").write_text(json.dumps(found))
    with pytest.raises(Corrupt, match="is no case"):
        add(str(case), [again(made)], [])
    assert not (case / "one.img-2").exists()


def test_an_entry_of_a_case_that_lacks_all_is_refused(made: Path, case: Path) -> None:
    (case / "case.json").write_text('{"custody": [{"previous": null}]}')
    with pytest.raises(Corrupt, match="is no case"):
        add(str(case), [again(made)], [])


def test_a_case_or_a_report_nested_without_end_is_refused(made: Path, case: Path) -> None:
    found = json.loads((case / "case.json").read_text())
    report = case / found["custody"][1]["report"] / "report.json"
    report.write_text("[" * 100_000)
    found["custody"][1]["report_sha256"] = hashlib.sha256(report.read_bytes()).hexdigest()
    (case / "case.json").write_text(json.dumps(found))
    add(str(case), [again(made)], [])
    assert "the report was changed or is gone" in (case / "index.html").read_text()
    report.write_text("{}")
    found["custody"][1]["report_sha256"] = hashlib.sha256(report.read_bytes()).hexdigest()
    for text in (json.dumps(found), "[" * 100_000):
        (case / "case.json").write_text(text)
        with pytest.raises(Corrupt, match="is no case"):
            add(str(case), [again(made)], [])


def test_a_report_that_was_changed_is_named(made: Path, case: Path) -> None:
    report = case / "two.img" / "report.json"
    report.write_text(report.read_text().replace("both", "BOTH"))
    add(str(case), [again(made)], [])
    assert "the report was changed or is gone" in (case / "index.html").read_text()


def test_a_note_or_an_index_of_several_images_is_refused(made: Path, tmp_path: Path) -> None:
    assert f2("report", made / "one.img", "-o", tmp_path / "r", "--note", "x").code == 2
    assert f2("report", made / "one.img", made / "two.img", "--index", "x", "-o", tmp_path / "r").code == 2
    assert not (tmp_path / "r").exists()
