"""Loads on a real kernel: what the guest traced is what its disk counted, and what is missing is said."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest

from f2tools.errors import DeviceError
from f2tools.experiment import onguest
from f2tools.experiment.model import Setting, Unfinished, Work
from f2tools.experiment.places import APPENDING, CHECKPOINTS, VARIANTS, load_parts
from f2tools.guest.build import NoGuest
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.kernel.guest import Guest

MIB = 1 << 20
SETTING = Setting(Fraction(1, 64), "guest")


def test_a_file_system_has_a_part_of_its_own_and_f2fs_its_variants() -> None:
    parts = load_parts(SETTING, "fsync", {}, 64 * MIB, (CHECKPOINTS,))
    assert [part.name for part in parts] == ["f2fs", "ext4", "btrfs", "nilfs2", CHECKPOINTS]
    assert parts[-1].given["params"] == VARIANTS[CHECKPOINTS][2] == {"sync_each": True}
    append = load_parts(SETTING, "fsync", {}, 64 * MIB, (APPENDING,))[-1]
    assert (append.name, append.given["fs"], append.given["mount"]) == (APPENDING, "f2fs", "mode=lfs")


def test_what_the_host_lacks_is_named_before_anything_is_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onguest, "which", lambda program: None)
    with pytest.raises(NoGuest, match=r"mkfs\.btrfs is not installed here.*apt-get install btrfs-progs"):
        onguest.on_guest(Work(SETTING, None, lambda _: None), "btrfs", "", "fsync", {}, 64 * MIB)


def test_a_disk_that_may_not_have_room_is_said_before_anything_is_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onguest, "which", lambda program: Path("/bin/true"))
    with pytest.raises(DeviceError, match=r"has .* free, and the guest's disk may take 1 PiB; \$TMPDIR names another"):
        onguest.on_guest(Work(SETTING, None, lambda _: None), "f2fs", "", "fsync", {}, 1 << 50)


def test_bytes_of_the_trace_are_those_that_the_disk_of_the_guest_counted(
    guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onguest, "Guest", type("Ours", (), {"ready": staticmethod(lambda work: guest)}))
    shares: list[float] = []
    params = {"files": 10, "file_bytes": 65536, "writes": 50}
    found = onguest.on_guest(Work(SETTING, tmp_path, shares.append), "f2fs", "", "fsync", params, 128 * MIB)
    assert found["run"]["write_bytes"] == found["trace"]["writes"]["bytes"]
    assert found["run"]["writes"] == found["trace"]["writes"]["requests"]
    assert found["run"]["discard_bytes"] == found["trace"]["discards"]["bytes"]
    assert found["trace"]["lost_events"] == 0
    assert found["blocks_by_way"]["IPU"] == 0
    assert 100 <= found["blocks_by_way"]["LFS"] < 150, "50 blocks, each with its node"
    assert found["calls"] == {"write": 50, "write_bytes": 50 * 4096, "fsync": 50}
    assert 2 * 50 * 4096 <= found["trace"]["writes"]["bytes"] < 4 * 50 * 4096, "a block and its node, and a checkpoint"
    kept = analyze(AnalysisRequest(str(tmp_path))).report
    assert kept["writes"]["bytes"] == found["trace"]["writes"]["bytes"]
    assert json.loads((tmp_path / "run.json").read_text())["calls"] == found["calls"]
    assert shares == [1.0]


def test_a_load_that_comes_to_no_end_in_the_guest_is_given_up(
    guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onguest, "Guest", type("Ours", (), {"ready": staticmethod(lambda work: guest)}))
    monkeypatch.setattr(onguest, "SCRIPT", "sleep 600")
    monkeypatch.setattr(onguest, "TIMEOUT", 1)
    with pytest.raises(Unfinished, match="fsync on nilfs2 in the guest was not done within 1 s"):
        onguest.on_guest(Work(SETTING, tmp_path, lambda _: None), "nilfs2", "", "fsync", {}, 64 * MIB)


@pytest.mark.skipif(os.environ.get("F2_REAL_DEVICES") != "all", reason="most of a minute under emulation: make nightly")
def test_a_spare_device_is_overwritten_only_on_request_and_counts_what_is_traced(guest: Guest, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(256 * MIB)
    script = """
        mkfs.ext4 -q /dev/vda && sha256sum /dev/vda > /tmp/before
        f2tools experiment iozone --on /dev/vda --scale 1/512 < /dev/null; echo $? > $OUT/refused
        sha256sum -c -s /tmp/before || exit 3
        small="--scale 1/512 --json"
        mkdir -p /dev/pts && mount -t devpts none /dev/pts
        terminal="python3 -c 'import os,pty,sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))'"
        (sleep 8; echo vda) | eval $terminal f2tools experiment iozone --on /dev/vda --scale 1/512 > $OUT/asked
        echo $? >> $OUT/refused
        sha256sum -c -s /tmp/before || exit 3
        f2tools experiment iozone --on /dev/vda --fs f2fs,ext4 $small --overwrite > $OUT/found.json || exit 4
        mkfs.f2fs -f /dev/vda > /dev/null && mount -t f2fs /dev/vda /mnt
        f2tools experiment iozone --on /mnt $small > $OUT/directory.json || exit 5
        ls /mnt > $OUT/left
    """
    result = guest.run(script, [disk], with_f2tools=True, timeout=600).must_succeed()
    assert (result.out / "refused").read_text() == "2\n2\n"
    assert "Type the name of the device to go on" in (result.out / "asked").read_text()
    assert "ALL THAT IS ON IT IS LOST" in result.stderr
    assert "holds ext4" in result.stderr
    assert (result.out / "left").read_text() == "", "the directory of the load is gone"
    for name, systems in (("found.json", {"f2fs", "ext4"}), ("directory.json", {"f2fs"})):
        parts = result.json(name)["parts"]
        assert set(parts) == systems
        for numbers in parts.values():
            assert numbers["run"]["write_bytes"] == numbers["trace"]["writes"]["bytes"] >= 16 * MIB
            assert numbers["trace"]["lost_events"] == 0
