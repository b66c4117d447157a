"""Roll-forward: each crash image, opened for writing, becomes what the real kernel made of it."""

from __future__ import annotations

import itertools
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import f2tools
from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.dump.manifest import manifest
from f2tools.errors import Corrupt, F2fsError
from f2tools.f2fs.layout.constants import CP_CRC_RECOVERY_FLAG, F2FS_CASEFOLD_FL, FADVISE_ENCRYPT_BIT
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import describe, find_fsync_chain
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.volume import WritableVolume
from tests import images, judges
from tests.f2fs.write.consistency import problems

BLOCK = 4096
KEEP_SIZE, PUNCH_HOLE = 1, 2
NOW = 4_000_000_000
EXTENT_FLAG_INLINE = 0x200  # FIEMAP_EXTENT_DATA_INLINE: its place is the inode's, which is written anew


@pytest.mark.peer
@pytest.mark.parametrize("name", images.CRASH)
def test_a_crash_image_becomes_what_the_kernel_made_of_it(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    WritableVolume(open_device(case.path, write=True), clock=lambda: NOW * 10**9).close()
    with f2tools.open(case.path) as volume:
        assert volume.clean
        assert not find_fsync_chain(volume).needed
        ours = manifest(volume)["entries"]
    kernel = case.manifest("manifest-recovered")["entries"]
    assert ours.keys() == kernel.keys()
    for path, entry in ours.items():
        assert comparable(entry, entry) == comparable(kernel[path], entry), path
    judges.fsck_clean(case.path)


def comparable(entry: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: not the moment of the recovery itself, which a directory that got names back shows, ..."""
    kept = dict(entry)
    if ours["mtime_ns"] >= NOW * 10**9:
        del kept["mtime_ns"], kept["ctime_ns"]
    kept["extents"] = [e for e in entry.get("extents", ()) if not e[3] & EXTENT_FLAG_INLINE]
    return kept


@pytest.mark.parametrize("name", images.CRASH)
def test_looking_for_the_chain_writes_nothing_and_ends(name: str) -> None:
    with f2tools.open(images.reference(name).path) as volume:
        found = find_fsync_chain(volume)
        assert len({node.blkaddr for node in found.chain}) == len(found.chain)
        assert all(file.last < len(found.chain) for file in found.files.values())
        assert found.end_reason


def test_a_clean_volume_needs_nothing() -> None:
    with f2tools.open(images.reference("base").path) as volume:
        assert not find_fsync_chain(volume).needed


@pytest.mark.parametrize("policy", [Policy(), Policy(node_ssr=True, min_free_percent=100.0)], ids=["append", "thread"])
def test_a_recovery_that_is_cut_off_starts_again(policy: Policy, tmp_path: Path) -> None:
    """Everything that a recovery writes before its checkpoint is complete leaves the chain as it was."""
    from f2tools.device.changes.record import Recorder

    case = images.reference("crash-several").copy(tmp_path)
    recorder = Recorder(Overlay(open_device(case.path)))
    WritableVolume(recorder, policy, clock=lambda: NOW * 10**9).abandon()
    wanted: dict[str, Any] = {}
    for upto in range(0, len(recorder.events) + 1, max(1, len(recorder.events) // 12)):
        trial = Overlay(open_device(case.path))
        recorder.replay(upto, trial)
        volume = WritableVolume(trial, policy, clock=lambda: NOW * 10**9)
        entries = {p: comparable(e, e) for p, e in manifest(volume)["entries"].items()}
        wanted = wanted or entries
        assert entries == wanted, upto
        volume.abandon()


# -- what is found ----------------------------------------------------------------------------------------------------

KERNEL_SAID = re.compile(r"recover_(inode|dentry|data): ino = ([0-9a-f]+)(?:, name = ([^,]+))?(?:, dir = ([0-9a-f]+))?")


@pytest.mark.parametrize("name", images.CRASH)
def test_the_chain_is_what_the_kernel_told_of_it(name: str) -> None:
    """Its messages, one for each inode block, each name and each node of addresses or attributes, in order."""
    case = images.reference(name)
    told = [
        (what, int(ino, 16), file or None, int(directory, 16) if directory else None)
        for what, ino, file, directory in KERNEL_SAID.findall(case.text("dmesg-recovered.txt"))
    ]
    said: list[tuple[str, int, str | None, int | None]] = []
    with f2tools.open(case.path) as volume:
        found = find_fsync_chain(volume)
        applied = {index for file in found.files.values() for index in file.nodes}
        for index, node in enumerate(found.chain):
            if index not in applied:
                continue
            if node.is_inode:
                block = volume.device.read_range(node.blkaddr, 1, volume.geo.block_size)[0]
                inode = Inode(volume.geo, block, node.ino, node.blkaddr)
                said.append(("inode", node.ino, inode.name.decode(), None))
                if found.files[node.ino].dentry == index:
                    said.append(("dentry", node.ino, inode.name.decode(), inode.i_pino))
            said.append(("data", node.ino, None, None))
        assert not found.looped
        assert len(describe(volume, found)) == len(found.files)
    assert said == told


def test_nothing_is_rolled_forward_while_checkpoints_are_disabled() -> None:
    with f2tools.open(images.reference("checkpoint-disabled").path) as volume:
        found = find_fsync_chain(volume)
    assert not found.needed
    assert "disabled" in found.end_reason


# -- chains that were not met in the corpus ---------------------------------------------------------------------------


def opened(path: Path) -> WritableVolume:
    return WritableVolume(open_device(path, write=True), clock=lambda: NOW * 10**9)


def cut(volume: WritableVolume) -> None:
    """The power goes."""
    volume.abandon()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    judges.mkfs(path, size=64 << 20)
    return path


def test_a_file_that_grew_out_of_its_inode_is_whole(image: Path) -> None:
    """Its direct nodes stand in the log before the inode, which at the checkpoint still held the content."""
    volume = opened(image)
    ino = volume.create(3, b"grown", 0o644)
    volume.write(ino, 0, b"small")
    volume.sync()
    content = bytes(range(256)) * 4 * 1200
    assert volume.write(ino, 0, content) == len(content)
    volume.fsync(ino)
    cut(volume)
    volume = opened(image)
    assert volume.read_at(ino, 0, 1 << 23) == content
    volume.close()
    judges.fsck_clean(image)


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_nodes_that_hold_no_address_any_more_stay_with_their_file(image: Path, known: bool) -> None:
    """They are in the log, and count as blocks of the file, and of the volume."""
    volume = opened(image)
    ino = volume.create(3, b"emptied", 0o644)
    if known:
        volume.sync()
    for block in (0, 1000, 2000, 3000, 5000, 2_000_000):  # in a node of each level
        volume.write(ino, block * BLOCK, b"x")
    volume.fallocate(ino, PUNCH_HOLE | KEEP_SIZE, BLOCK, 3_000_000 * BLOCK)
    volume.fsync(ino)
    before = volume.live(ino).i_blocks, volume.statfs()
    cut(volume)
    volume = opened(image)
    assert (volume.live(ino).i_blocks, volume.statfs()) == before
    volume.close()
    with f2tools.open(image) as reading:
        assert not problems(reading)
    judges.fsck_clean(image)


def chain_block(path: Path, index: int) -> int:
    """Byte offset of a node of the chain."""
    with f2tools.open(path) as volume:
        return find_fsync_chain(volume).chain[index].blkaddr * volume.geo.block_size


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        assert file.read(len(data)) != data
        file.seek(offset)
        file.write(data)


def fsynced_file(path: Path, name: bytes = b"new") -> int:
    volume = opened(path)
    ino = volume.create(3, name, 0o644)
    volume.write(ino, 0, b"x" * 10_000)
    volume.fsync(ino)
    cut(volume)
    return ino


def test_a_new_inode_without_the_mark_for_its_name_is_dropped(image: Path) -> None:
    ino = fsynced_file(image)
    at = chain_block(image, 0)
    flag = struct.unpack("<I", image.read_bytes()[at + 4096 - 16 :][:4])[0]
    patch(image, at + 4096 - 16, struct.pack("<I", flag & ~(1 << 2)))
    with f2tools.open(image) as volume:
        found = find_fsync_chain(volume)
        assert found.dropped == [ino]
        assert found.files == {}
        assert "lost" in describe(volume, found)[0]
    volume = opened(image)
    with pytest.raises(FileNotFoundError):
        volume.lookup(3, b"new")
    volume.close()
    judges.fsck_clean(image)


def test_a_chain_that_leads_back_into_itself_is_refused_and_nothing_is_written(image: Path) -> None:
    fsynced_file(image)
    at = chain_block(image, 0)
    patch(image, at + 4096 - 4, struct.pack("<I", at // 4096))
    before = image.read_bytes()
    with f2tools.open(image) as volume:
        found = find_fsync_chain(volume)
    assert found.looped
    assert len(found.chain) == 1
    with pytest.raises(Corrupt, match="leads back"):
        opened(image)
    assert image.read_bytes() == before


def test_a_long_chain_that_jumps_about_is_followed_to_its_end(image: Path) -> None:
    """Also where each next block lies before the last one."""
    with f2tools.open(image) as volume:
        segno, blkoff, _ = volume.pack.curseg(4)
        first = volume.geo.start_block(segno) + blkoff
        version = volume.cp.checkpoint_ver
        if volume.cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
            version |= volume.pack.crc << 32
        end = volume.geo.end_blkaddr
    places = [first, *range(end - 1, end - 2000, -1)]
    with image.open("r+b") as file:
        for place, following in itertools.pairwise([*places, 0]):
            file.seek(place * 4096 + 4096 - 24)
            file.write(struct.pack("<IIIQI", 9, 9, 0, version & (1 << 64) - 1, following))
    with f2tools.open(image) as volume:
        found = find_fsync_chain(volume)
    assert [node.blkaddr for node in found.chain] == places
    assert not found.needed


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("lost_found", [False, True])
def test_a_new_file_may_have_the_name_of_a_directory_that_is_gone(
    tmp_path: Path, image: Path, full: bool, lost_found: bool
) -> None:
    """At the checkpoint the directory was there; where its files went is not known, so it is kept if it has any."""
    volume = opened(image)
    if lost_found:
        volume.mkdir(3, b"lost+found", 0o700)
    directory = volume.mkdir(3, b"name", 0o755)
    if full:
        volume.create(directory, b"child", 0o600)
    volume.sync()
    if full:
        volume.unlink(directory, b"child")
    volume.rmdir(3, b"name")
    volume._need_checkpoint = False  # as an engine writes that makes no checkpoint of such changes
    volume._gave_up_names.clear()
    ino = volume.create(3, b"name", 0o644)
    volume.fsync(ino)
    cut(volume)
    volume = opened(image)
    assert volume.lookup(3, b"name") == ino
    home = volume.lookup(3, b"lost+found") if lost_found else 3
    if full:
        kept = volume.lookup(home, b"#%d" % directory)
        assert kept == directory
        volume.lookup(kept, b"child")
    volume.close()
    judges.fsck_clean(image)


def test_an_encrypted_name_that_ignores_case_keeps_the_hash_that_its_inode_remembers(tmp_path: Path) -> None:
    image = tmp_path / "image"
    judges.mkfs(image, "-O", "encrypt,casefold", "-C", "utf8", size=64 << 20)
    volume = opened(image)
    directory = volume.mkdir(3, b"folder", 0o755)
    volume.set_flags(directory, F2FS_CASEFOLD_FL)
    volume.sync()
    ino = volume.create(directory, b"seen", 0o644)
    volume.fsync(ino)
    cut(volume)
    at = chain_block(image, 0)
    name, code = bytes(range(200, 216)), 0x12345678
    patch(image, at + 88, struct.pack("<I16sI", 16, name, code))
    with f2tools.open(image) as reading:
        place = reading.nodes.inode(directory).blkaddr * 4096
    patch(image, place + 2, bytes([FADVISE_ENCRYPT_BIT]))
    opened(image).close()
    with f2tools.open(image) as reading:
        dentries = list(reading.dirs.entries(reading.nodes.inode(directory), []))
    found = next(dentry for dentry in dentries if dentry.ino == ino)
    assert (found.name, found.hash_code) == (name, code)


# -- hostile chains ---------------------------------------------------------------------------------------------------

WITH_CHAIN = ("crash-several-strict", "crash-sqlite-wal", "crash-xattr", "crash-holes", "crash-new-file")
WORDS = st.sampled_from([0, 1, 2, 3, 0xFFFF, 0x1200, 0x2000, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF]) | st.integers(
    0, 2**32 - 1
)
PLACES = st.one_of(
    st.integers(0, 89),  # the inode's fields
    st.integers(90, 140),  # addresses
    st.integers(90, 1023),
    st.integers(1013, 1020),  # i_nid and the footer, but for its version
)


@given(
    name=st.sampled_from(WITH_CHAIN),
    words=st.lists(st.tuples(st.integers(0, 30), PLACES, WORDS), min_size=1, max_size=4),
)
@settings(max_examples=150)
def test_a_damaged_chain_is_taken_or_refused(name: str, words: list[tuple[int, int, int]]) -> None:
    device = Overlay(open_device(images.reference(name).path))
    with f2tools.open(images.reference(name).path) as reading:
        chain = [node.blkaddr for node in find_fsync_chain(reading).chain]
    for index, place, word in words:
        device.pwrite(chain[index % len(chain)] * 4096 + 4 * place, struct.pack("<I", word))
    with suppress(F2fsError):
        volume = WritableVolume(device, clock=lambda: NOW * 10**9)
        manifest(volume)
        volume.checkpoint()
