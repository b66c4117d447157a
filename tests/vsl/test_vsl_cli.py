"""The commands: what they print, what they refuse, what they end with."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.media.image import open_image
from f2tools.errors import DeviceError
from f2tools.flash.vsl import Vsl, create_vsl, open_vsl
from tests.dump.craft import f2

PAGE = 4096 + 128


def filled(path: Path, *, close: bool = True) -> bytes:
    """A layer of 2 MiB with some content, which this returns."""
    vsl = create_vsl(path, 2 << 20)
    chance = random.Random(1)
    content = bytearray(2 << 20)
    for _ in range(200):
        offset, data = chance.randrange(400) * 4096, chance.randbytes(4096)
        vsl.pwrite(offset, data)
        content[offset : offset + 4096] = data
    vsl.flush()
    if close:
        vsl.close()
    else:
        vsl.abandon()
    return bytes(content)


def found(path: Path) -> list[dict[str, object]]:
    """The findings of a check, which must fit to its exit code."""
    done = f2("vsl", "check", path, "--json")
    report = json.loads(done.text)
    assert (done.code, report["sound"]) in ((0, True), (4, False))
    return report["findings"]


def place_of(path: Path, vblock: int) -> int:
    """Where in the image a block lies."""
    rows = json.loads(f2("vsl", "map", path, "--from", str(vblock * 512), "--length", "512", "--json").text)["extents"]
    row = rows[0]
    return 4096 + (row["erase_block"] * 16 + row["page"]) * PAGE + row["slot"] * 512


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(len(data))
        assert old != data
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        byte = file.read(1)[0]
    damage(path, offset, bytes([byte ^ 16]))


def test_a_new_image_is_sparse_sound_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    assert f2("vsl", "create", path, "--size", "64M").code == 0
    assert path.stat().st_blocks * 512 < 1 << 20
    done = f2("vsl", "check", path)
    assert (done.code, "sound; 0 blocks mapped" in done.text) == (0, True)
    facts = json.loads(f2("vsl", "info", path, "--json").text)
    assert (facts["capacity_blocks"], facts["mapped_blocks"], facts["clean"]) == (131072, 0, True)
    assert f2("vsl", "create", path, "--size", "64M").code == 1  # nothing is overwritten


@pytest.mark.parametrize("close", [True, False])
def test_an_image_is_sound_closed_or_not(tmp_path: Path, close: bool) -> None:
    path = tmp_path / "a.vsl"
    filled(path, close=close)
    assert found(path) == []
    assert ("not closed" in f2("vsl", "check", path).text) is not close
    assert ("not closed" in f2("vsl", "info", path).text) is not close


def test_one_wrong_bit_is_found_and_read_right(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    block = next(n for n in range(4096) if any(content[n * 512 : n * 512 + 512]))
    flip(path, place_of(path, block) + 77)
    assert [(one["name"], one["vblock"]) for one in found(path)] == [("bit", block)]
    with open_vsl(open_image(path)) as vsl:
        assert vsl.pread(0, 2 << 20) == content


def test_a_damaged_block_is_found_and_an_error_to_read_and_no_other_is(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    block = next(n for n in range(100, 4096) if any(content[n * 512 : n * 512 + 512]))
    damage(path, place_of(path, block), b"rubbish")
    assert [(one["name"], one["vblock"]) for one in found(path)] == [("data", block)]
    assert "reading it is an error" in f2("vsl", "check", path).text
    with open_vsl(open_image(path, True)) as vsl:
        with pytest.raises(DeviceError, match=f"block {block:#x} .* is lost"):
            vsl.read_vblocks(block, 1)
        assert vsl.pread(0, block * 512) == content[: block * 512]
        for _ in range(40):  # cleaning carries the error along
            vsl.pwrite(1 << 20, bytes(1 << 19))
        with pytest.raises(DeviceError, match="is lost"):
            vsl.read_vblocks(block, 1)
        vsl.write_vblocks(block, content[block * 512 : block * 512 + 512])
        assert vsl.read_vblocks(block, 1) == content[block * 512 : block * 512 + 512]
    assert found(path) == []


def test_a_block_of_the_log_whose_head_is_gone_is_named_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    rows = json.loads(f2("vsl", "map", path, "--json").text)["extents"]
    with open_vsl(open_image(path)) as vsl:
        newest = vsl.log.block
    block = next(row["erase_block"] for row in rows if row["erase_block"] != newest)
    damage(path, 4096 + block * 16 * PAGE, b"rubbish!" * 10)
    assert "head" in {one["name"] for one in found(path)}
    for how in (True, False):
        with open_vsl(open_image(path), use_checkpoint=how) as vsl:
            assert vsl.pread(0, 2 << 20) == content


def test_damage_to_the_checkpoint_is_named_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    with open_vsl(open_image(path)) as vsl:
        _, block, page = vsl.log.checkpoint
    assert page > 2
    damage(path, 4096 + (block * 16 + page - 2) * PAGE, b"rubbish")
    assert {"checkpoint", "page"} == {one["name"] for one in found(path)}
    with open_vsl(open_image(path)) as vsl:
        assert not vsl.opened.from_checkpoint
        assert vsl.pread(0, 2 << 20) == content


def test_damage_to_a_superblock_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    filled(path)
    damage(path, 8, b"\xee")
    assert [one["name"] for one in found(path)] == ["superblock"]
    damage(path, path.stat().st_size - 4096, b"x")
    assert f2("vsl", "check", path).code == 4


def read(vsl: Vsl, offset: int) -> bytes | None:
    """A page, or None where reading it is an error."""
    try:
        return vsl.pread(offset, 4096)
    except DeviceError:
        return None


def test_any_page_of_rubbish_is_found_or_holds_nothing_that_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    before = path.read_bytes()
    with open_vsl(open_image(path)) as vsl:
        pages = [(int(b), page) for b in vsl.table.used() for page in range(int(vsl.table.end[b]))]
    for block, page in pages[:: max(1, len(pages) // 20)]:
        path.write_bytes(before)
        damage(path, 4096 + (block * 16 + page) * PAGE + 16, random.Random(page).randbytes(PAGE - 16))
        findings = found(path)
        with open_vsl(open_image(path)) as vsl:
            reads = {at: read(vsl, at) for at in range(0, 2 << 20, 4096)}
        assert all(data in (None, content[at : at + 4096]) for at, data in reads.items())
        assert findings or None not in reads.values()


def test_trim_says_what_it_does_can_be_rehearsed_and_undone(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    mapped = json.loads(f2("vsl", "info", path, "--json").text)["mapped_blocks"]
    before = path.read_bytes()
    assert f"{mapped} blocks would be unmapped" in f2("vsl", "trim", path, "0", "2M", "--dry-run").text
    assert path.read_bytes() == before
    undo = tmp_path / "undo"
    assert f2("vsl", "trim", path, "0", "2M", "--undo", undo).code == 0
    assert json.loads(f2("vsl", "info", path, "--json").text)["mapped_blocks"] == 0
    assert found(path) == []
    assert f2("undo", undo, path).code == 0
    with open_vsl(open_image(path)) as vsl:
        assert vsl.pread(0, 2 << 20) == content
    assert f2("vsl", "trim", path, "1", "512").code == 2
    assert f2("vsl", "trim", path, "0", "1G").code == 8


def test_a_trim_of_the_largest_space_is_undone_too(tmp_path: Path) -> None:
    path, undo = tmp_path / "a.dfs", tmp_path / "undo"
    assert f2("dfs", "mkfs", path, "--size", "4M").code == 0
    before = path.read_bytes()
    done = f2("vsl", "trim", path, "0", "1M", "--undo", undo)
    assert (done.code, ": 0 blocks" in done.text) == (0, False)
    assert f2("dfs", "fsck", path).code == 8  # the superblocks are gone
    assert f2("undo", undo, path).code == 0
    assert path.read_bytes() == before


def test_export_writes_what_the_space_holds_and_holes(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    assert f2("vsl", "export", path, tmp_path / "raw").code == 0
    assert (tmp_path / "raw").read_bytes() == content
    assert f2("vsl", "export", path, tmp_path / "part", "--from", "1M", "--length", "64K").code == 0
    assert (tmp_path / "part").read_bytes() == content[1 << 20 : (1 << 20) + 65536]
    assert f2("vsl", "export", path, tmp_path / "raw").code == 1
    huge = tmp_path / "huge.vsl"
    assert f2("vsl", "create", huge, "--size", "1M", "--space", "max").code == 0
    assert f2("vsl", "export", huge, tmp_path / "none").code == 2
    assert not (tmp_path / "none").exists()


def test_what_is_no_layer_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_bytes(bytes(100_000))
    for command in ("info", "map"):
        done = f2("vsl", command, path)
        assert (done.code, "no image of a virtualized storage layer" in done.err) == (8, True)
    assert f2("vsl", "check", path).code == 8
    assert f2("vsl", "check", tmp_path / "none").code == 8
    for words in (("--size", "1000"), ("--size", "1M", "--erase-block", "5000"), ("--size", "1M", "--op", "-3%")):
        assert f2("vsl", "create", tmp_path / "new", *words).code == 2
        assert not (tmp_path / "new").exists()
    done = f2("vsl", "create", tmp_path / "new", "--size", "1M", "--erase-block", "16K")  # cleaning could win nothing
    assert (done.code, (tmp_path / "new").exists()) == (1, False)
    assert "erase blocks of 4 pages; they must have 8 to" in done.err


def test_a_hostile_image_ends_in_an_error_and_not_in_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    filled(path)
    before = path.read_bytes()
    chance = random.Random(7)
    for _ in range(20):
        wrong = bytearray(before)
        for _ in range(chance.choice([1, 5, 50])):
            at = chance.randrange(len(wrong)) if chance.random() < 0.5 else chance.randrange(20 * PAGE)
            wrong[at : at + 8] = chance.randbytes(8)
        path.write_bytes(bytes(wrong))
        assert f2("vsl", "check", path).code in (0, 1, 4)
        assert f2("vsl", "info", path).code in (0, 1)


def test_other_commands_see_the_space_and_not_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    content = filled(path)
    with open_device(path) as device:
        assert isinstance(device, Vsl)
        assert device.read_only
        assert device.pread(0, device.size_bytes) == content


def test_whoever_opens_a_file_system_on_a_layer_that_lost_an_erase_block_hears_of_it(tmp_path: Path) -> None:
    image = tmp_path / "v.vsl"
    assert f2("vsl", "create", image, "--size", "48M").code == 0
    assert f2("mkfs", image).code == 0
    with open_image(image, True) as device:
        layer = open_vsl(device)
        for _ in range(3):  # to free blocks
            layer.pwrite(layer.size_bytes - (4 << 20), bytes(range(256)) * (4 << 10))
        layer.flush()
        block = layer.table.by_seq()[-2]
        size = layer.medium.pages_per_block * PAGE
        device.pwrite(4096 + block * size, bytes(size))
    assert "block" in [finding["name"] for finding in found(image)]
    assert "lost blocks:   1 of the log; `f2tools vsl check` names them" in f2("vsl", "info", image).text
    for command in (["fsck"], ["dump", "info"], ["doctor"]):
        done = f2(*command, image)
        assert "of the storage layer below are lost" in done.text + done.err
