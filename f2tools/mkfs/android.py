"""What an Android build says about the files of an image: SELinux labels (file_contexts) and owners (fs_config).

Both name files by where they will be on the device: the mount point, then the path in the image.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from f2tools.copyin.select import lines_of
from f2tools.errors import Usage
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.text import counted

SELINUX = "security.selinux"
CAPABILITY = "security.capability"
VFS_CAP_REVISION_2, VFS_CAP_FLAGS_EFFECTIVE = 0x02000000, 1

_FORMATS = {
    b"--": stat.S_IFREG, b"-d": stat.S_IFDIR, b"-l": stat.S_IFLNK, b"-c": stat.S_IFCHR, b"-b": stat.S_IFBLK,
    b"-p": stat.S_IFIFO, b"-s": stat.S_IFSOCK,
}  # fmt: skip
_META = frozenset(b".^$?*+|[({\\)]}")
_LIBSELINUX_META = frozenset(b".^$?*+|[({")  # spec_hasMetaChars() of libselinux, where what follows a backslash is none
_SPELLED_OUT = 1 << 40  # added to the number of lines that count before all expressions
_POSIX_CLASSES = {
    b"alpha": b"a-zA-Z", b"digit": b"0-9", b"alnum": b"a-zA-Z0-9", b"upper": b"A-Z", b"lower": b"a-z",
    b"xdigit": b"0-9A-Fa-f", b"space": b" \\t\\n\\r\\f\\v", b"blank": b" \\t", b"word": b"\\w",
    b"punct": b"!-/:-@\\[-`{-~",
}  # fmt: skip
_MOST_PREFIXES = 64
_FS_CONFIG = re.compile(
    rb"(?P<path>.*?)\s*(?<!\S)(?P<uid>\d+)\s+(?P<gid>\d+)\s+(?P<mode>[0-7]+)(?P<more>(?:\s+\w+=\S+)*)\s*"
)


def mounted(mount_point: str, path: bytes) -> bytes:
    """Where a file of the image is on the device; no slash at the end."""
    parts = [part for part in os.fsencode(mount_point).split(b"/") if part]
    return b"/" + b"/".join([*parts, path] if path else parts)


# -- file_contexts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    number: int  # the higher one wins
    pattern: bytes
    form: int  # S_IFMT, 0 for any
    context: bytes  # empty for <<none>>
    prefixes: tuple[bytes, ...]  # one of them begins every path that matches
    regex: re.Pattern[bytes] | None = None  # of what follows the stem
    stem: int = 0  # length of a first directory that is spelled out
    searched: bool = False  # the expression says itself where it begins and ends

    def matches(self, path: bytes) -> bool:
        if self.regex is None:
            return True
        rest = path[self.stem :] if self.stem else path
        return (self.regex.search(rest) if self.searched else self.regex.fullmatch(rest)) is not None


class FileContexts:
    """Labels by the regular expressions of a file_contexts file.

    An expression is matched against the whole path.  A path that is spelled out has precedence over expressions, and of
    several the later line counts, as in selabel_lookup() of libselinux up to 3.7; `<<none>>` leaves the file without a
    label.
    """

    def __init__(self, lines: Sequence[bytes], name: str = "file_contexts") -> None:
        self._exact: dict[bytes, list[_Rule]] = {}
        self._by_directory: dict[bytes, list[_Rule]] = {}
        self._directories: dict[bytes, list[_Rule]] = {}
        self._lines = 0
        self.add(lines, name)

    def add(self, lines: Sequence[bytes], name: str) -> None:
        """The rules of a further file, which come after those before."""
        for number, line in enumerate(lines, 1):
            self._add(line, self._lines + number, f"{name}:{number}")
        self._lines += len(lines)

    def _add(self, line: bytes, number: int, where: str) -> None:
        words = line.split()
        if not words or words[0].startswith(b"#"):
            return
        if len(words) not in (2, 3) or (len(words) == 3 and words[1] not in _FORMATS):
            raise Usage(f"{where}: a regular expression, perhaps a type like -d, and a label are needed")
        form = _FORMATS[words[1]] if len(words) == 3 else 0
        number += 0 if _has_meta(words[0]) else _SPELLED_OUT
        context = b"" if words[-1] == b"<<none>>" else words[-1]
        text = _literal(words[0])
        if text is not None:
            self._exact.setdefault(text, []).append(_Rule(number, words[0], form, context, (text,)))
            return
        rule = _rule(number, words[0], form, context, where)
        for directory in {prefix.rpartition(b"/")[0] for prefix in rule.prefixes}:
            self._by_directory.setdefault(directory, []).append(rule)

    def lookup(self, path: bytes, mode: int) -> bytes | None:
        """The label of an absolute path; None where no line says one."""
        form = stat.S_IFMT(mode)
        exact = next((rule for rule in reversed(self._exact.get(path, ())) if rule.form in (0, form)), None)
        directory = path.rpartition(b"/")[0]
        rules = self._directories.get(directory)
        if rules is None:
            rules = self._directories[directory] = self._rules_in(directory)
        for rule in rules:
            if exact is not None and exact.number > rule.number:
                break
            if rule.form in (0, form) and path.startswith(rule.prefixes) and rule.matches(path):
                return rule.context or None
        return None if exact is None else exact.context or None

    def _rules_in(self, directory: bytes) -> list[_Rule]:
        """Rules that may match in a directory, the last one first."""
        found: dict[int, _Rule] = {}
        at = directory
        while True:
            for rule in self._by_directory.get(at, ()):
                found[rule.number] = rule
            if not at:
                break
            at = at.rpartition(b"/")[0]
        inside = directory + b"/"
        return [
            found[number]
            for number in sorted(found, reverse=True)
            if any(prefix.startswith(inside) or inside.startswith(prefix) for prefix in found[number].prefixes)
        ]


def read_file_contexts(paths: Sequence[str]) -> FileContexts:
    """Labels from files, of which the later one counts; Usage where one can't be read or understood."""
    contexts = FileContexts([])
    for path in paths:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise Usage(f"--selinux {path}: {error.strerror}") from None
        if data.startswith(b"\x8a\xff\x7c\xf9"):  # SELINUX_MAGIC_COMPILED_FCONTEXT
            raise Usage(f"--selinux {path}: this is a compiled file; give the text that it was made of")
        contexts.add(data.splitlines(), path)
    return contexts


def _has_meta(pattern: bytes) -> bool:
    """Whether libselinux takes a pattern for an expression; one like `\\w` it doesn't, and it counts as spelled out."""
    at = 0
    while at < len(pattern):
        if pattern[at] in _LIBSELINUX_META:
            return True
        at += 2 if pattern[at] == 0x5C else 1
    return False


def _rule(number: int, pattern: bytes, form: int, context: bytes, where: str) -> _Rule:
    """A rule with its expression, as libselinux makes them.

    A first directory without anything special, the stem, is compared by itself.  The rest gets `^` in front and `$`
    behind, which a `|` outside of all brackets divides between the two sides.
    """
    stem = _stem(pattern)
    rest = pattern[stem:]
    searched = _chooses(rest)
    text = b"^" + rest + b"$" if searched else rest
    try:
        regex = re.compile(_python_regex(text), re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        shown = pattern.decode("utf-8", "backslashreplace")
        raise Usage(f"{where}: the regular expression {shown} is not understood: {error}") from None
    start = pattern[:stem] + b"/" if stem else b""
    prefixes = {start} if searched else {prefix for prefix in _prefixes(pattern) if prefix.startswith(start)} or {start}
    return _Rule(number, pattern, form, context, tuple(sorted(prefixes)), regex, stem, searched)


def _stem(pattern: bytes) -> int:
    """Bytes of a first directory that is spelled out, without the slash that follows; 0 where there is none."""
    end = pattern.find(b"/", 1)
    return end if end > 0 and _META.isdisjoint(pattern[:end]) else 0


def _literal(pattern: bytes) -> bytes | None:
    """The path that an expression without anything special stands for."""
    out = bytearray()
    at = 0
    while at < len(pattern):
        c = pattern[at]
        if c == 0x5C and at + 1 < len(pattern) and not pattern[at + 1 : at + 2].isalnum():
            at += 1
            c = pattern[at]
        elif c in _META:
            return None
        out.append(c)
        at += 1
    return bytes(out)


def _prefixes(pattern: bytes) -> set[bytes]:
    """Literal beginnings, one of which every path has that matches; a leading choice between words is followed."""
    known = {b""}
    at = 0
    while at < len(pattern):
        c = pattern[at : at + 1]
        if c == b"^" and not at:
            at += 1
            continue
        if c == b"(":
            words, end = _words(pattern, at)
            repeat = pattern[end : end + 1]
            if words is None or repeat in (b"*", b"{") or len(known) * (len(words) + 1) > _MOST_PREFIXES:
                return known
            longer = {start + word for start in known for word in words}
            if repeat == b"?":
                return _shortest(known | longer)
            if repeat == b"+":
                return longer
            known, at = longer, end
            continue
        step = 1
        if c == b"\\":
            c, step = pattern[at + 1 : at + 2], 2
            if not c or c.isalnum():
                return known
        elif c[0] in _META:
            return known
        repeat = pattern[at + step : at + step + 1]
        if repeat in (b"?", b"*", b"{"):
            return known
        known = {start + c for start in known}
        if repeat == b"+":
            return known
        at += step
    return known


def _shortest(prefixes: set[bytes]) -> set[bytes]:
    """Without those that begin with another one."""
    return {one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)}


def _chooses(pattern: bytes) -> bool:
    """Whether there is a `|` outside of all brackets."""
    depth = at = 0
    while at < len(pattern):
        c = pattern[at : at + 1]
        if c == b"\\":
            at += 1
        elif c == b"[":
            end = pattern.find(b"]", at + 2)
            at = end if end > 0 else at
        elif c == b"(":
            depth += 1
        elif c == b")":
            depth -= 1
        elif c == b"|" and not depth:
            return True
        at += 1
    return False


def _words(pattern: bytes, at: int) -> tuple[list[bytes] | None, int]:
    """(the words of a group that chooses between plain words, what follows it); None for any other group."""
    end = pattern.find(b")", at)
    body = pattern[at + 1 : end].removeprefix(b"?:")
    if end < 0:
        return None, at
    words = [_literal(part) for part in body.split(b"|")]
    if any(word is None for word in words) or pattern[end - 1 : end] == b"\\":
        return None, end + 1
    return [word for word in words if word is not None], end + 1


def _python_regex(pattern: bytes) -> bytes:
    """POSIX classes, which PCRE knows and Python does not."""
    return re.sub(rb"\[:(\w+):\]", lambda m: _POSIX_CLASSES.get(m[1], m[0]), pattern)


# -- fs_config ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """What a line of fs_config says about a file."""

    uid: int
    gid: int
    mode: int
    capabilities: int = 0
    label: bytes = b""


def read_fs_config(path: str) -> dict[bytes, Config]:
    """Owners by path, without slashes at the ends; Usage where the file can't be read or understood."""
    found: dict[bytes, Config] = {}
    for line in lines_of(path, "--fs-config"):
        name, config = _config(line, path)
        found[name.strip(b"/")] = config
    return found


def _config(line: bytes, path: str) -> tuple[bytes, Config]:
    match = _FS_CONFIG.fullmatch(line)
    if match is None:
        text = line.decode("utf-8", "backslashreplace")
        raise Usage(f"--fs-config {path}: {text!r}: path, uid, gid and octal mode are needed")
    more = dict(word.split(b"=", 1) for word in match["more"].split())
    unknown = more.keys() - {b"capabilities", b"selabel"}
    if unknown:
        raise Usage(f"--fs-config {path}: there is no setting {min(unknown).decode('utf-8', 'backslashreplace')}")
    try:
        capabilities = int(more.get(b"capabilities", b"0"), 0)
        uid, gid, mode = int(match["uid"]), int(match["gid"]), int(match["mode"], 8)
    except ValueError:
        capabilities = -1
        uid = gid = mode = 0
    if not 0 <= capabilities < 1 << 64 or mode > 0o7777 or max(uid, gid) >= 1 << 32:
        raise Usage(f"--fs-config {path}: {line.decode('utf-8', 'backslashreplace')!r}: a number is out of range")
    return match["path"], Config(uid, gid, mode, capabilities, more.get(b"selabel", b""))


def capability_bytes(permitted: int) -> bytes:
    """The attribute that gives a program these capabilities: struct vfs_cap_data, revision 2, effective at once."""
    magic = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE
    return struct.pack("<5I", magic, permitted & 0xFFFFFFFF, 0, permitted >> 32, 0)


# -- both -----------------------------------------------------------------------------------------------------------


def dress(
    entries: Sequence[SourceEntry],
    mount_point: str,
    contexts: FileContexts | None,
    configs: dict[bytes, Config] | None,
) -> list[str]:
    """Give entries owners, modes, capabilities and labels; returns notes on those without a line."""
    unlabelled = unlisted = 0
    for entry in entries:
        if entry.link_to is not None:
            continue
        where = mounted(mount_point, entry.path)
        changed: dict[str, bytes] = {}
        if configs is not None:
            config = configs.get(where[1:])
            if config is None:
                unlisted += 1
            else:
                entry.uid, entry.gid = config.uid, config.gid
                if not stat.S_ISLNK(entry.mode):
                    entry.mode = stat.S_IFMT(entry.mode) | config.mode
                if config.capabilities:
                    changed[CAPABILITY] = capability_bytes(config.capabilities)
                if config.label:
                    changed[SELINUX] = config.label + b"\0"
        if contexts is not None and SELINUX not in changed:
            label = contexts.lookup(where, entry.mode)
            if label is None:
                unlabelled += 1
            else:
                changed[SELINUX] = label + b"\0"
        if changed:
            entry.xattrs = {**entry.xattrs, **changed}
    notes: list[str] = []
    if unlisted:
        notes.append(f"no line in fs_config for {counted(unlisted, 'file')}: owner and mode stay")
    if unlabelled:
        notes.append(f"no label in file_contexts for {counted(unlabelled, 'file')}")
    return notes
