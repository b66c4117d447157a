"""A real trace of blktrace with some of its bytes changed: a report or a word, no traceback, no hang, little memory."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from f2tools.errors import F2fsError
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.hostile.limits import limited
from tests.trace import traces

NAME = "fileserver"
SEEDS = 10
EACH = 10  # mutated traces of a seed
RECORD = 48
FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2))
EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1)


def records(data: bytes) -> list[int]:
    """Where the records begin."""
    starts, at = [], 0
    while at + RECORD <= len(data):
        starts.append(at)
        at += RECORD + struct.unpack_from("<H", data, at + 46)[0]
    return starts


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some fields with other values, records twice, left out or in another order, and the end cut off."""
    starts = records(data)
    new = bytearray(data)
    for _ in range(rng.choice((1, 4, 64, 1000))):
        offset, size = rng.choice(FIELDS)
        value = rng.choice(EXTREMES) if rng.randrange(2) else rng.getrandbits(8 * size)
        at = rng.choice(starts) + offset
        new[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    for _ in range(rng.randrange(4)):
        a, b = sorted(rng.sample(range(len(starts)), 2))
        b = min(b, a + 200)
        piece = new[starts[a] : starts[b]]
        kind = rng.randrange(3)
        if kind == 0:
            new[starts[a] : starts[a]] = piece
        elif kind == 1:
            del new[starts[a] : starts[b]]
        else:
            new[starts[a] : starts[a]] = rng.randbytes(rng.randrange(500))
    return bytes(new[: rng.randrange(len(new))] if not rng.randrange(4) else new)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_real_trace_with_damage_gives_a_report_or_a_word(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    directory = traces.unpacked(NAME, tmp_path)
    streams = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.blktrace.*"))}
    assert streams
    for _ in range(EACH):
        for path, data in streams.items():
            path.write_bytes(mutated(data, rng))
        try:
            report = analyze(AnalysisRequest(str(directory), jobs=1)).report
        except F2fsError:
            continue
        assert report["events"] >= 0


@pytest.mark.parametrize("seed", [100, 101])
def test_a_command_on_a_real_trace_with_damage_ends_in_bounds(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    directory = traces.unpacked(NAME, tmp_path)
    for path in sorted(tmp_path.rglob("*.blktrace.*")):
        path.write_bytes(mutated(path.read_bytes(), rng))
    done = limited("trace", "analyze", directory, "--html", tmp_path / "report.html", "--json")
    assert done.code in (0, 1, 2, 4, 8), done.err
