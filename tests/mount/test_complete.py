"""The image of a mount as others find it: complete after the unmount, fresh while it is mounted."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.media import mounted as device_mounted
from f2tools.device.media.mounted import Mount, mark_mounted
from f2tools.errors import F2fsError
from f2tools.fuse import status
from f2tools.mount import unmount
from f2tools.mount.unmount import _let_go
from tests.f2fs.write.volumes import fresh, judge, reading
from tests.mount.mounted import both_servers, mounted, need_fuse, need_namespaces
from tests.mount.test_mount import f2tools

PATIENCE = 60.0


def names(image: Path, directory: str = "/") -> list[str]:
    with reading(image) as volume:
        return sorted(os.fsdecode(file.path or b"").rpartition("/")[2] for file in volume.path(directory).iterdir())


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def statistics(directory: Path) -> dict[str, object]:
    done = f2tools("mount", "--stats", "--json", directory)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.fixture
def mount_in_background() -> Iterator[Callable[..., None]]:
    """Mounts an image on a directory; what a test that failed has left mounted is taken away."""
    need_fuse()
    directories: list[Path] = []

    def mount(image: Path, directory: Path, *options: str) -> None:
        directory.mkdir(exist_ok=True)
        directories.append(directory)
        done = f2tools("mount", *options, image, directory)
        assert done.returncode == 0, done

    yield mount
    for directory in directories:
        if os.fsencode(directory) in Path("/proc/self/mountinfo").read_bytes():
            subprocess.run(["fusermount3", "-u", "-z", directory], check=False)


def can_lease(directory: Path) -> bool:
    """Whether the file system of the tests has leases."""
    with (directory / "leased").open("w+b") as file:
        try:
            fcntl.fcntl(file.fileno(), fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            return False
        fcntl.fcntl(file.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


@pytest.fixture
def leases(tmp_path: Path) -> None:
    if not can_lease(tmp_path):
        pytest.skip("the file system below the temporary directory has no leases")


@pytest.mark.usefixtures("leases")
def test_a_copy_made_right_after_the_unmount_is_complete(
    tmp_path: Path, mount_in_background: Callable[..., None]
) -> None:
    image, directory, copy = fresh(tmp_path), tmp_path / "mnt", tmp_path / "copy"
    mount_in_background(image, directory)
    for number in range(40):
        (directory / f"file-{number}").write_bytes(os.urandom(20_000))
    wanted = sorted(os.listdir(directory))
    pid = statistics(directory)["pid"]
    assert isinstance(pid, int)
    subprocess.run(["sync", "-f", directory], check=True)
    os.kill(pid, signal.SIGSTOP)  # so that the copy begins before the last checkpoint, however busy the machine
    try:
        subprocess.run(["fusermount3", "-u", directory], check=True)
        copying = subprocess.Popen(["cp", image, copy])
        time.sleep(0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert copying.wait(PATIENCE) == 0
    assert names(copy) == wanted
    judge(copy)
    judge(image)


@pytest.mark.usefixtures("leases")
def test_a_copy_made_while_it_is_mounted_shows_what_was_written_until_then(tmp_path: Path) -> None:
    image, copy = fresh(tmp_path), tmp_path / "copy"
    with mounted(image, tmp_path / "mnt", "-o", "commit=3600") as mount:
        for number in range(3):
            (mount.directory / f"file-{number}").write_bytes(bytes(50_000))
            with (mount.directory / f"open-{number}").open("wb", buffering=0) as file:
                file.write(b"written")
                shutil.copyfile(image, copy)
                assert len(names(copy)) == 2 * number + 2
                with reading(copy) as volume:
                    assert volume.path(f"/open-{number}").read() == b"written"
    judge(image)


@pytest.mark.usefixtures("leases")
def test_a_command_of_f2tools_sees_a_mounted_image_as_it_is_now(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", "-o", "commit=3600") as mount:
        (mount.directory / "file").write_text("here")
        assert f2tools("dump", "ls", image, "/").stdout.split() == ["file"]
        assert f2tools("dump", "cat", image, "/file").stdout == "here"
    judge(image)


@pytest.mark.usefixtures("leases")
def test_who_opens_an_image_before_its_mount_has_answered_says_that_it_may_be_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device_mounted, "lease_seconds", lambda: 0.2)
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt") as mount:
        (mount.directory / "file").write_bytes(bytes(100_000))
        os.kill(mount.process.pid, signal.SIGSTOP)
        later = threading.Timer(1.0, os.kill, [mount.process.pid, signal.SIGCONT])
        later.start()
        open_device(image).close()
        later.join()
    assert "does not answer; what it has not made safe is not seen" in capsys.readouterr().err


def test_an_image_that_can_not_be_leased_is_complete_once_nothing_is_open(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with image.open("rb") as other:  # nobody gets a lease on what somebody else has open
        with mounted(image, tmp_path / "mnt", "-o", "commit=3600") as mount:
            shutil.copytree(
                Path(__file__).parent, mount.directory / "tree", ignore=shutil.ignore_patterns("__pycache__")
            )
            wanted = sorted(os.listdir(mount.directory / "tree"))
            copy = tmp_path / "copy"

            def is_there() -> bool:
                other.seek(0)
                with copy.open("wb") as file:
                    shutil.copyfileobj(other, file)
                return names(copy) == ["tree"]

            until(is_there)
            assert names(copy, "/tree") == wanted
        judge(image)


def test_what_was_written_without_fsync_is_safe_after_the_time_given(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", "-o", "commit=1") as mount, (mount.directory / "file").open("wb") as file:
        file.write(bytes(100_000))
        file.flush()
        until(lambda: statistics(mount.directory)["checkpoints"] != 0)
        mount.kill()
    with reading(image) as volume:
        assert volume.path("/file").read() == bytes(100_000)


def test_fsync_of_the_directory_makes_everything_safe(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", "-o", "commit=3600") as mount:
        (mount.directory / "file").write_bytes(bytes(100_000))
        subprocess.run(["sync", mount.directory], check=True)
        mount.kill()
    with reading(image) as volume:
        assert volume.path("/file").read() == bytes(100_000)


@both_servers
def test_a_program_that_hangs_is_named_and_never_waited_for_in_silence(
    tmp_path: Path, mount_in_background: Callable[..., None], monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    image, directory, link = fresh(tmp_path), tmp_path / "mnt", tmp_path / "link"
    mount_in_background(image, directory, "--server", server)
    link.symlink_to("mnt")
    pid = statistics(directory)["pid"]
    assert isinstance(pid, int)
    said: list[str] = []

    def go_on(text: str) -> None:
        said.append(text)
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(unmount, "SAID_AFTER_SECONDS", 0.2)
    monkeypatch.setattr(status, "ASK_SECONDS", 0.2)
    try:
        for what in (directory, f"{link}/", image):
            with pytest.raises(F2fsError, match=f"process {pid}, does not answer"):
                status.ask(str(what))
        done = f2tools("mount", image, link)
        assert (done.returncode, "is mounted there already" in done.stderr) == (8, True), done
        unmount.unmount(str(link), go_on)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert said == [f"{directory}: unmounted; its program, process {pid}, is not done yet; waiting for"
                    " that"]  # fmt: skip
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    judge(image)


def test_an_image_that_is_mounted_more_than_once_is_not_unmounted_by_its_name(
    tmp_path: Path, mount_in_background: Callable[..., None]
) -> None:
    image, places = fresh(tmp_path), [tmp_path / "one", tmp_path / "two"]
    for place in places:
        mount_in_background(image, place, "-o", "ro")
    for command in (["umount", image], ["mount", "--stats", image]):
        done = f2tools(*command)
        assert (done.returncode, f"mounted on {places[0]} and {places[1]}; name" in done.stderr) == (8, True), done
    assert f2tools("umount", places[0]).returncode == 0
    assert json.loads(f2tools("mount", "--stats", "--json", image).stdout)["directory"] == str(places[1])
    assert f2tools("umount", image).returncode == 0


# -- f2tools umount -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_image", [False, True])
def test_umount_returns_when_all_is_on_the_disk(
    tmp_path: Path, mount_in_background: Callable[..., None], by_image: bool
) -> None:
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    with image.open("rb") as other:  # so that a lease does not help
        mount_in_background(image, directory, "-o", "commit=3600")
        (directory / "file").write_bytes(bytes(100_000))
        pid = statistics(directory)["pid"]
        done = f2tools("umount", image if by_image else directory)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        content = other.read()
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    assert names(copy) == ["file"]
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    judge(image)


def test_umount_says_what_keeps_it_from_its_work(tmp_path: Path, mount_in_background: Callable[..., None]) -> None:
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    mount_in_background(image, directory)
    with (directory / "file").open("w"):
        done = f2tools("umount", directory)
        assert done.returncode == 8
        assert "still in use" in done.stderr
    (directory / "file").write_text("on it goes")
    assert f2tools("umount", directory).returncode == 0
    for what in (directory, image, tmp_path / "nothing"):
        done = f2tools("umount", what)
        assert done.returncode == 8
        assert "nothing that f2tools has mounted" in done.stderr
    judge(image)


@pytest.mark.xdist_group("namespaces")  # one made meanwhile has a copy of every mount
def test_umount_takes_any_name_of_the_image_and_says_what_a_lazy_one_waits_for(
    tmp_path: Path, mount_in_background: Callable[..., None]
) -> None:
    image, directory, renamed = fresh(tmp_path), tmp_path / "mnt", tmp_path / "renamed"
    mount_in_background(image, directory)
    (tmp_path / "link").hardlink_to(image)
    assert f2tools("umount", tmp_path / "link").returncode == 0
    mount_in_background(image, directory)
    (tmp_path / "link").unlink()
    image.rename(renamed)
    assert f2tools("umount", renamed).returncode == 0
    mount_in_background(renamed, directory)
    with (directory / "file").open("w"):
        subprocess.run(["fusermount3", "-u", "-z", directory], check=True)
        for command in (["umount", renamed], ["mkdir", f"{renamed}:/a"]):
            done = f2tools(*command)
            assert (done.returncode, "unmounted lazily" in done.stderr) == (8, True), done.stderr
    judge(renamed)


def test_umount_does_not_call_a_mount_that_was_killed_complete(
    tmp_path: Path, mount_in_background: Callable[..., None]
) -> None:
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    mount_in_background(image, directory, "-o", "commit=3600")
    (directory / "file").write_text("lost")
    pid = statistics(directory)["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGSTOP)  # it takes the connection, and then ends without a word
    umount = subprocess.Popen(["f2tools", "umount", directory], stderr=subprocess.PIPE, text=True)
    until(lambda: os.fsencode(directory) not in Path("/proc/self/mountinfo").read_bytes())
    os.kill(pid, signal.SIGKILL)
    said = umount.communicate(timeout=PATIENCE)[1]
    assert umount.returncode == 8
    assert "ended without a word" in said
    judge(image)


def test_an_image_without_a_mount_is_not_waited_for(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with image.open("r+b") as file:  # the mark of a mount that is just ending
        mark_mounted(file.fileno())
        looking = subprocess.Popen(["f2tools", "dump", "ls", image, "/"], stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        assert looking.poll() is None
    assert looking.wait(PATIENCE) == 0


def test_umount_says_who_can_unmount_what_another_user_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "fusermount3"
    tool.write_text('#!/bin/sh\necho "$0: entry for $3 not found in /etc/mtab" >&2\nexit 1\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(F2fsError, match="/mnt: mounted by another user"):
        _let_go("/mnt")


@pytest.mark.xdist_group("namespaces")  # one made meanwhile has a copy of every mount
def test_umount_says_who_keeps_a_mount_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_fuse()
    need_namespaces("who has a copy of a mount")
    image = fresh(tmp_path)
    (tmp_path / "mnt").mkdir()
    subprocess.run(["f2tools", "mount", image, tmp_path / "mnt"], check=True)
    (tmp_path / "mnt" / "file").write_text("content")
    other = subprocess.Popen(["unshare", "--mount", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    monkeypatch.setattr(unmount, "SAID_AFTER_SECONDS", 0.5)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        other.kill()
        other.wait()

    unmount.unmount(str(tmp_path / "mnt"), say)
    assert len(said) == 1
    assert f"process {other.pid} (s" in said[0]
    assert "copy of the mount" in said[0]
    other.stdout.close()
    assert names(image) == ["file"]
    judge(image)


def test_umount_waits_for_who_is_gone_in_a_moment(tmp_path: Path, mount_in_background: Callable[..., None]) -> None:
    mount_in_background(fresh(tmp_path), directory := tmp_path / "mnt")
    file = (directory / "file").open("w")
    with pytest.raises(F2fsError, match="still in use"):
        unmount.unmount(str(directory), print)
    gone = threading.Timer(0.3, file.close)
    gone.start()
    unmount.unmount(str(directory), print)
    gone.join()
    assert not os.path.ismount(directory)


def test_umount_gives_up_on_a_program_that_does_not_end_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmount, "SAID_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(unmount, "END_SECONDS", 0.01)
    here, there = socket.socketpair()
    said: list[str] = []
    with here, there, pytest.raises(F2fsError, match=f"its program, process {os.getpid()}, is still at work"):
        unmount._wait(Mount("0:0", "/mnt", "fuse.f2tools", "card.img"), here, said.append)
    assert len(said) == 1
    assert f"unmounted; its program, process {os.getpid()}, is not done yet" in said[0]
