"""Copying out gives no power: not what the image asks for, nor what the owner of the target plants meanwhile."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.copyout.extract import extract
from f2tools.copyout.keep import ALL, Keep
from tests.dump.craft import f2, host_tree

NOBODY = 65534
ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root has power to lose")
WAYS = ("extract", "undelete", "salvage")
ACL = bytes.fromhex("0200000001000600ffffffff02000600e803000004000000ffffffff10000600ffffffff20000000ffffffff")
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_raw+ep


def edited(image: Path, *lines: str) -> None:
    """Run a script of `f2tools edit`."""
    done = subprocess.run(
        [sys.executable, "-m", "f2tools", "edit", image],
        input="\n".join(lines),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image whose maker wants all: programs with rights, devices, owners, attributes of power."""
    directory = tmp_path_factory.mktemp("power")
    path, tree = directory / "image", directory / "tree"
    (tree / "d").mkdir(parents=True)
    for name in ("suid", "sgid", "mine", "caps", "acl", "wide", "d/inner"):
        (tree / name).write_bytes(b"#!/bin/sh\n")
    assert f2("mkfs", path, "--size", "64M", "-q", "--from", tree).code == 0
    edited(
        path,
        "chown 0:0 /suid", "chmod 4755 /suid", "chown 12345:12345 /sgid", "chmod 2755 /sgid",
        f"chown {os.geteuid()}:{os.getegid()} /mine", "chmod 6755 /mine",
        "chown 0:0 /d /wide", "chmod 3777 /d", "chmod 666 /wide",
        f"setfattr -n security.capability -v 0x{CAPABILITY.hex()} /caps", "setfattr -n trusted.t -v 1 /caps",
        "setfattr -n user.u -v 1 /caps", "chmod 640 /acl", "setfacl -m u:1000:rw,g::---,m::rw /acl",
        "mknod /disk b 8 0", "chmod 666 /disk", "mknod /null c 1 3", "mknod /fifo p", "chmod 666 /fifo",
        "ln -s suid /link",
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def deleted(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with all of it deleted."""
    path = tmp_path_factory.mktemp("deleted") / "image"
    path.write_bytes(image.read_bytes())
    edited(path, "rm -r /suid /sgid /mine /caps /acl /wide /d /disk /null /fifo /link")
    return path


@pytest.fixture
def copied(image: Path, deleted: Path, tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """`copied("extract", "--all")`: (where the files are, what was said)."""

    def run(way: str, *options: str, umask: int = 0o022, whole: bool = True) -> tuple[Path, str]:
        target = tmp_path / "out"
        words: dict[str, tuple[Any, ...]] = {
            "extract": ("dump", "extract", image, "-o", target),
            "undelete": ("undelete", deleted, "-o", target),
            "salvage": ("fsck", "--salvage", target, image),
        }
        before = os.umask(umask)
        try:
            done = f2(*words[way], *options)
        finally:
            os.umask(before)
        assert (done.code == 0) == whole, done.err
        return target / "files" if way == "salvage" else target, done.text + done.err

    return run


def powers(top: Path) -> dict[str, Any]:
    """Everything below that is more than a file of who copied it."""
    found: dict[str, Any] = {}
    for name, entry in host_tree(top).items():
        path = top / name
        wrong = [entry["type"]] if entry["type"] in ("char", "block") else []
        wrong += [entry["mode"]] if int(entry["mode"], 8) & 0o6022 and entry["type"] != "symlink" else []
        wrong += ["owner"] if (entry["uid"], entry["gid"]) != (os.geteuid(), os.getegid()) else []
        attributes = os.listxattr(path, follow_symlinks=False)
        wrong += [name for name in attributes if not name.startswith(("user.", "security.selinux"))]
        if wrong:
            found[name] = wrong
    return found


@pytest.mark.parametrize("way", WAYS)
def test_no_power_comes_out_of_an_image_unasked(way: str, copied: Callable[..., tuple[Path, str]]) -> None:
    top, said = copied(way)
    assert powers(top) == {}
    assert {"suid", "sgid", "mine", "caps", "d/inner", "fifo", "link"} <= host_tree(top).keys()
    assert os.getxattr(top / "caps", "user.u") == b"1"
    (line,) = [line for line in said.splitlines() if "left out" in line]
    assert "2 devices" in line
    assert "set-user-ID" in line
    assert "1 security attribute, 1 trusted attribute" in line
    assert "1 ACL attribute" in line
    assert "--all" in line


@as_root
@pytest.mark.parametrize("way", WAYS)
def test_a_faithful_copy_has_all_when_asked(way: str, copied: Callable[..., tuple[Path, str]]) -> None:
    top, said = copied(way, "--all", umask=0o077)
    tree = host_tree(top)
    assert "left out" not in said
    assert tree["suid"]["mode"] == "4755"
    assert (tree["sgid"]["mode"], tree["sgid"]["uid"]) == ("2755", 12345)
    assert tree["disk"]["rdev"] == [8, 0]
    assert (tree["disk"]["mode"], tree["fifo"]["mode"], tree["d"]["mode"]) == ("0666", "0666", "3777")
    assert os.getxattr(top / "caps", "security.capability") == CAPABILITY
    assert os.getxattr(top / "caps", "trusted.t") == b"1"
    assert os.getxattr(top / "acl", "system.posix_acl_access")


@as_root
def test_each_power_is_asked_for_by_itself(image: Path, tmp_path: Path) -> None:
    def has(keep: Keep) -> set[str]:
        target = tmp_path / str(len(os.listdir(tmp_path)))
        with f2tools.open(image) as volume:
            extract(volume, target, keep=keep)
        tree = host_tree(target)
        return {
            *(["owner"] if tree["sgid"]["uid"] == 12345 else []),
            *(["acl"] if "system.posix_acl_access" in os.listxattr(target / "acl") else []),
            *(["device"] if "disk" in tree else []),
            *(["bits of others"] if tree["sgid"]["mode"] == "2755" else []),
            *(["bits"] if tree["suid"]["mode"] == "4755" else []),
            *(["attributes"] if "trusted.t" in os.listxattr(target / "caps") else []),
            *(["mode"] if tree["wide"]["mode"] == "0666" else []),
        }

    assert has(Keep(owners=True)) == {"owner", "acl"}
    assert has(Keep(devices=True)) == {"device"}
    # a program of somebody else must not run with the rights of who copies it out
    assert has(Keep(special_bits=True)) == {"bits", "attributes"}
    assert has(Keep(owners=True, special_bits=True)) == {"owner", "acl", "bits", "bits of others", "attributes"}
    assert "mode" in has(ALL)


@as_root
def test_what_is_left_out_names_the_options_that_were_not_given(image: Path, tmp_path: Path) -> None:
    for options, advice in (
        ((), "--all keeps"),
        (("--devices",), "; --same-owner --special-bits keeps"),
        (("--same-owner", "--special-bits"), "; --devices keeps"),
    ):
        said = f2("dump", "extract", image, "-o", tmp_path / "-".join(("out", *options)), *options).text
        assert advice in said, said


def test_without_its_acl_a_file_is_not_open_to_its_group(copied: Callable[..., tuple[Path, str]]) -> None:
    """The group bits of a mode are the ACL's mask, which is more than the group itself has."""
    top, _ = copied("extract", umask=0)
    assert stat.S_IMODE((top / "acl").stat().st_mode) == 0o600


@pytest.mark.parametrize("way", WAYS)
def test_the_umask_counts_and_a_new_target_is_closed(way: str, copied: Callable[..., tuple[Path, str]]) -> None:
    top, _ = copied(way, umask=0o027)
    tree = host_tree(top)
    assert tree["wide"]["mode"] == "0640"
    assert tree["fifo"]["mode"] == "0640"
    assert int(tree["d"]["mode"], 8) & 0o777 == 0o750
    target = top.parent if way == "salvage" else top
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


@pytest.mark.parametrize("options", [(), ("--all",)])
@pytest.mark.parametrize("way", [("extract",), ("undelete", "--force")])
def test_directories_that_exist_keep_mode_and_owner(
    way: tuple[str, ...], options: tuple[str, ...], copied: Callable[..., tuple[Path, str]], tmp_path: Path
) -> None:
    (tmp_path / "out" / "d").mkdir(parents=True)
    (tmp_path / "out").chmod(0o711)
    (tmp_path / "out" / "d").chmod(0o710)
    if ROOT:
        os.chown(tmp_path / "out" / "d", NOBODY, NOBODY)
    top, _ = copied(*way, *options)
    assert stat.S_IMODE(top.stat().st_mode) == 0o711
    status = (top / "d").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o710, NOBODY if ROOT else os.geteuid())
    assert (top / "d" / "inner").read_bytes() == b"#!/bin/sh\n"


# -- somebody swaps names while the target is filled ------------------------------------------------------------------


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """What an attacker would like to have other permissions, or another owner."""
    path = tmp_path / "victim"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o755)
    return path


def untouched(victim: Path) -> bool:
    status = victim.stat()
    owner = (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    return owner and stat.S_IMODE(status.st_mode) == 0o755 and victim.read_bytes() == b"#!/bin/sh\n"


def swapping(call: str, plant: Callable[[Any, int], None], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """After each call of this name, what it made is moved away and something else planted; the names."""
    real, swapped = getattr(os, call), []

    def racing(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        name = args[1] if call == "symlink" else args[0]
        directory = named.get("dir_fd")
        if directory is not None and isinstance(name, bytes):
            os.rename(name, name + b".away", src_dir_fd=directory, dst_dir_fd=directory)
            plant(name, directory)
            swapped.append(name)
        return result

    monkeypatch.setattr(os, call, racing)
    return swapped


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("planted", ["link", "hard link", "file", "socket"])
def test_a_special_file_that_is_swapped_gives_nobody_anything(
    way: str, planted: str, victim: Path, copied: Callable[..., tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_link, real_symlink = os.link, os.symlink

    def plant(name: bytes, directory: int) -> None:
        if planted == "link":
            real_symlink(victim, name, dir_fd=directory)
        elif planted == "hard link":
            real_link(victim, name, dst_dir_fd=directory)
        elif planted == "file":
            os.close(os.open(name, os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory))
        else:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(b"/proc/self/fd/%d/%s" % (directory, name))

    swapped = swapping("mknod", plant, monkeypatch)
    _, said = copied(way, "--all", whole=False)
    assert swapped
    assert said.count("in its place while it was made") == len(swapped)
    assert untouched(victim)


@pytest.mark.parametrize("call", ["mkdir", "symlink"])
def test_a_directory_or_link_that_is_swapped_leads_nowhere(
    call: str, image: Path, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    goal = tmp_path / "elsewhere" if call == "mkdir" else victim
    real_link, real_symlink = os.link, os.symlink

    def plant(name: bytes, directory: int) -> None:
        if call == "mkdir":
            real_symlink(goal, name, dir_fd=directory)
        else:
            real_link(goal, name, dst_dir_fd=directory)

    swapped = swapping(call, plant, monkeypatch)
    monkeypatch.setattr("f2tools.copyout.piece.core", None)  # tests/native has what it does by itself
    with f2tools.open(image) as volume:
        report = extract(volume, tmp_path / "out", keep=ALL)
    assert swapped
    assert not report.complete
    assert untouched(victim)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


def test_a_further_name_is_of_the_file_that_was_made(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, tree = tmp_path / "image", tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"twice")
    os.link(tree / "a", tree / "b")
    assert f2("mkfs", image, "--size", "64M", "-q", "--from", tree).code == 0
    real = os.fstat

    def racing(fd: int) -> os.stat_result:
        found = real(fd)
        for name in ("a", "b"):
            path = tmp_path / "out" / name
            if found.st_nlink == 1 and path.exists() and path.stat().st_ino == found.st_ino:
                path.unlink()
                os.link(victim, path)
        return found

    monkeypatch.setattr(os, "fstat", racing)
    with f2tools.open(image) as volume:
        report = extract(volume, tmp_path / "out")
    monkeypatch.undo()
    assert ["in its place while it was made" in item.reason for item in report.lost] == [True]
    assert victim.stat().st_nlink == 2, "the planted one, and no more"


@as_root
def test_a_target_is_not_found_through_links_of_another_user(image: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    (theirs / "link").symlink_to(tmp_path / "mine")
    os.chown(theirs / "link", NOBODY, NOBODY, follow_symlinks=False)
    for way in (("dump", "extract", image, "-o"), ("undelete", image, "-o"), ("fsck", image, "--salvage")):
        done = f2(*way, theirs / "link" / "out")
        assert done.code == 8
        assert "a link of user 65534" in done.err
    assert os.listdir(tmp_path / "mine") == []
    assert f2("dump", "extract", image, "-o", theirs / "out").code == 0, "their directory itself can be filled"


@as_root
def test_a_local_user_wins_no_race_against_root(image: Path, tmp_path: Path) -> None:
    """Somebody who owns the target swaps whatever appears there for links, as fast as a program can."""
    top = tmp_path / "open"
    top.mkdir()
    os.chown(top, NOBODY, NOBODY)
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == 0 and not directory.stat().st_mode & 0o001:
            directory.chmod(directory.stat().st_mode | 0o011)
    victim = tmp_path / "victim"
    victim.write_bytes(b"#!/bin/sh\n")
    victim.chmod(0o755)
    attack = (
        "import os,sys\n"
        "victim, top = sys.argv[1:]\n"
        "os.chdir(top)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for name in ('fifo', 'disk', 'null', 'd'):\n"
        "        try:\n"
        "            os.rename(name, name + '.away'); os.symlink(victim, name)\n"
        "        except OSError:\n"
        "            pass\n"
    )
    process = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", attack, victim, top],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(10):
            f2("dump", "extract", image, "--all", "-o", top)
            assert untouched(victim)
            subprocess.run(["find", top, "-mindepth", "1", "-delete"], check=False)
    finally:
        process.kill()
        process.wait()
    assert untouched(victim)
