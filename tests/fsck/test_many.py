"""Several images in one call, and what a check says to programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.fsck.many import check_many
from tests.dump.craft import f2
from tests.images import Reference, reference


@pytest.mark.parametrize("jobs", [1, 2])
def test_many_images_give_a_line_each_in_their_order(
    jobs: int, damaged: Callable[[str], Reference], tmp_path: Path
) -> None:
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    images = [reference("base").path, damaged("inode-nlink").path, tmp_path / "zeros", tmp_path / "none"]
    done = f2("fsck", *images, "--jobs", jobs)
    assert done.code == 4 | 8
    lines = done.out.decode().splitlines()
    assert len(lines) == len(images)
    for line, image, word in zip(lines, images, ("sound", "DAMAGED", "not an F2FS image", "No such file"), strict=True):
        assert str(image) in line
        assert word in line
    assert f2("fsck", images[0], images[0], "--jobs", jobs).code == 0
    assert [row.code for row in check_many([str(image) for image in images], jobs)] == [0, 4, 8, 8]


def test_the_summary_of_a_check_is_its_last_object(damaged: Callable[[str], Reference]) -> None:
    for image, sound in ((reference("base").path, True), (damaged("inode-nlink").path, False)):
        records = [json.loads(line) for line in f2("fsck", "--json", image).out.splitlines()]
        *findings, summary = records
        assert summary["record"] == "summary"
        assert summary["sound"] is sound
        assert summary["inodes"] > 1
        assert sum(summary["counts"].values()) == len(findings)
        assert all(record["record"] == "finding" for record in findings)


def test_many_images_are_not_repaired_in_one_call() -> None:
    image = reference("base").path
    assert f2("fsck", "-y", image, image).code == 16
    assert f2("fsck", "--only", "I", image, image).code == 16
