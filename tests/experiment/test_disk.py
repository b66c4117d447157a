"""The simulated device: it is a device, it counts what it is asked for, and its trace says the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard

from f2tools.device import Device
from f2tools.errors import DeviceError
from f2tools.experiment import requests
from f2tools.experiment.disk import BLOCK, Disk
from f2tools.experiment.engine import EngineFiles, fresh
from f2tools.experiment.files import Watch
from f2tools.experiment.loads import LOADS
from f2tools.experiment.requests import MAX_REQUEST, READS, WRITES, RequestLog
from f2tools.f2fs.write.volume import Policy
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.trace import blkparse

MIB = 1 << 20
MAILS = {"files": 60, "directories": 3, "file_bytes": 16384, "loops": 150}


def test_what_was_written_last_is_read_whatever_the_way() -> None:
    disk, chance = Disk(4 * MIB), np.random.default_rng(1)
    shadow = np.zeros(4 * MIB, np.uint8)
    for _ in range(400):
        length = int(chance.integers(1, 20_000))
        at = int(chance.integers(0, shadow.size - length))
        data = chance.integers(0, 256, length, np.uint8) * int(chance.random() < 0.6)
        way = int(chance.integers(3))
        if way == 0:
            disk.pwrite(at, data.tobytes())
            shadow[at : at + length] = data
        elif way == 1:
            disk.write_zeroes(at, length)
            shadow[at : at + length] = 0
        else:
            blocks = chance.choice(1024, 5, replace=False)
            rows = np.zeros((5, BLOCK), np.uint8)
            rows[: int(chance.integers(6))] = chance.integers(0, 256, BLOCK, np.uint8)
            disk.write_blocks(blocks, rows, BLOCK)
            shadow.reshape(-1, BLOCK)[blocks] = rows
    assert disk.pread(0, shadow.size) == shadow.tobytes()
    blocks = chance.integers(0, 1024, 300)
    assert (disk.read_blocks(blocks, BLOCK) == shadow.reshape(-1, BLOCK)[blocks]).all()
    with pytest.raises(DeviceError, match="past its end"):
        disk.pwrite(4 * MIB - 1, b"ab")
    assert isinstance(disk, Device)


def test_writes_that_follow_each_other_are_one_request_up_to_the_largest() -> None:
    disk = Disk(4 * MIB)
    for at in range(0, 2 * MAX_REQUEST + BLOCK, BLOCK):
        disk.pwrite(at, bytes(BLOCK))
    disk.pread(0, 100)
    disk.flush()
    counts = disk.log.settle().as_dict()
    assert (counts["writes"], counts["write_bytes"]) == (3, 2 * MAX_REQUEST + BLOCK)
    assert (counts["reads"], counts["flushes"]) == (1, 1)


@pytest.mark.parametrize("checkpoint_each", [False, True])
def test_the_counts_are_those_of_the_block_trace(checkpoint_each: bool, tmp_path: Path) -> None:
    volume, disk = fresh(128 * MIB, Policy(), 1)
    files, load = EngineFiles(volume, checkpoint_each), LOADS["varmail"](MAILS, 1)
    load.prepare(files)
    volume.sync()
    before = disk.log.settle().as_dict()
    disk.log.begin(tmp_path)
    load.run(files, Watch())
    volume.close()
    counted = {name: value - before[name] for name, value in disk.log.counts.as_dict().items()}
    report = analyze(AnalysisRequest(str(tmp_path))).report
    assert counted["writes"] == report["writes"]["requests_with_data"] > 300
    assert counted["write_bytes"] == report["writes"]["bytes"]
    assert counted["reads"] == report["reads"]["requests"]
    assert counted["read_bytes"] == report["reads"]["bytes"]
    assert counted["flushes"] == report["flushes"] > 300
    assert report["damage"]["problems"] == []
    assert files.calls["fsync"] == 2 * MAILS["loops"]


def kept_by(log: RequestLog, directory: Path) -> Path:
    """The trace of ten writes, eleven reads and a flush; the prefix of its file, unpacked."""
    directory.mkdir()
    log.begin(directory)
    for n in range(10):
        log.add(WRITES, (10 - n) * MIB, BLOCK)
    log.flush()
    for n in range(11):
        log.add(READS, 2 * n * MIB, 2 * BLOCK)
    log.end()
    assert analyze(AnalysisRequest(str(directory))).report["damage"]["problems"] == []
    packed = (directory / "trace.blktrace.0.zst").read_bytes()
    (directory / "x.blktrace.0").write_bytes(zstandard.ZstdDecompressor().stream_reader(packed).read())
    return directory / "x"


@pytest.mark.peer
def test_blkparse_reads_each_event_once_and_knows_them_by_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "HELD", 4)
    log = RequestLog()
    for directory in (tmp_path / "first", tmp_path / "second"):
        prefix = kept_by(log, directory)
        lines = [line.split() for line in blkparse.recorded(prefix)]
        assert [int(words[2]) for words in lines] == list(range(1, 3 * 22 + 1))
        assert [words[5] for words in lines] == ["Q", "D", "C"] * 22
        assert Counter(words[6] for words in lines) == {"W": 30, "R": 33, "FN": 3}
        for name, letter in (("queue", "Q"), ("issue", "D"), ("complete", "C")):
            printed = blkparse.printed(prefix, options=("-a", name))
            assert [line.split()[5] for line in blkparse.lines_of(printed)] == [letter] * 22


def test_a_volume_on_it_is_sound_after_a_load() -> None:
    volume, disk = fresh(128 * MIB, Policy(active_logs=4), 3)
    files, load = (
        EngineFiles(volume),
        LOADS["multihead"](MAILS | {"pictures": 10, "picture_bytes": 300_000, "copied_each": 8}, 3),
    )
    load.prepare(files)
    load.run(files, Watch())
    volume.close()
    assert [str(finding) for finding in check(Image(disk)).findings] == []
