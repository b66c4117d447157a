"""Deleted files and older versions of living ones: their names, what is left of them, how certain that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

from f2tools.copyout.walk import shown
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import FT_NAMES
from f2tools.f2fs.layout.file_type import file_type, kind_of_mode
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.forensics.content import Content, Contents, not_hashed
from f2tools.forensics.index import Index
from f2tools.forensics.names import MAX_DEPTH, LinkHistory
from f2tools.forensics.past import FOREVER, InodeVersion, Life, Past
from f2tools.forensics.renames import Renames
from f2tools.text import join

CERTAIN, PROBABLE, PARTIAL, NAME_ONLY = GRADES = ("certain", "probable", "partial", "name only")


@dataclass
class Found:
    """A deleted file, or an older version of one that lives."""

    path: bytes
    paths: list[bytes]
    ino: int
    type: str
    grade: str
    reasons: list[str]
    state: str  # deleted, older (version of a deleted or living file), unlinked (but open), name
    version: int | None = None  # number of the version in the file's history, from 1
    life: Life | None = None
    inode: InodeVersion | None = None
    content: Content | None = None
    locked: str | None = None  # which key the content wants; the last of the reasons, too
    sha256: str | None = None  # of the whole content
    sha256_with_gaps: str | None = None  # where ranges are gone: with zeros in their place
    target: bytes | None = None
    file: str | None = None
    deleted_by_ns: int | None = None  # it was gone by then
    also: list[bytes] = field(default_factory=list)  # paths that it had before
    known: list[str] = field(default_factory=list)  # the sets of hashes that have it

    def hashed(self, digest: str | None) -> None:
        """Note the SHA-256 of the content, as what it is: that of the file only where nothing is missing."""
        if self.content is not None and self.content.gaps:
            self.sha256_with_gaps = digest
        else:
            self.sha256 = digest


class Undelete:
    """Everything that can be brought back from a volume, found through its index."""

    def __init__(self, volume: Volume, index: Index) -> None:
        self.volume = volume
        self.past = Past(volume, index)
        self.contents = Contents(self.past)
        self.names = LinkHistory(self.past, self.contents)
        self.renames = Renames(self.past, self.names)
        self._reserved = {volume.sb.node_ino, volume.sb.meta_ino, *(int(ino) for ino in volume.sb.qf_ino)}
        self._states: dict[tuple[int, int], list[list[InodeVersion]]] = {}
        self._returning = self._brought_back()

    def _brought_back(self) -> set[int]:
        """Inode numbers that the next mount would bring back, as they were fsync'ed after the checkpoint."""
        try:
            return set(find_fsync_chain(self.volume).files)
        except F2fsError:
            return set()

    def is_living(self, life: Life) -> bool:
        """Whether a mount of the image shows a file."""
        if life.live:
            return True
        return life.ino in self._returning and life is self.past.lives_of[life.ino][-1]

    # -- what there is --------------------------------------------------------------------------------------------

    def deleted(self) -> Iterator[Found]:
        """Deleted files, each in its last state; then names of which nothing else is left."""
        for life in self.past.lives:
            if life.ino in self._reserved or self.is_living(life):
                continue
            found = self.found(life, self.last_state(life), "unlinked" if life.orphan else "deleted")
            found.deleted_by_ns = None if life.orphan else self.gone_by(life)
            found.also = self.renames.of(life, found.paths)
            yield found
        yield from self.names_only()

    def older(self) -> Iterator[Found]:
        """Older versions of files, living or not, with their content read; several where it is not clear which it was.

        The present content of a living file is an older version too when only its metadata were changed since.
        """
        for life in self.past.lives:
            if life.ino in self._reserved or life.is_dir:
                continue
            living = self.is_living(life)
            newest = life.last if living else self.last_state(life)
            met: set[tuple[bytes, int, int, str | None]] = set()
            for number, versions in enumerate(self.states(life), self.number_before(life) + 1):
                current = newest in versions
                for found in self._candidates(life, versions, current, living):
                    self.digest(found)
                    for path, sure in self._older_paths(life, versions, current, living):
                        digest = found.sha256 or found.sha256_with_gaps
                        key = (path, found.inode.size, found.inode.mtime_ns, digest) if found.inode else None
                        if key is None or key in met:
                            continue
                        met.add(key)
                        item = replace(found, path=path, paths=[path], version=number, reasons=list(found.reasons))
                        if not sure:
                            item.reasons.append("the path is from a freed entry, which may have been another file's")
                            item.grade = max(item.grade, PROBABLE, key=GRADES.index)
                        yield item

    def _candidates(self, life: Life, versions: list[InodeVersion], current: bool, living: bool) -> list[Found]:
        """A version with each content that it may have had, the best first."""
        by_content: dict[tuple[Any, ...], Found] = {}
        for version in reversed(versions):
            found = self.found(life, version, "older")
            content = found.content
            if current and found.inode is not None and living and version.ctime_ns > version.mtime_ns:
                found.reasons.append("the content is as it is now; something else was changed since")
            key = _content_key(content)
            if key not in by_content or GRADES.index(found.grade) < GRADES.index(by_content[key].grade):
                by_content[key] = found
        return sorted(by_content.values(), key=self.quality)

    def _older_paths(
        self, life: Life, versions: list[InodeVersion], current: bool, living: bool
    ) -> list[tuple[bytes, bool]]:
        """The paths that a state had, and whether that is sure: when it was written, and when its content was."""
        first = versions[0]
        written = self.names.paths(life, first, first=True)[0]
        sure = {} if current else {written: None}  # in their order
        begun = self.past.age_of(first.mtime_ns)
        if begun is not None and begun < first.age:
            sure.update(dict.fromkeys(self.names.paths_at(life, first, begun)))
        former: list[bytes] = []
        if current and living and first.ctime_ns > first.mtime_ns:
            sure = sure or {written: None}
            former = [path for path in self._former_names(life, first) if path not in sure]
        return [(path, True) for path in sure] + [(path, False) for path in former]

    def _former_names(self, life: Life, version: InodeVersion) -> list[bytes]:
        """Names in freed slots that the number had, while its inode was changed after its content: it was renamed."""
        if len(self.past.lives_of[life.ino]) > 1:
            return []
        kind = file_type(version.mode)
        mine = {(link.dir, link.name) for link in self.names.of_life[life.ino, life.generation]}
        return [
            self.names.path_of(directory, name, version.age, life.ino)
            for directory, name, _, found in self.past.index.tables.entries_of(life.ino)
            if directory and found == kind and (directory, name) not in mine
        ]

    def quality(self, found: Found) -> tuple[int, int]:
        """The smaller the better: by grade, then by how much is there."""
        return GRADES.index(found.grade), -(found.content.have if found.content else 0)

    def number_before(self, life: Life) -> int:
        """How many versions the lives of a number before this one have: versions are counted over all of them."""
        lives = self.past.lives_of[life.ino]
        if lives[0] is life:
            return 0
        return sum(len(self.states(other)) for other in lives[: lives.index(life)])

    def states(self, life: Life) -> list[list[InodeVersion]]:
        """The versions of a life, those in one list that agree in size, mtime, ctime and name."""
        if len(life.versions) == 1:
            return [life.versions]
        key = (life.ino, life.generation)
        if key in self._states:
            return self._states[key]
        result = self._states[key] = []
        for version in life.versions:
            if result and _state(result[-1][-1]) == _state(version):
                result[-1].append(version)
            else:
                result.append([version])
        return result

    def last_state(self, life: Life) -> InodeVersion:
        """The last version before the deletion began to take the content away."""
        version = life.last
        for before in reversed(life.versions[:-1]):
            if version.links or version.size or not before.size:
                break
            version = before
        return version

    # -- one of them ----------------------------------------------------------------------------------------------

    def found(self, life: Life, version: InodeVersion, state: str) -> Found:
        """A version with its paths, its content and its grade."""
        reasons: list[str] = []
        kind, locked = kind_of_mode(version.mode), None
        try:
            content = self.contents.of(life, version)
        except F2fsError as error:
            content, grade = None, NAME_ONLY
            reasons.append(str(error))
        else:
            grade = self._grade(life, version, content, reasons)
            if kind in ("file", "symlink") and content.volume.locked(content.inode):
                locked = f"the content is {content.volume.secrets.why_locked(content.inode)}"
                reasons.append(locked)
        paths = self.names.paths(life, version)
        return Found(
            paths[0], paths, life.ino, kind, grade, reasons, state,
            life=life, inode=version, content=content, locked=locked,
        )  # fmt: skip

    def _grade(self, life: Life, version: InodeVersion, content: Content, reasons: list[str]) -> str:
        reasons += content.reasons
        if content.gaps:
            if not content.have:
                reasons.append("nothing of the content is left")
                return NAME_ONLY
            return PARTIAL
        grade = CERTAIN
        if content.doubtful:
            grade = PROBABLE
        lived, over = self.names.lived_until(life), self._over_ns(life)
        if version.size and (doubt := self.contents.settled(life, version, content, lived, over)):
            grade = PROBABLE
            reasons.append(doubt)
        if not self.names.of_life[life.ino, life.generation] and not any(item.links for item in life.versions):
            grade = PROBABLE
            reasons.append("it never had a name: a temporary file")
        if version.checksum == 0:
            grade = PROBABLE
            reasons.append("the inode's checksum is wrong")
        if version is life.last and self.past.newer_may_be_lost(version, self.gone_at(life)):
            grade = PROBABLE
            reasons.append("newer versions may have been overwritten")
        if grade == CERTAIN:
            reasons.append("the inode is whole, and nothing newer claims its blocks")
        return grade

    def gone_at(self, life: Life) -> int:
        """The age by which a life was over: its last name was gone, or its number was in use again."""
        untils = [link.until for link in self.names.of_life[life.ino, life.generation]]
        last = max(untils, default=FOREVER)
        return min(last if last >= life.last.age else 0, life.ends, 0)

    def gone_by(self, life: Life) -> int | None:
        """A time by which a file was gone: the mtime of its directory, of the first version that lacks it.

        The kernel may write the entries of a directory before its times, so the mtime must be a new one.
        """
        links = [link for link in self.names.of_life[life.ino, life.generation] if link.until != FOREVER]
        if not links:
            return None
        last = max(links, key=lambda link: link.until)
        parent = self.past.life_at(last.dir, last.until)
        if parent is None:
            return None
        before = self.past.version_at(parent, last.until - 1).mtime_ns
        times = (version.mtime_ns for version in parent.versions if version.age >= last.until)
        return next((time for time in times if time > before), None)

    def _over_ns(self, life: Life, depth: int = 0) -> int | None:
        """When a file was deleted, to the minute; None where it is not known, or no version of its directory tells."""
        links = self.names.of_life[life.ino, life.generation]
        if not links or life.live or life.orphan or depth > MAX_DEPTH:
            return None
        last = max(links, key=lambda link: link.until)
        directory = self.past.life_at(last.dir, last.since)
        if directory is None or last.lives > 1:
            return None
        if last.until == FOREVER:
            return self._over_ns(directory, depth + 1)
        if self.past.newer_may_be_lost(self.past.version_at(directory, last.until - 1), last.until):
            return None
        return self.gone_by(life)

    def digest(self, found: Found) -> None:
        """Read the content: fill in `sha256`, or `sha256_with_gaps`, and `target`; nothing of what is locked."""
        content = found.content
        if content is None or found.type not in ("file", "symlink") or (content.gaps and not content.have):
            return
        if found.locked:
            return
        try:
            if found.type == "file":
                found.hashed(self.contents.digest(content))
            elif content.whole:
                found.target = File(content.volume, content.inode).readlink()
                found.sha256 = sha256(found.target).hexdigest()
        except F2fsError as error:
            found.grade = PARTIAL
            found.reasons.append(str(error))

    def hashes(self, found: Found, names: Sequence[str]) -> dict[str, str] | None:
        """Hashes of a file's content; None where it is not a file, incomplete or ciphertext.

        None, and one more reason in `found`, where it is damaged or has holes without end.
        """
        content = found.content
        if content is None or found.type != "file" or content.gaps or found.locked:
            return None
        try:
            sums = self.contents.digests(content, names)
        except F2fsError as error:
            found.reasons.append(str(error))
            return None
        if sums is None:
            found.reasons.append(not_hashed(content.inode.i_size))
        return sums

    # -- names without an inode -----------------------------------------------------------------------------------

    def names_only(self) -> Iterator[Found]:
        """Names in directories, old or freed, whose inode is gone, and not those of files that are known by another."""
        for directory, name, ino, kind in self.renames.others:
            yield self._name_only(directory, name, ino, kind)

    def _name_only(self, directory: int, name: bytes, ino: int, file_type: int) -> Found:
        reasons = ["only the name is left"]
        lives = self.past.lives_of.get(ino, [])
        living = [life for life in lives if self.is_living(life)]
        ages = [link.until - 1 for link in self.names.links.get(ino, []) if (link.dir, link.name) == (directory, name)]
        age = min(max(ages, default=0), 0)
        if living:
            now = self.names.paths(living[-1], living[-1].last)[0]
            reasons.append(f"the inode number is in use: {shown(now)}")
        parent = self.names.directory_path(directory, age) if directory else b"#"
        path = join(parent, self.names.shown(directory, name))
        kind = FT_NAMES[file_type] if file_type < len(FT_NAMES) else "unknown"
        return Found(path, [path], ino, kind, NAME_ONLY, reasons, "name")


def _content_key(content: Content | None) -> tuple[Any, ...]:
    """Equal for versions that have the same content in the same places."""
    if content is None:
        return ()
    if content.inode.has_inline_data:
        return (content.inode.inline_area.tobytes(), content.inode.i_size)
    return (tuple(content.addresses().items()), content.inode.i_size)


def _state(version: InodeVersion) -> tuple[Any, ...]:
    return (
        version.size, version.mtime_ns, version.ctime_ns, version.mode, version.links, version.uid, version.gid,
        version.pino, version.name,
    )  # fmt: skip


def selected(found: Found, pattern: str | None) -> bool:
    """Whether a path or name is like a pattern, or lies below a directory that is."""
    if not pattern:
        return True
    path = shown(found.path)
    wanted = pattern.strip("/")
    parts = path.split("/")
    if fnmatchcase(parts[-1], wanted):
        return True
    return any(fnmatchcase("/".join(parts[: count + 1]), wanted) for count in range(len(parts)))


def as_dict(found: Found) -> dict[str, Any]:
    """For JSON: the fields that scripts rely on, then what else is known."""
    inode, content = found.inode, found.content
    result: dict[str, Any] = {
        "path": shown(found.path),
        "ino": found.ino,
        "size": inode.size if inode else None,
        "mtime_ns": inode.mtime_ns if inode else None,
        "sha256": found.sha256,
        "grade": found.grade,
        "reasons": found.reasons,
        "file": found.file,
    }
    if found.version is not None:
        result["version"] = found.version
    result |= {"type": found.type, "state": found.state, "generation": inode.generation if inode else None}
    if inode is not None:
        result |= {
            "atime_ns": inode.atime_ns,
            "ctime_ns": inode.ctime_ns,
            "crtime_ns": inode.crtime_ns,
            "mode": f"{inode.mode & 0o7777:04o}",
            "uid": inode.uid,
            "gid": inode.gid,
            "links": inode.links,
            "cp_ver": inode.cp_ver,
            "blkaddr": inode.blkaddr,
        }
    if found.state == "deleted":
        result["deleted_by_ns"] = found.deleted_by_ns
    if content is not None and content.gaps:
        result["missing"] = [{"offset": first, "length": length} for first, length in content.gaps]
        result["sha256_with_gaps"] = found.sha256_with_gaps
    if found.target is not None:
        result["target"] = shown(found.target)
    if len(found.paths) > 1:
        result["more_paths"] = [shown(path) for path in found.paths[1:]]
    if found.known:
        result["known"] = found.known
    if found.also:
        result["also_known_as"] = [shown(path) for path in found.also]
    return result
