"""What people write on a command line or in a script: places, owners, modes, flags, ACLs, times; lines into words."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from f2tools.errors import Usage

MOST_ID = 0xFFFFFFFE  # the one above means nobody at all to the kernel
FLAG_LETTERS = {  # as chattr(1) has them
    "S": 0x8, "i": 0x10, "a": 0x20, "d": 0x40, "A": 0x80, "c": 0x4, "m": 0x400, "D": 0x10000, "P": 0x20000000,
    "F": 0x40000000,
}  # fmt: skip
SETTABLE = sum(FLAG_LETTERS.values())
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
_TAGS = {
    "u": (USER_OBJ, USER), "user": (USER_OBJ, USER), "g": (GROUP_OBJ, GROUP), "group": (GROUP_OBJ, GROUP),
    "m": (MASK, MASK), "mask": (MASK, MASK), "o": (OTHER, OTHER), "other": (OTHER, OTHER),
}  # fmt: skip
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "a": b"\a", "b": b"\b", "e": b"\x1b", "0": b"\0"}


@dataclass(frozen=True)
class Place:
    """A path in an image; an empty `image` is the one that is at hand."""

    image: str
    path: bytes


def parse_place(text: str) -> Place | None:
    """The place that IMAGE:/PATH or :/PATH names; None for anything else, such as a path of the host."""
    found: list[int] = []
    at = text.find(":/")
    while at >= 0:
        found.append(at)
        at = text.find(":/", at + 1)
    if not found:
        return Place(text[:-1], b"/") if text.endswith(":") else None
    cut = next((at for at in found if at and not os.path.isdir(text[:at]) and os.path.exists(text[:at])), found[0])
    return Place(text[:cut], os.fsencode(text[cut + 1 :]))


def parse_owner(text: str) -> tuple[int | None, int | None]:
    """(uid, gid) of UID, UID:GID, :GID; None is as it was.  Usage for names: only a running system knows them."""
    match = re.fullmatch(r"(\d*)(?::(\d*))?", text)
    if match is None or not (match[1] or match[2]):
        raise Usage(f"{text!r}: an owner is UID, UID:GID or :GID, in numbers")
    uid, gid = (int(part) if part else None for part in match.groups())
    if max(uid or 0, gid or 0) > MOST_ID:
        raise Usage(f"{text!r}: ids go up to {MOST_ID}")
    return uid, gid


def parse_creator(text: str | None) -> tuple[int, int]:
    """(uid, gid) that new files get; root's where nothing is said."""
    uid, gid = parse_owner(text) if text is not None else (0, 0)
    if uid is None:
        raise Usage(f"{text!r}: say UID:GID")
    return uid, uid if gid is None else gid


class Mode:
    """A mode as chmod(1) takes it: `0644`, `u+rwX,go=`."""

    def __init__(self, text: str) -> None:
        self._absolute = int(text, 8) if re.fullmatch(r"[0-7]{1,5}", text) else None
        if self._absolute is not None and self._absolute > 0o7777:
            raise Usage(f"{text!r}: a mode goes up to 7777")
        self._clauses: list[tuple[str, list[tuple[str, str]]]] = []
        for clause in text.split(",") if self._absolute is None else ():
            match = re.fullmatch(r"([ugoa]*)((?:[-+=](?:[rwxXst]*|[ugo]))+)", clause)
            if match is None:
                raise Usage(f"{text!r}: not a mode; write it like 0644 or u+rw,go-w")
            self._clauses.append((match[1], re.findall(r"([-+=])([rwxXst]+|[ugo]|)", match[2])))

    def of(self, mode: int, is_dir: bool, umask: int) -> int:
        """The permissions that follow from those that are there."""
        if self._absolute is not None:
            return self._absolute
        mode &= 0o7777
        for who, actions in self._clauses:
            for sign, letters in actions:
                mode = self._changed(mode, is_dir, umask, who, sign, letters)
        return mode

    @staticmethod
    def _changed(mode: int, is_dir: bool, umask: int, who: str, sign: str, letters: str) -> int:
        classes = "ugo" if not who or "a" in who else who
        mask = sum(0o7 << {"u": 6, "g": 3, "o": 0}[one] for one in set(classes))
        special = (0o4000 if "u" in classes else 0) | (0o2000 if "g" in classes else 0)
        special |= 0o1000 if not who or "a" in who or "o" in who else 0
        if letters in ("u", "g", "o") and letters:
            bits = (mode >> {"u": 6, "g": 3, "o": 0}[letters] & 0o7) * 0o111
        else:
            bits = sum({"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}.get(one, 0) for one in letters)
            if "X" in letters and (is_dir or mode & 0o111):
                bits |= 0o111
        bits &= mask | special
        if not who:
            bits &= ~umask
        if sign == "+":
            return mode | bits
        if sign == "-":
            return mode & ~bits
        kept = mode & ~mask & ~(special if not is_dir else special & bits | 0)
        if is_dir:  # chmod(1) keeps set-id bits of directories that are not named
            kept |= mode & special & 0o6000
        return kept | bits


def parse_flags(text: str) -> tuple[str, int]:
    """('+', flags) of `+ci`; '-' and '=' likewise."""
    sign, letters = text[:1], text[1:]
    unknown = sorted(set(letters) - FLAG_LETTERS.keys())
    if sign not in ("+", "-", "=") or unknown or (not letters and sign != "="):
        raise Usage(f"{text!r}: write +, - or = and letters of {''.join(FLAG_LETTERS)}")
    return sign, sum(FLAG_LETTERS[one] for one in set(letters))


def parse_value(text: str) -> bytes:
    """The value of an extended attribute: 0x... is hexadecimal, 0s... base64, all else stands for itself."""
    try:
        if text[:2] in ("0x", "0X"):
            return bytes.fromhex(text[2:])
        if text[:2] in ("0s", "0S"):
            return base64.b64decode(text[2:], validate=True)
    except (ValueError, binascii.Error):
        raise Usage(f"{text!r}: neither hexadecimal after 0x nor base64 after 0s") from None
    return os.fsencode(text)


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of @SECONDS[.FRACTION] or 2024-03-01[T12:00:00[+01:00]], UTC where no zone is named."""
    match = re.fullmatch(r"@(-?)(\d{1,10})(?:\.(\d{1,9}))?", text)
    if match is not None:
        whole = int(match[2]) * 1_000_000_000 + int((match[3] or "0").ljust(9, "0"))
        return -whole if match[1] else whole
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{text!r}: write a time like 2024-03-01T12:00:00 or @1709294400") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)
    since = when - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


class AclRule(NamedTuple):
    """An entry of an ACL; `perm` is None where one is to be removed."""

    default: bool
    tag: int
    id: int
    perm: int | None


def parse_acl(text: str, default: bool, removing: bool = False) -> list[AclRule]:
    """The entries of `u:1000:rw,g::r,m::rx,o::-`, each after `d:` for the default ACL; ids are numbers."""
    rules: list[AclRule] = []
    for entry in text.split(","):
        parts = entry.strip().split(":")
        of_default = default
        if parts[0] in ("d", "default"):
            of_default, parts = True, parts[1:]
        if len(parts) == 2 and not removing and parts[0] in ("m", "mask", "o", "other"):
            parts = [parts[0], "", parts[1]]
        if removing and len(parts) < 3:
            parts = [*parts, ""] if len(parts) == 2 else [*parts, "", ""]
        if len(parts) != 3 or parts[0] not in _TAGS or not re.fullmatch(r"\d*", parts[1]):
            raise Usage(f"{entry!r}: an ACL entry is like u:1000:rw, g::r-x, m::rwx or o::-, ids in numbers")
        own, named = _TAGS[parts[0]]
        if parts[1] and (own == named or int(parts[1]) > MOST_ID):
            raise Usage(f"{entry!r}: mask and other name nobody, and ids go up to {MOST_ID}")
        tag, number = (named, int(parts[1])) if parts[1] else (own, 0xFFFFFFFF)
        rules.append(AclRule(of_default, tag, number, None if removing else _perm(entry, parts[2])))
    return rules


def _perm(entry: str, text: str) -> int:
    if re.fullmatch(r"[0-7]", text):
        return int(text)
    if not text or set(text) - set("rwx-"):
        raise Usage(f"{entry!r}: permissions are letters of rwx, or -")
    return sum({"r": 4, "w": 2, "x": 1}[one] for one in set(text) - {"-"})


def with_rules(entries: Sequence[tuple[int, int, int]], rules: Sequence[AclRule]) -> list[tuple[int, int, int]]:
    """(tag, perm, id) entries after changes, sorted; the mask is computed anew where no rule sets it."""
    kept = {(tag, number): perm for tag, perm, number in entries}
    for rule in rules:
        if rule.perm is not None:
            kept[rule.tag, rule.id] = rule.perm
        elif rule.tag not in (USER_OBJ, GROUP_OBJ, OTHER):
            kept.pop((rule.tag, rule.id), None)
    named = any(tag in (USER, GROUP) for tag, _ in kept)
    key = MASK, 0xFFFFFFFF
    if not any(rule.tag == MASK and rule.perm is not None for rule in rules) and (named or key in kept):
        union = 0
        for (tag, _), perm in kept.items():
            union |= perm if tag in (USER, GROUP_OBJ, GROUP) else 0
        if named:
            kept[key] = union
        elif any(rule.tag == MASK for rule in rules) or not named:
            kept.pop(key, None)
    return [(tag, perm, number) for (tag, number), perm in sorted(kept.items())]


def words_of(line: str) -> list[str]:
    """A line into words as a shell does, with '...', "...", $'...' and backslashes; `#` at a word's start ends it.

    $'...' knows \\n, \\t, \\xHH and octal, so that a script can name any byte.  Usage for a quote that is left open.
    """
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(line):
        one = line[at]
        if one in " \t\r\n\f\v":
            if word is not None:
                words.append("".join(word))
                word = None
            at += 1
            continue
        if one == "#" and word is None:
            break
        word = [] if word is None else word
        if one == "$" and line[at + 1 : at + 2] == "'":
            text, at = _ansi(line, at + 2)
        elif one == "'":
            end = line.find("'", at + 1)
            text, at = line[at + 1 : end], _closed(end)
        elif one == '"':
            text, at = _double(line, at + 1)
        elif one == "\\":
            text, at = line[at + 1 : at + 2], at + 2
        else:
            text, at = one, at + 1
        word.append(text)
    if word is not None:
        words.append("".join(word))
    return words


def _closed(end: int) -> int:
    if end < 0:
        raise Usage("a quote is left open")
    return end + 1


def _double(line: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(line):
        if line[at] == '"':
            return "".join(parts), at + 1
        if line[at] == "\\" and line[at + 1 : at + 2] in ('"', "\\", "$", "`"):
            at += 1
        parts.append(line[at : at + 1])
        at += 1
    raise Usage("a quote is left open")


def _ansi(line: str, at: int) -> tuple[str, int]:
    raw = bytearray()
    while at < len(line):
        if line[at] == "'":
            return os.fsdecode(bytes(raw)), at + 1
        match = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-3]?[0-7]{1,2})|(.))").match(line, at)
        if match is None:
            raw += os.fsencode(line[at])
            at += 1
            continue
        if match[1] or match[2]:
            raw.append(int(match[1], 16) if match[1] else int(match[2], 8))
        else:
            raw += _ESCAPES.get(match[3], os.fsencode(match[3]))
        at = match.end()
    raise Usage("a quote is left open")
