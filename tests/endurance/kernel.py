"""The real kernel as the judge: mounts of ours that were killed under load, and crashes of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests import judges
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.judges import missing_judge
from tests.kernel.guest import Guest, NoGuest
from tests.mkfs.from_tools import directory_of
from tests.mount.mounted import mounted
from tests.mount.suite_tools import mount_point
from tests.mount.test_suites import without_holes
from tests.recover import test_kernel_crashes as crashes

KILLS, CRASHES = 5, 6  # in a piece
FORMATS = ("", "-O extra_attr,inode_checksum", "-O extra_attr,compression", "-s 2", "-O quota,project_quota,extra_attr")
SCRIPT = """
set -e
n=0
for disk in "${IMAGES[@]}"; do
    mount -t f2fs $disk /mnt; manifest /mnt $OUT/$n.json
    echo by the kernel > /mnt/by-the-kernel; umount /mnt; n=$((n + 1))
done
"""


def guest(work: Path) -> Guest:
    """The kernel in QEMU."""
    (work / "guest").mkdir()
    try:
        return Guest.ready(work / "guest")
    except NoGuest as reason:
        return missing_judge(f"the kernel in QEMU ({reason})", "whether the real kernel agrees")


def killed(seed: int, work: Path) -> Outcome:
    """Mounts that are killed while a program writes there: the kernel recovers what a mount then shows."""
    machine = guest(work)
    trees = [(work / f"{n}.img", _killed(work / f"{n}.img", work, f"{seed}-{n}", seed + n)) for n in range(KILLS)]
    result = machine.run(SCRIPT, [image for image, _ in trees], timeout=600).must_succeed()
    outcome = Outcome(KILLS)
    for number, (image, tree) in enumerate(trees):
        kernel = without_holes(json.loads((result.out / f"{number}.json").read_text())["entries"])
        for path in (path for path in kernel if kernel[path]["type"] == "dir" and path in tree):
            kernel[path]["mtime_ns"] = tree[path]["mtime_ns"]  # the time of the recovery
        differing = [(p, k, v, tree.get(p, {}).get(k))
                     for p in kernel for k, v in kernel[p].items() if tree.get(p, {}).get(k) != v]  # fmt: skip
        differing += [(p, "is not in the kernel's tree") for p in tree.keys() - kernel.keys()]  # type: ignore[list-item]
        outcome.counts["paths compared"] += len(tree)
        if differing:
            outcome.found.append(Found(f"kill {seed}-{number}: {differing[:10]}"))
            continue
        try:
            judges.fsck_clean(image)
        except AssertionError as error:
            outcome.found.append(Found(f"kill {seed}-{number}: {error}"))
    return outcome


def _killed(image: Path, work: Path, chance: str, number: int) -> dict[str, Any]:
    """Make a volume, kill its mount at some moment, and say what a mount shows afterwards."""
    moment = random.Random(chance).randrange(20, 300)
    server = ("pyfuse3", "direct")[number % 2]
    form = FORMATS[number % len(FORMATS)].split()
    subprocess.run(["f2tools", "mkfs", "-q", image, "--size", "256M", *form], check=True)
    with mount_point() as directory, mounted(image, directory, server=server) as mount:
        storm = str(Path(__file__).parents[1] / "mount" / "storm.py")
        command = [sys.executable, storm, mount.directory, str(number), "100000", "leave"]
        program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while sum(len(names) for _, _, names in os.walk(mount.directory)) < moment:
            assert program.poll() is None
            time.sleep(0.02)
        mount.kill()
        program.wait()
    with mount_point() as directory, mounted(image, directory, "-o", "ro", server=server) as mount:
        return without_holes(directory_of(mount.directory, work))


def crashed(seed: int, work: Path) -> Outcome:
    """Volumes that a real kernel was writing to when its power was cut: recovered as the kernel recovers them."""
    machine = guest(work)
    kinds = [crashes.KINDS[(seed * CRASHES + n) % len(crashes.KINDS)] for n in range(CRASHES)]
    (work / "volumes").mkdir()
    volumes = crashes.crash(machine, kinds, f"endurance-{seed}", work / "volumes")
    rolled, wrong = crashes.judge_round(machine, volumes, work / "volumes")
    outcome = Outcome(CRASHES, found=[Found(text) for text in wrong])
    outcome.counts["with something to roll forward"] = rolled
    return outcome


KILLED = Campaign(
    "kills",
    "a mount by either server is killed by SIGKILL under load: the kernel mounts the volume, and recovers the very tree"
    " that a read-only mount of ours shows; fsck.f2fs is silent",
    "kills", 1000, KILLS, killed, minutes=20,
)  # fmt: skip
CRASHED = Campaign(
    "crashes",
    "the real kernel loses its power under load, mounted and formatted in many ways: we recover what it recovers, block"
    " by block",
    "crashes", 500, CRASHES, crashed, minutes=20,
)  # fmt: skip
