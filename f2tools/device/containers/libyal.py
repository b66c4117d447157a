"""Images that wrap a disk: E01 (Expert Witness), VMDK, VHD and VHDX, by the libyal libraries.  Read-only.

They are the extra `containers`, and imported when such an image is met.  A container is recognised by its first bytes,
so the file's name doesn't matter.  Memory is bounded by what the libraries cache, a few MiB.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.beside import beside
from f2tools.device.media.image import kind_of, open_fd, open_source
from f2tools.device.media.remote import DeviceFile, is_url, open_remote
from f2tools.errors import DeviceError, F2fsError, Unsupported

READ_AT_ONCE = 1 << 20
MOST_PARENTS = 64
MOST_TABLE_ENTRIES = 1 << 20  # EnCase writes 16,375, newer programs 65,534; the library takes 160 bytes for each


class Kind(NamedTuple):
    """A container format: its first bytes, its name, and what opens it."""

    magic: bytes
    name: str
    module: str
    open: Callable[[Any, str], tuple[Any, list[str]]]  # the handle, and the files that it reads


def _file(path: str) -> io.RawIOBase:
    """A file for the libraries, opened so that not even its time of access changes."""
    if is_url(path):
        return DeviceFile(open_remote(path))
    return io.FileIO(path, "rb", opener=lambda _path, _flags: open_fd(path, False, kind_of(path)))


def _open_ewf(module: Any, path: str) -> tuple[Any, list[str]]:
    handle = module.handle()
    more: list[str] = [] if is_url(path) else module.glob(path)
    segments = [path, *(beside(path, os.path.basename(one)) for one in more if one != path)]
    for segment in segments:
        _check_tables(segment)
    handle.open_file_objects([_file(segment) for segment in segments])
    return handle, segments


def _check_tables(path: str) -> None:
    """DeviceError for a table of an E01 image that is far longer than any program writes; each entry is an object."""
    with open_source(path) as file:
        at = 13  # behind the head of the file
        while at + 80 <= file.size_bytes:
            kind, following, count = struct.unpack("<16sQ52xI", file.pread(at, 80))
            if kind.rstrip(b"\0") in (b"table", b"table2") and count > MOST_TABLE_ENTRIES:
                raise DeviceError(f"{path}: a table at {at:#x} has {count} chunks, more than any program writes")
            if following <= at:
                return
            at = following


def _open_vhd(module: Any, path: str) -> tuple[Any, list[str]]:
    handle = module.file()
    handle.open_file_object(_file(path))
    return handle, [path]


def _open_vmdk(module: Any, path: str) -> tuple[Any, list[str]]:
    handle = module.handle()
    handle.open_file_object(_file(path))
    names = [handle.get_extent_descriptor(i).get_filename() for i in range(handle.get_number_of_extents())]
    with open_source(path) as file:
        holds_itself = len(names) == 1 and not file.pread(0, 4).startswith(b"# Di")
    extents = [path] if holds_itself else [beside(path, name or "") for name in names]  # it may have another name now
    handle.open_extent_data_files_as_file_objects([_file(extent) for extent in extents])
    return handle, list(dict.fromkeys((path, *extents)))


KINDS = (
    Kind(b"EVF\x09\x0d\x0a\xff\x00", "an E01 image", "pyewf", _open_ewf),
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
    """What is in a container; `handles` are the image and, for a difference image, those that it builds on."""

    def __init__(self, name: str, handles: list[Any], files: list[str]) -> None:
        self.name = name
        self._files = files
        self._handles = handles
        self.size_bytes = handles[0].get_media_size()
        self.read_only = True

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            wanted = min(READ_AT_ONCE, len(view) - done)
            try:
                data = self._handles[0].read_buffer_at_offset(wanted, offset + done)
            except (OSError, RuntimeError, MemoryError, ValueError) as error:
                raise DeviceError(
                    f"{self.name}: reading at offset {offset + done:#x} failed: {_first(error)}"
                ) from None
            if not data:
                raise DeviceError(f"{self.name}: nothing can be read at offset {offset + done:#x}")
            view[done : done + len(data)] = data
            done += len(data)

    def files(self) -> list[str]:
        return self._files

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()

    def flush(self) -> None:
        return None

    def close(self) -> None:
        for handle in self._handles:
            handle.close()
        self._handles = self._handles[:0]


def open_container(path: str | Path, kind: Kind) -> Container:
    """The disk in a container; DeviceError where it can't be read, Unsupported where the library is missing."""
    name = os.fspath(path)
    try:
        module = import_module(kind.module)
    except ImportError:
        raise Unsupported(
            f"{name}: {kind.name}; to read it, install the extra: pip install 'f2tools[containers]'"
        ) from None
    handles: list[Any] = []
    files: list[str] = []
    try:
        while name not in (known := [one for one, _ in handles]):
            handle, read = kind.open(module, name)
            handles.append((name, handle))
            files += read
            parent = _parent(handles[-1][1])
            if not parent:
                break
            name = beside(name, parent)
            if len(known) > MOST_PARENTS:
                raise DeviceError(f"{name}: too many images that build on each other")
        for (_, handle), (_, below) in pairwise(handles):
            handle.set_parent(below)
        return Container(os.fspath(path), [handle for _, handle in handles], files)
    except F2fsError:
        for _, handle in handles:
            handle.close()
        raise
    except (OSError, RuntimeError, MemoryError, ValueError) as error:
        for _, handle in handles:
            handle.close()
        raise DeviceError(f"{name}: {kind.name} that can't be read: {_first(error)}") from None


def _parent(handle: Any) -> str | None:
    """The image that a difference image builds on."""
    return handle.get_parent_filename() if hasattr(handle, "get_parent_filename") else None


def _first(error: BaseException) -> str:
    """The first line of a library's message, which goes on with its whole call chain."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
