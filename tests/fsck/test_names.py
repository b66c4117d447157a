"""Names that contradict each other: which of two entries is right is what inodes, `..` and places say, by majority."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL, FADVISE_ENCRYPT_BIT, FADVISE_LOST_PINO_BIT
from f2tools.f2fs.layout.hashes import dentry_hash, dentry_hashes_padded
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fsck.findings import Finding
from f2tools.fsck.repair import dentries
from tests.f2fs.write.volumes import fresh, writable
from tests.fsck.craft import Patient, codes, examine
from tests.fsck.test_one_field import entry_in_the_wrong_bucket
from tests.fsck.test_repair import assert_silent, repair

DIR, FILE = 2, 1


def add_entry(volume: WritableVolume, directory: int, name: bytes, ino: int, kind: int) -> None:
    """A further entry that leads to an inode, which knows nothing of it."""
    above = volume.live(directory)
    volume.names.add(above, volume.names.room(above, name), name, ino, kind)
    volume.nodes.touch(above)


def paths_of(image: Path) -> set[bytes]:
    with f2tools.open(image) as volume:
        return {
            directory.rstrip(b"/") + b"/" + item.name for directory, _, entries in volume.walk() for item in entries
        }


@pytest.mark.peer
def test_of_a_directory_named_twice_the_name_above_dotdot_stays_however_many_there_are(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        first, second = volume.mkdir(3, b"first", 0o755), volume.mkdir(3, b"second", 0o755)
        for number in range(5):
            name = b"dir-%d" % number
            ino = volume.mkdir(second, name, 0o755)
            volume.create(ino, b"file", 0o644)
            add_entry(volume, first, name, ino, DIR)
    report = examine(image)
    twice = [finding for finding in report.findings if finding.code == "D012"]
    assert {finding.path for finding in twice} == {f"/first/dir-{number}" for number in range(5)}
    assert repair(image).complete
    assert_silent(image)
    right = {b"/first", b"/second"} | {b"/second/dir-%d%s" % (n, end) for n in range(5) for end in (b"", b"/file")}
    assert paths_of(image) == right


@pytest.mark.peer
@pytest.mark.parametrize("first", [b"a.txt", b"b.txt"])
def test_of_two_entries_with_one_name_the_inode_that_remembers_another_has_that_one_back(
    first: bytes, tmp_path: Path
) -> None:
    image = fresh(tmp_path)
    second = b"b.txt" if first == b"a.txt" else b"a.txt"
    with writable(image) as volume:
        for name in (first, second):
            ino = volume.create(3, name, 0o644)
            volume.write(ino, 0, b"content of " + name)
        directory = volume.live(3)
        entry = volume.names.find(directory, b"b.txt")
        assert entry is not None
        wrong = volume.live(entry.ino)
        volume.names.remove(directory, entry)
        add_entry(volume, 3, b"a.txt", wrong.ino, FILE)
    assert [finding.code for finding in examine(image).findings if finding.code == "D008"]
    assert repair(image).complete
    assert_silent(image)
    with f2tools.open(image) as volume:
        assert {name: volume.path("/" + name.decode()).read() for name in (first, second)} == {
            name: b"content of " + name for name in (first, second)
        }


@pytest.mark.peer
def test_a_deleted_name_stays_deleted_where_the_number_of_links_is_too_high(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = volume.create(3, b"file", 0o644)
        volume.link(ino, 3, b"gone")
        volume.unlink(3, b"gone")
        inode = volume.live(ino)
        inode.set(i_links=2)
        volume.nodes.touch(inode)
    assert repair(image).complete
    assert_silent(image)
    assert paths_of(image) == {b"/file"}


@pytest.mark.peer
def test_of_a_further_name_the_first_slot_comes_back_if_the_others_are_marked(tmp_path: Path) -> None:
    image, name = fresh(tmp_path), b"a name of several slots"
    with writable(image) as volume:
        ino = volume.create(3, b"file", 0o644)
        volume.link(ino, 3, name)
    with f2tools.open(image) as volume:
        root = volume.path("/").inode
        entry = next(entry for entry in volume.dirs.entries(root) if entry.name == name)
        at = int(volume.data.addresses(root, entry.block, 1)[0]) * volume.geo.block_size + entry.slot // 8
    with image.open("r+b") as file:
        file.seek(at)
        marks = file.read(1)[0]
        file.seek(at)
        file.write(bytes([marks & ~(1 << entry.slot % 8)]))
    assert repair(image).complete
    assert_silent(image)
    assert paths_of(image) == {b"/file", b"/" + name}


def test_entries_are_moved_only_where_that_is_wanted(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    entry_in_the_wrong_bucket(p)
    p.close()
    asked: list[str] = []

    def refuse(group: str, findings: list[Finding]) -> bool:
        asked.append(group)
        return False

    assert not repair(p.path, ask=refuse).complete
    assert asked == ["names"]
    assert codes(examine(p.path)) == {"D006": 1}


@pytest.mark.parametrize("length", [1, 16, 17, 255])
def test_one_wrong_byte_of_a_name_is_found_by_its_hash_in_a_few_steps(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def counted(*rows: Any) -> Any:
        steps.append(len(rows[0]))
        return dentry_hashes_padded(*rows)

    monkeypatch.setattr(dentries, "dentry_hashes_padded", counted)
    name = bytes(65 + at % 50 for at in range(length))
    for at in {0, length // 2, length - 1}:
        steps.clear()
        wrong = name[:at] + b"!" + name[at + 1 :]
        assert dentries.wrong_byte_of(wrong, dentry_hash(name)) == name
        assert len(steps) <= 16, "each takes a millisecond or more, and a block may have a hundred such names"
    assert dentries.wrong_byte_of(b"no name", dentry_hash(b"another")) is None


@pytest.mark.peer
@pytest.mark.parametrize("names", [3, 150], ids=["inside the inode", "in blocks"])
def test_a_casefolded_directory_whose_inode_is_lost_keeps_its_names_and_folds_them(names: int, tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M -C utf8")
    with writable(image) as volume:
        above = volume.mkdir(3, b"Folded", 0o755)
        volume.set_flags(above, F2FS_CASEFOLD_FL)
        lost = volume.mkdir(above, b"Below", 0o755)
        for number in range(names):
            volume.create(lost, f"Größe-{number:03d}".encode(), 0o644)
    before = paths_of(image)
    with f2tools.open(image) as volume:
        inode = volume.inode(lost).inode
    assert inode.i_flags & F2FS_CASEFOLD_FL
    with image.open("r+b") as file:
        file.seek(4096 * inode.blkaddr)
        file.write(bytes(4096))
    assert repair(image).complete
    assert_silent(image)
    assert paths_of(image) == before
    with f2tools.open(image) as volume:
        assert volume.path("/Folded/BELOW/GRÖSSE-002").inode.kind == "file"


def test_a_mark_of_encryption_on_a_casefolded_directory_costs_no_name_of_files_that_remember_others(
    tmp_path: Path,
) -> None:
    """Of hard links, and of what was saved under another name and renamed over this one."""
    image = fresh(tmp_path, "--size 64M -C utf8")
    with writable(image) as volume:
        directory = volume.mkdir(3, b"Folded", 0o755)
        volume.set_flags(directory, F2FS_CASEFOLD_FL)
        volume.create(directory, b"UPPER.TXT", 0o644)
        volume.link(volume.create(directory, b"note.txt", 0o644), directory, b"note")
        for name, remembered in ((b"doc.txt", b"doc.txt~"), (b"pic.jpg.tmp", b"pic.jpg")):
            inode = volume.live(volume.create(directory, name, 0o644))
            inode.set(i_name=remembered, i_namelen=len(remembered), i_advise=inode.i_advise | FADVISE_LOST_PINO_BIT)
            volume.nodes.touch(inode)
    before = paths_of(image)
    with writable(image) as volume:
        inode = volume.live(directory)
        inode.set(i_advise=inode.i_advise | FADVISE_ENCRYPT_BIT)
        volume.nodes.touch(inode)
    assert repair(image).complete
    assert paths_of(image) == before


@pytest.mark.parametrize("length", [16, 3, 49])
def test_a_name_with_a_keyed_hash_outlives_a_wrong_length_that_its_inode_remembers(length: int, tmp_path: Path) -> None:
    p = Patient("fscrypt-android", tmp_path)
    before = paths_of(p.path)
    victims = [
        f"{directory.decode().rstrip('/')}/{entry.name.decode()}"
        for directory, above, entries in p.vol.walk()
        if above.encrypted and above.i_flags & F2FS_CASEFOLD_FL
        for entry in entries
        if entry.inode.i_namelen == 48
    ]
    assert victims
    for path in victims[:4]:
        p.inode(path, i_namelen=length)
    p.close()
    assert "D016" not in codes(examine(p.path))
    assert repair(p.path).complete
    assert paths_of(p.path) == before


def test_a_name_with_a_keyed_hash_is_put_back_with_that_hash(tmp_path: Path) -> None:
    """The inode remembers it behind the name; with another hash no key would find the file."""
    p = Patient("fscrypt-android", tmp_path)
    before = paths_of(p.path)  # as they look without the key, with their hashes
    directory = next(
        path.decode()
        for path, above, _ in p.vol.walk()
        if above.encrypted and above.i_flags & F2FS_CASEFOLD_FL and not above.has_inline_dentry
    )
    names = [entry.name for entry in p.vol.dirs.entries(p.vol.path(directory).inode) if entry.name not in (b".", b"..")]
    for name in names[:6]:
        p.clear_bits(directory, name)
    p.close()
    assert {finding.code for finding in examine(p.path).findings} >= {"U001"}
    assert repair(p.path).complete
    assert paths_of(p.path) == before


def test_a_lost_file_does_not_get_a_name_that_another_has_in_an_encrypted_directory(tmp_path: Path) -> None:
    p = Patient("fscrypt-android", tmp_path)
    above, first, second = next(
        (above.ino, *files[:2])
        for _, above, entries in p.vol.walk()
        if above.encrypted and not above.i_flags & F2FS_CASEFOLD_FL
        if len(files := [item.inode.ino for item in entries if item.inode.kind == "file"]) > 1
    )
    p.close()
    with writable(p.path) as volume:
        directory, lost, kept = volume.live(above), volume.live(first), volume.live(second)
        name = next(entry for entry in volume.dirs.entries(directory) if entry.ino == first)
        volume.names.remove(directory, name)
        volume.nodes.touch(directory)
        lost.set(i_name=kept.i_name, i_namelen=kept.i_namelen)
        volume.nodes.touch(lost)
        names = sorted(entry.name for entry in volume.dirs.entries(directory))
    outcome = repair(p.path)
    assert outcome.complete
    with f2tools.open(p.path) as volume:
        assert sorted(entry.name for entry in volume.dirs.entries(volume.nodes.inode(above))) == names
    assert not any("D006" in done for done in outcome.done)
