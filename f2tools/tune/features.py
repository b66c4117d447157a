"""Which features can be switched on a volume that is in use, by the rules of the format.

A feature bit says how something is to be read.  It can be switched where everything on the volume reads the same before
and after, or can be made to.  What each inode says about itself (extra attributes, compression, encryption,
casefolding, verity) allows a volume to have some of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from f2tools.f2fs.layout.constants import FEATURES
from f2tools.tune.facts import Facts

Judge = Callable[[Facts], str | None]  # why not, or None

BOTH = ("project_quota", "quota")  # then projects are counted
NEED_EXTRA = ("project_quota", "inode_checksum", "flexible_inline_xattr", "inode_crtime", "compression")


def _fine(facts: Facts) -> str | None:
    return None


def _checksum_room(facts: Facts) -> str | None:
    stuck = facts.stuck["inode_checksum"]
    # the kernel goes without, but fsck.f2fs writes a checksum over what stands there instead
    return (
        f"{stuck} inodes have no room for a checksum, and other nodes that hang on where their room ends"
        if stuck
        else None
    )


def _never(why: str) -> Judge:
    return lambda facts: why


def _unless(name: str, what: str) -> Judge:
    def judge(facts: Facts) -> str | None:
        count = getattr(facts, name)
        return f"{count} {what}" if count else None

    return judge


@dataclass(frozen=True)
class Switch:
    """What speaks against switching a feature on or off, and what it means for what is there already."""

    on: Judge
    off: Judge
    note_on: str = ""
    note_off: str = ""


_LAYOUT = "it decides where things lie: format anew"

SWITCHES: dict[str, Switch] = {
    "encrypt": Switch(_fine, _unless("encrypted", "files and directories are encrypted")),
    "blkzoned": Switch(_never(_LAYOUT), _never(_LAYOUT)),
    "atomic_write": Switch(_never("no kernel looks at it"), _fine),
    "extra_attr": Switch(
        _fine,
        _unless("extra", "inodes have extra attributes, and their content starts behind them"),
        note_on="files that are there stay without extra attributes; new ones have them",
    ),
    "project_quota": Switch(
        _fine,
        _unless("projects", "files and directories belong to a project"),
        note_on="what is there belongs to project 0",
    ),
    "inode_checksum": Switch(_checksum_room, _fine, note_on="every inode with extra attributes is written anew"),
    "flexible_inline_xattr": Switch(
        _unless("without_extra", "inodes have no extra attributes, which say how much room their xattrs have"),
        _unless("odd_xattr_space", "inodes have another room for inline xattrs than the usual one"),
        note_on="every inode is written anew, with the room for xattrs that it has",
    ),
    "quota": Switch(
        _fine,
        _fine,
        note_on="quota files are made, with what everybody uses",
        note_off="the quota files are removed, and the limits in them are lost",
    ),
    "inode_crtime": Switch(_fine, _fine, note_on="what is there has no time of creation"),
    "lost_found": Switch(_fine, _fine, note_on="/lost+found is made unless it is there"),
    "verity": Switch(_fine, _unless("verity", "files have fs-verity")),
    "sb_checksum": Switch(_fine, _fine),
    "casefold": Switch(_fine, _unless("casefolded", "directories are casefolded")),
    "compression": Switch(_fine, _unless("compressed", "files and directories are marked as compressed")),
    "ro": Switch(_never("a read-only volume has no SSA and two logs: format anew"),
                 _never("a read-only volume has no SSA and two logs: format anew")),
    "device_alias": Switch(_never("aliases are made by mkfs alone"), _unless("aliases", "files stand for devices")),
    "packed_ssa": Switch(_never(_LAYOUT), _never(_LAYOUT)),
}  # fmt: skip
assert SWITCHES.keys() == FEATURES.keys()


def why_not(name: str, on: bool, feature: int, facts: Facts) -> str | None:
    """What speaks against switching a feature, `feature` being the word as it is to become; None where nothing does."""
    switch = SWITCHES[name]
    why = (switch.on if on else switch.off)(facts)
    if why is not None:
        return why
    if on and name in NEED_EXTRA and not feature & FEATURES["extra_attr"]:
        return "it needs extra_attr"
    if on and name in BOTH and all(feature & FEATURES[other] for other in BOTH) and facts.no_project_room:
        # the kernel takes them for project 0, but fsck.f2fs reads what stands there instead
        return f"{facts.no_project_room} inodes have no room for a project, and would be counted wrong"
    if not on and name == "extra_attr":
        still = [other for other in NEED_EXTRA if feature & FEATURES[other]]
        if still:
            return f"{', '.join(still)} need it"
    return None
