"""xfstests as they are published, at one commit: fetched and built into .cache/xfstests when they are first asked for.

F2_XFSTESTS names another repository to fetch from, such as a copy on this machine.  To build, Debian wants autoconf
automake bc gawk gcc libacl1-dev libaio-dev libattr1-dev libcap-dev libgdbm-compat-dev libtool-bin make uuid-dev
xfslibs-dev xfsprogs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.images import ROOT
from tests.judges import missing_judge

FROM = "https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git"
TAG = "v2026.01.27"
COMMIT = "69cd20bd0498f8d112623be88ce855c063091f19"
SHA256 = "a77a9e707fb9f1b714f45af456e8398cd4a99090b875bbd3d26962e21ed2d39e"  # of what `git archive` makes of it
PLACE = ROOT / ".cache" / "xfstests"
# these end so: what the environment names may say things anew
HOOKED = "common/rc", "common/dmflakey", "common/attr", "common/casefold", "common/log"
HOOK = '\n[ -z "$XFSTESTS_MORE" ] || . "$XFSTESTS_MORE"\n/bin/true\n'


def built() -> Path:
    """Where the suite lies, ready to run."""
    stamp, wanted = PLACE / ".built", f"{COMMIT} {' '.join(HOOKED)}"
    if _read(stamp) != wanted:
        PLACE.parent.mkdir(exist_ok=True)
        with PLACE.with_name("xfstests.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _read(stamp) != wanted:
                _build()
                stamp.write_text(wanted)
    return PLACE


def fsstress() -> Path:
    """The program that does random things to a directory in several processes."""
    return built() / "ltp" / "fsstress"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _build() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    repository = PLACE.with_name("xfstests.git")
    shutil.rmtree(repository, ignore_errors=True)
    git = ["git", "-C", str(repository)]
    source = os.environ.get("F2_XFSTESTS", FROM)
    _do(["git", "init", "--quiet", "--bare", str(repository)])
    _do([*git, "fetch", "--quiet", "--depth", "1", source, f"refs/tags/{TAG}"])
    archive = subprocess.run([*git, "archive", COMMIT], stdout=subprocess.PIPE, check=True).stdout
    if hashlib.sha256(archive).hexdigest() != SHA256:
        raise AssertionError(f"xfstests from {source} are not those of commit {COMMIT}")
    PLACE.mkdir()
    subprocess.run(["tar", "x", "-C", PLACE], input=archive, check=True)
    shutil.rmtree(repository)
    _do(["make", "-C", str(PLACE), f"-j{os.cpu_count()}"])
    for name in HOOKED:
        with (PLACE / name).open("a") as file:
            file.write(HOOK)


def _do(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = done.stdout.strip().rpartition("\n")[2]
        missing_judge(f"xfstests can't be built: {' '.join(command)}: {last}", "what xfstests say of a mount")
