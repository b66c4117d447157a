"""The former owner of a block: the one that the summaries remember, with its number and path."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO, SUM_TYPE_NODE
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.index import Index
from f2tools.forensics.owners import SegmentOwners
from f2tools.text import join, upward

MAX_DEPTH = 256  # directories between a file and the root


class Owner(NamedTuple):
    """The owner of a block: `ino` and `path` as far as they are known, `path` by the names that inodes remember."""

    kind: str  # node, data
    nid: int
    version: int
    ofs_in_node: int
    ino: int | None
    path: bytes | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        path = None if self.path is None else self.path.decode("utf-8", "surrogateescape")
        return {**self._asdict(), "path": path}


class Remembered:
    """The owners of blocks, live or not; with an index also those that are gone."""

    def __init__(self, volume: Volume, index: Index | None = None) -> None:
        self._volume = volume
        self._index = index
        self.summaries = SegmentOwners(volume)
        self._ino = lru_cache(65536)(self._find_ino)
        self.path = lru_cache(65536)(self._find_path)

    def owner(self, entry_type: int, nid: int, version: int, ofs_in_node: int) -> Owner | None:
        """The owner that a summary names; None where it names nobody."""
        if not 0 < nid < self._volume.geo.max_nid:
            return None
        ino = self._ino(nid, version)
        kind = "node" if entry_type == SUM_TYPE_NODE else "data"
        return Owner(kind, nid, version, ofs_in_node, ino, None if ino is None else self.path(ino))

    def owners(self, blkaddrs: NDArray[Any]) -> list[Owner | None]:
        """The owners of blocks of the main area, in their order."""
        types, entries, known = self.summaries.of(np.asarray(blkaddrs, np.int64))
        rows = zip(types.tolist(), entries.tolist(), known.tolist(), strict=True)
        return [self.owner(kind, *entry) if there else None for kind, entry, there in rows]

    def sizes(self, ino: int) -> list[int]:
        """The sizes that blocks of an inode say, in the order of writing; each once."""
        if self._index is None:
            return []
        query = (
            "SELECT size FROM inode JOIN node USING (blkaddr) WHERE inode.ino = ? AND NOT foreign_block ORDER BY rank"
        )
        return list(dict.fromkeys(size for (size,) in self._index.db.execute(query, (ino,))))

    def _find_ino(self, nid: int, version: int) -> int | None:
        """The inode that a node of this version belonged to: by the NAT while it is in use, else by its old blocks."""
        now, ino, address = self._volume.nat.get(nid)
        if address and now & 0xFF == version & 0xFF and ino:
            return ino
        if self._index is None:
            return None
        query = "SELECT DISTINCT ino FROM node WHERE nid = ? AND NOT foreign_block LIMIT 2"
        found = [ino for (ino,) in self._index.db.execute(query, (nid,))]
        return found[0] if len(found) == 1 else None

    def _find_path(self, ino: int) -> bytes | None:
        parts: list[bytes] = []
        met: set[int] = set()
        while ino != F2FS_ROOT_INO:
            found = None if ino in met or len(met) > MAX_DEPTH else self._name(ino)
            if found is None:
                return upward(parts, b"?/") if parts else None
            met.add(ino)
            ino, name = found
            parts.append(name)
        path = b"/"
        for part in reversed(parts):
            path = join(path, part)
        return path

    def _name(self, ino: int) -> tuple[int, bytes] | None:
        """(number of the directory above, name) that the newest block of an inode remembers."""
        if self._index is not None:
            query = (
                "SELECT pino, name FROM inode JOIN node USING (blkaddr) WHERE inode.ino = ? AND NOT foreign_block "
                "ORDER BY live DESC, rank DESC LIMIT 1"
            )
            try:
                row = self._index.db.execute(query, (ino,)).fetchone()
            except sqlite3.Error:
                return None
            return None if row is None or not row[1] else (row[0], row[1])
        try:
            inode = self._volume.nodes.inode(ino)
        except F2fsError:
            return None
        return (inode.i_pino, inode.name) if inode.name else None
