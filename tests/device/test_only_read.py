"""What is said of damage in an image of a kind that is only read: how to make a copy that can be repaired."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dump.craft import f2
from tests.images import Reference


def in_pieces(image: Path, made: Path) -> Path:
    data = image.read_bytes()
    for number, start in enumerate(range(0, len(data), len(data) // 3), 1):
        made.with_suffix(f".{number:03}").write_bytes(data[start:][: len(data) // 3])
    return made.with_suffix(".001")


def packed(image: Path, made: Path) -> Path:
    subprocess.run(["zstd", "-q", image, "-o", made.with_suffix(".zst")], check=True)
    return made.with_suffix(".zst")


def sparse(image: Path, made: Path) -> Path:
    subprocess.run(["img2simg", image, made.with_suffix(".simg")], check=True)
    return made.with_suffix(".simg")


@pytest.mark.parametrize("make", [in_pieces, packed, sparse])
def test_following_the_advice_of_a_check_ends_with_a_sound_copy(
    make: Callable[[Path, Path], Path],
    damaged: Callable[[str], Reference],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    image = make(damaged("inode-nlink").path, Path("a card"))
    before = image.read_bytes()
    done = f2("fsck", image)
    assert done.code == 4
    advice = done.out.decode().partition("next: ")[2]
    assert " -y " not in advice
    (command,) = re.findall(r"to repair, `(.*)` makes a raw copy, then `f2tools fsck COPY`", advice)
    diagnosis = f2("doctor", image).out.decode()
    assert command in diagnosis
    assert " -y " not in diagnosis
    done = f2("fsck", "-y", image)
    assert (done.code, f"`{command}`" in done.err) == (8, True)
    subprocess.run(command, shell=True, check=True)
    assert f2("fsck", "-y", "COPY").code == 1
    assert f2("fsck", "COPY").code == 0
    assert image.read_bytes() == before
