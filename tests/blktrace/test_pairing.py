"""What belongs together is put together: held against a device that is played event by event."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.blktrace import pairing
from f2tools.blktrace.damage import Gap
from f2tools.blktrace.losses import Losses
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.records import Events, classes
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.windows import Stretch
from tests.trace import traces
from tests.trace.traces import DISCARD, FLUSH, READ, WRITE, Ev, request

Pairs = list[tuple[int, ...]]


def paired(directory: Path, events: list[Ev], window: int = 1 << 20) -> tuple[Pairs, Pairs, Pairer]:
    """(requests: issue, completion, sector, sectors; bios: queue, issue, completion, sectors; the pairer)"""
    whole = Events.concatenate(list(open_trace(str(traces.write(directory, events))).events(payloads=True)))
    pairer, requests, bios = Pairer(), [], []
    for at in range(0, len(whole), window):
        part = whole.take(slice(at, at + window))
        done, finished = pairer.feed(part, classes(part.category, part.bytes))
        requests += zip(done.issued, done.completed, done.sector, done.bytes // 512, strict=True)
        bios += zip(finished.queued, finished.issued, finished.completed, finished.bytes // 512, strict=True)
    pairer.finish()
    return sorted(tuple(map(int, row)) for row in requests), sorted(tuple(map(int, row)) for row in bios), pairer


def test_a_request_of_its_own(tmp_path: Path) -> None:
    requests, bios, pairer = paired(tmp_path, request(100, 64))
    assert requests == [(2_100, 102_100, 64, 8)]
    assert bios == [(100, 2_100, 102_100, 8)]
    assert pairer.counts == pairing.PairingCounts()


def test_merged_bios_share_the_fate_of_their_request(tmp_path: Path) -> None:
    events = [Ev(10, "Q", 8), Ev(11, "G", 8), Ev(20, "Q", 16), Ev(21, "M", 16), Ev(30, "Q", 0), Ev(31, "F", 0)]
    events += [Ev(50, "D", 0, 24), Ev(90, "C", 0, 24)]
    requests, bios, _ = paired(tmp_path, events)
    assert requests == [(50, 90, 0, 24)]
    assert bios == [(10, 50, 90, 8), (20, 50, 90, 8), (30, 50, 90, 8)]


def test_a_split_bio_is_finished_part_by_part(tmp_path: Path) -> None:
    half = (16).to_bytes(8, "big")
    events = [Ev(10, "Q", 0, 24), Ev(11, "X", 0, 16, payload=half), Ev(20, "D", 0, 16), Ev(25, "D", 16, 8)]
    events += [Ev(40, "C", 16, 8), Ev(60, "C", 0, 16)]
    requests, bios, pairer = paired(tmp_path, events)
    assert requests == [(20, 60, 0, 16), (25, 40, 16, 8)]
    assert bios == [(10, 20, 60, 16), (10, 25, 40, 8)]
    assert pairer.counts.split == 1


def test_a_requeued_request_counts_from_its_last_issue(tmp_path: Path) -> None:
    events = [Ev(10, "Q", 0), Ev(20, "D", 0), Ev(30, "R", 0), Ev(40, "D", 0), Ev(70, "C", 0)]
    requests, bios, pairer = paired(tmp_path, events)
    assert requests == [(40, 70, 0, 8)]
    assert bios == [(10, 40, 70, 8)]
    assert pairer.counts.requeued == 1


def test_partial_completions_end_with_the_last(tmp_path: Path) -> None:
    events = [Ev(10, "Q", 0, 24), Ev(20, "D", 0, 24), Ev(30, "C", 0, 8), Ev(50, "C", 8, 16)]
    requests, bios, pairer = paired(tmp_path, events)
    assert requests == [(20, 50, 0, 24)]
    assert bios == [(10, 20, 50, 24)]
    assert pairer.counts.completions_without_issue == 0


def test_two_at_one_place_end_in_the_order_of_their_issue(tmp_path: Path) -> None:
    events = [Ev(10, "Q", 0), Ev(12, "Q", 0), Ev(20, "D", 0), Ev(25, "D", 0), Ev(60, "C", 0), Ev(80, "C", 0)]
    requests, bios, _ = paired(tmp_path, events)
    assert requests == [(20, 60, 0, 8), (25, 80, 0, 8)]
    assert bios == [(10, 20, 60, 8), (12, 25, 80, 8)]


def test_a_read_and_a_write_and_a_discard_of_one_place_are_told_apart(tmp_path: Path) -> None:
    kinds = (READ, WRITE, WRITE | DISCARD)
    events = [e for n, kind in enumerate(kinds) for e in request(10 + n, 0, 8, kind, took=100 * (3 - n))]
    requests, _, _ = paired(tmp_path, events)
    assert requests == [(2_010, 2_310, 0, 8), (2_011, 2_211, 0, 8), (2_012, 2_112, 0, 8)]


def test_flushes_without_data_are_paired_too(tmp_path: Path) -> None:
    flush = FLUSH | READ
    events = [
        Ev(5, "Q", 0, 0, FLUSH | WRITE),
        Ev(10, "D", 0, 0, flush),
        Ev(40, "C", 0, 0, flush),
        Ev(41, "C", 0, 0, WRITE),
    ]
    requests, bios, pairer = paired(tmp_path, events)
    assert [row[:2] for row in requests] == [(10, 40)]
    assert bios == []
    assert pairer.counts.completions_without_issue == 0


def test_what_has_no_end_and_what_has_no_start_is_counted(tmp_path: Path) -> None:
    _, _, pairer = paired(tmp_path, [Ev(1, "C", 800), Ev(2, "Q", 0), Ev(3, "Q", 64), Ev(4, "D", 64), Ev(5, "D", 640)])
    counts = pairer.counts
    assert (counts.completions_without_issue, counts.never_issued, counts.never_completed) == (1, 1, 2)


class Played:
    """A block layer and its device: what it does is what the trace must say."""

    def __init__(self, seed: int, places: int) -> None:
        self.choice = random.Random(seed)
        self.places = places
        self.now = 1_000
        self.events: list[Ev] = []
        self.waiting: list[list[tuple[int, int, int, int]]] = []  # requests: bios as (queued, sector, end, class)
        self.under_way: list[tuple[int, int, int, int, list]] = []
        self.requests: Pairs = []
        self.bios: Pairs = []

    def say(self, op: str, sector: int, end: int, kind: int, payload: bytes = b"") -> int:
        self.now += self.choice.randrange(1, 50)
        self.events.append(Ev(self.now, op, sector, end - sector, kind, payload=payload))
        return self.now

    def free(self, sector: int, end: int, kind: int) -> bool:
        """No overlap with what waits: two bios that wait for one place can't be told apart by any trace."""
        waiting = [(b[1], b[2], b[3]) for request in self.waiting for b in request]
        flying = [(r[1], r[2], r[3]) for r in self.under_way]
        return not any(s < end and sector < e and k == kind for s, e, k in waiting + flying)

    def queue(self) -> None:
        kind = self.choice.choice((READ, WRITE, WRITE, WRITE | DISCARD))
        sector = self.choice.randrange(self.places) * 8
        end = sector + 8 * self.choice.randrange(1, 5)
        if not self.free(sector, end, kind):
            return
        time = self.say("Q", sector, end, kind)
        bio = (time, sector, end, kind)
        for other in self.waiting:
            if other[0][3] == kind and other[-1][2] == sector and self.choice.random() < 0.9:
                self.say("M", sector, end, kind)
                other.append(bio)
                return
            if other[0][3] == kind and other[0][1] == end and self.choice.random() < 0.9:
                self.say("F", sector, end, kind)
                other.insert(0, bio)
                return
        if end - sector > 8 and self.choice.random() < 0.2:
            middle = sector + 8
            self.say("X", sector, middle, kind, middle.to_bytes(8, "big"))
            self.waiting += [[(time, sector, middle, kind)], [(time, middle, end, kind)]]
            return
        self.waiting.append([bio])

    def issue(self) -> None:
        if self.waiting:
            request = self.waiting.pop(self.choice.randrange(len(self.waiting)))
            sector, end, kind = request[0][1], request[-1][2], request[0][3]
            time = self.say("D", sector, end, kind)
            if self.choice.random() < 0.05:
                self.say("R", sector, end, kind)
                time = self.say("D", sector, end, kind)
            self.under_way.append((time, sector, end, kind, request))

    def complete(self) -> None:
        if not self.under_way:
            return
        issued, sector, end, kind, request = self.under_way.pop(self.choice.randrange(len(self.under_way)))
        start = sector
        if end - sector > 8 and self.choice.random() < 0.1:
            self.say("C", sector, sector + 8, kind)
            start = sector + 8
        time = self.say("C", start, end, kind)
        self.requests.append((issued, time, sector, end - sector))
        self.bios += [(queued, issued, time, e - s) for queued, s, e, _ in request]

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.choice.choice((self.queue, self.queue, self.issue, self.complete))()
        while self.waiting:
            self.issue()
        while self.under_way:
            self.complete()


@pytest.mark.parametrize("places", [20, 200, 100_000])
@pytest.mark.parametrize("seed", range(6))
def test_a_played_device_is_followed_exactly(tmp_path: Path, seed: int, places: int) -> None:
    device = Played(seed, places)
    device.play(3_000)
    for window in (1 << 20, 97):
        requests, bios, pairer = paired(tmp_path / str(window), device.events, window)
        assert requests == sorted(device.requests)
        assert bios == sorted(device.bios)
        counts = pairer.counts
        assert counts.completions_without_issue == counts.never_completed == counts.never_issued == 0


def test_two_devices_in_one_trace_do_not_touch(tmp_path: Path) -> None:
    one = [e for n in range(50) for e in request(10 + n * 1000, n * 8, took=300)]
    two = [replace(e, device=8 << 20 | 32, time=e.time + 3, cpu=1) for e in one]
    requests, _, pairer = paired(tmp_path, one + two)
    assert len(requests) == 100
    assert all(end - start == 300 for start, end, _, _ in requests)
    assert pairer.counts.completions_without_issue == 0


def test_very_many_pending_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "MAX_PENDING", 100)
    events = [Ev(n, "Q", n * 8) for n in range(1_000)]
    _, _, pairer = paired(tmp_path, events, 200)
    assert pairer.counts.never_issued == 1_000


def test_the_order_of_time_is_stable() -> None:
    from f2tools.blktrace.records import order_of

    values = np.array([5, 1, 5, 1 << 61, 1, 0])
    np.testing.assert_array_equal(order_of(values), np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(order_of(values[:3]), [1, 0, 2])
    assert len(order_of(values[:0])) == 0


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 5)), max_size=5), max_size=4),
    st.lists(st.tuples(st.integers(-1, 40), st.integers(0, 20)), min_size=1, max_size=9),
)
def test_losses_are_added_up_by_span(parts: list[list[tuple[int, int, int]]], spans: list[tuple[int, int]]) -> None:
    losses, gaps = Losses(), []
    for part in parts:
        gaps += [Gap("x", 0, start, start + length, count) for start, length, count in part]
        losses.add(gaps[len(gaps) - len(part) :])
        start, end = (
            np.array(column, np.int64) for column in zip(*((at, at + took) for at, took in spans), strict=True)
        )
        expected = [
            sum(gap.count for gap in gaps if gap.start <= last and gap.end >= first)
            for first, last in zip(start.tolist(), end.tolist(), strict=True)
        ]
        assert losses.touching(start, end).tolist() == expected
    assert bool(losses) == bool(gaps)


def mixed(seed: int, count: int = 3000) -> list[Ev]:
    """Requests of many lengths at few and at many places, of which every tenth event is lost."""
    random_ = random.Random(seed)
    events: list[Ev] = []
    for n in range(count):
        sectors = random_.choice([8, 8, 8, 24, 64])
        sector = random_.randrange(40 if n % 2 else 100_000) * 8
        start = n * 1000 + random_.randrange(900)
        part = request(start, sector, sectors, random_.choice([READ, WRITE]))
        if n % 7 == 0:
            part.append(Ev(start + 5, "R", sector, sectors))
        events += part
    return sorted((ev for ev in events if random_.random() > 0.1), key=lambda ev: ev.time)


@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_waits_apart_changes_nothing(
    seed: int, border: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Events.concatenate(list(open_trace(str(traces.write(tmp_path, mixed(seed)))).events(payloads=True)))
    found, most = [], []
    window = Stretch.window
    for apart in (1 << 30, 0):
        seen: list[int] = []
        monkeypatch.setattr(pairing, "APART", apart)
        monkeypatch.setattr(pairing, "MAX_PENDING", 600)
        monkeypatch.setattr(
            Stretch, "window",
            lambda self, device, start, pending, seen=seen: seen.append(pending.shape[1]) or window(
                self, device, start, pending
            ),
        )  # fmt: skip
        pairer, given = Pairer(), []
        pairer.add_gaps([Gap("x", 0, 0, 1, 1)])
        for at in range(0, len(whole), 100):
            part = whole.take(slice(at, at + 100))
            done, finished = pairer.feed(part, classes(part.category, part.bytes))
            given.append([column.tolist() for columns in (vars(done), vars(finished)) for column in columns.values()])
            given.append([pairer.partial, pairer.pending])
            if border:
                pairer.border()
        found.append([given, pairer.under_way(), pairer.counts])
        most.append(sum(seen))
    assert found[0] == found[1]
    assert most[1] < 0.6 * most[0]
