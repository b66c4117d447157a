"""Which files of a source go into a volume, whose they are there, and in what order they are laid out."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterable, Sequence

from f2tools.copyin.source import ACLS, MOST_ID, SourceError, order_of, read_ahead, shown
from f2tools.errors import Usage
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.lazy import dataclass

_CAPABILITY = "security.capability"
_CAP_REVISION_MASK, _CAP_REVISION_2, _CAP_REVISION_3 = 0xFF000000, 0x02000000, 0x03000000
_CAP_3_SIZE, _CAP_2_SIZE = 24, 20  # struct vfs_ns_cap_data, struct vfs_cap_data of include/uapi/linux/capability.h


def lines_of(path: str, option: str) -> list[bytes]:
    """The lines of a list of names, without blank ones and comments (`#` first); Usage where it can't be read."""
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise Usage(f"{option} {path}: {error.strerror}") from None
    return [line for line in lines if line.strip() and not line.startswith(b"#")]


# -- excludes -------------------------------------------------------------------------------------------------------


class Excludes:
    """Patterns of what to leave out; a directory that is left out goes with all that is in it.

    A pattern without a slash is matched against names, anywhere in the tree; one with a slash (at its start or inside)
    against whole paths from the root of the source.  A slash at its end: directories only.  `*` and `?` match anything
    but a slash, `[abc]` and `[!abc]` one character of a set, `**` also slashes; `\\` takes the next character as it is.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        found: dict[tuple[bool, bool], list[bytes]] = {}  # by: matched against whole paths, against directories only
        for pattern in patterns:
            body = pattern.rstrip(b"/")
            if not body:
                raise Usage(f"--exclude {os.fsdecode(pattern)!r} would leave out everything")
            kind = b"/" in body, pattern.endswith(b"/")
            found.setdefault(kind, []).append(_glob(body.removeprefix(b"./").lstrip(b"/")))
        self._names, self._names_of_dirs, self._paths, self._paths_of_dirs = (
            _any_of(found.get((whole, only_dirs), [])) for whole in (False, True) for only_dirs in (False, True)
        )
        self._known: dict[bytes, bool] = {}

    def __call__(self, path: bytes, is_dir: bool) -> bool:
        """Whether the patterns leave out the path itself; those above it were asked about before."""
        name = path.rpartition(b"/")[2]
        return (
            (self._names is not None and self._names.fullmatch(name) is not None)
            or (self._paths is not None and self._paths.fullmatch(path) is not None)
            or (is_dir and self._names_of_dirs is not None and self._names_of_dirs.fullmatch(name) is not None)
            or (is_dir and self._paths_of_dirs is not None and self._paths_of_dirs.fullmatch(path) is not None)
        )

    def with_parents(self, path: bytes, is_dir: bool) -> bool:
        """Whether a path or a directory above it is left out."""
        parent = path.rpartition(b"/")[0]
        if parent:
            known = self._known.get(parent)
            if known is None:
                known = self._known[parent] = self.with_parents(parent, True)
            if known:
                return True
        return self(path, is_dir)


def _any_of(parts: list[bytes]) -> re.Pattern[bytes] | None:
    return re.compile(b"|".join(b"(?:%b)" % part for part in parts), re.DOTALL) if parts else None


def _glob(pattern: bytes) -> bytes:
    """A pattern as a regular expression."""
    out: list[bytes] = []
    at = 0
    while at < len(pattern):
        c = pattern[at : at + 1]
        at += 1
        if pattern.startswith(b"**/", at - 1):
            out.append(b"(?:.*/)?")
            at += 2
        elif c == b"*" and pattern.startswith(b"*", at):
            out.append(b".*")
            at += 1
        elif c == b"*":
            out.append(b"[^/]*")
        elif c == b"?":
            out.append(b"[^/]")
        elif c == b"[":
            made, at = _set(pattern, at)
            out.append(made)
        elif c == b"\\" and at < len(pattern):
            out.append(re.escape(pattern[at : at + 1]))
            at += 1
        else:
            out.append(re.escape(c))
    return b"".join(out)


def _set(pattern: bytes, at: int) -> tuple[bytes, int]:
    """(regular expression, where the pattern goes on) of a `[...]` whose bracket is behind; a lone `[` is itself."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    first = at + int(negated)
    end = pattern.find(b"]", first + 1)
    if end < 0:
        return rb"\[", at
    body = pattern[first:end].replace(b"\\", b"\\\\").replace(b"[", b"\\[").replace(b"^", b"\\^")
    body = body.replace(b"]", b"\\]").replace(b"&", b"\\&").replace(b"~", b"\\~").replace(b"|", b"\\|")
    made = (b"(?!/)[^%b]" if negated else b"(?!/)[%b]") % body
    try:
        re.compile(made)
    except re.error as error:
        raise Usage(f"--exclude {os.fsdecode(pattern)}: {error.msg}") from None
    return made, end + 1


# -- owners ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnerRule:
    """Numbers first to last become those from `to` on; all become `to` itself where `collapse` is set."""

    users: bool
    groups: bool
    first: int
    last: int
    to: int
    collapse: bool = False

    def of(self, number: int) -> int:
        return self.to if self.collapse else self.to + number - self.first


def parse_owner_rule(text: str) -> list[OwnerRule]:
    """Rules of `[u:|g:]FROM:TO`, FROM being a number, a range `1000-1999`, `all`, or `me` for who calls; else Usage."""
    kind, _, rest = text.partition(":")
    users, groups = kind != "g", kind != "u"
    start, _, to = (rest if kind in ("u", "g") else text).partition(":")
    if not to.isdecimal():
        raise Usage(f"--map-owner {text}: FROM:TO is needed, like 1000:0, all:0, 100000-165535:0 or u:1000:0")
    if start in ("all", "*"):
        return [OwnerRule(users, groups, 0, MOST_ID, _id(to, text), collapse=True)]
    if start == "me":
        own = ((True, False, os.getuid()), (False, True, os.getgid()))
        to_id = _id(to, text)
        return [OwnerRule(u, g, number, number, to_id) for u, g, number in own if (u and users) or (g and groups)]
    first, dash, last = start.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise Usage(f"--map-owner {text}: {start!r} is no number, no range like 1000-1999, not `all` and not `me`")
    low, high = _id(first, text), _id(last if dash else first, text)
    if low > high or int(to) + high - low > MOST_ID:
        raise Usage(f"--map-owner {text}: the range is empty, or leads beyond {MOST_ID}")
    return [OwnerRule(users, groups, low, high, _id(to, text))]


def _id(digits: str, text: str) -> int:
    number = int(digits)
    if number > MOST_ID:
        raise Usage(f"--map-owner {text}: {digits} is beyond {MOST_ID}")
    return number


class OwnerMap:
    """Who owns what in the volume: the first rule that knows a number counts, other numbers stay."""

    def __init__(self, rules: Sequence[OwnerRule]) -> None:
        self._users = [rule for rule in rules if rule.users]
        self._groups = [rule for rule in rules if rule.groups]
        self._known_users: dict[int, int] = {}
        self._known_groups: dict[int, int] = {}

    def uid(self, number: int) -> int:
        return _mapped(self._users, self._known_users, number)

    def gid(self, number: int) -> int:
        return _mapped(self._groups, self._known_groups, number)

    def apply(self, entry: SourceEntry) -> None:
        """Map owner, ACLs, and the user whose name space a capability belongs to."""
        entry.uid, entry.gid = self.uid(entry.uid), self.gid(entry.gid)
        if not entry.xattrs:
            return
        changed = dict(entry.xattrs)
        for name in ACLS:
            if name in changed:
                changed[name] = self._acl(changed[name], entry)
        if _CAPABILITY in changed:
            changed[_CAPABILITY] = self._capability(changed[_CAPABILITY])
        entry.xattrs = changed

    def _acl(self, value: bytes, entry: SourceEntry) -> bytes:
        from f2tools.acl import ACL_GROUP, ACL_USER, parse_xattr

        try:
            entries = parse_xattr(value)
        except OSError as error:
            raise SourceError(f"{shown(entry.path)}: the ACL: {error.strerror}") from None
        mapped = [
            one._replace(id=self.uid(one.id))
            if one.tag == ACL_USER
            else one._replace(id=self.gid(one.id))
            if one.tag == ACL_GROUP
            else one
            for one in entries
        ]
        return acl_bytes(mapped)

    def _capability(self, value: bytes) -> bytes:
        """The form with a root id names a user of the host; for root itself there is the form without."""
        if len(value) != _CAP_3_SIZE:
            return value
        magic, root = struct.unpack_from("<I", value)[0], struct.unpack_from("<I", value, _CAP_2_SIZE)[0]
        if magic & _CAP_REVISION_MASK != _CAP_REVISION_3:
            return value
        root = self.uid(root)
        if root:
            return value[:_CAP_2_SIZE] + struct.pack("<I", root)
        return struct.pack("<I", magic & ~_CAP_REVISION_MASK | _CAP_REVISION_2) + value[4:_CAP_2_SIZE]


def acl_bytes(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """An ACL of (tag, permissions, id) as setxattr takes it; see linux/posix_acl_xattr.h."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)


def _mapped(rules: list[OwnerRule], known: dict[int, int], number: int) -> int:
    found = known.get(number)
    if found is None:
        rule = next((rule for rule in rules if rule.first <= number <= rule.last), None)
        found = known[number] = number if rule is None else rule.of(number)
    return found


# -- order ----------------------------------------------------------------------------------------------------------


def in_order(entries: list[SourceEntry], how: str) -> list[SourceEntry]:
    """Entries in the order in which they get their numbers and their data is laid out, and are read.

    "name": as they are, by path.  "size": directories, then files from small to large.  Else the name of a file with a
    path a line: what is listed comes first, in that order, a directory standing for all that is in it; then the rest.
    """
    if how == "size":
        entries = sorted(entries, key=_by_size)
    elif how != "name":
        entries = _by_list(entries, how)
    read_ahead(entries)
    return entries


def _by_list(entries: list[SourceEntry], path: str) -> list[SourceEntry]:
    listed = {_listed(line): number for number, line in enumerate(lines_of(path, "--sort"))}
    paths = {entry.path for entry in entries}
    missing = [path for path in listed if path not in paths]
    if missing:
        raise Usage(f"--sort {path}: {shown(missing[0])} is not in the source")
    ranks: dict[bytes, int] = {}

    def rank(path: bytes) -> int:
        found = ranks.get(path)
        if found is None:
            above = rank(path.rpartition(b"/")[0]) if path else len(listed)
            found = ranks[path] = listed.get(path, above)
        return found

    def key(entry: SourceEntry) -> tuple[int, int, bytes]:
        if stat.S_ISDIR(entry.mode) and entry.link_to is None:
            return 0, 0, order_of(entry.path)
        return 1 + (entry.link_to is not None), rank(entry.path), order_of(entry.path)

    return sorted(entries, key=key)


def _by_size(entry: SourceEntry) -> tuple[int, int, bytes]:
    """Directories must come before what is in them, further names after the first one."""
    if entry.link_to is not None:
        return 2, 0, order_of(entry.path)
    if stat.S_ISDIR(entry.mode):
        return 0, 0, order_of(entry.path)
    return 1, entry.size, order_of(entry.path)


def _listed(line: bytes) -> bytes:
    parts = [part for part in line.split(b"/") if part not in (b"", b".")]
    return b"/".join(parts)
