"""Compressed clusters: the first address is COMPRESS_ADDR, the next ones hold this header and the compressed bytes."""

from typing import Annotated

from f2tools.codec import Array, Ints, Layout, field, u32

COMPRESS_HEADER_SIZE = 24


class CompressData(Layout):
    """struct compress_data: starts the compressed bytes of a cluster."""

    clen: u32 = field("compressed bytes that follow")
    chksum: u32 = field("CRC-32 of them, where i_compress_flag bit 0 is set")
    reserved: Annotated[Ints, Array(u32, 4)] = field("zero")
