"""The versions of one file or directory, in the order of writing, and what changed from one to the next."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from f2tools.copyout.walk import shown
from f2tools.errors import F2fsError, Usage
from f2tools.forensics.past import FOREVER, InodeVersion, Life
from f2tools.forensics.times import iso
from f2tools.forensics.undelete import Found, Undelete

DIFF_BYTES = 16 << 20  # larger versions are compared without showing lines


@dataclass
class Version:
    """A state of a file; `id` is what the commands call it."""

    id: str
    life: Life
    versions: list[InodeVersion]  # the inode blocks that show it
    paths: list[bytes]
    state: str  # live, unlinked, deleted (the last state of a deleted file) or older
    changes: list[str] = field(default_factory=list)

    @property
    def inode(self) -> InodeVersion:
        return self.versions[-1]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        inode = self.inode
        return {
            "version": self.id,
            "state": self.state,
            "ino": inode.ino,
            "generation": inode.generation,
            "path": shown(self.paths[0]),
            "paths": [shown(path) for path in self.paths],
            "name": shown(inode.name),
            "size": inode.size,
            "mode": f"{inode.mode & 0o177777:06o}",
            "uid": inode.uid,
            "gid": inode.gid,
            "links": inode.links,
            "atime_ns": inode.atime_ns,
            "mtime_ns": inode.mtime_ns,
            "ctime_ns": inode.ctime_ns,
            "crtime_ns": inode.crtime_ns,
            "cp_ver": self.versions[0].cp_ver,
            "fsync": any(version.fsync for version in self.versions),
            "blocks": [{"blkaddr": version.blkaddr, "cp_ver": version.cp_ver} for version in self.versions],
            "changes": self.changes,
        }


class History:
    """Histories of the files of a volume."""

    def __init__(self, undelete: Undelete) -> None:
        self.undelete = undelete
        self.past = undelete.past
        self.names = undelete.names

    def of(self, what: str) -> list[Version]:
        """All versions of a path, or of an inode number (`ino:7` or `7`); FileNotFoundError where there are none."""
        lives = self._lives(what)
        if not lives:
            raise FileNotFoundError(2, "no version of it is left", what)
        several = len({life.ino for life in lives}) > 1
        found: list[Version] = []
        for life in lives:
            found += self._versions(life, several)
        return sorted(found, key=lambda version: version.versions[0].rank)

    def _lives(self, what: str) -> list[Life]:
        number = what[4:] if what.startswith("ino:") else what
        if number.isdigit():
            return list(self.past.lives_of.get(int(number), []))
        wanted = what.encode("utf-8", "surrogateescape").strip(b"/")
        if not wanted:
            return list(self.past.lives_of.get(self.past.volume.sb.root_ino, []))
        last = wanted.rpartition(b"/")[2]
        found: list[Life] = []
        for life in self.past.lives:
            names = {version.name for version in life.versions}
            links = self.names.of_life[life.ino, life.generation]
            names.update(link.name for link in links)
            if last in names and wanted in self._paths(life):
                found.append(life)
        return found

    def _paths(self, life: Life) -> set[bytes]:
        """All paths that a life ever had, as far as is known."""
        found = {path for version in life.versions for path in self.names.paths(life, version, first=True)}
        found.update(path for version in life.versions for path in self.names.paths(life, version))
        for link in self.names.of_life[life.ino, life.generation]:
            for age in (link.since, min(link.until - 1, 0)):
                found.add(self.names.path_of(link.dir, link.name, age, life.ino))
        return found

    def _versions(self, life: Life, several: bool) -> list[Version]:
        living = self.undelete.is_living(life)
        newest = life.last if living else self.undelete.last_state(life)
        result: list[Version] = []
        before = self.undelete.number_before(life)
        for number, versions in enumerate(self.undelete.states(life), before + 1):
            state = "older"
            if newest in versions:
                state = "live" if living else "unlinked" if life.orphan else "deleted"
            paths = self.names.paths(life, versions[0], first=True)
            version = Version(f"{life.ino}.{number}" if several else str(number), life, versions, paths, state)
            version.changes = self._changes(result[-1] if result else None, version)
            result.append(version)
        return result

    def _changes(self, before: Version | None, after: Version) -> list[str]:
        new = after.inode
        if before is None:
            return ["first version that is left"]
        old = before.inode
        said: list[str] = []
        if new.size != old.size:
            said.append(f"size {old.size} -> {new.size}")
        if new.mtime_ns != old.mtime_ns and not new.is_dir:
            said.append("content written")
        if new.mode != old.mode:
            said.append(f"mode {old.mode & 0o7777:04o} -> {new.mode & 0o7777:04o}")
        if (new.uid, new.gid) != (old.uid, old.gid):
            said.append(f"owner {old.uid}:{old.gid} -> {new.uid}:{new.gid}")
        if new.links != old.links:
            said.append(f"links {old.links} -> {new.links}")
        if after.paths[0] != before.paths[0]:
            said.append(f"was {shown(before.paths[0])}")
        if new.is_dir:
            said += self._entries(after.life, old, new)
        if not said and new.ctime_ns != old.ctime_ns:
            said.append("attributes")
        return said or ["written again"]

    def _entries(self, life: Life, old: InodeVersion, new: InodeVersion) -> Iterator[str]:
        """The names that were added to a directory, and those that were removed."""
        for ino, links in self.names.links.items():
            for link in links:
                if link.dir != life.ino:
                    continue
                if old.age < link.since <= new.age:
                    yield f"+ {shown(link.name)} ({ino})"
                if link.until != FOREVER and old.age < link.until <= new.age:
                    yield f"- {shown(link.name)} ({ino})"

    # -- content --------------------------------------------------------------------------------------------------

    def pick(self, versions: list[Version], name: str) -> Version:
        """The version with this id; Usage where there is none."""
        for version in versions:
            if version.id == name:
                return version
        raise Usage(f"there is no version {name}; there are {', '.join(version.id for version in versions)}")

    def found(self, version: Version) -> Found:
        """A version with content and grade, the best of its inode blocks."""
        every = [self.undelete.found(version.life, item, version.state) for item in reversed(version.versions)]
        return min(every, key=self.undelete.quality)

    def content(self, found: Found) -> Iterator[tuple[int, bytes | memoryview]]:
        """(offset, bytes) of what is left of a version."""
        if found.content is None:
            raise F2fsError(f"{shown(found.path)}: {'; '.join(found.reasons)}")
        yield from self.undelete.contents.chunks(found.content)

    def diff(self, one: Version, other: Version) -> Iterator[str]:
        """How two versions differ: what the inodes say, then the content, as lines where it is text."""
        for key, old in one.as_dict().items():
            new = other.as_dict()[key]
            if key in ("version", "state", "blocks", "changes", "fsync") or old == new:
                continue
            if key.endswith("_ns") and isinstance(old, int) and isinstance(new, int):
                old, new = iso(old), iso(new)
            yield f"{key}: {old} -> {new}"
        if one.inode.is_dir:
            yield from self._entries(one.life, one.inode, other.inode)
            return
        first, second = (self._bytes(version) for version in (one, other))
        if first is None or second is None:
            yield "content: too large to be compared by lines"
        elif first != second:
            yield from _content_diff(first, second, one.id, other.id)

    def _bytes(self, version: Version) -> bytes | None:
        found = self.found(version)
        if found.inode is None or found.inode.size > DIFF_BYTES:
            return None
        data = bytearray(found.inode.size)
        for offset, piece in self.content(found):
            data[offset : offset + len(piece)] = piece
        return bytes(data)


def _content_diff(first: bytes, second: bytes, one: str, other: str) -> Iterator[str]:
    try:
        texts = [data.decode("utf-8") for data in (first, second)]
    except UnicodeDecodeError:
        texts = []
    if not texts or any("\0" in text for text in texts):
        size = 4096
        count = max(-(-len(data) // size) for data in (first, second))
        changed = [i for i in range(count) if first[i * size : (i + 1) * size] != second[i * size : (i + 1) * size]]
        yield f"content: {len(changed)} of {count} blocks of {size} bytes differ: {_ranges(changed)}"
        return
    lines = [text.splitlines() for text in texts]
    yield from difflib.unified_diff(lines[0], lines[1], f"version {one}", f"version {other}", lineterm="")


def _ranges(numbers: list[int]) -> str:
    said: list[str] = []
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            first, last = numbers[start], numbers[at - 1]
            said.append(str(first) if first == last else f"{first}-{last}")
            start = at
    return ", ".join(said)
