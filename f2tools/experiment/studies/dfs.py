"""DFS over a virtualized storage layer: what an address costs, what holes and deleting do, and requests beside others'.

The article compares with ext3 on the same device; the guest has ext3 for that.  Its loads are those of `f2tools dfs
report`, whose calls are written down once and played to each file system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from f2tools.dfs.layout import ROOT_INO
from f2tools.dfs.report import LOADS, measure
from f2tools.experiment.loads import MIB
from f2tools.experiment.model import (
    Claim,
    Experiment,
    Numbers,
    Outcome,
    Part,
    Row,
    Setting,
    Work,
    cant_tell,
    verdict,
)
from f2tools.experiment.ondfs import on_dfs
from f2tools.experiment.places import load_parts, only_guest
from f2tools.experiment.studies.traffic import COLOURS, PLACES
from f2tools.options import human_size
from f2tools.pictures.svg import Line, Picture

if TYPE_CHECKING:
    from f2tools.dfs.write import WritableVolume

SIZE = 256 * MIB  # the loads are small as they are; less is too little for some of the file systems
ALIKE = "ext3"  # what the article compares with; the driver of ext4 mounts it
DFS_COLOUR, ALIKE_COLOUR = "#56b4e9", "#e69f00"
EIGHTH = 8.0
RATIOS = "quicksort 1.54, n-gram 2.47, KNNImpute 1.22, VM update 1.07, TPC-H 1.22"


class Written:
    """What is called of a volume, written down for `loads.Replay`: paths stand for the numbers."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self._paths = {ROOT_INO: ""}

    def _at(self, parent: int, name: bytes) -> str:
        above = self._paths[parent]
        return f"{above}/{name.decode()}" if above else name.decode()

    def _new(self, call: str, path: str) -> int:
        self.calls.append([call, path])
        ino = ROOT_INO + len(self._paths)
        self._paths[ino] = path
        return ino

    def create(self, parent: int, name: bytes, _mode: int) -> int:
        return self._new("create", self._at(parent, name))

    def mkdir(self, parent: int, name: bytes, _mode: int) -> int:
        return self._new("mkdir", self._at(parent, name))

    def write(self, ino: int, offset: int, data: bytes) -> int:
        self.calls.append(["write", self._paths[ino], offset, len(data)])
        return len(data)

    def fsync(self, ino: int) -> None:
        self.calls.append(["fsync", self._paths[ino]])

    def unlink(self, parent: int, name: bytes) -> None:
        self.calls.append(["unlink", self._at(parent, name)])


def calls_of(load: Callable[[WritableVolume], int]) -> list[list[Any]]:
    """What a load of the report calls."""
    written = Written()
    load(cast("WritableVolume", written))  # which has all of it that they use
    return written.calls


def article(work: Work) -> Numbers:
    """What `f2tools dfs report` measures."""
    found = measure().as_dict()
    work.advance(1.0)
    return found


def parts(setting: Setting) -> list[Part]:
    """The report's figures, and the same calls on DFS and on each file system that can be had there."""
    params = {"rounds": [calls_of(load) for load in LOADS.values()]}
    alike = (ALIKE,) if setting.on == "guest" else ()
    given = {"load": "replay", "params": params, "size": SIZE}
    return [Part("article", article), Part("dfs", on_dfs, given), *load_parts(setting, "replay", params, SIZE, alike)]


def sent(numbers: Numbers, name: str) -> list[int]:
    """Requests or bytes by load."""
    return [int(one[name]) for one in numbers["rounds"]]


def judge(_setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """What the article argues from addresses, and what it measured."""
    here = found["article"]
    systems = {name: numbers for name, numbers in found.items() if name != "article"}
    reads = list(here["reads_per_block"].values())
    before = ", ".join(str(count) for count in here["f2fs_node_reads"].values())
    offsets = ", ".join(human_size(int(offset)) for offset in here["reads_per_block"])
    written = len(reads)
    claims = [
        Claim("a block of a file is one read at any offset, with no index before it", "one read",
              f"{', '.join(map(str, reads))} at {offsets}; F2FS reads {before} nodes before it",
              verdict(set(reads) == {1}, max(reads) < 3)),
        Claim("a sparse file takes what is written to it", "blocks that were written",
              f"{here['sparse_blocks']} blocks of {human_size(here['sparse_size'])}, {written} written",
              verdict(here["sparse_blocks"] == written, here["sparse_blocks"] < 2 * written)),
        Claim("deleting gives all of it back to the layer", "all",
              f"{here['given_back_by_delete']} of {here['mapped_by_file']} blocks with the inode",
              verdict(here["given_back_by_delete"] == here["mapped_by_file"], here["given_back_by_delete"] > 0)),
        _size_of_code(here["lines"]),
        cant_tell("direct reads 94,000 and writes 71,000 a second, close to the device", "94,000; 71,000",
                  "no device here has a speed; a block is one request"),
        _random(systems["dfs"]),
        cant_tell("applications are faster than on ext3", RATIOS,
                  "no device here has a speed, and their data can't be had; the calls of the table stand for them"),
        _alike(systems),
    ]  # fmt: skip
    return Outcome(claims, _rows(systems), _pictures(here, systems))


def _size_of_code(lines: dict[str, int]) -> Claim:
    times = lines["f2fs"] / lines["dfs"]
    return Claim(
        "the file system is an eighth of ext3's code", "1/8 of ext3",
        f"1/{times:.1f} of the F2FS of f2tools: {lines['dfs']} lines and {lines['f2fs']}; the layer {lines['layer']}",
        verdict(times >= EIGHTH, times > 1), "another file system to compare with, and another language",
    )  # fmt: skip


def _random(dfs: Numbers) -> Claim:
    names = list(LOADS)
    at = names.index("random, 4 KiB each")
    asked = sum(call[0] == "write" for call in calls_of(LOADS[names[at]]))
    each = sent(dfs, "writes")[at] / asked
    more = sent(dfs, "write_bytes")[at] / (asked * 4096)
    return Claim(
        "what would make it so: random writes of 4 KiB reach the device one after the other", "-",
        f"{each:.2f} requests for a write, {more:.3f} of the bytes, the layer's own records with them",
        verdict(each < 0.1 and more < 1.1, each <= 1.1),
        "the layer appends; requests that follow each other are one, up to 512 KiB",
    )  # fmt: skip


def _alike(systems: dict[str, Numbers]) -> Claim:
    what = f"what would make it so: fewer requests than {ALIKE} for the same calls"
    if ALIKE not in systems:
        return cant_tell(what, "-", only_guest(f"{ALIKE} and the others"))
    ratios = [
        mine / max(1, theirs)
        for mine, theirs in zip(sent(systems["dfs"], "writes"), sent(systems[ALIKE], "writes"), strict=True)
    ]
    here = "; ".join(f"{name}: {ratio:.2f}" for name, ratio in zip(LOADS, ratios, strict=True))
    fewer = sum(ratio < 1 for ratio in ratios)
    return Claim(what, "-", here, verdict(fewer == len(ratios), fewer * 2 > len(ratios)),
                 "write requests to its own; a kernel gathers in memory what DFS sends at once")  # fmt: skip


def _rows(systems: dict[str, Numbers]) -> list[Row]:
    rows = []
    for name, numbers in systems.items():
        where = f"kernel {numbers['kernel']}, virtual disk" if "kernel" in numbers else "simulated device"
        for load, one in zip(LOADS, numbers["rounds"], strict=True):
            here = f"{one['writes']} write requests, {one['write_bytes']} bytes, {one['flushes']} flushes"
            rows.append(Row(f"{name}, {load}", "-", here, where))
    return rows


def _pictures(here: Numbers, systems: dict[str, Numbers]) -> list[Picture]:
    offsets = [human_size(int(offset)) for offset in here["reads_per_block"]]
    nodes = [count + 1.0 for count in here["f2fs_node_reads"].values()]
    reads = [Line("dfs", DFS_COLOUR, [], [float(count) for count in here["reads_per_block"].values()]),
             Line("f2fs, by its tree", COLOURS["f2fs"], [], nodes)]  # fmt: skip
    pictures = [
        Picture("dfs-reads", "Reads for one block of a file, by its offset", "bars", "offset in the file", "reads",
                y_range=(0, max(nodes)), lines=reads, names=offsets)
    ]  # fmt: skip
    for name, title, label, unit in (("writes", "Write requests by load", "requests", 1),
                                     ("write_bytes", "Bytes written by load", "MiB", MIB)):  # fmt: skip
        colours = {**COLOURS, "dfs": DFS_COLOUR, ALIKE: ALIKE_COLOUR}
        lines = [Line(fs, colours.get(fs, "#888888"), [], [count / unit for count in sent(numbers, name)])
                 for fs, numbers in systems.items()]  # fmt: skip
        top = max(max(line.y) for line in lines) or 1.0
        pictures.append(Picture(f"dfs-{name.replace('_', '-')}", title, "bars", "load", label, y_range=(0, top),
                                lines=lines, names=list(LOADS)))  # fmt: skip
    return pictures


EXPERIMENT = Experiment(
    "dfs", "DFS over a virtualized storage layer", "DFS article (FAST '10), 3 and 4",
    "a file system on the virtualized flash storage layer of an ioDrive, beside ext3 on the same device", PLACES, parts,
    judge,
)  # fmt: skip
