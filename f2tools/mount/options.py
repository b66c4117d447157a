"""The options of `f2tools mount -o`, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from f2tools.errors import Usage

# what the kernel or mount(8) knows and passes on in an fstab line; no affair of ours
IGNORED = {
    "rw", "defaults", "auto", "noauto", "user", "nouser", "users", "nofail", "_netdev", "default_permissions", "async",
    "group", "owner", "silent", "loud", "lazytime", "nolazytime", "diratime", "nodiratime", "iversion", "noiversion",
    "mand", "nomand", "acl", "user_xattr", "inline_xattr", "inline_data", "inline_dentry",
    "flush_merge",
}  # fmt: skip
COMMIT_MAX = 86400
FOR_KERNEL = {"allow_other", "allow_root", "nodev", "dev", "nosuid", "suid", "noexec", "exec", "dirsync"}


@dataclass(frozen=True)
class MountOptions:
    """How a volume is mounted."""

    read_only: bool = False
    norecovery: bool = False
    checkpoint: Literal["newest", "older"] = "newest"
    as_of: str | None = None
    sync: bool = False
    writeback_cache: bool = False
    commit_seconds: float = 5.0
    background_gc: bool = True
    active_logs: int = 6
    discard: bool = True
    fsync_mode: Literal["posix", "strict"] = "posix"
    uid: int | None = None
    gid: int | None = None
    umask: int = 0
    atime: Literal["relatime", "noatime", "strictatime"] = "relatime"
    overlay: str | None = None
    for_kernel: frozenset[str] = field(default_factory=frozenset)


def parse_options(texts: tuple[str, ...] | list[str]) -> MountOptions:
    """Options of every `-o a,b=c`; Usage for what is unknown or contradicts itself."""
    values: dict[str, object] = {}
    for_kernel: set[str] = set()
    for word in (word for text in texts for word in text.split(",") if word):
        name, has_value, value = word.partition("=")
        if name in FOR_KERNEL and not has_value:
            for_kernel.add(name)
        elif name in IGNORED or name.startswith("x-"):
            if word == "rw":
                values["read_only"] = False
        else:
            values |= _parse(name, value if has_value else None)
    if values.get("checkpoint") == "older" or values.get("norecovery") or values.get("as_of"):
        values["read_only"] = True
    return MountOptions(for_kernel=frozenset(for_kernel), **values)  # type: ignore[arg-type]


SWITCHES: dict[str, dict[str, object]] = {
    "ro": {"read_only": True},
    "norecovery": {"norecovery": True},
    "disable_roll_forward": {"norecovery": True},
    "sync": {"sync": True},
    "writeback_cache": {"writeback_cache": True},
    "discard": {"discard": True},
    "nodiscard": {"discard": False},
    "noatime": {"atime": "noatime"},
    "relatime": {"atime": "relatime"},
    "strictatime": {"atime": "strictatime"},
}
CHOICES: dict[str, dict[str, object]] = {
    "checkpoint": {"older": "older", "newest": "newest", "enable": "newest"},
    "background_gc": {"on": True, "off": False},
    "fsync_mode": {"posix": "posix", "strict": "strict"},
    "active_logs": {"2": 2, "4": 4, "6": 6},
}


def _parse(name: str, value: str | None) -> dict[str, object]:
    if name in SWITCHES:
        if value is not None:
            raise Usage(f"-o {name}: takes no value")
        return SWITCHES[name]
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise Usage(f"-o {name}={value or ''}: one of {', '.join(CHOICES[name])} is needed")
        return {name: CHOICES[name][value]}
    if name == "as-of":
        if not value:
            raise Usage("-o as-of=CP_VER|TIME: a checkpoint version or a time is needed")
        return {"as_of": value}
    if name == "overlay":
        if not value:
            raise Usage("-o overlay=FILE: a file is needed")
        return {name: value}
    if name == "commit":
        if not (value or "").isascii() or not (value or "").isdigit() or not 0 < int(value or "") <= COMMIT_MAX:
            raise Usage(f"-o commit={value or ''}: seconds are needed, from 1 to {COMMIT_MAX}")
        return {"commit_seconds": float(value or "")}
    if name in ("uid", "gid", "umask"):
        try:
            number = int(value or "", 8 if name == "umask" else 10)
        except ValueError:
            number = -1
        if not 0 <= number <= (0o777 if name == "umask" else 0xFFFFFFFE):
            raise Usage(f"-o {name}={value or ''}: a number is needed")
        return {name: number}
    raise Usage(f"-o {name}: there is no such option")
