"""Multi-head logging: how full dirty segments are after a mixed load, with 2, 4 and 6 logs."""

from __future__ import annotations

from fractions import Fraction

from f2tools.experiment.loads import GIB, KIB, MIB
from f2tools.experiment.measure import BINS, on_engine
from f2tools.experiment.model import (
    CANT_BE_TOLD,
    Claim,
    Experiment,
    Numbers,
    Outcome,
    Part,
    Row,
    Setting,
    Work,
    verdict,
)
from f2tools.pictures.svg import Line, Picture

LOGS = (2, 4, 6)
COLOURS = ("#d55e00", "#e69f00", "#0072b2")
LEAST = Fraction(1, 32)  # of the paper; less fills too few segments for a distribution
MAIL, MAILS, DIRECTORIES, WRITTEN = 16 * KIB, 10_000, 100, int(6.5 * GIB)
PICTURES, PICTURE = 5_000, 500 * KIB
COPIED_EACH = 8  # bytes of pictures for one of mail while copying goes on; the paper says that both ran at once
COPYING = "logs-2-copying"
FEW = 2  # segments that are no difference
ENDS = 2  # bins at each end


def part(work: Work, logs: int, copying: bool = False) -> Numbers:
    """One number of logs; `copying`: only as long as pictures are copied."""
    asked = work.setting
    setting = Setting(max(asked.scale, LEAST), asked.on, asked.fs, asked.seed)
    params = {
        "files": setting.count(MAILS), "directories": setting.count(DIRECTORIES), "file_bytes": MAIL,
        "loops": setting.count(WRITTEN // (2 * MAIL)), "pictures": setting.count(PICTURES), "picture_bytes": PICTURE,
        "copied_each": COPIED_EACH,
    }  # fmt: skip
    if copying:
        params["loops"] = -(-params["pictures"] * PICTURE // (COPIED_EACH * 2 * MAIL))
    size = setting.bytes(40 * GIB, 256 * MIB)
    return on_engine(
        work, "multihead", params, size, policy={"active_logs": logs, "ipu": "never"}, overprovision=5.0, analyzed=False
    )


def parts(setting: Setting) -> list[Part]:
    """Each number of logs; 2 logs also as they are when the copying ends."""
    whole = [Part(f"logs-{logs}", part, {"logs": logs}, 3.0 if logs == 2 else 1.0) for logs in LOGS]
    return [*whole, Part(COPYING, part, {"logs": 2, "copying": True}, 0.3)]


def more_than_half(numbers: Numbers) -> float:
    """Share of the dirty segments with more valid blocks than half."""
    segments = numbers["segments"]
    return segments["more_than_half"] / max(1, segments["dirty"])


def at_the_ends(numbers: Numbers) -> float:
    """Share of the segments that were written to which are nearly empty or nearly full, or quite so."""
    segments = numbers["segments"]
    counts = segments["histogram"]
    inside = sum(counts[:ENDS]) + sum(counts[-ENDS:]) + segments["emptied"]
    return inside / max(1, sum(counts) + segments["emptied"])


def judge(setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """Figure 6: where the dirty segments are."""
    two, four, six = (found[f"logs-{logs}"] for logs in LOGS)
    half = [more_than_half(one) for one in (two, four, six)]
    ends = [at_the_ends(one) for one in (two, four, six)]
    full = two["segments"]["full"] / max(1, two["segments"]["full"] + two["segments"]["dirty"])
    data = two["segments"]["dirty_data"] / max(1, two["segments"]["dirty"])
    claims = [
        Claim("2 logs: over 75 % of dirty segments have more than 256 valid blocks", "over 75 %", f"{half[0]:.1%}",
              verdict(half[0] > 0.75, half[0] > 0.5),
              f"it is {more_than_half(found[COPYING]):.1%} when the copying ends; then come segments of mails only, "
              "which are deleted again, and the paper does not say how long that went on"),
        Claim("2 logs: nearly no segment is full", "nearly none", f"{full:.1%} of the segments in use",
              verdict(full < 0.05, full < six_full(six))),
        Claim("2 logs: 85 % of the dirty segments are data", "85 %", f"{data:.1%}",
              verdict(0.75 <= data <= 0.95, data > 0.5)),
        _four(two, four, half),
        Claim("6 logs: clearly bimodal, many segments at 0 and at 512", "bimodal",
              f"{ends[2]:.1%} of the segments are in the outer {2 * ENDS} of {BINS} bins, with 2 logs {ends[0]:.1%}",
              verdict(ends[2] > 0.6 and ends[2] > ends[0], ends[2] > ends[0])),
    ]  # fmt: skip
    rows = [
        Row(f"{logs} logs", "-", f"{one['segments']['dirty']} dirty, {one['segments']['full']} full, "
            f"{one['segments']['emptied']} emptied again; {share:.1%} of the dirty ones more than half full",
            "mails as Filebench's distribution has them, deleted at random; no cleaner ran")
        for logs, one, share in zip(LOGS, (two, four, six), half, strict=True)
    ]  # fmt: skip
    return Outcome(claims, rows, [picture([two, four, six])])


def _four(two: Numbers, four: Numbers, half: list[float]) -> Claim:
    what = "4 logs: more dirty segments than with 2 have fewer than 256 valid blocks"
    here = f"{1 - half[1]:.1%} against {1 - half[0]:.1%}"
    few = FEW / max(1, min(two["segments"]["dirty"], four["segments"]["dirty"]))
    if abs(half[0] - half[1]) <= few:
        why = "4 logs set directories and indirect nodes apart, which are few in a scaled load"
        return Claim(what, "somewhat more", here, CANT_BE_TOLD, f"{why}: that is {FEW} segments or fewer either way")
    return Claim(what, "somewhat more", here, verdict(half[1] < half[0], False))


def six_full(numbers: Numbers) -> float:
    """Share of full segments among those in use."""
    segments = numbers["segments"]
    return segments["full"] / max(1, segments["full"] + segments["dirty"])


def picture(found: list[Numbers]) -> Picture:
    """Figure 6: segments by valid blocks, in percent of those written to."""
    lines = []
    for logs, numbers, colour in zip(LOGS, found, COLOURS, strict=True):
        counts = [numbers["segments"]["emptied"], *numbers["segments"]["histogram"]]
        whole = max(1, sum(counts))
        lines.append(Line(f"{logs} logs", colour, [], [count / whole * 100 for count in counts]))
    step = 512 // BINS
    return Picture(
        "multihead", "Fig. 6: segments by valid blocks", "bars", "valid blocks in a segment, from",
        "% of the segments written to", y_range=(0, max(max(line.y) for line in lines)), lines=lines,
        names=["0", *(str(max(1, n * step)) for n in range(BINS))],
    )  # fmt: skip


EXPERIMENT = Experiment(
    "multihead", "Multi-head logging: how full dirty segments are", "F2FS paper, 3.2.3, fig. 6",
    "varmail with 10,000 files in 100 directories until 6.5 GB are written, beside copying 5,000 pictures of 500 KB; "
    "2, 4 and 6 logs",
    ("engine",), parts, judge,
)  # fmt: skip
