"""Conformance suites and real programs on a mount; then our fsck, fsck.f2fs and the real kernel on what they left.

What takes minutes here takes an hour with F2_SUITE_FACTOR=5, which `make nightly` sets.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import judges
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet
from tests.mkfs.from_tools import directory_of, facts
from tests.mount.mounted import Mount, both_servers, mounted
from tests.mount.suite_tools import fio_verify, fsx, mount_point, pjdfstest

FACTOR = int(os.environ.get("F2_SUITE_FACTOR", "1"))
REPOSITORY = Path(__file__).parents[2]

# One worker for all: what they leave behind goes to the kernel in one boot.
pytestmark = pytest.mark.xdist_group("suites")
LEFT: list[tuple[str, Path, dict[str, Any]]] = []
RECOVERED: set[Path] = set()  # of these, the images whose directories are changed by recovery, at the time of that


def without_holes(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A tree's facts but for where its files have holes, which only one of the servers hands on."""
    left_out = "segments", "segment_sha256"
    return {path: {k: v for k, v in fact.items() if k not in left_out} for path, fact in facts(entries).items()}


@contextmanager
def volume(
    name: str, work: Path, size: str = "256M", format_options: str = "", server: str = "pyfuse3"
) -> Iterator[Mount]:
    """A fresh volume, mounted; afterwards both checkers must be silent, and the kernel will be shown it."""
    image = work / f"{name}.img"
    subprocess.run(["f2tools", "mkfs", "-q", image, "--size", size, *format_options.split()], check=True)
    options = "-o", "default_permissions,allow_other"
    with mount_point() as directory, mounted(image, directory, *options, server=server) as mount:
        yield mount
        tree = without_holes(directory_of(mount.directory, work))
    done = subprocess.run(["f2tools", "fsck", image], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    judges.fsck_clean(image)
    LEFT.append((name, image, tree))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the volumes of this module lie until the kernel has seen them."""
    directory = tmp_path_factory.mktemp("suites")
    yield directory
    shutil.rmtree(directory)


@both_servers
def test_pjdfstest_has_no_complaint(work: Path, server: str) -> None:
    with volume(f"pjdfstest-{server}", work, server=server) as mount:
        cases, said = pjdfstest(mount.directory, work)
        failed = sorted(name for name, outcome in cases.items() if outcome == "FAILED")
        assert not failed, f"{failed}\n{said[-6000:]}"
        # Skipped are those that need a remount, file flags of the BSDs, or a second file system.
        assert sum(outcome == "ok" for outcome in cases.values()) >= 382, said


@pytest.mark.parametrize("mapped", [False, True], ids=["read-and-write", "mmap"])
def test_fsx_finds_the_bytes_that_it_wrote(work: Path, mapped: bool) -> None:
    with volume(f"fsx-{mapped}", work, format_options="-O extra_attr,inode_checksum") as mount:
        operations = 6000 if FACTOR == 1 else 40_000 * FACTOR
        fsx(mount.directory / "fsx", work, operations, seed=1, mapped=mapped)


def test_fsx_reserves_space_and_makes_holes(work: Path) -> None:
    with volume("fsx-holes", work, format_options="-O extra_attr,inode_checksum", server="direct") as mount:
        fsx(mount.directory / "fsx", work, 4000 if FACTOR == 1 else 40_000 * FACTOR, seed=3, mapped=True, holes=True)


def test_fsx_on_a_compressed_file(work: Path) -> None:
    with volume("fsx-compressed", work, format_options="-O extra_attr,compression") as mount:
        subprocess.run(["chattr", "+c", mount.directory], check=False)
        fsx(mount.directory / "fsx", work, 3000 * FACTOR, seed=2, mapped=True)


def test_fio_verifies_what_it_wrote(work: Path) -> None:
    with volume("fio", work) as mount:
        fio_verify(mount.directory, 8 * min(FACTOR, 8))


def test_sqlite_git_and_tar_work_on_a_mount(work: Path) -> None:
    with volume("programs", work) as mount:
        _sqlite(mount.directory / "database")
        _git(mount.directory)
        _tar(mount.directory)


def _sqlite(path: Path) -> None:
    for mode in ("delete", "wal"):
        connection = sqlite3.connect(f"{path}-{mode}")
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        for number in range(200):
            with connection:
                connection.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * number))
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT sum(length(text)) FROM t").fetchone() == (sum(range(200)),)
        connection.close()


def _git(directory: Path) -> None:
    source = directory / "source"
    ignored = shutil.ignore_patterns(".*", "*.zst", "__pycache__", "reference", "forensics", "*.egg-info")
    shutil.copytree(REPOSITORY / "f2tools", source, ignore=ignored)

    def git(*words: str, cwd: Path = source) -> None:
        identity = ["-c", "user.name=f2", "-c", "user.email=f2@example.org", "-c", "safe.directory=*"]
        done = subprocess.run(["git", *identity, *words], cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    git("clone", "-q", "--no-hardlinks", str(source), str(directory / "clone"), cwd=directory)
    git("mv", "f2fs", "engine", cwd=directory / "clone")
    git("commit", "-q", "-m", "moved", cwd=directory / "clone")
    git("gc", "-q", cwd=directory / "clone")
    git("fsck", "--full", "--strict", cwd=directory / "clone")


def _tar(directory: Path) -> None:
    archive = directory / "source.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(directory / "source", "source")
    subprocess.run(["tar", "-xzf", archive], cwd=directory / "clone", check=True)
    pair = directory / "source", directory / "clone" / "source"
    done = subprocess.run(["diff", "-r", *pair], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_killed_mount_shows_again_what_was_synced(work: Path) -> None:
    """Killed under load: what a read-only mount then shows, the kernel must recover to in the test below."""
    for seed in range(2 * min(FACTOR, 4)):
        image = work / f"killed-{seed}.img"
        subprocess.run(["f2tools", "mkfs", "-q", image, "--size", "256M"], check=True)
        with mount_point() as directory, mounted(image, directory) as mount:
            storm = str(Path(__file__).with_name("storm.py"))
            command = [sys.executable, storm, mount.directory, str(seed), "100000", "leave"]
            program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            while sum(len(names) for _, _, names in os.walk(mount.directory)) < 150 + 40 * seed:
                assert program.poll() is None
                time.sleep(0.05)
            mount.kill()
            program.wait()
        torn = "checkpoint pack "  # where the kill came while one was written
        with mount_point() as directory, mounted(image, directory, "-o", "ro", may_say=torn) as mount:
            tree = without_holes(directory_of(mount.directory, work))
        assert len(tree) > 2
        LEFT.append((image.stem, image, tree))
        RECOVERED.add(image)


def test_the_real_kernel_shows_the_trees_that_the_mounts_showed(request: pytest.FixtureRequest) -> None:
    guest: Guest = request.getfixturevalue("guest")
    assert LEFT, "the tests before this one leave the volumes"
    script = """
    set -e
    n=0
    for disk in "${IMAGES[@]}"; do
        mount -t f2fs $disk /mnt; manifest /mnt $OUT/$n.json
        echo by the kernel > /mnt/by-the-kernel; umount /mnt; n=$((n + 1))
    done
    """
    result = guest.run(script, [image for _, image, _ in LEFT], timeout=900).must_succeed()
    assert_quiet(result)
    for number, (name, image, tree) in enumerate(LEFT):
        kernel = without_holes(json.loads((result.out / f"{number}.json").read_text())["entries"])
        if image in RECOVERED:
            for path in (path for path in kernel if kernel[path]["type"] == "dir" and path in tree):
                kernel[path]["mtime_ns"] = tree[path]["mtime_ns"]
        differing = [(p, k, v, tree.get(p, {}).get(k))
                     for p in kernel for k, v in kernel[p].items() if tree.get(p, {}).get(k) != v]  # fmt: skip
        assert kernel == tree, f"{name}: {differing[:10]}"
        judges.fsck_clean(image)
