"""`f2tools defrag`: the tree stays what it was, no file gets worse, and what can be in one piece is."""

from __future__ import annotations

import json
import os
import random
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from f2tools.defrag.block_range import NoRoom, Range, Worse, move_range
from f2tools.defrag.cli import defrag
from f2tools.defrag.defrag import Defrag, Outcome
from f2tools.defrag.files import FileMap, chosen_files, device_starts
from f2tools.defrag.room import free_histogram
from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.dump.manifest import manifest
from f2tools.errors import F2fsError, Taken, Unsupported, Usage
from f2tools.f2fs.layout.constants import F2FS_PIN_FILE, NEW_ADDR
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.f2fs.write.volume import WritableVolume
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import fresh, writable

ROOT_INO = 3
BLOCK = 4096
SAMPLES = int(os.environ.get("F2_POWER_SAMPLES", "6"))
AGED = ("fragmented", "full", "sections", "base", "history-a", "phone", "compress-lz4", "compress-released", "plain",
        "active-logs-2", "active-logs-4", "features", "checksums", "zoned", "multi-device", "fscrypt")  # fmt: skip
ORDERED = ("fragmented", "full", "sections", "history-a", "compress-lz4", "features", "zoned", "multi-device")
BEYOND_FSCK_F2FS = ("device-alias", "blocks16k", "blocks16k-compress", "packed-ssa")  # 1.15 refuses them


def run(*args: object, code: int | None = 0) -> str:
    """Run the command; what it printed on the standard output.  code: None for any."""
    names = ["-h", "--help"]  # as the group of all tools has them
    result = CliRunner().invoke(defrag, [str(arg) for arg in args], help_option_names=names)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert code is None or result.exit_code == code, result.output
    return result.stdout


def report(*args: object, code: int | None = 0) -> dict[str, Any]:
    return json.loads(run(*args, "--json", code=code))


def tree(path: Path, extra: Sequence[Path] = ()) -> dict[str, Any]:
    """All that is in a volume, and which blocks of files are holes, but where on the device it lies."""
    with open_volume(path, extra) as volume:
        return timeless_places(manifest(volume)["entries"])


def timeless_places(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: {key: value for key, value in entry.items() if key != "extents"} for name, entry in entries.items()}


def fragments(path: Path, extra: Sequence[Path] = ()) -> dict[str, int]:
    with open_volume(path, extra) as volume:
        return {file.shown: file.fragments for file in chosen_files(volume)}


def mapped(path: Path, extra: Sequence[Path] = ()) -> dict[str, list[Any]]:
    """What each block of each file is (hole, preallocated, mark of a cluster, block), and the raw content of all."""
    shapes: dict[str, list[Any]] = {}
    with open_volume(path, extra) as volume:
        for file in chosen_files(volume):
            inode = volume.nodes.inode(file.ino)
            shapes[file.shown] = [inode.i_blocks, inode.i_inline]
            if file.blocks:
                words = [addrs.astype(np.int64) for _, addrs in volume.data.spans(inode, 0, 1 << 40)]
                shapes[file.shown] += [np.where(volume.geo.in_main(one), 1, one).tolist() for one in words]
                blocks = np.concatenate([one[volume.geo.in_main(one)] for one in words])
                shapes[file.shown].append(zlib.crc32(volume.device.read_blocks(blocks, volume.geo.block_size)))
    return shapes


def named(devices: Iterable[Path]) -> list[object]:
    return [word for device in devices for word in ("--device", device)]


def sound(path: Path, extra: Sequence[Path] = ()) -> None:
    judges.fsck_clean(path, *extra)
    checked(path, extra)


def checked(path: Path, extra: Sequence[Path] = ()) -> None:
    assert f2("fsck", path, *named(extra)).code == 0
    with open_volume(path, extra) as volume:
        if not any(entry.why_fixed == "device alias" for entry in chosen_files(volume)):
            assert_consistent(volume)


def no_worse(before: dict[str, int], after: dict[str, int]) -> None:
    worse = {name: (before[name], count) for name, count in after.items() if count > before[name]}
    assert not worse


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that grew side by side, some with holes and preallocated blocks, and holes where others were deleted."""
    path = fresh(tmp_path_factory.mktemp("aged"), "--size 128M -O extra_attr,inode_checksum,quota")
    rng = np.random.default_rng(11)
    with writable(path, adaptive=False) as volume:
        directory = volume.mkdir(ROOT_INO, b"folder", 0o755)
        inos = [volume.create(directory if n % 3 else ROOT_INO, b"f%d" % n, 0o644) for n in range(60)]
        inos[7:8] = [volume.create(ROOT_INO, b"movie.mp4", 0o644)]
        volume.setxattr(inos[7], "system.advise", b"\1")  # cold
        sizes = [0] * len(inos)
        for step in range(12):
            for n, ino in enumerate(inos):
                count = int(rng.integers(1, 40 if n < 12 else 4))
                if n % 5 == 0:
                    sizes[n] += 2  # a hole
                volume.write(ino, sizes[n] * BLOCK, rng.bytes(count * BLOCK))
                sizes[n] += count
            volume.sync()
            if step == 6:
                for n in range(200):
                    one = volume.create(directory, b"g%d" % n, 0o600)
                    volume.write(one, 0, rng.bytes(BLOCK * int(rng.integers(1, 9))))
        volume.fallocate(inos[3], 0, sizes[3] * BLOCK, 20 * BLOCK)
        volume.symlink(directory, b"long", b"x" * 3900)
        for n in range(0, 200, 2):
            volume.unlink(directory, b"g%d" % n)
    return path


@pytest.fixture
def copy(aged: Path, tmp_path: Path) -> Path:
    return images.copy_sparse(aged, tmp_path / "copy")


# -- volumes of the kernel ----------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize(("name", "sort"), [(n, None) for n in AGED] + [(n, "path") for n in ORDERED])
def test_the_tree_of_a_volume_of_the_kernel_stays(name: str, sort: str | None, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before, shape, pieces = (what(case.path, case.extra) for what in (tree, mapped, fragments))
    options = ("--sort", sort) if sort else ()
    done = report(case.path, *options, *named(case.extra), code=None)
    assert done["fragments"]["after"] <= done["fragments"]["before"]
    assert tree(case.path, case.extra) == before
    assert mapped(case.path, case.extra) == shape
    no_worse(pieces, fragments(case.path, case.extra))
    sound(case.path, case.extra)
    if not sort:
        again = report(case.path, *named(case.extra), code=None)
        assert again["data_blocks_moved"] == 0 or done["left"]


@pytest.mark.parametrize(
    ("name", "sort"), [(n, None) for n in BEYOND_FSCK_F2FS] + [(n, "path") for n in BEYOND_FSCK_F2FS[:2]]
)
def test_the_tree_of_a_volume_of_a_newer_kernel_stays(name: str, sort: str | None, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before, shape, pieces = (what(case.path, case.extra) for what in (tree, mapped, fragments))
    run(case.path, *(("--sort", sort) if sort else ()), *named(case.extra), code=None)
    assert tree(case.path, case.extra) == before
    assert mapped(case.path, case.extra) == shape
    no_worse(pieces, fragments(case.path, case.extra))
    checked(case.path, case.extra)


@pytest.mark.peer
def test_what_was_fsynced_before_a_crash_comes_back_first(tmp_path: Path) -> None:
    case = images.reference("crash-several").copy(tmp_path / "moved")
    other = images.reference("crash-several").copy(tmp_path / "recovered")
    assert f2("recover", other.path, "--apply").code == 0
    run(case.path, code=None)

    def timeless(path: Path) -> dict[str, Any]:  # a directory gets new times when a name comes back to it
        gone = ("mtime_ns", "ctime_ns")
        return {name: {k: v for k, v in entry.items() if k not in gone} for name, entry in tree(path).items()}

    assert timeless(case.path) == timeless(other.path)
    sound(case.path)


def test_no_extent_crosses_from_a_device_to_the_next(tmp_path: Path) -> None:
    case = images.reference("multi-device").copy(tmp_path)
    with open_device(case.path, write=True, extra=case.extra) as device, WritableVolume(device) as volume:
        starts = device_starts(volume)
        assert len(starts) == len(case.extra)
        ino = volume.create(ROOT_INO, b"big", 0o644)
        content = bytes(range(256)) * 16 * 3000
        for at in range(0, len(content), 60 * BLOCK):
            volume.write(ino, at, content[at : at + 60 * BLOCK])
            other = volume.create(ROOT_INO, b"o%d" % at, 0o644)
            volume.write(other, 0, b"between" * 1000)
            volume.sync()
        outcome = Defrag(volume).contiguous(chosen_files(volume))
    assert not outcome.left
    for file in outcome.after:
        for start, count in file.runs.tolist():
            assert not any(start < edge < start + count for edge in starts)
    with open_volume(case.path, case.extra) as volume:
        assert volume.path("/big").read() == content


# -- a volume of files that grew side by side ---------------------------------------------------------------------


@pytest.mark.peer
def test_every_file_is_in_one_piece_afterwards(copy: Path) -> None:
    before, shape = tree(copy), mapped(copy)
    done = report(copy)
    assert done["fragments"]["before"] > 500
    after = fragments(copy)
    assert set(after.values()) <= {0, 1}
    assert done["fragments"]["after"] == sum(after.values())
    assert not done["left"]
    assert tree(copy) == before
    assert mapped(copy) == shape
    sound(copy)
    again = report(copy)
    assert (again["data_blocks_moved"], again["node_blocks_moved"], again["checkpoints"]) == (0, 0, 0)


def test_a_volume_with_nothing_to_do_is_left_alone(copy: Path) -> None:
    run(copy)
    before = copy.read_bytes()
    run(copy)
    assert copy.read_bytes() == before


def test_only_what_was_asked_for_is_moved(copy: Path) -> None:
    with open_volume(copy) as volume:
        before = {file.shown: file.runs.tolist() for file in chosen_files(volume)}
    run(copy, "/f3", "--paths", "/folder/f4")
    with open_volume(copy) as volume:
        after = {file.shown: file.runs.tolist() for file in chosen_files(volume)}
    assert {name for name in before if before[name] != after[name]} == {"/f3", "/folder/f4"}


@pytest.mark.parametrize("options", [(), ("--sort", "path"), ("/folder",)])
def test_a_rehearsal_says_exactly_what_happens_and_writes_nothing(options: tuple[str, ...], copy: Path) -> None:
    bytes_before = copy.read_bytes()
    said = report(copy, *options, "--dry-run")
    assert copy.read_bytes() == bytes_before
    assert said.pop("written") is False
    done = report(copy, *options)
    assert done.pop("written") is True
    assert said == done
    after = fragments(copy)
    assert said["changed"]
    for entry in said["changed"]:
        assert after[entry["path"]] == entry["fragments"][1] == len(entry["runs"][1])


@pytest.mark.parametrize("options", [(), ("--sort", "size"), ("-s", "0x1800", "-l", "300", "--force")])
def test_undo_gives_every_byte_back(options: tuple[str, ...], copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    run(copy, *options, "--undo", tmp_path / "undo")
    assert copy.read_bytes() != before
    assert f2("undo", tmp_path / "undo", copy).code == 0
    assert copy.read_bytes() == before


@pytest.mark.peer
@pytest.mark.parametrize("sort", ["path", "size"])
def test_files_lie_in_the_order_asked_for(sort: str, copy: Path) -> None:
    before = tree(copy)
    done = report(copy, "--sort", sort)
    assert tree(copy) == before
    sound(copy)
    with open_volume(copy) as volume:
        files = [file for file in chosen_files(volume) if file.kind == "file" and file.blocks]
        files.sort(key=lambda file: file.path if sort == "path" else (file.i_size, file.path))
        cold = [file for file in files if file.path.endswith(b".mp4")]
    warm = [file for file in files if file not in cold]
    places = [int(file.runs[0, 0]) for file in warm]
    assert places == sorted(places)
    assert {file.fragments for file in files} == {1}
    assert done["jumps"]["after"] < done["jumps"]["before"] / 20
    again = report(copy, "--sort", sort)
    assert again["data_blocks_moved"] == 0


def test_files_lie_as_they_are_read_at_boot(copy: Path, tmp_path: Path) -> None:
    wanted = ["/folder/f40", "/f3", "/folder/g11", "/folder/f4", "/f30"]
    (tmp_path / "list").write_text("# at boot\n" + "\n".join([*wanted, "", "/f3"]) + "\n")
    done = report(copy, "--access-list", tmp_path / "list")
    assert done["files"] == len(wanted)
    assert done["jumps"]["after"] <= 1
    with open_volume(copy) as volume:
        files = [file for path in wanted for file in chosen_files(volume, [path])]
    ends = [int(file.runs[0].sum()) for file in files]
    assert [int(file.runs[0, 0]) for file in files][1:] == ends[:-1]


def test_a_path_of_the_list_that_is_gone_is_named(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("/f3\n/gone\n")
    done = report(copy, "--access-list", tmp_path / "list", code=1)
    assert [entry["message"] for entry in done["problems"]] == ["No such file or directory"]
    assert fragments(copy)["/f3"] == 1


def test_the_logs_of_files_stay(copy: Path) -> None:
    run(copy)
    with open_volume(copy) as volume:
        kinds = {file.shown: set(volume.sit.types[volume.geo.segno(file.runs[:, 0])].tolist())
                 for file in chosen_files(volume) if file.blocks}  # fmt: skip
    assert kinds["/movie.mp4"] == {2}
    assert kinds["/folder"] == {0}
    assert kinds["/f3"] == {1}


def test_direct_nodes_of_a_file_lie_next_to_each_other(tmp_path: Path) -> None:
    path = fresh(tmp_path, "--size 128M")
    with writable(path) as volume:
        ino = volume.create(ROOT_INO, b"big", 0o644)
        for part in range(6):
            volume.write(ino, part * 1100 * BLOCK, bytes([part + 1]) * (1100 * BLOCK))
            for n in range(30):
                volume.create(ROOT_INO, b"n%d-%d" % (part, n), 0o644)
            volume.sync()
        before = next(file for file in chosen_files(volume) if file.ino == ino)
        assert len(before.nodes) > 4
        outcome = Defrag(volume).contiguous([before])
        assert len(outcome.after[0].nodes) == 1
    checked(path)


def test_an_inode_knows_its_longest_extent(copy: Path) -> None:
    run(copy)
    known = 0
    with open_volume(copy) as volume:
        for file in chosen_files(volume):
            fofs, blkaddr, count = volume.nodes.inode(file.ino).cached_extent
            if count:
                known += 1
                assert volume.data.addresses(volume.nodes.inode(file.ino), fofs, count).tolist() == list(
                    range(blkaddr, blkaddr + count)
                )
    assert known >= 5


def test_times_stay(copy: Path) -> None:
    with open_volume(copy) as volume:
        before = volume.path("/f3").stat()
    run(copy)
    with open_volume(copy) as volume:
        after = volume.path("/f3").stat()
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_atime_ns) == (
        before.st_mtime_ns, before.st_ctime_ns, before.st_atime_ns,
    )  # fmt: skip


# -- what must stay where it is -----------------------------------------------------------------------------------


def pin(path: Path, *names: str) -> None:
    with writable(path) as volume:
        for name in names:
            inode = volume.live(volume.path(name).inode.ino)
            inode.set(i_inline=inode.i_inline | F2FS_PIN_FILE)
            volume.nodes.touch(inode)
        volume.checkpoint()


def test_pinned_files_stay_until_it_is_said_that_they_need_not(copy: Path) -> None:
    pin(copy, "/f3", "/folder/f4")
    before = fragments(copy)
    done = report(copy, code=1)
    assert {entry["path"]: entry["why"] for entry in done["left"]} == {"/f3": "pinned", "/folder/f4": "pinned"}
    after = fragments(copy)
    assert (after["/f3"], after["/folder/f4"]) == (before["/f3"], before["/folder/f4"])
    run(copy, "--pinned")
    assert set(fragments(copy).values()) <= {0, 1}
    checked(copy)


def test_an_alias_of_a_device_is_never_moved(tmp_path: Path) -> None:
    case = images.reference("device-alias").copy(tmp_path)
    with open_volume(case.path, case.extra) as volume:
        alias = next(file for file in chosen_files(volume) if file.why_fixed)
        extent = volume.nodes.inode(alias.ino).cached_extent
        spare = extent[1]
    run(case.path, "--pinned", "--sort", "path", *named(case.extra), code=1)
    with open_volume(case.path, case.extra) as volume:
        assert volume.nodes.inode(alias.ino).cached_extent == extent
    with pytest.raises(F2fsError):
        run(case.path, "-s", spare, "-l", 8, *named(case.extra))


# -- little room --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume whose free room lies in holes of a few blocks, and a big file in many pieces."""
    path = fresh(tmp_path_factory.mktemp("crowded"), "--size 96M")
    rng = np.random.default_rng(5)
    with writable(path, adaptive=False) as volume:
        directory = volume.mkdir(ROOT_INO, b"small", 0o755)
        big = volume.create(ROOT_INO, b"big", 0o644)
        count = at = 0
        while volume.space.free_blocks > 250:
            ino = volume.create(directory, b"s%d" % count, 0o644)
            volume.write(ino, 0, rng.bytes(BLOCK * 5))
            if count % 6 == 0:
                volume.write(big, at, rng.bytes(BLOCK * 4))
                at += BLOCK * 4
                volume.files.write_back_all()
            count += 1
        for n in range(count):
            if rng.random() < 0.35:
                volume.unlink(directory, b"s%d" % n)
    return path


@pytest.mark.peer
def test_sections_are_emptied_for_a_file_that_has_no_room(crowded: Path, tmp_path: Path) -> None:
    path = images.copy_sparse(crowded, tmp_path / "copy")
    before, pieces = tree(path), fragments(path)
    with writable(path) as volume:
        files = chosen_files(volume)
        outcome = Defrag(volume).contiguous(files)
    after = fragments(path)
    assert pieces["/big"] > 200
    assert outcome.emptied_sections > 1
    assert after["/big"] < 10
    assert outcome.state_after.free_sections >= outcome.state_before.free_sections
    no_worse(pieces, after)
    assert tree(path) == before
    sound(path)


def test_without_room_nothing_happens_and_it_is_said(tmp_path: Path) -> None:
    path = fresh(tmp_path, "--size 64M")
    with writable(path, adaptive=False) as volume:
        big, other = (volume.create(ROOT_INO, name, 0o644) for name in (b"big", b"other"))
        at = 0
        while volume.space.free_blocks > 70:
            for ino in (big, other):
                volume.write(ino, at, bytes([at % 251 + 1]) * (BLOCK * 32))
            at += BLOCK * 32
    before, pieces = tree(path), fragments(path)
    done = report(path, code=1)
    assert {entry["path"] for entry in done["left"]} == {"/big", "/other"}
    assert all("free run" in entry["why"] for entry in done["left"])
    no_worse(pieces, fragments(path))
    assert tree(path) == before
    checked(path)


# -- a range of blocks --------------------------------------------------------------------------------------------


def main_of(path: Path) -> tuple[int, int]:
    with open_volume(path) as volume:
        return volume.geo.main_blkaddr, volume.geo.end_blkaddr


@pytest.mark.peer
@pytest.mark.parametrize("left", [False, True])
def test_a_range_moves_to_the_side_asked_for(left: bool, copy: Path) -> None:
    before = tree(copy)
    first, end = main_of(copy)
    with open_volume(copy) as volume:
        segnos = np.flatnonzero((volume.sit.vblocks > 400) & (volume.sit.types < 3))
        valid = int(volume.sit.vblocks[segnos[len(segnos) // 2]])
        start = int(volume.geo.start_block(segnos[len(segnos) // 2]))
    target = end if left else first + 35 * 512
    done = report(copy, "-s", hex(start), "-l", 512, "-t", target, "--force", *(("-i",) if left else ()))
    assert done["data_blocks_moved"] + done["node_blocks_moved"] == valid
    assert (done["last"] < target) if left else (done["first"] >= target)
    assert tree(copy) == before
    sound(copy)
    with open_volume(copy) as volume:
        assert volume.sit.vblocks[volume.geo.segno(start)] == 0


@pytest.mark.peer
def test_nodes_of_a_range_move_as_they_are(copy: Path) -> None:
    before = tree(copy)
    with open_volume(copy) as volume:
        nodes = np.flatnonzero((volume.sit.types >= 3) & (volume.sit.vblocks > 40))
        busy = [curseg.segno for curseg in volume.summaries.cursegs]
        segno = next(int(one) for one in nodes if one not in busy)
        start, valid = int(volume.geo.start_block(segno)), int(volume.sit.vblocks[segno])
        end = volume.geo.end_blkaddr
    done = report(copy, "-s", start, "-l", 512, "-t", end, "-i")
    assert done["node_blocks_moved"] == valid
    assert tree(copy) == before
    sound(copy)


@pytest.mark.peer
def test_every_block_moves_and_back(copy: Path) -> None:
    before, pieces = tree(copy), fragments(copy)
    first, end = main_of(copy)
    for start in range(first, end, 512 * 8):
        run(copy, "-s", start, "-l", min(512 * 8, end - start), "-t", end, "-i", "--force", code=None)
        assert tree(copy) == before
    sound(copy)
    run(copy)
    no_worse(pieces, fragments(copy))


def test_a_range_that_splits_files_needs_force(copy: Path) -> None:
    run(copy)  # in one piece each
    bytes_before = copy.read_bytes()
    with open_volume(copy) as volume:
        start = max((file for file in chosen_files(volume)), key=lambda file: file.blocks).runs[0, 0] + 5
    with pytest.raises(Worse, match="--force"):
        run(copy, "-s", start, "-l", 3)
    assert copy.read_bytes() == bytes_before
    done = report(copy, "-s", start, "-l", 3, "--force")
    assert [entry["fragments"] for entry in done["files"]] == [[1, 3]]
    checked(copy)


def test_what_has_no_room_on_that_side_is_refused(copy: Path) -> None:
    before = copy.read_bytes()
    first, _ = main_of(copy)
    with pytest.raises(NoRoom):
        run(copy, "-s", first + 2048, "-l", 2048, "-t", first, "-i")
    assert copy.read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [("-s", "0"), ("-s", "0xffffffff"), ("-l", "0"), ("-t", "1"), ("-s", "0x2000", "-l", "8", "-t", "0x2002")],
)
def test_a_range_outside_the_main_area_is_refused(options: tuple[str, ...], copy: Path) -> None:
    with pytest.raises(Usage):
        run(copy, *options)


def test_pinned_blocks_of_a_range_are_refused(copy: Path) -> None:
    pin(copy, "/f3")
    with open_volume(copy) as volume:
        start = chosen_files(volume, ["/f3"])[0].runs[0, 0]
    with pytest.raises(Unsupported, match="must stay"):
        run(copy, "-s", start, "-l", 1)


def test_zones_have_no_places_of_ones_choice(tmp_path: Path) -> None:
    case = images.reference("zoned").copy(tmp_path)
    with pytest.raises(Unsupported):
        run(case.path, "-l", "5", *named(case.extra))


# -- power cuts ---------------------------------------------------------------------------------------------------


def everything(volume: WritableVolume) -> None:
    outcome = Defrag(volume).contiguous(chosen_files(volume))
    assert outcome.data_blocks > 2000


def in_order(volume: WritableVolume) -> None:
    outcome = Defrag(volume).ordered(sorted(chosen_files(volume), key=lambda file: file.path))
    assert outcome.data_blocks > 2000


def a_range(volume: WritableVolume) -> None:
    geo = volume.geo
    segnos = np.flatnonzero((volume.segments.vblocks > 300) & (volume.segments.types < 3))
    start = int(geo.start_block(segnos[0]))
    moved = move_range(volume, Range(start, 512 * 3, geo.end_blkaddr, left=True), force=True)
    assert moved.data_blocks > 300


def with_little_room(volume: WritableVolume) -> None:
    outcome = Defrag(volume).contiguous(chosen_files(volume))
    assert outcome.checkpoints > 2


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("work", [everything, in_order, a_range, with_little_room])
def test_the_power_may_fail_at_any_time(
    work: Callable[[WritableVolume], None], lost: bool, aged: Path, crowded: Path, tmp_path: Path
) -> None:
    base = crowded if work is with_little_room else aged
    before = tree(base)
    recorder = Recorder(Overlay(open_device(base)))
    with WritableVolume(recorder) as volume:
        work(volume)
    chance = random.Random(3)
    counts = list(range(len(recorder.events) + 1))
    for count in counts if len(counts) <= SAMPLES else sorted(chance.sample(counts, SAMPLES)):
        with open_device(base) as below:
            device = Overlay(below)
            volatile = recorder.volatile(count) if lost else []
            recorder.replay(count, device, without={event for event in volatile if chance.random() < 0.5})
            WritableVolume(device).sync()  # recovers what is to be recovered, as a mount does
            with Volume(device) as volume:
                entries = manifest(volume)["entries"]
                assert_consistent(volume, f"power cut after {count} events")
        assert timeless_places(entries) == before, count


# -- what is shown ------------------------------------------------------------------------------------------------


def test_the_report_knows_every_block(copy: Path) -> None:
    said = report(copy, "--report")
    with open_volume(copy) as volume:
        free = int((512 - volume.sit.vblocks.astype(np.int64)).sum())
    assert sum(entry["blocks"] for entry in said["free_runs"]) == free
    assert all(entry["from"] * entry["runs"] <= entry["blocks"] for entry in said["free_runs"])
    assert said["fragments"] == sum(fragments(copy).values())
    by_path = {entry["path"]: entry for entry in said["list"]}
    assert by_path["/f3"]["fragments"] == len(by_path["/f3"]["runs"]) > by_path["/f3"]["ideal"] == 1
    assert 0 < by_path["/f3"]["score"] <= 100
    scores = [entry["fragments"] - entry["ideal"] for entry in said["list"]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("name", [*AGED, "full-of-holes", "empty"])
def test_free_runs_are_those_of_the_segment_table(name: str, tmp_path: Path) -> None:
    made = name in ("full-of-holes", "empty")
    image = fresh(tmp_path) if made else images.reference(name).path
    extra = [] if made else list(images.reference(name).extra)
    with open_device(image, extra=extra) as device, Volume(device) as volume:
        sit = volume.sit
        if name == "full-of-holes":  # each second block of everything
            sit.vblocks[:] = 256
            sit.valid_map = lambda some: np.full((len(some), 64), 0xAA, np.uint8)  # type: ignore[method-assign]
        bits = np.unpackbits(sit.valid_map(np.arange(sit.vblocks.size)), axis=1).ravel()
        found = free_histogram(volume)
    lengths = [len(run) for run in "".join(map(str, bits.tolist())).split("1") if run]
    wanted = {power: [length for length in lengths if length.bit_length() - 1 == power] for power in range(40)}
    assert [row for row in found if row[1]] == [
        (1 << power, len(some), sum(some)) for power, some in wanted.items() if some
    ]


def test_the_report_changes_nothing_and_names_the_worst(copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    said = run(copy, "--report", "--svg", tmp_path / "r.svg")
    assert copy.read_bytes() == before
    assert "free runs of" in said
    assert "fragments ideal" in said
    assert "█" in said
    assert ElementTree.parse(tmp_path / "r.svg").getroot().tag.endswith("svg")
    run(copy, "--report", "--svg", tmp_path / "r.svg")
    with pytest.raises(Taken, match="is not an SVG picture"):
        run(copy, "--report", "--svg", copy)
    assert copy.read_bytes() == before


def test_the_picture_does_not_replace_the_undo_log(copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(Usage, match="two outputs have this name"):
        run(copy, "--undo", tmp_path / "both", "--svg", tmp_path / "both")
    assert copy.read_bytes() == before
    assert not (tmp_path / "both").exists()


def test_before_and_after_are_shown_and_drawn(copy: Path, tmp_path: Path) -> None:
    said = run(copy, "--svg", tmp_path / "d.svg")
    assert "valid blocks in segments before" in said
    assert "fragments: " in said
    drawn = (tmp_path / "d.svg").read_text()
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert ": 1 fragment<" in drawn


@pytest.mark.parametrize(
    "options",
    [
        ("--report", "--sort", "path"), ("--sort", "path", "-s", "5"), ("-s", "0x2000", "/f3"),
        ("--sort", "access-list"), ("--access-list", "x", "--sort", "path"), ("--access-list", "x", "/f3"),
        ("--access-list", "/nowhere/at/all"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], copy: Path) -> None:
    with pytest.raises(Usage):
        run(copy, *options)


def test_a_path_that_leads_nowhere_is_an_error(copy: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(FileNotFoundError):
        run(copy, "/nowhere")
    assert copy.read_bytes() == before


def test_a_picture_that_cant_be_written_is_an_error(copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(F2fsError):
        run(copy, "--svg", tmp_path / "nowhere" / "h.svg")
    assert copy.read_bytes() == before, "found out too late"


def test_forged_files_that_share_blocks_stop_it_and_the_checkpoint_stays(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    with writable(path) as volume:
        one, two = (volume.create(ROOT_INO, name, 0o644) for name in (b"one", b"two"))
        volume.write(one, 0, b"1" * (40 * BLOCK))
        volume.write(two, 0, b"2" * (2 * BLOCK))
        volume.sync()
        inode, other = volume.live(two), volume.live(one)
        inode.addrs[0] = other.addrs[0]
        inode.addrs[1] = other.addrs[9]
        other.addrs[3] = NEW_ADDR
        for each in (inode, other):
            volume.nodes.touch(each)
    before = state(path)
    with pytest.raises(F2fsError):
        run(path)
    assert state(path) == before


def state(path: Path) -> tuple[int, dict[str, Any]]:
    with open_volume(path) as volume:
        return volume.cp.checkpoint_ver, manifest(volume)["entries"]


def total(files: Iterable[FileMap]) -> int:
    return sum(file.fragments for file in files)


def test_an_outcome_adds_up(copy: Path) -> None:
    with writable(copy) as volume:
        outcome: Outcome = Defrag(volume).contiguous(chosen_files(volume))
    assert outcome.fragments == (total(outcome.before), total(outcome.after))
    assert outcome.data_blocks == sum(old.blocks for old in outcome.before if old.fragments > old.ideal)
