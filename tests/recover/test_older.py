"""`recover --checkpoint older`: back to the checkpoint before the newest one, where that is still there."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.device import open_device
from f2tools.device.changes.record import Recorder
from f2tools.dump.manifest import manifest
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import Above, fresh, writable
from tests.images import copy_sparse
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet
from tests.recover.test_recover import content, tree

ROOT_INO = 3
BLOCK = 4096
SHOW = """
set -e
count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o background_gc=off ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/manifest-%d.json $count
for n in $(seq 0 $((count - 1))); do echo written > /mnt/$n/later; sync /mnt/$n/later; umount /mnt/$n; done
"""
SOME_CLEAN = ("base", "fragmented", "features", "history-a", "sections", "compress-lz4")


def plan(path: Path, *options: object) -> dict[str, Any]:
    return json.loads(f2("recover", path, "--checkpoint", "older", "--json", *options).out)


def noise(blocks: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(blocks * BLOCK)


def with_older(directory: Path, blocks: int = 1200) -> Path:
    """The older checkpoint has the file `old`, the newer one `new` in its place."""
    path = fresh(directory)
    with writable(path) as volume:
        volume.write(volume.create(ROOT_INO, b"old", 0o644), 0, noise(blocks, 1))
        volume.write(volume.create(ROOT_INO, b"both", 0o644), 0, noise(9, 2))
        volume.checkpoint(unmount=True)
        volume.unlink(ROOT_INO, b"old")
        volume.write(volume.create(ROOT_INO, b"new", 0o644), 0, noise(blocks, 3))
    return path


@pytest.mark.peer
@pytest.mark.parametrize("name", [*images.CRASH, *SOME_CLEAN])
def test_a_volume_goes_back_to_its_older_checkpoint(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    with f2tools.open(case.path, checkpoint="older", recovered=True) as volume:
        wanted = content(manifest(volume)["entries"])
    older = plan(case.path)["older"]
    assert older["possible"], older
    result = f2("recover", case.path, "--checkpoint", "older", "--apply", *([] if older["certain"] else ["--force"]))
    assert result.code == 0, result.err
    assert content(tree(case.path)) == wanted
    judges.fsck_clean(case.path)
    assert not json.loads(f2("recover", case.path, "--json").out)["needed"]


def test_what_was_deleted_comes_back(tmp_path: Path) -> None:
    path = with_older(tmp_path)
    before = path.read_bytes()
    assert plan(path)["older"]["certain"]
    assert f2("recover", path, "--checkpoint", "older", "--apply", "--dry-run").code == 0
    assert path.read_bytes() == before
    assert f2("recover", path, "--checkpoint", "older", "--apply", "--undo", tmp_path / "undo").code == 0
    with f2tools.open(path) as volume:
        assert volume.path("/old").read() == noise(1200, 1)
        with pytest.raises(FileNotFoundError):
            volume.path("/new")
        assert_consistent(volume)
    judges.fsck_clean(path)
    assert f2("undo", tmp_path / "undo", path).code == 0
    assert path.read_bytes() == before


def test_the_power_may_fail_at_any_write(tmp_path: Path) -> None:
    """Then the volume is in the newer state or in the older one."""
    path = with_older(tmp_path, 30)
    with open_device(path) as base:
        recorder = Recorder(Above(base))
        WritableVolume(recorder, which="older").close()
    chance = random.Random(5)
    seen: set[str] = set()
    with open_device(path) as base:
        for count in range(len(recorder.events) + 1):
            for lost in (False, True):
                top = Above(base)
                volatile = recorder.volatile(count) if lost else []
                recorder.replay(count, top, without={event for event in volatile if chance.random() < 0.5})
                WritableVolume(top).sync()
                with Volume(Above(top)) as volume:
                    assert_consistent(volume, f"after {count} events")
                    names = {entry.name.decode() for entry in volume.listdir(volume.root.inode)}
                    which, seed = ("old", 1) if "old" in names else ("new", 3)
                    assert names - {"both", "lost+found"} == {which}
                    assert volume.path(f"/{which}").read() == noise(30, seed)
                seen.add(which)
    assert seen == {"old", "new"}


def test_the_kernel_shows_one_of_the_two_states_where_the_power_failed(guest: Guest, tmp_path: Path) -> None:
    path = with_older(tmp_path, 30)
    with open_device(path) as base:
        recorder = Recorder(Above(base))
        WritableVolume(recorder, which="older").close()
    disks: list[Path] = []
    for count in range(len(recorder.events) + 1):
        disks.append(tmp_path / f"{count}.img")
        copy_sparse(path, disks[-1])
        with open_device(disks[-1], write=True) as device:
            recorder.replay(count, device)
    result = guest.run(SHOW, disks, timeout=900).must_succeed()
    assert_quiet(result)
    seen: list[str] = []
    for number in range(len(disks)):
        found = result.json(f"manifest-{number}.json")
        assert not found.get("errors"), number
        seen += [name for name in ("old", "new") if name in found["entries"]]
    assert len(seen) == len(disks)
    assert (seen[0], seen[1], seen[-1]) == ("new", "old", "old")


def test_what_was_written_over_is_refused(tmp_path: Path) -> None:
    path = with_older(tmp_path)
    volume = writable(path, min_free_percent=100.0)  # goes on in holes, such as those where `old` was
    ino = volume.create(ROOT_INO, b"more", 0o644)
    volume.write(ino, 0, noise(900, 9))
    volume.fsync(ino)
    volume.abandon()
    before = path.read_bytes()
    older = plan(path)["older"]
    assert not older["possible"]
    assert any("written over" in reason for reason in older["reasons"])
    for options in ((), ("--force",)):
        result = f2("recover", path, "--checkpoint", "older", "--apply", *options)
        assert result.code == 1
        assert "not there any more" in result.err
    assert path.read_bytes() == before


def test_what_may_have_been_discarded_takes_force(tmp_path: Path) -> None:
    path = with_older(tmp_path)
    with f2tools.open(path, checkpoint="older") as volume:
        inode = volume.path("/old").inode
        first = next(int(addr) for addr in inode.addrs if addr > 1)
    with path.open("r+b") as f:
        f.seek(first * BLOCK)
        f.write(bytes(BLOCK * 5))
    older = plan(path)["older"]
    assert (older["possible"], older["certain"]) == (True, False)
    assert [file["zero"] for file in older["files"] if file["path"] == "/old"] == [5]
    refused = f2("recover", path, "--checkpoint", "older", "--apply")
    assert refused.code == 1
    assert "--force" in refused.err
    assert f2("recover", path, "--checkpoint", "older", "--apply", "--force").code == 0
    with f2tools.open(path) as volume:
        assert volume.path("/old").read()[5 * BLOCK :] == noise(1200, 1)[5 * BLOCK :]


def test_lost_nodes_and_tables_are_seen(tmp_path: Path) -> None:
    path = with_older(tmp_path)
    with f2tools.open(path, checkpoint="older") as volume:
        node = volume.nat.get(volume.path("/old").inode.ino)[2]
    with path.open("r+b") as f:
        f.seek(node * BLOCK)
        f.write(bytes(BLOCK))
    older = plan(path)["older"]
    assert not older["possible"]
    assert "not where its tables say" in older["reasons"][0]


def test_without_a_sound_older_checkpoint_it_is_said(tmp_path: Path) -> None:
    path = with_older(tmp_path)
    with f2tools.open(path, checkpoint="older") as volume:
        pack = volume.pack.blkaddr
    with path.open("r+b") as f:
        f.seek(pack * BLOCK)
        f.write(bytes(BLOCK))
    result = f2("recover", path, "--checkpoint", "older")
    assert result.code == 8
    assert "older checkpoint" in result.err


def test_the_command_names_the_other_devices(tmp_path: Path) -> None:
    case = images.reference("multi-device").copy(tmp_path)
    more = [word for device in case.extra for word in ("--device", device)]
    done = f2("recover", case.path, "--checkpoint", "older", *more)
    assert f"f2tools recover {case.path} --device {case.extra[0]} --checkpoint older --apply" in done.text
