"""What a mount is doing, for who asks: a socket by the mount point's name, and the numbers that it hands out.

The numbers are those of /sys/kernel/debug/f2fs/status, with the kernel's names where it has one.  Who unmounts can also
ask to be told how the mount ended.

The socket lies in a folder that is its user's alone, and both sides look at who is at the other end: nobody else gets
an answer, and nobody else's is believed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import stat
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from f2tools.device.media.mounted import mounts

if TYPE_CHECKING:
    from f2tools.f2fs.write.volume import WritableVolume
    from f2tools.mount.background import Tending
    from f2tools.mount.operations import FileSystem
    from f2tools.mount.session import Request

ANSWER_BYTES = 1 << 20  # longer than any answer
ASK_SECONDS = 10.0
END_SECONDS = 600.0  # a last checkpoint on a slow card
WAITING = 16  # for the end, at most
NUMBERS, END = b"numbers", b"end"  # what may be asked for
_COUNT = (int, float)
SHAPE: dict[str, Any] = {
    "image": str,
    "directory": str,
    "mounted_seconds": _COUNT,
    "read_only": bool,
}
SHAPE_WRITABLE: dict[str, Any] = {
    "broken": (str, NoneType),
    "waf": (int, float, NoneType),
    "utilisation_percent": _COUNT,
    "blocks": {"valid": int, "user": int},
    "nodes": int,
    "inodes": int,
    "segments": dict.fromkeys(("main", "valid", "dirty", "prefree", "free"), int),
    "sections": dict.fromkeys(("main", "free", "reserved"), int),
    "logs": [{"name": str, "segno": int, "next_blkoff": int, "blocks_written": int, "threaded": bool}],
    "cleaned": dict.fromkeys(("sections", "in_background", "data_blocks", "node_blocks"), int),
    "in_memory": {"pages": int, "nodes": int},
    **dict.fromkeys(("blocks_written", "blocks_given", "checkpoints", "discarded_bytes"), int),
}
LOGS = ("hot data", "warm data", "cold data", "hot node", "warm node", "cold node")


class Status:
    """Listens while a `with` lasts; `fd` is None where there is no place for a socket.

    `waiting` are those who want to know how the mount ends; `tell` them once all is on the disk.
    """

    def __init__(self, path: Path, request: Request, files: FileSystem, tending: Tending) -> None:
        self._request = request
        self._files = files
        self._tending = tending
        self._since = time.monotonic()
        self._path = path
        self._socket: socket.socket | None = None
        self._inode = 0
        self.waiting: list[socket.socket] = []

    @property
    def fd(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    def __enter__(self) -> Status:
        with suppress(OSError):
            make_private(self._path.parent)
            self._path.unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(os.fspath(self._path))
            listening.listen(4)
            listening.setblocking(False)
            self._socket = listening
            self._inode = self._path.lstat().st_ino
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()
            with suppress(OSError):
                if self._path.lstat().st_ino == self._inode:  # else of what was mounted there since
                    self._path.unlink()

    def answer(self) -> None:
        """Somebody asks."""
        assert self._socket is not None
        with suppress(OSError):
            connection, _ = self._socket.accept()
            connection.settimeout(1.0)
            with ExitStack() as stack:
                stack.enter_context(connection)
                if not _is_ours(connection):
                    return
                if connection.recv(len(NUMBERS)) != END:
                    connection.sendall(json.dumps(self.numbers()).encode())
                else:
                    self.waiting = [*self.waiting[1 - WAITING :], connection]
                    stack.pop_all()

    def tell(self, error: str | None) -> None:
        """Tell who waits for it that the mount has ended, and how."""
        for connection in self.waiting:
            with suppress(OSError), connection:
                connection.sendall(json.dumps({"error": error}).encode())
        self.waiting.clear()

    def numbers(self) -> dict[str, Any]:
        """Everything that is known, for JSON."""
        files, tending = self._files, self._tending
        said: dict[str, Any] = {
            "image": os.path.abspath(self._request.image),
            "directory": self._request.directory,
            "pid": os.getpid(),
            "mounted_seconds": round(time.monotonic() - self._since, 1),
            "read_only": not files.tree.writable or files.volume.broken is not None,
        }
        if not files.tree.writable:
            return said
        volume = files.volume
        said |= numbers_of(volume)
        written = volume.segments.written_blocks
        given = files.bytes_written // volume.geo.block_size
        said |= {
            "broken": volume.broken,
            "checkpoints": tending.checkpoints,
            "cleaned": {
                "sections": volume.cleaner.done.sections,
                "in_background": tending.sections_cleaned,
                "data_blocks": volume.cleaner.done.data_blocks,
                "node_blocks": volume.cleaner.done.node_blocks,
            },
            "discarded_bytes": tending.discarded_bytes,
            "blocks_given": given,
            "blocks_written": written,
            "waf": round(written / given, 3) if given else None,
            "in_memory": {"pages": volume.files.page_count, "nodes": len(volume.nodes.dirty)},
        }
        return said


def numbers_of(volume: WritableVolume) -> dict[str, Any]:
    """Space and segments of a volume, for JSON."""
    segments, space, geo = volume.segments, volume.space, volume.geo
    per = geo.blocks_per_seg
    count = geo.segment_count_main
    full = int((segments.vblocks == per).sum())
    free = segments.free_segment_count
    prefree = int(segments.prefree.sum())
    return {
        "utilisation_percent": round(100 * space.valid_blocks / max(1, space.user_blocks), 1),
        "blocks": {"user": space.user_blocks, "valid": space.valid_blocks, "free": space.free_blocks},
        "nodes": space.valid_nodes,
        "inodes": space.valid_inodes,
        "segments": {
            "main": count,
            "valid": full,
            "dirty": max(0, count - full - free),
            "prefree": prefree,
            "free": free - prefree,
        },
        "sections": {
            "main": segments.sections,
            "free": segments.free_sections,
            "reserved": segments.reserved_sections,
        },
        "logs": [
            {
                "name": name,
                "segno": curseg.segno,
                "secno": curseg.segno // geo.segs_per_sec,
                "next_blkoff": curseg.next_blkoff,
                "threaded": curseg.holes is not None,
                "blocks_written": segments.written_by_log[curseg.kind],
            }
            for name, curseg in zip(LOGS, segments.cursegs, strict=True)
        ],
    }


# -- asking ---------------------------------------------------------------------------------------------------------


def runtime_folder() -> Path:
    """Where sockets of this user's mounts are."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.path.isabs(given):
        with suppress(OSError):  # as it is with sudo, it may be another user's
            check_private(Path(given))
            return Path(given) / "f2tools"
    return Path("/run/f2tools") if os.geteuid() == 0 else Path(f"/tmp/f2tools-{os.getuid()}")


def make_private(folder: Path) -> None:
    """The folder, there and nobody else's; PermissionError where another user made it before."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)


def check_private(folder: Path) -> None:
    """PermissionError unless this is a folder of this user's that nobody else can look into."""
    found = folder.lstat()
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "is not a folder of this user's alone", os.fspath(folder))


def socket_path(directory: str) -> Path:
    """The socket of what is mounted on a directory, by its real path; whoever serves it must not ask for that then."""
    return _socket_of(os.path.realpath(directory))


def _socket_of(real: str) -> Path:
    return runtime_folder() / f"{hashlib.sha256(os.fsencode(real)).hexdigest()[:24]}.sock"


def _is_ours(connection: socket.socket) -> bool:
    """Whether the same user, or root, is at the other end."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (0, os.geteuid())


def connect(directory: str, wanted: bytes) -> socket.socket:
    """A connection to what serves a directory, which has been asked; OSError where nobody does, or not this user."""
    path = _socket_of(directory)
    check_private(path.parent)
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        asking.settimeout(ASK_SECONDS)
        asking.connect(os.fspath(path))
        if not _is_ours(asking):
            raise PermissionError(errno.EPERM, "belongs to another user", os.fspath(path))
        asking.sendall(wanted)
    except BaseException:
        asking.close()
        raise
    return asking


def answer_of(connection: socket.socket, seconds: float) -> dict[str, Any] | None:
    """What the other end says, within this time and a bounded length; None where that makes no sense."""
    deadline = time.monotonic() + seconds
    said = b""
    with connection, suppress(OSError, ValueError, RecursionError):
        while len(said) <= ANSWER_BYTES:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            piece = connection.recv(65536)
            if not piece:
                found: Any = json.loads(said)
                return found if isinstance(found, dict) else None
            said += piece
    return None


def _fits(value: Any, shape: Any) -> bool:
    """Whether a value from outside has the types that it should have."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and _fits(value[name], shape[name]) for name in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    return isinstance(value, shape)


def ask(what: str) -> dict[str, Any] | None:
    """The numbers of a mount, by its directory or its image; None where nothing is mounted there, or nobody answers."""
    wanted = os.path.realpath(what)
    for image, directory in mounts():
        if wanted in (os.path.realpath(image), directory):
            with suppress(OSError):
                numbers = answer_of(connect(directory, NUMBERS), ASK_SECONDS)
                shape = SHAPE | (SHAPE_WRITABLE if numbers and "blocks" in numbers else {})
                if _fits(numbers, shape):
                    return numbers
    return None


def render(numbers: dict[str, Any]) -> str:
    """The numbers for people."""
    how = "read-only" if numbers["read_only"] else "read and write"
    lines = [f"{numbers['image']} on {numbers['directory']}, {how}, for {numbers['mounted_seconds']:.0f} s"]
    if "blocks" not in numbers:
        return lines[0]
    blocks, segments, sections = numbers["blocks"], numbers["segments"], numbers["sections"]
    if numbers["broken"]:
        lines.append(f"  stopped writing: {numbers['broken']}")
    lines += [
        f"  utilisation  {numbers['utilisation_percent']} % ({blocks['valid']} of {blocks['user']} blocks,"
        f" {numbers['nodes']} nodes, {numbers['inodes']} inodes)",
        f"  segments     {segments['main']}: {segments['valid']} full, {segments['dirty']} dirty,"
        f" {segments['prefree']} prefree, {segments['free']} free",
        f"  sections     {sections['main']}: {sections['free']} free, {sections['reserved']} reserved",
        f"  {'log':12} {'segno':>8} {'next':>5} {'blocks written':>15}",
    ]
    lines += [
        f"  {item['name']:12} {item['segno']:8} {item['next_blkoff']:5} {item['blocks_written']:15}"
        + (" threaded" if item["threaded"] else "")
        for item in numbers["logs"]
    ]
    cleaned, memory = numbers["cleaned"], numbers["in_memory"]
    waf = "-" if numbers["waf"] is None else numbers["waf"]
    lines += [
        f"  written      {numbers['blocks_written']} blocks for {numbers['blocks_given']} given (WAF {waf})",
        f"  checkpoints  {numbers['checkpoints']} by the clock; discarded {numbers['discarded_bytes']} bytes",
        f"  cleaned      {cleaned['sections']} sections, {cleaned['in_background']} of them in the background;"
        f" moved {cleaned['data_blocks']} data and {cleaned['node_blocks']} node blocks",
        f"  in memory    {memory['pages']} dirty pages, {memory['nodes']} dirty nodes",
    ]
    return "\n".join(lines)
