"""Mounts by a user who is not root: on directories of one's own, on nobody else's, seen by nobody else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import f2tools
from tests.f2fs.write.volumes import fresh
from tests.mount.mounted import both_servers, mounted, need_fuse, need_namespaces

NOBODY = 65534
LONGEST_SECONDS = 240
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="who is not root tries it in all other tests of the mount"),
    pytest.mark.xdist_group("namespaces"),  # one made meanwhile has a copy of every mount
]

# In a mount namespace of its own: /dev/fuse for everybody, the directories that are closed around Python and what it
# runs open, and then the user's lines, as that user.
AS_USER = """
set -e
stage=$1 lines=$2; shift 2
mount -t tmpfs -o mode=755,dev tmpfs "$stage"
mknod -m 666 "$stage/fuse" c 10 229
mount --bind "$stage/fuse" /dev/fuse
for closed; do
    way="$stage/way$closed"
    mkdir -p "$way"
    for directory in "$closed"/* "$closed"/.[!.]*; do
        [ -d "$directory" ] && [ ! -L "$directory" ] || continue
        mkdir "$way/${directory##*/}"
        mount --bind "$directory" "$way/${directory##*/}"
    done
    mount --rbind "$way" "$closed"
done
exec setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_RUNTIME_DIR= HOME="$PWD/mine" sh -c "$lines"
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that all may enter: in it `mine`, the user's, with image.img; `theirs`; `open`, for all."""
    need_fuse()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        for own in (directory / "mine", directory / "mine" / "m"):
            own.mkdir()
            os.chown(own, NOBODY, NOBODY)
        (directory / "theirs").mkdir(mode=0o755)
        (directory / "open").mkdir()
        (directory / "open").chmod(0o1777)
        (directory / "open" / "roots").mkdir(mode=0o755)
        yield directory


def closed_to_users() -> list[Path]:
    """The outermost directories that are closed around Python, its environment and its modules, such as /root."""
    found: set[Path] = set()
    for needed in (os.path.realpath(sys.executable), sys.executable, f2tools.__file__):
        closed = [above for above in Path(needed).parents if not above.stat().st_mode & 0o001]
        found.update(closed[-1:])
    return sorted(found)


@pytest.fixture
def as_user(place: Path) -> Callable[[str], str]:
    """Run lines of a shell as a user without rights, in `place`; all that they said."""
    need_namespaces("mounts by users other than root")

    def run(lines: str) -> str:
        words = [
            place / "stage",
            f'f2tools() {{ "{sys.executable}" -m f2tools "$@"; }}\n{lines}',
            *closed_to_users(),
        ]
        (place / "stage").mkdir(exist_ok=True)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", AS_USER, "sh", *words],
            cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=LONGEST_SECONDS,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )  # fmt: skip
        return done.stdout

    return run


@both_servers
def test_a_user_mounts_an_image_of_his_own_on_a_directory_of_his_own(
    place: Path, as_user: Callable[[str], str], server: str
) -> None:
    said = as_user(
        "f2tools mkfs -q mine/image.img --size 48M; ln -s m mine/link\n"
        "for at in mine/m mine/link; do\n"
        f"    f2tools mount --server {server} mine/image.img $at; echo mounted $?\n"
        "    id -u >> mine/m/text; f2tools mount --stats mine/image.img | head -1\n"
        "    f2tools umount $at; echo unmounted $?\n"
        "done\n"
        "f2tools dump cat mine/image.img /text"
    )
    at = f"{place}/mine/image.img on {place}/mine/m, read and write"
    lines = [line if not line.startswith(at) else "stats" for line in said.splitlines()]
    assert lines == ["mounted 0", "stats", "unmounted 0"] * 2 + [str(NOBODY)] * 2, said


@both_servers
def test_a_user_mounts_nothing_over_directories_of_others(
    place: Path, as_user: Callable[[str], str], server: str
) -> None:
    said = as_user(
        "f2tools mkfs -q mine/image.img --size 48M; ln -s ../theirs mine/link\n"
        "for at in theirs open/roots mine/link /tmp; do\n"
        f"    f2tools mount --server {server} mine/image.img $at; echo ended $?\n"
        "done\n"
        "grep -c fuse.f2tools.*$PWD /proc/mounts"
    )
    assert [line for line in said.splitlines() if line.startswith("ended")] == ["ended 1"] * 4, said
    assert said.count("FUSE refused the mount") == 4
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "0", said


def test_nobody_else_sees_what_a_user_mounts_unless_root_allows_that(
    place: Path, as_user: Callable[[str], str]
) -> None:
    said = as_user(
        "f2tools mkfs -q mine/image.img --size 48M\n"
        "f2tools mount mine/image.img mine/m -o allow_other; echo ended $?\n"
        "f2tools mount mine/image.img mine/m; grep fuse.f2tools.*$PWD /proc/mounts || grep mine/m /proc/mounts\n"
        "f2tools umount mine/m"
    )
    if "user_allow_other\n" not in Path("/etc/fuse.conf").read_text().replace("#user_allow_other", ""):
        assert "ended 8" in said
        assert "-o allow_other takes the line user_allow_other in /etc/fuse.conf, which root can add" in said
    options = (
        next(line for line in said.splitlines() if line.startswith(f"{place}/mine/image.img")).split()[3].split(",")
    )
    assert {"nosuid", "nodev", f"user_id={NOBODY}", "default_permissions"} <= set(options)
    assert "allow_other" not in options


@both_servers
def test_what_gives_power_has_no_effect_until_root_says_so(tmp_path: Path, server: str) -> None:
    image, directory = fresh(tmp_path), tmp_path / "mnt"
    node = directory / "null"
    with mounted(image, directory, "--server", server):
        os.mknod(node, 0o666 | stat.S_IFCHR, os.stat("/dev/null").st_rdev)
        assert os.statvfs(directory).f_flag & (os.ST_NODEV | os.ST_NOSUID) == os.ST_NODEV | os.ST_NOSUID
        with pytest.raises(PermissionError):
            node.read_bytes()
    with mounted(image, directory, "--server", server, "-o", "dev,suid"):
        assert os.statvfs(directory).f_flag & (os.ST_NODEV | os.ST_NOSUID) == 0
        assert node.read_bytes() == b""


def test_an_image_that_a_user_may_only_read_is_mounted_so_and_one_he_may_not_is_refused(
    place: Path, as_user: Callable[[str], str]
) -> None:
    said = as_user("f2tools mkfs -q mine/image.img --size 48M")
    image = place / "roots.img"
    os.rename(place / "mine" / "image.img", image)
    os.chown(image, 0, 0)
    image.chmod(0o644)
    before = image.read_bytes()
    said = as_user("f2tools mount roots.img mine/m; touch mine/m/new; f2tools umount mine/m")
    assert "mounted read-only" in said
    assert "Read-only file system" in said
    image.chmod(0o600)
    said = as_user("f2tools mount roots.img mine/m; echo ended $?")
    assert said.endswith("roots.img: Permission denied\nended 8\n"), said
    assert image.read_bytes() == before
