"""fs-verity: a Merkle tree and this descriptor lie in the file beyond i_size, from the next multiple of 64 KiB."""

from typing import Annotated

from f2tools.codec import Bytes, Layout, field, u8, u32, u64

VERITY_ALIGN = 65536
VERITY_ALGORITHMS = {1: "sha256", 2: "sha512"}


class VerityDescriptor(Layout):
    """struct fsverity_descriptor: what the Merkle tree is made of; its hash is the file's digest."""

    version: u8 = field("1")
    hash_algorithm: u8 = field("1 SHA-256, 2 SHA-512")
    log_blocksize: u8 = field("log2 of data and tree block size")
    salt_size: u8 = field("bytes of salt in use")
    sig_size: u32 = field("bytes of the signature; zero while hashing for the digest")
    data_size: u64 = field("bytes of the file that are covered")
    root_hash: Annotated[bytes, Bytes(64)] = field("hash of the topmost tree block, zero-padded")
    salt: Annotated[bytes, Bytes(32)] = field("prepended to each block, zero-padded")
    reserved: Annotated[bytes, Bytes(144)] = field("zero")
