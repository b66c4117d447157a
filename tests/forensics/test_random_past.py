"""Random lives of small volumes: what is called certain is what was written, whatever happened."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

import f2tools
from f2tools.forensics.index import open_index
from f2tools.forensics.undelete import Undelete
from tests.forensics.past_of import ROOT, living
from tests.images import copy_sparse

LIVES = int(os.environ.get("F2_FORENSIC_LIVES", "2"))
OPERATIONS = 250


class Record:
    """Every content that a file ever had, by inode number, size and mtime, which no two states share."""

    def __init__(self) -> None:
        self.contents: dict[tuple[int, int, int], str] = {}
        self.files: dict[bytes, tuple[int, bytearray]] = {}

    def note(self, ino: int, content: bytes, mtime_ns: int) -> None:
        self.contents[ino, len(content), mtime_ns] = hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("seed", range(LIVES))
def test_what_is_certain_is_right(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    record = Record()
    ipu = generator.choice(["never", "fsync"])
    with living(tmp_path, ipu=ipu) as (life, image):
        volume = life.volume
        for number in range(OPERATIONS):
            life.clock.now += generator.choice([1000, 10**6, 10**9, 40 * 10**9])
            deed = generator.choice(
                ["make", "make", "write", "write", "cut", "remove", "rename", "fsync", "sync", "look"]
            )
            name = generator.choice(sorted(record.files)) if record.files else None
            if deed == "make" or name is None:
                name = b"file-%d" % generator.randrange(60)
                if name in record.files:
                    continue
                ino = volume.create(ROOT, name, 0o100644)
                record.files[name] = (ino, bytearray())
                _write(life, record, name, generator)
                continue
            ino, content = record.files[name]
            if deed == "write":
                _write(life, record, name, generator)
            elif deed == "cut":
                size = generator.randrange(len(content) + 1)
                volume.truncate(ino, size)
                del content[size:]
                record.note(ino, bytes(content), volume.live(ino).mtime_ns)
            elif deed == "remove":
                volume.unlink(ROOT, name)
                del record.files[name]
            elif deed == "rename":
                other = b"name-%d" % number
                volume.rename(ROOT, name, ROOT, other)
                record.files[other] = record.files.pop(name)
            elif deed == "fsync":
                volume.fsync(ino)
            elif deed == "sync":
                volume.sync()
        cut = copy_sparse(image, tmp_path / "cut")  # as a power cut leaves it
    _judge(image, record)
    _judge(cut, record)


def _write(life: object, record: Record, name: bytes, generator: random.Random) -> None:
    volume = life.volume  # type: ignore[attr-defined]
    ino, content = record.files[name]
    data = generator.randbytes(generator.choice([10, 500, 5000, 30000, 200000]))
    offset = generator.randrange(len(content) + 1)
    volume.write(ino, offset, data)
    content[offset : offset + len(data)] = data
    record.note(ino, bytes(content), volume.live(ino).mtime_ns)


def _judge(image: Path, record: Record) -> None:
    with f2tools.open(image) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        every = list(run.deleted())
        for found in every:
            run.digest(found)
        every += list(run.older())
    certain = 0
    for found in every:
        if found.grade != "certain" or found.inode is None or found.type != "file" or not found.inode.size:
            continue
        certain += 1
        key = (found.ino, found.inode.size, found.inode.mtime_ns)
        assert record.contents.get(key) == found.sha256, (found.path, key, found.reasons)
    assert certain > 5
