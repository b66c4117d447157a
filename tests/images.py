"""The reference images: what is in tests/reference, unpacked once and handed to tests.

An image lies here as `image.zst`.  The first test that asks for it unpacks it into `.cache/reference`, under the
hash of the packed file, with holes where blocks are zero; later tests, and later runs, share that file.  It is for
reading only: whoever wants to write asks for a `copy()`.
"""

from __future__ import annotations

import atexit
import errno
import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "tests" / "reference"
CACHE = ROOT / ".cache" / "reference"

EXTENTS_SHOWN = 64  # of a file, in a manifest
FIEMAP_EXTENT_ENCODED, FIEMAP_EXTENT_UNWRITTEN = 0x8, 0x800  # linux/fiemap.h
CHUNK = 1 << 20
HOLE = 4096
# An unpacked image carries this modification time; another one means that somebody has written to it.
UNTOUCHED_NS = 1_000_000_000 * 10**9


def _cases(prefix: str = "") -> tuple[str, ...]:
    return tuple(sorted(p.parent.name for p in DIRECTORY.glob(f"{prefix}*/case.json")))


@cache
def case_of(name: str) -> dict[str, Any]:
    """The case.json of a reference image: kind, MiB per device, options, the script that made it."""
    return json.loads((DIRECTORY / name / "case.json").read_text())


CASES = _cases()
CLEAN = tuple(n for n in CASES if case_of(n)["kind"] == "clean")
CRASH = tuple(n for n in CASES if case_of(n)["kind"] == "crash")
SLOADED = tuple(n for n in CASES if case_of(n)["kind"].startswith("made by"))
FSCRYPT = tuple(n for n in CASES if case_of(n)["kind"] == "fscrypt")
HISTORY = tuple(n for n in CASES if case_of(n)["kind"] in ("history", "phone"))
SPARSE = tuple(n for n in CASES if case_of(n)["kind"] == "Android sparse image")
DAMAGED = tuple(sorted(p.stem for p in (DIRECTORY / "damaged").glob("*.json")))


def lasting_directory(prefix: str) -> Path:
    """A new directory, which goes when the process ends."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@dataclass(frozen=True)
class Reference:
    """One image with all that is known of it."""

    name: str
    devices: tuple[Path, ...]
    """The unpacked files, first device first; an Android sparse image stays sparse."""
    directory: Path
    case: dict[str, Any] = field(repr=False)

    @property
    def path(self) -> Path:
        """The image, or its first device."""
        return self.devices[0]

    @property
    def extra(self) -> tuple[Path, ...]:
        """The devices after the first."""
        return self.devices[1:]

    def manifests(self) -> list[str]:
        """Names of the manifests there are: "manifest", "manifest-recovered", ..."""
        return sorted(p.name.removesuffix(".json.gz") for p in self.directory.glob("manifest*.json.gz"))

    def manifest(self, name: str = "manifest") -> dict[str, Any]:
        """The tree as the kernel showed it; `name` may leave out the leading "manifest-"."""
        if not name.startswith("manifest"):
            name = f"manifest-{name}"
        return _manifest(self.directory / f"{name}.json.gz")

    def text(self, name: str) -> str:
        """A text file of the case, such as mkfs.txt."""
        return (self.directory / name).read_text()

    def lines(self, name: str) -> list[Any]:
        """The records of a .jsonl or .jsonl.gz file of the case; a last line that a power cut tore is left out."""
        path = self.directory / name
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        whole = data if data.endswith(b"\n") else data[: data.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    def copy(self, directory: Path) -> Reference:
        """The same with private, writable, sparse copies of the devices in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        return replace(self, devices=tuple(copy_sparse(p, directory / p.name) for p in self.devices))


@cache
def _json(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


@cache
def _manifest(path: Path) -> dict[str, Any]:
    return with_whole_clusters(_json(path))


def with_whole_clusters(shown: dict[str, Any]) -> dict[str, Any]:
    """A kernel's manifest where each compressed cluster is data as a whole.

    So it is for SEEK_DATA and SEEK_HOLE of Linux 6.12; for 6.1 there is a hole at its head, and at what was released of
    it, though both read as data.  FIEMAP shows either kernel's clusters.  A range that becomes longer has None as its
    hash.
    """
    return shown | {"entries": {path: _whole_clusters(entry) for path, entry in shown["entries"].items()}}


def _whole_clusters(entry: dict[str, Any]) -> dict[str, Any]:
    if "compress" not in entry or "read_error" in entry:
        return entry
    size = entry["size"]
    ranges = [[start, start + length] for start, length in entry.get("segments", [[0, size]])]
    ranges += [
        [logical, min(logical + length, size)]
        for logical, _, length, flags in entry.get("extents", [])
        if flags & FIEMAP_EXTENT_ENCODED and not flags & FIEMAP_EXTENT_UNWRITTEN and logical < size
    ]
    if (
        len(shown := entry.get("extents", [])) == EXTENTS_SHOWN
    ):  # the rest is not shown: there, what begins behind a head
        cluster, end = HOLE << entry["compress"]["log_cluster_size"], sum(shown[-1][0:3:2])
        heads = [start - HOLE for start, _ in ranges if start > end and start % cluster == HOLE]
        ranges += [[head, min(head + cluster, size)] for head in heads]
    merged: list[list[int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    found = [[start, end - start] for start, end in merged]
    rest = {key: value for key, value in entry.items() if key != "segments"}
    if "segment_sha256" in entry:
        hashed = dict(zip(map(tuple, entry.get("segments", [[0, size]])), entry["segment_sha256"], strict=True))
        rest["segment_sha256"] = [hashed.get(tuple(segment)) for segment in found]
    return rest | ({} if found in ([[0, size]], [[0, 0]]) else {"segments": found})


def reference(name: str) -> Reference:
    """The reference image of that name, unpacked."""
    directory = DIRECTORY / name
    packed = sorted(directory.glob("image*.zst"))
    if not packed:
        raise KeyError(f"no reference image {name!r}; there are {', '.join(CASES)}")
    return Reference(name, tuple(unpacked(p) for p in packed), directory, case_of(name))


def damaged(name: str, directory: Path) -> Reference:
    """The base image with the named damage, as a copy in `directory`; `.case` has what is wrong and the verdicts.

    The old bytes are looked at first: the patch must fit the image.
    """
    case = json.loads((DIRECTORY / "damaged" / f"{name}.json").read_text())
    image = replace(reference(case["base"]).copy(directory), name=name, case=case)
    with image.path.open("r+b") as f:
        for offset, old, new in case["patch"]:
            f.seek(offset)
            found = f.read(len(old) // 2).hex()
            assert found == old, f"{name}: at {offset:#x} is {found}, not {old}"
            f.seek(offset)
            f.write(bytes.fromhex(new))
    return image


def copy_sparse(source: Path, target: Path) -> Path:
    """Copy a file, holes as holes; the copy is writable."""
    with source.open("rb") as src:
        copy_open(src.fileno(), target)
    return target


def copy_open(fd: int, target: Path) -> None:
    """Copy a file that is open, holes as holes; the offset of the descriptor is another afterwards."""
    with target.open("wb") as dst:
        size = os.fstat(fd).st_size
        dst.truncate(size)
        for offset, length in data_ranges(fd, size):
            dst.seek(offset)
            while length:  # sendfile, since the two may lie on different file systems
                n = os.sendfile(dst.fileno(), fd, offset, length)
                if not n:
                    raise OSError(errno.EIO, f"the source of {target} ends early")
                offset, length = offset + n, length - n


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of what is not a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end - start


def unpacked(packed: Path) -> Path:
    """The image in a .zst file, unpacked once for all tests; for reading."""
    data = packed.read_bytes()
    target = CACHE / hashlib.sha256(data).hexdigest()[:20] / packed.name.removesuffix(".zst")
    if "." not in target.name:
        target = target.with_suffix(".img")
    if target.exists():
        if target.stat().st_mtime_ns == UNTOUCHED_NS:
            return target
        target.unlink(missing_ok=True)  # somebody wrote to it; another process may have seen that, too
    target.parent.mkdir(parents=True, exist_ok=True)
    # Several test processes may do this at once: each into a file of its own, the last rename wins.
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as out:
            for offset, chunk in _nonzero(zstandard.ZstdDecompressor().stream_reader(data)):
                out.seek(offset)
                out.write(chunk)
            out.truncate(_content_size(data))
        temporary.chmod(0o444)
        os.utime(temporary, ns=(UNTOUCHED_NS, UNTOUCHED_NS))
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _nonzero(stream: Any) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of every stretch of blocks that are not all zero."""
    position, zero = 0, bytes(HOLE)
    while chunk := stream.read(CHUNK):
        begin = None
        for at in range(0, len(chunk), HOLE):
            if chunk[at : at + HOLE] == zero:
                if begin is not None:
                    yield position + begin, chunk[begin:at]
                begin = None
            elif begin is None:
                begin = at
        if begin is not None:
            yield position + begin, chunk[begin:]
        position += len(chunk)


def _content_size(packed: bytes) -> int:
    size = zstandard.frame_content_size(packed)
    if size >= 0:
        return size
    stream, size = zstandard.ZstdDecompressor().stream_reader(packed), 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
    return size


def clear_cache() -> None:
    """Forget every unpacked image."""
    shutil.rmtree(CACHE, ignore_errors=True)
