"""Which experiments there are.  Each is named here with where its module is, and imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from f2tools.errors import Usage

if TYPE_CHECKING:
    from f2tools.experiment.model import Experiment

_STUDIES = "f2tools.experiment.studies"

# name: (module with EXPERIMENT, or EXPERIMENTS by name; what it is about)
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "iozone": (f"{_STUDIES}.traffic", "Random writes of 4 KiB, and what of them reaches the device."),
    "sqlite": (f"{_STUDIES}.fsync", "Bytes that SQLite's transactions cost."),
    "apps": (f"{_STUDIES}.traffic", "The calls of two phone applications."),
    "videoserver": (f"{_STUDIES}.traffic", "Large files written by many threads."),
    "fileserver": (f"{_STUDIES}.traffic", "Files made, lengthened, read and deleted: sizes of requests, discards."),
    "varmail": (f"{_STUDIES}.traffic", "Small files made safe."),
    "oltp": (f"{_STUDIES}.traffic", "Blocks of large files written at random and made safe."),
    "multihead": (f"{_STUDIES}.multihead", "How full dirty segments are with 2, 4 and 6 logs."),
    "cleaning": (f"{_STUDIES}.cleaning", "Cleaning cost on a volume that is nearly full."),
    "adaptive-fileserver": (f"{_STUDIES}.adaptive", "The file server on a volume that is 94 % full."),
    "adaptive-iozone": (f"{_STUDIES}.adaptive", "Random writes on a volume that is full."),
    "fsync": (f"{_STUDIES}.fsync", "Roll-forward recovery against a checkpoint for each fsync."),
    "zones": (f"{_STUDIES}.zones", "Logs in separate zones over a set-associative translation layer."),
    "dfs": (f"{_STUDIES}.dfs", "DFS over a storage layer: reads for an address, requests beside other file systems."),
    "dffs": (f"{_STUDIES}.dffs", "DFFS on raw flash: pages that mount, open and changes read and write."),
}


def experiment(name: str) -> Experiment:
    """An experiment by name; Usage where there is none."""
    if name not in EXPERIMENTS:
        raise Usage(f"there is no experiment {name!r}; `f2tools experiment list` names them")
    module = import_module(EXPERIMENTS[name][0])
    return module.EXPERIMENT if hasattr(module, "EXPERIMENT") else module.EXPERIMENTS[name]
