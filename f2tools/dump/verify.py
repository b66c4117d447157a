"""Is the content of a volume what it claims to be: verity digests and Merkle trees, compressed clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from f2tools.copyout.walk import Lost, shown, walk
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import COMPRESS_ALGORITHMS, COMPRESS_CHKSUM_FLAG
from f2tools.f2fs.volume.data import Cluster
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.verity import Verity, read_verity, verify_content
from f2tools.f2fs.volume.volume import Volume


@dataclass
class VerifyReport:
    """What was checked and what was found wrong."""

    names: int = 0
    verity: dict[str, dict[str, Any]] = field(default_factory=dict)  # path -> algorithm and digest
    compressed_files: int = 0
    clusters: int = 0
    clusters_with_checksum: int = 0
    clusters_by_algorithm: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0  # encrypted: nothing can be said about them
    failed: list[Lost] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.failed

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "failed": [item.as_dict() for item in self.failed]}


def verify(volume: Volume, tops: Sequence[Any], *, advance: Callable[[int], None] | None = None) -> VerifyReport:
    """Check everything below the given files; each inode once."""
    report = VerifyReport()
    volume.data.limit()
    met: set[int] = set()
    for top in tops:
        for path, inode in walk(volume, top, report.failed):
            report.names += 1
            if advance:
                advance(1)
            if not inode.is_file or inode.ino in met:
                continue
            if inode.i_links > 1:
                met.add(inode.ino)
            if volume.locked(inode):
                report.unreadable += inode.verity or inode.compressed
                continue
            if inode.compressed and not inode.has_inline_data:
                _clusters(volume, path, inode, report)
            if inode.verity:
                _verity(volume, path, inode, report)
    return report


def _clusters(volume: Volume, path: bytes, inode: Inode, report: VerifyReport) -> None:
    report.compressed_files += 1
    number = inode.extra["i_compress_algorithm"]
    name = COMPRESS_ALGORITHMS[number] if number < len(COMPRESS_ALGORITHMS) else f"algorithm {number}"
    try:
        for item in volume.data.layout(inode):
            if not isinstance(item, Cluster):
                continue
            report.clusters += 1
            report.clusters_by_algorithm[name] = report.clusters_by_algorithm.get(name, 0) + 1
            report.clusters_with_checksum += inode.extra["i_compress_flag"] & COMPRESS_CHKSUM_FLAG
            try:
                for _ in volume.data.pieces(inode, item):
                    pass
            except F2fsError as error:
                report.failed.append(Lost(path, str(error)))
    except F2fsError as error:
        report.failed.append(Lost(path, str(error)))


def _verity(volume: Volume, path: bytes, inode: Inode, report: VerifyReport) -> None:
    try:
        verity: Verity | None = read_verity(volume.nodes, volume.data, inode)
        if verity is None:
            return
        verify_content(volume.data, inode, verity)
    except F2fsError as error:
        report.failed.append(Lost(path, str(error)))
        return
    report.verity[shown(path)] = {
        "algorithm": verity.algorithm_name,
        "digest": verity.digest.hex(),
        "block_size": verity.block_size,
        "signed": bool(verity.signature),
    }
