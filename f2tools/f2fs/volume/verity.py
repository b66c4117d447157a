"""fs-verity: where descriptor and Merkle tree of a file lie, its digest, and whether its content is what was sealed.

Both lie in the file itself, beyond i_size; see fs/f2fs/verity.c for the place, fs/verity/ for the tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from f2tools.errors import Corrupt, Unsupported, Where
from f2tools.f2fs.layout.verity import VERITY_ALGORITHMS, VERITY_ALIGN, VerityDescriptor
from f2tools.f2fs.layout.xattr import XATTR_INDEX_VERITY
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.xattr import xattrs_of
from f2tools.lazy import dataclass

if TYPE_CHECKING:
    from f2tools.f2fs.volume.data import DataReader
    from f2tools.f2fs.volume.node import NodeReader

_LOCATION = struct.Struct("<IIQ")  # version, size, position of the descriptor: the value of the attribute "v"
_MAX_DESCRIPTOR = 16384
_MAX_LEVELS = 8
_WINDOW = 1 << 20


@dataclass(frozen=True)
class Verity:
    """What the descriptor says: `digest` is what FS_IOC_MEASURE_VERITY returns."""

    ino: int
    algorithm: int
    block_size: int
    salt: bytes
    root_hash: bytes
    data_size: int
    signature: bytes
    digest: bytes
    tree_offset: int

    @property
    def algorithm_name(self) -> str:
        """sha256 or sha512."""
        return VERITY_ALGORITHMS[self.algorithm]


def read_verity(nodes: NodeReader, data: DataReader, inode: Inode) -> Verity | None:
    """The descriptor of a file; None where the file is not sealed, Corrupt where the kernel would not open it."""
    place = descriptor_place(nodes, inode)
    if place is None:
        return None
    if not data.readable(inode):
        raise Unsupported(f"inode {inode.ino}: the verity descriptor is encrypted and there is no key")
    return _parse(_read(data, inode, *place), inode.ino, inode.i_size, _tree_offset(inode))


def descriptor_place(nodes: NodeReader, inode: Inode) -> tuple[int, int] | None:
    """(byte offset in the file, bytes) of the descriptor; None for a file that is not sealed, Corrupt as above."""
    if not inode.verity:
        return None
    where = Where(ino=inode.ino)
    found = next((x.value for x in xattrs_of(nodes, inode) if x.index == XATTR_INDEX_VERITY and x.name == b"v"), None)
    if found is None or len(found) != _LOCATION.size:
        raise Corrupt(where, "the file is sealed by verity, but nothing says where its descriptor lies")
    version, size, position = _LOCATION.unpack(found)
    if version != 1 or not VerityDescriptor.size <= size <= _MAX_DESCRIPTOR:
        raise Corrupt(where, f"the verity descriptor can't be {size} bytes at offset {position:#x}")
    if not _tree_offset(inode) <= position < 1 << 63:
        raise Corrupt(where, f"the verity descriptor can't be {size} bytes at offset {position:#x}")
    return position, size


def sealed_size(nodes: NodeReader, data: DataReader, inode: Inode, most: int) -> int | None:
    """The size that the descriptor of a file names, whatever its inode says; None, or Corrupt, where it can't be so.

    All of the content is read, and has to be what was sealed with that size; of more than `most` bytes it is not.
    """
    found = next((x.value for x in xattrs_of(nodes, inode) if x.index == XATTR_INDEX_VERITY and x.name == b"v"), b"")
    if len(found) != _LOCATION.size or not data.readable(inode):
        return None
    version, size, position = _LOCATION.unpack(found)
    if version != 1 or not VerityDescriptor.size <= size <= _MAX_DESCRIPTOR or position >= 1 << 63:
        return None
    raw = _read(data, inode, position, size)
    said = VerityDescriptor.parse(raw).data_size
    if said > min(most, position):
        return None
    verity = _parse(raw, inode.ino, said, _tree_begin(said))
    levels = tree_levels(verity, _Hasher(verity).size)
    if position != verity.tree_offset + sum(count for _, count in levels) * verity.block_size:
        return None
    verify_content(data, inode, verity)
    return said


def _tree_offset(inode: Inode) -> int:
    """Where the Merkle tree begins, in bytes of the file."""
    return _tree_begin(inode.i_size)


def _tree_begin(size: int) -> int:
    return -(-size // VERITY_ALIGN) * VERITY_ALIGN


def _parse(raw: bytes, ino: int, size: int, tree_offset: int) -> Verity:
    where = Where(ino=ino)
    descriptor = VerityDescriptor.parse(raw)
    if descriptor.version != 1 or descriptor.hash_algorithm not in VERITY_ALGORITHMS:
        raise Corrupt(
            where, f"verity descriptor of version {descriptor.version}, hash algorithm {descriptor.hash_algorithm}"
        )
    if descriptor.data_size != size:
        raise Corrupt(where, f"verity covers {descriptor.data_size} bytes, the file has {size}")
    if not 10 <= descriptor.log_blocksize <= 16 or descriptor.salt_size > 32:
        raise Corrupt(where, f"verity block size 2^{descriptor.log_blocksize}, salt of {descriptor.salt_size} bytes")
    if descriptor.sig_size > len(raw) - VerityDescriptor.size:
        raise Corrupt(where, f"verity signature of {descriptor.sig_size} bytes")
    name = VERITY_ALGORITHMS[descriptor.hash_algorithm]
    signature = raw[VerityDescriptor.size : VerityDescriptor.size + descriptor.sig_size]
    # the digest is taken as if there were no signature; see compute_file_digest() in fs/verity/open.c
    plain = bytearray(raw[: VerityDescriptor.size])
    offset = VerityDescriptor.offset_of("sig_size")
    plain[offset : offset + 4] = bytes(4)
    hasher = _hash(name)
    hasher.update(plain)
    return Verity(
        ino=ino,
        algorithm=descriptor.hash_algorithm,
        block_size=1 << descriptor.log_blocksize,
        salt=descriptor.salt[: descriptor.salt_size],
        root_hash=descriptor.root_hash[: hasher.digest_size],
        data_size=descriptor.data_size,
        signature=signature,
        digest=hasher.digest(),
        tree_offset=tree_offset,
    )


def verify_content(data: DataReader, inode: Inode, verity: Verity) -> None:
    """Check every block of a file against the stored Merkle tree, and the tree against the root; Corrupt on a mismatch.

    See fs/verity/verify.c; memory is bounded by the stored level that is being read.
    """
    hasher = _Hasher(verity)
    if not verity.data_size:
        if any(verity.root_hash):
            raise Corrupt(Where(ino=inode.ino), "the verity root hash of an empty file is not zero")
        return
    levels = tree_levels(verity, hasher.size)
    level = _blocks(data, inode, 0, verity.data_size, verity.block_size)
    for offset, blocks in levels:
        stored = _hashes(data, inode, verity.tree_offset + offset, blocks, verity, hasher.size)
        for index, block in enumerate(level):
            if hasher(block) != next(stored):
                raise Corrupt(
                    Where(ino=inode.ino, offset=index * verity.block_size),
                    "the content is not what verity sealed"
                    if offset == levels[0][0]
                    else "the Merkle tree contradicts itself",
                )
        start = verity.tree_offset + offset
        level = _blocks(data, inode, start, blocks * verity.block_size, verity.block_size)
    if hasher(next(level)) != verity.root_hash:
        raise Corrupt(Where(ino=inode.ino), "the Merkle tree does not lead to the root hash of the descriptor")


def merkle_tree(data: DataReader, inode: Inode, verity: Verity) -> tuple[bytes, list[tuple[int, bytes]]]:
    """(root hash, (byte offset in the tree, bytes) of each stored level) that the content of a file has now."""
    hasher = _Hasher(verity)
    if not verity.data_size:
        return bytes(hasher.size), []
    level: list[bytes] = [hasher(block) for block in _blocks(data, inode, 0, verity.data_size, verity.block_size)]
    stored: list[tuple[int, bytes]] = []
    per_block = verity.block_size // hasher.size
    for offset, _ in tree_levels(verity, hasher.size):
        parts = [b"".join(level[at : at + per_block]) for at in range(0, len(level), per_block)]
        blocks = [part.ljust(verity.block_size, b"\0") for part in parts]
        stored.append((offset, b"".join(blocks)))
        level = [hasher(block) for block in blocks]
    return level[0], stored


def tree_levels(verity: Verity, digest_size: int) -> list[tuple[int, int]]:
    """(byte offset in the tree, blocks) of each level, the one above the data first; no level for a single block.

    The kernel stores the topmost level first; see fsverity_init_merkle_tree_params() in fs/verity/open.c.
    """
    per_block = verity.block_size // digest_size
    counts: list[int] = []
    blocks = -(-verity.data_size // verity.block_size)
    while blocks > 1:
        blocks = -(-blocks // per_block)
        counts.append(blocks)
        if len(counts) > _MAX_LEVELS:
            raise Corrupt(Where(ino=verity.ino), f"verity of {verity.data_size} bytes needs too many levels")
    offset = 0
    levels: list[tuple[int, int]] = []
    for count in reversed(counts):
        levels.append((offset, count))
        offset += count * verity.block_size
    return levels[::-1]


def _hash(name: str) -> Any:
    import hashlib  # with OpenSSL, for the few volumes that have such files

    return hashlib.new(name)


class _Hasher:
    """The hash of one block, salted as the kernel does: the salt fills up one input block of the hash."""

    def __init__(self, verity: Verity) -> None:
        self._start = _hash(verity.algorithm_name)
        self.size: int = self._start.digest_size
        if verity.salt:
            self._start.update(verity.salt.ljust(self._start.block_size, b"\0"))

    def __call__(self, block: bytes | memoryview) -> bytes:
        hashing = self._start.copy()
        hashing.update(block)
        return hashing.digest()


def _hashes(
    data: DataReader, inode: Inode, start: int, blocks: int, verity: Verity, size: int
) -> Iterator[bytes | memoryview]:
    per_block = verity.block_size // size
    for block in _blocks(data, inode, start, blocks * verity.block_size, verity.block_size):
        for index in range(per_block):
            yield bytes(block[index * size : (index + 1) * size])


def _blocks(data: DataReader, inode: Inode, start: int, length: int, block_size: int) -> Iterator[bytes | memoryview]:
    """The blocks of a range of a file, the last one filled up with zeros."""
    for at in range(start, start + length, _WINDOW):
        window = memoryview(_read(data, inode, at, min(_WINDOW, start + length - at)))
        for offset in range(0, len(window), block_size):
            block = window[offset : offset + block_size]
            yield block if len(block) == block_size else bytes(block).ljust(block_size, b"\0")


def _read(data: DataReader, inode: Inode, start: int, length: int) -> bytes:
    """Bytes of a file, beyond i_size too; holes as zeros."""
    result = bytearray(length)
    for at, piece in data.chunks(inode, start, start + length):
        result[at - start : at - start + len(piece)] = piece
    return bytes(result)
