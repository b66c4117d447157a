"""After a crash every reader says that files were fsync'ed since the checkpoint, and how to see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

import f2tools
from tests import images
from tests.command_lines import READING, filled, named
from tests.dump.craft import f2
from tests.images import reference

NOTE = "fsync'ed after the last checkpoint"
# they show superblocks and packs, not files; or need an index of an earlier line; recover says it at length, and a copy
# of the metadata has what was fsync'ed in it
ELSEWHERE = (
    "dump superblock", "dump checkpoint", "dump layout", "history", "label", "tune", "report", "recover",
    "trace events", "trace analyze", "trace compare", "trace export", "dump metadata",
)  # fmt: skip
LINES = [line for line in READING if named(line) not in ELSEWHERE and "--salvage" not in line]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume that a mount was killed on: unmounted once, written and fsync'ed since, without a checkpoint."""
    image = tmp_path_factory.mktemp("killed") / "card.img"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    with f2tools.open(image, write=True) as volume:
        ino = volume.create(3, b"before", 0o100644)
        volume.write(ino, 0, b"before")
    volume = f2tools.open(image, write=True)
    ino = volume.create(3, b"letter.txt", 0o100644)
    volume.write(ino, 0, b"fsynced" * 1000)
    volume.fsync(ino)
    volume.device.close()
    return image


@pytest.mark.parametrize("line", LINES)
def test_every_reader_says_what_it_does_not_show(line: str, killed: Path, tmp_path: Path) -> None:
    before = killed.read_bytes()
    done = f2(*filled(line.replace("/a/b", "/before"), i=str(killed), d=str(tmp_path)))
    assert done.code in (0, 4), done
    notes = [text for text in done.err.splitlines() if NOTE in text]
    assert len(notes) == 1, done.err
    assert notes[0].startswith("f2tools: note: 1 file was fsync'ed")
    assert "--recovered" in notes[0]
    assert f"`f2tools recover --apply {killed}`" in notes[0]
    assert killed.read_bytes() == before


@pytest.mark.parametrize("command", [("dump", "ls"), ("doctor",)], ids=" ".join)
def test_of_an_image_that_is_not_written_to_a_copy_is_to_be_recovered(
    command: tuple[str, ...], killed: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "card.img.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(killed.read_bytes()))
    (note,) = [text for text in f2(*command, packed).err.splitlines() if NOTE in text]
    assert f"recover --apply {packed}" not in note
    assert (
        f"is not written to: `zstd -d {packed} -o COPY` makes a raw copy, in which `f2tools recover --apply COPY`"
        in note
    )


def test_a_copy_out_of_such_an_image_says_so(killed: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.img"
    assert f2("mkfs", "-q", target, "--size", "64M").code == 0
    done = f2("cp", "-a", f"{killed}:/.", f"{target}:/")
    assert done.code == 0
    assert NOTE in done.err


def test_who_looks_at_the_recovered_state_is_told_nothing(killed: Path) -> None:
    done = f2("dump", "ls", "--recovered", killed)
    assert done.text == "before\nletter.txt\n"
    assert done.err == ""


def test_a_volume_that_a_mount_was_killed_on_is_not_unmounted_cleanly(killed: Path) -> None:
    with f2tools.open(killed) as volume:
        assert volume.clean, "an unmount made the checkpoint"
    state = json.loads(f2("dump", "info", "--json", killed).text)["state"]
    assert state["clean"] is False
    assert state["fsynced_files"] == 1
    assert state["fsynced_nodes"] >= 1
    assert "not unmounted" in f2("dump", "info", killed).text
    assert "R001" in f2("fsck", killed).text


def test_a_file_that_was_fsynced_is_not_called_deleted(killed: Path) -> None:
    done = f2("undelete", killed)
    assert "letter.txt" not in done.text
    assert NOTE in done.err


@pytest.mark.parametrize("name", images.CRASH)
def test_the_count_is_that_of_recover(name: str) -> None:
    image = reference(name)
    more = [word for path in image.extra for word in ("--device", path)]
    plan = json.loads(f2("recover", "--json", image.path, *more).text)
    state = json.loads((done := f2("dump", "info", "--json", image.path, *more)).text)["state"]
    assert state["fsynced_files"] == len(plan["files"])
    assert (NOTE in done.err) == bool(plan["files"])


@pytest.mark.parametrize("name", ["plain", "fragmented", "history-a"])
def test_nothing_is_said_of_a_volume_that_was_unmounted(name: str) -> None:
    for words in (("dump", "ls"), ("fsck",), ("undelete",)):
        assert NOTE not in f2(*words, reference(name).path).err
