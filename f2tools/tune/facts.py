"""What the inodes of a volume use: decides which features can be switched off, and which need inodes rewritten."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.layout.constants import (
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_IMMUTABLE_FL,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_META_INO,
    F2FS_NOATIME_FL,
    F2FS_PROJINHERIT_FL,
    QUOTA_NAMES,
)
from f2tools.f2fs.layout.quota import QUOTA_BLOCK_SIZE, QUOTA_MAGICS, QuotaHeader
from f2tools.f2fs.layout.xattr import FscryptContextV2
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.tune.room import ROOM, can_grow, short_of

AT_ONCE = 1024
MODE_QUOTA = stat.S_IFREG | 0o600
QUOTA_FLAGS = F2FS_NOATIME_FL | F2FS_IMMUTABLE_FL
IV_INO_LBLK = 0x08 | 0x10  # FSCRYPT_POLICY_FLAG_IV_INO_LBLK_64 and _32: keys are made with the UUID of the volume


@dataclass
class Facts:
    """Counts of inodes, and who uses how much."""

    inodes: int = 0
    encrypted: int = 0
    keys_with_uuid: int = 0
    verity: int = 0
    casefolded: int = 0
    compressed: int = 0
    aliases: int = 0
    extra: int = 0
    projects: int = 0
    short: dict[str, list[int]] = field(
        default_factory=lambda: {name: [] for name in ROOM}
    )  # without room for a feature
    stuck: Counter[str] = field(default_factory=Counter)  # of these, feature -> those that can't be given some
    leftovers: tuple[int, ...] = ()  # quota files of a change that was cut off, named by nobody and not counted above
    odd_xattr_space: int = 0  # not what an inode has without flexible_inline_xattr
    usage: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in QUOTA_NAMES})
    counts: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in QUOTA_NAMES})

    @property
    def without_extra(self) -> int:
        return self.inodes - self.extra

    @property
    def no_project_room(self) -> int:
        """Inodes that have no room for a project, and can't be given some."""
        return self.without_extra + self.stuck["project_quota"]

    def quota_use(self, kind: str) -> dict[int, tuple[int, int]]:
        """id -> (inodes, bytes), for a quota file."""
        return {number: (count, self.usage[kind][number]) for number, count in self.counts[kind].items()}


def all_inos(volume: Volume) -> list[int]:
    """The numbers of all inodes, from the NAT; also of those that are not written yet.

    DeviceError where a part of the NAT can't be read.
    """
    inos = volume.nat.inodes()
    if volume.nat.problems:
        raise DeviceError(f"the NAT can't be read: {volume.nat.problems[0]}")
    return inos[inos > F2FS_META_INO].tolist()


def all_inodes(volume: Volume) -> Iterator[Inode]:
    """Every inode; F2fsError for the first that can't be read: such a volume is to be checked first."""
    inos = all_inos(volume)
    for at in range(0, len(inos), AT_ONCE):
        for found in volume.nodes.inodes(inos[at : at + AT_ONCE]):
            if isinstance(found, F2fsError):
                raise found
            yield found


def default_xattr_words(inode: Inode) -> int:
    """Words of inline xattrs that an inode has where the feature flexible_inline_xattr is off."""
    return DEFAULT_INLINE_XATTR_ADDRS if inode.i_inline & (F2FS_INLINE_XATTR | F2FS_INLINE_DENTRY) else 0


def gather(volume: Volume) -> Facts:
    """Look at every inode."""
    facts = Facts()
    hidden = set(quota_inos(volume.sb).values())
    doubtful: list[Inode] = []
    for inode in all_inodes(volume):
        if inode.ino not in hidden and _looks_like_quota_file(volume, inode):
            doubtful.append(inode)
        else:
            _count(facts, volume, inode, hidden)
    if doubtful:
        facts.leftovers = _without_names(volume, {inode.ino for inode in doubtful})
    for inode in doubtful:
        if inode.ino not in facts.leftovers:
            _count(facts, volume, inode, hidden)
    return facts


def _count(facts: Facts, volume: Volume, inode: Inode, hidden: set[int]) -> None:
    facts.inodes += 1
    extra = bool(inode.i_inline & F2FS_EXTRA_ATTR)
    facts.extra += extra
    facts.encrypted += inode.encrypted
    facts.verity += inode.verity
    facts.casefolded += bool(inode.i_flags & F2FS_CASEFOLD_FL)
    facts.compressed += bool(inode.i_flags & F2FS_COMPR_FL)
    facts.aliases += bool(inode.i_flags & F2FS_DEVICE_ALIAS_FL)
    projid = inode.extra.get("i_projid", 0)
    for name, size in ROOM.items():
        if short_of(inode, size):
            facts.short[name].append(inode.ino)
            facts.stuck[name] += not can_grow(inode, size)
    facts.projects += bool(projid or inode.i_flags & F2FS_PROJINHERIT_FL)
    if volume.geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        facts.odd_xattr_space += inode.inline_xattr_addrs != default_xattr_words(inode)
    if inode.encrypted:
        facts.keys_with_uuid += _key_has_uuid(volume, inode)
    if inode.ino not in hidden:
        for kind, number in zip(QUOTA_NAMES, (inode.i_uid, inode.i_gid, projid), strict=True):
            facts.counts[kind][number] += 1
            facts.usage[kind][number] += max(0, inode.i_blocks - 1) * volume.geo.block_size


def _looks_like_quota_file(volume: Volume, inode: Inode) -> bool:
    """Whether an inode is what one of a hidden quota file is, by flags and content."""
    if inode.i_mode != MODE_QUOTA or inode.i_flags & QUOTA_FLAGS != QUOTA_FLAGS or inode.i_size < QUOTA_BLOCK_SIZE:
        return False
    try:
        head = QuotaHeader.parse(volume.data.read(inode, 0, QuotaHeader.size))
    except (F2fsError, OSError):
        return False
    return head.dqh_magic in QUOTA_MAGICS and head.dqh_version == 1


def _without_names(volume: Volume, inos: set[int]) -> tuple[int, ...]:
    """Those of some inodes that no directory has; none where a directory can't be read."""
    problems: list[tuple[bytes, str]] = []
    for _, _, entries in volume.walk(problems=problems):
        inos = inos.difference(entry.dentry.ino for entry in entries)
    return () if problems else tuple(sorted(inos))


def _key_has_uuid(volume: Volume, inode: Inode) -> bool:
    context = encryption_context(volume.nodes, inode)
    if context is None or context[:1] != b"\2" or len(context) < FscryptContextV2.size:
        return False
    return bool(FscryptContextV2.parse(context[: FscryptContextV2.size]).flags & IV_INO_LBLK)
