"""ACL entries as setfacl(1) takes them, ids as numbers, and what they make of an ACL."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import NamedTuple

from f2tools.acl import ACL_UNDEFINED_ID, AclEntry, parse_xattr
from f2tools.errors import Usage
from f2tools.f2fs.volume.acl import acl_to_xattr, build_disk
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.volumes import MOST_ID

ACCESS_ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32  # ACL_* of the kernel
_TAGS = {
    "u": (USER_OBJ, USER), "user": (USER_OBJ, USER), "g": (GROUP_OBJ, GROUP), "group": (GROUP_OBJ, GROUP),
    "m": (MASK, MASK), "mask": (MASK, MASK), "o": (OTHER, OTHER), "other": (OTHER, OTHER),
}  # fmt: skip


class AclRule(NamedTuple):
    """An entry of an ACL; `perm` is None where one is to be removed."""

    default: bool
    tag: int
    id: int
    perm: int | None


def parse_rules(text: str, default: bool, removing: bool = False) -> list[AclRule]:
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
        tag, number = (named, int(parts[1])) if parts[1] else (own, ACL_UNDEFINED_ID)
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
    key = MASK, ACL_UNDEFINED_ID
    if not any(rule.tag == MASK and rule.perm is not None for rule in rules) and (named or key in kept):
        union = 0
        for (tag, _), perm in kept.items():
            union |= perm if tag in (USER, GROUP_OBJ, GROUP) else 0
        if named:
            kept[key] = union
        elif any(rule.tag == MASK for rule in rules) or not named:
            kept.pop(key, None)
    return [(tag, perm, number) for (tag, number), perm in sorted(kept.items())]


def change_acls(
    volume: WritableVolume, inode: Inode, rules: Sequence[AclRule], drop_access: bool, drop_default: bool
) -> None:
    """Remove ACLs of a file, then change them entry by entry."""
    if drop_access:
        _drop(volume, inode.ino, ACCESS_ACL)
    if drop_default and inode.is_dir:
        _drop(volume, inode.ino, DEFAULT_ACL)
    for name, default in ((ACCESS_ACL, False), (DEFAULT_ACL, True)):
        mine = [rule for rule in rules if rule.default == default]
        there = name in volume.listxattr(inode.ino)
        if not mine or (not there and all(rule.perm is None for rule in mine)):
            continue
        mode = volume.live(inode.ino).i_mode
        entries = [
            (USER_OBJ, mode >> 6 & 7, ACL_UNDEFINED_ID),
            (GROUP_OBJ, mode >> 3 & 7, ACL_UNDEFINED_ID),
            (OTHER, mode & 7, ACL_UNDEFINED_ID),
        ]
        if there:
            entries = [(entry.tag, entry.perm, entry.id) for entry in parse_xattr(volume.getxattr(inode.ino, name))]
        changed = [AclEntry(*entry) for entry in with_rules(entries, mine)]
        volume.setxattr(inode.ino, name, acl_to_xattr(build_disk(changed)) or b"")


def drop_acls(volume: WritableVolume, ino: int, kept: Container[str]) -> None:
    """Remove the ACLs that are not `kept`, by name: those of the directory that a file was made in, or of what was
    there before.  The mode stays."""
    for name in (ACCESS_ACL, DEFAULT_ACL):
        if name not in kept:
            _drop(volume, ino, name)


def _drop(volume: WritableVolume, ino: int, name: str) -> None:
    if name in volume.listxattr(ino):
        volume.removexattr(ino, name)
