"""Loads whose traffic is compared: what reaches the device, in requests of which size, and what is discarded."""

from __future__ import annotations

from collections.abc import Callable

from f2tools.experiment.loads import GIB, KIB, MIB
from f2tools.experiment.measure import picture_of
from f2tools.experiment.model import (
    NOT_REPRODUCED,
    Claim,
    Experiment,
    Numbers,
    Outcome,
    Part,
    Row,
    Setting,
    cant_tell,
    verdict,
)
from f2tools.experiment.places import load_parts, only_guest
from f2tools.guest.build import which
from f2tools.options import human_size
from f2tools.pictures.svg import Line, Picture

EMMC, SATA = 12 * GIB, 120 * GIB
NO_SPEED = "no device here has a speed; requests and bytes stand in the table"
FIO = "-fio"  # the same calls, made by fio
COLOURS = {
    "f2fs": "#0072b2", "ext4": "#d55e00", "btrfs": "#009e73", "nilfs2": "#cc79a7", f"f2fs{FIO}": "#56b4e9",
    f"ext4{FIO}": "#e69f00", "ext3": "#f0c040",
}  # fmt: skip
SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
# What the paper says of the file server: share of write requests with 512 KiB, share of what was written that is
# discarded, share of discards below 256 KiB; percent.
SHARES_512K = {"nilfs2": 78.0, "f2fs": 6.9, "btrfs": 3.8, "ext4": 0.9}
COVERAGE = {"ext4": 66.7, "btrfs": 47.0, "f2fs": 38.0}
SMALL_DISCARDS = {"btrfs": 75.0, "ext4": 60.0, "f2fs": 0.0}

# What the paper's figures have of each file system, for the tables; and the number of the figure
FIGURES = {"iozone": "3a", "apps": "3c", "videoserver": "4", "fileserver": "4", "varmail": "4", "oltp": "4"}
PAPER: dict[str, dict[str, str]] = {
    "iozone": {
        "f2fs": "random writes 3.1 times as fast as ext4", "btrfs": "1.8 times as fast", "nilfs2": "1.1 times as fast",
    },
    "videoserver": dict.fromkeys(("f2fs", "btrfs", "nilfs2"), "as fast as ext4"),
    "fileserver": {
        "f2fs": "6.9 % of the requests of 512 KiB; 38 % discarded; 2.4 times as fast as ext4",
        "ext4": "0.9 % of the requests of 512 KiB; two thirds discarded",
        "btrfs": "3.8 % of the requests of 512 KiB; 47 % discarded; 0.92 times as fast",
        "nilfs2": "78 % of the requests of 512 KiB; 1.8 times as fast",
    },
    "varmail": {"f2fs": "2.5 times as fast as ext4 on SATA, 1.8 on PCIe"},
    "oltp": {"f2fs": "1.16 times as fast as ext4 on SATA, 1.13 on PCIe"},
    "facebook": {"f2fs": "20 % less time than ext4"},
    "twitter": {"f2fs": "40 % less time than ext4"},
}  # fmt: skip

Judge = Callable[[dict[str, Numbers]], list[Claim]]


def bytes_written(numbers: Numbers) -> int:
    """Bytes that reached the device."""
    return int(numbers["trace"]["writes"]["bytes"])


def requests(numbers: Numbers) -> int:
    """Write requests with data."""
    return int(numbers["trace"]["writes"]["requests_with_data"])


def relative(found: dict[str, Numbers], name: str, of: Callable[[Numbers], int] = bytes_written) -> float | None:
    """One to ext4; None where either was not run, or not to its end."""
    both = [found.get(name), found.get("ext4")]
    if not all(both) or not of(found["ext4"]) or any(one and one.get("enospc_in_round") is not None for one in both):
        return None
    return of(found[name]) / of(found["ext4"])


def rows_of(found: dict[str, Numbers], paper: dict[str, str] | None = None) -> list[Row]:
    """What each file system sent to the device, beside what the paper has of it."""
    rows = []
    for name, numbers in found.items():
        trace = numbers["trace"]
        asked = numbers["calls"].get("write_bytes", 0)
        share = trace["size_512k"]["request_share"] or 0.0
        ratio = relative(found, name)
        here = f"{human_size(bytes_written(numbers))} written of {human_size(asked)} asked for"
        here += f" ({ratio:.2f} of ext4's)" if ratio is not None and name != "ext4" else ""
        here += f"; {requests(numbers):,} requests, {share:.1%} of 512 KiB; {trace['flushes']:,} flushes"
        discarded = trace["discards"]["bytes"]
        here += f"; {human_size(discarded)} discarded" if discarded else ""
        if numbers.get("enospc_in_round") is not None:
            here += "; ended with ENOSPC"
        rows.append(Row(name, (paper or {}).get(name, "-"), here, _why_other(numbers)))
    return rows


def _why_other(numbers: Numbers) -> str:
    kernel = numbers.get("kernel", "")
    return f"kernel {kernel}; a disk without a speed of its own" if kernel else "the engine on a simulated device"


def relative_picture(name: str, title: str, found: dict[str, Numbers]) -> list[Picture]:
    """Figures 3 and 4: each file system beside ext4.  There are no speeds, but what they come from."""
    if "ext4" not in found:
        return []
    lines = [
        Line(what, colour, [], [relative(found, fs, of) or 0.0 for fs in found])
        for what, colour, of in (("bytes", "#0072b2", bytes_written), ("requests", "#e69f00", requests))
    ]
    top = max(max(line.y) for line in lines)
    return [Picture(
        f"{name}-relative", f"{title}: what is written, ext4 = 1", "bars", "", "of ext4's", y_range=(0, top * 1.05),
        lines=lines, names=list(found), note="The paper has speeds there. No device here has one.",
    )]  # fmt: skip


def bars(name: str, title: str, names: list[str], values: list[float], unit: str) -> Picture:
    """One row of bars."""
    return Picture(
        name, title, "bars", "", unit, y_range=(0, max(values) or 1), lines=[Line(unit, "#0072b2", [], values)],
        names=names,
    )  # fmt: skip


def sizes_picture(name: str, found: dict[str, Numbers]) -> Picture:
    """Write requests by size."""
    lines = []
    for fs, numbers in found.items():
        counts: dict[int, int] = dict.fromkeys(SIZES, 0)
        for size, count in numbers["trace"]["sizes"].items():
            counts[next((kib for kib in SIZES if int(size) <= kib << 10), SIZES[-1])] += count
        whole = sum(counts.values()) or 1
        lines.append(Line(fs, COLOURS.get(fs, "#888888"), [], [count / whole * 100 for count in counts.values()]))
    top = max((max(line.y) for line in lines), default=1.0) or 1.0
    return Picture(
        f"{name}-sizes", f"{name}: write requests by size", "bars", "KiB, up to", "% of write requests",
        y_range=(0, top * 1.05), lines=lines, names=[str(kib) for kib in SIZES],
    )  # fmt: skip


def maps(name: str, found: dict[str, Numbers]) -> list[Picture]:
    """Figure 5: the block trace of each file system, where it was kept as a picture."""
    return [
        picture_of(numbers["trace"]["map"], f"{name}-trace-{fs}", f"Fig. 5: block trace of {name} on {fs}")
        for fs, numbers in found.items()
        if "map" in numbers["trace"]
    ]


def judged(name: str, judge: Judge) -> Callable[[Setting, dict[str, Numbers]], Outcome]:
    """A judge of a load: its claims, the table of traffic, the paper's figures."""

    def outcome(_setting: Setting, found: dict[str, Numbers]) -> Outcome:
        pictures = relative_picture(name, f"Fig. {FIGURES[name]}, {name}", found)
        pictures += [sizes_picture(name, found), *maps(name, found)]
        return Outcome(judge(found), rows_of(found, PAPER.get(name)), pictures)

    return outcome


# -- the claims of each load --------------------------------------------------------------------------------------


def iozone(found: dict[str, Numbers]) -> list[Claim]:
    """Random writes become large sequential ones; relative requests."""
    claims = []
    what = "over 90 % of random writes of 4 KiB reach the device as sequential writes of 512 KiB"
    for name, more in (("f2fs", ""), (f"f2fs{FIO}", ", written by fio")):
        if name in found:
            here = found[name]["trace"]["size_512k"]["at_least"]["byte_share"] or 0.0
            mean = bytes_written(found[name]) / requests(found[name]) / KIB
            why = f"write-back comes in pieces as scaled memory lets wait: requests of {mean:.0f} KiB in the mean"
            claims.append(Claim(what + more, "over 90 %", f"{here:.1%} of the bytes", verdict(here > 0.9, here > 0.5),
                                "" if here > 0.9 else f"{why}; a larger scale has larger ones"))  # fmt: skip
    what = "nilfs2 sends up to 30 % more write requests"
    if "nilfs2" in found:
        more = requests(found["nilfs2"]) / requests(found["f2fs"])
        told = verdict(1 < more <= 1.35, more > 1)
        reason = (
            "" if more > 1 else "nilfs2 of today gathers what write-back hands it into segments before it sends them"
        )
        claims.append(Claim(what, "up to 1.3 of f2fs", f"{more:.2f} of f2fs", told, reason))
    else:
        claims.append(cant_tell(what, "up to 1.3", only_guest()))
    claims.append(cant_tell("random writes: f2fs 3.1, btrfs 1.8, nilfs2 1.1 times ext4's bandwidth", "3.1, 1.8, 1.1",
                            NO_SPEED))  # fmt: skip
    return claims


def videoserver(found: dict[str, Numbers]) -> list[Claim]:
    """No difference."""
    what = "no difference between the file systems"
    if len(found) < 2:
        f2fs = found["f2fs"]
        more = bytes_written(f2fs) / f2fs["calls"]["write_bytes"]
        told = verdict(more < 1.05, more < 1.2)
        claim = Claim("F2FS writes what it is asked for", "no difference", f"{more:.3f} of it", told)
        return [claim, cant_tell(what, "none", only_guest())]
    written = [bytes_written(one) / one["calls"]["write_bytes"] for one in found.values()]
    spread = max(written) / min(written)
    here = ", ".join(f"{name} {value:.3f}" for name, value in zip(found, written, strict=True))
    return [Claim(what, "none", f"bytes to what was asked for: {here}", verdict(spread < 1.05, spread < 1.2))]


def fileserver(found: dict[str, Numbers]) -> list[Claim]:
    """Figure 5: sizes of requests, discards; each in the paper's order."""
    claims = [
        ordered("share of write requests of 512 KiB: nilfs2, f2fs, btrfs, ext4", SHARES_512K, found,
                lambda trace: trace["size_512k"]["at_least"]["request_share"]),
        ordered("share of what was written that is discarded: ext4, btrfs, f2fs", COVERAGE, found,
                lambda trace: trace["discard_coverage"]["byte_share"],
                "kernels send discards by the clock, so on a busy machine they find other blocks to discard"),
        ordered("share of discards below 256 KiB: btrfs, ext4, f2fs", SMALL_DISCARDS, found,
                lambda trace: trace["small_discards"]["issued"]["request_share"],
                "F2FS of today may discard single blocks when it is unmounted, and the trace has the unmount; ext4 "
                "and btrfs are near each other, and come in either order"),
    ]  # fmt: skip
    claims.append(cant_tell("speed on SATA: f2fs 2.4, nilfs2 1.8, btrfs 0.92 of ext4", "2.4, 1.8, 0.92", NO_SPEED))
    return claims


def ordered(
    what: str, paper: dict[str, float], found: dict[str, Numbers], share: Callable[[Numbers], float | None],
    cause: str = "",
) -> Claim:  # fmt: skip
    """Whether the file systems that were run come in the paper's order."""
    said = ", ".join(f"{name} {value:g} %" for name, value in paper.items())
    able = [name for name in paper if name in found]
    if len(able) < 2:
        return cant_tell(what, said, only_guest())
    values = {name: (share(found[name]["trace"]) or 0.0) * 100 for name in able}
    here = ", ".join(f"{name} {value:.1f} %" for name, value in values.items())
    order = [values[name] for name in able]
    same = order == sorted(order, reverse=True) and len(set(order)) == len(order)
    pairs = [order[a] > order[b] for a in range(len(order)) for b in range(a + 1, len(order))]
    reason = "" if same else f"{sum(pairs)} of {len(pairs)} pairs come in the paper's order"
    reason += f"; {cause}" if reason and cause else ""
    found_verdict = verdict(same and len(able) == len(paper), sum(pairs) * 2 > len(pairs))
    return Claim(what, said, here, found_verdict if any(order) else NOT_REPRODUCED, reason)


def fewer_bytes(what: str, paper: str) -> Judge:
    """A load that F2FS is said to be faster in: whether it also sends less."""

    def claims(found: dict[str, Numbers]) -> list[Claim]:
        told = [cant_tell(what, paper, NO_SPEED)]
        ratio, less = relative(found, "f2fs"), relative(found, "f2fs", requests)
        if ratio is not None and less is not None:
            told.append(Claim(
                "what would make it so: F2FS sends fewer requests and bytes than ext4", "-",
                f"{less:.2f} of the requests, {ratio:.2f} of the bytes", verdict(less < 1 and ratio < 1, less < 1),
            ))  # fmt: skip
        return told

    return claims


# -- parts --------------------------------------------------------------------------------------------------------


def iozone_parts(setting: Setting) -> list[Part]:
    """One file; on a kernel fio writes it once more, where it is installed."""
    size, volume = setting.bytes(GIB, 16 * MIB), setting.bytes(EMMC, 256 * MIB)
    parts = load_parts(setting, "iozone", {"file_bytes": size}, volume)
    if setting.place != "engine" and which("fio"):
        again = load_parts(setting, "iozone", {"file_bytes": size, "fio": True}, volume)
        parts += [Part(f"{one.name}{FIO}", one.function, one.given) for one in again if one.name in ("f2fs", "ext4")]
    return parts


def apps_parts(setting: Setting) -> list[Part]:
    """Both mixes are small as they are."""
    found: list[Part] = []
    for name, files, size in (("facebook", 579, 852 * KIB), ("twitter", 177, int(3.3 * MIB))):
        params = {"files": files, "bytes": size}
        parts = load_parts(setting, "apps", params, setting.bytes(EMMC, 256 * MIB))
        found += [Part(f"{name}-{part.name}", part.function, part.given, part.weight) for part in parts]
    return found


def judge_apps(_setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """The two mixes apart."""
    claims, rows, pictures = [], [], []
    for name, less in (("facebook", "20 %"), ("twitter", "40 %")):
        mine = {key.removeprefix(f"{name}-"): one for key, one in found.items() if key.startswith(name)}
        claims += fewer_bytes(f"{name}: F2FS takes {less} less time than ext4", less)(mine)
        rows += [Row(f"{name}, {row.what}", row.paper, row.here, row.why) for row in rows_of(mine, PAPER[name])]
        pictures += [*relative_picture(name, f"Fig. 3c, {name}", mine), sizes_picture(name, mine)]
    return Outcome(claims, rows, pictures)


def videoserver_parts(setting: Setting) -> list[Part]:
    """Sizes are scaled, numbers stay."""
    params = {"files": 64, "file_bytes": setting.bytes(GIB), "threads": 48}
    return load_parts(setting, "videoserver", params, setting.bytes(SATA, 256 * MIB))


def fileserver_params(setting: Setting) -> Numbers:
    """The file server's numbers."""
    files = setting.count(80_000, 64)
    return {"files": files, "width": 200, "file_bytes": 128 * KIB, "append_bytes": 16 * KIB, "loops": 2 * files}


def fileserver_parts(setting: Setting) -> list[Part]:
    """Numbers are scaled, sizes stay."""
    params = fileserver_params(setting)
    return load_parts(setting, "fileserver", {**params, "map": True}, setting.bytes(SATA, 256 * MIB))


def varmail_parts(setting: Setting) -> list[Part]:
    """As many mails as a share of the paper's; enough loops for all to be replaced."""
    files = setting.count(8_000, 100)
    params = {"files": files, "directories": 4, "file_bytes": 16 * KIB, "loops": max(4 * files, 1_000)}
    return load_parts(setting, "varmail", params, setting.bytes(SATA, 256 * MIB))


def oltp_parts(setting: Setting) -> list[Part]:
    """Ten tables."""
    params = {"files": 10, "file_bytes": setting.bytes(800 * MIB), "writes": 4_000, "reads_per_write": 2}
    return load_parts(setting, "oltp", params, setting.bytes(SATA, 256 * MIB))


_LOADS: dict[str, tuple[str, str, str, Callable[[Setting], list[Part]], Judge]] = {
    "iozone": ("A file written at random in pieces of 4 KiB", "3.2.1, fig. 3a",
               "one file of 1 GB on an eMMC partition of 12 GB", iozone_parts, iozone),
    "videoserver": ("Large files written by many threads", "3.2.2, fig. 4", "64 files of 1 GB, 48 threads, 20 % reads",
                    videoserver_parts, videoserver),
    "fileserver": ("Files made, lengthened, read and deleted", "3.2.2, fig. 4 and 5",
                   "80,000 files of 128 KB, 50 threads, 70 % writes, no fsync", fileserver_parts, fileserver),
    "varmail": ("Small files made safe", "3.2.2, fig. 4", "8,000 files of 16 KB, 16 threads, fsync",
                varmail_parts, fewer_bytes("speed: f2fs 2.5 times ext4 on SATA, 1.8 on PCIe", "2.5, 1.8")),
    "oltp": ("Blocks of large files written at random and made safe", "3.2.2, fig. 4",
             "10 files of 800 MB, 200 threads, random writes with fsync", oltp_parts,
             fewer_bytes("speed: f2fs 1.16 times ext4 on SATA, 1.13 on PCIe", "1.16, 1.13")),
}  # fmt: skip
PLACES = ("engine", "guest", "mounted")
EXPERIMENTS = {
    name: Experiment(name, title, f"F2FS paper, {section}", setup, PLACES, parts, judged(name, judge))
    for name, (title, section, setup, parts, judge) in _LOADS.items()
} | {
    "apps": Experiment(
        "apps", "The system calls of two phone applications", "F2FS paper, 3.2.1, fig. 3c",
        "replayed calls of Facebook (579 files, 852 KB) and Twitter (177 files, 3.3 MB), 1 % reads, fsync", PLACES,
        apps_parts, judge_apps,
    )
}  # fmt: skip
