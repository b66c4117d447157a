"""Directories: every entry in the order of the slots, and the look-up by hash, bucket after bucket, as the kernel does.

Names are bytes.  What they contain is not judged here: `/`, NUL or `..` in a name is for the caller to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_ENCRYPT,
    F2FS_NAME_LEN,
    MAX_DIR_HASH_DEPTH,
    NEW_ADDR,
)
from f2tools.f2fs.layout.hashes import dentry_hash, dentry_siphash
from f2tools.f2fs.volume.data import DataReader, Extent
from f2tools.f2fs.volume.dentries import Dentry, bucket_blocks, parse_dentries
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode

if TYPE_CHECKING:
    from f2tools.f2fs.volume.fscrypt import FileKey, Secrets


_DOTS = (b".", b"..")
NAME_MIN_BYTES = 16  # FSCRYPT_FNAME_MIN_MSG_LEN: no encrypted name is shorter


class DirReader:
    """Reads directories of one volume under one checkpoint."""

    def __init__(self, geo: Geometry, data: DataReader, secrets: Secrets | None = None) -> None:
        self._geo = geo
        self._data = data
        self._secrets = secrets

    def entries(self, inode: Inode, problems: list[str] | None = None) -> Iterator[Dentry]:
        """All entries, `.` and `..` included.  Impossible entries are left out and noted in `problems`."""
        noted = problems if problems is not None else []
        for first, areas in self.areas(inode, noted):
            for number, area in enumerate(areas, first):
                yield from parse_dentries(area, number, noted)

    def areas(self, inode: Inode, problems: list[str]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """What holds the entries, shape (n, size), each time with the number of its first block; -1 is the inline area.

        A block that appears a second time is left out, or there would be no end.
        """
        self._must_be_dir(inode)
        if inode.has_inline_dentry:
            yield -1, inode.inline_area.reshape(1, -1)
            return
        size = self._geo.block_size
        met: set[int] = set()
        repeated = 0
        for item in self._data.layout(inode, 0, -(-inode.i_size // size)):
            if not isinstance(item, Extent):  # a directory has no clusters
                continue
            pending = item.blkaddr == NEW_ADDR  # not written yet, so no block that another one could share
            if item.count == 1 and item.blkaddr in met:
                repeated += 1
                continue
            for offset, data in self._data.pieces(inode, item):
                first = offset // size
                blocks = np.frombuffer(data, np.uint8).reshape(-1, size)
                blkaddrs = range(item.blkaddr + first - item.fofs, item.blkaddr + first - item.fofs + len(blocks))
                if pending or met.isdisjoint(blkaddrs):
                    met.update(() if pending else blkaddrs)
                    yield first, blocks
                    continue
                for index, blkaddr in enumerate(blkaddrs):
                    if blkaddr in met:
                        repeated += 1
                        continue
                    met.add(blkaddr)
                    yield first + index, blocks[index : index + 1]
        if repeated:
            problems.append(f"{repeated} blocks of the directory stand in it again; left out there")

    def shown(self, inode: Inode, dentries: Sequence[Dentry], problems: list[str] | None = None) -> list[bytes]:
        """The names of entries as a reader sees them: encrypted ones decrypted with their key, else encoded."""
        if not self.encrypted(inode):
            return [entry.name for entry in dentries]
        key = self._key(inode)
        if key is None:
            return [nokey_name(entry.name, entry.hash_code) for entry in dentries]
        names = [entry.name for entry in dentries]
        secret = [i for i, name in enumerate(names) if name not in _DOTS]
        sound = [i for i in secret if len(names[i]) >= NAME_MIN_BYTES]
        for i, plain in zip(sound, key.decrypt_names([names[i] for i in sound]), strict=True):
            names[i] = plain
        for i in set(secret) - set(sound):
            names[i] = nokey_name(names[i], dentries[i].hash_code)
            if problems is not None:
                problems.append(f"an encrypted name of {len(dentries[i].name)} bytes can't be decrypted")
        return names

    def encrypted(self, inode: Inode) -> bool:
        """Whether the names in this directory are ciphertext on the disk."""
        return inode.encrypted and bool(self._geo.feature & F2FS_FEATURE_ENCRYPT)

    def find(self, inode: Inode, name: bytes) -> tuple[bytes, Dentry] | None:
        """The entry that a reader sees under this name, and the name as it is written there; None where there is none.

        Where case is ignored, the two names may differ.
        """
        self._must_be_dir(inode)
        if not self.encrypted(inode):
            found = self.lookup(inode, name)
            return None if found is None else (found.name, found)
        key = self._key(inode)
        if key is None or name in _DOTS:
            return next(((name, e) for e in self.entries(inode) if nokey_name(e.name, e.hash_code) == name), None)
        return self._find_secret(inode, key, name)

    def _find_secret(self, inode: Inode, key: FileKey, name: bytes) -> tuple[bytes, Dentry] | None:
        """`find` in an encrypted directory; see fscrypt_match_name() and f2fs_hash_filename()."""
        if len(name) > F2FS_NAME_LEN:
            return None
        folding = self.casefolded(inode)
        wanted = (casefold(name) or name) if folding else key.encrypt_name(name)
        code = dentry_siphash(wanted, key.dirhash_key) if folding else dentry_hash(wanted)

        def match(entry: Dentry) -> tuple[bytes, Dentry] | None:
            if not folding:
                return (name, entry) if entry.name == wanted else None
            if entry.name in _DOTS or len(entry.name) < NAME_MIN_BYTES:
                return None
            plain = key.decrypt_name(entry.name)
            return (plain, entry) if (casefold(plain) or plain) == wanted else None

        inline = inode.has_inline_dentry
        among = parse_dentries(inode.inline_area, -1, []) if inline else self._bucket(inode, code)
        found = next((m for e in among if e.hash_code == code and (m := match(e))), None)
        if found is None and folding:  # as in `lookup`
            found = next((m for e in self.entries(inode) if (m := match(e))), None)
        return found

    def _key(self, inode: Inode) -> FileKey | None:
        return self._secrets.of(inode) if self._secrets is not None else None

    def lookup(self, inode: Inode, name: bytes) -> Dentry | None:
        """The entry with these bytes as its name, found through the hash; None where there is none.

        In an encrypted directory they are compared with ciphertext: see `find`.
        """
        self._must_be_dir(inode)
        folding = self.casefolded(inode)
        wanted = (casefold(name) or name) if folding else name

        def matches(entry: Dentry) -> bool:
            return entry.name == name or (folding and (casefold(entry.name) or entry.name) == wanted)

        if inode.has_inline_dentry:
            return next((e for e in parse_dentries(inode.inline_area, -1, []) if matches(e)), None)
        if name in (b".", b".."):
            return next((e for e in self.entries(inode) if e.name == name), None)
        code = dentry_hash(wanted)
        found = next((e for e in self._bucket(inode, code) if e.hash_code == code and matches(e)), None)
        # older kernels hashed some casefolded names differently; the kernel, too, then searches everything
        if found is None and folding:
            found = next((e for e in self.entries(inode) if matches(e)), None)
        return found

    def casefolded(self, inode: Inode) -> bool:
        """Whether names in this directory are compared without regard to case."""
        return bool(self._geo.feature & F2FS_FEATURE_CASEFOLD and inode.i_flags & F2FS_CASEFOLD_FL)

    def _bucket(self, inode: Inode, code: int) -> Iterator[Dentry]:
        """Entries that may have the hash `code`, of its bucket in each level; see find_in_level() in fs/f2fs/dir.c."""
        size = self._geo.block_size
        written = code.to_bytes(4, "little")  # a block without these bytes has no such entry, and need not be parsed
        have = -(-inode.i_size // size)
        for level in range(min(inode.i_current_depth, MAX_DIR_HASH_DEPTH)):
            first, count = bucket_blocks(level, inode.i_dir_level, code)
            if first >= have:
                return
            for offset, data in self._data.chunks(inode, first * size, min(first + count, have) * size):
                for index, block in enumerate(np.frombuffer(data, np.uint8).reshape(-1, size)):
                    if written in block.tobytes():
                        yield from parse_dentries(block, offset // size + index, [])

    def _must_be_dir(self, inode: Inode) -> None:
        if not inode.is_dir:
            raise NotADirectoryError(20, "not a directory", f"inode {inode.ino}")


def nokey_name(name: bytes, hash_code: int) -> bytes:
    """An encrypted name as the kernel shows it without the key: base64url of hash and ciphertext.

    See fscrypt_fname_disk_to_usr() in fs/crypto/fname.c: beyond 149 bytes of ciphertext, a SHA-256 of the rest.
    """
    if name in (b".", b".."):
        return name
    from base64 import urlsafe_b64encode

    shown = hash_code.to_bytes(4, "little") + bytes(4) + name[:149]
    if len(name) > 149:
        from hashlib import sha256

        shown += sha256(name[149:]).digest()
    return urlsafe_b64encode(shown).rstrip(b"=")


def nokey_hash(shown: bytes) -> int | None:
    """The hash_code within what `nokey_name` made of a name; None for what it can't have made."""
    from base64 import urlsafe_b64decode

    try:
        raw = urlsafe_b64decode(shown + b"=" * (-len(shown) % 4))
    except ValueError:
        return None
    return int.from_bytes(raw[:4], "little")


def check_name(name: bytes, where: Where) -> None:
    """Corrupt for a name that no directory may hold."""
    if b"/" in name or b"\0" in name or not name:
        raise Corrupt(where, f"a directory entry is named {name!r}")
