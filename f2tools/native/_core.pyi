from typing import Any, TypeAlias

from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]
RecordNumbers: TypeAlias = tuple[int, bool, int, int, int, int, int]

CORE: int

def inode_checksums(uuid: Buffer, blocks: Buffer, block_size: int, checksum_offset: int, found: Buffer, /) -> None: ...
def turns(times: tuple[Buffer, ...], turns: Buffer, /) -> bool: ...
def take_turns(columns: tuple[Buffer, ...], turns: Buffer, merged: Buffer, /) -> None: ...
def pair(
    op: Buffer, cls: Buffer, kinds: Buffer, bytes: Buffer, sector: Buffer, time: Buffer, devices: Buffer,
    pending: Buffer, rows: Buffer, requests: Buffer, request_cls: Buffer, bios: Buffer, bio_cls: Buffer, left: Buffer,
    ended: Buffer, exact: Buffer, summary: Buffer, first: int, device: int, with_bios: bool, /,
) -> None: ...  # fmt: skip
def records(buffer: Buffer, at: int, filled: int, format: RecordNumbers, offsets: Buffer, /) -> tuple[int, int]: ...
def columns(
    buffer: Buffer, offsets: Buffer, format: RecordNumbers, wanted: Buffer, operations: Buffer, wide: Buffer,
    words: Buffer, op: Buffer, notes: Buffer, summary: Buffer, /,
) -> None: ...  # fmt: skip
def sequential(history: Buffer, starts: Buffer, ends: Buffer, counts: Buffer, sizes: Buffer, /) -> None: ...
def plain_files(prefix: Buffer, names: Buffer, xattrs: bool, found: Buffer, /) -> None: ...
def read_files(paths: Buffer, files: Buffer, into: Buffer, done: Buffer, /) -> None: ...
