from typing import Any, TypeAlias

from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

CORE: int

def inode_checksums(uuid: Buffer, blocks: Buffer, block_size: int, checksum_offset: int, found: Buffer, /) -> None: ...
def sequential(history: Buffer, starts: Buffer, ends: Buffer, counts: Buffer, sizes: Buffer, /) -> None: ...
