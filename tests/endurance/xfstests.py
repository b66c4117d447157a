"""xfstests on a mount by each server: each generic test, and each of F2FS, alone, with images of its own.

A test runs in mount and process namespaces of its own, so that what it mounts, or leaves running, ends with it.  What
it could change of the whole machine is out of its reach, but for the caches, which it may drop.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests import judges
from tests.endurance import suite
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.judges import missing_judge
from tests.mount.mounted import need_fuse

HERE = Path(__file__).parent
SERVERS = ("direct", "pyfuse3")
TESTS = 10  # in a piece
GENERIC, OF_F2FS = 787, 23
PIECES = -(-(GENERIC + OF_F2FS) // TESTS)  # for one server
SECONDS = 300  # of a test
SLOW_SECONDS = 1200  # of those that write small pieces for long
SLOW = {
    "generic/027", "generic/054", "generic/055", "generic/069", "generic/074", "generic/127", "generic/299",
    "generic/300", "generic/311", "generic/371", "generic/438", "generic/507", "generic/521", "generic/522",
    "generic/551", "generic/627", "generic/707",
}  # fmt: skip
BYTES = 1 << 30  # of an image
LARGER = {"generic/038": 12 << 30, "generic/213": 2 << 30}
TOLD = 1500  # characters of a difference
OPTIONS = "default_permissions,allow_other"
STRICT = "fsync_mode=strict"  # what some tests mount F2FS with
ROUTE = ":".join([str(Path(sys.executable).parent), judges.TOOL_PATH])

OF_THE_KERNEL = "asks the kernel's driver for {}"
KERNEL_ONLY = {
    **dict.fromkeys(("003", "004", "010", "013"), OF_THE_KERNEL.format("atomic writes (an ioctl of F2FS)")),
    **dict.fromkeys(("005", "006", "011"), OF_THE_KERNEL.format("checkpoint=disable")),
    **dict.fromkeys(("015", "016", "017", "021"), OF_THE_KERNEL.format("its mount options, each in turn")),
    **dict.fromkeys(("019", "020", "022", "023"), OF_THE_KERNEL.format("its own words in the kernel's log")),
    "002": OF_THE_KERNEL.format("fscrypt's ioctls to write encrypted files"),
    "007": OF_THE_KERNEL.format("compress_mode=user and its ioctls"),
    "008": "needs LVM on a block device",
    "012": OF_THE_KERNEL.format("the casefold flag by an ioctl of its own, and lookup_mode"),
    "018": OF_THE_KERNEL.format("its mount options of compression"),
}
# Tests that are not run at all, each with its reason.
LEFT_OUT = {
    **dict.fromkeys(
        ("generic/597", "generic/598"), "changes settings of the whole machine (fs.protected_symlinks and others)"
    ),
    "generic/460": "changes settings of the whole machine (vm.dirty_ratio)",
    "generic/622": "changes settings of the whole machine (vm.dirty_expire_centisecs)",
    "generic/650": "switches processors of the machine off",
    **{f"f2fs/{number}": reason for number, reason in KERNEL_ONLY.items()},
}
# Tests that fail for what the kernel's FUSE does, whatever serves it; with `pyfuse3 `, for what that lacks.
EXPLAINED = {
    "generic/020": "asks for 1,000 attributes of a file; F2FS has one block for them",
    "generic/066": "expects, as of a journal, that fsync of one file makes the changes of others safe; F2FS is given"
    " fastboot there",
    "generic/103": "fills a volume but for 512 KiB; it leaves room for the nodes of a file only where it knows F2FS",
    **dict.fromkeys(
        ("pyfuse3 generic/099", "pyfuse3 generic/319", "pyfuse3 generic/444", "pyfuse3 generic/697"),
        "the kernel takes the umask off a mode although a default ACL says what it is, unless asked not to, which"
        " pyfuse3 can't",
    ),
    "generic/424": "asks statx(2) for the flags of a file, which the kernel's FUSE takes from no server",
    "pyfuse3 generic/553": "pyfuse3 does not say whether a write comes out of a cache, and so was allowed before the"
    " file became immutable",
    "generic/705": "asks for the extents of a file by FIEMAP, which the kernel's FUSE hands on to no server",
    "generic/732": "mounts one image on two directories; a second server of an image is refused",
    "generic/783": "asks overlayfs to refuse directories that fold case, of which FUSE tells the kernel nothing",
    "f2fs/001": "expects that fallocate of more than there is takes all there is; here it then takes nothing",
    "f2fs/014": "asks for the flag by which the kernel's driver says that it has discarded all that is free",
    "generic/530": "a program of its own shuts the volume down, by an ioctl; a server is killed for that",
    "pyfuse3 generic/451": "libfuse lets the kernel do O_DIRECT without waiting, which leaves old pages where a file is"
    " read at the same time",
}


def names() -> list[str]:
    """All tests, in one order."""
    found = [
        f"{group}/{number}"
        for group in ("generic", "f2fs")
        for number in re.findall(r"^(\d+) ", (suite.built() / "tests" / group / "group.list").read_text(), re.MULTILINE)
    ]
    assert len(found) == GENERIC + OF_F2FS, len(found)
    return found


def piece(seed: int, work: Path) -> Outcome:
    """Some tests by one server."""
    if os.geteuid() != 0:
        missing_judge("xfstests need root", "what xfstests say of a mount")
    server = SERVERS[seed % 2]
    need_fuse(server)
    outcome = Outcome()
    for name in names()[seed // 2 * TESTS :][:TESTS]:
        said, found = one(name, server, work / "volumes")
        outcome.done += 1
        outcome.counts[said.partition(":")[0]] += 1
        outcome.said[f"{name} {server}"] = said
        outcome.found += found
    return outcome


def one(name: str, server: str, work: Path) -> tuple[str, list[Found]]:
    """How a test ended, in words, and what is not explained by itself."""
    if name in LEFT_OUT:
        return f"not run: {LEFT_OUT[name]}", []
    work.mkdir()
    try:
        ended = _run(name, server, work)
        said = _told(name, work / "results" / name, ended)
        wrong = [] if said.startswith("not run") else _complaints(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if wrong:
        return "failed: a checker complains of its image", [Found(f"{name} by {server}:\n{text}") for text in wrong]
    why = EXPLAINED.get(name) or EXPLAINED.get(f"{server} {name}")
    if not said.startswith("failed"):
        return said, []
    if why and "still running" not in said:
        return f"failed: {why}", []
    return said.partition("\n")[0], [Found(f"{name} by {server}: {said}")]


def _run(name: str, server: str, work: Path) -> str | None:
    """What was printed; None where the time limit ended it."""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    options = f"{OPTIONS},server={server}"
    if STRICT in (suite.built() / "tests" / name).read_text():
        options += f",{STRICT}"
    environment = os.environ | {
        "PATH": ROUTE, "WORK": str(work), "OPTIONS": options,
        "XFSTESTS_BYTES": str(LARGER.get(name, BYTES)), "XFSTESTS_MORE": str(HERE / "xfstests_mount.sh"),
        "FSTESTS_ISOL": "privatens",  # that there is another /proc below
    }  # fmt: skip
    seconds = _seconds(name)
    with (work / "printed").open("wb") as out:
        process = subprocess.Popen(
            [*command, "sh", HERE / "xfstests_inside.sh", name],
            cwd=suite.built(), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()  # and with it all that is in its namespace
            process.wait()
            return None
    return (work / "printed").read_text(errors="replace")


def _seconds(name: str) -> int:
    return SLOW_SECONDS if name in SLOW else SECONDS


def _told(name: str, results: Path, printed: str | None) -> str:
    reason = results.with_suffix(".notrun")
    if reason.exists():
        return f"not run: {reason.read_text(errors='replace').strip().partition(chr(10))[0]}"
    if printed is None:
        return f"failed: still running after {_seconds(name)} s"
    if "\nPassed all 1 tests" in printed:
        return "passed"
    difference = results.with_suffix(".out.bad")
    if not difference.exists():
        return f"failed: no result\n{printed[-TOLD:]}"
    wanted = suite.built() / "tests" / f"{name}.out"
    done = subprocess.run(["diff", wanted, difference], capture_output=True, text=True, errors="replace", check=False)
    first = next((line[2:] for line in done.stdout.splitlines() if line.startswith("> ")), "its output ends early")
    return f"failed: {first[:100]}\n{done.stdout[:TOLD]}"


def _complaints(work: Path) -> list[str]:
    """What the checkers say of the images that a test left; a mount that was killed left what recovery takes in."""
    wrong = []
    for image in (work / "test.img", work / "scratch.img"):
        done = subprocess.run(["f2tools", "fsck", image], capture_output=True, text=True, check=False)
        if done.returncode:
            wrong.append(f"f2tools fsck of {image.name}:\n{done.stdout[-TOLD:]}{done.stderr[-TOLD:]}")
            continue
        try:
            judges.fsck_clean(image)
        except AssertionError as error:
            wrong.append(f"fsck.f2fs of {image.name}:\n{str(error)[-TOLD:]}")
    return wrong


XFSTESTS = Campaign(
    "xfstests",
    f"xfstests ({suite.TAG}), each generic test and each of F2FS by both servers, with images of its own;"
    " our fsck and fsck.f2fs are silent afterwards",
    "tests", PIECES * TESTS * len(SERVERS), TESTS, piece, minutes=(TESTS * SECONDS + SLOW_SECONDS) // 60 + 5,
)  # fmt: skip
