"""What a check takes is what it says that it needs."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from f2tools.fsck.check import check
from f2tools.fsck.checks import sit, summary
from f2tools.fsck.facts import addresses, arrays, dentries, inodes, nodes, sound
from f2tools.fsck.facts.image import open_image
from f2tools.fsck.facts.owners import BYTES_PER_SEGMENT
from f2tools.fsck.facts.scan import needed_bytes
from tests.dump.craft import f2
from tests.native.test_core import in_python

FEW, MANY = 16_000, 24_000  # so many that what is known of them is more than what a pass reads into
PER_DIRECTORY = 200


def volume(path: Path, count: int, size: int) -> Path:
    """An image with so many files of one size, and a directory for each PER_DIRECTORY of them."""
    made, content = io.BytesIO(), bytes(range(1, 252)) * (size // 251 + 1)
    with tarfile.open(fileobj=made, mode="w") as tar:
        for number in range(count):
            member = tarfile.TarInfo(f"directory-{number // PER_DIRECTORY:04}/file-{number:06}.text")
            member.size = size
            tar.addfile(member, io.BytesIO(content[:size]))
    (path / "tar").write_bytes(made.getvalue())
    image = path / f"{count}.img"
    done = f2("mkfs", image, "--size", "auto", "--from", path / "tar")
    assert done.code == 0, done.err
    (path / "tar").unlink()
    return image


def taken(image: Path) -> tuple[int, int, int]:
    """(peak of bytes in arrays and objects while it is checked, what is said to be needed, files)."""
    tracemalloc.start()
    try:
        with closing(open_image(image)) as opened:
            report = check(opened)
            segments = int(np.count_nonzero(opened.sit.vblocks))
        assert report.sound
        said = needed_bytes(report.nodes, report.inodes) + segments * BYTES_PER_SEGMENT
        return tracemalloc.get_traced_memory()[1], said, report.inodes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [900, 9_000])
def test_each_file_takes_what_is_said_of_it(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, small in ((nodes, "BATCH_BYTES", 64 << 12), (sit, "STEP", 16), (summary, "STEP", 16)):
        monkeypatch.setattr(module, name, small)  # so that what all files share is small beside what each takes
    few, many = volume(tmp_path, FEW, size), volume(tmp_path, MANY, size)

    def each() -> tuple[float, float]:
        (first, said_first, fewer), (second, said_second, more) = taken(few), taken(many)
        return (second - first) / (more - fewer), (said_second - said_first) / (more - fewer)

    found, said = each()
    assert 0.8 * said < found <= said
    with in_python(addresses, arrays, dentries, inodes, nodes, sound):
        found, said = each()
        assert found <= said
