"""One wrong field at a time: every field of inodes, node footers and directory entries, several wrong values each.

A case is an image and a few bytes of it that are changed, as a bug or a flipped bit changes them: an inode is sealed
again, so that its checksum says nothing.  After a repair the whole tree must be as it was; `ALONE` says which attribute
of the victim nothing else knows.
`python -m tests.fsck.fields IMAGE EVERY [WORD...]` runs every so manieth case with these words, and tells what fails.
"""

from __future__ import annotations

import hashlib
import stat
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_INODE_CHKSUM,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    NEW_ADDR,
)
from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.fields import ALONE
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from tests.fsck.field_cases import Case, cases_of
from tests.fsck.sweep import CONTENT, XATTRS, tree_on
from tests.fsck.trees import shown
from tests.images import reference

KIND, MODE, UID, GID, LINKS, SIZE, MTIME = 0, 1, 2, 3, 4, 5, 7  # in what `shown` gives
COMPRESSED, FOLDED, PROJECT, CRTIME, PACKING, SECRET = 10, 11, 12, 13, 14, 15  # in what `_more` adds
CHECKSUM_AT = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
# kinds of which an entry says the one and i_mode the other, and nothing else is to be asked
TIES = [*({a, stat.S_IFREG} for a in ("symlink", "fifo", "socket")),
        *({a, b} for a in ("fifo", "socket") for b in (stat.S_IFIFO, stat.S_IFSOCK)),
        *({a, b} for a in ("char", "block") for b in (stat.S_IFCHR, stat.S_IFBLK))]  # fmt: skip
# the same of a file that never had a byte
EMPTY_TIES = [{"file", number} for number in (stat.S_IFIFO, stat.S_IFSOCK)]
ATTRIBUTES = {
    "permissions": MODE, "owner": UID, "group": GID, "size": SIZE, "mtime": MTIME, "project": PROJECT, "crtime": CRTIME,
}  # fmt: skip
READ_WITH_CONTENT = {"i_compress_algorithm", "i_log_cluster_size", "i_compress_flag"}  # `fsck --data`
MARKED = FADVISE_ENCRYPT_BIT | FADVISE_VERITY_BIT


@dataclass
class Facts:
    """A sound image: its tree, and the inode number of each path."""

    tree: dict[bytes, tuple[Any, ...]]
    inos: dict[bytes, int]
    cases: list[Case]


@cache
def facts(name: str) -> Facts:
    """The tree of a reference image, and all cases of it."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        tree, inos = _tree(device)
        with Volume(StaysOpen(device)) as volume:
            return Facts(tree, inos, list(cases_of(volume)))


def _tree(device: Device) -> tuple[dict[bytes, tuple[Any, ...]], dict[bytes, int]]:
    """What `tree_on` gives, with the root, and with what else a file has."""
    tree, inos = tree_on(device, more=_more)
    with Volume(StaysOpen(device)) as volume:
        root = volume.path(b"/")
        tree[b"/"], inos[b"/"] = shown(root) + _more(volume, root.inode), root.inode.ino
    return tree, inos


def _more(volume: Volume, inode: Inode) -> tuple[Any, ...]:
    """Marks, project, time of creation, how it is compressed, ciphertext."""
    extra = inode.extra
    packed = [extra[name] for name in ("i_compress_algorithm", "i_log_cluster_size")] if inode.compressed else []
    secret = hashlib.sha256()
    if inode.encrypted and inode.is_file:
        size = volume.geo.block_size
        for run in volume.data.extents(inode):
            for at in range(run.count if run.blkaddr != NEW_ADDR else 0):
                block = volume.device.pread((run.blkaddr + at) * size, size)
                secret.update((run.fofs + at).to_bytes(8, "little") + block)
    marks = inode.i_flags & F2FS_DEVICE_ALIAS_FL, inode.i_advise & MARKED
    flags = inode.i_flags & F2FS_COMPR_FL, inode.i_flags & F2FS_CASEFOLD_FL
    return (marks, *flags, extra.get("i_projid"), inode.crtime_ns, packed, secret.digest())


# -- a case -----------------------------------------------------------------------------------------------------------


def cases(name: str) -> list[Case]:
    """All cases of a reference image."""
    return facts(name).cases


def patch(name: str, case: Case) -> list[tuple[int, bytes]]:
    """What a case writes over the image: (byte offset, bytes)."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        return damage(case, Overlay(StaysOpen(device)))


def damage(case: Case, device: Device) -> list[tuple[int, bytes]]:
    """Write the wrong field; the inode is sealed again where the volume has seals.  What was written."""
    changes = [(case.offset, case.wrong)]
    device.pwrite(*changes[0])
    image = Image(StaysOpen(device))
    if case.seal and image.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
        size = image.geo.block_size
        crc = inode_checksum(image.sb.uuid, device.pread(case.seal * size, size))
        changes.append((case.seal * size + CHECKSUM_AT, struct.pack("<I", crc)))
        device.pwrite(*changes[1])
    return changes


def judged(name: str, case: Case) -> tuple[list[str], list[str]]:
    """Set the field, repair, compare the whole tree: (what is wrong, what was found and done)."""
    image, before = reference(name), facts(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        wrong = Overlay(StaysOpen(device))
        damage(case, wrong)
        try:
            left, story = mended(wrong, content=case.field in READ_WITH_CONTENT)
            if left or as_it_was(wrong, device):
                return left, story
            now, _ = _tree(wrong)
        except Exception:
            return [traceback.format_exc(limit=-6)], []
    return list(differences(before, now, case)), story


def as_it_was(now: Overlay, below: Device) -> bool:
    """Whether all that was written is what lay there before."""
    return all(now.pread(*piece) == below.pread(*piece) for piece in now.dirty_ranges())


def mended(device: Device, *, content: bool = False) -> tuple[list[str], list[str]]:
    """Check and repair what is on a device, in place: (what is left, what was found and done)."""
    report = check(Image(StaysOpen(device)), content=content)
    story = [f"{finding.code} {finding.message}" for finding in report.findings]
    if report.sound:
        return [], story
    repairer = Repairer(device, content=content)
    outcome = repairer.run(report)
    story += outcome.done
    if not outcome.complete:
        return [f"left: {dict(outcome.left)}"], story
    repairer.commit(device)
    again = check(Image(StaysOpen(device)), content=content)
    return ([], story) if again.sound else (["a second check finds something"], story)


def differences(before: Facts, now: dict[bytes, tuple[Any, ...]], case: Case) -> Iterator[str]:
    """What is not as it was, but for what nothing else knows of the victim."""
    alone = _alone(before, case)
    for path, was in before.tree.items():
        found = now.get(path)
        if found is None:
            if not (case.tie and path == case.path):
                yield f"{path!r} is gone"
            continue
        mine = alone if before.inos[path] == case.ino else set()
        differ = [at for at in range(len(was)) if len(found) != len(was) or (found[at] != was[at] and at not in mine)]
        if differ:
            yield f"{path!r}: {differ} differ: {[found[at : at + 1] for at in differ]}, {[was[at] for at in differ]}"
    beside = case.path.rpartition(b"/")[0] if case.tie else None
    new = [path for path in now.keys() - before.tree.keys() if path.rpartition(b"/")[0] != beside]
    yield from (f"{path!r} is new" for path in new)


def _alone(before: Facts, case: Case) -> set[int]:
    """The attributes of the victim that nothing but the field tells."""
    alone = {ATTRIBUTES[name] for name in ALONE.get((case.what, case.field), ())}
    if case.what != "inode":
        return alone
    was = before.tree.get(case.path)
    number = int.from_bytes(case.wrong, "little")
    if was is not None and case.field == "i_mode":
        kinds = {was[KIND], stat.S_IFMT(number)}
        if kinds in TIES or (kinds in EMPTY_TIES and not was[SIZE]):
            return alone | {KIND, CONTENT}
    if (
        was is not None
        and case.field == "i_size"
        and (-(-number // case.block_size) == -(-was[SIZE] // case.block_size) or case.keeps_size or case.is_cut)
    ):
        return alone | {CONTENT, SECRET}  # where in its last block a file ends, only its size says
    if was is not None and case.field == "i_inline_xattr_size" and not was[XATTRS]:
        return alone | {SIZE, CONTENT}  # any size is legal, and moves the addresses in nodes
    if case.unpacked and case.field in READ_WITH_CONTENT:
        return alone | {PACKING, COMPRESSED}
    if case.field == "i_flags":
        alone |= {PACKING, COMPRESSED} if case.unpacked else set()
        alone |= {FOLDED} if case.neutral else set()
    return alone


def _main(words: list[str]) -> None:
    name, every, *rest = words
    told(name, [case for case in cases(name)[:: int(every)] if all(word in str(case) for word in rest)], judged)


def told(name: str, some: Sequence[Any], judge: Callable[[str, Any], tuple[list[str], list[str]]]) -> None:
    """Run these cases, and tell what fails."""
    total = bad = 0
    for case in some:
        total += 1
        wrong, story = judge(name, case)
        if wrong:
            bad += 1
            print(f"{name}: {case}", flush=True)
            for line in wrong[:3]:
                print("   ", line[: 2000 if "Trace" in line else 300], flush=True)
            print("    story:", *[line[:200] for line in story[:8]], sep="\n      ", flush=True)
    print(f"{name}: {total} cases, {bad} failures")


if __name__ == "__main__":
    _main(sys.argv[1:])


__all__ = ["Case", "cases", "differences", "facts", "judged", "mended", "patch", "told"]
