"""The verbs and `edit`: what they do is in the image, clean, all of it or nothing, and can be taken back."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.dump.manifest import manifest
from f2tools.edit.modes import change_mode, parse_time
from f2tools.edit.paths import Inside
from f2tools.edit.session import session
from f2tools.errors import Usage
from f2tools.f2fs.write import node
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.f2fs.write.volumes import FULL, fresh
from tests.kernel.guest import Guest

MANY = f"--size 64M -C utf8 -O {FULL},compression"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return fresh(tmp_path, MANY)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of every kind that a user can make."""
    top = tmp_path / "source"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "small").write_bytes(b"hello\n")
    (top / "small").chmod(0o640)
    os.link(top / "small", top / "second")
    (top / "link").symlink_to("small")
    (top / "sub" / "big").write_bytes(random.Random(1).randbytes(2_000_001))
    with (top / "sub" / "sparse").open("wb") as file:
        file.truncate(50_000_000)
        file.seek(20_000_000)
        file.write(b"middle")
    os.mkfifo(top / "sub" / "fifo")
    os.utime(top / "small", ns=(1_600_000_000_000_000_001, 1_500_000_000_123_456_789))
    return top


def tree(path: Path) -> dict[str, Any]:
    with f2tools.open(path) as volume:
        assert_consistent(volume)
        return manifest(volume)["entries"]


def done(*arguments: object) -> bytes:
    result = f2(*arguments)
    assert result.code == 0, result.err
    return result.out


@pytest.mark.parametrize(("target", "words"), [
    ("/none/", "No such file or directory"), ("/file/", "Not a directory"), ("/none/x", "No such file or directory"),
])  # fmt: skip
def test_a_directory_to_copy_into_that_is_not_there_is_said_to_be_missing(image: Path, target: str, words: str) -> None:
    done("touch", f"{image}:/file")
    assert words in f2("cp", __file__, f"{image}:{target}").err


@pytest.mark.peer
def test_a_tree_is_copied_with_all_that_belongs_to_it(image: Path, source: Path, tmp_path: Path) -> None:
    done("cp", "-a", source, f"{image}:/")
    judges.fsck_clean(image)
    entries = tree(image)
    assert entries["source/small"]["nlink"] == 2
    assert entries["source/small"]["mtime_ns"] == 1_500_000_000_123_456_789
    assert entries["source/small"]["mode"] == "0640"
    assert entries["source/sub/sparse"]["size"] == 50_000_000
    assert entries["source/sub/sparse"]["blocks"] < 100
    done("dump", "extract", image, "/source", "-o", tmp_path / "out")
    said = subprocess.run(
        ["diff", "-r", "--no-dereference", source, tmp_path / "out" / "source"], capture_output=True, text=True
    )
    left = [line for line in said.stdout.splitlines() if "fifo" not in line]
    assert not left


@pytest.mark.peer
def test_every_verb(image: Path, source: Path) -> None:
    script = """
        # a comment, and quotes
        mkdir -p /etc/x "/etc/with blank"
        cp source/small source/second :/etc/x
        cp :/etc/x/small :/etc/copy
        mv /etc/x/second '/etc/with blank/second'
        ln -s ../copy /etc/x/soft
        ln /etc/copy /etc/hard
        chmod u=rwx,go-rwx /etc/copy
        chown 1000:100 /etc/copy
        touch -d 2001-09-09T01:46:40 /etc/copy
        truncate -s 5M /etc/large
        mknod /etc/null c 1 3 -m 666
        mknod /etc/fifo p
        setfattr -n user.colour -v 0x626c7565 /etc/copy
        chattr +A /etc/copy
        mkdir /gone /gone/below
        touch /gone/below/file
        rm -r /gone
        mkdir /empty
        rmdir /empty
    """
    path = image.parent / "script"
    path.write_text(script)
    report = json.loads(in_directory(image.parent, "edit", image, path, "--json"))
    assert report["written"]
    entries = tree(image)
    copy = entries["etc/copy"]
    assert (copy["uid"], copy["gid"], copy["mode"], copy["nlink"]) == (1000, 100, "0700", 2)
    assert copy["mtime_ns"] == 10**18
    assert entries["etc/large"]["size"] == 5 << 20
    assert entries["etc/x/soft"]["target"] == "../copy"
    assert "etc/with blank/second" in entries
    assert not [name for name in entries if name.startswith(("gone", "empty"))]
    with f2tools.open(image) as volume:
        file = volume.path("/etc/copy")
        assert file.xattrs() == {"user.colour": b"blue"}
        assert file.inode.i_flags & 0x80
        assert volume.path("/etc/null").inode.rdev == (1, 3)
    judges.fsck_clean(image)


def in_directory(directory: Path, *arguments: object) -> bytes:
    """A command in a directory of its own."""
    command = [str(Path(sys.executable).parent / "f2tools"), *map(str, arguments)]
    return subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout


def test_a_line_that_fails_leaves_everything_as_it_was(image: Path) -> None:
    done("edit", image, "-c", "mkdir /a", "-c", "touch /a/b")
    before = tree(image)
    result = f2("edit", image, "-c", "mkdir /c", "-c", "rm -r /a", "-c", "mv /nope /d")
    assert result.code == 1
    assert "line 3" in result.err
    assert "/nope" in result.err
    assert tree(image) == before
    for wrong in ("frobnicate /a", "mkdir", "chmod 9 /a", "cp 'unclosed", "truncate -s x /a", "cp :/a b"):
        assert f2("edit", image, "-c", wrong).code == 2, wrong


def test_a_rehearsal_writes_nothing_and_undo_takes_it_back(image: Path, source: Path) -> None:
    before = image.read_bytes()
    assert b"would be made" in done("cp", "-a", source, f"{image}:/", "--dry-run")
    assert image.read_bytes() == before
    done("cp", "-a", source, f"{image}:/", "--undo", image.parent / "undo")
    assert image.read_bytes() != before
    done("undo", image.parent / "undo", image)
    assert image.read_bytes() == before


def test_what_does_not_fit_changes_nothing(image: Path, tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(random.Random(2).randbytes(60 << 20))
    result = f2("cp", tmp_path / "huge", f"{image}:/")
    assert result.code == 1
    assert os.strerror(errno.ENOSPC) in result.err or "one step" in result.err
    assert "huge" not in tree(image)


@pytest.mark.peer
def test_what_needs_the_space_that_it_gives_free(image: Path, tmp_path: Path) -> None:
    """Replacing what nearly fills a volume needs the old blocks, which only a checkpoint gives free."""
    with f2tools.open(image) as volume:
        room = volume.statfs()["f_bavail"] * 4096
    (tmp_path / "large").write_bytes(random.Random(3).randbytes(int(room * 0.9)))
    done("cp", tmp_path / "large", f"{image}:/large")
    done("edit", image, "-c", "rm /large", "-c", f"cp {tmp_path / 'large'} :/large")
    assert tree(image)["large"]["size"] == int(room * 0.9)
    judges.fsck_clean(image)


def test_a_kill_at_any_moment_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    image = fresh(tmp_path, MANY)
    (tmp_path / "data").write_bytes(random.Random(4).randbytes(300_000))
    lines = [f"mkdir /d{i}\ncp {tmp_path}/data :/d{i}/data\ntouch /d{i}/x" for i in range(40)]
    (tmp_path / "script").write_text("\n".join(lines))
    command = [str(Path(sys.executable).parent / "f2tools"), "edit", image, tmp_path / "script"]
    seen = set()
    chance = random.Random(5)
    for _ in range(8):
        process = subprocess.Popen(command)
        time.sleep(0.2 + chance.random() * 0.9)
        process.send_signal(signal.SIGKILL)
        process.wait()
        names = tree(image).keys() - {".", "lost+found"}
        assert names in (set(), {f"d{i}{tail}" for i in range(40) for tail in ("", "/data", "/x")})
        seen.add(bool(names))
        if names:
            done("rm", "-r", *(f"{image}:/d{i}" for i in range(40)))
    assert seen


def test_paths_that_can_not_be(image: Path, source: Path) -> None:
    for arguments in (
        ("cp", source / "nope", f"{image}:/"),
        ("cp", source, f"{image}:/x"),
        ("rm", f"{image}:/"),
        ("mv", f"{image}:/a", f"{image}:/b"),
        ("mkdir", f"{image}:/a/b"),
        ("ln", f"{image}:/nope", f"{image}:/x"),
        ("rmdir", f"{image}:/nope/deeper"),
    ):
        result = f2(*arguments)
        assert result.code == 1, arguments
        assert "Traceback" not in result.err
    assert f2("rm", "file").code == 2
    assert f2("rm", f"{image}:/a", "other.img:/b").code == 2
    assert f2("rm", source / "small:/x").code == 8


def test_modes_and_times_as_people_write_them() -> None:
    assert change_mode("u+x", 0o644, False) == 0o744
    assert change_mode("a=rX", 0o755, False) == 0o555
    assert change_mode("go-rwx,u+s", 0o755, False) == 0o4700
    assert change_mode("+X", 0o600, True) == 0o711
    assert change_mode("g=u", 0o640, False) == 0o660
    assert change_mode("1777", 0, True) == 0o1777
    for wrong in ("u", "+z", "999", "u+rwx,", "77777"):
        with pytest.raises(Usage):
            change_mode(wrong, 0, False)
    assert parse_time("@1.5") == 1_500_000_000
    assert parse_time("1970-01-02") == parse_time("1970-01-01T23:00:00-01:00") == 86400 * 10**9


MODES = [special << 9 | rest for special in range(8) for rest in (0, 0o100, 0o124, 0o444, 0o640, 0o666, 0o755, 0o777)]
EXPRESSIONS = [
    "755", "0755", "00755", "2750", "4711", "06755", "1777", "0", "000000644", "=r", "=rX", "=rwxst", "=", "=w", "+w",
    "-w", "+X", "-X", "+s", "-s", "+t", "-t", "=u", "=g", "=o", "+g", "-o", "a=rX", "a=", "a=s", "a+t", "u=rwx", "u=",
    "u=s", "u+s", "u-s", "ug-s", "g=s", "g=rxs", "g=u", "g-s", "g+s,o=r", "o=r", "o=t", "o=rt", "o+t", "o-t", "u+t",
    "go=", "go=u", "u=g,o+X", "u=x+r-w", "o=g-x,ug+s", "a-x,+X", "uo=s", "=,u+r", "ga=o", "-rwx", "+rwxst",
    "u=rws,g=rxs,o=rt", "og-st",
]  # fmt: skip


def test_chmod_does_what_that_of_gnu_does(tmp_path: Path) -> None:
    if b"GNU" not in subprocess.run(["chmod", "--version"], capture_output=True).stdout:
        pytest.skip("chmod(1) is not that of GNU")
    for is_dir in (False, True):
        paths = {mode: tmp_path / f"{is_dir}{mode:o}" for mode in MODES}
        for path in paths.values():
            path.mkdir() if is_dir else path.touch()
        for umask in (0o022, 0o077, 0):
            for text in EXPRESSIONS:
                for mode, path in paths.items():
                    path.chmod(mode)
                subprocess.run(["chmod", "--", text, *paths.values()], check=True, umask=umask)
                theirs = {mode: path.stat().st_mode & 0o7777 for mode, path in paths.items()}
                ours = {mode: change_mode(text, mode, is_dir, umask) for mode in paths}
                differ = {f"{mode:o}": (f"{ours[mode]:o}", f"{theirs[mode]:o}") for mode in paths
                          if ours[mode] != theirs[mode]}  # fmt: skip
                assert differ == {}, (text, is_dir, oct(umask))


@pytest.mark.parametrize("mode", ["755", "00755", "u=rwx", "g-s", "=r", "1755"])
def test_mkdir_in_a_set_group_id_directory_does_what_that_of_gnu_does(mode: str, image: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o2777)
    subprocess.run(["mkdir", "-m", mode, "d/made"], cwd=tmp_path, check=True, umask=0o022)
    assert f2("edit", image, "-c", "mkdir /d", "-c", "chmod 2777 /d", "-c", f"mkdir -m {mode} /d/made").code == 0
    assert tree(image)["d/made"]["mode"] == f"{(tmp_path / 'd' / 'made').stat().st_mode & 0o7777:04o}"


@pytest.mark.parametrize("name", ["base", "fragmented", "checksums", "crash-several", "sections"])
@pytest.mark.peer
def test_images_of_the_kernel_can_be_changed(name: str, source: Path, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before = case.manifest("manifest-recovered" if name.startswith("crash") else "manifest")["entries"]
    done("cp", "-a", source, f"{case.path}:/")
    entries = tree(case.path)
    assert before.keys() - entries.keys() == set()
    for path in before:
        assert entries[path].get("sha256") == before[path].get("sha256"), path
    judges.fsck_clean(case.path)


def test_a_walk_over_many_files_keeps_few_in_memory(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "CLEAN_NODES_HELD", 20)
    many = tmp_path / "many"
    many.mkdir()
    for number in range(300):
        (many / f"{number}").touch()
    done("cp", "-r", many, f"{image}:/")
    held = []
    with session(str(image), dry_run=True) as here:
        for _path, ino in here.below(here.find(Inside("", b"/many")).ino, b"/many"):
            assert here.live(ino).ino == ino
            held.append(len(here.volume.nodes._blocks))
    assert len(held) == 301
    assert max(held) < 40


@pytest.mark.kernel
def test_the_kernel_reads_what_was_changed(guest: Guest, tmp_path: Path, source: Path) -> None:
    changed = []
    for number, options in enumerate(("--size 64M", MANY, "--size 128M -s 2 -O lost_found")):
        changed.append(fresh(tmp_path / str(number), options))
        done("cp", "-a", source, f"{changed[-1]}:/")
        script = [
            "mv /source/small /moved", "rm /source/sub/sparse", "mknod /dev0 b 8 1", "mkdir -p /a/b/c",
            "setfattr -n user.colour -v blue /moved", "setfacl -m u:1000:rw,d:g:7:rx /a/b", "setfacl -m g:5:x /moved",
            "chown 3:4 /moved", "chmod g+s /a", "ln -s moved /soft", "truncate -s 5M /long", "mkdir /a/b/heir",
            "mv --exchange /soft /long", "cp -a :/source /a", "touch -d @1.000000001 /a", "ln -f /moved /dev0",
        ]  # fmt: skip
        if number == 1:
            script += ["chattr +dA /moved", "chattr -p 42 /a", "mkdir /fold", "chattr +F /fold", "touch /fold/Ab"]
        done("edit", changed[-1], *(word for line in script for word in ("-c", line)))
    before = [tree_of(path) for path in changed]
    lines = [
        f"mount -t f2fs ${{IMAGES[{n}]}} /mnt; manifest /mnt $OUT/{n}.json; echo x > /mnt/more; umount /mnt"
        for n in range(len(changed))
    ]
    result = guest.run("set -e\n" + "\n".join(lines), changed).must_succeed()
    for number, path in enumerate(changed):
        assert_as_the_kernel(before[number], result.json(f"{number}.json"), str(path))
        judges.fsck_clean(path)
