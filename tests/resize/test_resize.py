"""`f2tools resize`: volumes of the kernel grow and shrink; the tree stays what it was, and the volume sound."""

from __future__ import annotations

import gc
import json
import os
import random
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.dump.manifest import manifest
from f2tools.errors import DeviceError, F2fsError, Unsupported, Usage
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, F2FS_PIN_FILE, NEW_ADDR
from f2tools.f2fs.volume.areas import F2FS_MAX_SEGMENT
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.mkfs.plan import make_plan
from f2tools.mkfs.request import DeviceSpec, Options
from f2tools.resize import resize as tool
from f2tools.resize.cli import resize
from f2tools.resize.plan import DoesNotFit, SetEnd
from f2tools.resize.resize import resize as resize_volume
from f2tools.resize.resize import state_of
from tests import images
from tests.dump.craft import f2
from tests.f2fs.write.volumes import FULL, Above, fresh, writable
from tests.resize.looking import MIB, ROOT_INO, Kept, entries_of, fill, named, run, sound, sound_on, tree, tree_on
from tests.unreadable import lose

SEQUENCES = int(os.environ.get("F2_RESIZE_SEQUENCES", "3"))  # of random sizes
STEPS = int(os.environ.get("F2_RESIZE_STEPS", "4"))  # sizes in each

# growing a little, growing beyond what the metadata areas have room for, as small as can be, and up again
SIZES = ("+5M", "1500M", "minimum", "200M")
FROM_THE_KERNEL = (
    "base", "fragmented", "full", "sections", "zoned", "multi-device", "casefold", "compress-lz4", "compress-released",
    "checksums", "features", "fscrypt-android", "phone", "checkpoint-disabled", "active-logs-2", "active-logs-4",
    "packed-ssa", "blocks16k-casefold", "device-alias",
)  # fmt: skip
CRASHED = ("crash-several", "crash-orphan", "crash-stress-1")


def report(*args: object) -> dict[str, Any]:
    return json.loads(run(*args, "--json"))


def test_no_volume_that_was_closed_is_held_while_the_next_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fresh(tmp_path, "--size 512M")
    opened: list[weakref.ref[WritableVolume]] = []
    most = 0

    class Noted(WritableVolume):
        def __init__(self, *args: Any, **options: Any) -> None:
            nonlocal most
            most = max(most, sum(one() is not None for one in opened))
            opened.append(weakref.ref(self))
            super().__init__(*args, **options)

    monkeypatch.setattr(tool, "WritableVolume", Noted)
    gc.disable()
    try:
        with open_device(path, write=True) as device:
            resize_volume(device, 256 * MIB)
    finally:
        gc.enable()
    assert len(opened) > 3
    assert most <= 1  # the first one, by which the plan was made


def size_of(path: Path) -> int:
    return path.stat().st_size


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume with some files and holes between them."""
    path = fresh(tmp_path_factory.mktemp("filled"), f"--size 64M -O {FULL}")
    fill(path)
    return path


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    return images.copy_sparse(filled, tmp_path / "copy")


# -- volumes of the kernel ------------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("name", FROM_THE_KERNEL)
def test_a_volume_of_the_kernel_grows_and_shrinks(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before, last = tree(case.path, case.extra), ([case.path, *case.extra])[-1]
    for size in SIZES:
        wanted = str(size_of(last) + 5 * MIB) if size == "+5M" else size
        try:
            done = report(case.path, wanted, "--no-check", *named(case.extra))
        except (DoesNotFit, Unsupported):
            assert name in ("zoned", "sections", "multi-device", "device-alias", "packed-ssa", "blocks16k-casefold")
            continue
        assert done["after"]["valid_block_count"] <= done["after"]["user_block_count"]
        assert size_of(last) == done["size_bytes"]
        assert tree(case.path, case.extra) == before, size
        sound(case.path, case.extra)


@pytest.mark.parametrize("name", CRASHED)
def test_what_a_crash_left_is_recovered_first(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    recovered = without_times(tree(case.path))  # as a mount shows it; names that come back get the time of that
    run(case.path, "1500M")
    assert without_times(tree(case.path)) == recovered
    sound(case.path)


def without_times(entries: dict[str, Any]) -> dict[str, Any]:
    return {
        path: {key: value for key, value in entry.items() if not key.endswith("time_ns")}
        for path, entry in entries.items()
    }


def test_random_sizes_up_and_down(tmp_path: Path) -> None:
    """The same volume through sizes at random, from as small as can be to where all areas have to move."""
    for seed in range(SEQUENCES):
        chance = random.Random(seed)
        options = chance.choice(("", "-s 2", "-i", f"-O {FULL}", "-s 2 -z 2", "-O extra_attr,quota -i"))
        path = fresh(tmp_path, f"--size {chance.choice((160, 256, 700))}M {options}", f"{seed}")
        fill(path, files=40, kept=chance.random(), seed=seed)
        expected = tree(path)
        for _ in range(STEPS):
            size: int | None = None if chance.random() < 0.25 else int(2 ** chance.uniform(27, 34))
            mode = chance.choice(("auto", "auto", "fit", "keep"))
            with open_device(path, write=True) as device:
                before = device.size_bytes
                try:
                    outcome = resize_volume(device, size, mode)
                except DoesNotFit:
                    size = before
                else:
                    size = outcome.plan.size_bytes
                sound_on(device, f"seed {seed}: {before} -> {size}, {mode}")
                assert tree_on(device) == expected, f"seed {seed}: {before} -> {size}, {mode}"
                device.resize(size)
        with writable(path) as volume:  # and it can be written to
            ino = volume.create(ROOT_INO, b"after", 0o644)
            volume.write(ino, 0, b"resized" * 10000)
        sound(path)
        path.unlink()


# -- the sizes ------------------------------------------------------------------------------------------------------


def test_the_smallest_size_is_said_and_reached(copy: Path) -> None:
    bytes_before = copy.read_bytes()
    least = report(copy, "--minimum")["minimum_bytes"]
    assert f"({least} bytes)" in run(copy, "--minimum")
    assert copy.read_bytes() == bytes_before
    before = tree(copy)
    report(copy, "minimum")
    assert size_of(copy) == least
    assert tree(copy) == before
    with pytest.raises(DoesNotFit, match=f"the smallest size is .*{least} bytes"):
        run(copy, least - 2 * MIB)
    assert report(copy, "minimum")["steps"] == []
    sound(copy)


def test_without_a_size_the_volume_fills_its_file(copy: Path) -> None:
    os.truncate(copy, 100 * MIB)
    done = report(copy)
    assert done["after"]["block_count"] * 4096 == 100 * MIB == size_of(copy)
    assert "nothing to do" in run(copy, "max")


def test_a_file_that_is_to_stay_as_long_as_it_is(copy: Path) -> None:
    run(copy, "56M", "--keep-file-size")
    assert size_of(copy) == 64 * MIB
    run(copy, "56M")
    assert size_of(copy) == 56 * MIB


def test_small_steps_leave_the_areas_where_they_are(copy: Path) -> None:
    done = report(copy, "900M")
    assert not done["areas_moved"]
    assert done["blocks_moved"] == 0
    done = report(copy, "3G")
    assert done["areas_moved"]
    assert done["blocks_moved"] > 0


def test_areas_are_kept_or_made_to_fit_as_asked(copy: Path) -> None:
    with pytest.raises(DoesNotFit, match="metadata areas have room"):
        run(copy, "3G", "--areas", "keep")
    before = tree(copy)
    run(copy, "3G")
    kept = report(copy, "512M", "--areas", "keep", "--dry-run")
    fit = report(copy, "512M", "--areas", "fit")
    assert not kept["areas_moved"]
    assert fit["areas_moved"]
    assert fit["after"]["segment_count_main"] > kept["after"]["segment_count_main"]
    assert tree(copy) == before


def test_a_volume_that_was_larger_once_grows_again(copy: Path) -> None:
    """What its tables said of the segments that went must not come back."""
    before = tree(copy)
    for size in ("900M", "64M", "900M", "120M", "1G"):
        if size == "900M":
            with writable(copy) as volume:
                ino = volume.create(ROOT_INO, b"large", 0o644)
                volume.write(ino, 0, bytes(range(256)) * 4096 * 30)
                volume.sync()
                volume.unlink(ROOT_INO, b"large")
        run(copy, size, "--no-check")
        with open_device(copy) as device:
            sound_on(device, size)
    assert {k: v for k, v in tree(copy).items() if k != "."} == {k: v for k, v in before.items() if k != "."}


def test_it_grows_in_stages_where_one_is_not_enough(tmp_path: Path) -> None:
    path = fresh(tmp_path, "--size 48M")
    fill(path, files=20)
    before = tree(path)
    done = report(path, "400G")
    assert sum(step["step"] == "move-areas" for step in done["steps"]) > 2
    assert tree(path) == before
    done = report(path, "64M")
    assert size_of(path) == 64 * MIB
    assert tree(path) == before
    sound(path)


def test_identity_features_and_limits_stay(copy: Path) -> None:
    with writable(copy) as volume:
        volume.set_quota("user", 7, space_hard=12345 * 1024)
    kept = ("uuid", "feature", "volume_name", "extension_list", "extension_count", "hot_ext_count", "init_version")
    with open_volume(copy) as volume:
        before = [getattr(volume.sb, name) for name in kept]
    run(copy, "3G")
    with open_volume(copy) as volume:
        assert [getattr(volume.sb, name) for name in kept] == before
    with writable(copy) as volume:
        found = volume.quota("user", 7)
        assert found is not None
        assert found.space_hard == 12345 * 1024


@pytest.mark.parametrize("options", ["--size 256M", "--size 256M -s 2 -z 2", "--size 1G -i", "--size 20G"])
@pytest.mark.parametrize("size", [700, 5000, 40000])
def test_a_volume_looks_as_mkfs_would_have_made_it(size: int, options: str, tmp_path: Path) -> None:
    path = fresh(tmp_path, options)
    run(path, f"{size}M", "--areas", "fit", "--no-check")
    made = fresh(tmp_path, options.replace(options.split()[1], f"{size}M"), "made")
    with open_volume(path) as volume, open_volume(made) as model:
        assert volume.geo == model.geo
        for name in ("rsvd_segment_count", "overprov_segment_count", "user_block_count", "free_segment_count"):
            assert getattr(volume.cp, name) == getattr(model.cp, name), name


# -- what can't be --------------------------------------------------------------------------------------------------


def test_a_damaged_volume_is_refused(tmp_path: Path) -> None:
    case = images.damaged("inode-nlink", tmp_path)
    before = case.path.read_bytes()
    with pytest.raises(F2fsError, match="f2tools fsck"):
        run(case.path, "100M")
    assert case.path.read_bytes() == before


def test_a_read_only_volume_is_refused(tmp_path: Path) -> None:
    path = fresh(tmp_path, "--size 64M -O ro")
    with pytest.raises((F2fsError, OSError)):
        run(path, "100M")


def test_a_pinned_file_in_the_way_is_named(copy: Path) -> None:
    with writable(copy) as volume:
        inos = [volume.lookup(ROOT_INO, name.encode()) for name in entries(copy) if name.startswith("f")]
        for ino in inos:
            inode = volume.live(ino)
            inode.set(i_inline=inode.i_inline | F2FS_PIN_FILE)
            volume.nodes.touch(inode)
    before = tree(copy)
    with pytest.raises(Unsupported, match="inode"):
        run(copy, "3G")
    assert tree(copy) == before
    sound(copy)


def entries(path: Path) -> list[str]:
    with open_volume(path) as volume:
        return list(entries_of(volume))


def test_a_device_that_is_a_file_of_the_volume_keeps_its_size(tmp_path: Path) -> None:
    case = images.reference("device-alias").copy(tmp_path)
    with pytest.raises(Unsupported, match="alias"):
        run(case.path, "64M", *named(case.extra))


def test_the_metadata_of_a_zoned_volume_stays(tmp_path: Path) -> None:
    case = images.reference("zoned").copy(tmp_path)
    with pytest.raises(DoesNotFit, match="metadata areas have room"):
        run(case.path, "64G")
    with pytest.raises(Usage):
        run(case.path, "300M", "--areas", "fit")


@pytest.mark.parametrize("size", ["1M", "20M", "17T"])
def test_sizes_that_cannot_be(size: str, copy: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(DoesNotFit):
        run(copy, size)
    assert copy.read_bytes() == before


@pytest.mark.parametrize("options", [("64M", "--minimum"), ("--minimum", "--undo", "x")])
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], copy: Path) -> None:
    with pytest.raises(Usage):
        run(copy, *options)


def test_what_is_no_size_is_refused(copy: Path) -> None:
    run(copy, "large", code=2)


def test_a_full_volume_shrinks_no_further_than_its_files(tmp_path: Path) -> None:
    case = images.reference("full").copy(tmp_path)
    before = tree(case.path)
    with pytest.raises(DoesNotFit, match="files"):
        run(case.path, "46M")
    assert tree(case.path) == before


# -- trying, and taking back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["90M", "3G", "minimum"])
def test_a_rehearsal_says_exactly_what_happens_and_writes_nothing(size: str, copy: Path) -> None:
    bytes_before = copy.read_bytes()
    said = report(copy, size, "--dry-run")
    assert copy.read_bytes() == bytes_before
    assert said.pop("written") is False
    done = report(copy, size)
    assert done.pop("written") is True
    assert said == done


@pytest.mark.parametrize("size", ["90M", "3G", "minimum"])
def test_undo_gives_every_byte_back(size: str, copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    run(copy, size, "--undo", tmp_path / "undo")
    assert size_of(copy) != len(before)
    assert f2("undo", tmp_path / "undo", copy).code == 0
    assert copy.read_bytes() == before


@pytest.mark.parametrize("size", ["900M", "3G", "minimum"])
def test_undo_takes_back_a_run_that_was_cut_off(
    size: str, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, switched = copy.read_bytes(), tool.switch

    def cut(device: Device, raw: bytes, block_size: int) -> None:
        switched(device, raw, block_size)
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "switch", cut)
    with pytest.raises(click.Abort):
        CliRunner().invoke(resize, [str(copy), size, "--undo", str(tmp_path / "undo")], standalone_mode=False,
                           catch_exceptions=False)  # fmt: skip
    assert tree(copy)
    assert f2("undo", tmp_path / "undo", copy).code == 0
    assert copy.read_bytes() == before


@pytest.mark.parametrize("mib", [90, 30])
def test_undo_gives_the_last_of_several_devices_back(mib: int, tmp_path: Path) -> None:
    case = images.reference("multi-device").copy(tmp_path)
    both = [case.path, *case.extra]
    before = [path.read_bytes() for path in both]
    run(case.path, f"{mib}M", *named(case.extra), "--undo", tmp_path / "undo")
    assert size_of(both[-1]) == mib * MIB
    assert f2("undo", tmp_path / "undo", case.path, *named(case.extra)).code == 0
    assert [path.read_bytes() for path in both] == before


@pytest.mark.parametrize("words", [["30000001"], ["90000001"], ["30M", "--keep-file-size"], ["max"], ["90M"]])
@pytest.mark.parametrize("killed", [False, True])
def test_undo_gives_back_a_last_device_of_which_the_volume_has_a_part(
    killed: bool, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = images.reference("multi-device").copy(tmp_path)
    both = [case.path, *case.extra]
    with both[-1].open("r+b") as file:  # what lies behind the volume is a user's as well
        file.seek(0, os.SEEK_END)
        file.write(b"behind" * 5_000_000)
    before, switched = [path.read_bytes() for path in both], tool.switch

    def cut(device: Device, raw: bytes, block_size: int) -> None:
        switched(device, raw, block_size)
        raise KeyboardInterrupt

    if killed:
        monkeypatch.setattr(tool, "switch", cut)
    arguments = [case.path, *words, *named(case.extra), "--undo", tmp_path / "undo"]
    done = CliRunner().invoke(resize, [str(word) for word in arguments], standalone_mode=False)
    assert isinstance(done.exception, click.Abort) if killed else done.exit_code == 0
    undone = f2("undo", tmp_path / "undo", case.path, *named(case.extra))
    assert undone.code == 0, undone.err
    assert [path.read_bytes() for path in both] == before


def test_what_an_interrupted_run_left_is_finished(copy: Path) -> None:
    """Between the superblock and the checkpoint that knows of the new end, and with one copy of it half written."""
    before = tree(copy)
    with open_device(copy, write=True) as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr("f2tools.resize.resize._Run.finish", lambda *_: None)
        outcome = resize_volume(device, 200 * MIB)
    assert isinstance(outcome.plan.steps[-1], SetEnd)
    with open(copy, "r+b") as file:
        file.seek(1024)
        file.write(bytes(512))
    assert tree(copy) == before
    checked, seen = f2("fsck", copy), f2("doctor", copy).text
    assert "a resize was interrupted; the same `f2tools resize` once more finishes it" in checked.err
    assert f"next: `f2tools resize {copy} SIZE`, with the SIZE of the resize that was interrupted" in checked.text
    assert "  A resize of it was interrupted.\n" in seen
    assert f"; if it had --undo FILE, `f2tools undo FILE {copy}` takes it back" in checked.text
    assert f"What to do next:\n  f2tools resize {copy} SIZE\n" in seen
    assert f"  f2tools undo FILE {copy}\n" in seen
    assert "fsck -y" not in checked.text + seen
    assert "200 MiB already; what an interrupted resize had left to do is done" in run(copy, "200M")
    assert "200 MiB already, nothing to do" in run(copy, "200M")
    sound(copy)
    assert tree(copy) == before


@pytest.mark.parametrize("words", [["50M"], ["minimum"], ["50M", "--dry-run"]])
def test_a_block_that_cannot_be_read_ends_it_and_the_medium_is_to_be_copied_first(
    words: list[str], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writable(copy) as volume:  # the end of it is in use
        for name, size in ((b"large", 14 * MIB), (b"last", 4096)):
            volume.write(volume.create(ROOT_INO, name, 0o644), 0, bytes(range(256)) * (size // 256))
            volume.sync()
        volume.unlink(ROOT_INO, b"large")
    before = tree(copy)
    with open_volume(copy) as volume:
        entries = manifest(volume)["entries"].values()
        lost = max(physical for entry in entries for _, physical, *_ in entry.get("extents") or ())
    assert lost > 50 * MIB
    with monkeypatch.context() as patch:
        lose(patch, lost)
        done = f2("resize", copy, *words)
    assert (done.code, done.err.splitlines()) == (8, [
        f"f2tools: {copy}: reading at offset {lost:#x} failed: Input/output error",
        f"f2tools: `ddrescue -r3 {copy} COPY COPY.map` copies what can be read, and tries the rest again; go on with"
        " COPY",
    ])  # fmt: skip
    sound(copy)
    assert tree(copy) == before


def test_another_writer_is_kept_out(copy: Path) -> None:
    with open_device(copy, write=True), pytest.raises(DeviceError, match="this program has it open"):
        run(copy, "100M")


def test_the_layout_is_shown(copy: Path) -> None:
    said = run(copy, "3G")
    assert "before |c" in said
    assert "after |c" in said
    assert "the metadata areas moved" in said
    assert "64 MiB -> 3 GiB" in said
    assert "f2tools resize card.img" in run("--help")
    assert resize.help


def test_opening_and_looking_changes_nothing(filled: Path) -> None:
    with open_device(filled) as device:
        state = state_of(device)
        sound_on(Overlay(Kept(device)))
        assert state.home == 512
        assert Above(device).size_bytes == 64 * MIB


def test_a_partition_has_the_size_it_has(filled: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(MIB) + filled.read_bytes() + bytes(40 * MIB))
    before = tree(filled)
    with pytest.raises(DoesNotFit, match="can't be made longer"):
        run(disk, "200M", "--offset", MIB)
    for size in ("80M", "58M", "max"):
        run(disk, size, "--offset", MIB)
        assert size_of(disk) == 105 * MIB
        with open_device(f"{disk}@+{MIB}") as device:
            sound_on(device, size)
            assert tree_on(device) == before


# -- as long as addresses reach -------------------------------------------------------------------------------------


def test_a_volume_without_an_address_for_its_end_is_named_left_alone_and_made_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mkfs.f2fs makes it on exactly 16 TiB: no kernel mounts it, as MAX_BLKADDR() is 0 in 32 bits."""
    monkeypatch.chdir(tmp_path)  # the volume's table of devices has room for short paths only
    first, second, one = Path("first"), Path("second"), Path("one")
    one.write_bytes(b"one")
    for path in (first, second):
        path.touch()
        os.truncate(path, 8 << 40)  # a file of 16 TiB is longer than ext4 can have it
    with monkeypatch.context() as older:
        older.setattr("f2tools.mkfs.plan.most_segments", lambda segment0: F2FS_MAX_SEGMENT)
        assert f2("mkfs", first, "--device", second).code == 0
    found = f2("fsck", first, "--device", second)
    assert (found.code, "S013 error   sb" in found.text) == (4, True)
    shorter = f"f2tools resize --undo {first.name}.undo {first} max --device {second}"
    assert shorter in found.text
    assert "fsck -y" not in found.text
    assert f"f2tools resize {first} max --device {second}" in f2("doctor", first, "--device", second).text
    refused = f2("cp", "--device", second, one, f"{first}:/one")
    assert (refused.code, "no kernel mounts it" in refused.err) == (1, True)
    left = f2("fsck", "-y", first, "--device", second)
    assert (left.code, "nothing was written; left: S013 (1); `f2tools resize " in left.err) == (4, True)

    done = f2("resize", first, "max", "--device", second)
    assert (done.code, "nothing to do" in done.text) == (0, False)
    with open_volume(first, [second]) as volume:
        assert volume.geo.end_blkaddr == (1 << 32) - 512
    assert f2("cp", "--device", second, one, f"{first}:/one").code == 0
    assert f2("fsck", first, "--device", second).code == 0
    assert "nothing to do" in f2("resize", first, "max", "--device", second).text


def test_a_mark_is_no_address_however_long_a_volume_is() -> None:
    geo = make_plan(Options(), [DeviceSpec("image", 16 << 40)]).geometry
    longer = replace(geo, segment_count_main=geo.segment_count_main + 1)
    assert (geo.too_long, longer.too_long) == (False, True)
    addresses = np.array([longer.main_blkaddr, COMPRESS_ADDR - 1, COMPRESS_ADDR, NEW_ADDR], np.int64)
    assert longer.in_main(addresses).tolist() == [True, True, False, False]
