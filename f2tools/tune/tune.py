"""Changing what the superblock says: computed and checked as a whole, then done in an order that survives a power cut.

A change that only concerns the superblock is two writes.  One that also concerns inodes takes three steps: the
superblock without the bits that would be wrong in between, the inodes with a checkpoint, and the final superblock.
What is on the disk between two steps is a sound volume that lacks a feature, but for quota files that no superblock
names: the next change of features removes those.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from f2tools.device import Device
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import (
    ENCODINGS,
    F2FS_ENC_STRICT_MODE_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_LOST_FOUND,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_QUOTA_INO,
    F2FS_INLINE_DATA,
    F2FS_ROOT_INO,
    FEATURES,
    QUOTA_NAMES,
    flag_names,
)
from f2tools.f2fs.layout.super import SuperBlock, encoded_extension
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.super import extensions_of, label_of, must_be_there
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.quota_tree import fresh
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.text import counted
from f2tools.tune.facts import MODE_QUOTA, QUOTA_FLAGS, Facts, all_inos, default_xattr_words, gather
from f2tools.tune.features import SWITCHES, why_not
from f2tools.tune.room import ROOM, give_room, room_for
from f2tools.tune.superblock import WithSuperblock, encoded_extensions, encoded_label, write_copies

LOST_FOUND = b"lost+found"
NODES_AT_ONCE = 4096


class Refused(F2fsError):
    """The request is impossible on this volume; nothing was changed."""

    exit_code = 1


@dataclass(frozen=True)
class TuneRequest:
    """The changes to make; None and empty leave things as they are."""

    label: str | None = None
    uuid: bytes | None = None
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    encoding: str | None = None  # "utf8" or "utf8:strict"
    salt: bytes | None = None
    add_cold: tuple[str, ...] = ()
    drop_cold: tuple[str, ...] = ()
    add_hot: tuple[str, ...] = ()
    drop_hot: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.on, *self.off):
            if name not in FEATURES:
                raise Usage(f"{name!r} is no feature; there are {', '.join(FEATURES)}")
        both = set(self.on) & set(self.off)
        if both:
            raise Usage(f"{', '.join(sorted(both))}: on and off at once")

    @property
    def features(self) -> bool:
        return bool(self.on or self.off)


@dataclass
class TunePlan:
    """The new superblock, and what has to be done to inodes for it."""

    before: SuperBlock
    after: SuperBlock
    changes: dict[str, tuple[Any, Any]]
    notes: list[str] = field(default_factory=list)
    reseal: bool = False  # inodes get other checksums
    xattr_room: bool = False  # inodes are to say how much room their xattrs have
    short: tuple[int, ...] = ()  # inodes that are to have more room for extra attributes
    lost_found: bool = False
    make_quota: tuple[str, ...] = ()
    drop_quota: tuple[str, ...] = ()
    leftovers: tuple[int, ...] = ()  # inodes of quota files that a change which was cut off has left

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes and not self.leftovers

    @property
    def conversion(self) -> bool:
        """Whether more than the superblock is written."""
        quotas = self.make_quota or self.drop_quota or self.leftovers
        return bool(self.rewrites or self.lost_found or quotas)

    @property
    def rewrites(self) -> bool:
        """Whether inodes are written anew."""
        return bool(self.reseal or self.xattr_room or self.short)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "changes": {name: {"before": old, "after": new} for name, (old, new) in self.changes.items()},
            "inodes_rewritten": self.rewrites,
            "notes": self.notes,
        }


def plan(volume: Volume, request: TuneRequest) -> TunePlan:
    """What a request means for a volume; Refused with everything that speaks against it, Usage, DeviceError where a
    part of the volume is missing."""
    must_be_there(volume.device, volume.geo.end_blkaddr * volume.geo.block_size)
    before = deepcopy(volume.sb)
    after = deepcopy(volume.sb)
    made = TunePlan(before, after, {})
    if request.label is not None:
        after.volume_name = encoded_label(request.label)
    if request.salt is not None:
        after.encrypt_pw_salt = request.salt
    _extensions(before, after, request)
    facts = Facts()
    if request.features or request.uuid is not None:
        if find_fsync_chain(volume).files:
            raise Refused("files were fsync'ed before a crash: bring them back first, by f2tools recover --apply")
        facts = gather(volume)
    _features(after, request, facts, made)
    if facts.leftovers:
        made.leftovers = facts.leftovers
        made.notes.append("quota: files that a change which was cut off has left are removed")
    if request.uuid is not None:
        after.uuid = request.uuid
        if facts.keys_with_uuid and after.uuid != before.uuid:
            raise Refused(
                f"the UUID stays: the keys of {facts.keys_with_uuid} encrypted files and directories are made with it"
            )
    _conversions(volume, facts, made)
    made.changes = _differences(before, after)
    if made.make_quota:
        files = [kind for kind in QUOTA_NAMES if kind in (*described(after)["quota_files"], *made.make_quota)]
        made.changes["quota_files"] = (described(before)["quota_files"], files)
    return made


def _extensions(before: SuperBlock, after: SuperBlock, request: TuneRequest) -> None:
    cold, hot = extensions_of(before)
    for names, add, drop, what in (
        (cold, request.add_cold, request.drop_cold, "cold"),
        (hot, request.add_hot, request.drop_hot, "hot"),
    ):
        for name in drop:
            if name not in names:
                raise Usage(f"{name!r} is none of the {what} extensions")
            names.remove(name)
        for name in add:
            encoded_extension(name)
        names += [name for name in dict.fromkeys(add) if name not in names]
    both = sorted(set(cold) & set(hot))
    if both and (request.add_cold or request.add_hot):
        raise Usage(f"{', '.join(both)}: cold and hot at once")
    if request.add_cold or request.drop_cold or request.add_hot or request.drop_hot:
        after.extension_list = encoded_extensions(cold, hot)
        after.extension_count, after.hot_ext_count = len(cold), len(hot)


def _features(after: SuperBlock, request: TuneRequest, facts: Facts, made: TunePlan) -> None:
    before = made.before.feature
    for name in request.on:
        after.feature |= FEATURES[name]
    for name in request.off:
        after.feature &= ~FEATURES[name]
    reasons: list[str] = []
    for name, bit in FEATURES.items():
        if not (before ^ after.feature) & bit:
            continue
        on = bool(after.feature & bit)
        why = why_not(name, on, after.feature, facts)
        if why is not None:
            reasons.append(f"{name} can't be switched {'on' if on else 'off'}: {why}")
        note = SWITCHES[name].note_on if on else SWITCHES[name].note_off
        if note:
            made.notes.append(f"{name}: {note}")
    if reasons:
        raise Refused("; ".join(reasons))
    _encoding(after, request)


def _encoding(after: SuperBlock, request: TuneRequest) -> None:
    casefold = bool(after.feature & F2FS_FEATURE_CASEFOLD)
    fresh_one = "casefold" in request.on and not after.s_encoding
    if not casefold:
        if request.encoding is not None:
            raise Usage("an encoding is for casefold, which is off")
        if "casefold" in request.off:
            after.s_encoding = after.s_encoding_flags = 0
        return
    if request.encoding is None and not fresh_one:
        return
    name, _, flags = (request.encoding or "utf8").partition(":")
    if name not in ENCODINGS or flags not in ("", "strict"):
        raise Usage(f"{request.encoding!r} is no encoding; there are utf8 and utf8:strict")
    if not fresh_one and (after.s_encoding, after.s_encoding_flags & 1) != (ENCODINGS[name], int(flags == "strict")):
        raise Refused("the encoding stays: names in casefolded directories were checked and hashed with it")
    after.s_encoding = ENCODINGS[name]
    after.s_encoding_flags = F2FS_ENC_STRICT_MODE_FL if flags else after.s_encoding_flags


def _conversions(volume: Volume, facts: Facts, made: TunePlan) -> None:
    old, new = made.before.feature, made.after.feature
    switched_on = new & ~old
    made.reseal = bool(
        new & F2FS_FEATURE_INODE_CHKSUM
        and (switched_on & F2FS_FEATURE_INODE_CHKSUM or made.after.uuid != made.before.uuid)
    )
    made.xattr_room = bool(switched_on & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR)
    inos = {ino for name in ROOM if new & FEATURES[name] for ino in facts.short[name]}
    made.short = tuple(sorted(inos))
    if inos:
        made.notes.append(f"more room for extra attributes in {counted(len(inos), 'inode')}")
    if switched_on & F2FS_FEATURE_LOST_FOUND:
        made.lost_found = _lacks_lost_found(volume)
    has = set(quota_inos(made.before))
    wanted: set[str] = set()
    if new & F2FS_FEATURE_QUOTA_INO:
        wanted = has | {"user", "group"} if switched_on & F2FS_FEATURE_QUOTA_INO else set(has)
        if not new & F2FS_FEATURE_PRJQUOTA:
            wanted.discard("project")
        elif switched_on & (F2FS_FEATURE_PRJQUOTA | F2FS_FEATURE_QUOTA_INO):
            wanted.add("project")
    made.make_quota = tuple(kind for kind in QUOTA_NAMES if kind in wanted - has)
    made.drop_quota = tuple(kind for kind in QUOTA_NAMES if kind in has - wanted)
    for kind in made.drop_quota:
        made.after.qf_ino[QUOTA_NAMES.index(kind)] = 0


def _lacks_lost_found(volume: Volume) -> bool:
    try:
        found = volume.path(b"/" + LOST_FOUND, follow=False)
    except FileNotFoundError:
        return True
    if not found.inode.is_dir:
        raise Refused("lost_found can't be switched on: /lost+found is there and no directory")
    return False


def _differences(before: SuperBlock, after: SuperBlock) -> dict[str, tuple[Any, Any]]:
    old, new = described(before), described(after)
    return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def described(sb: SuperBlock) -> dict[str, Any]:
    """What can be changed, as it is now."""
    cold, hot = extensions_of(sb)
    encoding = next((name for name, number in ENCODINGS.items() if number == sb.s_encoding), None)
    if encoding and sb.s_encoding_flags & F2FS_ENC_STRICT_MODE_FL:
        encoding += ":strict"
    return {
        "label": label_of(sb),
        "uuid": str(UUID(bytes=bytes(sb.uuid))),
        "features": flag_names(sb.feature, FEATURES),
        "encoding": encoding,
        "encrypt_pw_salt": bytes(sb.encrypt_pw_salt).hex(),
        "cold_extensions": cold,
        "hot_extensions": hot,
        "quota_files": list(quota_inos(sb)),
    }


# -- doing it ---------------------------------------------------------------------------------------------------------


def apply(device: Device, made: TunePlan, advance: Callable[[int], None] | None = None) -> None:
    """Carry out the change; `advance` is told how many inodes were rewritten."""
    final = deepcopy(made.after)
    if made.conversion:
        between = _between(made)
        _recover(device, made.before)
        if bytes(between.build()) != bytes(made.before.build()):
            write_copies(device, between)
        _convert(device, made, final, advance or (lambda count: None))
    write_copies(device, final)


def _between(made: TunePlan) -> SuperBlock:
    """The superblock while inodes are rewritten: with what was on before and stays on, except what is in doubt."""
    sb = deepcopy(made.before)
    sb.feature &= made.after.feature
    if made.reseal:
        sb.feature &= ~F2FS_FEATURE_INODE_CHKSUM
    sb.qf_ino[:] = made.after.qf_ino
    return sb


def _recover(device: Device, sb: SuperBlock) -> None:
    """Bring back what was fsync'ed, as long as the volume is what it was."""
    WritableVolume(WithSuperblock(device, sb)).close()


def _convert(device: Device, made: TunePlan, final: SuperBlock, advance: Callable[[int], None]) -> None:
    """Everything but the superblock, seen through one that has the features that inodes are written for.

    Quota files that are made go into `final`.
    """
    lens = deepcopy(final)
    if not any(lens.qf_ino):
        lens.feature &= ~F2FS_FEATURE_QUOTA_INO
    with WritableVolume(WithSuperblock(device, lens)) as volume:
        dropped = [int(made.before.qf_ino[QUOTA_NAMES.index(kind)]) for kind in made.drop_quota]
        for ino in (*made.leftovers, *dropped):
            with _free_of_charge(volume):
                _remove_quota_file(volume, ino)
        if made.rewrites:
            _rewrite_inodes(volume, made, advance)
        if made.lost_found:
            volume.mkdir(F2FS_ROOT_INO, LOST_FOUND, 0o700)
        if made.make_quota:
            volume.files.write_back_all()
            use = gather(volume)
            for kind in made.make_quota:
                with _free_of_charge(volume):
                    final.qf_ino[QUOTA_NAMES.index(kind)] = _make_quota_file(volume, kind, use)
        volume.checkpoint(unmount=True)


def _rewrite_inodes(volume: WritableVolume, made: TunePlan, advance: Callable[[int], None]) -> None:
    """Write inodes that have extra attributes anew: they get their checksums on the way."""
    inos = all_inos(volume) if made.reseal or made.xattr_room else made.short
    size, short = room_for(made.after.feature), set(made.short)
    for at in range(0, len(inos), NODES_AT_ONCE):
        written: list[int] = []
        for ino in inos[at : at + NODES_AT_ONCE]:
            inode = volume.live(ino)
            if not inode.i_inline & F2FS_EXTRA_ATTR:
                continue
            if made.xattr_room:
                inode.set(i_inline_xattr_size=default_xattr_words(inode))
            if ino in short:
                give_room(volume, inode, size)
            volume.nodes.touch(inode)
            written.append(ino)
        _write(volume, written, advance)


def _write(volume: WritableVolume, inos: list[int], advance: Callable[[int], None]) -> None:
    if inos:
        volume.balance()  # cleans where free sections run out
        left = [ino for ino in inos if ino in volume.nodes.dirty]
        volume.nodes.write(left)
        volume.checkpoint()
        advance(len(inos))
    volume.nodes.shrink()


@contextmanager
def _free_of_charge(volume: WritableVolume) -> Iterator[None]:
    """Quota files count as nobody's."""
    charge, volume.space.charge = volume.space.charge, None
    try:
        yield
    finally:
        volume.space.charge = charge


def _make_quota_file(volume: WritableVolume, kind: str, use: Facts) -> int:
    """A hidden quota file with what everybody uses; its inode number."""
    content = fresh(kind, use.quota_use(kind))
    root = volume.live(F2FS_ROOT_INO)
    blocks = -(-len(content) // volume.geo.block_size)
    if volume.space.free_blocks < blocks + 4:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    volume.balance(blocks)
    inode = volume.maker.make(
        root, b"", MODE_QUOTA, 0, 0, volume.clock(), volume.new_generation(), volume.compress_options
    )
    inode.set(
        i_inline=inode.i_inline & ~F2FS_INLINE_DATA, i_flags=QUOTA_FLAGS, i_pino=0, i_gid=0,
        i_advise=0,
    )  # fmt: skip
    volume.files.write(inode, 0, memoryview(content))
    volume.files.write_back(inode)
    volume.nodes.touch(inode)
    return inode.ino


def _remove_quota_file(volume: WritableVolume, ino: int) -> None:
    """Free the blocks of a file that nothing names any more."""
    inode = volume.live(ino)
    volume.files.drop_pages(ino)
    if not inode.has_inline_data:
        volume.mapper.truncate(inode, 0)
    if inode.i_xattr_nid:
        volume.nodes.remove_nodes(inode, [inode.i_xattr_nid])
    volume.nodes.remove_inode(inode)
