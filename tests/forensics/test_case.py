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
from f2tools.forensics.case import _digest, add
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
    with pytest.raises(Corrupt, match="entry 1 of the custody was changed"):
        add(str(case), [again(made)], [])
    found["custody"][0]["digest"] = _digest(found["custody"][0])
    (case / "case.json").write_text(json.dumps(found))
    with pytest.raises(Corrupt, match="entry 2 of the custody does not follow"):
        add(str(case), [again(made)], [])
    assert not (case / "one.img-2").exists()


def test_the_last_entry_shows_that_it_was_changed(made: Path, case: Path) -> None:
    found = json.loads((case / "case.json").read_text())
    found["custody"][-1]["user"] = "somebody else"
    (case / "case.json").write_text(json.dumps(found))
    done = f2("report", made / "one.img", "--no-hashes", "-o", case)
    assert done.code == 1
    assert "entry 2 of the custody was changed: its hash is not its own" in done.err
    assert not (case / "one.img-2").exists()


def test_the_hash_of_the_last_entry_shows_that_the_end_was_cut_off(made: Path, case: Path) -> None:
    done = f2("report", made / "one.img", "--no-hashes", "-o", case)
    assert done.code == 0
    head = custody(case)[-1]["digest"]
    assert f"head of the custody, to be written down: {head}" in done.out.decode()
    assert head in (case / "index.html").read_text()
    assert f2("report", made / "two.img", "--no-hashes", "-o", case, "--head", head).code == 0
    assert f2("report", made / "two.img", "--no-hashes", "-o", case, "--head", head.upper()).code == 0
    found = json.loads((case / "case.json").read_text())
    (case / "case.json").write_text(json.dumps(found | {"custody": found["custody"][:2]}))
    done = f2("report", made / "two.img", "--no-hashes", "-o", case, "--head", head)
    assert done.code == 1
    assert "cut off or made anew" in done.err
    assert f2("report", made / "two.img", "-o", case.parent / "new", "--case", "--head", head).code == 2


def test_an_entry_of_an_older_version_is_read(made: Path, case: Path) -> None:
    found = json.loads((case / "case.json").read_text())
    old = found["custody"][0]
    for name in ("page_sha256", "digest", "uuid", "elsewhere"):
        del old[name]
    (case / "case.json").write_text(json.dumps(found | {"custody": [old]}))
    (case / "one.img/report.html").write_text("nobody kept a hash of it")
    added = add(str(case), [again(made)], [])
    assert added.problems == []
    assert custody(case)[1]["previous"] == hashlib.sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()


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
    found["custody"][0]["digest"] = _digest(found["custody"][0])
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
    found["custody"][1]["digest"] = _digest(found["custody"][1])
    (case / "case.json").write_text(json.dumps(found))
    add(str(case), [again(made)], [])
    assert "the report was changed or is gone" in (case / "index.html").read_text()
    report.write_text("{}")
    found["custody"][1]["report_sha256"] = hashlib.sha256(report.read_bytes()).hexdigest()
    found["custody"][1]["digest"] = _digest(found["custody"][1])
    for text in (json.dumps(found), "[" * 100_000):
        (case / "case.json").write_text(text)
        with pytest.raises(Corrupt, match="is no case"):
            add(str(case), [again(made)], [])


@pytest.mark.parametrize("name", ["report.json", "report.html"])
def test_a_report_or_a_page_that_was_changed_is_named(name: str, made: Path, case: Path) -> None:
    report = case / "two.img" / name
    report.write_text(report.read_text().replace("both", "BOTH"))
    done = f2("report", made / "one.img", "--no-hashes", "--json", "-o", case)
    assert done.code == 1
    wanted = f"{report}: was changed since; it was written on {custody(case)[1]['time']}, entry 2 of the custody"
    assert wanted in done.err
    assert json.loads(done.out)["problems"] == [wanted]
    assert len(custody(case)) == 3
    assert wanted in (case / "index.html").read_text()


def test_an_earlier_report_that_is_gone_is_named(made: Path, case: Path) -> None:
    assert f2("report", made / "one.img", "--no-hashes", "-o", case).code == 0
    shutil.rmtree(case / "one.img")
    done = f2("report", made / "one.img", "--no-hashes", "-o", case)
    assert done.code == 1
    assert not (case / "one.img").exists()
    for name in ("report.json", "report.html"):
        assert f"{case / 'one.img' / name}: can't be read any more (No such file or directory)" in done.err


def test_an_image_that_is_another_one_than_before_is_said_to_be(made: Path, case: Path) -> None:
    report = again(made)
    report["images"][0]["content"]["sha256"] = "0" * 64
    (problem,) = add(str(case), [report], []).problems
    assert "was another one on" in problem


def test_evidence_that_moved_is_compared(made: Path, case: Path) -> None:
    report = again(made)
    there = report["images"][0]["path"]
    report["images"][0]["path"] = "/other/disk/one.img"
    assert add(str(case), [report], []).problems == []
    entry = custody(case)[-1]
    assert (entry["unchanged"], entry["elsewhere"]["image"], entry["elsewhere"]["unchanged"]) == (None, there, True)
    assert f"as before: {there}" in (case / "index.html").read_text()
    report["images"][0]["path"] = "/third/one.img"
    report["images"][0]["content"]["sha256"] = "0" * 64
    (problem,) = add(str(case), [report], []).problems
    assert problem.startswith("/third/one.img: holds the volume that was examined as /other/disk/one.img on")
    assert custody(case)[-1]["elsewhere"]["unchanged"] is False
    assert "/third/one.img: holds the volume" in (case / "index.html").read_text()


def test_a_note_or_an_index_of_several_images_is_refused(made: Path, tmp_path: Path) -> None:
    assert f2("report", made / "one.img", "-o", tmp_path / "r", "--note", "x").code == 2
    assert f2("report", made / "one.img", made / "two.img", "--index", "x", "-o", tmp_path / "r").code == 2
    assert not (tmp_path / "r").exists()
