"""A mounted volume, held against a file system of the host, and what is left when it ends, by itself or not.

After each, both checkers must be silent.  F2_SUITE_FACTOR, which `make nightly` sets, multiplies what is done.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.base import Wrapper
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import F2FS_APPEND_FL, F2FS_IMMUTABLE_FL, F2FS_PROJINHERIT_FL
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fuse.needed import what_is_missing
from f2tools.mount import session as mount_session
from f2tools.mount.options import MountOptions, parse_options
from tests.f2fs.write.volumes import FULL, fresh, judge, reading, writable
from tests.fsck import lost_writes
from tests.images import copy_sparse
from tests.judges import missing_judge
from tests.mount.mounted import FOR_USER, USER, as_user, both_servers, mounted, need_fuse
from tests.test_json import ROWS

FACTOR = int(os.environ.get("F2_SUITE_FACTOR", "1"))
F2TOOLS = str(Path(sys.executable).parent / "f2tools")


def f2tools(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([F2TOOLS, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


# -- beside a file system of the host -------------------------------------------------------------------------------


class Pair:
    """The same change to two directories; both must answer alike."""

    def __init__(self, ours: Path, host: Path, seed: int) -> None:
        self.directories = ours, host
        self.chance = random.Random(seed)
        self.names = [f"{directory}n{number}" for directory in ("", "a/", "a/b/") for number in range(8)] + [
            "a",
            "a/b",
            "c",
        ]

    def both(self, change: Any) -> None:
        said: list[Any] = []
        for directory in self.directories:
            try:
                said.append(change(directory))
            except OSError as error:
                said.append(errno.errorcode.get(error.errno or 0))
        assert said[0] == said[1], said

    def step(self) -> None:
        chance = self.chance
        name, other = chance.choice(self.names), chance.choice(self.names)
        data = chance.randbytes(chance.choice((1, 100, 3000, 4096, 10000, 70000)))
        offset = chance.choice((0, 1, 4095, 4096, 30000, 500000))
        value = bytes(chance.choice((1, 200, 2000)))
        change = chance.choice((
            lambda top: os.mkdir(top / name),
            lambda top: (top / name).write_bytes(data) and None,
            lambda top: write_at(top / name, offset, data),
            lambda top: write_at(top / name, offset, data),
            lambda top: append(top / name, data),
            lambda top: os.truncate(top / name, offset),
            lambda top: os.unlink(top / name),
            lambda top: os.rmdir(top / name),
            lambda top: os.rename(top / name, top / other),
            lambda top: os.link(top / name, top / other, follow_symlinks=False),
            lambda top: os.symlink("n1", top / name),
            lambda top: os.chmod(top / name, 0o640),
            lambda top: os.utime(top / name, ns=(10**18 + offset, 10**18 - offset)),
            lambda top: os.setxattr(top / name, "user.test", value[:200]),
            lambda top: os.removexattr(top / name, "user.test"),
            lambda top: read_mapped(top / name),
            lambda top: sorted(os.listdir(top / name)),
        ))  # fmt: skip
        self.both(change)


def write_at(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        file.write(data)


def append(path: Path, data: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(data)


def read_mapped(path: Path) -> bytes:
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            return bytes(view)


def told(top: Path) -> dict[str, Any]:
    """Everything below a directory, as system calls tell it."""
    tree: dict[str, Any] = {}
    for directory, directories, files in os.walk(top):
        for name in directories + files:
            path = Path(directory, name)
            stat = path.lstat()
            content: Any = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            size = stat.st_size if not path.is_dir() else None
            links = stat.st_nlink if not path.is_dir() else None
            listed = [] if path.is_symlink() else os.listxattr(path)
            names = {name: os.getxattr(path, name) for name in listed if name.startswith("user.")}
            tree[str(path.relative_to(top))] = (stat.st_mode, size, links, content, names)
    return tree


@pytest.mark.parametrize(
    ("options", "server"),
    [
        ("--size 64M", "pyfuse3"),
        ("--size 64M -O extra_attr,inode_checksum,compression", "pyfuse3"),
        ("--size 64M -O extra_attr,inode_checksum,compression", "direct"),
    ],
)
def test_it_does_what_a_file_system_of_the_host_does(tmp_path: Path, options: str, server: str) -> None:
    image, host = fresh(tmp_path, options), tmp_path / "host"
    host.mkdir()
    for session in range(2):
        with mounted(image, tmp_path / "mnt", server=server) as mount:
            pair = Pair(mount.directory, host, session)
            for _ in range(350 * FACTOR):
                pair.step()
            assert told(mount.directory) == told(host)
        judge(image)
    with mounted(image, tmp_path / "mnt", "-o", "ro", server=server) as mount:
        assert told(mount.directory) == told(host)


@both_servers
def test_listing_goes_on_while_entries_come_and_go(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        directory = mount.directory / "many"
        directory.mkdir()
        stay = {f"stays-{number:04}" for number in range(600)}
        for name in stay:
            (directory / name).touch()
            (directory / f"goes-{name}").touch()
        seen: list[str] = []
        for number, entry in enumerate(os.scandir(directory)):
            seen.append(entry.name)
            if entry.name.startswith("goes-"):
                os.unlink(entry.path)
            (directory / f"new-{number:05}").touch()
            if number > 5000:
                break
        assert len(seen) == len(set(seen))
        assert stay <= set(seen)
    judge(image)


@both_servers
def test_a_file_without_a_name_lives_as_long_as_it_is_open(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        free = os.statvfs(mount.directory).f_bfree
        with open(mount.directory / "file", "w+b", buffering=0) as file:
            file.write(bytes(1 << 20))
            os.unlink(mount.directory / "file")
            file.write(b"more")
            file.seek(1 << 20)
            assert file.read() == b"more"
            assert os.fstat(file.fileno()).st_nlink == 0
            os.sync()
        deadline = time.monotonic() + 20
        while os.statvfs(mount.directory).f_bfree < free - 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    judge(image)


@both_servers
def test_times_stay_what_they_were_when_a_cache_is_written_back_later(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path, "--size 64M")
    shown: list[dict[str, tuple[int, int]]] = []
    for _ in range(2):
        with mounted(image, tmp_path / "m", server=server) as mount:
            if not shown:
                for number in range(20):
                    (mount.directory / f"w{number}").write_bytes(b"x" * 5000 * (number + 1))
                    os.utime(mount.directory / f"w{number}", ns=(10**18, 10**18 + number)) if number % 2 else None
                with (mount.directory / "mapped").open("w+b") as file:
                    file.truncate(1 << 20)
                    with mmap.mmap(file.fileno(), 0) as view:
                        view[:] = b"y" * (1 << 20)
                time.sleep(0.05)
            shown.append({p.name: (p.stat().st_mtime_ns, p.stat().st_ctime_ns) for p in mount.directory.iterdir()})
    assert shown[0] == shown[1]
    judge(image)


@both_servers
def test_with_strictatime_each_reading_of_a_file_is_noted(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path, "--size 64M")
    with mounted(image, tmp_path / "m", "-o", "strictatime", server=server) as mount:
        path = mount.directory / "file"
        path.write_bytes(b"x" * 5000)
        for _ in range(2):  # the second time the kernel has its pages
            os.utime(path, ns=(10**18, 10**18))
            path.read_bytes()
            assert path.stat().st_atime_ns > 10**18
    judge(image)


@both_servers
def test_flags_that_the_kernel_can_not_see_are_obeyed(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        for name, flag in ((b"fixed", F2FS_IMMUTABLE_FL), (b"log", F2FS_APPEND_FL)):
            ino = volume.create(3, name, 0o644)
            volume.write(ino, 0, b"old")
            volume.set_flags(ino, flag)
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        fixed, log = mount.directory / "fixed", mount.directory / "log"
        for refused in (
            lambda: fixed.open("ab"),
            lambda: fixed.chmod(0o600),
            lambda: fixed.unlink(),
            lambda: os.link(fixed, mount.directory / "other"),
            lambda: log.open("r+b"),
            lambda: log.write_bytes(b"new"),
            lambda: log.rename(mount.directory / "other"),
        ):
            with pytest.raises(PermissionError):
                refused()
        append(log, b" and new")
        assert log.read_bytes() == b"old and new"
        assert fixed.read_bytes() == b"old"
    judge(image)


@both_servers
def test_a_program_that_runs_is_not_emptied_below_itself(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        program = mount.directory / "program"
        shutil.copyfile(shutil.which("sleep") or "/bin/sleep", program)
        program.chmod(0o755)
        running = subprocess.Popen([program, "60"])
        try:
            for flags in (os.O_RDONLY | os.O_TRUNC, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
                with pytest.raises(OSError, match="Text file busy"):
                    os.close(os.open(program, flags))
            assert running.poll() is None
            assert program.stat().st_size
        finally:
            running.kill()
            running.wait()
        deadline = time.monotonic() + 30
        while True:  # the kernel tells a moment later that the program ended
            try:
                os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert not program.stat().st_size
    judge(image)


@both_servers
def test_a_handle_leads_to_its_file_after_the_kernel_forgot_it(tmp_path: Path, server: str) -> None:
    if os.geteuid():
        missing_judge("only root may open by handle", "whether handles of files outlive caches")
    image = fresh(tmp_path)
    libc = ctypes.CDLL(None, use_errno=True)
    handles: dict[str, Any] = {}
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        (mount.directory / "folder").mkdir()
        for name in ("folder/file", "gone", "folder"):
            (mount.directory / name).touch()
            handles[name] = handle = (ctypes.c_uint * 34)(128)
            path = os.fsencode(mount.directory / name)
            assert libc.name_to_handle_at(-100, path, handle, ctypes.byref(ctypes.c_int()), 0) == 0
        (mount.directory / "folder" / "file").write_bytes(b"content")
        (mount.directory / "gone").unlink()
        Path("/proc/sys/vm/drop_caches").write_text("2")
        top = os.open(mount.directory, os.O_RDONLY)
        fd = libc.open_by_handle_at(top, handles["folder/file"], os.O_RDONLY)
        assert os.read(fd, 100) == b"content", ctypes.get_errno()
        directory = libc.open_by_handle_at(top, handles["folder"], os.O_RDONLY)
        assert os.listdir(directory) == ["file"]
        assert libc.open_by_handle_at(top, handles["gone"], os.O_RDONLY) == -1
        assert ctypes.get_errno() == errno.ESTALE
        for number in (fd, directory, top):
            os.close(number)
        assert not mount.said()
    judge(image)


def write_as(who: int, path: Path, flags: int) -> None:
    """Write to a file as another user."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.chdir(path.parent)
            os.setgroups([])
            os.setgid(who)
            os.setuid(who)
            os.write(os.open(path.name, flags), b"new")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_write_by_others_takes_privileges_away_at_once(tmp_path: Path) -> None:
    if os.geteuid():
        missing_judge("only root can write as somebody else", "who is told that set-user-ID bits are gone")
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", "-o", "allow_other") as mount:
        path = mount.directory / "file"
        path.touch()
        os.chown(path, 65534, 65534)
        for flags in (os.O_WRONLY, os.O_WRONLY | os.O_TRUNC):
            path.chmod(0o6755)
            write_as(65534, path, flags)
            shown = subprocess.run(["stat", "-c", "%a", path], capture_output=True, text=True, check=True)
            assert shown.stdout == "755\n"  # stat(1) asks for the mode alone
    judge(image)


@both_servers
def test_set_group_id_without_execute_goes_with_a_write_by_a_stranger(tmp_path: Path, server: str) -> None:
    """As on ext4: by whatever changes the content, and not by somebody of the group."""
    if os.geteuid():
        missing_judge("only root can write as somebody else", "who is told that set-group-ID bits are gone")
    changes = ["echo x >> {}", "echo x > {}", "truncate -s 1 {}"]
    if server == "direct":
        changes.append("fallocate -l 100 {}")
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", "-o", "allow_other", server=server) as mount:
        path = mount.directory / "file"
        for group, mode, left in (
            (2000, "2767", "767"), (2000, "6767", "767"), (65534, "6767", "2767"), (65534, "6777", "777"),
        ):  # fmt: skip
            for change in changes:
                path.write_bytes(b"abc")
                os.chown(path, 65534, group)
                path.chmod(int(mode, 8))
                line = f"exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{change.format(path.name)}'"
                subprocess.run(["sh", "-c", line], cwd=mount.directory, check=True)
                shown = subprocess.run(["stat", "-c", "%a", path], capture_output=True, text=True, check=True)
                assert shown.stdout == f"{left}\n", (change, mode, group)
    judge(image)


@both_servers
def test_a_casefolded_directory_takes_any_spelling(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path, "--size 64M -C utf8 -O casefold")
    with writable(image) as volume:
        volume.set_flags(volume.mkdir(3, b"folded", 0o755), 0x40000000)
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        directory = mount.directory / "folded"
        assert not (directory / "straße").exists()
        (directory / "Straße").write_text("one")
        assert (directory / "STRASSE").read_text() == "one"
        (directory / "STRASSE").unlink()
        assert not (directory / "Straße").exists()
        assert os.listdir(directory) == []
    judge(image)


# -- the end, foreseen and not --------------------------------------------------------------------------------------

SYNCING = """
import os, random, sys
directory, log, seed = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), int(sys.argv[3])
chance = random.Random(seed)
for number in range(100000):
    name = f"file-{chance.randrange(40)}"
    data = bytes([number % 251]) * chance.choice((10, 3000, 5000, 70000))
    fd = os.open(os.path.join(directory, name + ".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(os.path.join(directory, name + ".new"), os.path.join(directory, name))
    if chance.random() < 0.5:
        fd = os.open(os.path.join(directory, name), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        os.write(log, f"{name} {number % 251} {len(data)}\\n".encode())
"""


def test_what_was_synced_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    need_fuse()
    image, log = fresh(tmp_path), tmp_path / "promised"
    chance = random.Random(FACTOR)
    for number in range(4 * FACTOR):
        with mounted(image, tmp_path / "mnt") as mount:
            command = [sys.executable, "-c", SYNCING, str(mount.directory), str(log), str(number)]
            writer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while not log.exists() or log.stat().st_size < chance.randrange(200, 1500):
                assert time.monotonic() < deadline
                assert writer.poll() is None
                time.sleep(0.01)
            mount.kill()
            writer.wait()
        promised: dict[str, list[tuple[int, int]]] = {}
        for line in log.read_text().splitlines():
            name, value, length = line.split()
            promised.setdefault(name, []).append((int(value), int(length)))
        log.unlink()
        torn = "checkpoint pack "  # where the kill came while one was written
        with mounted(image, tmp_path / "mnt", "-o", "ro", may_say=torn) as mount:
            shown = {
                path.name: path.read_bytes() for path in mount.directory.iterdir() if not path.name.endswith(".new")
            }
        with mounted(image, tmp_path / "mnt", may_say=torn) as mount:
            for name, versions in promised.items():  # a later one may have got there, but a whole one
                data = (mount.directory / name).read_bytes()
                assert data == shown[name]
                assert data == data[:1] * len(data)
                assert (data[0], len(data)) not in set(versions[:-1]) - {versions[-1]}
                assert len(data) in (10, 3000, 5000, 70000)
        judge(image)


def _written(path: Path, data: bytes) -> OSError | None:
    """Why the file could not be written and made safe, if so."""
    try:
        with open(path, "wb") as file:  # buffered: what write() does not take at once is tried again
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def test_a_full_volume_says_so_and_can_be_filled_again(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 96M")
    block = os.urandom(1 << 18)
    with mounted(image, tmp_path / "mnt") as mount:
        kept: list[int] = []
        for _ in range(2):
            written = 0
            while (failure := _written(mount.directory / f"file-{written:03}", block)) is None:
                written += 1
            assert failure.errno == errno.ENOSPC
            for number in range(written):
                assert (mount.directory / f"file-{number:03}").read_bytes() == block
            kept.append(written)
            for path in mount.directory.iterdir():
                path.unlink()
        assert kept[0] > 40
        assert kept[1] >= kept[0] - 4, kept
    judge(image)


FILLING = """
import errno, hashlib, os, random, sys
directory, chance = sys.argv[1], random.Random(int(sys.argv[2]))
promised, refused = {}, set()
for number in range(400):
    name = f"{sys.argv[2]}-{chance.randrange(90)}"
    path = os.path.join(directory, name)
    if chance.random() < 0.2:
        if os.path.exists(path):
            os.unlink(path)
        promised.pop(name, None)
        continue
    data = chance.randbytes(chance.choice((100, 5000, 30000, 300000, 900000)))
    promised.pop(name, None)
    try:
        with open(path, "wb", buffering=0) as file:
            assert file.write(data) == len(data), "short"
            if chance.random() < 0.5:
                os.fsync(file.fileno())
        promised[name] = hashlib.sha256(data).hexdigest()
    except (OSError, AssertionError) as error:
        refused.add(getattr(error, "errno", errno.ENOSPC))
for name, value in promised.items():
    print(name, value)
print("refused", *refused)
"""


def test_programs_that_share_a_volume_find_what_they_left(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 256M")
    storm = str(Path(__file__).with_name("storm.py"))
    with mounted(image, tmp_path / "mnt") as mount:
        command = [sys.executable, storm, str(mount.directory)]
        programs = [
            subprocess.Popen([*command, str(seed), str(80 * FACTOR), *("leave",)[: seed % 2]], stderr=subprocess.PIPE)
            for seed in range(8)
        ]
        for program in programs:
            said = program.communicate(timeout=3000)[1]
            assert program.returncode == 0, said.decode()
        tree = told(mount.directory)
    with mounted(image, tmp_path / "mnt", "-o", "ro") as mount:
        assert told(mount.directory) == tree
    judge(image)


def test_what_a_full_volume_took_is_there(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 96M")
    promised: dict[str, str] = {}
    refused: set[str] = set()
    with mounted(image, tmp_path / "mnt") as mount:
        command = [sys.executable, "-c", FILLING, str(mount.directory)]
        writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
        for writer in writers:
            *lines, last = writer.communicate(timeout=300)[0].splitlines()
            assert writer.returncode == 0
            refused |= set(last.split()[1:])
            promised |= dict(line.split() for line in lines)
        assert digests(mount.directory, promised) == promised
    assert refused == {str(errno.ENOSPC)}
    assert len(promised) > 20
    with mounted(image, tmp_path / "mnt", "-o", "ro") as mount:
        assert digests(mount.directory, promised) == promised
    judge(image)


def digests(directory: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}


def test_limits_of_users_and_projects_hold(tmp_path: Path) -> None:
    image, who = fresh(tmp_path, f"--size 96M -O {FULL}"), USER
    with writable(image) as volume:
        top = volume.mkdir(3, b"project", 0o777, who, who)
        volume.set_projid(top, 7)
        volume.set_flags(top, F2FS_PROJINHERIT_FL)
        volume.mkdir(3, b"free", 0o777, who, who)
        volume.set_quota("project", 7, space_hard=1 << 20, inodes_hard=5)
        volume.set_quota("user", who, space_hard=3 << 20, inodes_hard=30)
    with mounted(image, tmp_path / "mnt", *FOR_USER) as mount, as_user(mount.directory):
        for name, files, kept in (("project", 4, 1 << 20), ("free", 20, 3 << 20)):
            directory = Path(name)
            failure = _written(directory / "big", bytes(4 << 20))
            assert failure is not None, name
            assert failure.errno == errno.EDQUOT
            assert (directory / "big").stat().st_blocks * 512 <= kept
            (directory / "big").unlink()
            assert _written(directory / "small", bytes(500_000)) is None
            refused = [_written(directory / f"file-{number}", b"") for number in range(40)]
            assert {error.errno for error in refused if error} == {errno.EDQUOT}
            assert files <= len(os.listdir(directory)) <= files + 5
        with pytest.raises(OSError, match="Invalid cross-device link"):
            os.link("free/small", "project/link")
    judge(image)


@both_servers
def test_a_signal_unmounts_with_a_checkpoint(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        (mount.directory / "file").write_text("there")
        with (mount.directory / "open").open("wb", buffering=0) as file:
            file.write(bytes(3 << 20))  # the kernel may still have it
            mount.process.terminate()
            assert mount.process.wait(60) == 0
        assert not mount.said()
        mount.killed = True
    with reading(image) as volume:
        assert volume.clean
        assert volume.path("/file").read() == b"there"
        assert volume.path("/open").read() == bytes(3 << 20)
    judge(image)


# -- read-only, damaged, overlay, lock ------------------------------------------------------------------------------


def test_an_overlay_takes_the_changes_and_the_image_stays(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    before = image.read_bytes()
    for number in range(2):
        with mounted(image, tmp_path / "mnt", "--overlay", str(tmp_path / "changes")) as mount:
            assert sorted(os.listdir(mount.directory)) == [f"file-{old}" for old in range(number)]
            (mount.directory / f"file-{number}").write_bytes(bytes(5000))
    assert image.read_bytes() == before


@pytest.mark.parametrize("how", ["ro", "norecovery", "checkpoint=older"])
def test_a_read_only_mount_shows_what_an_overlay_has_and_writes_nothing(how: str, tmp_path: Path) -> None:
    need_fuse()
    image, overlay = fresh(tmp_path), tmp_path / "changes"
    for _ in range(2):  # so that the older checkpoint has it, too
        with mounted(image, tmp_path / "mnt", "--overlay", str(overlay)) as mount:
            (mount.directory / "file").write_bytes(b"in the overlay")
    overlay.write_bytes(kept := overlay.read_bytes() + b"cut off")  # as after a crash: the next writer cuts it
    with mounted(image, tmp_path / "mnt", "--overlay", str(overlay), "-o", how) as mount:
        assert (mount.directory / "file").read_bytes() == b"in the overlay"
        with pytest.raises(OSError, match="Read-only"):
            (mount.directory / "new").touch()
    assert overlay.read_bytes() == kept
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none", "none: No such file"), ("pipe", "no regular file"), ("", "no regular file")):
        done = f2tools("mount", "--overlay", tmp_path / name, "-o", how, image, tmp_path / "mnt")
        assert (done.returncode, why in done.stderr) == (8, True), done
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("how", ["rw", "ro"])
@pytest.mark.parametrize("name", ["image", "link", "hard"])
def test_the_image_itself_is_no_overlay_of_it(name: str, how: str, tmp_path: Path) -> None:
    image = fresh(tmp_path)
    (tmp_path / "mnt").mkdir()
    (tmp_path / "link").symlink_to(image)
    (tmp_path / "hard").hardlink_to(image)
    kept = hashlib.sha256(image.read_bytes()).digest()
    done = f2tools("mount", "--overlay", tmp_path / name, "-o", how, image, tmp_path / "mnt")
    assert done.returncode == 2
    assert "an overlay is a file of its own" in done.stderr
    assert hashlib.sha256(image.read_bytes()).digest() == kept


def test_an_overlay_of_another_state_of_the_image_is_refused_at_once(tmp_path: Path) -> None:
    need_fuse()
    image, overlay = fresh(tmp_path), tmp_path / "changes"
    with mounted(image, tmp_path / "mnt", "--overlay", str(overlay)) as mount:
        (mount.directory / "file").write_bytes(bytes(5000))
    kept = overlay.read_bytes()
    assert f2tools("mkdir", f"{image}:/new").returncode == 0
    (tmp_path / "text").write_text("no overlay")
    began = time.monotonic()
    for path, why in (
        (overlay, "or that was changed since"), (tmp_path / "text", "it is no overlay"),
        (tmp_path / "mnt", "Is a directory"), (Path("/dev/null"), "no regular file"),
    ):  # fmt: skip
        done = f2tools("mount", "--overlay", path, image, tmp_path / "mnt")
        if not done.returncode:
            subprocess.run(["fusermount3", "-u", tmp_path / "mnt"])
        assert (done.returncode, why in done.stderr) == (8, True), done
    assert time.monotonic() - began < 20  # an overlay in use would be waited for
    assert overlay.read_bytes() == kept


def test_the_state_of_an_image_is_that_of_its_packs_that_can_be_read(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with reading(image) as volume:
        size, first = volume.geo.block_size, volume.geo.cp_blkaddr
        second = first + volume.geo.blocks_per_seg

    class Fails(Wrapper):
        def pread_into(self, offset: int, buffer: Any) -> None:
            if offset <= second * size < offset + len(memoryview(buffer).cast("B")):
                raise DeviceError("unreadable")
            self.base.pread_into(offset, buffer)

    with open_device(image) as device:
        head = device.pread(first * size, size)
        assert mount_session._state_of(device) == head + device.pread(second * size, size)
        assert mount_session._state_of(Fails(device)) == head


def test_a_mounted_image_is_locked_and_then_complete(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with mounted(image, tmp_path / "mnt") as mount:
        (tmp_path / "other").mkdir()
        for words, text in (
            (("mount", "-f", image, tmp_path / "other"), "mounted on"),
            (("mkdir", f"{image}:/folder"), "mounted on"),
            (("mount", fresh(tmp_path, name="second"), mount.directory), "is mounted there already"),
        ):
            done = f2tools(*words)
            assert done.returncode == 8, done
            assert text in done.stderr
        (mount.directory / "file").write_bytes(os.urandom(3 << 20))
    with mounted(image, tmp_path / "mnt", "-o", "ro") as mount, mounted(image, tmp_path / "two", "-o", "ro"):
        assert f2tools("mkdir", f"{image}:/folder").returncode == 8
        with pytest.raises(OSError, match="Read-only"):
            (mount.directory / "x").touch()
    judge(image)


@both_servers
def test_a_mounted_image_is_known_under_another_name(tmp_path: Path, server: str) -> None:
    image, other = fresh(tmp_path), tmp_path / "other"
    with mounted(image, tmp_path / "mnt", server=server):
        for name in (lambda: other.hardlink_to(image), lambda: (other.unlink(), image.rename(other))):
            name()
            begun = time.monotonic()
            assert f2tools("dump", "ls", other).returncode == 0
            for command in (("label", other, "X"), ("mount", other, tmp_path / "more")):
                (tmp_path / "more").mkdir(exist_ok=True)
                refused = f2tools(*command)
                assert (refused.returncode, "mounted on" in refused.stderr) == (8, True), refused.stderr
            assert time.monotonic() < begun + 20, "it waited for a mount that does not end"
    judge(other)


def test_in_the_background_it_is_usable_when_the_command_returns(tmp_path: Path) -> None:
    need_fuse()
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    directory.mkdir()
    done = f2tools("mount", image, directory)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    try:
        (directory / "file").write_bytes(bytes(1 << 20))
        said = json.loads(f2tools("mount", "--stats", "--json", directory).stdout)
        shown = f2tools("mount", "--stats", image)
    finally:
        subprocess.run(["fusermount3", "-u", directory], check=True)
    assert said["image"] == str(image)
    assert said["read_only"] is False
    of_all, of_f2fs, of_a_log, *_ = (words.split() for words in re.findall(r"`([^`]*)`", ROWS["mount"]))
    assert (set(said), set(said["logs"][0])) == ({*of_all, *of_f2fs}, set(of_a_log))
    assert len(said["logs"]) == 6
    assert said["sections"]["free"] > 0
    assert "utilisation" in shown.stdout, shown
    assert "WAF" in shown.stdout, shown
    with reading(image) as volume:  # waits for the last checkpoint, which comes after the unmount
        assert volume.path("/file").read() == bytes(1 << 20)
    assert f2tools("mount", "--stats", image).returncode == 8
    judge(image)


def test_what_can_not_be_mounted_is_said_at_once(tmp_path: Path) -> None:
    need_fuse()
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    directory.mkdir()
    (tmp_path / "noise").write_bytes(os.urandom(1 << 20))
    (tmp_path / "noise").chmod(0o400)
    for words, code, text in (
        ((tmp_path / "noise", directory), 8, "not an F2FS image"),
        ((tmp_path / "nothing", directory), 8, "No such file"),
        ((image, tmp_path / "nowhere"), 8, "No such file"),
        ((image, image), 8, "not a directory"),
        ((image, directory, "-o", "speed=high"), 2, "no such option"),
        ((image, directory, "-o", "active_logs=3"), 2, "one of 2, 4, 6"),
    ):
        for foreground in ((), ("-f",)):
            done = f2tools("mount", *foreground, *words)
            assert done.returncode == code, done
            assert text in done.stderr, done
            assert "mounted read-only" not in done.stderr, done
    judge(image)


def test_a_damaged_volume_is_mounted_read_only_and_says_why(tmp_path: Path) -> None:
    need_fuse()
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    directory.mkdir()
    with writable(image) as volume:
        ino = volume.create(3, b"file", 0o644)
        volume.write(ino, 0, b"content")
        volume.mkdir(3, b"lost", 0o755)
    with reading(image) as volume:
        lost = volume.nodes.address(volume.path("/lost").inode.ino)
        size = volume.geo.block_size
        sit = volume.geo.sit_blkaddr * size
    with image.open("r+b") as file:
        file.seek(lost * size)
        file.write(os.urandom(size))
        file.seek(sit)
        file.write(os.urandom(2 * 512 * size))
    before = image.read_bytes()
    done = f2tools("mount", image, directory)
    assert done.returncode == 0, done
    assert "mounted read-only" in done.stderr, done
    try:
        assert (directory / "file").read_bytes() == b"content"
        assert sorted(os.listdir(directory)) == ["file", "lost"]
        with pytest.raises(OSError) as caught:
            os.stat(directory / "lost")
        assert caught.value.errno == errno.EUCLEAN
        with pytest.raises(OSError, match="Read-only"):
            (directory / "new").touch()
    finally:
        subprocess.run(["fusermount3", "-u", directory], check=True)
    with reading(image):
        pass
    assert image.read_bytes() == before


def test_a_volume_with_lost_journals_is_mounted_read_only_and_says_why(tmp_path: Path) -> None:
    need_fuse()
    image, directory = copy_sparse(lost_writes.image(2, 0), tmp_path / "image"), tmp_path / "mnt"
    with image.open("r+b") as file:
        for offset, data in lost_writes.without_summaries(2, 0).patches:
            file.seek(offset)
            file.write(data)
    directory.mkdir()
    before = image.read_bytes()
    for options, count in ((), 1), (("-o", "ro"), 0):
        done = f2tools("mount", *options, image, directory)
        assert done.returncode == 0, done
        try:
            assert done.stderr.count("mounted read-only") == count, done
            assert done.stderr.count("the journals of the checkpoint are lost") == 1, done
            assert os.listdir(directory)
            with pytest.raises(OSError, match="Read-only"):
                (directory / "new").touch()
        finally:
            subprocess.run(["fusermount3", "-u", directory], check=True)
        with reading(image):  # once the server has ended
            assert image.read_bytes() == before


@pytest.mark.parametrize("recovered", [True, False])
def test_a_read_only_mount_says_that_a_checkpoint_pack_is_not_usable(recovered: bool, tmp_path: Path) -> None:
    need_fuse()
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    directory.mkdir()
    volume = writable(image)
    volume.mkdir(3, b"d", 0o755)
    volume.sync()  # mkfs makes one pack
    ino = volume.create(3, b"file", 0o644)
    volume.write(ino, 0, b"content")
    if recovered:
        volume.fsync(ino)
        volume.abandon()
    else:
        volume.close()
    with reading(image) as read:
        older = read.packs[1 - read.pack.index]
        at = older.blkaddr * read.geo.block_size
    with image.open("r+b") as file:
        file.seek(at + 200)
        file.write(b"\xff" * 8)
    done = f2tools("mount", "-o", "ro", image, directory)
    try:
        assert done.stderr.count(f"checkpoint pack {older.index + 1} is not usable") == 1, done
        assert (directory / "file").read_bytes() == b"content"
    finally:
        subprocess.run(["fusermount3", "-u", directory], check=True)


class Failing(Wrapper):
    """A device that takes nothing any more from some moment on, or can't be read."""

    failing = False
    unreadable = False

    def pread_into(self, offset: int, buffer: Any) -> None:
        if self.unreadable:
            raise DeviceError("a bad sector")
        self.base.pread_into(offset, buffer)

    def pwrite(self, offset: int, data: Any) -> None:
        if self.failing:
            raise DeviceError("the cable is out")
        self.base.pwrite(offset, data)


def answer(request: Any) -> Any:
    """What a handler answers, its errno if it is an error."""
    import pyfuse3

    try:
        request.send(None)
    except StopIteration as done:
        return done.value
    except pyfuse3.FUSEError as error:
        return errno.errorcode[error.errno]
    raise AssertionError("the handler waits")


def test_an_error_while_writing_makes_it_read_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    need_fuse()
    from f2tools.fuse.operations import Handlers
    from f2tools.mount.tree import LiveTree

    image = fresh(tmp_path)
    device = Failing(open_device(image, write=True))
    volume = WritableVolume(device)
    files, who = Handlers(LiveTree(volume), MountOptions()), SimpleNamespace(uid=0, gid=0, pid=1, umask=0)
    handle, entry = answer(files.create(1, b"file", 0o100644, os.O_RDWR, who))
    assert answer(files.write(handle.fh, 0, b"safe")) == 4
    assert answer(files.fsync(handle.fh, False)) is None
    device.failing = True
    assert answer(files.write(handle.fh, 0, b"lost")) == 4
    assert answer(files.fsync(handle.fh, False)) == "EIO"
    assert "the cable is out" in caplog.text
    assert "read-only from now on" in caplog.text
    device.failing = False
    assert answer(files.mkdir(1, b"folder", 0o755, who)) == "EROFS"
    assert answer(files.getattr(entry.st_ino, who)).st_size == 4
    LiveTree(volume).close()
    with writable(image) as again:  # what was safe is there
        assert again.path("/file").read() == b"safe"
    judge(image)


@both_servers
def test_a_mount_that_became_read_only_says_so_and_does_not_end_as_if_all_were_well(
    server: str, tmp_path: Path
) -> None:
    image, place = fresh(tmp_path), tmp_path / "mnt"
    with mounted(image, place, server=server, longest_file=18 << 20, ends_with=8) as mount:
        with pytest.raises(OSError):
            (mount.directory / "large").write_bytes(os.urandom(4 << 20))
        with pytest.raises(OSError, match="Read-only"):
            (mount.directory / "small").touch()
    assert mount.said().count("read-only from now on") == 1
    assert "f2tools: the volume became read-only" in mount.said().splitlines()[-1]
    judge(image)


def test_what_can_not_be_read_is_an_error_of_the_read_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    need_fuse()
    from f2tools.fuse.operations import Handlers
    from f2tools.mount.tree import LiveTree

    image = fresh(tmp_path)
    device = Failing(open_device(image, write=True))
    volume = WritableVolume(device)
    files, who = Handlers(LiveTree(volume), MountOptions()), SimpleNamespace(uid=0, gid=0, pid=1, umask=0)
    handle, _ = answer(files.create(1, b"file", 0o100644, os.O_RDWR, who))
    assert answer(files.write(handle.fh, 0, bytes(1 << 20))) == 1 << 20
    device.unreadable = True
    assert [answer(files.read(handle.fh, 0, 4096)) for _ in range(3)] == ["EIO"] * 3
    assert caplog.text.count("a bad sector") == 1
    device.unreadable = False
    assert answer(files.read(handle.fh, 0, 4096)) == bytes(4096)
    assert answer(files.write(handle.fh, 0, b"more")) == 4
    volume.close()
    judge(image)


def test_a_fault_of_ours_is_an_error_of_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_fuse()
    from f2tools.fuse.operations import Handlers
    from f2tools.mount.tree import LiveTree

    with closing(LiveTree(writable(fresh(tmp_path)))) as tree:
        files, who = Handlers(tree, MountOptions()), SimpleNamespace(uid=0, gid=0, pid=1, umask=0)
        monkeypatch.setattr(tree.volume, "rename", lambda *_: {}["no such key"])
        assert answer(files.rename(1, b"a", 1, b"b", 0, who)) == "EIO"
        assert "Traceback" in caplog.text
        assert answer(files.mkdir(1, b"folder", 0o755, who)) == "EROFS"


def test_memory_does_not_grow_with_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_fuse()
    from f2tools.f2fs.write import node as nodecache
    from f2tools.mount import tree as trees

    image = fresh(tmp_path)
    with writable(image) as volume:
        inos = [volume.create(3, b"file-%d" % number, 0o644) for number in range(300)]
    monkeypatch.setattr(trees, "INODES_HELD", 50)
    monkeypatch.setattr(nodecache, "CLEAN_NODES_HELD", 50)
    with reading(image) as volume:
        tree = trees.Tree(volume)
        for start in range(0, 300, 10):
            tree.preload(inos[start : start + 10])
            assert [tree.inode(ino).ino for ino in inos[start : start + 10]] == inos[start : start + 10]
        assert len(tree._inodes) <= 60
    with writable(image) as volume:
        live = trees.LiveTree(volume)
        live.preload(inos)
        for ino in inos[:100]:
            volume.accessed(volume.live(ino), volume.clock())
        live.balance()
        assert len(volume.nodes._blocks) <= 50 + len(volume.nodes.dirty)


def test_what_the_machine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_options(["allow_other"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    said = list(what_is_missing(options, str(tmp_path / "fuse"), str(tmp_path / "fuse.conf")))
    for text, wanted in zip(
        said, ("f2tools[mount]", "modprobe fuse", "apt install fuse3", "user_allow_other"), strict=True
    ):
        assert wanted in text


def test_only_a_mount_imports_fuse() -> None:
    probe = "import sys, f2tools.mount.cli; print({'pyfuse3', 'trio', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_line_of_fstab_is_understood(tmp_path: Path) -> None:
    need_fuse()
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    directory.mkdir()
    helper = "from f2tools.cli import mount_helper; mount_helper()"
    words = [str(image), str(directory), "-o", "rw,noauto,nodev,x-systemd.automount,noatime"]
    subprocess.run([sys.executable, "-c", helper, *words], check=True, timeout=60)
    (directory / "file").touch()
    if os.geteuid() == 0:
        flags = os.statvfs(directory).f_flag
        assert (flags & os.ST_NODEV, flags & os.ST_NOSUID) == (os.ST_NODEV, 0)
        subprocess.run([sys.executable, "-c", helper, *words[:2], "-o", "remount,ro"], check=True, timeout=60)
        with pytest.raises(OSError, match="Read-only file system"):
            (directory / "another").touch()
    subprocess.run(["fusermount3", "-u", directory], check=True)
    judge(image)
