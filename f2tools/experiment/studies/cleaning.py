"""Cleaning cost: what is written beyond what was asked for on a full volume, with and without adaptive logging."""

from __future__ import annotations

from typing import Any

from f2tools.experiment.engine import EngineFiles, fresh
from f2tools.experiment.loads import GIB, LOADS
from f2tools.experiment.measure import EngineWatch, State, on_engine
from f2tools.experiment.model import Claim, Experiment, Numbers, Outcome, Part, Row, Setting, Work, cant_tell, verdict
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy
from f2tools.pictures.svg import Line, Picture

FULL = (80.0, 90.0, 95.0, 97.5)  # per cent of what users may have
COLD = 60.0  # of which so much is never touched
ROUNDS, ROUND_BYTES, VOLUME = 10, 20 * GIB, 120 * GIB
OVERPROVISION = 5.0
NAMES = {True: "adaptive", False: "append"}
LABELS = {True: "adaptive logging", False: "append logging only"}
COLOURS = ("#0072b2", "#009e73", "#e69f00", "#d55e00")
MOST, LEAST = 1.025, 3.0  # the paper's bounds of the write amplification at 97.5 %
NEARLY_ALL = 0.95
# For the simulator: a volume of one region that is overwritten once; so far apart the two may be
SIMULATED, SIMULATED_FULL, SAME, NEAR = 512 << 20, 85.0, 0.05, 0.15


def part(work: Work, full: float, adaptive: bool) -> Numbers:
    """One share of the volume in use, one way of logging."""
    setting = work.setting
    params = {
        "cold": COLD, "hot": full - COLD, "rounds": ROUNDS, "round_bytes": setting.bytes(ROUND_BYTES),
    }  # fmt: skip
    size = setting.bytes(VOLUME, 256 << 20)
    return on_engine(
        work, "cleaning", params, size, policy={"adaptive": adaptive}, overprovision=OVERPROVISION, analyzed=False
    )


def simulator(work: Work, adaptive: bool) -> Numbers:
    """What `clean --simulate` says of a volume and a load, and what the engine then does with both."""
    from f2tools.clean.simulate import Load as Model
    from f2tools.clean.simulate import Setting as Way
    from f2tools.clean.simulate import simulate

    volume, disk = fresh(SIMULATED, Policy(adaptive=adaptive), work.setting.seed, OVERPROVISION)
    files = EngineFiles(volume)
    whole = int(files.free() * SIMULATED_FULL / 100)
    load = LOADS["cleaning"]({"cold": 0.0, "hot": SIMULATED_FULL, "rounds": 1, "round_bytes": whole}, work.setting.seed)
    load.prepare(files)
    volume.sync()
    (said,) = simulate(Volume(disk), Model(seed=work.setting.seed), [Way("greedy", 6, adaptive)])
    watch = EngineWatch(files, disk, work.advance)
    load.run(files, watch)
    volume.sync()
    did = State(volume, disk, 0).since(watch.states[0])
    host = did["data_blocks"] - did["moved_data"]
    return {
        "simulator": {"waf": said.waf, "waf_all": said.waf_all, "data_blocks": said.data_blocks},
        "engine": {"waf": did["data_blocks"] / host, "waf_all": did["main_blocks"] / host, "data_blocks": host},
    }  # fmt: skip


def parts(setting: Setting) -> list[Part]:
    """Every share in use, both ways; the simulator beside the engine."""
    found = [
        Part(f"{NAMES[adaptive]}-{full:g}", part, {"full": full, "adaptive": adaptive}, 1.0 if adaptive else 1.5)
        for full in FULL
        for adaptive in (True, False)
    ]
    return found + [
        Part(f"simulator-{NAMES[adaptive]}", simulator, {"adaptive": adaptive}, 0.2) for adaptive in (True, False)
    ]


def waf(counted: Numbers) -> float:
    """Blocks written for users and moved by cleaning, to blocks written for users, as the paper has it."""
    host = counted["data_blocks"] - counted["moved_data"]
    return (host + counted["moved_data"] + counted["moved_nodes"]) / host if host else 0.0


def waf_all(counted: Numbers) -> float:
    """All bytes that reached the device, nodes and checkpoints too, to bytes of users."""
    host = (counted["data_blocks"] - counted["moved_data"]) * 4096
    return counted["write_bytes"] / host if host else 0.0


def judge(setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """The bounds at 97.5 %, the order of the shares, threaded logging after the third round."""
    by: dict[tuple[float, bool], Numbers] = {
        (full, adaptive): found[f"{NAMES[adaptive]}-{full:g}"] for full in FULL for adaptive in (True, False)
    }
    with_, without = waf(by[97.5, True]["run"]), waf(by[97.5, False]["run"])
    worst = max(waf(by[full, True]["run"]) for full in FULL)
    appended = [waf(by[full, False]["run"]) for full in FULL]
    rising = appended == sorted(appended)
    late = by[97.5, True]["rounds"][3:]
    threaded = sum(r["threaded_blocks"] for r in late) / max(1, sum(r["data_blocks"] for r in late))
    moved_data = sum(r["moved_data"] for r in late)
    claims = [
        Claim("WAF with adaptive logging is at most 1.025 up to 97.5 % in use", "at most 1.025 (1.02 at 97.5 %)",
              f"at most {worst:.3f} ({with_:.3f} at 97.5 %)", verdict(worst <= MOST, with_ < without),
              "" if worst <= MOST else "cleaning moved more than the paper's"),
        Claim("WAF without adaptive logging is over 3 at 97.5 %", "over 3", f"{without:.3f}",
              verdict(without > LEAST, without > with_), ""),
        Claim("WAF without adaptive logging rises with the share in use", "rises from 80 to 97.5 %",
              ", ".join(f"{value:.2f}" for value in appended), verdict(rising, appended[-1] > appended[0])),
        Claim("After the third run nearly all data goes through threaded logging", "nearly all",
              f"{threaded:.1%} of the data blocks of runs 4 to 10 at 97.5 %",
              verdict(threaded >= NEARLY_ALL, threaded > 0.5)),
        Claim("After the third run only node segments are cleaned", "no data is moved",
              f"{moved_data} data blocks moved in runs 4 to 10 at 97.5 %", verdict(moved_data == 0, moved_data < 1000)),
        cant_tell("97.5 % in use is about 30 % slower than 80 %", "about 30 %",
                  "the simulated device has no speed; the requests it got stand in the table"),
        cant_tell("10 minutes without load between runs give 10 % at 90 %", "10 %",
                  "the engine cleans when room runs out and has no background thread"),
        *_simulated(found),
    ]  # fmt: skip
    return Outcome(claims, _rows(by), _pictures(by))


def _simulated(found: dict[str, Numbers]) -> list[Claim]:
    """Whether the simulator of cleaning says what the engine does."""
    claims = []
    for adaptive in (True, False):
        one = found[f"simulator-{NAMES[adaptive]}"]
        said, did = one["simulator"], one["engine"]
        apart = max(abs(said[name] / did[name] - 1) for name in ("waf", "waf_all"))
        claims.append(Claim(
            f"The simulator of `clean --simulate` says what the engine does, {LABELS[adaptive]}", "of no paper",
            f"WAF {said['waf']:.3f} and {did['waf']:.3f}, with nodes {said['waf_all']:.3f} and {did['waf_all']:.3f}",
            verdict(apart <= SAME, apart <= NEAR),
            f"{apart:.1%} apart, on a volume of {SIMULATED >> 20} MiB, {SIMULATED_FULL:g} % in use, overwritten once",
        ))  # fmt: skip
    return claims


def _rows(by: dict[tuple[float, bool], Numbers]) -> list[Row]:
    paper: dict[tuple[float, bool], str] = {(97.5, True): "1.02", (97.5, False): "over 3"}
    rows = []
    for (full, adaptive), numbers in by.items():
        run = numbers["run"]
        mean = run["write_bytes"] / max(run["writes"], 1) / 1024
        rows.append(Row(
            f"WAF at {full:g} %, {LABELS[adaptive]}", paper.get((full, adaptive), "at most 1.025" if adaptive else "-"),
            f"{waf(run):.3f}; with nodes and checkpoints {waf_all(run):.3f}; {run['writes']} write requests of "
            f"{mean:.0f} KiB",
            WHY[adaptive],
        ))  # fmt: skip
    return rows


WHY = {
    True: "the engine makes holes usable by a checkpoint before data would have to be moved, so none is",
    False: "greedy cleaning; every block of the hot region is as likely to be written as another, and the volume is "
           "smaller",
}  # fmt: skip


def _pictures(by: dict[tuple[float, bool], Numbers]) -> list[Picture]:
    pictures = []
    for adaptive in (True, False):
        lines = []
        for full, colour in zip(FULL, COLOURS, strict=True):
            rounds: list[Any] = by[full, adaptive]["rounds"]
            lines.append(Line(f"{full:g} %", colour, [], [waf(one) for one in rounds]))
        top = max(1.1, *(value for line in lines for value in line.y))
        pictures.append(Picture(
            f"cleaning-{NAMES[adaptive]}", f"Fig. 7: write amplification by run, {LABELS[adaptive]}", "bars",
            "run", "blocks written per block of a user", y_range=(0, top), lines=lines,
            names=[str(n + 1) for n in range(max(len(line.y) for line in lines))],
        ))  # fmt: skip
    return pictures


EXPERIMENT = Experiment(
    "cleaning", "Cleaning cost on a volume that is nearly full", "F2FS paper, 3.2.4, fig. 7",
    "120 GB of an SSD of 250 GB; 60 % cold data, 20 to 37.5 % hot; ten runs of 20 GB of random writes of 4 KiB to the "
    "hot region",
    ("engine",), parts, judge,
)  # fmt: skip
