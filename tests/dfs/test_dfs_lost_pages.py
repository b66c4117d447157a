"""The layer below has lost a page and can't tell what it held: everything that reads the volume says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from f2tools.dfs.mkfs import make_image
from f2tools.dfs.write import open_for_writing
from f2tools.errors import Corrupt
from tests.dfs.test_dfs_cli import opened
from tests.dump.craft import f2

NAMES = (b"a", b"b", b"c")
CONTENT = bytes(range(256)) * 16  # one page


def not_closed(directory: Path, *, lost: bool = False) -> Path:
    """An image with three files that were fsync'ed, and a crash; the page with the content of `b` is lost."""
    image = directory / "card.dfs"
    make_image(str(image), 4 << 20)
    volume = open_for_writing(opened(image))
    for name in NAMES:
        volume.fsync(volume.create(1, name, 0o644))
    for name in NAMES:
        ino = volume.at_path(name).ino
        volume.write(ino, 0, CONTENT)
        volume.fsync(ino)
    base = volume.at_path(b"b").base
    volume.abandon()
    layer = opened(image)
    [(_, _, address)] = layer.map.lookup(base, 8)
    medium = layer.medium
    layer.abandon()
    stride = medium.page_size + medium.spare_size
    if lost:
        with image.open("r+b") as file:
            file.seek(4096 + address // 8 * stride)
            file.write(b"\xa5" * stride)
    return image


def test_a_crash_alone_is_no_damage_and_nobody_warns(tmp_path: Path) -> None:
    image = not_closed(tmp_path)
    for words in (["fsck"], ["dump", "ls"], ["dump", "extract", "-o", tmp_path / "out"], ["dump", "manifest"]):
        done = f2("dfs", *words[:2], image, *words[2:]) if words[0] == "dump" else f2("dfs", *words, image)
        assert (done.code, done.err) == (0, ""), words


def test_fsck_tells_of_a_lost_page_and_of_the_file_that_has_holes(tmp_path: Path) -> None:
    image = not_closed(tmp_path, lost=True)
    done = f2("dfs", "fsck", image)
    assert (done.code, "DFS043" in done.text) == (4, True)
    assert "DFS044: inode 3: 8 blocks of the file are empty" in done.text
    assert "-y can't bring back" in done.text
    assert json.loads(f2("dfs", "fsck", "--json", image).text)["lost_pages"] == 1
    assert "1 pages of the storage layer" in f2("dfs", "dump", "info", image).text


@pytest.mark.parametrize(
    "words", [["ls"], ["stat", "/a"], ["cat", "/a"], ["extract", "-o", "out"], ["tar", "-o", "out.tar"], ["manifest"]]
)
def test_what_is_copied_out_counts_as_incomplete(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    image = not_closed(tmp_path, lost=True)
    monkeypatch.chdir(tmp_path)
    done = f2("dfs", "dump", words[0], image, *words[1:])
    assert (done.code, "content may be missing or older" in done.err) == (1, True)


def test_nothing_is_written_to_it_before_a_repair(tmp_path: Path) -> None:
    image = not_closed(tmp_path, lost=True)
    layer = opened(image)
    with pytest.raises(Corrupt, match="content may be missing or older"):
        open_for_writing(layer)
    layer.abandon()
    done = f2("dfs", "recover", image)
    assert "not to be recovered as it is" in done.text


def test_a_repair_gives_up_what_is_lost_and_says_which_file_it_may_be_of(tmp_path: Path) -> None:
    image = not_closed(tmp_path, lost=True)
    done = f2("dfs", "fsck", "-y", image)
    assert done.code == 1
    assert "lost: what 1 pages of the storage layer held" in done.text
    assert "lost: content of inode 3, if 8 blocks that are empty had some" in done.text
    assert f2("dfs", "fsck", image).code == 0
    assert f2("vsl", "check", image).code == 0
    assert f2("dfs", "dump", "cat", image, "/a").out == CONTENT
    with open_for_writing(opened(image)) as volume:
        volume.create(1, b"new", 0o644)
