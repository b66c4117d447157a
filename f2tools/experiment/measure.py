"""One load on the write engine: prepared, run, and everything counted that the claims need."""

from __future__ import annotations

import base64
import errno
import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from f2tools.experiment.disk import Disk
from f2tools.experiment.engine import EngineFiles, fresh
from f2tools.experiment.files import Watch
from f2tools.experiment.loads import LOADS
from f2tools.experiment.model import Advance, Numbers, Work
from f2tools.f2fs.layout.constants import NR_CURSEG_DATA_TYPE
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.pictures.svg import Line, Picture

BINS = 16
MOST_PIXELS = 1 << 22


class State:
    """The counters of a volume and its device at one moment."""

    def __init__(self, volume: WritableVolume, disk: Disk, asked: int) -> None:
        segments, done = volume.segments, volume.cleaner.done
        logs = segments.written_by_log
        self.numbers = {
            **disk.log.settle().as_dict(), "asked_bytes": asked, "main_blocks": segments.written_blocks,
            "data_blocks": sum(logs[:NR_CURSEG_DATA_TYPE]), "node_blocks": sum(logs[NR_CURSEG_DATA_TYPE:]),
            "threaded_blocks": segments.threaded_blocks, "moved_data": done.data_blocks,
            "moved_nodes": done.node_blocks, "cleaned_sections": done.sections,
        }  # fmt: skip

    def since(self, before: State) -> dict[str, int]:
        """The difference from earlier counters."""
        return {name: value - before.numbers[name] for name, value in self.numbers.items()}


class EngineWatch(Watch):
    """Keeps the counters at the end of each round."""

    def __init__(self, files: EngineFiles, disk: Disk, advance: Advance) -> None:
        self._files, self._disk, self._advance = files, disk, advance
        self.states = [self._now()]

    def _now(self) -> State:
        return State(self._files.volume, self._disk, self._files.calls["write_bytes"])

    def advance(self, share: float) -> None:
        self._advance(share)

    def round(self) -> None:
        self.states.append(self._now())


def on_engine(
    work: Work, load: str, params: Numbers, size: int, *, policy: Numbers | None = None, overprovision: float = 0.0,
    checkpoint_each: bool = False, analyzed: bool = True,
) -> Numbers:  # fmt: skip
    """Prepare and run a load on a fresh volume of this size; `analyzed`: with what the trace says."""
    volume, disk = fresh(size, Policy(**(policy or {})), work.setting.seed, overprovision)
    files = EngineFiles(volume, checkpoint_each)
    doing = LOADS[load](params, work.setting.seed)
    with ExitStack() as stack:
        kept = work.directory
        if kept is None and analyzed:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="f2tools-experiment-")))
        users = volume.cp.user_block_count
        doing.prepare(files)
        volume.sync()
        full = 1 - volume.statfs()["f_bfree"] / users
        if kept is not None:
            disk.log.begin(kept)
        files.calls.clear()
        watch = EngineWatch(files, disk, work.advance)
        ended = None
        try:
            doing.run(files, watch)
            volume.sync()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            ended = len(watch.states) - 1
        last = State(volume, disk, files.calls["write_bytes"])
        disk.log.end()
        found: Numbers = {
            "calls": dict(files.calls), "size_bytes": size, "user_blocks": int(users), "full": full,
            "run": last.since(watch.states[0]),
            "rounds": [b.since(a) for a, b in zip(watch.states, watch.states[1:], strict=False)],
            "enospc_in_round": ended, "segments": segments_of(volume),
        }  # fmt: skip
        if analyzed and kept is not None:
            found["trace"] = traced(str(kept), bool(params.get("map")))
        return found


def segments_of(volume: WritableVolume) -> Numbers:
    """Dirty segments by valid blocks, data and nodes apart; free and full ones."""
    segments, per = volume.segments, volume.geo.blocks_per_seg
    valid = segments.vblocks.astype(np.int64)
    dirty = (valid > 0) & (valid < per)
    nodes = segments.types >= NR_CURSEG_DATA_TYPE
    return {
        "free": int((valid == 0).sum()), "full": int((valid >= per).sum()), "dirty": int(dirty.sum()),
        "dirty_data": int((dirty & ~nodes).sum()), "blocks_per_seg": per,
        "emptied": int(((valid == 0) & (segments.mtime > 0)).sum()),
        "more_than_half": int((dirty & (valid > per // 2)).sum()),
        "histogram": np.bincount(valid[valid > 0] * BINS // (per + 1), minlength=BINS).tolist(),
    }  # fmt: skip


def traced(path: str, drawn: bool = False) -> Numbers:
    """What a block trace says of the claims: bytes and requests, 512 KiB writes, sequential ones, discards.

    `drawn`: also, as `map`, where the requests were over time; `picture_of` makes a picture of it again.
    """
    from f2tools.trace.analyze import AnalysisRequest, analyze
    from f2tools.trace.report.pictures import picture

    done = analyze(AnalysisRequest(path))
    report: dict[str, Any] = done.report
    found: Numbers = {
        name: report[name]
        for name in ("reads", "writes", "discards", "flushes", "size_512k", "small_discards", "discard_coverage")
    } | {
        "sequential": report["sequentiality"]["write"]["strict"],
        "large_512k": report["sequentiality"]["write"]["large_512k"],
        "sizes": report["sizes"]["write"]["issued"]["histogram"],
        "lost_events": report["lost_events"],
    }  # fmt: skip
    if drawn:
        at = picture(done, "address")
        assert at.pixels is not None
        found["map"] = {
            "seconds": list(at.x_range), "bytes": list(at.y_range), "shape": list(at.pixels.shape),
            "classes": {line.name: line.colour for line in at.lines},
            "pixels": base64.b64encode(zlib.compress(at.pixels.tobytes())).decode(),
        }  # fmt: skip
    return found


def picture_of(kept: Numbers, name: str, title: str) -> Picture:
    """The picture that `traced` has put into numbers; ValueError for what it never puts there."""
    from f2tools.trace.report.pictures import COLOURS

    if not set(kept["classes"].items()) <= set(COLOURS.items()) or len(kept["shape"]) != 3:
        raise ValueError("it is no picture of a trace")
    height, width, _ = kept["shape"]
    packed = zlib.decompressobj()
    size = height * width * 4
    raw = packed.decompress(base64.b64decode(kept["pixels"]), size + 1) if 0 < size <= MOST_PIXELS * 4 else b""
    pixels = np.frombuffer(raw, np.uint8).reshape(kept["shape"])
    low, high = kept["seconds"]
    bottom, top = kept["bytes"]
    return Picture(
        name, title, "raster", "seconds", "address on the device", (low, high), (bottom, top), y_size=True,
        lines=[Line(each, colour, [], []) for each, colour in kept["classes"].items()], pixels=pixels,
        note="Where several operations fall on one point, the rarer one is shown.",
    )  # fmt: skip
