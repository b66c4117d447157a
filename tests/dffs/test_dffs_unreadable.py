"""A page of a file can't be read: all before and behind it is copied out, and what is missing is told in bytes."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path

import pytest

from f2tools.copyout.tree_extract import extract
from f2tools.dffs.nodes import File
from tests.dffs.volumes import SMALL, content, reading, volume
from tests.dump.craft import f2

CONTENT = random.Random(1).randbytes((3 << 20) + 700)
PAGES = {"dfs": 4096, "dffs": 2048}
LOST = 1 << 20  # byte of the file, where an unreadable page begins


def damaged(system: str, directory: Path) -> tuple[Path, int, int]:
    """An image with a file of which a page can't be read, and the bytes that are missing from it."""
    source, image = directory / "files", directory / "image"
    source.mkdir()
    (source / "large").write_bytes(CONTENT)
    (source / "small").write_bytes(b"small")
    assert f2(system, "mkfs", image, "--size", "8M", "--from", source).code == 0
    size = PAGES[system]
    raw = bytearray(image.read_bytes())
    at = raw.index(CONTENT[LOST : LOST + 512])
    start = LOST
    if system == "dfs":  # the page that holds this byte may hold others before it
        while raw[at - LOST + start - 512 : at - LOST + start] == CONTENT[start - 512 : start] and LOST - start < size:
            start -= 512
    at -= LOST - start
    raw[at : at + size + size // 32] = b"\xff" * (size + size // 32)
    image.write_bytes(bytes(raw))
    return image, start, size


@pytest.mark.parametrize("system", PAGES)
def test_a_page_that_can_not_be_read_costs_no_more_than_its_bytes(system: str, tmp_path: Path) -> None:
    image, start, length = damaged(system, tmp_path)
    done = f2(system, "dump", "extract", image, "-o", tmp_path / "out")
    assert done.code == 1
    assert f"only partly: {tmp_path}/out/large: " in done.err
    assert f"; missing: bytes {start} to {start + length - 1}\n" in done.err
    assert "write or trim" not in done.err
    missing = CONTENT[:start] + bytes(length) + CONTENT[start + length :]
    assert (tmp_path / "out" / "large").read_bytes() == missing
    assert (tmp_path / "out" / "large").stat().st_mtime_ns == (tmp_path / "files" / "large").stat().st_mtime_ns
    assert (tmp_path / "out" / "small").read_bytes() == b"small"
    said = json.loads(f2(system, "dump", "extract", "--json", image, "-o", tmp_path / "more").text)
    assert [(item["path"], item["ranges"]) for item in said["partial"]] == [("/large", [[start, length]])]
    assert (said["lost"], said["files"]) == ([], 2)


@pytest.mark.parametrize("system", PAGES)
def test_cat_writes_all_before_what_can_not_be_read_and_tar_all_around_it(system: str, tmp_path: Path) -> None:
    image, start, length = damaged(system, tmp_path)
    done = f2(system, "dump", "cat", image, "/large")
    assert (done.code != 0, done.out) == (True, CONTENT[:start])
    done = f2(system, "dump", "tar", image)
    assert (done.code, f"missing: bytes {start} to {start + length - 1}\n" in done.err) == (1, True)
    with tarfile.open(fileobj=io.BytesIO(done.out)) as found:
        file = found.extractfile("large")
        assert file is not None
        assert file.read() == CONTENT[:start] + bytes(length) + CONTENT[start + length :]


def test_an_index_page_that_can_not_be_read_costs_what_is_below_it_and_nothing_else(tmp_path: Path) -> None:
    made = volume()
    ino = made.create(1, b"far", 0o644)
    per, size = made.shape.pointers, SMALL.page_size
    places = [number * size for number in (0, made.shape.direct, made.shape.direct + per, made.shape.direct + 2 * per)]
    for place in places:
        made.write(ino, place, b"content at %d" % place)
    made.close()
    seen = reading(content(made))
    file = seen.at_path(b"/far")
    assert isinstance(file, File)
    image, page = bytearray(content(made)), seen.index_address(file, 0, 1)
    image[page * SMALL.raw_page : (page + 1) * SMALL.raw_page] = b"\xff" * SMALL.raw_page
    report = extract(reading(bytes(image)), str(tmp_path / "out"))
    assert [(item.path, item.ranges) for item in report.partial] == [(b"/far", ((places[2], per * size),))]
    copied = (tmp_path / "out" / "far").read_bytes()
    for place in places:
        words = b"content at %d" % place
        assert (copied[place : place + len(words)] == words) == (place != places[2])
