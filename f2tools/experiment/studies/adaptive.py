"""Adaptive logging on a volume that is nearly or quite full, in rounds: the file server, and random writes."""

from __future__ import annotations

from f2tools.experiment.loads import GIB, MIB
from f2tools.experiment.model import Claim, Experiment, Numbers, Outcome, Part, Row, Setting, cant_tell, verdict
from f2tools.experiment.places import APPENDING, load_parts, only_guest
from f2tools.experiment.studies.traffic import COLOURS, NO_SPEED, PLACES, SATA, fileserver_params
from f2tools.options import human_size
from f2tools.pictures.svg import Line, Picture

FULL, ROUNDS = 94.0, 4
PER_ROUND = 4  # a round writes this part of the file set: Filebench's 60 s at some 50 MB/s; the paper does not say
LONG, LATE, LATE_PERCENT = "-long", "f2fs-late", 1.0  # rounds of the whole file set; threaded logging begins later
IOZONE_FILES, IOZONE_VOLUME, IOZONE_ROUND, IOZONE_ROUNDS = 16, 64 * GIB, 512 * MIB, 10
WHY_FULL = {"nilfs2": "its cleaner frees nothing that is younger than an hour, and was not started"}
MORE, THREADED, NEAR = 1.27, 0.51, 0.1
NOT_MOUNTED = "what is mounted stays as it is; --on guest and a spare device have F2FS that never fills holes"
OTHER_COLOURS = {**COLOURS, APPENDING: "#56b4e9"}


def fileserver_parts(setting: Setting) -> list[Part]:
    """Each file system, and F2FS that never fills holes; on the engine longer rounds and a later threshold too."""
    files = fileserver_params(setting)
    size = setting.bytes(SATA, 256 * MIB)

    def parts(per_round: int, **engine: Numbers) -> list[Part]:
        params = {**files, "loops": max(1, files["files"] // per_round), "full": FULL, "rounds": ROUNDS}
        return load_parts(setting, "adaptive-fileserver", params, size, (APPENDING,), **engine)

    found = parts(PER_ROUND)
    if setting.on == "engine":
        found += [Part(f"{one.name}{LONG}", one.function, one.given) for one in parts(1)]
        late = parts(PER_ROUND, policy={"min_free_percent": LATE_PERCENT})[0]
        found.append(Part(LATE, late.function, late.given))
    return found


def iozone_parts(setting: Setting) -> list[Part]:
    """The same, random writes."""
    params = {"files": IOZONE_FILES, "rounds": IOZONE_ROUNDS, "round_bytes": setting.bytes(IOZONE_ROUND)}
    return load_parts(setting, "adaptive-iozone", params, setting.bytes(IOZONE_VOLUME, 256 * MIB), (APPENDING,))


def written(numbers: Numbers) -> int:
    """Bytes that reached the device in all rounds."""
    return int(numbers["trace"]["writes"]["bytes"])


def judge_fileserver(_setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """How much more append only writes, and how much goes into holes."""
    f2fs = found["f2fs"]
    claims = [_more(found)]
    claims.append(_threaded(f2fs, found))
    claims.append(cant_tell("round 2 is slower than round 1: ext4 17 %, btrfs 22 %, f2fs 22 %, append only 48 %",
                            "17, 22, 22, 48 %", NO_SPEED))  # fmt: skip
    return Outcome(claims, _rows(found), [_picture("adaptive-fileserver", "Fig. 8a: bytes written by round", found)])


def _threaded(f2fs: Numbers, found: dict[str, Numbers]) -> Claim:
    what = "51 % of the writes are threaded"
    if "threaded_blocks" in f2fs["run"]:
        run = f2fs["run"]
        share, of, why = run["threaded_blocks"] / max(1, run["main_blocks"]), "the main area", _threaded_why(found)
    elif "blocks_by_way" in f2fs:
        ways = f2fs["blocks_by_way"]
        share, of = ways["SSR"] / max(1, sum(ways.values())), "the main area, as the kernel counts them"
        why = f"it begins when free sections run low; {1 - f2fs['full']:.1%} of the volume were free at first"
    else:
        return cant_tell(what, "51 %", "this kernel does not tell; the engine does")
    return Claim(what, "51 %", f"{share:.1%} of the blocks of {of}",
                 verdict(abs(share - THREADED) <= NEAR, share > 0.1), why)  # fmt: skip


def _more(found: dict[str, Numbers]) -> Claim:
    what = "append only writes 27 % more"
    if APPENDING not in found:
        return cant_tell(what, "1.27", NOT_MOUNTED)
    f2fs, append = found["f2fs"], found[APPENDING]
    more = written(append) / written(f2fs)
    ended = append.get("enospc_in_round") is not None or f2fs.get("enospc_in_round") is not None
    told = verdict(abs(more - MORE) <= NEAR and not ended, more > 1)
    return Claim(what, "1.27", f"{more:.2f}", told, _why(append, found))


def _why(append: Numbers, found: dict[str, Numbers]) -> str:
    run = append["run"]
    if "moved_data" not in run:
        pairs = zip(append["rounds"], found["f2fs"]["rounds"], strict=False)
        ratios = ", ".join(f"{one['write_bytes'] / max(1, other['write_bytes']):.2f}" for one, other in pairs)
        return f"by round {ratios}: it writes more from where the free segments are used up and cleaning begins"
    why = f"cleaning moved {run['moved_data']} data blocks beside {run['data_blocks'] - run['moved_data']} of users"
    if f"f2fs{LONG}" in found:
        more = written(found[APPENDING + LONG]) / written(found[f"f2fs{LONG}"])
        why += f"; it is {more:.2f} when a round writes the whole file set; the paper does not say how long rounds are"
    return why


def _threaded_why(found: dict[str, Numbers]) -> str:
    if LATE not in found:
        return ""
    run = found[LATE]["run"]
    share = run["threaded_blocks"] / max(1, run["main_blocks"])
    return (
        f"it begins when 5 % of the sections are free beside the reserve; if it begins at 1 % the share is {share:.1%}"
    )


def judge_iozone(_setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """Who ends with ENOSPC; what each round costs."""
    claims = []
    for name in ("btrfs", "nilfs2"):
        what = f"{name} ends with ENOSPC"
        if name not in found:
            claims.append(cant_tell(what, "ENOSPC", only_guest()))
            continue
        here = ended_with(found[name])
        claims.append(Claim(what, "ENOSPC", here or "no", verdict(bool(here), False), WHY_FULL.get(name, "")))
    what = "append only writes far more than adaptive from round 3 on (its speed is below 5 % of ext4's)"
    f2fs, append = found["f2fs"]["rounds"], found.get(APPENDING, {"rounds": []})["rounds"]
    late = [_round_cost(append, n) / _round_cost(f2fs, n) for n in range(2, min(len(f2fs), len(append)))]
    if not late:
        why = "it had no room in round 3" if APPENDING in found else NOT_MOUNTED
        claims.append(cant_tell(what, "below 5 %", why))
    else:
        least = min(late)
        claims.append(Claim(
            what, "below 5 %",
            f"at least {least:.1f} times the bytes of adaptive logging in each round", verdict(False, least > 1.5),
            "that it is slower because it writes more can be seen, by how much can't: " + NO_SPEED,
        ))  # fmt: skip
    claims.append(cant_tell("ext4 falls by 75 %; adaptive begins above ext4 and comes to its speed", "75 %", NO_SPEED))
    return Outcome(claims, _rows(found), [_picture("adaptive-iozone", "Fig. 8b: bytes written by round", found)])


def ended_with(numbers: Numbers) -> str:
    """When the volume had no room left; nothing where it always had."""
    ended = numbers.get("enospc_in_round")
    if numbers.get("enospc_before"):
        return "ENOSPC while the volume was filled"
    return "" if ended is None else f"ENOSPC in round {ended + 1}"


def _round_cost(rounds: list[Numbers], n: int) -> int:
    return max(1, int(rounds[n]["write_bytes"]))


def _rows(found: dict[str, Numbers]) -> list[Row]:
    rows = []
    for name, numbers in found.items():
        rounds = ", ".join(f"{one['write_bytes'] / MIB:.0f}" for one in numbers["rounds"])
        asked = numbers["calls"].get("write_bytes", 0)
        end = f"; {ended}" if (ended := ended_with(numbers)) else ""
        full = f"{numbers['full']:.1%} full at first; " if "full" in numbers else ""
        rows.append(Row(name, "-", f"{full}{human_size(written(numbers))} written of "
                        f"{human_size(asked)} asked for; MiB by round: {rounds or 'none'}{end}",
                        "the volume is smaller, its reserve is not"))  # fmt: skip
    return rows


def _picture(name: str, title: str, found: dict[str, Numbers]) -> Picture:
    most = max(len(numbers["rounds"]) for numbers in found.values())
    lines = []
    for fs, numbers in found.items():
        values = [one["write_bytes"] / MIB for one in numbers["rounds"]]
        lines.append(Line(fs, OTHER_COLOURS.get(fs, "#888888"), [], values + [0.0] * (most - len(values))))
    top = max((max(line.y, default=0.0) for line in lines), default=1.0) or 1.0
    return Picture(name, title, "bars", "round", "MiB written to the device", y_range=(0, top), lines=lines,
                   names=[str(n + 1) for n in range(most)])  # fmt: skip


EXPERIMENTS = {
    "adaptive-fileserver": Experiment(
        "adaptive-fileserver", "The file server on a volume that is 94 % full", "F2FS paper, 3.2.5, fig. 8a",
        "a volume 94 % full, the file server four times", PLACES, fileserver_parts, judge_fileserver,
    ),
    "adaptive-iozone": Experiment(
        "adaptive-iozone", "Random writes on a volume that is full", "F2FS paper, 3.2.5, fig. 8b",
        "sixteen files of 4 GB that fill the volume; 512 MB of random writes of 4 KiB to each, ten times", PLACES,
        iozone_parts, judge_iozone,
    ),
}  # fmt: skip
