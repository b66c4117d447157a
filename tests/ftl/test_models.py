"""Every model against a plain dict, and both engines against each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from f2tools.errors import Usage
from f2tools.ftl.engine import engine
from f2tools.ftl.models import MODELS, Setting, Simulated
from f2tools.ftl.replay import WINDOWS, Measure, device_for
from f2tools.ftl.state import DISCARD, POLICIES, READ, WRITE
from f2tools.ftl.workload import NO_STREAMS, Piece

SETTINGS = {
    **{f"page-{gc}": Setting("page", 0.25, 8, blocks=40, gc=gc) for gc in POLICIES},
    **{f"streams-{gc}": Setting("streams", 0.4, 8, blocks=40, gc=gc, streams=3) for gc in POLICIES},
    **{f"dftl-{gc}": Setting("dftl", 0.4, 8, 64, blocks=40, gc=gc, map_cache=20) for gc in POLICIES},
    "block": Setting("block", 0.25, 8, blocks=40),
    "bast": Setting("bast", 0.25, 8, blocks=40),
    "set": Setting("set", 0.25, 8, blocks=40, per_set=(4, 2)),
    "fast": Setting("fast", 0.25, 8, blocks=40),
}


def operations(setting: Setting, count: int, seed: int) -> Piece:
    """Reads, writes and discards, single and in runs, more of them in one place."""
    rng = np.random.default_rng(seed)
    pages = setting.shape().logical_pages
    starts = np.where(rng.random(count) < 0.5, rng.integers(0, pages, count), rng.integers(0, pages // 4, count))
    lengths = np.where(rng.random(count) < 0.2, rng.integers(1, 20, count), 1)
    kinds = rng.choice([READ, WRITE, WRITE, WRITE, WRITE, DISCARD], count)
    each = np.concatenate([np.arange(s, s + n) % pages for s, n in zip(starts, lengths, strict=True)])
    return Piece(
        np.repeat(kinds, lengths).astype(np.int8), each.astype(np.int32),
        np.repeat(rng.integers(0, setting.streams, count), lengths).astype(np.int8),
    )  # fmt: skip


def cut(piece: Piece, step: int) -> list[Piece]:
    """The same in pieces."""
    return [piece.part(slice(at, at + step)) for at in range(0, len(piece), step)]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_device_holds_what_was_written_to_it(name: str) -> None:
    setting = SETTINGS[name]
    device = Simulated(engine("python"), setting, setting.shape(), content=True)
    known: dict[int, int] = {}
    written = 0
    for number, piece in enumerate(cut(operations(setting, 4000, 3), 100)):
        marks = np.arange(len(piece)) + number * 100 + 1
        device.feed(piece, marks)
        for kind, page, mark in zip(piece.kinds.tolist(), piece.pages.tolist(), marks.tolist(), strict=True):
            if kind == WRITE:
                known[page] = mark
                written += 1
            elif kind == DISCARD:
                known.pop(page, None)
        flash = device.flash
        found = {
            page: flash.data[at] for page, at in enumerate(flash.place[: setting.shape().logical_pages]) if at >= 0
        }
        assert found == known
        per = setting.pages_per_block
        current = np.bincount([at // per for at in flash.place if at >= 0], minlength=len(flash.valid))
        assert current.tolist() == list(flash.valid)
    counted = device.counters()
    assert counted["host_writes"] == written
    assert counted["erases"] > 100
    assert counted["flash_writes"] >= written + counted["moved"]


@pytest.mark.parametrize("name", [name for name in SETTINGS if not name.endswith(("fifo", "random"))])
def test_numba_and_plain_python_give_the_same(name: str) -> None:
    pytest.importorskip("numba")
    setting = SETTINGS[name]
    piece = operations(setting, 3000, 5)
    states = []
    for which in ("python", "numba"):
        device = Simulated(engine(which), setting, setting.shape())
        for part in cut(piece, 1000):
            device.feed(part)
        states.append([np.asarray(array).tolist() for array in device.flash])
    assert states[0] == states[1]


@pytest.mark.parametrize("name", [*SETTINGS, "vsl"])
def test_the_windows_of_the_waf_over_time_do_not_depend_on_the_pieces_that_come(name: str) -> None:
    setting = SETTINGS.get(name) or Setting("vsl", 0.25, 64, blocks=64)
    count = 300 if name == "vsl" else 2000
    reports = []
    for steps in ((1 << 20,), (7,), (196, 5)):
        device = device_for(engine("python"), setting, setting.shape())
        made, piece = Measure(device), operations(setting, count, 7)
        at = 0
        for step in itertools.chain(steps, itertools.repeat(steps[-1])):
            made.feed(piece.part(slice(at, at + step)))
            at += step
            if at >= len(piece):
                break
        report = made.report()
        report.pop("cpu_seconds"), report.pop("requests_per_cpu_second")
        reports.append(report)
    assert reports[0] == reports[1] == reports[2]
    windows = [(one["host_writes"], one["waf"]) for one in reports[0]["waf_over_time"]]
    widths = np.diff([at for at, _ in windows], prepend=0).tolist()
    assert windows[-1][0] == reports[0]["host_writes"]
    assert set(widths[:-1]) == {widths[0]}
    assert widths[0] % setting.pages_per_block == 0
    assert widths[0] <= widths[-1] < 2 * widths[0]
    whole = sum(waf * width for (_, waf), width in zip(windows, widths, strict=True))
    assert whole == pytest.approx(reports[0]["flash_writes"])
    assert len(windows) == reports[0]["host_writes"] // widths[0] <= 2 * WINDOWS
    assert len(windows) > WINDOWS - 2 or widths[0] == setting.pages_per_block


def test_what_is_shorter_than_a_block_is_one_window() -> None:
    setting = SETTINGS["page-greedy"]
    made = Measure(Simulated(engine("python"), setting, setting.shape()))
    assert made.over_time == []
    made.feed(Piece(np.array([WRITE, READ, WRITE], np.int8), np.arange(3, dtype=np.int32), NO_STREAMS))
    assert made.over_time == [(2, 1.0)]


def test_a_device_without_room_says_so() -> None:
    with pytest.raises(Usage, match="too few"):
        Simulated(
            engine("python"),
            Setting("streams", 0.1, 8, blocks=20, streams=4),
            Setting("page", 0.1, 8, blocks=20).shape(),
        )


def test_every_model_is_tested() -> None:
    assert {setting.model for setting in SETTINGS.values()} == set(MODELS) - {"vsl"}  # which has a test of its own


def test_the_virtualized_layer_holds_what_was_written_to_it() -> None:
    from f2tools.ftl.layer import SimulatedLayer

    setting = Setting("vsl", 0.5, 16, 4096, blocks=8)
    device = SimulatedLayer(engine("python"), setting, setting.shape(), content=True)
    known: dict[int, int] = {}
    piece = operations(setting, 600, 3)
    device.feed(piece, np.arange(len(piece)) + 1)
    for number, (kind, page) in enumerate(zip(piece.kinds.tolist(), piece.pages.tolist(), strict=True)):
        if kind == WRITE:
            known[page] = number + 1
        elif kind == DISCARD:
            known.pop(page, None)
    found = {page: device.content(page) for page in range(setting.shape().logical_pages)}
    assert {page: mark for page, mark in found.items() if mark is not None} == known
    assert device.counters()["flash_writes"] > device.counters()["host_writes"] > 0
