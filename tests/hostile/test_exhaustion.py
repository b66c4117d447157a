"""Small input that asks for endless work, memory or output: every bound has its own sentence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.device import open_device
from f2tools.device.changes.undo import UndoLog
from f2tools.device.changes.undo_log import RECORD, RECORD_MAGIC
from f2tools.f2fs.layout.constants import F2FS_SUPER_OFFSET
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.forensics.index import open_index
from f2tools.forensics.names import MAX_PATH, LinkHistory
from f2tools.forensics.states import lines
from f2tools.forensics.undelete import Undelete
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from f2tools.fsck.repair.surgery import Surgery
from tests.hostile.limits import limited
from tests.images import reference

EVENT = "fio-12 [000] ..... {time}.000000: block_rq_issue: 8,0 W 4096 () {sector} + 8 [fio]\n"


def test_a_trace_line_of_spaces_is_passed_over(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    blanks = " " * 60_000
    lines = (blanks + ": ", "x" + blanks + ": ", "fio-12" + blanks + ": ", "fio-12 [000]" + blanks + ": ")
    trace.write_text("".join(line + "\n" for line in lines) + EVENT.format(time=1, sector=4096))
    done = limited("trace", "analyze", trace, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["events"] == 1


def test_names_numbers_and_messages_in_a_trace_fill_no_memory(tmp_path: Path) -> None:
    """A text of 40 MB: a new process and a new kind of page in every line, long messages, a number of 5,000 digits."""
    trace = tmp_path / "trace.txt"
    head = "x-{0} [000] ..... 1.{0:06}: "
    page = (
        "f2fs_submit_page_write: dev = (8,0), ino = {1}, page_index = 0x0, oldaddr = 0x1, newaddr = 0x2, "
        "rw = WRITE(), type = {2}\n"
    )
    with trace.open("w") as out:
        out.write(EVENT.format(time=1, sector=4096))
        out.write((head + page).format(1, "9" * 5000, "DATA"))
        for number in range(100_000):
            out.write((head + page).format(number, number, f"KIND{number}" + "K" * 20))
            if not number % 4:
                out.write((head + "tracing_mark_write: {1}\n").format(number, "m" * 800))
    done = limited("trace", "analyze", trace, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["events"] == 1


def test_a_trace_of_a_million_devices_and_cpus_is_mostly_damage(tmp_path: Path) -> None:
    """Records of blktrace, each of another device and another CPU: no event is lost, and each would be followed."""
    fields = ("magic", "seq", "time", "sector", "bytes", "action", "pid", "device", "cpu", "rest")
    wide = {"time": "<u8", "sector": "<u8"}
    events = np.zeros(100_000, [(name, wide.get(name, "<u4")) for name in fields])
    number = np.arange(events.size)
    events["magic"], events["seq"], events["time"], events["sector"] = 0x65617407, 1, number * 1000, number * 8
    events["bytes"], events["action"] = 4096, 1 << 17 | 7
    events["device"], events["cpu"] = number + 1, number
    trace = tmp_path / "x.blktrace.0"
    events.tofile(trace)
    report = json.loads(limited("trace", "analyze", trace, "--json").out)
    assert len(report["devices"]) == 256
    assert report["damage"]["corrupt"] == events.size - 256 + 1
    assert any("256 devices" in problem["text"] for problem in report["damage"]["problems"])


# -- undo logs --------------------------------------------------------------------------------------------------------


def undo_log(directory: Path) -> tuple[Path, Path]:
    """An image and a sound log of one change to it."""
    image, log = directory / "image", directory / "log"
    image.write_bytes(os.urandom(1 << 20))
    with UndoLog(open_device(image, write=True, whole=True), log) as device:
        device.pwrite(0x9000, b"x" * 4096)
    return image, log


def undo_record(log: Path, kind: int, batch: int, offset: int, length: int, good: bool = True) -> bytes:
    """A record as the log's own are, in a batch of its own."""
    head = RECORD.pack(RECORD_MAGIC, kind, 1, batch, offset, length, 0)[:-4]
    seed = zlib.crc32(log.read_bytes()[20:36])
    return head + struct.pack("<I", zlib.crc32(head, seed) ^ (not good))


def test_an_undo_log_of_records_within_records_is_refused(tmp_path: Path) -> None:
    """60,000 heads after a bad record, each of which claims all that follows: their checksums are those of 80 GB."""
    image, log = undo_log(tmp_path)
    bad = undo_record(log, 1, 9, 0, 1, good=False)
    heads = (RECORD.pack(RECORD_MAGIC, 1, 1, 99, 0, left * RECORD.size, 0) for left in reversed(range(60_000)))
    log.write_bytes(log.read_bytes() + bad + b"".join(heads))
    done = limited("undo", "-n", log, image)
    assert done.code != 0
    assert "records within records" in done.err


def test_an_undo_log_that_has_a_place_twice_is_refused(tmp_path: Path) -> None:
    """Each block of the image is held against the seal, and was held against every record."""
    image, log = undo_log(tmp_path)
    log.write_bytes(log.read_bytes() + undo_record(log, 2, 9, 0, 1 << 20) * 50_000)
    done = limited("undo", "-n", log, image)
    assert done.code != 0
    assert "the same place twice" in done.err


def test_a_report_on_a_sparse_image_of_terabytes_of_fillings_ends(tmp_path: Path) -> None:
    image, sparse = tmp_path / "image", tmp_path / "sparse"
    assert limited("mkfs", image, "--size", "64M", "-q").code == 0
    data, block = image.read_bytes(), 1 << 16
    blocks = (1 << 44) // block
    used = len(data) // block
    with sparse.open("wb") as out:
        out.write(struct.pack("<IHHHHIIII", 0xED26FF3A, 1, 0, 28, 12, block, blocks, 2, 0))
        out.write(struct.pack("<HHII", 0xCAC1, 0, used, 12 + len(data)) + data)
        out.write(struct.pack("<HHIII", 0xCAC2, 0, blocks - used, 16, 0x55555555))
    done = limited("report", sparse, "-o", tmp_path / "report")
    assert done.code == 0, done.err
    (found,) = json.loads((tmp_path / "report/report.json").read_text())["images"]
    assert "content" not in found
    assert "far more than what is stored" in found["unhashed"]
    assert found["file"]["sha256"] == hashlib.sha256(sparse.read_bytes()).hexdigest()


# -- deep trees -------------------------------------------------------------------------------------------------------

DEEP = 1200


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders below each other, twice as deep as paths are followed."""
    image = tmp_path_factory.mktemp("deep") / "image"
    assert limited("mkfs", image, "--size", "64M", "-q").code == 0
    with f2tools.open(image, write=True) as volume:
        ino = volume.root.inode.ino
        for _ in range(DEEP):
            ino = volume.mkdir(ino, b"d", 0o755)
    return image


def test_of_a_deep_tree_the_way_to_each_directory_is_found_once(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[int] = Counter()
    above = LinkHistory._above

    def counted(names: LinkHistory, ino: int, age: int) -> tuple[int, bytes]:
        asked[ino] += 1
        return above(names, ino, age)

    monkeypatch.setattr(LinkHistory, "_above", counted)
    with f2tools.open(deep) as volume, open_index(volume) as index:
        paths = [line.path for line in lines(Undelete(volume, index))]
    assert len(paths) >= DEEP
    assert max(map(len, paths)) <= MAX_PATH
    assert asked.total() <= 8 * DEEP


def test_a_deep_tree_that_was_deleted_is_found(deep: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    shutil.copy(deep, image)
    assert limited("rm", "-r", f"{image}:/d").code == 0
    done = limited("timeline", image)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) >= DEEP // 2


@pytest.mark.parametrize("copies", [1, 2])
def test_a_block_size_under_which_no_node_is_found_is_not_believed(copies: int, tmp_path: Path) -> None:
    """Every entry of the table would be wrong, and each be cleared; with the right size nothing else is wrong."""
    image = reference("base").copy(tmp_path / "base").path
    with image.open("r+b") as file:
        for copy in range(copies):
            file.seek(F2FS_SUPER_OFFSET + 4096 * copy)
            sb = SuperBlock.parse(file.read(SuperBlock.size))
            sb.log_blocksize, sb.log_sectors_per_block = 13, 4
            file.seek(F2FS_SUPER_OFFSET + 4096 * copy)
            file.write(sb.build())
    done = limited("fsck", "-y", image)
    assert done.code == 1, done.text
    assert "log_blocksize" in done.text
    done = limited("fsck", image)
    assert done.code == 0, done.text


def test_thirty_thousand_entries_of_the_table_are_cleared_a_block_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both copies of the superblock agree on a block size that is wrong, each in the place that it gives."""
    image = reference("base").copy(tmp_path / "base").path
    with image.open("r+b") as file:
        file.seek(F2FS_SUPER_OFFSET)
        sb = SuperBlock.parse(file.read(SuperBlock.size))
        sb.log_blocksize, sb.log_sectors_per_block = 13, 4
        for start in (0, 8192):
            file.seek(start + F2FS_SUPER_OFFSET)
            file.write(sb.build())
    edits: Counter[int] = Counter()
    write = Surgery.write

    def counted(surgery: Surgery, blkaddr: int, block: object) -> None:
        edits[blkaddr] += 1
        write(surgery, blkaddr, block)

    monkeypatch.setattr(Surgery, "write", counted)
    with open_device(image) as device:
        report = check(Image(StaysOpen(device)))
        assert report.counts["N003"] > 20_000
        outcome = Repairer(device).run(report)
    assert not outcome.left["N003"]
    assert max(edits.values()) < 100
