"""`f2tools label` and `f2tools tune`: what is changed is changed in both copies, and all else reads as before."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click import Command
from click.testing import CliRunner

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.dump.manifest import manifest
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import FEATURES
from f2tools.f2fs.volume.super import choose_superblock, read_superblocks
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.tune.cli import label, tune
from f2tools.tune.tune import Refused, TuneRequest, apply, plan
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent, problems
from tests.f2fs.write.volumes import FULL, Twin, fresh, writable
from tests.f2fs.write.workload import Workload

ROOT_INO = 3
SAMPLES = int(os.environ.get("F2_POWER_SAMPLES", "6"))
NEW_UUID = "01234567-89ab-cdef-0123-456789abcdef"
# features that can be switched on a filled volume without extra attributes, then those that need them
FREE = ("encrypt", "extra_attr", "quota", "lost_found", "verity", "sb_checksum", "casefold")
EXTRA = ("project_quota", "inode_checksum", "flexible_inline_xattr", "inode_crtime", "compression")


def run(command: Command, *args: object, code: int = 0) -> str:
    names = ["-h", "--help"]
    result = CliRunner().invoke(command, [str(arg) for arg in args], help_option_names=names)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def report(command: Command, *args: object) -> dict[str, Any]:
    return json.loads(run(command, *args, "--json"))


def tree(path: Path, extra: Sequence[Path] = ()) -> dict[str, Any]:
    with open_volume(path, extra) as volume:
        return placeless(manifest(volume)["entries"])


def placeless(entries: dict[str, Any]) -> dict[str, Any]:
    """Without what a feature adds to each file, and where files lie."""
    gone = ("extents", "btime_ns", "crtime_ns", "projid")
    return {name: {k: v for k, v in entry.items() if k not in gone} for name, entry in entries.items()}


def features(path: Path) -> set[str]:
    return set(report(tune, path)["features"])


def both_copies(path: Path) -> bytes:
    """The superblock, which must be the same in both copies."""
    with open_device(path) as device:
        copies = read_superblocks(device)
        assert all(copy.valid for copy in copies)
        first, second = (device.pread(copy.offset, 3072) for copy in copies)
    assert first == second
    return first


def sound(path: Path, extra: Sequence[Path] = ()) -> None:
    judges.fsck_clean(path, *extra)
    assert f2("fsck", path, *[word for one in extra for word in ("--device", one)]).code == 0
    with open_volume(path, extra) as volume:
        assert_consistent(volume)


def filled(directory: Path, options: str = "--size 64M") -> Path:
    path = fresh(directory, options)
    twin = Twin(writable(path))
    work = Workload(twin, 0)
    work.links()
    work.xattrs()
    work.file(work.top, b"long", b"0123456789abcdef" * 40000)
    twin.volume.close()
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("full"), f"--size 64M -O {FULL}")


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    return images.copy_sparse(plain, tmp_path / "copy")


@pytest.fixture
def rich(full: Path, tmp_path: Path) -> Path:
    return images.copy_sparse(full, tmp_path / "rich")


# -- label --------------------------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("text", ["CARD", "Ünïcode 漢字", "x" * 512, "😀" * 256])
def test_a_label_is_set_in_both_copies(text: str, copy: Path) -> None:
    before = tree(copy)
    run(label, copy, text)
    assert run(label, copy) == text + "\n"
    both_copies(copy)
    assert tree(copy) == before
    sound(copy)
    run(label, copy, "")
    assert run(label, copy) == "\n"


@pytest.mark.peer
def test_f2fslabel_reads_the_same(rich: Path) -> None:
    run(label, rich, "both agree")
    assert "label = both agree" in judges.run_tool("f2fslabel", rich).output
    judges.run_tool("f2fslabel", rich, "from there")
    assert run(label, rich) == "from there\n"


@pytest.mark.parametrize("text", ["x" * 513, "😀" * 257, "with\0nul", "\udcff"])
def test_what_is_no_label_is_refused(text: str, copy: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(Usage):
        run(label, copy, text)
    assert copy.read_bytes() == before


def test_only_the_superblock_is_written(rich: Path) -> None:
    before = rich.read_bytes()
    run(label, rich, "little")
    after = rich.read_bytes()
    assert before[8192:] == after[8192:]
    assert before != after


def test_a_label_that_is_there_already_writes_nothing(copy: Path) -> None:
    run(label, copy, "here")
    before = copy.read_bytes()
    assert report(label, copy, "here")["written"] is False
    assert copy.read_bytes() == before


@pytest.mark.parametrize("bad", [0, 1])
def test_a_bad_copy_is_written_first(bad: int, rich: Path, tmp_path: Path) -> None:
    with rich.open("r+b") as file:
        file.seek(1024 + 4096 * bad)
        file.write(bytes(3072))
    base = images.copy_sparse(rich, tmp_path / "base")
    with Recorder(open_device(rich, write=True)) as recorder:
        apply(recorder, plan(Volume(recorder), TuneRequest(label="healed")))
        events = len(recorder.events)
    both_copies(rich)
    for count in range(events + 1):
        with open_device(base) as below:
            device = Overlay(below)
            recorder.replay(count, device)
            choose_superblock(read_superblocks(device), device)


# -- uuid, extensions, salt ---------------------------------------------------------------------------------------


@pytest.mark.peer
def test_a_new_uuid_takes_the_checksums_of_inodes_along(rich: Path) -> None:
    before = tree(rich)
    run(tune, rich, "--uuid", NEW_UUID)
    said = report(tune, rich)
    assert said["uuid"] == NEW_UUID
    assert "inode_checksum" in said["features"]
    assert tree(rich) == before
    both_copies(rich)
    sound(rich)


def test_a_random_uuid_is_another_each_time(copy: Path) -> None:
    found: set[str] = set()
    for _ in range(3):
        run(tune, copy, "--uuid", "random")
        found.add(report(tune, copy)["uuid"])
    assert len(found) == 3
    assert all(UUID(one).version == 4 for one in found)


def test_extensions_are_added_and_taken_out(copy: Path) -> None:
    before = report(tune, copy)
    run(tune, copy, "-e", "heic,flif", "-e", "!avi", "-E", "journal")
    after = report(tune, copy)
    assert after["cold_extensions"] == [*(e for e in before["cold_extensions"] if e != "avi"), "heic", "flif"]
    assert after["hot_extensions"] == [*before["hot_extensions"], "journal"]
    with writable(copy) as volume:
        cold, warm = (volume.create(ROOT_INO, name, 0o644) for name in (b"new.flif", b"new.avi"))
        assert volume.live(cold).i_advise & 1
        assert not volume.live(warm).i_advise & 1
    sound(copy)


def test_extensions_in_any_letters_stay_what_they_are(copy: Path) -> None:
    run(tune, copy, "-e", "ä,\udcff")
    run(tune, copy, "-e", "heic")
    assert report(tune, copy)["cold_extensions"][-3:] == ["ä", "\udcff", "heic"]
    with open_device(copy) as device:
        assert "ä".encode().ljust(8, b"\0") + b"\xff".ljust(8, b"\0") in device.pread(0, 8192)
    shown = CliRunner().invoke(tune, [str(copy), "-e", "!ä", "--dry-run"]).output
    assert "-ä" in shown


@pytest.mark.parametrize(
    "options",
    [
        ("-e", "toolong8"), ("-e", "!nothere"), ("-e", ".txt"), ("-E", "avi"),
        ("-e", ",".join(f"e{n}" for n in range(64))),
        ("--uuid", "no-uuid"), ("--salt", "12"), ("--salt", "x" * 32), ("-O", "nosuch"), ("-O", "quota,!quota"),
        ("-C", "utf8"), ("-O", "casefold", "-C", "utf7"), ("--dry-run",),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], copy: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(Usage):
        run(tune, copy, *options)
    assert copy.read_bytes() == before


def test_the_salt_of_pass_phrases(copy: Path) -> None:
    run(tune, copy, "--salt", "00112233445566778899aabbccddeeff")
    assert report(tune, copy)["encrypt_pw_salt"] == "00112233445566778899aabbccddeeff"
    run(tune, copy, "--salt", "none")
    assert report(tune, copy)["encrypt_pw_salt"] == "00" * 16


# -- features -----------------------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("name", FREE)
def test_a_feature_is_switched_on_and_off_again(name: str, copy: Path) -> None:
    before, had = tree(copy), features(copy)
    assert name not in had
    run(tune, copy, "-O", name)
    assert features(copy) == had | {name}
    both_copies(copy)
    shown = tree(copy)
    if name == "lost_found":
        assert shown.pop("lost+found")["type"] == "dir"
        root = next(key for key in before if before[key].get("ino") == ROOT_INO)
        shown.pop(root)
        before.pop(root)
    assert shown == before
    sound(copy)
    run(tune, copy, "-O", f"!{name}")
    assert features(copy) == had
    sound(copy)


@pytest.mark.peer
@pytest.mark.parametrize("name", [*EXTRA, "quota", "project_quota,quota"])
def test_a_feature_of_extra_attributes_is_switched_off_and_on_again(name: str, rich: Path) -> None:
    before, had = tree(rich), features(rich)
    names = name.split(",")
    if "compression" in names:
        run(tune, rich, "-O", "compression")
        assert tree(rich) == before
        sound(rich)
    run(tune, rich, "-O", ",".join(f"!{one}" for one in names))
    assert features(rich) == had - set(names)
    assert tree(rich) == before
    sound(rich)
    run(tune, rich, "-O", name)
    assert features(rich) == had | set(names)
    both_copies(rich)
    assert tree(rich) == before
    sound(rich)


@pytest.mark.peer
def test_all_at_once(copy: Path) -> None:
    before = tree(copy)
    every = [name for name in (*FREE, *EXTRA) if name not in ("flexible_inline_xattr", "lost_found", "project_quota")]
    done = report(tune, copy, "-O", ",".join(every), "--uuid", NEW_UUID, "-L", "all", "-C", "utf8:strict")
    assert done["changes"]["quota_files"]["after"] == ["user", "group"]
    assert features(copy) == set(every)
    assert report(tune, copy)["encoding"] == "utf8:strict"
    assert tree(copy) == before
    sound(copy)
    with writable(copy) as volume:  # and new files have what the features give
        ino = volume.create(ROOT_INO, b"fresh", 0o644)
        assert volume.live(ino).extra["i_crtime"]
        volume.write(ino, 0, b"x" * 9000)
    sound(copy)


def test_limits_stay_when_a_further_quota_file_is_made(tmp_path: Path) -> None:
    path = filled(tmp_path, "--size 64M -O extra_attr,inode_crtime,quota")
    with writable(path) as volume:
        volume.set_quota("user", 7, inodes_hard=3)
    run(tune, path, "-O", "project_quota")
    assert report(tune, path)["quota_files"] == ["user", "group", "project"]
    sound(path)
    with writable(path) as volume:
        found = volume.quota("user", 7)
        assert found is not None
        assert found.inodes_hard == 3
    run(tune, path, "-O", "!project_quota")
    assert report(tune, path)["quota_files"] == ["user", "group"]
    sound(path)


@pytest.mark.parametrize(
    ("name", "wanted", "why"),
    [
        ("fscrypt", "!encrypt", "are encrypted"),
        ("casefold", "!casefold", "are casefolded"),
        ("casefold", "!casefold,label", "no feature"),
        ("compress-lz4", "!compression", "marked as compressed"),
        ("features", "!extra_attr", "inodes have extra attributes"),
        ("plain", "inode_checksum", "it needs extra_attr"),
        ("plain", "extra_attr,flexible_inline_xattr", "have no extra attributes"),
        ("plain", "extra_attr,quota,project_quota", "no room for a project"),
        ("plain", "packed_ssa", "format anew"),
        ("plain", "blkzoned", "format anew"),
        ("plain", "ro", "format anew"),
        ("plain", "device_alias", "mkfs alone"),
        ("device-alias", "!device_alias", "stand for devices"),
    ],
)  # fmt: skip
def test_what_the_volume_does_not_allow_is_refused_with_the_reason(
    name: str, wanted: str, why: str, tmp_path: Path
) -> None:
    case = images.reference(name).copy(tmp_path)
    before = case.path.read_bytes()
    devices = [word for one in case.extra for word in ("--device", one)]
    with pytest.raises((Refused, Usage), match=why):
        run(tune, case.path, "-O", wanted, *devices)
    assert case.path.read_bytes() == before


def test_keys_that_are_made_with_the_uuid_keep_it(tmp_path: Path) -> None:
    case = images.reference("fscrypt-android").copy(tmp_path)
    with pytest.raises(Refused, match="the UUID stays"):
        run(tune, case.path, "--uuid", "random")


def test_what_was_fsynced_must_be_brought_back_first(tmp_path: Path) -> None:
    case = images.reference("crash-several").copy(tmp_path)
    with pytest.raises(Refused, match="recover"):
        run(tune, case.path, "-O", "verity")
    run(label, case.path, "but a label is no matter")
    assert f2("recover", case.path, "--apply").code == 0
    run(tune, case.path, "-O", "verity")
    sound(case.path)


@pytest.mark.peer
@pytest.mark.parametrize("name", ["multi-device", "sections", "zoned", "full", "checksums", "checkpoint-disabled"])
def test_volumes_of_the_kernel(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before = tree(case.path, case.extra)
    devices = [word for one in case.extra for word in ("--device", one)]
    wanted = [one for one in ("quota", "lost_found", "sb_checksum") if one not in features_of(case)]
    run(tune, case.path, "--uuid", NEW_UUID, "-L", name, *(("-O", ",".join(wanted)) if wanted else ()), *devices)
    after = tree(case.path, case.extra)
    changed = {path for path in before if before[path] != after.get(path)}
    assert all(before[path].get("ino") == ROOT_INO for path in changed)
    assert set(after) - set(before) <= {"lost+found"}
    sound(case.path, case.extra)


def features_of(case: images.Reference) -> set[str]:
    with open_volume(case.path, case.extra) as volume:
        return {name for name, bit in FEATURES.items() if volume.sb.feature & bit}


@pytest.mark.parametrize("name", ["blocks16k", "packed-ssa"])
def test_volumes_of_a_newer_kernel(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before = tree(case.path)
    run(tune, case.path, "--uuid", NEW_UUID, "-L", name, "-O", "sb_checksum,verity")
    assert tree(case.path) == before
    with open_volume(case.path) as volume:
        assert not volume.warnings
        assert_consistent(volume)


# -- rehearsals, undo, power cuts ---------------------------------------------------------------------------------

EVERYTHING = ("--uuid", NEW_UUID, "-L", "new", "-O", "!lost_found,!quota,compression,casefold", "-e", "flif")


@pytest.mark.parametrize("options", [("-L", "new"), ("-O", "quota,lost_found"), ("-O", "extra_attr,inode_checksum")])
def test_a_rehearsal_says_what_happens_and_writes_nothing(options: tuple[str, ...], copy: Path) -> None:
    before = copy.read_bytes()
    said = report(tune, copy, *options, "--dry-run")
    assert copy.read_bytes() == before
    done = report(tune, copy, *options)
    assert (said.pop("written"), done.pop("written")) == (False, True)
    assert said == done
    assert "dry run" in run(tune, copy, "-L", "other", "--dry-run")


def test_undo_gives_every_byte_back(rich: Path, tmp_path: Path) -> None:
    before = rich.read_bytes()
    run(tune, rich, *EVERYTHING, "--undo", tmp_path / "undo")
    assert rich.read_bytes() != before
    assert f2("undo", tmp_path / "undo", rich).code == 0
    assert rich.read_bytes() == before


CHANGES = {
    "label": TuneRequest(label="new"),
    "uuid": TuneRequest(uuid=bytes(range(16))),
    "off": TuneRequest(off=("quota", "inode_checksum", "flexible_inline_xattr")),
    "on": TuneRequest(on=("quota", "lost_found", "sb_checksum")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_power_may_fail_at_any_time(name: str, plain: Path, full: Path) -> None:
    base = plain if name == "on" else full
    before = tree(base)
    recorder = Recorder(Overlay(open_device(base)))
    apply(recorder, plan(Volume(recorder), CHANGES[name]))
    chance = random.Random(name)
    counts = list(range(len(recorder.events) + 1))
    for count in counts if len(counts) <= SAMPLES else sorted(chance.sample(counts, SAMPLES)):
        for lost in (False, True):
            with open_device(base) as below:
                device = Overlay(below)
                volatile = recorder.volatile(count) if lost else []
                recorder.replay(count, device, without={event for event in volatile if chance.random() < 0.5})
                choose_superblock(read_superblocks(device), device)
                WritableVolume(device).sync()
                with Volume(device) as volume:
                    assert manifest_of(volume) == {**before, **added(volume, before)}
                    wrong = [one for one in problems(volume) if not about_files_nobody_names(one)]
                    assert not wrong, (count, wrong)


def manifest_of(volume: Volume) -> dict[str, Any]:
    return placeless(manifest(volume)["entries"])


def added(volume: Volume, before: dict[str, Any]) -> dict[str, Any]:
    """/lost+found, and the root whose links it changes."""
    entries = manifest_of(volume)
    return {path: entry for path, entry in entries.items() if path not in before or entry.get("ino") == ROOT_INO}


def about_files_nobody_names(text: str) -> bool:
    """Quota files between the checkpoint that has them and the superblock that names them, or the other way round."""
    return text.endswith("(file): i_links 1, must be 0")


# -- what is shown ------------------------------------------------------------------------------------------------


def test_it_says_what_can_be_switched_and_why_not(rich: Path) -> None:
    said = run(tune, rich)
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert "can be switched" in lines["casefold"]
    assert "stays: it decides where things lie" in lines["packed_ssa"]
    assert "inodes have extra attributes" in lines["extra_attr"]
    switches = report(tune, rich)["switches"]
    assert switches.keys() == FEATURES.keys()
    assert switches["quota"] == {"on": True, "stays_because": None}


def test_an_image_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    with pytest.raises(F2fsError):
        run(tune, tmp_path / "x", "-L", "y")


def test_an_image_that_is_cut_off_is_left_alone(copy: Path) -> None:
    os.truncate(copy, copy.stat().st_size - (8 << 20))
    before = copy.read_bytes()
    for words in (("label", copy, "X"), ("tune", copy, "-L", "X"), ("tune", copy, "-U", "random", "--dry-run")):
        refused = f2(*words)
        assert (refused.code, "bytes of the volume are missing; it is not written to" in refused.err) == (8, True)
    assert copy.read_bytes() == before
    assert f2("label", copy).code == 0


@pytest.mark.parametrize("options", ["quota", "!quota", "!project_quota"])
def test_a_change_of_quotas_that_was_killed_is_made_whole_by_the_next(
    options: str, plain: Path, full: Path, tmp_path: Path
) -> None:
    """At every write of the first run: what it left is removed, and nobody is charged for it."""
    base, copy = full if options[0] == "!" else plain, tmp_path / "copy"
    on, off = ((), (options[1:],)) if options[0] == "!" else ((options,), ())
    before = tree(base)
    recorder = Recorder(Overlay(open_device(base)))
    apply(recorder, plan(Volume(recorder), TuneRequest(on=on, off=off)))
    left = 0
    for count in range(len(recorder.events) + 1):
        images.copy_sparse(base, copy)
        with open_device(copy, write=True) as device:
            recorder.replay(count, device)
        left += b"U001" in f2("fsck", copy).out
        run(tune, copy, "-O", options)
        sound(copy)
        assert tree(copy) == before
        assert (options.strip("!") in features(copy)) == bool(on)
    assert left


# -- no room --------------------------------------------------------------------------------------------------------


def test_a_full_volume_says_so_and_stays_as_it_was(copy: Path) -> None:
    volume = writable(copy)
    ino = volume.create(ROOT_INO, b"fills", 0o600, 0, 0)
    with suppress(OSError):
        for number in range(1 << 20):
            volume.write(ino, number << 12, b"fills" * 819)
    assert volume.statfs()["f_bavail"] < 8
    volume.close()
    before = copy.read_bytes()
    done = f2("tune", copy, "-O", "quota")
    assert done.code == 8
    assert done.err.startswith(f"f2tools: {copy}: no space is left in the volume")
    assert copy.read_bytes() == before
