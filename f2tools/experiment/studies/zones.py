"""Logs in zones of their own: what a set-associative translation layer merges when the six logs lie apart, or mixed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from f2tools.experiment.engine import EngineFiles, fresh
from f2tools.experiment.loads import GIB, KIB, LOADS, MIB
from f2tools.experiment.measure import EngineWatch
from f2tools.experiment.model import Claim, Experiment, Numbers, Outcome, Part, Row, Setting, Work, verdict
from f2tools.f2fs.write.volume import Policy
from f2tools.pictures.svg import Line, Picture

MODELS = ("set", "fast", "bast")
ZONES = (1, 6)
PAGE = 4096
VOLUME, WRITTEN = 8 * GIB, 10 * GIB  # so that segments are used again


def part(work: Work) -> Numbers:
    """One mixed load traced, then through each model with the logs in one zone and in six."""
    from f2tools.ftl.models import Setting as Flash
    from f2tools.ftl.relocation import Relocation
    from f2tools.ftl.replay import ReplayPlan, simulate_trace
    from f2tools.ftl.trace_input import TraceInput

    setting = work.setting
    params = {
        "files": setting.count(10_000, 100), "directories": setting.count(100, 4), "file_bytes": 16 * KIB,
        "loops": setting.count(WRITTEN // (32 * KIB), 1_000), "pictures": setting.count(5_000, 40),
        "picture_bytes": 500 * KIB, "copied_each": 1,
    }  # fmt: skip
    volume, disk = fresh(setting.bytes(VOLUME, 128 * MIB), Policy(ipu="never"), setting.seed, 5.0)
    files, load = EngineFiles(volume), LOADS["multihead"](params, setting.seed)
    found: Numbers = {"runs": []}
    with tempfile.TemporaryDirectory(prefix="f2tools-experiment-") as name:
        path = work.directory or Path(name)
        disk.log.begin(path)
        load.prepare(files)
        volume.sync()
        load.run(files, EngineWatch(files, disk, lambda share: work.advance(share * 0.7)))
        volume.sync()
        disk.log.end()
        logs = volume.segments.types.astype(np.int8)
        geo = volume.geo
        first, size = geo.main_blkaddr * PAGE, geo.blocks_per_seg * PAGE
        for model in MODELS:
            for zones in ZONES:
                source = TraceInput((str(path),), PAGE, None, Relocation(first, size, logs, PAGE, zones))
                flash = Flash(model, blocks=None, pages_per_block=256, op=0.07, seed=setting.seed)
                report = simulate_trace(flash, source, ReplayPlan("none"), "auto", lambda _: None).report
                found["runs"].append({"model": model, "zones": zones, **report})
                work.advance(0.3 / len(MODELS) / len(ZONES))
    return found


def parts(setting: Setting) -> list[Part]:
    """The models share a trace."""
    return [Part("logs", part)]


def _merges(run: Numbers) -> int:
    return int(run["merges"]["full"])


def judge(_setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """Whether zones of their own save merges."""
    runs = {(one["model"], one["zones"]): one for one in found["logs"]["runs"]}
    one, six = runs["set", 1], runs["set", 6]
    claims = [
        Claim("with the logs in separate zones a set-associative layer has fewer full merges", "less to collect",
              f"{_merges(one)} in one zone, {_merges(six)} in six", verdict(_merges(six) < _merges(one), False)),
        Claim("with the logs in separate zones a set-associative layer writes less", "less",
              f"WAF {one['waf']:.3f} in one zone, {six['waf']:.3f} in six",
              verdict(six["waf"] < one["waf"], six["waf"] <= one["waf"])),
    ]  # fmt: skip
    rows = [
        Row(f"{model}, {zones} zone{'s' * (zones > 1)}", "-", f"WAF {run['waf']:.3f}, {_merges(run)} full merges",
            "the paper argues this in section 2.4 and gives no number")
        for (model, zones), run in runs.items()
    ]  # fmt: skip
    lines = [
        Line(f"{zones} zone{'s' * (zones > 1)}", colour, [], [runs[model, zones]["waf"] or 0.0 for model in MODELS])
        for zones, colour in zip(ZONES, ("#d55e00", "#0072b2"), strict=True)
    ]
    top = max(max(line.y) for line in lines)
    picture = Picture(
        "zones", "Write amplification of the flash by zones of the logs", "bars", "translation layer",
        "pages written per page asked for", y_range=(0, top), lines=lines, names=list(MODELS),
    )  # fmt: skip
    return Outcome(claims, rows, [picture])


EXPERIMENT = Experiment(
    "zones", "Logs in separate zones over a set-associative translation layer", "F2FS paper, 2.4",
    "argued, not measured: logs in zones of their own fit the sets of the layer below", ("engine",), parts, judge,
)  # fmt: skip
