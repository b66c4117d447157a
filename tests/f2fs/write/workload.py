"""Trees and changes to trees by a seed, done to the engine and to the model alike."""

from __future__ import annotations

import errno
import random
import stat
from collections.abc import Callable

from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL, F2FS_COMPR_FL, F2FS_NODUMP_FL, F2FS_ROOT_INO
from tests.f2fs.write import model as m
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import Twin

INLINE_EDGES = (0, 1, 3200, 3383, 3384, 3488, 3489, 3687, 3688, 3689, BLOCK - 1, BLOCK, BLOCK + 1, 9 * BLOCK + 7)
FILE = stat.S_IFREG | 0o644


def text(seed: object, length: int) -> bytes:
    """Compressible bytes, no two lines alike."""
    line = f"{seed} %06d the quick brown fox jumps over the lazy dog\n"
    return "".join(line % n for n in range(length // len(line % 0) + 1)).encode()[:length]


def noise(seed: object, length: int) -> bytes:
    """Bytes that don't compress."""
    return random.Random(str(seed)).randbytes(length)


class Workload:
    """Makes things below a directory of its own; stops quietly where the volume is full."""

    def __init__(self, twin: Twin, seed: int, done: Callable[[str, int | None], None] | None = None) -> None:
        self.twin = twin
        self.seed = seed
        self.random = random.Random(seed)
        self.done = done or (lambda kind, fsynced: None)
        self.top = self.make(F2FS_ROOT_INO, b"tree%d" % seed)

    def do(self, name: str, *args: object, **keywords: object) -> object:
        result = self.twin.do(name, *args, **keywords)
        self.done(name, None)
        return result

    def make(self, parent: int, name: bytes) -> int:
        return self._number(self.do("mkdir", parent, name, 0o755))

    def file(self, parent: int, name: bytes, data: bytes = b"", mode: int = FILE, uid: int = 0, gid: int = 0) -> int:
        ino = self._number(self.do("create", parent, name, mode, uid, gid))
        if data:
            self.do("write", ino, 0, data)
        return ino

    @staticmethod
    def _number(result: object) -> int:
        assert isinstance(result, int)
        return result

    def fsync(self, ino: int, datasync: bool = False) -> None:
        self.twin.volume.fsync(ino, datasync)
        self.done("fsync", ino)

    def sync(self) -> None:
        self.twin.volume.sync()
        self.done("sync", None)

    # -- trees --------------------------------------------------------------------------------------------------

    def everything(self) -> None:
        """All kinds of things; some 200 inodes and 3 MiB."""
        for part in (self.small, self.large, self.holes, self.links, self.names, self.xattrs, self.flags, self.churn):
            part()

    def small(self) -> None:
        """Sizes around what fits into an inode; growing out of it and coming back."""
        top = self.make(self.top, b"small")
        for n, size in enumerate(INLINE_EDGES):
            self.file(top, b"f%02d-%d" % (n, size), text(n, size), stat.S_IFREG | 0o640, 1000 + n % 3, 100)
        for n, sizes in enumerate([(100, 5000), (5000, 100), (100, 9000, 50), (3000, 3600, 0, 10)]):
            ino = self.file(top, b"grown%d" % n)
            for size in sizes:
                self.do("truncate", ino, size)
                self.do("write", ino, max(0, size - 3), b"end")

    def large(self) -> None:
        """A file with direct nodes and an indirect one, one that doesn't compress."""
        top = self.make(self.top, b"large")
        ino = self.file(top, b"nodes", text("nodes", 950 * BLOCK + 77))
        self.do("write", ino, (923 + 2 * 1018 + 5) * BLOCK, text("far", 3 * BLOCK))
        self.file(top, b"noise.mp4", noise("noise", 43210))
        self.file(top, b"hot.db", noise("hot", 20000))

    def holes(self) -> None:
        """Blocks far out, and all that fallocate does."""
        top = self.make(self.top, b"holes")
        ino = self.file(top, b"far")
        for block in (0, 922, 923, 1941, 2959, 2959 + 1018**2, 2959 + 2 * 1018**2):
            self.do("write", ino, block * BLOCK, text(block, BLOCK))
        ino = self.file(top, b"only-size")
        self.do("truncate", ino, 5 << 30)
        ino = self.file(top, b"fallocate", text("fallocate", 300000))
        for mode, offset, length in (
            (3, 40960, 65636), (16, 131000, 30000), (1, 400000, 50000), (0, 250000, 100000), (8, 4096, 8192),
            (32, 8192, 12288),
        ):  # fmt: skip
            self.do("fallocate", ino, mode, offset, length)

    def links(self) -> None:
        """Hard and symbolic links, fifos, sockets, devices; renames of all sorts."""
        top = self.make(self.top, b"links")
        sub = self.make(top, b"sub")
        origin = self.file(top, b"origin", text("origin", 5000))
        for n in range(5):
            self.do("link", origin, sub if n % 2 else top, b"hard%d" % n)
        self.do("unlink", top, b"origin")
        for length in (1, 60, 255, 1000, 3488, 3489, 4095):
            self.do("symlink", top, b"soft%d" % length, (b"t" * BLOCK)[:length])
        for kind, rdev in (
            (stat.S_IFIFO, (0, 0)),
            (stat.S_IFSOCK, (0, 0)),
            (stat.S_IFCHR, (1, 3)),
            (stat.S_IFBLK, (259, 70000)),
        ):
            self.do("create", top, b"node%o" % kind, kind | 0o600, 3, 4, rdev)
        for name in (b"one", b"two", b"three", b"four"):
            self.file(top, name, name)
        self.make(top, b"folder")
        self.do("rename", top, b"one", sub, b"moved")
        self.do("rename", top, b"two", top, b"three")
        self.do("rename", top, b"folder", sub, b"four", 0)
        self.do("rename", top, b"four", sub, b"four", m.RENAME_EXCHANGE)
        self.do("rename", sub, b"moved", top, b"whited", m.RENAME_WHITEOUT)

    def names(self) -> None:
        """Many names, of all lengths; a deep path."""
        top = self.make(self.top, b"names")
        for length in (1, 7, 8, 9, 16, 63, 64, 100, 248, 254, 255):
            self.file(top, b"n" * length)
        many = self.make(self.top, b"many")
        for n in range(120):
            self.file(many, b"entry-%03d" % n + b"." * (n % 40))
        for n in range(0, 120, 3):
            self.do("unlink", many, b"entry-%03d" % n + b"." * (n % 40))
        deep = top
        for n in range(12):
            deep = self.make(deep, b"d%d" % n)
        self.file(deep, b"bottom", b"here")

    def xattrs(self) -> None:
        """Attributes inline, in a node, replaced and removed; ACLs and what they hand down."""
        top = self.make(self.top, b"xattrs")
        for label, items in {
            "inline": {"user.a": b"1", "user.v": text("v", 100)},
            "spilled": {"user.v": text("v", 500), "trusted.w": text("w", 30)},
            "many": {f"user.k{n:02d}": text(n, n * 3) for n in range(20)},
            "large": {"user.big": text("big", 3000)},
        }.items():
            ino = self.file(top, label.encode(), text(label, self.random.randrange(100, 6000)))
            for name, value in items.items():
                self.do("setxattr", ino, name, value)
        self.do("removexattr", ino, "user.big")
        named = m.acl((m.USER_OBJ, 6, -1), (m.USER, 7, 1000), (m.GROUP_OBJ, 4, -1), (m.MASK, 7, -1), (m.OTHER, 4, -1))
        self.do("setxattr", ino, m.ACL_ACCESS, named)
        self.do("setxattr", top, m.ACL_DEFAULT, named)
        self.file(top, b"inherits")
        self.make(top, b"inherits-too")

    def flags(self) -> None:
        """Flags, times, owners; what the volume's features allow."""
        top = self.make(self.top, b"flags")
        ino = self.file(top, b"nodump")
        self.do("set_flags", ino, F2FS_NODUMP_FL)
        self.do("setattr", ino, mode=0o4711, atime_ns=-(10**9), mtime_ns=(1 << 33) * 10**9 + 5)
        self.do("setattr", top, uid=1000, gid=1000)
        features = self.twin.model.features
        if "project_quota" in features:
            self.do("set_projid", ino, 7)
        if "casefold" in features:
            folded = self.make(top, b"folded")
            self.do("set_flags", folded, F2FS_CASEFOLD_FL)
            for name in ("README", "größe", "Straße", "e\u0301t\u00e9", "日本"):
                self.file(folded, name.encode())
            for n in range(60):
                self.file(folded, b"Name%d" % n)
        if "compression" in features:
            packed = self.make(top, b"packed")
            self.do("set_flags", packed, F2FS_COMPR_FL)
            self.file(packed, b"text", text("text", 200000))
            self.file(packed, b"noise", noise("noise", 40000))
            ino = self.file(packed, b"half", text("half", 100000))
            self.do("write", ino, 30000, noise("half", 3000))
            self.do("truncate", ino, 70001)

    def churn(self, rounds: int = 60, files: int = 8, largest: int = 60000) -> None:
        """Overwrites, appends, deletions, fsyncs and syncs in random order."""
        top = self.make(self.top, b"churn")
        known: dict[bytes, int] = {}
        for n in range(rounds):
            name = b"f%d" % self.random.randrange(files)
            what = self.random.random()
            if name not in known:
                known[name] = self.file(top, name, noise(n, self.random.randrange(largest)))
            elif what < 0.75:
                size = self.twin.model.nodes[known[name]].size
                at = self.random.randrange(size + 1) // BLOCK * BLOCK
                self.do("write", known[name], at, text(n, self.random.randrange(1, 3 * BLOCK)))
            elif what < 0.85:
                self.do("unlink", top, name)
                del known[name]
                continue
            else:
                self.do("truncate", known[name], self.random.randrange(largest))
            if self.random.random() < 0.25:
                self.fsync(known[name])
            if n % 20 == 19:
                self.sync()

    def fill(self, percent: float, piece: int = 64 * BLOCK) -> list[int]:
        """Files until that much of what users may have is taken; their numbers."""
        top = self.make(self.top, b"fill")
        made: list[int] = []
        users = int(self.twin.volume.cp.user_block_count)
        while True:
            left = int(users * percent / 100) - (users - self.twin.volume.statfs()["f_bfree"])
            if left <= 4:
                return made
            size = min(piece, max(1, left - 2) * BLOCK)
            try:
                made.append(self.file(top, b"big%04d" % len(made), noise(len(made), size)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return made


__all__ = ["FILE", "Workload", "noise", "text"]
