"""What the checks look at: superblocks, packs and tables of one image, opened without believing any of them.

Whatever can't be read counts as zeros and is remembered.  Where both superblocks, or both checkpoints, are bad, what is
still whole of them is put together in an overlay, as a repair would do it, so that the check can go on; the image
itself is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.device.buffers import byte_view
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import DeviceError, NotF2fs
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import Pack, choose_pack, read_packs, was_begun
from f2tools.f2fs.volume.derived import derived_pack, mended_pack, patches_of
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.members import check_order
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.stale import Stale, stale_nat
from f2tools.f2fs.volume.summary import Summaries
from f2tools.f2fs.volume.super import (
    SuperCopy,
    choose_superblock,
    lay_out_devices,
    missing_of,
    read_superblocks,
)
from f2tools.fsck.derive.derive import (
    better_copy,
    derived_superblock,
    mended_superblock,
    of_another_block_size,
    rival,
    with_features,
    with_payload,
)
from f2tools.fsck.facts.refitted import refitted_pack
from f2tools.fsck.facts.segments import Segments
from f2tools.fsck.facts.turns import Turn, out_of_turn

if TYPE_CHECKING:
    from pathlib import Path

Patch = tuple[int, bytes]  # byte offset, bytes
SECTOR = 512


class UnreadableAsZeros(Wrapper):
    """A device on which everything can be read: what can't be reads as zeros and is noted in `unreadable`."""

    def __init__(self, base: Device) -> None:
        super().__init__(base)
        self.real_size = base.size_bytes
        self.unreadable: set[int] = set()  # byte offsets, multiples of 4096

    def make_room(self, size_bytes: int) -> None:
        """Let what lies beyond the end read as zeros, up to this size."""
        self.real_size = self.base.size_bytes
        self.size_bytes = max(self.real_size, size_bytes)

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        inside = max(0, min(len(view), self.real_size - offset))
        if inside < len(view):
            view[inside:] = bytes(len(view) - inside)
            view = view[:inside]
        if not inside:
            return
        try:
            self.base.pread_into(offset, view)
        except DeviceError:
            self._in_pieces(offset, view)

    def plain_file(self) -> int:
        """That of the base: what it can't read is read once more, here."""
        return self.base.plain_file() if self.size_bytes == self.real_size else -1

    def data_ranges(self, offset: int, length: int) -> Any:
        inside = min(offset + length, self.real_size) - offset
        return self.base.data_ranges(offset, inside) if inside > 0 else iter(())

    def _in_pieces(self, offset: int, view: memoryview) -> None:
        at = 0
        while at < len(view):
            length = min(4096 - (offset + at) % 4096, len(view) - at)
            try:
                self.base.pread_into(offset + at, view[at : at + length])
            except DeviceError:
                view[at : at + length] = bytes(length)
                if not self._in_gap(offset + at):
                    self.unreadable.add((offset + at) // 4096 * 4096)
            at += length

    def _in_gap(self, offset: int) -> bool:
        return any(start <= offset < start + length for _, start, length in self.gaps)


class Image:
    """One image under one checkpoint.  `pack` is None where no checkpoint could be found."""

    def __init__(self, device: Device) -> None:
        self.raw = UnreadableAsZeros(device)
        self.device: Device = self.raw
        self.super_copies: tuple[SuperCopy, SuperCopy] = read_superblocks(self.raw)
        self.super_patches: list[Patch] = []
        self.super_derived = False
        self.super_index = 0  # the copy in use
        self.doubted_block_size = 0  # log_blocksize of a copy that is consistent, but under which no node is found
        self.sb: SuperBlock = self._superblock()
        self.geo = Geometry.of(self.sb)
        lay_out_devices(self.raw, self.sb, self.geo)
        self.end_bytes = self.geo.end_blkaddr * self.geo.block_size
        self.missing = missing_of(self.raw, self.end_bytes)
        self.there_bytes = min(self.end_bytes, self.raw.size_bytes - self.raw.missing_bytes)  # where what is there ends
        self.missing_bytes = self.end_bytes - self.there_bytes + sum(length for _, _, length in self.raw.gaps)
        self.raw.make_room(self.end_bytes)
        self._refresh()
        self.payload_was: int | None = None  # what the superblock says, where the checkpoints have another one
        self.packs: tuple[Pack, Pack] = self._fitting_packs()
        self.pack_patches: list[Patch] = []
        self.pack_put_together = False  # from what is left of it, or from a scan, which is `pack_derived`
        self.pack_derived = False
        self.turn: Turn | None = None  # a pack that was sound but for its version
        self.repaired = False  # whether a repair has changed it, which leaves both packs valid
        self.journals_of = -1  # version of a checkpoint of which it is known that its journals were lost
        self.pack_refitted = False  # with them its flags and cp_pack_start_sum are right
        self.pack: Pack | None = self._pack()
        check_order(self.device, self.sb, self.geo, self.pack)

    @property
    def cp(self) -> Checkpoint:
        """The checkpoint in use."""
        assert self.pack is not None
        return self.pack.cp

    @property
    def block_size(self) -> int:
        return self.geo.block_size

    @cached_property
    def summaries(self) -> Summaries:
        """Summaries of the open logs, journals, SSA."""
        assert self.pack is not None
        return Summaries(self.device, self.geo, self.pack)

    @property
    def journals_lost(self) -> bool:
        """Whether what the journals held may be gone: then the tables may be behind the log."""
        if self.cp.checkpoint_ver == self.journals_of or self.stale is not None:
            return True
        return self.summaries.journals_lost(self.cp, lambda: self.sit)

    @cached_property
    def stale(self) -> Stale | None:
        """What proves that the journals are older than the checkpoint."""
        assert self.pack is not None
        return stale_nat(self.device, self.geo, self.pack, self.nat)

    @cached_property
    def nat(self) -> Nat:
        """The node address table, journal applied."""
        assert self.pack is not None
        return Nat(self.device, self.geo, self.pack, self.summaries.journals.nat)

    @cached_property
    def sit(self) -> Segments:
        """The segment information table, journal applied."""
        assert self.pack is not None
        return Segments(self.device, self.geo, self.pack, self.summaries.journals.sit)

    def read(self, blkaddrs: NDArray[np.integer]) -> NDArray[np.uint8]:
        """Blocks in the order asked, shape (n, block_size); addresses must lie in the volume."""
        return self.device.read_blocks(blkaddrs, self.geo.block_size)

    def read_rising(self, blkaddrs: NDArray[np.int64], into: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Blocks at rising addresses, as the first rows of `into`, which saves the memory of every batch being new."""
        size = self.geo.block_size
        flat = byte_view(into)
        cuts = (np.flatnonzero(np.diff(blkaddrs) != 1) + 1).tolist()
        for begin, end in pairwise([0, *cuts, blkaddrs.size]):
            self.device.pread_into(int(blkaddrs[begin]) * size, flat[begin * size : end * size])
        return into[: blkaddrs.size]

    def block(self, blkaddr: int) -> NDArray[np.uint8]:
        """One block."""
        return self.device.read_range(blkaddr, 1, self.geo.block_size)[0]

    def close(self) -> None:
        """Close the device."""
        self.device.close()

    # -- putting together what is still whole -------------------------------------------------------------------

    def _assume(self, patches: Sequence[Patch]) -> None:
        """From now on read as if these bytes stood there."""
        if not isinstance(self.device, Overlay):
            self.device = Overlay(self.raw)
        for offset, data in patches:
            self.device.pwrite(offset, data)

    def _refresh(self) -> None:
        if isinstance(self.device, Overlay):  # it has looked at the size before the devices were laid out
            self.device = Overlay(self.raw)
            self._assume(self.super_patches)

    def _superblock(self) -> SuperBlock:
        try:
            chosen = choose_superblock(self.super_copies, self.raw)
        except NotF2fs:
            sb = mended_superblock(self.raw)
            if sb is None:
                sb = derived_superblock(self.raw)
                if sb is None:
                    if self.raw.unreadable:  # perhaps they are
                        choose_superblock(read_superblocks(self.raw.base), self.raw.base)
                    raise
                self.super_derived = True
            sb = of_another_block_size(self.raw, sb) or sb
            features = {copy.sb.feature for copy in self.super_copies if copy.sb is not None and copy.has_magic}
            if len(features) > 1:
                sb = with_features(self.raw, sb, sorted(features))
            self.super_patches = patches_of(sb)
            self._assume(self.super_patches)
            return sb
        assert chosen.sb is not None
        first, second = self.super_copies
        if first.valid and second.valid and first.sb is not None and second.sb is not None:
            chosen = self.super_copies[better_copy(self.raw, first.sb, second.sb)]
        self.super_index = chosen.index
        assert chosen.sb is not None
        both = first.valid and second.valid  # each is where the block size puts it, so nothing speaks against that
        if both:
            return chosen.sb
        hit = self.super_copies[1 - chosen.index].sb
        other = of_another_block_size(self.raw, chosen.sb)
        if other is not None:
            self.doubted_block_size = chosen.sb.log_blocksize
        elif hit is not None:
            other = rival(self.raw, chosen.sb, hit)
        if other is not None:
            self.super_patches = patches_of(other)
            self._assume(self.super_patches)
        return other or chosen.sb

    def _fitting_packs(self) -> tuple[Pack, Pack]:
        fitting = with_payload(self.device, self.sb)
        if fitting is not None:
            self.payload_was = self.sb.cp_payload
            self.sb, self.geo = fitting, Geometry.of(fitting)
            self.super_patches = patches_of(fitting)
            self._assume(self.super_patches)
        return read_packs(self.device, self.geo)

    def _pack(self) -> Pack | None:
        self.turn = out_of_turn(self.device, self.geo, self.packs)
        if self.turn is not None:
            self._take(self.turn.patches)
            self.packs = read_packs(self.device, self.geo)
        try:
            chosen = choose_pack(self.packs)
        except NotF2fs:
            pass
        else:
            refitted = refitted_pack(self.device, self.geo, chosen)
            self.pack_refitted = bool(refitted)
            if not self.pack_refitted:
                return chosen
            self._take(refitted)
            return read_packs(self.device, self.geo)[chosen.index]
        found: list[tuple[Pack, list[Patch]]] = []
        for index in range(2):
            patches = mended_pack(self.device, self.geo, index)
            if patches:
                trial = Overlay(self.device)
                for offset, data in patches:
                    trial.pwrite(offset, data)
                pack = read_packs(trial, self.geo)[index]
                if pack.valid:
                    found.append((pack, patches))
        if not found:
            found = self._derived()
        if not found:
            return None
        found.sort(key=lambda item: item[0].cp.checkpoint_ver)
        pack, patches = found[-1]
        if len(found) == 2 and was_begun(self.device, self.geo, self.packs[pack.index], found[0][0]):
            pack, patches = found[0]
        self._take(patches)
        self.pack_put_together = True
        return pack

    def _take(self, patches: list[Patch]) -> None:
        """Assume these of the checkpoint."""
        self.pack_patches = [*self.pack_patches, *patches]
        self._assume(patches)

    def _derived(self) -> list[tuple[Pack, list[Patch]]]:
        patches = derived_pack(self.device, self.geo, log=True)
        if not patches:
            return []
        trial = Overlay(self.device)
        for offset, data in patches:
            trial.pwrite(offset, data)
        pack = read_packs(trial, self.geo)[0]
        self.pack_derived = pack.valid
        return [(pack, patches)] if pack.valid else []


def open_image(path: str | Path, devices: Sequence[str | Path] = ()) -> Image:
    """Open an image for checking; NotF2fs where nothing of a superblock is left."""
    device = open_device(path, extra=list(devices))
    try:
        return Image(device)
    except BaseException:
        device.close()
        raise
