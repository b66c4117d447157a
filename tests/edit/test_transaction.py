"""All or nothing: the image at every moment of a copy, dry runs, undo logs, what fails."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.changes.record import FLUSH, MARK, Recorder
from f2tools.dump.manifest import manifest
from f2tools.edit.cli import parse_line
from f2tools.edit.session import Session
from f2tools.edit.transaction import Edit, StagedDevice
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import Above, Ticks, fresh
from tests.power.recording import Recording

Work = Callable[[Session], None]
F2TOOLS = Path(sys.executable).parent / "f2tools"


def run(session: Session, *lines: str) -> None:
    """Lines of a script."""
    for line in lines:
        verb, given = parse_line(line, 1)
        verb.body(session, **given)


def recorded(image: Path, work: Work) -> tuple[Recorder, int]:
    """(the writes that an edit of the image comes to, in their order, how many checkpoints it took)."""
    edit = Edit(str(image), dry_run=True)
    try:
        work(Session(edit, edit.volume, str(image)))
        edit._finish()
        recorder = Recorder(Above(open_device(image)))
        edit.stages.copy(recorder, lambda _: None)
        return recorder, edit.outcome.checkpoints
    finally:
        edit.stages.release()


def test_a_device_with_stages_knows_the_holes_below_it(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(64 << 20)
        file.write(b"below")
    with open_device(tmp_path / "sparse") as below:
        stages = StagedDevice(below)
        stages.pwrite(256 << 20, b"first")
        stages.seal(0, 4096)
        stages.pwrite((512 << 20) - 5, b"second")
        ranges = list(stages.data_ranges(0, 2 << 30))
        for at in (64 << 20, 256 << 20, (512 << 20) - 5, 512 << 20):
            assert any(start <= at < start + length for start, length in ranges)
        assert sum(length for _, length in ranges) <= 32 << 20
        assert all(stages.pread(start + length, 4096) == bytes(4096) for start, length in ranges)
        low = (64 << 20) + 3
        assert list(stages.data_ranges(low, 2)) == [(low, 2)]
        assert list(stages.data_ranges(128 << 20, 1 << 20)) == []
        stages.release()


def entries(device: Any, context: str) -> dict[str, Any]:
    with Volume(Above(device)) as volume:
        assert_consistent(volume, context)
        found = manifest(volume)["entries"]
    return {path: {k: v for k, v in entry.items() if k != "extents"} for path, entry in found.items()}


def recovered(device: Any, context: str) -> dict[str, Any]:
    """The tree that a mount would show, times aside: recovery stamps directories."""
    top = Above(device)
    volume = WritableVolume(top, clock=Ticks())
    volume.sync()
    tree = entries(top, context)
    return {path: {k: v for k, v in entry.items() if not k.endswith("time_ns")} for path, entry in tree.items()}


def moments(
    image: Path, recorder: Recorder, seed: int, look: Callable[[Any, str], dict[str, Any]] = entries
) -> list[tuple[str, dict[str, Any]]]:
    """(context, tree) at every prefix, whole and with what was not flushed lost or torn."""
    with open_device(image) as device:
        main = Volume(Above(device)).geo.main_blkaddr * 4096
    recording = Recording(image, recorder, {}, main)
    chance = random.Random(seed)
    found: list[tuple[str, dict[str, Any]]] = []
    for count in range(len(recorder.events) + 1):
        if count and recorder.events[count - 1].kind in (MARK,):
            continue
        for round_ in range(3):
            device = Above(open_device(image))
            said = ""
            if round_ == 0:
                recorder.replay(count, device)
            else:
                said = recording.torn(count, device, chance)
            context = f"after {count} of {len(recorder.events)} {said}"
            found.append((context, look(device, context)))
            device.base.close()
    return found


def some_files(directory: Path) -> Path:
    """A tree that is the same each time, wherever it is tried."""
    chance = random.Random(5)
    (directory / "inside").mkdir(parents=True)
    for number in range(5):
        (directory / f"text{number}").write_bytes(chance.randbytes(chance.randrange(2_000, 30_000)))
        (directory / "inside" / f"more{number}").write_bytes(chance.randbytes(chance.randrange(7_000, 130_000)))
    return directory


def busy(tmp_path: Path) -> Work:
    """Changes of every kind, some megabytes."""
    (tmp_path / "data").write_bytes(random.Random(7).randbytes(2_500_000))

    def work(session: Session) -> None:
        run(session, "mkdir -p /new/a/b", f"cp {tmp_path}/data :/new/data")
        run(session, *(f"touch /new/a/file{n}" for n in range(120)))
        run(session, "ln /new/data /new/hard", "mv /new/a /new/c", "rm -r /new/c/b", "truncate -s 1M /new/hard")

    return work


@pytest.mark.parametrize("options", ["--size 64M", "--size 64M -O extra_attr,inode_checksum,quota -b 4096"])
def test_every_moment_of_the_copy_has_the_old_tree_or_the_new(options: str, tmp_path: Path) -> None:
    image = fresh(tmp_path, options)
    assert f2("cp", "-a", some_files(tmp_path / "files"), f"{image}:/old").code == 0
    with open_device(image) as device:
        before = entries(device, "before")
    recorder, checkpoints = recorded(image, busy(tmp_path))
    assert checkpoints == 1
    after_device = Above(open_device(image))
    recorder.replay(len(recorder.events), after_device)
    after = entries(after_device, "after")
    assert "new/hard" in after
    seen = {"old": 0, "new": 0}
    for context, tree in moments(image, recorder, 1):
        assert tree in (before, after), context
        seen["new" if tree == after else "old"] += 1
    assert seen["old"] > 10
    assert seen["new"] >= 3
    assert [event.kind for event in recorder.events[-3:]] == [FLUSH, "write", FLUSH]


@pytest.mark.parametrize("name", ["crash-several", "crash-new-file", "crash-orphan", "crash-stress-2"])
def test_what_was_fsynced_before_a_crash_is_there_at_every_moment(name: str, tmp_path: Path) -> None:
    image = images.reference(name).copy(tmp_path).path
    with open_device(image) as device:
        before = recovered(device, "before")
    work = "mkdir -p /new/a", f"cp -r {some_files(tmp_path / 'files')} :/new/b", "touch /new/a/x"
    recorder, checkpoints = recorded(image, lambda session: run(session, *work))
    assert checkpoints >= 2
    device = Above(open_device(image))
    recorder.replay(len(recorder.events), device)
    after = recovered(device, "after")
    assert before.keys() < after.keys()
    for context, tree in moments(image, recorder, 3, recovered):
        assert tree in (before, after), context


def test_a_crowded_volume_is_sound_at_every_moment(tmp_path: Path) -> None:
    """Here cleaning and checkpoints come in between: stages, of which each leaves a sound volume."""
    image = fresh(tmp_path, "--size 64M")
    room = int(json.loads(f2("dump", "info", "--json", image).out).get("free_bytes", 0)) or _room(image)
    piece = tmp_path / "piece"
    piece.write_bytes(random.Random(1).randbytes(room // 10))
    for n in range(9):
        assert f2("cp", piece, f"{image}:/file{n}").code == 0
    with open_device(image) as device:
        before = entries(device, "before")

    def work(session: Session) -> None:
        for turn, n in itertools.product(range(2), range(8)):
            run(session, f"cp {piece} :/file{n}", f"setfattr -n user.turn -v {turn} /file{n}")

    recorder, checkpoints = recorded(image, work)
    assert checkpoints > 1
    for context, tree in moments(image, recorder, 2):
        assert tree["file8"] == before["file8"], context
        assert tree.keys() == before.keys(), context


def _room(image: Path) -> int:
    with open_device(image) as device:
        return Volume(Above(device)).statfs()["f_bavail"] * 4096


SCRIPTS = {
    "missing": ["mkdir /a", "rm /nope"],
    "exists": ["mkdir /a", "mkdir /a"],
    "not empty": ["mkdir -p /a/b", "rmdir /a"],
    "into itself": ["mkdir -p /a/b", "mv /a /a/b/c"],
    "copy into itself": ["mkdir -p /a/b", "cp -r :/a /a/b/c"],
    "itself": ["touch /a", "cp :/a /a"],
    "no directory": ["touch /a", "touch /a/b"],
    "a directory": ["mkdir /a", "rm /a"],
    "a directory is in the way": ["mkdir -p /d/passwd", "cp /etc/passwd :/d"],
    "a loop": ["ln -s b /a", "ln -s a /b", "chmod 644 /a"],
    "the root": ["touch /a", "rm -r /"],
    "a long name": [f"touch /{'x' * 256}"],
    "a large file": ["truncate -s 100T /a"],
    "a large attribute": ["touch /a", f"setfattr -n user.x -v {'x' * 5000} /a"],
    "no such name space": ["touch /a", "setfattr -n system.nonsense -v x /a"],
    "no attribute": ["touch /a", "setfattr -x user.x /a"],
    "immutable": ["touch /a", "chattr +i /a", "rm /a"],
    "no projects": ["touch /a", "chattr -p 5 /a"],
    "no casefold": ["mkdir /a", "chattr +F /a"],
    "host": ["cp /nope/nope :/"],
    "a host directory": ["cp /etc :/"],
    "an image that is none": ["cp /etc/passwd:/x :/"] ,
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_fails_says_where_and_leaves_the_image_byte_for_byte(name: str, tmp_path: Path) -> None:
    image = fresh(tmp_path)
    before = image.read_bytes()
    words = [word for line in SCRIPTS[name] for word in ("-c", line)]
    result = f2("edit", image, *words)
    assert result.code in (1, 2, 8)
    assert f"line {len(SCRIPTS[name])}: " in result.err
    assert "nothing was changed" in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert image.read_bytes() == before


def test_what_a_volume_lacks_is_said_with_the_command_that_adds_it(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    for words, feature in (
        (["-p", "5"], "extra_attr,project_quota"), (["+F"], "casefold"), (["+c"], "extra_attr,compression"),
    ):  # fmt: skip
        assert f"f2tools tune {image} -O {feature}" in f2("chattr", *words, f"{image}:/").err


def test_an_undo_log_is_made_only_when_all_has_succeeded(tmp_path: Path) -> None:
    image, log = fresh(tmp_path), tmp_path / "undo"
    before = image.read_bytes()
    assert f2("rm", f"{image}:/nope", "--undo", log).code == 1
    assert not log.exists()
    assert f2("mkdir", f"{image}:/a", "--undo", log, "--dry-run").code == 0
    assert not log.exists()
    assert f2("mkdir", f"{image}:/a", "--undo", log).code == 0
    again = f2("mkdir", f"{image}:/b", "--undo", log)
    assert again.code == 1
    assert "already" in again.err
    assert f2("undo", log, image).code == 0
    assert image.read_bytes() == before


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    before = image.read_bytes()
    for words in (("rm", "-f", f"{image}:/nope"), ("touch", "-c", f"{image}:/nope"), ("edit", image, "-c", "# none")):
        result = f2(*words, "--json")
        assert result.code == 0, result.err
        report = json.loads(result.out)
        assert not report["written"]
        assert report["changes"] == []
    assert image.read_bytes() == before


def test_the_same_time_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    files, one, other = some_files(tmp_path / "files"), fresh(tmp_path / "1"), fresh(tmp_path / "2")
    for image in (one, other):
        assert f2("cp", "-r", files, f"{image}:/").code == 0
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.peer
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Also while the image is being written, which takes some time here."""
    image = fresh(tmp_path, "--size 256M")
    data = tmp_path / "data"
    data.mkdir()
    for n in range(6):
        (data / str(n)).write_bytes(random.Random(n).randbytes(12 << 20))
    wanted = {f"data{tail}" for tail in ("", *(f"/{n}" for n in range(6)))}
    chance = random.Random(11)
    began = time.monotonic()
    subprocess.run([F2TOOLS, "cp", "-r", data, f"{image}:/"], check=True)
    whole = time.monotonic() - began
    assert f2("rm", "-r", f"{image}:/data").code == 0
    for _ in range(8):
        process = subprocess.Popen([F2TOOLS, "cp", "-r", data, f"{image}:/"])
        time.sleep(whole * (0.3 + 0.7 * chance.random()))
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open_device(image) as device:
            names = entries(device, "killed").keys() - {"."}
        assert names in (set(), wanted)
        judges.fsck_clean(image)
        if names:
            assert f2("rm", "-r", f"{image}:/data").code == 0


def test_what_can_not_be_written_to(tmp_path: Path) -> None:
    read_only = fresh(tmp_path, "--size 64M -O ro")
    result = f2("mkdir", f"{read_only}:/a")
    assert result.code == 1
    assert "feature ro" in result.err
    for name in images.SPARSE[:1]:
        sparse = images.reference(name).path
        assert f2("mkdir", f"{sparse}:/a").code == 1
        assert f2("mkdir", f"{sparse}:/a", "--dry-run").code == 0
    (tmp_path / "text").write_text("no image")
    assert f2("mkdir", f"{tmp_path / 'text'}:/a").code == 8
    assert f2("mkdir", f"{tmp_path}:/a").code == 8
    assert f2("mkdir", f"{tmp_path / 'nope'}:/a").code == 8


@pytest.mark.peer
def test_a_volume_on_several_devices(tmp_path: Path) -> None:
    case = next(images.reference(n) for n in images.CLEAN if len(images.reference(n).devices) > 1).copy(tmp_path)
    more = [word for path in case.extra for word in ("--device", path)]
    before = [path.read_bytes() for path in case.devices]
    assert f2("cp", "-r", Path(__file__).parent, f"{case.path}:/copied", *more, "--undo", tmp_path / "undo").code == 0
    judges.fsck_clean(*case.devices)
    assert f2("mkdir", f"{case.path}:/b").code == 2, "the others must be named"
    assert [path.read_bytes() for path in case.devices] != before
    assert f2("undo", tmp_path / "undo", case.path, *more).code == 0
    assert [path.read_bytes() for path in case.devices] == before
