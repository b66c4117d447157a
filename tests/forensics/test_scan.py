"""The scan and its index: what is found, how it is judged, and what garbage costs."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.dentry import DirEntry, dentry_shape
from f2tools.f2fs.volume.dentries import name_hashes
from f2tools.forensics import tables
from f2tools.forensics.history import History
from f2tools.forensics.index import Index, build_index, open_index
from f2tools.forensics.order import age, broken_chains, write_order
from f2tools.forensics.scan import WINDOW_BYTES
from f2tools.forensics.slots import read_areas
from f2tools.forensics.timeline import FORMATS, write
from f2tools.forensics.undelete import Undelete
from tests.dump.craft import f2
from tests.f2fs.write.volumes import formatted, fresh
from tests.forensics.history_cases import NAMES, image_of
from tests.images import copy_sparse, reference
from tests.unreadable import lose

BLOCK = 4096
DAMAGED = int(os.environ.get("F2_FORENSIC_DAMAGES", "3"))
NODE_BLOCKS = {  # counted with knowledge of all footers when the cases were recorded
    "history-a": 912, "history-b": 266, "history-c": 1099, "history-c-small": 1234, "history-d": 914,
    "history-gc": 1100, "history-inplace": 898, "history-lfs": 906, "phone": 1122, "phone-discard": 84,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_node_block_is_found(name: str) -> None:
    with f2tools.open(image_of(name)) as volume, open_index(volume) as index:
        assert index.count("node") == NODE_BLOCKS[name]
        live = index.db.execute("SELECT count(*) FROM node WHERE live").fetchone()[0]
        assert live == volume.cp.valid_node_count


def test_an_index_that_was_kept_gives_the_nodes_that_the_scan_had(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with f2tools.open(image_of("history-c")) as volume:
        with build_index(volume, path) as scanned:
            found = scanned.nodes()
        with open_index(volume, path) as kept:
            read = kept.nodes()
    assert found.size
    assert found.dtype == read.dtype
    assert found.tolist() == read.tolist()


@pytest.mark.parametrize("name", ["history-c", "phone"])
def test_a_temporary_index_says_the_same_in_memory_and_as_a_database(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with f2tools.open(image_of(name)) as volume:
        with build_index(volume) as index:
            held = _said(index)
            nodes = index.nodes().tolist()
            assert index.count("inode") == len(held[0])  # SQL makes it a database
            assert _said(index) == held
            assert index.tables.nodes().tolist() == nodes
            rows = list(index.db.iterdump())
        monkeypatch.setattr(tables, "MOST_HELD", 10)
        with build_index(volume) as index:
            assert _said(index) == held
            assert list(index.db.iterdump()) == rows


def _said(index: Index) -> tuple[list[Any], list[Any], list[Any], list[int | None]]:
    """What the tables answer: inodes, entries, those of each number, hashes."""
    inodes, names = index.tables.inodes()
    entries = list(index.tables.entries())
    numbers = sorted({ino for _, _, ino, _ in entries})
    assert entries
    return (
        sorted(zip(inodes.tolist(), names, strict=True)), entries, [index.tables.entries_of(ino) for ino in numbers],
        [index.tables.hash_of(directory, name) for directory, name, _, _ in [*entries, (0, b"nowhere", 1, 1)]],
    )  # fmt: skip


def test_what_speaks_for_a_node_stands_beside_it() -> None:
    with f2tools.open(image_of("history-c")) as volume, open_index(volume) as index:
        query = "SELECT count(*), sum(ssa), sum(checksum = 1), sum(named) FROM node WHERE live AND nid = ino"
        count, ssa, checksum, named = index.db.execute(query).fetchone()
        assert count == ssa == checksum
        assert named >= count - 1  # the root has no name


def test_a_wrong_checksum_is_seen(tmp_path: Path) -> None:
    image = copy_sparse(image_of("history-c"), tmp_path / "image")
    with f2tools.open(image) as volume:
        blkaddr = volume.path("/docs").inode.blkaddr
    with open(image, "r+b") as file:
        file.seek(blkaddr * BLOCK + 4)  # i_uid
        file.write(b"\1")
    with f2tools.open(image) as volume, open_index(volume) as index:
        assert index.db.execute("SELECT blkaddr FROM node WHERE checksum = 0").fetchall() == [(blkaddr,)]


def test_an_index_is_made_once_and_used_again(tmp_path: Path, run_f2tools: Any) -> None:
    image, path = image_of("history-a"), tmp_path / "a.f2index"
    done = run_f2tools("scan", image, "-o", path, "--json")
    figures = json.loads(done.stdout)
    assert (figures["nodes"], figures["live"]) == (912, 272)
    with_index = run_f2tools("undelete", image, "--json", "--index", path)
    assert with_index.stdout == run_f2tools("undelete", image, "--json").stdout
    again = run_f2tools("scan", image, "-o", path)
    assert again.returncode == 1
    assert "already" in again.stderr


def test_an_index_of_another_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.f2index"
    with f2tools.open(image_of("history-a")) as volume:
        build_index(volume, path).close()
    with f2tools.open(image_of("history-d")) as volume:
        with pytest.raises(Usage, match="another image"):
            open_index(volume, path)
        with pytest.raises(Usage, match="no index"):
            open_index(volume, tmp_path / "none")
        (tmp_path / "text").write_text("no database")
        with pytest.raises(Usage, match="not an index"):
            open_index(volume, tmp_path / "text")


def test_examiners_can_ask_the_index_themselves(tmp_path: Path) -> None:
    path = tmp_path / "a.f2index"
    with f2tools.open(image_of("history-a")) as volume:
        build_index(volume, path).close()
    db = sqlite3.connect(path)
    query = "SELECT count(*) FROM inode JOIN node USING (blkaddr) WHERE inode.name = ? AND NOT live"
    assert db.execute(query, (b"inline4.txt",)).fetchone()[0] >= 2
    db.close()


# -- order -------------------------------------------------------------------------------------------------------------


def test_blocks_of_one_checkpoint_are_put_in_the_order_of_their_chain() -> None:
    blkaddrs = np.array([10, 11, 12, 50, 51])
    following = np.array([11, 50, 99, 51, 12])  # 10 -> 11 -> 50 -> 51 -> 12
    order = write_order(blkaddrs, np.zeros(5, np.int64), following)
    assert blkaddrs[order].tolist() == [10, 11, 50, 51, 12]


def test_a_chain_that_leads_back_into_itself_ends() -> None:
    blkaddrs = np.array([10, 11, 12])
    order = write_order(blkaddrs, np.zeros(3, np.int64), np.array([11, 12, 10]))
    assert sorted(blkaddrs[order].tolist()) == [10, 11, 12]


def test_the_version_comes_before_the_place() -> None:
    order = write_order(np.array([10, 20]), np.array([0, -5]), np.array([11, 21]))
    assert order.tolist() == [1, 0]


def test_a_place_taken_by_something_later_cuts_the_chain() -> None:
    blkaddrs, ages = np.array([10, 11, 30]), np.array([-9, -2, -2])
    following = np.array([11, 12, 11])  # 11 comes after 30; what once followed 10 is gone
    assert broken_chains(blkaddrs, ages, following, np.array([12])).tolist() == [True, False, False]


def test_versions_wrap() -> None:
    assert age(np.array([0xFFFFFFFF, 2], np.uint64), 2).tolist() == [-3, 0]


# -- garbage -----------------------------------------------------------------------------------------------------------


def everything(image: Path) -> None:
    """Go through all that stands on the index; F2fsError and OSError are what may come of it."""
    with f2tools.open(image) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        for found in run.deleted():
            run.digest(found)
        for _ in run.older():
            pass
        for form in FORMATS:
            for _ in write(run, form):
                pass
        history = History(run)
        for life in run.past.lives[:20]:
            for version in history.of(str(life.ino)):
                history.found(version)


def test_an_index_of_garbage_stays_small(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with f2tools.open(image) as volume:
        start, end = volume.geo.main_blkaddr + 2048, volume.geo.end_blkaddr
    with open(image, "r+b") as file:
        file.seek(start * BLOCK)
        file.write(random.Random(1).randbytes((end - start) * BLOCK))
    with f2tools.open(image) as volume, build_index(volume, tmp_path / "x") as index:
        assert index.count("node") == volume.cp.valid_node_count
        assert index.count("dirblock") <= 2
    assert (tmp_path / "x").stat().st_size < 1 << 17
    everything(image)


def test_forged_directories_don_t_swell_the_index(tmp_path: Path) -> None:
    source = image_of("history-a")
    image = copy_sparse(source, tmp_path / "image")
    with f2tools.open(source) as volume, open_index(volume) as index:
        block = index.db.execute("SELECT max(live_entries), blkaddr FROM dirblock WHERE NOT inline").fetchone()[1]
        content = volume.device.pread(block * BLOCK, BLOCK)
        start, end = volume.geo.end_blkaddr - 512, volume.geo.end_blkaddr
        names = index.count("dentry")
    with open(image, "r+b") as file:
        file.seek(start * BLOCK)
        file.write(content * (end - start))
    with f2tools.open(image) as volume, build_index(volume, tmp_path / "x") as index:
        assert index.count("dentry") < 2 * names
    assert (tmp_path / "x").stat().st_size < 1 << 21


def test_many_full_directory_blocks_are_not_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots, map_size, table_at, names_at, _ = dentry_shape(BLOCK)
    block = np.zeros(BLOCK, np.uint8)
    block[:map_size] = np.packbits(np.ones(slots, np.uint8), bitorder="little")
    names = [b"%08d" % number for number in range(slots)]
    table: Any = block[table_at:names_at].view(DirEntry.dtype)
    table["hash_code"], table["ino"], table["name_len"], table["file_type"] = name_hashes(names), 5, 8, 1
    block[names_at : names_at + 8 * slots] = np.frombuffer(b"".join(names), np.uint8)
    image = fresh(tmp_path)
    with f2tools.open(image) as volume:
        start = volume.geo.main_blkaddr + 2048
    with open(image, "r+b") as file:
        file.seek(start * BLOCK)
        file.write(block.tobytes() * 400)
    held: list[int] = []

    def counted(*args: Any) -> Any:
        areas = read_areas(*args)
        held.append(sum(map(len, areas)))
        return areas

    monkeypatch.setattr(f2tools.forensics.index, "read_areas", counted)
    with f2tools.open(image) as volume, build_index(volume, tmp_path / "x") as index:
        assert index.count("dentry") >= slots
    assert sum(held) >= 400 * slots
    assert max(held) < 60_000


@pytest.mark.parametrize("seed", range(DAMAGED))
def test_damage_at_random_is_endured(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    name = generator.choice(["history-d", "history-gc", "phone", "history-c-small"])
    image = copy_sparse(image_of(name), tmp_path / "image")
    with f2tools.open(image) as volume, open_index(volume) as index:
        places = [row[0] for row in index.db.execute("SELECT blkaddr FROM node UNION SELECT blkaddr FROM dirblock")]
    with open(image, "r+b") as file:
        for blkaddr in generator.sample(places, 100):
            file.seek(
                blkaddr * BLOCK + generator.choice([0, 4, 12, 16, 24, 80, 84, 88, 92, 360, 400, 4076, 4080, 4092])
            )
            file.write(generator.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", generator.randbytes(4)]))
    with suppress(F2fsError, OSError):
        everything(image)


def test_a_huge_forged_size_costs_nothing(tmp_path: Path) -> None:
    image = copy_sparse(image_of("history-a"), tmp_path / "image")
    with f2tools.open(image) as volume, open_index(volume) as index:
        rows = index.db.execute(
            "SELECT blkaddr FROM node JOIN inode USING (blkaddr) WHERE NOT live LIMIT 300"
        ).fetchall()
    with open(image, "r+b") as file:
        for (blkaddr,) in rows:
            file.seek(blkaddr * BLOCK + 16)
            file.write((1 << 42).to_bytes(8, "little"))
    everything(image)


def test_a_cut_off_image_is_scanned_as_far_as_it_goes(tmp_path: Path) -> None:
    image = copy_sparse(image_of("history-a"), tmp_path / "image")
    with open(image, "r+b") as file:
        file.truncate(40 << 20)
    with f2tools.open(image) as volume, open_index(volume) as index:
        assert 800 < index.count("node") <= 912


def test_holes_are_not_read(tmp_path: Path) -> None:
    image = formatted("--size 64G")
    with f2tools.open(image) as volume, open_index(volume) as index:
        assert index.meta()["bytes_read"] <= 4 * WINDOW_BYTES
        assert index.count("node") == volume.cp.valid_node_count


def test_blocks_that_can_t_be_read_are_listed(tmp_path: Path) -> None:
    from f2tools.device.base import Wrapper
    from f2tools.errors import DeviceError
    from f2tools.f2fs.volume.volume import Volume

    with f2tools.open(image_of("history-a")) as good:
        bad = good.path("/docs").inode.blkaddr

    class Failing(Wrapper):
        def pread_into(self, offset: int, buffer: Any) -> None:
            length = memoryview(buffer).nbytes
            if offset <= bad * BLOCK < offset + length:
                raise DeviceError("bad block")
            self.base.pread_into(offset, buffer)

    with f2tools.open(image_of("history-a")) as base:
        volume = Volume(Failing(base.device))
        with open_index(volume) as index:
            assert index.db.execute("SELECT blkaddr, count FROM unreadable").fetchall() == [(bad, 1)]
            assert index.count("node") == 911


def test_what_a_scan_could_not_read_of_the_tables_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = reference("base").path
    with f2tools.open(path) as volume:
        at = volume.root.inode.blkaddr
        lost = {
            int(volume.nat.blkaddrs[0]) * volume.geo.block_size: "NAT",
            (volume.geo.ssa_blkaddr + int(volume.geo.segno(at))) * volume.geo.block_size: "SSA",
        }
    lose(monkeypatch, *lost)
    done = f2("scan", path, "-o", tmp_path / "index")
    warned = [line for line in done.err.splitlines() if line.startswith("f2tools: warning: ")]
    assert done.code == 0
    for at in lost:
        assert any(f"offset {at:#x} failed: Input/output error" in line for line in warned), done.err


def test_owners_that_cannot_be_read_are_told_by_those_that_name_them(monkeypatch: pytest.MonkeyPatch) -> None:
    path = reference("base").path
    with f2tools.open(path) as volume:
        segno = int(volume.geo.segno(volume.root.inode.blkaddr))
        lost = (volume.geo.ssa_blkaddr + segno) * volume.geo.block_size
    lose(monkeypatch, lost)
    for command in ("strings", "carve", "undelete"):
        said = f2(command, path).err
        assert f"the SSA of segment {segno} can't be read" in said, command
