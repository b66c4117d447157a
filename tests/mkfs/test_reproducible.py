"""The same options and SOURCE_DATE_EPOCH give the same bytes, whoever formats, where and when."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from pathlib import Path

import pytest

from tests.mkfs.tools import checkpoint, f2mkfs, superblock

OPTIONS = ("-O", "extra_attr,inode_checksum,quota,sb_checksum,lost_found", "-l", "same", "--size", "64M")


def digest(image: Path) -> str:
    return hashlib.sha256(image.read_bytes()).hexdigest()


def test_source_date_epoch_makes_the_same_bytes_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first, second = tmp_path / "one", tmp_path / "folder/with another name"
    second.parent.mkdir()
    f2mkfs("-q", first, *OPTIONS)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(os, "getgid", lambda: 4712)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    f2mkfs("-q", second, *OPTIONS)
    assert digest(first) == digest(second)


def test_an_existing_image_gets_the_same_bytes_as_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first, second = tmp_path / "one", tmp_path / "two"
    f2mkfs("-q", first, *OPTIONS)
    second.write_bytes(os.urandom(1 << 20) * 64)
    f2mkfs("-q", "-f", second, *OPTIONS[:-2])
    assert digest(first) == digest(second)


def test_another_epoch_label_or_size_makes_another_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[bytes] = set()
    for number, (epoch, more) in enumerate((("1", ()), ("2", ()), ("1", ("-l", "x")), ("1", ("--size", "65M")))):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        image = tmp_path / str(number)
        f2mkfs("-q", image, *(more if "--size" in more else ("--size", "64M", *more)))
        uuid = superblock(image).uuid
        assert uuid[6] >> 4 == 8
        assert uuid[8] >> 6 == 2
        made.add(uuid)
    assert len(made) == 4


def test_the_epoch_is_the_time_of_the_first_files_unless_one_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234567890")
    for name, more, expected in (("a", (), 1234567890), ("b", ("-T", 42), 42)):
        f2mkfs("-q", tmp_path / name, "--size", "64M", *more)
        assert root_inode(tmp_path / name)[32:40] == expected.to_bytes(8, "little")


def test_without_either_uuid_and_checkpoint_version_are_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    images = [tmp_path / str(number) for number in range(3)]
    for image in images:
        f2mkfs("-q", image, "--size", "64M")
    assert len({superblock(image).uuid for image in images}) == 3
    assert len({checkpoint(image).checkpoint_ver for image in images}) > 1
    assert all(superblock(image).uuid[6] >> 4 == 4 for image in images)
    assert all(0 < checkpoint(image).checkpoint_ver < 1 << 31 for image in images)


def root_inode(image: Path) -> bytes:
    sb, cp = superblock(image), checkpoint(image)
    with image.open("rb") as f:
        f.seek((sb.main_blkaddr + int(cp.cur_node_segno[0]) * 512) * 4096)
        return f.read(4096)


def test_a_file_that_the_kernel_copies_is_the_same_as_one_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    source = tmp_path / "source"
    source.mkdir()
    with (source / "large").open("wb") as file:
        file.write(random.Random(1).randbytes((3 << 20) + 100))
        file.seek(9 << 20)
        file.write(random.Random(2).randbytes((2 << 20) + 4097))
    copies, sent = os.sendfile, []

    def counting(*words: int) -> int:
        sent.append(copies(*words))
        return sent[-1]

    def refusing(*words: int) -> int:
        raise OSError(errno.EINVAL, "can't copy between these")

    def ending_early(out: int, file: int, offset: int, count: int) -> int:
        return copies(out, file, offset, min(count, 5000)) if offset % 4096 == 0 else 0

    made: set[str] = set()
    for number, way in enumerate((counting, refusing, ending_early)):
        monkeypatch.setattr(os, "sendfile", way)
        image = tmp_path / str(number)
        image.write_bytes(b"\xa5" * (64 << 20))
        f2mkfs("-q", "-f", image, "--from", source)
        made.add(digest(image))
    assert sum(sent) >= 4 << 20
    assert len(made) == 1
