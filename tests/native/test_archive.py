"""Archives whose small files are written together: the same bytes as one by one, with the compiled core and without."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import f2tools
from f2tools import native
from f2tools.dump import tar, tar_together
from f2tools.dump.tar_together import SMALL_FILE, Small
from f2tools.f2fs.volume.inode import Inode
from tests import images
from tests.native.test_core import in_python

core = native.core
assert core is not None

SECONDS = st.integers(0, 8**11 - 1)
NS = st.one_of(st.sampled_from([0, 1, 500_000_000, 999_999_999]), st.integers(0, 999_999_999))
OWNER = st.sampled_from([0, 7, 1000, 65534, 8**7 - 1])
FILE = st.fixed_dictionaries(
    {
        "i_mode": st.integers(0, 0o7777).map(lambda mode: mode | 0o100000),
        "i_uid": OWNER,
        "i_gid": OWNER,
        "i_mtime": SECONDS,
        "i_atime": SECONDS,
        "i_ctime": SECONDS,
        "i_mtime_nsec": NS,
        "i_atime_nsec": NS,
        "i_ctime_nsec": NS,
    }
)
PART = st.binary(min_size=1, max_size=90).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_"))
NAME = st.lists(PART, min_size=1, max_size=3).map(lambda parts: b"/".join(parts)[:100].rstrip(b"/"))
SIZE = st.one_of(st.sampled_from([0, 1, 511, 512, 513, 3488, 4096, 4097, 8192]), st.integers(0, 9000))


@contextmanager
def one_by_one() -> Iterator[None]:
    """Archives without small files together: each by itself, as the others are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar, "small", lambda *_: None)
        yield


def written(path: Path, extra: tuple[Path, ...] = ()) -> tuple[bytes, object]:
    out = io.BytesIO()
    with f2tools.open(path, extra) as volume:
        report = tar.write_tar(volume, out)
    return out.getvalue(), report


@pytest.fixture(scope="module")
def volume() -> Iterator[f2tools.Volume]:
    with f2tools.open(images.reference("plain").path) as opened:
        yield opened


@given(st.lists(st.tuples(NAME, FILE, SIZE, st.booleans()), max_size=6))
def test_entries_have_the_headers_that_python_writes(volume: f2tools.Volume, wanted: list) -> None:
    size = volume.geo.block_size
    files, blocks = [], []
    for number, (name, fields, length, inline) in enumerate(wanted):
        inode = Inode(volume.geo, np.zeros(size, np.uint8), 10 + number, 5000)
        vars(inode).update(fields, i_size=length)
        content = np.random.default_rng(number).integers(0, 256, length, np.uint8).tobytes()
        count = 0 if inline else -(-length // size)
        blocks.append(content.ljust(count * size, b"\xff") if count else b"")
        files.append(Small(b"/" + name, name, inode, content if inline else None, tuple(range(count))))
    read = np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, size)
    found = bytes(tar_together.entries_together(files, read, size))
    out = io.BytesIO()
    writer = tar._Writer(volume, out, lambda count: None)
    first = 0
    for file in files:
        content = tar_together.content_of(file, read, first)
        first += len(file.blkaddrs)
        writer._header(file.name, file.inode, b"0", size=len(content), content=content)
    assert found == out.getvalue()


@pytest.mark.parametrize(
    "name", ["plain", "features", "noinline", "blocks16k", "compress-lz4", "multi-device", "fscrypt", "full"]
)
def test_an_archive_is_the_same_together_and_one_by_one(name: str) -> None:
    case = images.reference(name)
    found, report = written(case.path, case.extra)
    with one_by_one():
        expected = written(case.path, case.extra)
    assert (found, report) == expected
    with in_python(tar):
        assert written(case.path, case.extra) == expected


def test_of_an_image_that_was_cut_off_the_same_is_missing(tmp_path: Path) -> None:
    case = images.reference("noinline").copy(tmp_path)
    with f2tools.open(case.path) as opened:
        half = opened.geo.main_blkaddr + 600
    with case.path.open("r+b") as file:
        file.truncate(half * 4096)
    found = written(case.path)
    with one_by_one():
        expected = written(case.path)
    assert found == expected
    assert not expected[1].complete


def row(**changed: int) -> bytes:
    fields = dict.fromkeys(
        ("mode", "uid", "gid", "size", "mtime", "mtime_ns", "atime", "atime_ns", "ctime", "ctime_ns"), 0
    )
    return SMALL_FILE.pack(*({**fields, "length": 1, "at": 0, **changed}).values())


@pytest.mark.parametrize(
    ("names", "files", "inline", "blocks", "room"),
    [
        (b"", row(), b"", b"", 1536),
        (b"xy", row(), b"", b"", 1536),
        (b"x", row()[:-1], b"", b"", 1536),
        (b"x", row(), b"", b"", 1535),
        (b"x", row(), b"", b"", 1537),
        (b"x", row(size=1), b"y", b"", 2048),
        (b"x", row(size=1, at=-1), b"", b"y", 2048),
        (b"x", row(size=1, at=1), b"", b"y", 2048),
        (b"x", row(size=1, at=-(2**63)), b"y", b"y", 2048),
        (b"x", row(size=2**62), b"y", b"y", 2048),
        (b"x", row(size=-1), b"y", b"y", 1536),
        (b"x", row(length=0), b"", b"", 1536),
        (b"x" * 101, row(length=101), b"", b"", 1536),
        *((b"x", row(**{name: value}), b"", b"", 1536) for name, value in [
            ("mode", 0o10000), ("uid", 8**7), ("gid", -1), ("mtime", 8**11), ("atime", -1), ("ctime_ns", 10**9),
        ]),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_refused(names: bytes, files: bytes, inline: bytes, blocks: bytes, room: int) -> None:
    assert core is not None
    core.tar_files(b"x", row(size=1), b"", b"y", bytearray(2048))
    with pytest.raises(ValueError, match="not what the files say"):
        core.tar_files(names, files, inline, blocks, bytearray(room))
