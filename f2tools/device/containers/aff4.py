"""AFF4 images of disks, read-only: a zip file with streams in compressed chunks, and maps that lay streams out.

The format is the AFF4 Standard 1.0; its Python library can't be installed beside a current Python, so it is read here.
One volume with one disk image is read; encrypted and striped ones are refused.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.kept import LruCache
from f2tools.device.media.image import open_source
from f2tools.device.media.remote import DeviceFile
from f2tools.errors import DeviceError, Unsupported

ZIP_MAGIC = b"PK\x03\x04"
_SCHEMA = "http://aff4.org/Schema#"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_ENTRY = np.dtype([("start", "<u8"), ("length", "<u8"), ("at", "<u8"), ("number", "<u4")])  # of a map
_CHUNK = np.dtype([("offset", "<u8"), ("length", "<u4")])  # of the index of a bevy
_TAIL = 22 + 65535 + 76  # of a zip file: where its directory is, after that of a big one, before the longest comment
_LOCAL = struct.Struct("<4s22xHH")  # of a zip member, before its name
KEPT_BYTES = 32 << 20  # of chunks and indexes, of all streams together
MOST_CHUNK_BYTES = 16 << 20
MOST_DIRECTORY_BYTES = 16 << 20  # of the zip file: more than 100,000 members
MOST_TURTLE_BYTES = 2 << 20  # a few KiB in what imagers write
MOST_INDEX_BYTES = 4 << 20  # of a bevy, of a map
MOST_MAP_BYTES = 64 << 20  # of all maps together: two million ranges
MOST_UNPACKED = 64  # times the file, of all members together
MOST_STREAMS = 1024
MOST_DEPTH = 8  # maps on maps
_TOKEN = re.compile(
    r"""\s*+(?:\#[^\n]*+\s*+)*+(?:(?P<uri><[^<>\s]*>)|(?P<text>"(?:[^"\\\n]|\\.)*"(?:\^\^(?:<[^<>\s]*>|[\w:-]+)|@[\w-]+)?)"""
    r"""|(?P<end>[.;,](?=\s|$))|(?P<word>[^\s;,]+?(?=[;,]?(?:\s|$)|\.(?:\s|$))))""",
    re.VERBOSE,
)
_FILL = re.compile(re.escape(_SCHEMA) + r"SymbolicStream([0-9A-Fa-f]{2})")
_ZEROS = (_SCHEMA + "Zero", _SCHEMA + "UnknownData", _SCHEMA + "UnreadableData")

Facts = dict[str, dict[str, list[str]]]  # subject -> property -> values


class _Stream(Protocol):
    size: int

    def read(self, offset: int, length: int) -> bytes: ...


class Aff4(Device):
    """The disk image in an AFF4 volume."""

    def __init__(self, file: Device) -> None:
        self._file = file
        self.name = file.name
        self.read_only = True
        self._container = _Container(file)
        self._stream = self._container.stream(self._container.disk())
        self.size_bytes = self._stream.size

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            data = self._stream.read(offset + done, len(view) - done)
            if not data:
                raise DeviceError(f"{self.name}: nothing can be read at offset {offset + done:#x}")
            view[done : done + len(data)] = data
            done += len(data)

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        if isinstance(self._stream, _Map):
            return self._stream.data_ranges(offset, min(length, self.size_bytes - offset))
        return super().data_ranges(offset, length)

    def wrong_checksums(self) -> Iterator[str]:
        return self._container.wrong_checksums()

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self._file.close()


class _Container:
    """The zip file: its members, and what its metadata say."""

    def __init__(self, file: Device) -> None:
        self._file = file
        self.name = file.name
        self.kept = LruCache(KEPT_BYTES)
        self._streams: dict[str, _Stream] = {}
        self._map_bytes = 0
        directory = _directory_bytes(file)
        if directory > MOST_DIRECTORY_BYTES:
            raise Unsupported(f"{self.name}: an AFF4 image whose directory has {directory} bytes")
        try:
            # the directory only; members are read by their offsets
            self._archive = zipfile.ZipFile(io.BufferedReader(DeviceFile(file, closes=False)))
            self._members = {info.filename: info for info in self._archive.infolist()}
            self.urn = self._archive.comment.split(b"\0")[0].decode("utf-8", "replace").strip()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DeviceError(f"{self.name}: an AFF4 image whose directory can't be read: {error}") from None
        if not self.urn.startswith("aff4:") and "container.description" in self._members:
            self.urn = self.member("container.description", 4096).decode("utf-8", "replace").strip()
        if "information.turtle" not in self._members:
            raise Unsupported(f"{self.name}: a zip file, but not an AFF4 image of a disk")
        self.facts = parse_turtle(self.member("information.turtle", MOST_TURTLE_BYTES).decode("utf-8", "replace"))

    def disk(self) -> str:
        """The stream that is the disk: what an image names, else the only stream that no map is made of."""
        named = [stream for said in self.facts.values() for stream in said.get(_SCHEMA + "dataStream", [])]
        if not named:
            kinds = {urn: _kinds(said) for urn, said in self.facts.items()}
            named = [urn for urn, kind in kinds.items() if "Map" in kind]
            named = named or [urn for urn, kind in kinds.items() if "ImageStream" in kind]
        if len(set(named)) != 1:
            raise Unsupported(f"{self.name}: an AFF4 volume with {len(set(named))} images; one is wanted")
        return named[0]

    def stream(self, urn: str, depth: int = 0) -> _Stream:
        """A stream by its name; Unsupported where it isn't in this volume."""
        if urn not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                raise Unsupported(f"{self.name}: an AFF4 image of more than {MOST_STREAMS} streams")
            self._streams[urn] = self._open(urn, depth)
        return self._streams[urn]

    def _open(self, urn: str, depth: int) -> _Stream:
        fill = _FILL.fullmatch(urn)
        if urn in _ZEROS or fill:
            return _Fill(int(fill[1], 16) if fill else 0)
        said = self.facts.get(urn, {})
        kinds = _kinds(said)
        if "Map" in kinds and depth >= MOST_DEPTH:
            raise Unsupported(f"{self.name}: an AFF4 image of maps on maps, more than {MOST_DEPTH} on each other")
        if "Map" in kinds:
            return _Map(self, urn, said, depth)
        if "ImageStream" in kinds:
            return _Chunks(self, urn, said)
        what = ", ".join(sorted(kinds)) or "not in this volume"
        raise Unsupported(f"{self.name}: an AFF4 image with a stream that can't be read ({what})")

    def wrong_checksums(self) -> Iterator[str]:
        """The members whose CRC-32 is wrong, a sentence each; those of a file that claims far too many bytes aren't
        read."""
        if sum(info.file_size for info in self._members.values()) > MOST_UNPACKED * self._file.size_bytes:
            return
        for name, info in self._members.items():
            try:
                with self._archive.open(info) as member:
                    while member.read(KEPT_BYTES):
                        pass
            except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError, DeviceError) as error:
                yield f"{self.name}: the member {name} is damaged: {error}"

    def find(self, urn: str, rest: str) -> str | None:
        """The member that holds a part of a stream."""
        own = urn[len(self.urn) :].lstrip("/") if self.urn and urn.startswith(self.urn) else urn
        names = (f"{form}/{rest}" for form in (own, quote(urn, safe="/"), quote(urn, safe=""), urn))
        quoted = f"{urn.partition('//')[0]}//".replace(":", "%3A").replace("/", "%2F") + urn.partition("//")[2]
        return next((name for name in (*names, f"{quoted}/{rest}") if name in self._members), None)

    def size_of(self, name: str) -> int:
        return self._members[name].file_size

    def ranges(self, name: str) -> NDArray[Any]:
        """The member that is a map, dtype _ENTRY, in order; the size of all maps together is bounded."""
        self._map_bytes += self.size_of(name)
        if self._map_bytes > MOST_MAP_BYTES:
            raise Unsupported(f"{self.name}: an AFF4 image whose maps have more than {MOST_MAP_BYTES >> 20} MiB")
        raw = self.member(name, MOST_MAP_BYTES)
        if len(raw) % _ENTRY.itemsize:
            raise DeviceError(f"{self.name}: the map {name} has {len(raw)} bytes")
        ranges = np.frombuffer(raw, _ENTRY)
        if (ranges["start"] >= 1 << 62).any() or (ranges["length"] >= 1 << 62).any():
            raise DeviceError(f"{self.name}: the map {name} has ranges beyond what any disk has")
        return ranges[np.argsort(ranges["start"], kind="stable")]

    def part(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a member that is stored as it is."""
        info = self._members[name]
        if info.compress_type != zipfile.ZIP_STORED:
            return self.kept.get(name, lambda: self.member(name, MOST_CHUNK_BYTES))[offset : offset + length]
        head = self._file.pread(info.header_offset, 30)
        magic, name_length, extra = _LOCAL.unpack(head)
        if magic != ZIP_MAGIC or offset + length > info.file_size:
            raise DeviceError(f"{self.name}: the member {name} isn't what the directory says")
        return self._file.pread(info.header_offset + 30 + name_length + extra + offset, length)

    def member(self, name: str, most: int) -> bytes:
        """A whole member, unpacked."""
        info = self._members[name]
        if info.file_size > most:
            raise DeviceError(f"{self.name}: the member {name} has {info.file_size} bytes")
        if info.compress_type == zipfile.ZIP_STORED:
            return self.part(name, 0, info.file_size)
        if info.compress_type != zipfile.ZIP_DEFLATED:
            raise Unsupported(f"{self.name}: the member {name} is packed by method {info.compress_type}")
        _, name_length, extra = _LOCAL.unpack(self._file.pread(info.header_offset, 30))
        raw = self._file.pread(info.header_offset + 30 + name_length + extra, info.compress_size)
        try:
            return zlib.decompressobj(-15).decompress(raw, info.file_size)
        except zlib.error as error:
            raise DeviceError(f"{self.name}: the member {name}: {error}") from None


class _Fill:
    """One byte, repeated without end."""

    def __init__(self, byte: int) -> None:
        self.size = 1 << 63
        self.byte = byte

    def read(self, offset: int, length: int) -> bytes:
        return bytes([self.byte]) * min(length, 1 << 20)


class _Map:
    """Ranges of other streams; what no range covers is zeros."""

    def __init__(self, container: _Container, urn: str, said: dict[str, list[str]], depth: int) -> None:
        name, index = container.find(urn, "map"), container.find(urn, "idx")
        if name is None or index is None:
            raise DeviceError(f"{container.name}: the map of {urn} is missing")
        self._ranges = container.ranges(name)
        self._starts = self._ranges["start"]
        self._ends = self._starts + self._ranges["length"]
        names = container.member(index, MOST_INDEX_BYTES).decode("utf-8", "replace").split("\n")
        targets = [text.strip() for text in names if text.strip()]
        self._streams: dict[int, _Stream] = {}
        numbers: list[int] = np.unique(self._ranges["number"]).tolist()
        for number in numbers:
            if number >= len(targets):
                raise DeviceError(f"{container.name}: the map of {urn} refers to stream {number} of {len(targets)}")
            self._streams[number] = container.stream(targets[number], depth + 1)
        self.size = _number(said, "size", int(self._ends.max(initial=0)))

    def read(self, offset: int, length: int) -> bytes:
        i = int(np.searchsorted(self._starts, offset, "right")) - 1
        if i >= 0:
            start, size, at, number = self._ranges[i].item()
            if offset < start + size:
                inside = offset - start
                return self._streams[number].read(at + inside, min(length, size - inside))
        following = int(self._starts[i + 1]) if i + 1 < self._starts.size else self.size
        return bytes(max(0, min(length, following - offset, 1 << 20)))

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        zeros = [number for number, stream in self._streams.items() if isinstance(stream, _Fill) and not stream.byte]
        wanted = (self._starts < offset + length) & (self._ends > offset) & ~np.isin(self._ranges["number"], zeros)
        for row in np.flatnonzero(wanted).tolist():
            low, high = max(int(self._starts[row]), offset), min(int(self._ends[row]), offset + length)
            if low < high:
                yield low, high - low


class _Chunks:
    """A stream in chunks, many of which make a bevy with its index."""

    def __init__(self, container: _Container, urn: str, said: dict[str, list[str]]) -> None:
        self._container = container
        self._urn = urn
        self.size = _number(said, "size", 0)
        self._chunk = _number(said, "chunkSize", 32768)
        self._per_bevy = _number(said, "chunksInSegment", 2048)
        self._method = next(iter(said.get(_SCHEMA + "compressionMethod", [])), "")
        if not 0 < self._chunk <= MOST_CHUNK_BYTES or not 0 < self._per_bevy < 1 << 24:
            raise DeviceError(f"{container.name}: an AFF4 image with chunks of {self._chunk} bytes")

    def read(self, offset: int, length: int) -> bytes:
        number, inside = divmod(offset, self._chunk)
        if offset >= self.size:
            return b""
        kept = self._container.kept.get((self._urn, number), lambda: self._read_chunk(number))
        return kept[inside : inside + length]

    def _index(self, bevy: int) -> tuple[str, NDArray[Any]]:
        """The member that holds a bevy, and its index, dtype _CHUNK."""
        name = self._container.find(self._urn, f"{bevy:08d}")
        index = self._container.find(self._urn, f"{bevy:08d}.index")
        if name is None or index is None:
            raise DeviceError(f"{self._container.name}: bevy {bevy} of {self._urn} is missing")
        raw = self._container.kept.get(index, lambda: self._container.member(index, MOST_INDEX_BYTES))
        return name, np.frombuffer(raw, _CHUNK, len(raw) // _CHUNK.itemsize)

    def _read_chunk(self, number: int) -> bytes:
        bevy, inside = divmod(number, self._per_bevy)
        name, index = self._index(bevy)
        if inside >= len(index):
            raise DeviceError(f"{self._container.name}: chunk {number} of {self._urn} is missing")
        wanted = min(self._chunk, self.size - number * self._chunk)
        offset, length = index[inside].item()
        if length > 2 * MOST_CHUNK_BYTES:
            raise DeviceError(f"{self._container.name}: a chunk of {length} bytes")
        raw = self._container.part(name, offset, length)
        try:
            data = raw if length == self._chunk else unpacked(self._method, raw, self._chunk)
        except (zlib.error, ValueError, IndexError) as error:
            raise DeviceError(f"{self._container.name}: chunk {number} can't be unpacked: {error}") from None
        if len(data) < wanted:
            raise DeviceError(f"{self._container.name}: chunk {number} holds {len(data)} bytes, not {wanted}")
        return data[:wanted]


# -- compression ------------------------------------------------------------------------------------------------------


def unpacked(method: str, raw: bytes, most: int) -> bytes:
    """A chunk by the compression that is named; ValueError, zlib.error, IndexError where it is damaged."""
    name = method.lower()
    if "snappy" in name:
        return snappy(raw, most)
    if "rfc1950" in name:
        return zlib.decompressobj().decompress(raw, most)
    if "rfc1951" in name:
        return zlib.decompressobj(-15).decompress(raw, most)
    if "lz4" in name:
        import lz4.block

        try:
            if int.from_bytes(raw[:4], "little") == most:  # some write the size before it
                return lz4.block.decompress(raw[4:], uncompressed_size=most)
            return lz4.block.decompress(raw, uncompressed_size=most)
        except lz4.block.LZ4BlockError as error:
            raise ValueError(str(error)) from None
    if not name or "null" in name or "stored" in name:
        return raw
    raise ValueError(f"compression {method}")


def snappy(raw: bytes, most: int) -> bytes:
    """A block of Snappy; see format_description.txt of google/snappy."""
    size = shift = at = 0
    while True:
        size |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not raw[at - 1] & 0x80:
            break
    if size > most:
        raise ValueError(f"a chunk of {size} bytes")
    out = bytearray()
    while at < len(raw):
        tag = raw[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                count = length - 59
                length = int.from_bytes(raw[at : at + count], "little")
                at += count
            out += raw[at : at + length + 1]
            at += length + 1
        else:
            if kind == 1:
                length, back = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | raw[at]
                at += 1
            else:
                count = 2 if kind == 2 else 4
                length, back = (tag >> 2) + 1, int.from_bytes(raw[at : at + count], "little")
                at += count
            if not 0 < back <= len(out):
                raise ValueError("refers to what isn't there")
            start = len(out) - back
            piece = out[start : start + length]
            out += (piece * (length // len(piece) + 1))[:length]
        if len(out) > size:
            break
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes instead of {size}")
    return bytes(out)


# -- metadata ---------------------------------------------------------------------------------------------------------


def parse_turtle(text: str) -> Facts:
    """What a Turtle document says, as far as AFF4 writers use the language."""
    facts: Facts = {}
    prefixes: dict[str, str] = {}
    statement: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            break
        at = match.end()
        if match["end"] == ".":
            _take(statement, prefixes, facts)
            statement = []
        else:
            statement.append(match["uri"] or match["text"] or match["end"] or match["word"])
    return facts


def _take(statement: list[str], prefixes: dict[str, str], facts: Facts) -> None:
    """One statement: a prefix, or a subject with properties and values."""
    if len(statement) == 3 and statement[0].lower() in ("@prefix", "prefix"):
        prefixes[statement[1].rstrip(":")] = statement[2][1:-1]
        return
    if not statement:
        return
    said = facts.setdefault(_full(statement[0], prefixes), {})
    name = ""
    fresh = True  # the next word is a property
    for word in statement[1:]:
        if word == ";":
            fresh = True
        elif word == ",":
            continue
        elif fresh:
            name, fresh = _full(word, prefixes), False
        else:
            said.setdefault(name, []).append(_full(word, prefixes))


def _full(word: str, prefixes: dict[str, str]) -> str:
    if word.startswith("<"):
        return word[1:-1]
    if word.startswith('"'):
        return word[1 : word.rindex('"')]
    if word == "a":
        return _TYPE
    prefix, colon, rest = word.partition(":")
    return prefixes[prefix] + rest if colon and prefix in prefixes else word


def _directory_bytes(file: Device) -> int:
    """How long the directory of a zip file says that it is; 0 where there is none."""
    start = max(0, file.size_bytes - _TAIL)
    tail = file.pread(start, file.size_bytes - start)
    most = 0
    at = tail.find(b"PK\x05\x06")
    while 0 <= at <= len(tail) - 22:  # a comment may hold the same bytes: either will do
        most = max(most, *struct.unpack_from("<I", tail, at + 12))
        if at >= 76 and tail[at - 20 : at - 16] == b"PK\x06\x07":  # then the size of a big one is elsewhere
            most = max(most % 0xFFFFFFFF, *struct.unpack_from("<Q", tail, at - 76 + 40))
        at = tail.find(b"PK\x05\x06", at + 1)
    return most


def _kinds(said: dict[str, list[str]]) -> set[str]:
    return {kind.removeprefix(_SCHEMA) for kind in said.get(_TYPE, [])}


def _number(said: dict[str, list[str]], name: str, default: int) -> int:
    values = said.get(_SCHEMA + name, [])
    try:
        found = int(values[0]) if values else default
    except ValueError:
        return default
    return found if 0 <= found < 1 << 63 else default


def is_aff4(file: Device, head: bytes) -> bool:
    """Whether a zip file is an AFF4 volume: its comment or its first member says so."""
    if not head.startswith(ZIP_MAGIC):
        return False
    tail = file.pread(max(0, file.size_bytes - _TAIL), min(file.size_bytes, _TAIL))
    return b"aff4:" in tail or b"container.description" in head or b"version.txt" in head


def open_aff4(path: str | Path) -> Aff4:
    """The disk in an AFF4 image; DeviceError, Unsupported."""
    file = open_source(os.fspath(path))
    try:
        return Aff4(file)
    except BaseException:
        file.close()
        raise
