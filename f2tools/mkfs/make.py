"""From a request to a formatted volume: open or create the targets, see what is on them, plan, write, publish.

An image that is made anew has no name until it is complete, so an interrupted format leaves nothing behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from f2tools.device import Device, open_device
from f2tools.device.known import Signature, describe, find_signatures
from f2tools.device.media.image import ImageFile
from f2tools.device.media.mounted import in_use
from f2tools.device.media.new_image import unnamed_image
from f2tools.device.open import file_and_part, files_below
from f2tools.errors import DeviceError, Taken, Usage
from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, FEATURES
from f2tools.lazy import dataclass, replace
from f2tools.mkfs.align import EraseBlock, erase_block_of, partition_start, plan_aligned
from f2tools.mkfs.plan import VolumePlan, make_plan
from f2tools.mkfs.populate import (
    Fill,
    Filling,
    digest_of,
    fill_volume,
    filling_of,
    needed_features,
    newest,
    read_source,
    set_times,
    too_small,
)
from f2tools.mkfs.request import ENCODING_FLAGS, DeviceSpec, Options, Zones
from f2tools.mkfs.sizing import Free, has_no_room, smallest_size
from f2tools.options import human_size
from f2tools.process import without_collector

if TYPE_CHECKING:
    from f2tools.copyin.source import Tree
    from f2tools.mkfs.format import Volume

ANDROID_FEATURES = ("encrypt", "quota", "project_quota", "extra_attr", "verity")
FIXED_CHECKPOINT_VER = 0x6B8B4567  # the first rand() of glibc after srand(0), which mkfs.f2fs -r takes
SPARSE_MOST = 16 << 40


@dataclass(frozen=True)
class Extra:
    """A further device: where it is, what file stands for it, what the device table will call it."""

    path: str
    alias: str | None = None


@dataclass(frozen=True)
class MkfsRequest:
    """A request to `f2tools mkfs`; `options` without what only the devices can tell."""

    image: str
    options: Options = Options()
    extra: tuple[Extra, ...] = ()
    uuid: bytes | None = None  # None makes one: random, or derived for a reproducible volume
    timestamp: int | None = None
    root_owner: tuple[int, int] | None = None
    reproducible: bool = False  # -r
    source_date_epoch: int | None = None
    sizes: tuple[int, ...] = ()  # of images to be created: IMAGE, then each extra one
    sectors: int | None = None
    no_more_sectors: bool = False  # where the device has fewer, as many as it has; else that is refused
    wanted_sector_size: int | None = None
    sparse_size: int | None = None  # write an Android sparse image of that volume size
    zone_size: int | None = None  # lay an image out for a zoned device
    conventional_zones: int | None = None
    device_paths: tuple[str, ...] = ()
    erase_block: int | None = None
    align: bool = False
    partition_start: int | None = None
    force: bool = False
    only_known_is_kept: bool = False  # without `force`, as mkfs.f2fs has it; else no data in a file is overwritten
    dry_run: bool = False
    undo: str | None = None
    fill: Fill | None = None
    auto_size: bool = False  # the smallest that `fill` fits in, `free` besides
    free: Free | None = None
    digest: bytes = b""  # of what the volume is filled with


@dataclass(frozen=True)
class MkfsReport:
    """What was made, or would have been."""

    plan: VolumePlan
    reasons: tuple[str, ...]  # of the alignment
    overwritten: tuple[tuple[str, str], ...]  # (path, what was there)
    created: tuple[str, ...]
    written: bool
    filling: Filling | None = None


def android(options: Options, given_encoding_flags: bool) -> Options:
    """The options that mkfs.f2fs -g android sets; with ro it sets no others."""
    flags = options.encoding_flags if given_encoding_flags else options.encoding_flags | ENCODING_FLAGS["hashonly"]
    casefolded = options.encoding or options.features & FEATURES["casefold"]
    options = replace(options, nat_bits=False, encoding_flags=flags if casefolded else options.encoding_flags)
    if options.features & F2FS_FEATURE_RO:
        return options
    return replace(options, features=options.features | sum(FEATURES[n] for n in set(ANDROID_FEATURES)))


def make(request: MkfsRequest) -> MkfsReport:
    """Format, and fill where that is asked.

    Before anything is written: Usage or DeviceError where it can't be done, Taken where it would overwrite something.
    """
    with ExitStack() as stack:
        tree: Tree | None = None
        if request.fill is not None:
            stack.enter_context(without_collector())
            request, tree = _with_source(request, request.fill, stack)
        elif request.auto_size:
            raise Usage("--size auto is for a volume that is filled: --from DIR")
        targets = _Targets(request, stack)
        specs = targets.specs()
        options = _identified(request, _placed(request, specs), specs)
        plan, reasons = _planned(request, options, specs)
        filling = None
        if request.fill is not None and tree is not None:
            filling = filling_of(request.fill, tree)
            if request.dry_run or targets.are_there():  # a new image that is too small vanishes by itself
                targets.check_room(plan, request.fill, tree)
        report = MkfsReport(
            plan, tuple(reasons), targets.overwritten(), targets.created(), not request.dry_run, filling
        )
        if not request.dry_run:
            targets.write(plan, tree)
        return report


def _placed(request: MkfsRequest, specs: tuple[DeviceSpec, ...]) -> Options:
    """The options with what the devices say: where the volume starts on its medium, how much of it is asked for."""
    start = request.partition_start
    return replace(
        request.options,
        start_bytes=partition_start(request.image) if start is None else start,
        total_sectors=_sectors(request, specs[0]),
    )


def _with_source(request: MkfsRequest, fill: Fill, stack: ExitStack) -> tuple[MkfsRequest, Tree]:
    """(the request with what follows from its source, the source)."""
    features = request.options.features | needed_features(fill)
    request = replace(request, options=replace(request.options, features=features))
    paths = [request.image, *(extra.path for extra in request.extra), *([request.undo] if request.undo else [])]
    tree = read_source(fill, paths, os.path.dirname(request.image) or ".", columns=True)
    stack.callback(tree.close)
    set_times(tree, request.timestamp, request.source_date_epoch)
    if request.timestamp is None and request.source_date_epoch is None:
        request = replace(request, timestamp=newest(tree))
    request = replace(request, reproducible=True, digest=digest_of(tree))
    if request.auto_size:
        size = _smallest(request, fill, tree)
        if request.sparse_size is not None:
            request = replace(request, sparse_size=size)
        else:
            request = replace(request, sizes=(size,))
    return request, tree


def _smallest(request: MkfsRequest, fill: Fill, tree: Tree) -> int:
    """Bytes of the smallest volume by this request that holds the source; Usage where size can't be chosen."""
    if request.extra or request.sectors is not None or request.zone_size is not None:
        raise Usage("--size auto is for a volume on one image; -c, SECTORS and --zone-size don't go with it")

    def planned(size: int) -> VolumePlan:
        specs = (DeviceSpec(request.image, size),)
        return _planned(request, _placed(request, specs), specs)[0]

    return smallest_size(planned, fill, tree, request.free)


def _planned(request: MkfsRequest, options: Options, specs: tuple[DeviceSpec, ...]) -> tuple[VolumePlan, list[str]]:
    if request.erase_block is not None:
        return plan_aligned(options, specs, EraseBlock(request.erase_block, "as asked"), give_way=False)
    if request.align:
        return plan_aligned(options, specs, erase_block_of(request.image), give_way=True)
    return make_plan(options, specs), []


def _sectors(request: MkfsRequest, spec: DeviceSpec) -> int | None:
    """The positional number of sectors, in sectors of the device."""
    if request.sectors is None:
        return None
    wanted = request.sectors * (request.wanted_sector_size or spec.sector_size) // spec.sector_size
    return min(wanted, spec.size_bytes // spec.sector_size) if request.no_more_sectors else wanted


def _identified(request: MkfsRequest, options: Options, specs: tuple[DeviceSpec, ...]) -> Options:
    """With time, owner, UUID and checkpoint version: derived from the options where the volume is reproducible."""
    fixed = request.reproducible or request.source_date_epoch is not None
    when = request.timestamp
    if when is None:
        when = int(time.time()) if request.source_date_epoch is None else request.source_date_epoch
    owner = request.root_owner
    if owner is None:  # a reproducible volume doesn't depend on the caller
        owner = (0, 0) if fixed else (os.getuid(), os.getgid())
    options = replace(options, timestamp=when, root_uid=owner[0], root_gid=owner[1])
    uuid, version = request.uuid, FIXED_CHECKPOINT_VER
    if not fixed:
        uuid, version = uuid or _stamped(os.urandom(16), 4), int.from_bytes(os.urandom(4), "little") & 0x7FFFFFFF | 1
    elif uuid is None:
        uuid = _stamped(_digest(options, specs, request.source_date_epoch, request.digest), 8)
    return replace(options, uuid=uuid, checkpoint_ver=version)


def _digest(options: Options, specs: tuple[DeviceSpec, ...], epoch: int | None, more: bytes) -> bytes:
    """A number that depends only on the request, not on where the image lies."""
    import hashlib

    sizes = [(spec.size_bytes, spec.sector_size, spec.alias) for spec in specs]
    return hashlib.sha256(repr((options, sizes, epoch)).encode("utf-8", "surrogateescape") + more).digest()[:16]


def _stamped(raw: bytes, version: int) -> bytes:
    """16 bytes as a UUID of this version (RFC 9562: 4 is random, 8 is an application's own)."""
    made = bytearray(raw)
    made[6] = made[6] & 0x0F | version << 4
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


@dataclass
class _Target:
    """One image or device that will hold part of the volume."""

    path: str
    size: int
    sector_size: int = 512
    alias: str | None = None
    zones: Zones | None = None
    device: Device | None = None
    fresh: bool = False  # does not exist yet
    grow: bool = False  # is to get another size
    found: Sequence[Signature] = ()


class _Targets:
    """The images and devices of a request: looked at when made, written to by `write`."""

    def __init__(self, request: MkfsRequest, stack: ExitStack) -> None:
        self._request = request
        self._stack = stack
        sizes = list(request.sizes)
        if len(sizes) > 1 + len(request.extra):
            raise Usage(f"{len(sizes)} sizes for {1 + len(request.extra)} devices")
        if request.sparse_size is not None and (sizes or request.extra or request.zone_size):
            raise Usage("-S makes one Android sparse image; --size, -c and --zone-size don't go with it")
        if len(request.device_paths) > 1 + len(request.extra):
            raise Usage(f"{len(request.device_paths)} device paths for {1 + len(request.extra)} devices")
        named = [Extra(request.image), *request.extra]
        _apart([one.path for one in named])
        if request.undo is not None and (request.extra or not os.path.exists(request.image)):
            raise Usage("--undo keeps what is overwritten on one existing image; there is nothing to keep of a new one")
        if request.undo is not None:
            from f2tools.device.changes.undo import must_be_free

            must_be_free(request.undo)
        padded = [*sizes, *[None] * (len(named) - len(sizes))]
        self._list = [self._look_at(one, size) for one, size in zip(named, padded, strict=True)]
        if request.zone_size is not None:
            self._lay_out_zones(request.zone_size)
        elif request.conventional_zones is not None:
            raise Usage("--conventional-zones goes with --zone-size, on an image for a zoned device (-m)")

    def specs(self) -> tuple[DeviceSpec, ...]:
        paths = [*self._request.device_paths, *(t.path for t in self._list[len(self._request.device_paths) :])]
        return tuple(
            DeviceSpec(path, t.size, t.sector_size, t.alias, t.zones) for path, t in zip(paths, self._list, strict=True)
        )

    def overwritten(self) -> tuple[tuple[str, str], ...]:
        return tuple((t.path, describe(t.found)) for t in self._list if t.found)

    def are_there(self) -> bool:
        """Whether something could be lost."""
        return not all(t.fresh for t in self._list)

    def created(self) -> tuple[str, ...]:
        return tuple(t.path for t in self._list if t.fresh)

    def write(self, plan: VolumePlan, tree: Tree | None) -> None:
        """Write the volume, with the files of a tree if there is one."""
        from f2tools.mkfs.format import build, volume_device, write

        volume = build(plan)
        with ExitStack() as making:
            members: list[Device] = []
            publish: list[Callable[[], None]] = []
            for target in self._list:
                if target.fresh:
                    device, finish = making.enter_context(unnamed_image(target.path, target.size))
                    making.enter_context(device)
                    publish.append(finish)
                else:
                    device = target.device
                    if device is None:
                        raise AssertionError("an existing target is open")
                members.append(device)
            signatures = {index: t.found for index, t in enumerate(self._list)}
            members = self._undoable(members, making)
            for target, device in zip(self._list, members, strict=True):
                if target.grow:
                    device.resize(target.size)
            write(volume, members, signatures)
            if self._request.fill is not None and tree is not None:
                self._fill(volume, volume_device(plan, members), self._request.fill, tree)
            if self._request.sparse_size is not None:
                from f2tools.device.containers.sparse import write_sparse

                write_sparse(members[0], self._request.image, plan.geometry.block_size)
                return
            for finish in reversed(publish):  # what names the others comes last
                finish()

    def check_room(self, plan: VolumePlan, fill: Fill, tree: Tree) -> None:
        """TooSmall, before anything is written, where a tree can't fit."""
        if not self._request.auto_size and has_no_room(plan, fill, tree):
            raise too_small(plan, fill, self._enough(fill, tree))

    def _enough(self, fill: Fill, tree: Tree) -> int | None:
        """The size that would do, in bytes, where one image is to hold all."""
        request = self._request
        alone = not request.extra and request.sectors is None and request.zone_size is None
        return _smallest(request, fill, tree) if alone else None

    def _fill(self, volume: Volume, device: Device, fill: Fill, tree: Tree) -> None:
        fill_volume(volume, device, fill, tree, lambda: self._enough(fill, tree))

    def _undoable(self, members: list[Device], stack: ExitStack) -> list[Device]:
        """The devices, with what is overwritten kept in a file where that was asked for."""
        if self._request.undo is None:
            return members
        from f2tools.device.changes.undo import UndoLog

        return [stack.enter_context(UndoLog(members[0], self._request.undo))]

    # ---- looking ----

    def _look_at(self, named: Extra, size: int | None) -> _Target:
        request = self._request
        if request.sparse_size is not None:
            return self._sparse_target(named.path, request.sparse_size)
        behind, _ = file_and_part(named.path)
        if not os.path.lexists(behind):
            if _among_devices(behind):
                raise Usage(f"{named.path}: there is no such device")
            if size is None:
                raise Usage(f"{named.path} does not exist; --size 1G makes it")
            self._creatable(named.path)
            return _Target(named.path, size, alias=named.alias, fresh=True)
        busy = in_use(behind)
        if busy:
            raise DeviceError(f"{named.path}: {busy}")
        device = self._stack.enter_context(open_device(named.path, write=not request.dry_run, whole=True))
        target = _Target(named.path, device.size_bytes, alias=named.alias, device=device)
        self._take_size(target, size)
        self._look_at_device(target, device)
        return target

    def _sparse_target(self, path: str, size: int) -> _Target:
        if os.path.lexists(path) and not self._request.force:
            raise Taken(f"{path} exists; -f overwrites it")
        if not 0 < size <= SPARSE_MOST:
            raise Usage(f"-S {size}: the size of the volume is needed, up to 16 TiB")
        self._creatable(path)
        return _Target(path, size // 4096 * 4096, fresh=True)

    @staticmethod
    def _creatable(path: str) -> None:
        directory = os.path.dirname(path) or "."
        if not os.path.isdir(directory):
            raise Usage(f"{path}: there is no directory {directory}")

    def _take_size(self, target: _Target, size: int | None) -> None:
        """Let --size change an existing image: freely where that loses nothing, else with -f."""
        if size is None or size == target.size:
            return
        if not isinstance(target.device, ImageFile):
            raise Usage(
                f"{target.path} has {target.size} bytes; --size is for image files, a number of sectors for devices"
            )
        if size < target.size and not self._request.force:
            raise Taken(f"{target.path} has {human_size(target.size)} already; -f cuts it to {human_size(size)}")
        target.size, target.grow = size, True

    def _look_at_device(self, target: _Target, device: Device) -> None:
        if not isinstance(device, ImageFile):
            from f2tools.device.media.block import BlockDevice
            from f2tools.mkfs.zoned import zones_of

            if isinstance(device, BlockDevice):
                target.sector_size = device.sector_size
                target.zones = zones_of(device)
        if target.alias is not None:
            return  # its content stays and becomes a file
        target.found = find_signatures(device)
        if self._request.force:
            return
        if target.found:
            raise Taken(f"{target.path} holds {describe(target.found)}; -f overwrites it")
        if not self._request.only_known_is_kept and _has_data(device):
            raise Taken(f"{target.path} holds data, though no file system that is known; -f overwrites it")

    def _lay_out_zones(self, size: int) -> None:
        """Pretend that the last image is a host-managed zoned device, to be copied to one later."""
        target = self._list[-1]
        if target.zones:
            raise Usage(f"{target.path} is a zoned device and says itself how large its zones are")
        if size <= 0 or size % 512:
            raise Usage(f"--zone-size {size}: whole sectors are needed")
        count = -(-target.size // size)
        conventional = self._request.conventional_zones
        if conventional is None:
            conventional = count if len(self._list) == 1 else 0
        target.zones = Zones(size, (size,) * count, conventional)


def _has_data(device: Device) -> bool:
    """Whether there is any byte but zeros in an image file, or the part of one that is to be formatted.

    A device that held something else before is not blank, and no less free for that.
    """
    from f2tools.device.advice import zeros_before_data

    if not all(isinstance(file, ImageFile) for file in files_below(device)):
        return False
    at = zeros_before_data(device)
    return at < device.size_bytes and device.pread(at, 1) != b"\0"


def _apart(paths: list[str]) -> None:
    """Usage where a device is named twice, by whatever names."""
    seen: dict[object, str] = {}
    for path in paths:
        try:
            status = os.stat(path)
            key: object = (status.st_dev, status.st_ino)
        except OSError:
            key = os.path.abspath(path)
        if key in seen:
            raise Usage(f"{path} is {seen[key]}: each device can be used once")
        seen[key] = path


def parse_owner(text: str) -> tuple[int, int]:
    """(uid, gid) of `1000:1000`; Usage otherwise."""
    uid, colon, gid = text.partition(":")
    if not colon or not uid.isdecimal() or not gid.isdecimal():
        raise Usage(f"-R {text}: two numbers are needed, like 1000:1000")
    return int(uid), int(gid)


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of a UUID in its usual form; Usage otherwise."""
    parts = text.split("-")
    with suppress(ValueError):
        if [len(part) for part in parts] == [8, 4, 4, 4, 12]:
            return bytes.fromhex("".join(parts))
    raise Usage(f"-U {text}: not a UUID; it looks like 01234567-89ab-cdef-0123-456789abcdef")


def parse_extra(texts: Sequence[str]) -> tuple[Extra, ...]:
    """Further devices of -c: `PATH` or `PATH@NAME`."""
    found: list[Extra] = []
    for text in texts:
        path, at, alias = text.partition("@")
        if not path or (at and not alias):
            raise Usage(f"-c {text}: DEVICE or DEVICE@NAME is needed")
        found.append(Extra(path, alias or None))
    return tuple(found)


def _among_devices(path: str) -> bool:
    """Whether a file by that name would lie among devices, in memory, under a name that was mistyped."""
    directory = f"{os.path.realpath(os.path.dirname(path) or '.')}/"
    return directory.startswith("/dev/") and not directory.startswith("/dev/shm/")
