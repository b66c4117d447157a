"""Images that wrap a disk: E01 (Expert Witness), VMDK, VHD and VHDX, by the libyal libraries.  Read-only.

They are the extra `containers`, and imported when such an image is met.  A container is recognised by its first bytes,
so the file's name doesn't matter.  Memory is bounded by what the libraries cache, a few MiB.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.beside import beside
from f2tools.device.containers.ewf import MAGIC as EWF_MAGIC
from f2tools.device.containers.ewf import Chunks, open_chunks
from f2tools.device.media.image import kind_of, open_fd, open_source
from f2tools.device.media.remote import DeviceFile, is_url, open_remote
from f2tools.errors import DeviceError, F2fsError, Unsupported

READ_AT_ONCE = 1 << 20
MOST_PARENTS = 64
HASHES = ("md5", "sha1", "sha256")


class Opened(NamedTuple):
    """A library's handle, the files that it reads, and what knows their chunks where the library hides damage."""

    handle: Any
    files: list[str]
    chunks: Chunks | None = None

    def close(self) -> None:
        self.handle.close()
        if self.chunks is not None:
            self.chunks.close()


class Kind(NamedTuple):
    """A container format: its first bytes, its name, and what opens it."""

    magic: bytes
    name: str
    module: str
    open: Callable[[Any, str], Opened]


def _file(path: str) -> io.RawIOBase:
    """A file for the libraries, opened so that not even its time of access changes."""
    if is_url(path):
        return DeviceFile(open_remote(path))
    return io.FileIO(path, "rb", opener=lambda _path, _flags: open_fd(path, False, kind_of(path)))


def _open_ewf(module: Any, path: str) -> Opened:
    handle = module.handle()
    more: list[str] = [] if is_url(path) else module.glob(path)
    segments = [path, *(beside(path, os.path.basename(one)) for one in more if one != path)]
    chunks = open_chunks(segments)
    try:
        handle.open_file_objects([_file(segment) for segment in segments])
        if not handle.get_media_size():
            raise DeviceError(f"{path}: an E01 image that doesn't say how large the disk is; it is damaged")
        chunks.set_sizes(handle.get_chunk_size(), handle.get_media_size())
    except BaseException:
        chunks.close()
        raise
    return Opened(handle, segments, chunks)


def _open_vhd(module: Any, path: str) -> Opened:
    handle = module.file()
    handle.open_file_object(_file(path))
    return Opened(handle, [path])


def _open_vmdk(module: Any, path: str) -> Opened:
    handle = module.handle()
    handle.open_file_object(_file(path))
    names = [handle.get_extent_descriptor(i).get_filename() for i in range(handle.get_number_of_extents())]
    with open_source(path) as file:
        holds_itself = len(names) == 1 and not file.pread(0, 4).startswith(b"# Di")
    extents = [path] if holds_itself else [beside(path, name or "") for name in names]  # it may have another name now
    handle.open_extent_data_files_as_file_objects([_file(extent) for extent in extents])
    return Opened(handle, list(dict.fromkeys((path, *extents))))


KINDS = (
    Kind(EWF_MAGIC, "an E01 image", "pyewf", _open_ewf),
    Kind(b"EVF2\x0d\x0a\x81\x00", "an Ex01 image", "pyewf", _open_ewf),
    Kind(b"KDMV", "a VMDK image", "pyvmdk", _open_vmdk),
    Kind(b"COWD", "a VMDK image", "pyvmdk", _open_vmdk),
    Kind(b"# Disk DescriptorFile", "a VMDK image", "pyvmdk", _open_vmdk),
    Kind(b"vhdxfile", "a VHDX image", "pyvhdi", _open_vhd),
    Kind(b"conectix", "a VHD image", "pyvhdi", _open_vhd),
)
UNKNOWN = (
    (b"AFF10\r\n\0", "an AFF image of the first generation"),
    (b"<<< Oracle VM VirtualBox Disk Image >>>", "a VirtualBox image"),
    (b"<<< QEMU VM Virtual Disk Image >>>", "a VirtualBox image"),
)


def kind_of_container(head: bytes) -> Kind | None:
    """Which container begins with these bytes; Unsupported for a known one that can't be read here."""
    for magic, name in UNKNOWN:
        if head.startswith(magic):
            raise Unsupported(f"{name}: convert it to a raw image first, with `qemu-img convert` or affconvert")
    return next((kind for kind in KINDS if head.startswith(kind.magic)), None)


class Container(Device):
    """What is in a container: the image and, for a difference image, those that it builds on."""

    def __init__(self, name: str, opened: list[Opened]) -> None:
        self.name = name
        self._opened = opened
        self._handle, _, self._chunks = opened[0]
        self._files = [file for one in opened for file in one.files]
        self.size_bytes = self._handle.get_media_size()
        self.read_only = True

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            wanted = min(READ_AT_ONCE, len(view) - done)
            if self._chunks is not None:
                self._chunks.must_be_there(offset + done, wanted)
            try:
                data = self._handle.read_buffer_at_offset(wanted, offset + done)
            except (OSError, RuntimeError, MemoryError, ValueError) as error:
                raise DeviceError(
                    f"{self.name}: reading at offset {offset + done:#x} failed: {_first(error)}"
                ) from None
            if not data:
                raise DeviceError(f"{self.name}: nothing can be read at offset {offset + done:#x}")
            if self._chunks is not None:
                self._chunks.must_be_sound(offset + done, data)
            view[done : done + len(data)] = data
            done += len(data)

    @property
    def missing_bytes(self) -> int:
        return 0 if self._chunks is None else self._chunks.missing_bytes

    @property
    def loss(self) -> str:
        return self._chunks.why_cut if self._chunks is not None and self._chunks.missing_bytes else ""

    def files(self) -> list[str]:
        return self._files

    def stored_hashes(self) -> dict[str, str]:
        if not hasattr(self._handle, "get_hash_values"):
            return {}
        stored: dict[str, str] = self._handle.get_hash_values()
        return {name.lower(): value.lower() for name, value in stored.items() if name.lower() in HASHES}

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()

    def flush(self) -> None:
        return None

    def close(self) -> None:
        for one in self._opened:
            one.close()
        self._opened = []


def open_container(path: str | Path, kind: Kind) -> Container:
    """The disk in a container; DeviceError where it can't be read, Unsupported where the library is missing."""
    name = os.fspath(path)
    try:
        module = import_module(kind.module)
    except ImportError:
        raise Unsupported(
            f"{name}: {kind.name}; to read it, install the extra: pip install 'f2tools[containers]'"
        ) from None
    opened: list[Opened] = []
    known: list[str] = []
    try:
        while name not in known:
            opened.append(kind.open(module, name))
            known.append(name)
            parent = _parent(opened[-1].handle)
            if not parent:
                break
            name = beside(name, parent)
            if len(known) > MOST_PARENTS:
                raise DeviceError(f"{name}: too many images that build on each other")
        for one, below in pairwise(opened):
            one.handle.set_parent(below.handle)
        return Container(os.fspath(path), opened)
    except F2fsError:
        for one in opened:
            one.close()
        raise
    except (OSError, RuntimeError, MemoryError, ValueError) as error:
        for one in opened:
            one.close()
        raise DeviceError(f"{name}: {kind.name} that can't be read: {_first(error)}") from None


def _parent(handle: Any) -> str | None:
    """The image that a difference image builds on."""
    return handle.get_parent_filename() if hasattr(handle, "get_parent_filename") else None


def _first(error: BaseException) -> str:
    """The first line of a library's message, which goes on with its whole call chain."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
