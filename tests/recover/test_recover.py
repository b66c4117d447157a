"""`f2tools recover`: the plan says what happens, applying it gives the kernel's tree, and it can be taken back."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.dump.manifest import manifest
from f2tools.errors import NoFreeSegment
from f2tools.f2fs.write.segment import SegmentManager
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.volume.test_recovery import EXTENT_FLAG_INLINE
from tests.fsck.test_newer import hit


def tree(path: Path) -> dict[str, Any]:
    with f2tools.open(path) as volume:
        return manifest(volume)["entries"]


def content(entries: dict[str, Any]) -> dict[str, Any]:
    """What is in the files and where; not the times, which a directory gets when a name comes back to it."""
    kept = {}
    for path, entry in entries.items():
        fields = {key: value for key, value in entry.items() if key not in ("mtime_ns", "ctime_ns")}
        fields["extents"] = [e for e in entry.get("extents", ()) if not e[3] & EXTENT_FLAG_INLINE]
        kept[path] = fields
    return kept


@pytest.mark.peer
@pytest.mark.parametrize("name", images.CRASH)
def test_applying_gives_what_the_kernel_made_of_it(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    plan = json.loads(f2("recover", case.path, "--plan", "--json").out)
    assert f2("recover", case.path, "--apply").code == 0
    assert content(tree(case.path)) == content(case.manifest("manifest-recovered")["entries"])
    judges.fsck_clean(case.path)
    after = json.loads(f2("recover", case.path, "--json").out)
    assert not after["needed"]
    assert not after["steps"]
    with f2tools.open(case.path) as volume:
        for file in plan["files"]:
            if file["replaced_by"] is not None:
                assert file["path"] is None, file
                continue
            found = volume.path(os.fsencode(file["path"]), follow=False).inode
            assert (found.ino, found.i_size) == (file["ino"], file["size_after"]), file


def test_where_no_segment_is_free_for_what_comes_back_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise NoFreeSegment

    case = images.reference("crash-several").copy(tmp_path)
    before = case.path.read_bytes()
    monkeypatch.setattr(SegmentManager, "_free_segment", full)
    for words in (("recover", case.path, "--apply"), ("mkdir", f"{case.path}:/new")):
        ended = f2(*words)
        assert ended.code
        assert "no segment is free" in ended.err + ended.text, ended.err
    assert case.path.read_bytes() == before


@pytest.mark.parametrize("name", ["crash-several", "crash-orphan", "crash-stress-2"])
def test_rolling_back_gives_the_checkpoint(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    assert f2("recover", case.path, "--rollback").code == 0
    assert content(tree(case.path)) == content(case.manifest("manifest-norecovery")["entries"])
    judges.fsck_clean(case.path)


def test_the_plan_and_a_rehearsal_write_nothing_and_undo_takes_it_back(tmp_path: Path) -> None:
    case = images.reference("crash-several").copy(tmp_path)
    before = case.path.read_bytes()
    assert f2("recover", case.path).code == 0
    assert f2("recover", case.path, "--apply", "--dry-run").code == 0
    assert case.path.read_bytes() == before
    assert f2("recover", case.path, "--apply", "--undo", tmp_path / "undo").code == 0
    assert case.path.read_bytes() != before
    assert f2("undo", tmp_path / "undo", case.path).code == 0
    assert case.path.read_bytes() == before


def test_what_only_the_checkpoint_after_it_finds_wrong_leaves_the_image_as_it_was(tmp_path: Path) -> None:
    case = images.reference("crash-overwrite").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        sit = int(volume.sit.blkaddrs[0]) * volume.geo.block_size
    with case.path.open("r+b") as file:
        file.seek(sit)
        file.write(bytes(4096))
    before = case.path.read_bytes()
    said = "the segment table has 0 node blocks, the checkpoint 19"
    late = "a block in use is not marked valid"
    for why, options in ((said, ()), (late, ("--force",)), (late, ("--force", "--undo", tmp_path / "undo"))):
        result = f2("recover", case.path, "--apply", *options)
        assert result.code == 1
        assert why in result.err
        assert case.path.read_bytes() == before


def test_only_the_first_nodes(tmp_path: Path) -> None:
    case = images.reference("crash-several").copy(tmp_path)
    whole = json.loads(f2("recover", case.path, "--json").out)
    part = json.loads(f2("recover", case.path, "--json", "--until", "2").out)
    assert [step["blkaddr"] for step in part["steps"]] == [step["blkaddr"] for step in whole["steps"]][:2]
    assert f2("recover", case.path, "--apply", "--until", "2").code == 0
    old, new = case.manifest("manifest-norecovery")["entries"], case.manifest("manifest-recovered")["entries"]
    done = {file["path"].lstrip("/") for file in part["files"]}
    ours = content(tree(case.path))
    for path in ours:
        assert ours[path]["size"] == (new if path in done else old)[path]["size"], path


def test_a_clean_volume_is_left_alone(tmp_path: Path) -> None:
    case = images.reference("base").copy(tmp_path)
    before = case.path.read_bytes()
    result = f2("recover", case.path, "--apply")
    assert result.code == 0
    assert b"nothing to recover" in result.out
    assert case.path.read_bytes() == before


@pytest.mark.parametrize("command", ["recover", "cp", "edit", "clean"])
def test_a_volume_that_is_cut_off_is_not_written(command: str, tmp_path: Path) -> None:
    case = images.reference("crash-several").copy(tmp_path)
    os.truncate(case.path, case.path.stat().st_size - (1 << 20))
    before = case.path.read_bytes()
    arguments = {
        "recover": (case.path, "--apply"),
        "cp": (tmp_path / "source", f"{case.path}:/x"),
        "edit": (case.path, "-c", "mkdir /x"),
        "clean": (case.path,),
    }[command]
    (tmp_path / "source").write_bytes(b"x")
    result = f2(command, *arguments)
    assert result.code == 8
    assert "cut off" in result.err
    assert case.path.read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [("--apply", "--rollback"), ("--dry-run",), ("--undo", "x"), ("--rollback", "--until", "1"),
     ("--force",)],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(options: tuple[str, ...]) -> None:
    assert f2("recover", images.reference("crash-several").path, *options).code == 2


def test_the_log_after_the_checkpoint_as_a_picture(tmp_path: Path) -> None:
    case = images.reference("crash-several")
    drawn = ("--svg", tmp_path / "log.svg", "--png", tmp_path / "log.png")
    assert f2("recover", case.path, *drawn).code == 0
    text = "".join(ElementTree.parse(tmp_path / "log.svg").getroot().itertext())
    assert "f5" in text
    assert "not written after this checkpoint" in text
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")
    assert f2("recover", images.reference("base").path, *drawn).code == 0
    assert f2("recover", case.path, "--svg", tmp_path / "nowhere" / "x.svg").code == 8


@pytest.mark.parametrize("option", ["--apply", "--rollback"])
def test_what_the_lost_journals_of_a_checkpoint_had_is_not_given_up_unasked(option: str, tmp_path: Path) -> None:
    case = images.reference("crash-stress-2").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        at = volume.pack.sum_blkaddr * volume.geo.block_size
    with case.path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(4096))
    before = case.path.read_bytes()
    for words in (("dump", "ls", case.path, "/"), ("touch", "--dry-run", f"{case.path}:/new")):
        assert "are lost, or its tables older than its log, and files may be as an earlier" in f2(*words).err
    said = f2("recover", option, case.path)
    assert said.code == 1
    assert "the journals of the checkpoint are lost" in said.err
    assert case.path.read_bytes() == before
    assert f2("recover", option, "--force", case.path).code == 0


@pytest.mark.parametrize("option", ["--apply", "--rollback"])
def test_a_newer_state_behind_a_checkpoint_that_was_hit_is_not_given_up_unasked(option: str, tmp_path: Path) -> None:
    image = hit("crash-several", "tail", tmp_path)
    before = image.read_bytes()
    said = f2("recover", option, image)
    assert said.code == 1
    assert "a newer state lies behind this checkpoint, which was hit: " in said.err
    assert image.read_bytes() == before
    assert f2("recover", option, "--force", image).code == 0
    assert image.read_bytes() != before
