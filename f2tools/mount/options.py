"""The options of `f2tools mount -o`, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from f2tools.errors import Usage
from f2tools.fuse.options import CHOICES, SWITCHES, ServeOptions, parse_words


@dataclass(frozen=True)
class MountOptions(ServeOptions):
    """How a volume is mounted."""

    norecovery: bool = False
    checkpoint: Literal["newest", "older"] = "newest"
    as_of: str | None = None
    active_logs: int = 6
    fsync_mode: Literal["posix", "strict"] = "posix"
    overlay: str | None = None


OWN_IGNORED = {  # the kernel's, and always so here
    "inline_xattr", "inline_data", "inline_dentry", "flush_merge", "quota", "usrquota", "grpquota", "prjquota",
}  # fmt: skip
OWN_SWITCHES: dict[str, dict[str, object]] = {
    "norecovery": {"norecovery": True},
    "disable_roll_forward": {"norecovery": True},
}
OWN_CHOICES: dict[str, dict[str, object]] = {
    "checkpoint": {"older": "older", "newest": "newest", "enable": "newest"},
    "fsync_mode": {"posix": "posix", "strict": "strict"},
    "active_logs": {"2": 2, "4": 4, "6": 6},
}


def parse_options(texts: tuple[str, ...] | list[str]) -> MountOptions:
    """Options of every `-o a,b=c`; Usage for what is unknown or contradicts itself."""
    values = parse_words(texts, SWITCHES | OWN_SWITCHES, CHOICES | OWN_CHOICES, OWN_IGNORED, _with_value)
    if values.get("checkpoint") == "older" or values.get("norecovery") or values.get("as_of"):
        values["read_only"] = True
    return MountOptions(**values)  # type: ignore[arg-type]


def _with_value(name: str, value: str | None) -> dict[str, object] | None:
    if name == "as-of":
        if not value:
            raise Usage("-o as-of=CP_VER|TIME: a checkpoint version or a time is needed")
        return {"as_of": value}
    if name == "overlay":
        if not value:
            raise Usage("-o overlay=FILE: a file is needed")
        return {name: value}
    return None
