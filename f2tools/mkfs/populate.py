"""From a source to the files of a new volume: read, choose, set attributes, sort; then load, superblocks last.

While a volume is being filled it has no superblock, so that the rest of an interrupted run is not taken for a volume.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from f2tools.errors import F2fsError, NoFreeSegment, Usage
from f2tools.f2fs.layout.constants import F2FS_FEATURE_COMPRESSION, F2FS_FEATURE_EXTRA_ATTR
from f2tools.lazy import dataclass
from f2tools.mkfs.request import TooSmall
from f2tools.options import human_size, progress

if TYPE_CHECKING:
    from f2tools.copyin.source import Tree
    from f2tools.device import Device
    from f2tools.f2fs.write.bulk.tree import CompressPolicy, SourceEntry
    from f2tools.f2fs.write.policy import Policy
    from f2tools.mkfs.format import Volume
    from f2tools.mkfs.plan import VolumePlan

MIN_LOG_CLUSTER, MAX_LOG_CLUSTER = 2, 8  # MIN_COMPRESS_LOG_SIZE, MAX_COMPRESS_LOG_SIZE of fs/f2fs/f2fs.h
_NO_DEVICE = (0, 0)
_WRITTEN_PLAINLY = bytes(byte for byte in range(0x20, 0x7F) if byte not in b"'\\")


@dataclass(frozen=True)
class Fill:
    """What a volume is filled with, and how."""

    source: str  # a directory, an archive, `-` for an archive on standard input
    exclude: tuple[str, ...] = ()
    exclude_from: tuple[str, ...] = ()  # files with a pattern a line
    one_file_system: bool = False
    xattrs: bool = True
    map_owner: tuple[str, ...] = ()
    root_owner: tuple[int, int] | None = None
    sort: str = "name"  # "size", or the name of a file with a path a line
    selinux: tuple[str, ...] = ()  # files with rules, the later ones counting
    fs_config: str | None = None
    mount_point: str = "/"  # where Android's files call the root
    compress: CompressPolicy | None = None
    active_logs: int = 6


@dataclass(frozen=True)
class Filling:
    """What a source holds, for people."""

    source: str
    files: int  # inodes, the root aside
    names: int
    bytes: int  # of regular files, holes included
    notes: tuple[str, ...] = ()
    compress: CompressPolicy | None = None


def parse_compress(
    text: str, extensions: Iterable[str] = (), log_size: int = 2, release: bool = False, chksum: bool = False
) -> CompressPolicy:
    """The policy of `lz4`, `zstd:9`; Usage otherwise."""
    from f2tools.f2fs.layout.compress import LEVELS, is_level
    from f2tools.f2fs.volume.compress import ALGORITHMS
    from f2tools.f2fs.write.bulk.tree import CompressPolicy

    name, colon, level = text.partition(":")
    if name not in ALGORITHMS:
        raise Usage(f"--compress {text}: there is no algorithm {name!r}; there are {', '.join(ALGORITHMS)}")
    levels = LEVELS[ALGORITHMS.index(name)]
    if colon and (not level.isdecimal() or not is_level(ALGORITHMS.index(name), int(level))):
        has = f"the levels {levels[0]} to {levels[-1]}" if levels else "no levels"
        raise Usage(f"--compress {text}: {name} has {has}")
    if not MIN_LOG_CLUSTER <= log_size <= MAX_LOG_CLUSTER:
        raise Usage(f"--compress-log-size {log_size}: {MIN_LOG_CLUSTER} to {MAX_LOG_CLUSTER} are possible")
    words = [word.lstrip(".") for word in extensions]
    return CompressPolicy(
        ALGORITHMS.index(name),
        int(level or 0),
        log_size,
        chksum,
        () if "*" in words else tuple(os.fsencode(word) for word in words),
        release,
    )


def needed_features(fill: Fill) -> int:
    """Features that the volume must have for what is asked."""
    return F2FS_FEATURE_COMPRESSION | F2FS_FEATURE_EXTRA_ATTR if fill.compress is not None else 0


# -- reading --------------------------------------------------------------------------------------------------------


def read_source(
    fill: Fill, writing: Iterable[str] = (), spool_directory: str | None = None, columns: bool = False
) -> Tree:
    """The files of the source as they will be in the volume; `writing`: files being written, which are left out.

    `columns`: the caller takes columns too, which a directory is that nothing is changed of.
    SourceError naming what can't be read or stored; Usage for options that can't be followed.
    """
    from f2tools.copyin.select import Excludes, OwnerMap, in_order, lines_of, parse_owner_rule
    from f2tools.copyin.source import checked, read_directory

    if columns and _as_it_is(fill):
        return _columns(fill, writing)
    patterns = [os.fsencode(text) for text in fill.exclude]
    for path in fill.exclude_from:
        patterns += lines_of(path, "--exclude-from")
    excludes = Excludes(patterns) if patterns else None
    owners = OwnerMap([rule for text in fill.map_owner for rule in parse_owner_rule(text)])
    directory = fill.source != "-" and os.path.isdir(fill.source)
    if directory:
        tree = read_directory(
            fill.source,
            excluded=excludes,
            one_file_system=fill.one_file_system,
            xattrs=fill.xattrs,
            skip=_identities(writing),
        )
    else:
        from f2tools.copyin.source_tar import read_tar

        tree = read_tar(
            fill.source,
            excluded=excludes.with_parents if excludes else None,
            xattrs=fill.xattrs,
            spool_directory=spool_directory,
        )
    try:
        if fill.map_owner:
            for entry in tree.entries:
                if entry.link_to is None:
                    owners.apply(entry)
        _dress(fill, tree)
        if fill.root_owner is not None:
            for entry in (tree.entries[0], *tree.made_up):
                entry.uid, entry.gid = fill.root_owner
        for entry in () if directory else tree.entries:  # an archive may have them, a directory does not
            entry.atime_ns = entry.ctime_ns = entry.crtime_ns = None
        checked(tree.entries)
        tree.entries = in_order(tree.entries, fill.sort)
    except BaseException:
        tree.close()
        raise
    return tree


def _as_it_is(fill: Fill) -> bool:
    """Whether all files of a directory go into the volume as they are, in the order of their names."""
    changed = fill.exclude or fill.exclude_from or fill.map_owner or fill.selinux or fill.fs_config is not None
    if changed or fill.sort != "name" or fill.compress is not None:
        return False
    from f2tools.f2fs.write.bulk.together import reads_together

    return fill.source != "-" and os.path.isdir(fill.source) and reads_together()


def _columns(fill: Fill, writing: Iterable[str]) -> Tree:
    from f2tools.copyin.columns import checked_columns, read_columns

    tree = read_columns(
        fill.source, one_file_system=fill.one_file_system, xattrs=fill.xattrs, skip=_identities(writing)
    )
    try:
        assert tree.columns is not None
        if fill.root_owner is not None:
            tree.columns.set_owner(0, *fill.root_owner)
        checked_columns(tree.columns)
    except BaseException:
        tree.close()
        raise
    return tree


def _identities(paths: Iterable[str]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append((status.st_dev, status.st_ino))
    return found


def _dress(fill: Fill, tree: Tree) -> None:
    if not fill.selinux and fill.fs_config is None:
        return
    from f2tools.mkfs.android import dress, read_file_contexts, read_fs_config

    contexts = read_file_contexts(fill.selinux) if fill.selinux else None
    configs = read_fs_config(fill.fs_config) if fill.fs_config is not None else None
    tree.notes += dress(tree.entries, fill.mount_point, contexts, configs)


def filling_of(fill: Fill, tree: Tree) -> Filling:
    """What a tree holds, in numbers."""
    columns = tree.columns
    if columns is not None:
        further = sum(1 for entry in columns.special.values() if entry.link_to is not None)
        names, total = len(columns) - 1, int(columns.sizes.sum())
        return Filling(fill.source, names - further, names, total, tuple(tree.notes), fill.compress)
    names = files = total = 0
    for entry in tree.entries:
        if entry.path:
            names += 1
            if entry.link_to is None:
                files += 1
                total += entry.size
    return Filling(fill.source, files, names, total, tuple(tree.notes), fill.compress)


def newest(tree: Tree) -> int:
    """Seconds since 1970 of the newest file: the creation time of a reproducible volume."""
    if tree.columns is not None:
        return max(0, int(tree.columns.mtimes_ns.max()) // 1_000_000_000)
    return max(0, max((entry.mtime_ns for entry in tree.entries), default=0) // 1_000_000_000)


def set_times(tree: Tree, timestamp: int | None, epoch: int | None) -> None:
    """One time for all files; or, with an epoch, for all that are newer than that."""
    seconds = epoch if timestamp is None else timestamp
    if seconds is None:
        return
    when = seconds * 1_000_000_000
    if tree.columns is not None:
        tree.columns.set_mtimes(when, older_too=timestamp is not None)
        return
    for entry in tree.entries:
        entry.mtime_ns = when if timestamp is not None else min(entry.mtime_ns, when)


def digest_of(tree: Tree) -> bytes:
    """What distinguishes sources, apart from contents."""
    import hashlib

    digest = hashlib.sha256()
    columns = tree.columns
    if columns is not None:
        from f2tools.copyin.columns import decimals

        entries: Iterable[SourceEntry] = columns.special.values()
        digest.update(_listed_names(columns.paths()))
        for numbers in (columns.modes, columns.uids, columns.gids, columns.mtimes_ns, columns.sizes):
            digest.update(b"[" + decimals(numbers) + b"]")
    else:
        entries = tree.entries
        for name in ("path", "mode", "uid", "gid", "mtime_ns", "size"):
            digest.update(repr(list(map(attrgetter(name), entries))).encode())
    for entry in entries:
        if entry.xattrs or entry.target or entry.link_to is not None or entry.rdev != _NO_DEVICE:
            more = entry.path, entry.rdev, entry.target, entry.link_to, sorted(entry.xattrs.items())
            digest.update(repr(more).encode())
    return digest.digest()


def _listed_names(joined: bytes) -> bytes:
    """What Python writes for a list of names, given with a NUL between them; most of them it writes as they are."""
    if joined.translate(None, _WRITTEN_PLAINLY).strip(b"\0"):
        return repr(joined.split(b"\0")).encode()
    return b"[b'" + joined.replace(b"\0", b"', b'") + b"']"


# -- writing --------------------------------------------------------------------------------------------------------


def policy_of(plan: VolumePlan, fill: Fill) -> Policy:
    """How the volume is written; one with the feature ro has two logs."""
    from f2tools.f2fs.write.policy import Policy

    return Policy(active_logs=2 if plan.read_only else fill.active_logs, adaptive=False)


def fill_volume(
    volume: Volume, device: Device, fill: Fill, tree: Tree, enough: Callable[[], int | None] = lambda: None
) -> None:
    """Load a tree into a formatted volume and make the checkpoint; its superblocks are written anew when all is done.

    `enough` gives the size that would do, in bytes, and is asked where this one does not.  SourceError where a file
    can't be read or has changed; TooSmall where there is no room.
    """
    from f2tools.device.media.zones import in_order
    from f2tools.f2fs.write.bulk.inodes import load
    from f2tools.f2fs.write.volume import WritableVolume
    from f2tools.mkfs.format import hide_superblocks, write_superblocks

    plan = volume.plan
    now = plan.options.timestamp * 1_000_000_000
    vol = WritableVolume(
        in_order(device),
        policy_of(plan, fill),
        lambda: now,
        recover=False,
        seed=int.from_bytes(plan.options.uuid, "little"),
        despite={"ro"},
    )
    hide_superblocks(volume, device)
    files = tree.columns or tree.entries
    if isinstance(files, list):
        total = sum(entry.size for entry in files if stat.S_ISREG(entry.mode)) + len(files)
    else:
        total = int(files.sizes.sum()) + len(files)
    try:
        with progress("filling", total) as bar:
            load(vol, files, compress=fill.compress, progress=bar.advance)
        tree.verify()
        vol.checkpoint(unmount=True)
    except (OSError, NoFreeSegment) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOSPC:
            where = f"{error.filename}: " if error.filename else ""
            raise F2fsError(f"{where}{error.strerror or error}") from error
        raise too_small(plan, fill, enough()) from None
    write_superblocks(volume, device)


def too_small(plan: VolumePlan, fill: Fill, size: int | None) -> TooSmall:
    """What is said where a source does not fit; `size`: what would do, in bytes."""
    said = f"; it needs {human_size(size)} ({size} bytes), which --size auto finds" if size else ""
    have = human_size(plan.size_bytes)
    return TooSmall(f"{fill.source} does not fit into a volume of {have}{said}")
