"""The options of a mount that concern how it is served, whatever file system it is; each adds its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from typing import Literal

from f2tools.errors import Usage
from f2tools.lazy import dataclass
from f2tools.volumes import MOST_ID

# options of the kernel or mount(8) that an fstab line passes on; ignored here
IGNORED = {
    "rw", "defaults", "auto", "noauto", "user", "nouser", "users", "nofail", "_netdev", "default_permissions", "async",
    "group", "owner", "silent", "loud", "lazytime", "nolazytime", "diratime", "nodiratime", "iversion", "noiversion",
    "mand", "nomand", "acl", "user_xattr",
}  # fmt: skip
COMMIT_MAX = 86400
FOR_KERNEL = {"allow_other", "allow_root", "nodev", "dev", "nosuid", "suid", "noexec", "exec", "dirsync"}


@dataclass(frozen=True)
class ServeOptions:
    """How a file system is served; `server` is None for any available one."""

    server: Literal["pyfuse3", "direct"] | None = None
    read_only: bool = False
    sync: bool = False
    writeback_cache: bool = False
    commit_seconds: float = 5.0
    background_gc: bool = True
    discard: bool = True
    uid: int | None = None
    gid: int | None = None
    umask: int = 0
    atime: Literal["relatime", "noatime", "strictatime"] = "relatime"
    for_kernel: frozenset[str] = field(default_factory=frozenset)


SWITCHES: dict[str, dict[str, object]] = {
    "ro": {"read_only": True},
    "sync": {"sync": True},
    "writeback_cache": {"writeback_cache": True},
    "discard": {"discard": True},
    "nodiscard": {"discard": False},
    "noatime": {"atime": "noatime"},
    "relatime": {"atime": "relatime"},
    "strictatime": {"atime": "strictatime"},
}
SERVERS = "pyfuse3", "direct"
CHOICES: dict[str, dict[str, object]] = {
    "server": {name: name for name in SERVERS},
    "background_gc": {"on": True, "off": False},
}


def with_server_word(words: Iterable[str], server: str | None) -> list[str]:
    """The words of every -o, and with them what --server says; Usage where the two contradict each other."""
    words = list(words)
    said = {word for text in words for word in text.split(",") if word.startswith("server=")}
    if server is not None and said - {f"server={server}"}:
        raise Usage(f"--server {server} and -o {','.join(sorted(said))} contradict each other")
    return [*words, *([] if server is None else [f"server={server}"])]


def parse_words(
    texts: Iterable[str],
    switches: dict[str, dict[str, object]] = SWITCHES,
    choices: dict[str, dict[str, object]] = CHOICES,
    ignored: Collection[str] = (),
    more: Callable[[str, str | None], dict[str, object] | None] = lambda name, value: None,
) -> dict[str, object]:
    """The fields of ServeOptions, or of a class made from it, that every `-o a,b=c` sets; Usage for what is unknown.

    `more` knows further options with a value, and answers None where it doesn't.
    """
    values: dict[str, object] = {}
    for_kernel: set[str] = set()
    for word in (word for text in texts for word in text.split(",") if word):
        name, has_value, value = word.partition("=")
        if name in FOR_KERNEL and not has_value:
            for_kernel.add(name)
        elif name in IGNORED or name in ignored or name.startswith("x-"):
            if word == "rw":
                values["read_only"] = False
        elif name in switches:
            if has_value:
                raise Usage(f"-o {name}: takes no value")
            values |= switches[name]
        elif name in choices:
            if value not in choices[name]:
                raise Usage(f"-o {name}={value}: one of {', '.join(choices[name])} is needed")
            values[name] = choices[name][value]
        else:
            found = more(name, value if has_value else None)
            values |= _with_value(name, value) if found is None else found
    return values | {"for_kernel": frozenset(for_kernel)}


def _with_value(name: str, value: str) -> dict[str, object]:
    if name == "commit":
        if not value.isascii() or not value.isdigit() or not 0 < int(value) <= COMMIT_MAX:
            raise Usage(f"-o commit={value}: seconds are needed, from 1 to {COMMIT_MAX}")
        return {"commit_seconds": float(value)}
    if name in ("uid", "gid", "umask"):
        try:
            number = int(value, 8 if name == "umask" else 10)
        except ValueError:
            number = -1
        if not 0 <= number <= (0o777 if name == "umask" else MOST_ID):
            raise Usage(f"-o {name}={value}: a number is needed")
        return {name: number}
    raise Usage(f"-o {name}: there is no such option")
