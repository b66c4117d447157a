"""The conformance suites as functions of a mount point: each demands success and returns what the suite said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.judges import find_tool, missing_judge

BUILT = Path(__file__).parents[2] / ".cache" / "suites" / "bin"

PJDFSTEST = """
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
FSX = """
flen = {longest}
nosizechecks = false
nomsyncafterwrite = {lazy}
[opsize]
max = {most}
[weights]
close_open = 1
read = 10
write = 10
mapread = {mapped}
mapwrite = {mapped}
truncate = 10
fsync = 1
fdatasync = 1
punch_hole = {holes}
sendfile = 1
posix_fallocate = {holes}
copy_file_range = 1
posix_fadvise = 1
invalidate = 1
"""
NO_BYTES = re.compile(r"(\d+) POSIX_FALLOCATE .*\(\s*0x0 bytes\)\s*\Z")


def _suite(name: str) -> str:
    path = BUILT / name
    return str(path) if path.exists() else missing_judge(f"{name} is not built", f"what {name} says of a mount")


@contextmanager
def mount_point() -> Iterator[Path]:
    """A directory with a short path, as the name of a socket has 108 bytes, that the users of suites get to."""
    above = Path(tempfile.mkdtemp(prefix="f2-", dir="/tmp"))
    above.chmod(0o755)
    (above / "m").mkdir()
    yield above / "m"
    (above / "m.log").unlink(missing_ok=True)
    (above / "m").rmdir()
    above.rmdir()


def pjdfstest(directory: Path, work: Path) -> tuple[dict[str, str], str]:
    """Outcome of each case (`ok`, `FAILED`, `skipped`), and all that was printed; the cases run in `directory`."""
    if os.geteuid() != 0:
        missing_judge("pjdfstest needs root", "what pjdfstest says of a mount")
    configuration = work / "pjdfstest.toml"
    configuration.write_text(PJDFSTEST)
    command = [_suite("pjdfstest"), "-c", configuration, "-p", directory]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False)
    said = done.stdout.decode(errors="replace")
    cases = dict(re.findall(r"^(\w+(?:::\w+)+)\s+(ok|FAILED|skipped)\s*$", said, re.MULTILINE))
    assert len(cases) > 380, said[-3000:]
    return cases, said


def fsx(
    path: Path, work: Path, operations: int, seed: int, *, mapped: bool, holes: bool = False, synced: bool = True,
    longest: int = 256 << 10, most: int = 64 << 10,
) -> None:  # fmt: skip
    """So many random operations on one file, held against a copy in memory; with mmap, with fallocate, or without.

    `synced`: an msync follows what is written through a map.  `longest` and `most`: bytes of the file, of an operation.
    """
    text = FSX.format(
        mapped=10 if mapped else 0, holes=5 if holes else 0, lazy=str(not synced).lower(), longest=longest, most=most
    )
    configuration = work / "fsx.toml"
    configuration.write_text(text)
    left = operations
    while left:
        command = [_suite("fsx"), "-f", configuration, "-N", str(left), "-S", str(seed), "-P", work, path]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=3600, check=False)
        said = done.stdout.decode(errors="replace")
        if not done.returncode:
            return
        # fsx 0.3.2 asks for room for no bytes now and then, which no file system gives; another run goes on from there
        ended = NO_BYTES.search(said)
        assert ended, f"fsx -N {left} -S {seed}, with{text}{said[-4000:]}"
        left, seed = left - int(ended[1]), seed + 1


def fio_verify(directory: Path, mib: int) -> None:
    """fio writes at random, buffered, mapped and direct, and reads back every checksum."""
    fio = find_tool("fio") or missing_judge("fio is not installed", "what fio --verify says of a mount")
    for engine, direct, pattern in (("psync", 0, "randwrite"), ("mmap", 0, "randwrite"), ("psync", 1, "randwrite")):
        command = [
            fio, "--name=v", f"--directory={directory}", f"--size={mib}m", "--bs=4k", f"--ioengine={engine}",
            f"--direct={direct}", f"--rw={pattern}", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1",
            "--randseed=7", "--verify_state_save=0", "--output-format=json",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, said[-3000:]
        assert json.loads(said[said.index("{") :])["jobs"][0]["error"] == 0, said[-3000:]
        for path in directory.glob("v.*"):
            path.unlink()
