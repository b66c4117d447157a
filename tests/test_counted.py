"""What is counted has the right number: `1 file`, `2 files`."""

from __future__ import annotations

import re
from pathlib import Path

from f2tools.text import counted
from tests.dump.craft import f2

ONE_OF_MANY = re.compile(r"(?<![\d.,#x])1 (?!of )(?:[a-z-]+ )?(?:\w+s)\b")
SINGULAR = {"1 inode was", "1 file has"}


def test_one_is_one_and_many_are_many() -> None:
    assert counted(1, "file") == "1 file"
    assert counted(0, "file") == "0 files"
    assert counted(12345, "directory", "directories") == "12,345 directories"


def test_of_a_volume_with_one_of_everything_nothing_is_told_in_the_plural(tmp_path: Path) -> None:
    tree, image = tmp_path / "tree", tmp_path / "image"
    tree.mkdir()
    (tree / "file").write_bytes(b"content")
    (tree / "link").symlink_to("file")
    said: list[str] = []
    for words in (
        ["mkfs", image, "--size", "64M", "--from", tree], ["info", image], ["doctor", image], ["fsck", image],
        ["cp", "-v", f"{image}:/file", tmp_path / "copy"], ["dump", "extract", image, "-o", tmp_path / "out"],
        ["dump", "verify", image], ["dump", "tree", image], ["undelete", image], ["rm", f"{image}:/file"],
        ["fsck", "--salvage", tmp_path / "salvaged", image], ["defrag", image], ["clean", image], ["doctor", image],
        ["mkdir", f"{image}:/only"], ["chmod", "600", f"{image}:/only"], ["fsck", "-y", image],
    ):  # fmt: skip
        done = f2(*words)
        said += [f"{words[0]}: {line}" for line in (done.text + done.err).splitlines()]
    assert [line for line in said if (hit := ONE_OF_MANY.search(line)) and hit[0] not in SINGULAR] == []
