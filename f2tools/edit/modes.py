"""Permissions, owners, flags, times and values as users write them."""

from __future__ import annotations

import base64
import re

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DIRSYNC_FL,
    F2FS_IMMUTABLE_FL,
    F2FS_NOATIME_FL,
    F2FS_NOCOMP_FL,
    F2FS_NODUMP_FL,
    F2FS_PROJINHERIT_FL,
    F2FS_SYNC_FL,
)
from f2tools.volumes import MOST_ID

FLAG_LETTERS = {
    "a": F2FS_APPEND_FL, "i": F2FS_IMMUTABLE_FL, "A": F2FS_NOATIME_FL, "d": F2FS_NODUMP_FL, "c": F2FS_COMPR_FL,
    "m": F2FS_NOCOMP_FL, "S": F2FS_SYNC_FL, "D": F2FS_DIRSYNC_FL, "F": F2FS_CASEFOLD_FL, "P": F2FS_PROJINHERIT_FL,
}  # fmt: skip
SETTABLE_FLAGS = sum(FLAG_LETTERS.values())
_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[ugo]|[rwxXst]*))+)")
_ACTION = re.compile(r"([-+=])([ugo]|[rwxXst]*)")
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_THEIRS = {"u": 0o4700, "g": 0o2070, "o": 0o1007}
_NAMED = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}
_SET_IDS = 0o6000


def change_mode(text: str, mode: int, is_dir: bool, umask: int = 0o022) -> int:
    """The permissions after chmod with `755` or `u+rwX,go-w`; Usage for what chmod(1) does not know.

    As that of GNU: a directory keeps its set-ID bits unless they are named, by `s` or by a fifth digit.
    """
    if re.fullmatch(r"[0-7]+", text):
        value = int(text, 8)
        if value > 0o7777:
            raise Usage(f"{text!r} is no mode")
        return value | (mode & _SET_IDS if is_dir and len(text) < 5 else 0)
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise Usage(f"{text!r} is no mode; write it like 644 or u+rwX,go-w")
        who = match[1].replace("a", "ugo")
        for sign, letters in _ACTION.findall(match[2]):
            mode = _act(mode, who, sign, letters, is_dir, umask)
    return mode


def _act(mode: int, who: str, sign: str, letters: str, is_dir: bool, umask: int) -> int:
    """Of nobody in particular, all is cleared that `=` does not set, and the umask's bits are neither set nor taken."""
    theirs = sum(_THEIRS[whom] for whom in set(who)) if who else 0o7777
    bits = _bits_of(mode, letters, is_dir) & (theirs if who else ~umask)
    kept = _SET_IDS & ~bits if is_dir else 0
    if sign == "+":
        return mode | bits
    if sign == "-":
        return mode & ~bits
    return mode & (~theirs | kept) | bits


def _bits_of(mode: int, letters: str, is_dir: bool) -> int:
    """What letters stand for, for everybody."""
    if letters in _SHIFTS:
        return (mode >> _SHIFTS[letters] & 7) * 0o111
    bits = sum(_NAMED[letter] for letter in set(letters) - {"X"})
    return bits | (0o111 if "X" in letters and (is_dir or mode & 0o111) else 0)


def parse_owner(text: str) -> tuple[int | None, int | None]:
    """(uid, gid) of `1000:100`, `1000` or `:100`; None for what stays."""
    match = re.fullmatch(r"(\d*)(?::(\d*))?", text)
    if match is None or not text.strip(":"):
        raise Usage(f"{text!r} is no owner; write it in numbers, like 1000:100, 1000 or :100")
    values = tuple(int(part) if part else None for part in match.groups())
    if any(value is not None and value > MOST_ID for value in values):
        raise Usage(f"{text!r}: ids go up to {MOST_ID}")
    return values[0], values[1]


def parse_new_owner(text: str) -> tuple[int, int]:
    """(uid, gid) of new files; without a group, the one of the same number."""
    uid, gid = parse_owner(text)
    if uid is None:
        raise Usage(f"{text!r}: say UID:GID")
    return uid, uid if gid is None else gid


def change_flags(text: str, flags: int) -> int:
    """The flags after chattr with `+i`, `-a` or `=dA`."""
    if not re.fullmatch(rf"[-+=][{''.join(FLAG_LETTERS)}]*", text):
        raise Usage(f"{text!r}: flags are {''.join(FLAG_LETTERS)}, after + (set), - (clear) or = (set these only)")
    chosen = 0
    for letter in text[1:]:
        chosen |= FLAG_LETTERS[letter]
    if text[0] == "+":
        return flags | chosen
    return flags & ~chosen if text[0] == "-" else flags & ~sum(FLAG_LETTERS.values()) | chosen


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of `@1700000000.5` or `2024-03-01T12:00:00Z`, which is UTC with and without the Z."""
    match = re.fullmatch(r"@(-?\d{1,11})(?:\.(\d{1,9}))?", text)
    if match is not None:
        return int(match[1]) * 10**9 + int((match[2] or "0").ljust(9, "0"))
    from datetime import UTC, datetime

    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{text!r} is no time; write it like 2024-03-01T12:00:00 (UTC) or @1709294400") from None
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    seconds = int(when.timestamp() // 1)
    return seconds * 10**9 + when.microsecond * 1000


def parse_value(text: str) -> bytes:
    """The value of an attribute as getfattr writes it: text, `0x` and hexadecimal, `0s` and base64."""
    try:
        if text[:2] in ("0x", "0X"):
            return bytes.fromhex(text[2:])
        if text[:2] in ("0s", "0S"):
            return base64.b64decode(text[2:], validate=True)
    except ValueError:
        raise Usage(f"{text!r}: not hexadecimal after 0x, or not base64 after 0s") from None
    return text.encode("utf-8", "surrogateescape")
