"""What was fsync'ed after the checkpoint, on volumes that need a repair, too: it comes back, or the volume goes on
without it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import DENT_BIT_SHIFT, F2FS_COMPR_FL, F2FS_ROOT_INO
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, Inode, NodeFooter
from f2tools.f2fs.layout.sit import SitEntry
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.recovery import ChainNode, find_fsync_chain
from f2tools.f2fs.write import refused
from f2tools.f2fs.write.recovered import open_recovered, recovered
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import StaysOpen
from tests import judges
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.fsck import fields
from tests.fsck.sweep import tree_on
from tests.images import reference

FILE = 0o100644
OLD, NEW = b"h-old " * 2000, b"h-new " * 5000


def with_fsynced_file(directory: Path) -> tuple[Path, list[ChainNode]]:
    """A volume with a new file that was fsync'ed and is in no checkpoint, and the chain of its nodes."""
    image = fresh(directory)
    volume = writable(image)
    ino = volume.create(F2FS_ROOT_INO, b"a", FILE)
    volume.write(ino, 0, NEW)
    volume.fsync(ino)
    volume.abandon()
    with reading(image) as now:
        chain = find_fsync_chain(now).chain
    assert chain
    return image, chain


def test_a_volume_that_went_on_from_the_older_checkpoint_keeps_what_it_wrote_since(tmp_path: Path) -> None:
    """The power is cut while the last block of a checkpoint is written, and again before the next one."""
    image = fresh(tmp_path)
    volume = writable(image)
    first = volume.create(F2FS_ROOT_INO, b"H", FILE)
    volume.write(first, 0, OLD)
    volume.sync()
    volume.sync()
    volume.mkdir(F2FS_ROOT_INO, b"d", 0o755)
    volume.sync()
    before = image.read_bytes()
    volume.unlink(F2FS_ROOT_INO, b"H")
    volume.sync()
    volume.abandon()
    with reading(image) as now:
        pack = now.pack
    torn = (pack.blkaddr + pack.cp.cp_pack_total_block_count - 1) * 4096 + 3584
    with image.open("r+b") as file:
        file.seek(torn)
        file.write(before[torn : torn + 512])
    volume = writable(image)
    assert volume.pack.cp.checkpoint_ver < pack.cp.checkpoint_ver
    volume.write(first, 0, NEW)
    volume.fsync(first)
    other = volume.create(F2FS_ROOT_INO, b"C", FILE)
    volume.write(other, 0, NEW)
    volume.fsync(other)
    volume.abandon()
    f2("fsck", "-y", image)
    writable(image).close()
    with reading(image) as now:
        root = now.nodes.inode(F2FS_ROOT_INO)
        assert {entry.name for entry in now.dirs.entries(root)} - {b".", b".."} == {b"d", b"H", b"C"}
        assert now.path("/H").read() == now.path("/C").read() == NEW


@pytest.mark.parametrize(
    ("name", "offset", "byte"), [("crash-new-file", 0x40108E, 0x9E), ("crash-several", 0x20115C, 131)]
)
def test_it_comes_back_where_finding_what_was_lost_is_all_that_is_to_be_done(
    name: str, offset: int, byte: int, tmp_path: Path
) -> None:
    image = reference(name).copy(tmp_path).path
    with open_device(image) as device:
        wanted, _ = tree_on(device, recovered)
    with open_device(image, write=True) as device:
        device.pwrite(offset, bytes([byte]))
        left, _ = fields.mended(device)
        found, _ = tree_on(device)
        assert not left
        assert not check(Image(StaysOpen(device))).counts["R001"]
    assert {path for path, item in wanted.items() if found.get(path, item) == item} == wanted.keys()


def test_a_block_that_was_fsynced_in_two_files_is_told_by_all_that_bring_them_back(tmp_path: Path) -> None:
    """The later one gets it, as with the kernel; nothing says which of them is right."""
    image = reference("crash-several").copy(tmp_path).path
    with reading(image) as volume:
        first, second = find_fsync_chain(volume).chain[1:3]
        at = first.blkaddr * volume.geo.block_size + INODE_ADDR_OFFSET + 20
        word = volume.device.pread(at, 4)
    blkaddr = int.from_bytes(word, "little")
    with image.open("r+b") as file:
        file.seek(second.blkaddr * 4096 + INODE_ADDR_OFFSET + 4)
        file.write(word)
    said = f"block {blkaddr:#x} was fsync'ed in inode {first.ino} and then in {second.ino}, which gets it"
    sound = f2("fsck", image)
    assert (sound.code, said in sound.text) == (0, True)
    plan = json.loads(f2("recover", image, "--json").text)
    assert plan["contested"] == [{"blkaddr": blkaddr, "first": first.ino, "second": second.ino}]
    assert said in f2("recover", image).text
    with open_recovered(image) as volume:
        assert any(said in line for line in volume.warnings)
    with image.open("r+b") as file:  # something to be repaired
        file.seek(1024 + SuperBlock.offset_of("version"))
        file.write(b"other")
    repaired = f2("fsck", "-y", image).text
    assert f"R006 {said}" in repaired
    assert f"perhaps only partly there (block {blkaddr:#x} was fsync'ed in inode {first.ino}" in repaired


def test_a_contested_block_is_told_too_where_another_file_is_left_out(tmp_path: Path) -> None:
    image = reference("crash-several").copy(tmp_path).path
    with reading(image) as volume:
        first, second, refused = find_fsync_chain(volume).chain[1:4]
        word = volume.device.pread(first.blkaddr * volume.geo.block_size + INODE_ADDR_OFFSET + 20, 4)
    with image.open("r+b") as file:
        file.seek(second.blkaddr * 4096 + INODE_ADDR_OFFSET + 4)
        file.write(word)
        file.seek(refused.blkaddr * 4096 + INODE_ADDR_OFFSET)
        file.write(b"\xff\xff\xff\x7f")
    repaired = f2("fsck", "-y", image).text
    assert "R003" in repaired
    assert f"R006 block {int.from_bytes(word, 'little'):#x} was fsync'ed in inode {first.ino}" in repaired


@pytest.mark.parametrize("name", ["crash-several", "crash-xattr"])
def test_of_what_recovery_refuses_all_else_comes_back_where_the_volume_is_repaired(name: str, tmp_path: Path) -> None:
    image = reference(name).copy(tmp_path).path
    with open_device(image) as device:
        wanted, inos = tree_on(device, recovered)
    with reading(image) as volume:
        chain = find_fsync_chain(volume).chain
    last = chain[-1].blkaddr
    hit(image)
    said = f2("fsck", "-y", image).text
    assert "R001 what was fsync'ed after the checkpoint is brought back" in said
    assert f"R003 main, blkaddr {last:#x}" in said
    assert "given up" in said
    with open_device(image) as device:
        found, _ = tree_on(device)
    others = {path for path in wanted if inos[path] != chain[-1].ino}
    assert {path for path in others if found.get(path) == wanted[path]} == others
    volume = writable(image)
    volume.create(F2FS_ROOT_INO, b"fresh", FILE)
    volume.close()
    assert "sound" in f2("fsck", image).text


@pytest.mark.parametrize(("field", "wrong"), [("i_advise", b"\xff"), ("i_blocks", b"\xff" * 8)])
@pytest.mark.parametrize("name", ["crash-several", "crash-xattr"])
def test_what_is_wrong_in_a_file_that_came_back_is_repaired(
    name: str, field: str, wrong: bytes, tmp_path: Path
) -> None:
    """Beside other damage, after which all that was fsync'ed would be given up."""
    image = reference(name).copy(tmp_path).path
    with open_device(image) as device:
        wanted, inos = tree_on(device, recovered)
    with reading(image) as volume:
        last = find_fsync_chain(volume).chain[-1]
    assert last.nid == last.ino
    hit(image, field=field, wrong=wrong)
    said = f2("fsck", "-y", image).text
    assert "R001 what was fsync'ed after the checkpoint is brought back" in said
    with open_device(image) as device:
        found, found_inos = tree_on(device)
    others = {path for path in wanted if inos[path] != last.ino}
    assert {path for path in others if found.get(path) == wanted[path]} == others
    assert last.ino in found_inos.values()
    assert "sound" in f2("fsck", image).text
    judges.fsck_clean(image)


def test_a_chain_of_which_no_file_is_known_ends_neither_check_nor_repair(tmp_path: Path) -> None:
    """Marks of an fsync on files that are not in the checkpoint, nor whole in the chain: the kernel passes them by."""
    image, chain = with_fsynced_file(tmp_path)
    with image.open("r+b") as file:
        for node in chain:
            footer = (node.blkaddr + 1) * 4096 - NodeFooter.size + NodeFooter.offset_of("flag")
            file.seek(footer)
            flag = int.from_bytes(file.read(4), "little") & ~(1 << DENT_BIT_SHIFT)
            file.seek(footer)
            file.write(flag.to_bytes(4, "little"))
    assert "R001" in f2("fsck", image).text
    assert f2("fsck", image).code == 0
    with image.open("r+b") as file:
        file.seek(1024 + 4096)
        file.write(bytes(1024))
    said = f2("fsck", "-y", image).text
    assert "R001 what was fsync'ed can't be brought back: its files are in no checkpoint" in said
    assert "is brought back" not in said
    assert f2("fsck", image).code == 0


def test_a_node_that_cannot_be_right_is_found_and_costs_no_other_file(tmp_path: Path) -> None:
    """Mount and `recover` refuse the volume, as the kernel does, and lead to a check that knows why."""
    image = reference("crash-several").copy(tmp_path).path
    with open_device(image) as device:
        wanted, inos = tree_on(device, recovered)
        before, _ = tree_on(device)
    with reading(image) as volume:
        chain = find_fsync_chain(volume).chain
    bad = next(node for node in chain if inos_have(inos, node.ino, before))
    with image.open("r+b") as file:
        file.seek(bad.blkaddr * 4096 + INODE_ADDR_OFFSET)
        file.write(b"\xff\xff\xff\x7f")
    damaged = image.read_bytes()
    shown = f2("recover", image).text
    assert f"refused:    the node of inode {bad.ino} at {bad.blkaddr:#x}: address 0x7fffffff" in shown
    assert "f2tools fsck -y --undo FILE" in shown
    applied = f2("recover", "--apply", image)
    assert applied.code == 1
    assert "run f2tools fsck" in applied.err
    told = f2("fsck", image)
    assert told.code == 4
    assert "for good" not in told.err + f2("doctor", image).text
    assert f"R003 error   main, blkaddr {bad.blkaddr:#x}" in told.text
    assert f2("fsck", "-p", image).code == 4
    assert image.read_bytes() == damaged
    mended = f2("fsck", "-y", image)
    assert mended.code == 1
    assert "given up; the file is as it was at the checkpoint" in mended.text
    (path,) = [path for path in before if inos[path] == bad.ino]
    assert f"file: {os.fsdecode(path)}: as it was before (what was fsync'ed of it can't be brought back)" in mended.text
    assert "; 1 as it was before" in mended.text
    with open_device(image) as device:
        found, _ = tree_on(device)
    assert found == {path: before[path] if inos[path] == bad.ino else item for path, item in wanted.items()}
    assert "sound" in f2("fsck", image).text
    judges.fsck_clean(image)


def test_a_new_file_that_cannot_be_brought_back_is_told_as_gone_by_its_name(tmp_path: Path) -> None:
    """Also where it is not its inode that can't be right, but a node behind it."""
    image = fresh(tmp_path)
    volume = writable(image)
    above = volume.mkdir(F2FS_ROOT_INO, b"d", 0o755)
    volume.sync()
    for name, blocks in ((b"small", 1), (b"large", 1500)):
        ino = volume.create(above, name, FILE)
        volume.write(ino, 0, bytes(range(1, 256)) * 17 * blocks)
        volume.fsync(ino)
    volume.abandon()
    with reading(image) as now:
        chain = find_fsync_chain(now).chain
    first, last = chain[0], next(node for node in chain if not node.is_inode)
    with image.open("r+b") as file:
        for at in (first.blkaddr * 4096 + INODE_ADDR_OFFSET, last.blkaddr * 4096):
            file.seek(at)
            file.write(b"\xff\xff\xff\x7f")
    said = f2("fsck", "-y", image).text
    for name in ("small", "large"):
        assert f"a new file, '{name}' in directory {above}" in said
        assert f"file: /d/{name}: gone (what was fsync'ed of it can't be brought back)" in said
    assert "files: 0 files whole and where they were; 2 gone" in said


def inos_have(inos: dict[bytes, int], ino: int, tree: dict[bytes, object]) -> bool:
    """Whether a file is in this tree under one of its names."""
    return any(inos[path] == ino for path in tree)


@pytest.mark.parametrize("most", [1 << 16, 50])
def test_every_file_of_which_something_is_given_up_is_named(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused, "MOST_NODES", most)
    image = fresh(tmp_path)
    volume = writable(image)
    inos = [volume.create(F2FS_ROOT_INO, b"%d" % number, FILE) for number in range(30)]
    for ino in inos:
        volume.write(ino, 0, OLD)
    volume.sync()
    for ino in inos:
        volume.write(ino, 0, NEW)
        volume.fsync(ino)
    volume.abandon()
    with reading(image) as before:
        chain = find_fsync_chain(before).chain
    with image.open("r+b") as file:
        for node in chain[2::3]:
            file.seek(node.blkaddr * 4096 + INODE_ADDR_OFFSET)
            file.write(b"\xff\xff\xff\x7f")
    said = f2("fsck", "-y", "--every", image).text
    with reading(image) as now:
        sizes = [now.path(b"/%d" % name).inode.i_size for name in range(30)]
    old = [name for name, size in enumerate(sizes) if size == len(OLD)]
    assert set(sizes) == {len(OLD), len(NEW)}
    assert len(old) == 10 if most > 50 else len(old) > 10
    assert all(f", ino {inos[name]}, /{name}: " in said for name in old), said
    assert said.count("given up; the file is as it was at the checkpoint") == len(old)
    assert ("R001 what was fsync'ed after the checkpoint is brought back, of 20 other files" in said) == (most > 50)


@pytest.mark.parametrize(("before", "after"), [(F2FS_COMPR_FL, 0), (0, F2FS_COMPR_FL)])
def test_compression_switched_since_the_checkpoint_is_brought_back(before: int, after: int, tmp_path: Path) -> None:
    """As by `chattr +c` of a file that is still empty."""
    image = fresh(tmp_path, "--size 64M -O extra_attr,compression")
    volume = writable(image)
    ino = volume.create(F2FS_ROOT_INO, b"a", FILE)
    volume.set_flags(ino, before)
    volume.sync()
    volume.set_flags(ino, after)
    content = NEW * 300  # more than an inode maps by itself
    volume.write(ino, 0, content)
    volume.fsync(ino)
    volume.abandon()
    assert "sound" in f2("fsck", image).text
    writable(image).close()
    with reading(image) as now:
        assert now.path(b"/a").read() == content
        assert now.path(b"/a").inode.compressed == bool(after)
    judges.fsck_clean(image)


def hit(image: Path, *, field: str = "", wrong: bytes = b"\xff\xff\0\0" * 6) -> None:
    """Damage the last node of the chain, in a field of an inode or its first addresses, and a bitmap of segments."""
    with reading(image) as volume:
        last = find_fsync_chain(volume).chain[-1].blkaddr
        block, row = divmod(volume.pack.curseg(1)[0], volume.geo.sit_entries_per_block)
        entry = int(volume.sit.blkaddrs[block]) * 4096 + SitEntry.size * row
    with image.open("r+b") as file:
        file.seek(entry + SitEntry.offset_of("valid_map") + 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x55]))
        file.seek(last * 4096 + (Inode.offset_of(field) if field else INODE_ADDR_OFFSET + 8))
        file.write(wrong)


def test_what_is_refused_keeps_no_careful_repair_from_the_rest(tmp_path: Path) -> None:
    image = reference("crash-several").copy(tmp_path).path
    hit(image)
    assert f2("fsck", "-p", image).code == 5
    told = f2("fsck", image).text
    assert "G001" not in told
    assert "R003" in told


def test_a_number_that_no_node_can_have_is_refused(tmp_path: Path) -> None:
    image, chain = with_fsynced_file(tmp_path)
    with image.open("r+b") as file:
        file.seek((chain[-1].blkaddr + 1) * 4096 - NodeFooter.size)
        file.write((1 << 24).to_bytes(4, "little") * 2)
    assert "R003" in f2("fsck", image).text
    assert f2("fsck", "-y", image).code == 1
    assert "sound" in f2("fsck", image).text


@pytest.mark.parametrize("at", [0, 3, 6])
def test_what_lies_behind_a_block_that_was_hit_comes_back(at: int, tmp_path: Path) -> None:
    """The chain ends there, for the kernel too, and a check called the volume sound."""
    image = reference("crash-new-file").copy(tmp_path).path
    with open_device(image) as device:
        wanted, inos = tree_on(device, recovered)
    with reading(image) as volume:
        chain = find_fsync_chain(volume).chain
    hit_ino = chain[at].ino
    with image.open("r+b") as file:
        file.seek((chain[at].blkaddr + 1) * 4096 - NodeFooter.size)
        file.write(bytes(NodeFooter.size))
    damaged = image.read_bytes()
    behind = sorted({node.ino for node in chain[at + 1 :]})
    said = f2("fsck", image)
    assert said.code == (4 if behind else 0)
    assert (f"R004 warning main, blkaddr {chain[at].blkaddr:#x}" in said.text) == bool(behind)
    if not behind:
        return
    advice = f2("dump", "ls", image, "/").err
    if at:  # else there is no chain, of which this note tells
        assert "`f2tools fsck -y --undo before.undo" in advice
        assert "(R004)" in advice
        assert "gives up" in f2("doctor", image).text
    assert "--apply" not in advice
    told = f2("touch", "--dry-run", f"{image}:/new").err
    assert "behind a damaged node" in told
    assert "`f2tools fsck -y`" in told
    shown = f2("recover", image).text
    assert all(f"left:       inode {ino} was fsync'ed behind block {chain[at].blkaddr:#x}" in shown for ino in behind)
    applied = f2("recover", "--apply", image)
    assert applied.code == 1
    assert "`f2tools fsck -y --undo FILE" in applied.err.replace("f2tools fsck -y", "`f2tools fsck -y")
    assert image.read_bytes() == damaged
    assert f2("fsck", "-y", image).code == 1
    writable(image).close()
    with open_device(image) as device:
        found, _ = tree_on(device)
    others = {path for path in wanted if inos[path] != hit_ino}
    assert {path for path in others if found.get(path) == wanted[path]} == others
    assert "sound" in f2("fsck", image).text
    judges.fsck_clean(image)


def test_a_file_that_may_have_lost_a_node_in_a_gap_is_named_and_stays_as_it_was(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    volume = writable(image)
    old = volume.create(F2FS_ROOT_INO, b"old", FILE)
    volume.write(old, 0, OLD * 400)
    volume.sync()
    for name in (b"first", b"hit", b"large", b"last"):
        ino = volume.create(F2FS_ROOT_INO, name, FILE)
        volume.write(ino, 0, NEW * (450 if name == b"large" else 1))
        volume.fsync(ino)
        if name == b"hit":
            volume.write(old, 0, NEW[:100])  # in place: of its two nodes one is written
            volume.fsync(old)
    volume.abandon()
    with reading(image) as now:
        chain = find_fsync_chain(now).chain
    second = list(dict.fromkeys(node.ino for node in chain))[1]
    with image.open("r+b") as file:
        for node in chain:
            if node.ino == second:
                file.seek((node.blkaddr + 1) * 4096 - NodeFooter.size)
                file.write(bytes(NodeFooter.size))
    damaged = image.read_bytes()
    careful = f2("fsck", "-p", image)
    assert careful.code == 4
    assert "R004 left: to write to the volume gives up what was fsync'ed there" in careful.text
    assert image.read_bytes() == damaged
    said = f2("fsck", "-y", image).text
    assert "without 2 files that may have lost a node there" in said
    assert "file: /large: gone (what was fsync'ed of it can't be brought back)" in said
    assert "file: /old: as it was before (what was fsync'ed of it can't be brought back)" in said
    writable(image).close()
    with reading(image) as now:
        root = now.nodes.inode(F2FS_ROOT_INO)
        assert {entry.name for entry in now.dirs.entries(root)} - {b".", b".."} == {b"old", b"first", b"last"}
        assert now.path("/first").read() == now.path("/last").read() == NEW
    assert "sound" in f2("fsck", image).text
    judges.fsck_clean(image)


def test_of_a_lost_node_the_fsynced_copy_is_found_and_all_else_comes_back(tmp_path: Path) -> None:
    """The chain of nodes began with a block that was in use then, and nothing could be brought back."""
    image = reference("crash-several-strict").copy(tmp_path).path
    with open_device(image) as device:
        wanted, _ = tree_on(device, recovered)
    with reading(image) as volume:
        chain = find_fsync_chain(volume).chain
        place = volume.nodes.address(next(node.ino for node in chain if volume.nat.get(node.ino)[2] > 1))
    with image.open("r+b") as file:
        file.seek(place * 4096)
        file.write(bytes(4096))
    f2("fsck", "-y", image)
    writable(image).close()
    with open_device(image) as device:
        found, _ = tree_on(device)
    assert found == wanted
    assert "sound" in f2("fsck", image).text
    judges.fsck_clean(image)


def test_names_are_put_back_where_a_node_can_not_be_brought_back(tmp_path: Path) -> None:
    """The engine refused to open the volume, and the names stayed lost."""
    image = reference("crash-several").copy(tmp_path).path
    with open_device(image) as device:
        wanted, inos = tree_on(device, recovered)
    with reading(image) as volume:
        last = find_fsync_chain(volume).chain[-1]
        directory = volume.path("/a").inode.blkaddr
    with image.open("r+b") as file:
        file.seek(directory * 4096)
        file.write(bytes(4096))
        file.seek(last.blkaddr * 4096 + INODE_ADDR_OFFSET)
        file.write(b"\xff\xff\xff\x7f")
    done = f2("fsck", "-y", image)
    assert done.code == 1, done.text
    assert f"R003 main, blkaddr {last.blkaddr:#x}" in done.text
    with open_device(image) as device:
        found, _ = tree_on(device)
    linked = {path for path in wanted if list(inos.values()).count(inos[path]) > 1}
    others = {path for path in wanted if inos[path] != last.ino and path != b"/a"} - linked
    assert {path for path in others if found.get(path) == wanted[path]} == others
    assert "sound" in f2("fsck", image).text
    judges.fsck_clean(image)


@pytest.mark.parametrize(
    ("field", "wrong"), [("i_advise", b"\xff"), ("i_flags", b"\xff" * 4), ("i_mtime_nsec", b"\xff" * 4)]
)
def test_what_comes_back_with_a_defect_is_told_before_it_comes_back(field: str, wrong: bytes, tmp_path: Path) -> None:
    """A check called the volume sound, and after the next mount it was not."""
    image = reference("crash-several").copy(tmp_path).path
    with open_device(image) as device:
        _, inos = tree_on(device, recovered)
    with reading(image) as volume:
        last = find_fsync_chain(volume).chain[-1]
    with image.open("r+b") as file:
        file.seek(last.blkaddr * 4096 + Inode.offset_of(field))
        file.write(wrong)
    said = f2("fsck", image)
    assert said.code == 4
    assert f"R005 warning main, blkaddr {last.blkaddr:#x}, ino {last.ino}" in said.text
    assert f2("fsck", "-y", image).code == 1
    assert "sound" in f2("fsck", image).text
    writable(image).close()
    assert "sound" in f2("fsck", image).text
    with open_device(image) as device:
        _, found = tree_on(device)
    assert found == inos
    judges.fsck_clean(image)
