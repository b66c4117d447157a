"""Attribution, held against the kernel's own word on every block."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from f2tools.cli import main
from f2tools.device import open_device
from f2tools.errors import NotF2fs, Usage
from f2tools.f2fs.layout.constants import CURSEG_NAMES
from f2tools.f2fs.volume.volume import Volume
from f2tools.trace.analyze import AnalysisRequest, analyze
from f2tools.trace.attribute.segments import segment_logs
from f2tools.trace.events import EventFilter
from tests.trace import traces

CASES = ("churn", "fileserver", "varmail")
BLOCK = 4096


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(name, our report, the truth)"""
    name = request.param
    images = (str(traces.image(name, "before")), str(traces.image(name, "after")))
    return name, analyze(AnalysisRequest(str(traces.DIRECTORY / name), *images, top=0)).report, traces.truth(name)


def blocks(truth: dict[str, Any]) -> list[list[Any]]:
    return [block for write in truth["writes"] for block in write[3]]


def logs_at_the_time(name: str, truth: dict[str, Any]) -> list[str]:
    """The type that each block's segment had when it was written; a block that is written in place changes no type."""
    with Volume(open_device(traces.image(name, "before"))) as volume:
        types = {segno: CURSEG_NAMES[kind] for segno, kind in enumerate(volume.sit.types.tolist())}
        main, per = volume.geo.main_blkaddr, volume.geo.blocks_per_seg
    found = []
    for blkaddr, area, kind, temp, _, place in blocks(truth):
        if area != "main":
            continue
        segno = (blkaddr - main) // per
        if place == "new":
            types[segno] = f"{temp}_{kind}"
        found.append(types[segno])
    return found


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    return str(path) in {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}


def test_no_image_stays_open_where_one_of_them_holds_no_volume(tmp_path: Path) -> None:
    trace, volume, other = str(traces.DIRECTORY / "churn"), traces.image("churn", "before"), tmp_path / "other.img"
    other.write_bytes(bytes(1 << 20))
    with pytest.raises(NotF2fs) as caught:  # whose traceback keeps alive what is still open
        analyze(AnalysisRequest(trace, str(volume), str(other)))
    assert not is_open(volume)
    assert not is_open(other)
    del caught


@pytest.mark.parametrize("ask", [lambda image: EventFilter.of(None, None, (), (), (), image, None), segment_logs])
def test_an_image_without_a_volume_does_not_stay_open(tmp_path: Path, ask: Callable[[str], object]) -> None:
    other = tmp_path / "other.img"
    other.write_bytes(bytes(1 << 20))
    with pytest.raises(NotF2fs) as caught:
        ask(str(other))
    assert not is_open(other)
    del caught


def test_areas_are_exact(case: tuple) -> None:
    _, report, truth = case
    real = Counter(block[1] for block in blocks(truth))
    assert report["areas"] == {area: real[area] * BLOCK for area in report["areas"]}
    assert report["offset"] == 0


def test_what_is_certain_of_the_logs_is_never_wrong(case: tuple) -> None:
    name, report, truth = case
    real = Counter(logs_at_the_time(name, truth))
    for log, size in report["logs"].items():
        assert size <= real[log] * BLOCK, log
    assert sum(report["logs"].values()) + report["ambiguous"] == report["areas"]["main"]


def unknowable(truth: dict[str, Any]) -> int:
    """Bytes written to places that were written again later: of these no image knows anything."""
    counts = Counter(block[0] for block in blocks(truth) if block[1] == "main")
    return sum(count - 1 for count in counts.values()) * BLOCK


def test_no_more_is_ambiguous_than_what_nobody_can_know(case: tuple) -> None:
    name, report, truth = case
    assert report["ambiguous"] <= unknowable(truth)
    assert report["files_ambiguous"] <= unknowable(truth)
    if name != "churn":
        assert report["ambiguous"] == 0


def test_what_is_certain_of_the_files_is_never_wrong(case: tuple) -> None:
    _, report, truth = case
    real = Counter(block[4] for block in blocks(truth) if block[1] == "main")
    for ino, found in report["files"].items():
        assert found["bytes"] <= real[int(ino)] * BLOCK, ino
    certain = sum(found["bytes"] for found in report["files"].values())
    assert certain + report["files_ambiguous"] == report["areas"]["main"]


def test_the_last_writer_of_each_block_is_named(case: tuple) -> None:
    """As many bytes by inode as the truth has last writes."""
    _, report, truth = case
    last = {block[0]: block[4] for block in blocks(truth) if block[1] == "main"}
    real = Counter(last.values())
    assert {int(ino): found["bytes"] for ino, found in report["files"].items()} == {
        ino: count * BLOCK for ino, count in real.items()
    }


def test_paths_are_among_those_that_the_inode_had(case: tuple) -> None:
    _, report, truth = case
    named = 0
    for ino, found in report["files"].items():
        if found["path"] is None or found["path"] == "/":
            continue
        assert found["path"].lstrip("/") in truth["paths"][ino]
        named += 1
    assert named > 50


def test_each_log_writes_at_its_own_tail(case: tuple) -> None:
    """What classic tools call random is sequential log by log."""
    name, report, _ = case
    logs, all_of_them = report["sequentiality"]["per_log"], report["sequentiality"]["all_logs"]
    assert all(row["bytes"] <= row["of_bytes"] for row in logs.values())
    if name != "churn":
        assert all_of_them["byte_share"] > report["sequentiality"]["write"]["strict"]["byte_share"]
    assert report["sequentialised"]["of_bytes"] <= report["areas"]["main"]
    assert report["valid_block_histogram"]["after"]["dirty"] == sum(
        report["valid_block_histogram"]["after"]["by_eighth"]
    )


# Blocks that logs wrote into segments that held valid blocks when they were opened, by the tracepoints in their order:
# a log that went through a segment without a gap, to its end or to where it stands at last, had it for itself.
THREADED = {"churn": 3851, "fileserver": 0, "varmail": 0}


def test_threaded_logs_are_seen(case: tuple) -> None:
    name, report, _ = case
    found, real = report["threaded_share"], THREADED[name] * BLOCK
    assert found["at_least"] <= real / found["of_bytes"] <= found["at_most"]
    assert found["bytes"] == pytest.approx(real, rel=0.01)
    if name == "churn":
        assert 0.2 < found["byte_share"] < 0.3


def test_a_block_that_is_written_very_often_is_counted_as_often() -> None:
    from f2tools.trace.attribute.attribution import _counted

    counts = np.zeros(4, np.uint16)
    for _ in range(65_540):
        counts = _counted(counts, 1, 2)
    assert counts.tolist() == [0, 65_540, 65_540, 0]


def test_with_one_image_there_are_areas_and_no_guesses() -> None:
    after = str(traces.image("churn", "after"))
    report = analyze(AnalysisRequest(str(traces.DIRECTORY / "churn"), image_after=after)).report
    whole = analyze(AnalysisRequest(str(traces.DIRECTORY / "churn"), image=after)).report
    assert report["areas"] == whole["areas"]
    assert report["threaded_share"] is None
    share = whole["threaded_share"]
    assert share["at_least"] == share["byte_share"] <= THREADED["churn"] * BLOCK / share["of_bytes"] <= share["at_most"]
    assert sum(report["logs"].values()) + report["ambiguous"] == report["areas"]["main"]
    real = Counter(logs_at_the_time("churn", traces.truth("churn")))
    assert all(size <= real[log] * BLOCK for log, size in report["logs"].items())


def test_a_volume_on_a_partition_is_found_by_the_remaps(tmp_path: Any) -> None:
    events = []
    for n, e in enumerate(traces.request(1_000, 2048 + 8 * 600, 8)):
        if n == 0:
            payload = (8 << 20 | 17).to_bytes(4, "big") + e.device.to_bytes(4, "big") + (8 * 600).to_bytes(8, "big")
            events.append(traces.Ev(900, "A", e.sector, 8, payload=payload))
        events.append(e)
    prefix = traces.write(tmp_path, events)
    image = str(traces.image("churn", "after"))
    assert analyze(AnalysisRequest(str(prefix), image)).report["areas"]["cp"] == 4096
    assert analyze(AnalysisRequest(str(prefix), image)).report["offset"] == 2048
    for offset, count in (((), 5), (("--offset", "1M"), 5), (("--offset", "2048s"), 5), (("--offset", "900000s"), 0)):
        words = ["trace", "events", str(prefix), "--image", image, "--area", "cp", *offset]
        assert len(CliRunner().invoke(main, words, catch_exceptions=False).output.splitlines()) == count
    odd = CliRunner().invoke(main, ["trace", "events", str(prefix), "--image", image, "--offset", "2049"])
    assert (odd.exit_code, "whole number of sectors" in odd.output) == (2, True)
    assert analyze(AnalysisRequest(str(prefix), image, offset=0)).report["areas"]["cp"] == 4096 * (
        512 * 8 <= 2048 + 4800 < 1536 * 8
    )


def test_images_of_different_volumes_are_refused() -> None:
    with pytest.raises(Usage, match="different volumes"):
        analyze(
            AnalysisRequest(
                str(traces.DIRECTORY / "churn"),
                str(traces.image("churn", "before")),
                str(traces.image("varmail", "after")),
            )
        )


def test_the_picture_by_log_holds_all_bytes() -> None:
    images = (str(traces.image("fileserver", "before")), str(traces.image("fileserver", "after")))
    done = analyze(AnalysisRequest(str(traces.DIRECTORY / "fileserver"), *images))
    assert done.log_raster is not None
    sums = done.log_raster.sums.sum(axis=(1, 2))
    shown = dict(zip(done.log_names, sums.tolist(), strict=True))
    assert shown["cold_data"] == pytest.approx(done.report["logs"]["cold_data"])
    assert np.isclose(sums.sum(), done.report["writes"]["bytes"])
