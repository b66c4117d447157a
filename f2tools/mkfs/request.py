"""What can be asked of a new volume: the options, the devices, and which of them contradict each other.  Pure."""

from __future__ import annotations

import re

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import (
    BLOCK_SIZES,
    ENCODINGS,
    F2FS_ENC_NO_COMPAT_FALLBACK_FL,
    F2FS_ENC_STRICT_MODE_FL,
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_PACKED_SSA,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_QUOTA_INO,
    F2FS_FEATURE_RO,
    F2FS_MAX_EXTENSION,
    F2FS_MIN_BLOCK_SIZE,
    FEATURES,
    MAX_DEVICES,
    MAX_PATH_LEN,
    MAX_VOLUME_NAME,
)
from f2tools.f2fs.layout.super import encoded_extension
from f2tools.lazy import dataclass, replace
from f2tools.version import __version__
from f2tools.volumes import MOST_ID

SETTABLE_FEATURES = tuple(name for name in FEATURES if name != "atomic_write")
NEED_EXTRA_ATTR = ("project_quota", "inode_checksum", "flexible_inline_xattr", "inode_crtime", "compression")
ENCODING_FLAGS = {"strict": F2FS_ENC_STRICT_MODE_FL, "hashonly": F2FS_ENC_NO_COMPAT_FALLBACK_FL}

COLD_EXTENSIONS: tuple[str, ...] = (
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac", "gif",
    "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe", "apk", "cnt",
    "exo", "odex", "vdex", "so",
)  # fmt: skip
HOT_EXTENSIONS: tuple[str, ...] = ("db", "vmdk", "vdi", "qcow2")


@dataclass(frozen=True)
class Zones:
    """The zones of a zoned block device; sizes in bytes."""

    size: int
    capacities: tuple[int, ...]
    conventional: int  # leading zones that may be written anywhere
    managed: bool = True  # host-managed; otherwise host-aware


@dataclass(frozen=True)
class DeviceSpec:
    """One device of the volume: how large it is, and what the device table will call it."""

    path: str
    size_bytes: int
    sector_size: int = 512
    alias: str | None = None  # name of the file that stands for the whole device (feature device_alias)
    zones: Zones | None = None


@dataclass(frozen=True)
class Options:
    """Everything that can be asked of a new volume; the defaults are those of mkfs.f2fs."""

    label: str = ""
    uuid: bytes = bytes(16)
    features: int = 0
    quota_kinds: tuple[int, ...] = ()  # follows from features: 0 user, 1 group, 2 project
    encoding: int = 0
    encoding_flags: int = 0
    overprovision: float = 0.0  # percent; 0 lets the volume's size decide
    segs_per_sec: int = 1
    secs_per_zone: int = 1
    reserved_sections: int = 0  # zoned volumes only; 0 lets the overprovision decide
    large_nat_bitmap: bool = False
    nat_bits: bool = True
    root_uid: int = 0
    root_gid: int = 0
    timestamp: int = 0  # seconds since 1970
    cold_extensions: tuple[str, ...] = ()
    hot_extensions: tuple[str, ...] = ()
    zoned: bool = False
    discard: bool = True
    block_size: int = 4096
    start_bytes: int = 0  # where the volume will start on its medium: the partition's offset
    total_sectors: int | None = None  # of the first device's sectors; None for all of them
    checkpoint_ver: int = 1
    version: str = f"f2tools {__version__}"


class TooSmall(Usage):
    """The devices don't have the room that the options ask for."""


def parse_features(texts: tuple[str, ...] | list[str]) -> int:
    """Feature bits of comma lists as -O takes them; Usage naming all features where one is unknown."""
    bits = 0
    for name in re.split(r"[,\s]+", ",".join(texts)):
        if not name:
            continue
        if name not in SETTABLE_FEATURES:
            raise Usage(f"there is no feature {name!r}; there are {', '.join(SETTABLE_FEATURES)}")
        bits |= FEATURES[name]
    return bits


def parse_encoding(text: str) -> tuple[int, int, int]:
    """(encoding, flags set, flags cleared) of `utf8:strict,nohashonly` as -C takes it."""
    name, _, rest = text.partition(":")
    if name not in ENCODINGS:
        raise Usage(f"there is no encoding {name!r}; there is {', '.join(ENCODINGS)}")
    on = off = 0
    for flag in filter(None, rest.split(",")):
        bare = flag.removeprefix("no")
        if flag in ENCODING_FLAGS:
            on, off = on | ENCODING_FLAGS[flag], off & ~ENCODING_FLAGS[flag]
        elif bare in ENCODING_FLAGS:
            on, off = on & ~ENCODING_FLAGS[bare], off | ENCODING_FLAGS[bare]
        else:
            known = ", ".join(f"[no]{one}" for one in ENCODING_FLAGS)
            raise Usage(f"there is no encoding flag {flag!r}; there are {known}")
    return ENCODINGS[name], on, off


def checked(options: Options, specs: tuple[DeviceSpec, ...], notes: list[str]) -> Options:
    """The options with what follows from them filled in; Usage where they contradict each other."""
    feature = options.features
    if options.block_size not in BLOCK_SIZES:
        raise Usage(f"block size {options.block_size} is not one of {', '.join(map(str, BLOCK_SIZES))}")
    if any(spec.alias for spec in specs):
        feature |= F2FS_FEATURE_DEVICE_ALIAS
    elif feature & F2FS_FEATURE_DEVICE_ALIAS:
        raise Usage("the feature device_alias comes with a device that has a name: -c DEVICE@NAME")
    if options.zoned:
        feature |= F2FS_FEATURE_BLKZONED
    elif feature & F2FS_FEATURE_BLKZONED:
        raise Usage("the feature blkzoned is asked for with -m")
    quota_kinds = (0, 1) if feature & F2FS_FEATURE_QUOTA_INO else ()
    if feature & F2FS_FEATURE_PRJQUOTA:  # alone it gives a project quota file alone
        feature |= F2FS_FEATURE_QUOTA_INO
        quota_kinds += (2,)
    if not feature & F2FS_FEATURE_EXTRA_ATTR:
        for name in NEED_EXTRA_ATTR:
            if feature & FEATURES[name]:
                raise Usage(f"the feature {name} needs extra_attr: -O extra_attr,{name}")
    if feature & F2FS_FEATURE_PACKED_SSA and options.block_size == F2FS_MIN_BLOCK_SIZE:
        feature &= ~F2FS_FEATURE_PACKED_SSA
        notes.append("packed_ssa is left out: with blocks of 4096 bytes there is nothing to pack")
    encoding, encoding_flags = options.encoding, options.encoding_flags
    if encoding:
        feature |= F2FS_FEATURE_CASEFOLD
    elif feature & F2FS_FEATURE_CASEFOLD:
        # mkfs.f2fs leaves the encoding 0 here, and no kernel mounts that.
        encoding = ENCODINGS["utf8"]
        notes.append("casefold: the encoding is utf8")
    if feature & F2FS_FEATURE_RO and options.zoned:
        raise Usage("a zoned volume can't have the feature ro")
    for value, name, most in ((options.segs_per_sec, "-s", 1 << 20), (options.secs_per_zone, "-z", 1 << 20)):
        if not 1 <= value <= most:
            raise Usage(f"{name} {value}: must be 1 to {most}")
    if not 0 <= options.overprovision < 100:
        raise Usage(
            f"-o {options.overprovision:g}: a percentage is needed, more than 0 and less than 100; 0 is automatic"
        )
    if options.reserved_sections and not options.zoned:
        raise Usage("-Z is for zoned volumes only (-m); elsewhere the overprovision (-o) decides")
    for value, name in ((options.root_uid, "user"), (options.root_gid, "group")):
        if not 0 <= value <= MOST_ID:
            raise Usage(f"-R: {name} id {value} is not 0 to {MOST_ID}")
    if not 0 <= options.timestamp < 1 << 63:
        raise Usage(f"-T {options.timestamp}: seconds since 1970 are needed")
    if len(encoded_label(options.label)) > 2 * MAX_VOLUME_NAME:
        raise Usage(f"-l: the label takes more than {MAX_VOLUME_NAME} UTF-16 units; shorten it")
    _check_devices(specs, options)
    return replace(options, features=feature, encoding=encoding, encoding_flags=encoding_flags, quota_kinds=quota_kinds)


def _check_devices(specs: tuple[DeviceSpec, ...], options: Options) -> None:
    if len(specs) > MAX_DEVICES:
        raise Usage(f"{len(specs)} devices; a volume has room for {MAX_DEVICES}")
    if len({spec.sector_size for spec in specs}) > 1:
        said = ", ".join(f"{spec.path} {spec.sector_size}" for spec in specs)
        raise Usage(f"the devices have sectors of different sizes ({said}); a volume needs them equal")
    names: set[str] = set()
    for spec in specs:
        if len(specs) > 1 and not 0 < len(spec.path.encode("utf-8", "surrogateescape")) < MAX_PATH_LEN:
            raise Usage(
                f"{spec.path}: the device table has room for {MAX_PATH_LEN - 1} bytes; give a shorter path, "
                "or say with --device-path what to write there"
            )
        if spec.alias is None:
            continue
        if not 0 < len(spec.alias.encode("utf-8", "surrogateescape")) < MAX_PATH_LEN or "/" in spec.alias:
            raise Usage(
                f"-c {spec.path}@{spec.alias}: a file name of 1 to {MAX_PATH_LEN - 1} bytes without / is needed"
            )
        if spec.alias in (".", "..", "lost+found") or spec.alias in names:
            raise Usage(f"-c {spec.path}@{spec.alias}: the root directory has that name already")
        names.add(spec.alias)
    if specs and specs[0].alias:
        raise Usage("the first device holds the metadata and can't have an alias")
    if len(specs) > 1 and options.total_sectors is not None:
        raise Usage("a number of sectors can't be given for a volume on several devices")


def encoded_label(label: str) -> bytes:
    """The label as the superblock has it; Usage where it is not Unicode."""
    try:
        return label.encode("utf-16-le")
    except UnicodeEncodeError:
        raise Usage("-l: the label is not valid UTF-8") from None


def extension_lists(cold: tuple[str, ...], hot: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(cold, hot) lists: the usual ones, then those asked for; Usage where one is too long or they are too many."""
    lists: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for usual, asked in ((COLD_EXTENSIONS, cold), (HOT_EXTENSIONS, hot)):
        chosen = list(usual)
        seen.update(usual)
        for name in asked:
            encoded_extension(name)
            if name not in seen:
                chosen.append(name)
                seen.add(name)
        lists.append(tuple(chosen))
    if len(lists[0]) + len(lists[1]) > F2FS_MAX_EXTENSION:
        room = F2FS_MAX_EXTENSION - len(COLD_EXTENSIONS) - len(HOT_EXTENSIONS)
        raise Usage(f"too many extensions: besides the usual ones there is room for {room}")
    return lists[0], lists[1]
