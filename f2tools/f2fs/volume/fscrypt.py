"""fscrypt: master keys, the policies that name them, and the keys and ciphers of each file.

The rules are those of fs/crypto/ in Linux and Documentation/filesystems/fscrypt.rst.  A master key is recognised by the
identifier (version 2) or descriptor (version 1) that is computed from it, so nobody has to say which key is for what.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Unsupported, Usage, Where
from f2tools.f2fs.layout.constants import U32_MAX
from f2tools.f2fs.layout.hashes import siphash24
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.node import BATCH, NodeReader
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.lazy import dataclass

KEY_BYTES = range(16, 65)
NAME_MIN_BYTES, NAME_MAX_BYTES = 16, 255  # FSCRYPT_FNAME_MIN_MSG_LEN, F2FS_NAME_LEN
NONCE_SIZE = 16

# fscrypt policy flags
PAD_MASK, DIRECT_KEY, IV_INO_LBLK_64, IV_INO_LBLK_32 = 0x03, 0x04, 0x08, 0x10
FLAG_NAMES = {"direct_key": DIRECT_KEY, "iv_ino_lblk_64": IV_INO_LBLK_64, "iv_ino_lblk_32": IV_INO_LBLK_32}

# the purpose of a key derived from the master key: HKDF_CONTEXT_* in fs/crypto/fscrypt_private.h
_IDENTIFIER, _PER_FILE, _DIRECT, _INO_LBLK_64, _DIRHASH, _INO_LBLK_32, _INODE_HASH = range(1, 8)

_SAID = r"(?s)([0-9a-fA-F]{16}):(.+)"
SYMLINK_HEAD = 2  # struct fscrypt_symlink_data: the length, before the ciphertext
_CACHED = 4096
_INO_LBLK = IV_INO_LBLK_64 | IV_INO_LBLK_32


class Mode(NamedTuple):
    """A cipher by the number that policies have for it."""

    name: str
    key_size: int
    cipher: str  # in f2tools.f2fs.volume.ciphers
    sm4: bool = False


MODES = {
    1: Mode("AES-256-XTS", 64, "AesXts"),
    4: Mode("AES-256-CTS-CBC", 32, "Cts"),
    5: Mode("AES-128-CBC-ESSIV", 16, "AesCbcEssiv"),
    6: Mode("AES-128-CTS-CBC", 16, "Cts"),
    7: Mode("SM4-XTS", 32, "Sm4Xts"),
    8: Mode("SM4-CTS-CBC", 16, "Cts", sm4=True),
    9: Mode("Adiantum", 32, "Adiantum"),
    10: Mode("AES-256-HCTR2", 32, "Hctr2"),
}
CONTENTS_MODES, FILENAMES_MODES = (1, 5, 7, 9), (4, 6, 8, 9, 10)


def mode_name(number: int) -> str:
    """The cipher with this number in a policy."""
    return MODES[number].name if number in MODES else f"mode {number}"


# -- keys -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MasterKey:
    """A key as it was given; `source` says from where."""

    raw: bytes
    source: str = ""
    said: bytes = b""  # a descriptor of version 1 that was given with the key, as policies may use any

    @cached_property
    def identifier(self) -> bytes:
        """Its identifier, by which policies of version 2 name it."""
        return self.derive(_IDENTIFIER, b"", 16)

    @cached_property
    def descriptor(self) -> bytes:
        """Its descriptor, by which policies of version 1 name it: as given, or by the custom of e4crypt."""
        from hashlib import sha512

        return self.said or sha512(sha512(self.raw).digest()).digest()[:8]

    def derive(self, purpose: int, info: bytes, size: int) -> bytes:
        """HKDF-SHA512 without salt (RFC 5869), as fscrypt_hkdf_expand() in fs/crypto/hkdf.c."""
        from hmac import digest

        secret = digest(bytes(64), self.raw, "sha512")
        head = b"fscrypt\0" + bytes([purpose]) + info
        done = last = b""
        while len(done) < size:
            last = digest(secret, last + head + bytes([len(done) // 64 + 1]), "sha512")
            done += last
        return done[:size]


def read_keys(source: str | os.PathLike[str] | bytes) -> list[MasterKey]:
    """The keys that a key file may hold: raw bytes, or hex digits.  Usage where it is no key.

    `DESCRIPTOR:FILE`, 16 hex digits before a colon, gives the key's name in policies of version 1.
    """
    name = "a key" if isinstance(source, bytes) else os.fspath(source)
    said = b""
    if not isinstance(source, bytes) and (match := re.fullmatch(_SAID, name)) and not os.path.lexists(name):
        said, source = bytes.fromhex(match[1]), match[2]
    if isinstance(source, bytes):
        content = source
    else:
        try:
            with open(source, "rb") as file:
                content = file.read(4096)
        except OSError as error:
            raise Usage(f"{name}: the key can't be read: {error.strerror}") from None
    digits = re.sub(rb"\s", b"", content)
    found = [content] if len(content) in KEY_BYTES else []
    if re.fullmatch(rb"(0[xX])?(?:[0-9a-fA-F]{2})+", digits):
        plain = bytes.fromhex(digits.decode().removeprefix("0x").removeprefix("0X"))
        if len(plain) in KEY_BYTES:
            found.insert(0, plain)
    if not found:
        raise Usage(
            f"{name}: a key has {KEY_BYTES[0]} to {KEY_BYTES[-1]} bytes, raw or in hex digits; this has {len(content)}"
        )
    return [MasterKey(raw, name, said) for raw in found]


class Keyring:
    """The keys that were given, by the names that policies have for them."""

    def __init__(self, keys: Sequence[str | os.PathLike[str] | bytes] = ()) -> None:
        self.sources = [read_keys(source) for source in keys]
        self._by_id: dict[bytes, MasterKey] = {}
        for key in (key for source in self.sources for key in source):
            self._by_id[key.identifier] = key
            self._by_id[key.descriptor] = key

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def find(self, key_id: bytes) -> MasterKey | None:
        """The key with this identifier or descriptor."""
        return self._by_id.get(key_id)

    def describe(self, sources: Sequence[Sequence[MasterKey]] | None = None) -> str:
        """Keys for messages (all if none are named), each by both of its names."""
        chosen = [key for source in (self.sources if sources is None else sources) for key in source]
        return ", or ".join(f"identifier {key.identifier.hex()}, descriptor {key.descriptor.hex()}" for key in chosen)

    def say_idle(self, sources: Iterable[Sequence[MasterKey]]) -> list[str]:
        """Sentences about keys that open nothing."""
        return [f"{source[0].source} opens nothing here: {self.describe([source])}" for source in sources]


# -- policies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """How a file is encrypted and by which master key; all files below one encrypted directory share it."""

    version: int
    contents_mode: int
    filenames_mode: int
    flags: int
    log2_data_unit_size: int  # 0: a block
    key_id: bytes  # identifier or descriptor

    @property
    def padding(self) -> int:
        """Bytes that names are filled up to a multiple of."""
        return 4 << (self.flags & PAD_MASK)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": self.version,
            "identifier" if self.version == 2 else "descriptor": self.key_id.hex(),
            "contents": mode_name(self.contents_mode),
            "filenames": mode_name(self.filenames_mode),
            "padding": self.padding,
            "flags": [name for name, bit in FLAG_NAMES.items() if self.flags & bit],
            "data_unit_bytes": 1 << self.log2_data_unit_size if self.log2_data_unit_size else None,
        }


_V1, _V2 = struct.Struct("<BBBB8s16s"), struct.Struct("<BBBBB3x16s16s")


def parse_context(context: bytes) -> tuple[Policy, bytes]:
    """Policy and nonce of an fscrypt context (`FscryptContextV1`, `V2`); ValueError where it is none."""
    version = context[0] if context else 0
    if version == 1 and len(context) == _V1.size:
        version, contents, names, flags, key_id, nonce = _V1.unpack(context)
        return Policy(version, contents, names, flags, 0, key_id), nonce
    if version == 2 and len(context) == _V2.size:
        version, contents, names, flags, unit, key_id, nonce = _V2.unpack(context)
        return Policy(version, contents, names, flags, unit, key_id), nonce
    raise ValueError(f"an encryption context of version {version} and {len(context)} bytes")


# -- one file ---------------------------------------------------------------------------------------------------------


class FileKey:
    """What one inode's key does: decrypt its blocks (file), the names in it (directory), its target (symbolic link)."""

    def __init__(self, master: MasterKey, policy: Policy, nonce: bytes, ino: int, uuid: bytes) -> None:
        self._master = master
        self._policy = policy
        self._nonce = nonce
        self._ino = ino
        self._uuid = uuid

    @cached_property
    def _contents(self) -> Any:
        return self._cipher(self._policy.contents_mode, CONTENTS_MODES)

    @cached_property
    def _names(self) -> Any:
        return self._cipher(self._policy.filenames_mode, FILENAMES_MODES)

    @cached_property
    def dirhash_key(self) -> bytes:
        """The key of the hashes in a casefolded directory."""
        return self._master.derive(_DIRHASH, self._nonce, 16)

    @cached_property
    def _hashed_ino(self) -> int:
        key = self._master.derive(_INODE_HASH, b"", 16)
        return siphash24(self._ino.to_bytes(8, "little"), key) & U32_MAX

    def _cipher(self, number: int, allowed: tuple[int, ...]) -> Any:
        """The cipher of a mode with this file's key; Unsupported where the policy can't be followed."""
        if number not in allowed:
            raise Unsupported(f"inode {self._ino}: encryption by {mode_name(number)}")
        key = self._derived(number, MODES[number].key_size)
        half = len(key) // 2
        if MODES[number].cipher.endswith("Xts") and key[:half] == key[half:]:
            raise Unsupported(f"{self._master.source}: the halves of a key for XTS must differ")
        return _cipher_of(number, key)

    def _derived(self, number: int, size: int) -> bytes:
        policy, master = self._policy, self._master
        if policy.version == 1:
            if len(master.raw) < size:
                raise Unsupported(f"{master.source}: {mode_name(number)} needs a key of {size} bytes")
            if policy.flags & DIRECT_KEY:
                return master.raw[:size]
            from f2tools.f2fs.volume.ciphers import aes_ecb

            return aes_ecb(self._nonce, master.raw[:size])
        if policy.flags & DIRECT_KEY:
            return master.derive(_DIRECT, bytes([number]), size)
        if policy.flags & IV_INO_LBLK_64:
            return master.derive(_INO_LBLK_64, bytes([number]) + self._uuid, size)
        if policy.flags & IV_INO_LBLK_32:
            return master.derive(_INO_LBLK_32, bytes([number]) + self._uuid, size)
        return master.derive(_PER_FILE, self._nonce, size)

    def _ivs(self, size: int, index: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Initialisation vectors of data units, shape (n, size); see fscrypt_generate_iv() in fs/crypto/crypto.c."""
        flags = self._policy.flags
        if flags & IV_INO_LBLK_64:
            index = index | np.uint64(self._ino << 32)
        elif flags & IV_INO_LBLK_32:
            index = (index + np.uint64(self._hashed_ino)) & np.uint64(U32_MAX)
        ivs = np.zeros((index.size, size), np.uint8)
        ivs[:, :8] = index.astype("<u8").view(np.uint8).reshape(-1, 8)
        if flags & DIRECT_KEY and not flags & _INO_LBLK and size >= 8 + NONCE_SIZE:
            ivs[:, 8 : 8 + NONCE_SIZE] = np.frombuffer(self._nonce, np.uint8)
        return ivs

    def decrypt_blocks(self, blocks: NDArray[np.uint8], fofs: int) -> NDArray[np.uint8]:
        """The plain bytes of consecutive file blocks from `fofs` on, shape (n, block size)."""
        cipher = self._contents
        size = 1 << self._policy.log2_data_unit_size if self._policy.log2_data_unit_size else blocks.shape[1]
        if size < 16 or blocks.shape[1] % size:
            raise Unsupported(f"data units of {size} bytes in blocks of {blocks.shape[1]}")
        units = np.ascontiguousarray(blocks).reshape(-1, size)
        first = fofs * (blocks.shape[1] // size)
        index = np.arange(first, first + len(units), dtype=np.uint64)
        plain: NDArray[np.uint8] = cipher.decrypt(units, self._ivs(cipher.iv_size, index))
        return np.ascontiguousarray(plain).reshape(blocks.shape)

    def decrypt_name(self, name: bytes) -> bytes:
        """A name, or the target of a symbolic link, from its ciphertext; ValueError where it can't be one."""
        return self.decrypt_names([name])[0]

    def decrypt_names(self, names: Sequence[bytes]) -> list[bytes]:
        """`decrypt_name` of many, those of one length together."""
        cipher = self._names
        iv = self._ivs(cipher.iv_size, np.zeros(1, np.uint64))
        by_size: dict[int, list[int]] = {}
        for i, name in enumerate(names):
            by_size.setdefault(len(name), []).append(i)
        plain = [b""] * len(names)
        for size, members in by_size.items():
            if size < NAME_MIN_BYTES:
                raise ValueError(f"an encrypted name of {size} bytes")
            units = np.frombuffer(b"".join(names[i] for i in members), np.uint8).reshape(-1, size)
            for i, row in zip(members, cipher.decrypt(units, iv.repeat(len(members), axis=0)), strict=True):
                plain[i] = row.tobytes().split(b"\0", 1)[0]
        return plain

    def encrypt_name(self, name: bytes, longest: int = NAME_MAX_BYTES) -> bytes:
        """A name as it lies in a directory: filled up with NULs and encrypted."""
        cipher = self._names
        padding = self._policy.padding
        size = min(-(-max(len(name), NAME_MIN_BYTES) // padding) * padding, longest)
        unit = np.frombuffer(name.ljust(size, b"\0"), np.uint8).reshape(1, -1)
        return cipher.encrypt(unit, self._ivs(cipher.iv_size, np.zeros(1, np.uint64)))[0].tobytes()


@lru_cache(maxsize=256)
def _cipher_of(number: int, key: bytes) -> Any:
    """Policies whose key is not the file's own share a cipher among all files."""
    from f2tools.f2fs.volume import ciphers

    mode = MODES[number]
    make = getattr(ciphers, mode.cipher)
    try:
        return make(key, sm4=True) if mode.sm4 else make(key)
    except ciphers.UnsupportedAlgorithm:
        raise Unsupported(f"the cryptography library of this system has no {mode.name}") from None


# -- a volume ---------------------------------------------------------------------------------------------------------


class Secrets:
    """The keys given for one volume, and the files that can be read with them."""

    def __init__(self, keyring: Keyring, uuid: bytes, nodes: NodeReader) -> None:
        self.keyring = keyring
        self._uuid = uuid
        self._nodes = nodes
        self._cache: dict[tuple[int, bytes], FileKey | None] = {}

    def of(self, inode: Inode) -> FileKey | None:
        """The key of an encrypted inode; None where none was given for it, or the context can't be read."""
        if not self.keyring or not inode.encrypted:
            return None
        try:
            context = encryption_context(self._nodes, inode)
        except F2fsError:
            return None
        return None if context is None else self.of_context(context, inode.ino)

    def of_context(self, context: bytes, ino: int) -> FileKey | None:
        """The same for an inode of which the context is known, such as one that was deleted."""
        if (ino, context) in self._cache:
            return self._cache[ino, context]
        try:
            policy, nonce = parse_context(context)
        except ValueError:
            return None
        master = self.keyring.find(policy.key_id)
        found = None if master is None else FileKey(master, policy, nonce, ino, self._uuid)
        if len(self._cache) >= _CACHED:
            self._cache.clear()
        self._cache[ino, context] = found
        return found

    def why_locked(self, inode: Inode) -> str:
        """Why an encrypted inode can't be read, and which key is needed."""
        try:
            context = encryption_context(self._nodes, inode)
            policy = parse_context(context or b"")[0]
        except (F2fsError, ValueError) as error:
            return f"encrypted, and the encryption context can't be read: {error}"
        wanted = f"{'identifier' if policy.version == 2 else 'descriptor'} {policy.key_id.hex()}"
        if not self.keyring:
            return f"encrypted and there is no key ({wanted})"
        return f"encrypted, and no key that was given is the one for it ({wanted})"


class PolicyUse(NamedTuple):
    """A policy of a volume and how many inodes have it."""

    policy: Policy
    inodes: int
    key: MasterKey | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.policy.as_dict(), "inodes": self.inodes, "key": self.key.source if self.key else None}


def policies_in_use(nat: Nat, nodes: NodeReader, keyring: Keyring) -> list[PolicyUse]:
    """The policies of all inodes, most used first; those without a sound context don't count.  Reads every inode."""
    counts: dict[Policy, int] = {}
    for policy in _policies_of(nodes, nat.inodes()):
        counts[policy] = counts.get(policy, 0) + 1
    used = sorted(counts.items(), key=lambda item: (-item[1], item[0].key_id))
    return [PolicyUse(policy, count, keyring.find(policy.key_id)) for policy, count in used]


def idle_sources(nat: Nat, nodes: NodeReader, keyring: Keyring, most: int) -> list[list[MasterKey]]:
    """The keys that open no inode, as they were given.  Reads inodes until each has opened one, at most so many.

    None where there are more inodes: one of those may be what a key opens.
    """
    if not keyring.sources or not most:
        return []
    idle, inos = list(keyring.sources), nat.inodes()
    for policy in _policies_of(nodes, inos[:most]):
        key = keyring.find(policy.key_id)
        idle = [source for source in idle if key not in source]
        if not idle:
            break
    return idle if inos.size <= most else []


def _policies_of(nodes: NodeReader, inos: NDArray[np.int64]) -> Iterator[Policy]:
    for at in range(0, inos.size, BATCH):
        for inode in nodes.inodes(inos[at : at + BATCH].tolist()):
            if not isinstance(inode, Inode) or not inode.encrypted:
                continue
            with suppress(F2fsError, ValueError):
                yield parse_context(encryption_context(nodes, inode) or b"")[0]


def decrypt_target(key: FileKey, content: bytes, where: Where) -> bytes:
    """Where an encrypted symbolic link leads, from its content."""
    try:
        return key.decrypt_name(symlink_ciphertext(content))
    except ValueError as error:
        raise Corrupt(where, f"the symbolic link: {error}") from None


def symlink_ciphertext(content: bytes) -> bytes:
    """The ciphertext of an encrypted symbolic link, from its content."""
    length = int.from_bytes(content[:SYMLINK_HEAD], "little")
    return content[SYMLINK_HEAD : SYMLINK_HEAD + length]
