"""Files live and die under a real kernel, every state is on record: what is called certain was the file's content.

A kernel overwrites blocks in place before an fdatasync, which leaves the inode as it is, and with O_DIRECT.  When the
file is deleted right after, nothing on the disk tells: what comes back is the content that it had last, with the mtime
of the one before.  With mode=lfs nothing is overwritten in place; those volumes live here, and all others in
`make nightly`, where F2_FORENSIC_SECONDS says how long.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import f2tools
from f2tools.forensics.index import open_index
from f2tools.forensics.undelete import Undelete, as_dict
from tests.kernel.guest import Guest
from tests.mkfs.tools import f2mkfs

SECONDS = float(os.environ.get("F2_FORENSIC_SECONDS", "4"))
WORKLOAD = Path(__file__).with_name("life_workload.py")
KINDS = (
    ("--size 64M", "nodiscard"),
    ("--size 64M -O extra_attr,inode_checksum,inode_crtime,compression", "nodiscard,compress_extension=*"),
    ("--size 64M", "nodiscard,mode=lfs"),
    ("--size 64M -C utf8 -O casefold,extra_attr,quota", "nodiscard,noinline_data,noinline_dentry"),
    ("--size 128M -s 2", "nodiscard,active_logs=4,fsync_mode=strict"),
    ("--size 64M", "active_logs=2"),
)
IN_NEW_PLACES = (
    ("--size 64M", "nodiscard,mode=lfs"),
    ("--size 64M -O extra_attr,inode_checksum,inode_crtime", "nodiscard,mode=lfs,noinline_data"),
)
SCRIPT = """
set -e
words=($MOUNTS); count=${#words[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o ${words[$n]} ${IMAGES[$n]} /mnt/$n; done
python3 /share/workload $SEED $SECONDS_OF_LIFE $count
umount /mnt/0
crash
"""


class Record:
    """The states that files had."""

    def __init__(self, path: Path) -> None:
        self.contents: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)  # size, mtime, SHA-256
        self.paths: dict[tuple[int, int], set[str]] = defaultdict(set)
        for line in path.read_text().splitlines():
            one = json.loads(line)
            key = one["ino"], one["generation"]
            self.contents[key].append((one["size"], one["mtime_ns"], one["sha256"]))
            self.paths[key].update(one["paths"])

    def wrong(self, found: dict[str, Any]) -> str | None:
        """What is wrong with what was found."""
        key = found["ino"], found["generation"]
        if not any(
            (found["size"], found["sha256"]) == (size, digest) and mtime >= found["mtime_ns"]
            for size, mtime, digest in self.contents[key]
        ):
            return "content"
        named = found["links"] and not found["path"].startswith("#")
        # renamed over another file, an inode keeps the name that it had, and has the new parent
        names = {path.rsplit("/", 1)[-1] for path in self.paths[key]}
        return "path" if named and found["path"].rsplit("/", 1)[-1] not in names else None


def judge(image: Path, record: Record) -> tuple[int, list[Any]]:
    """(how many were certain, what is wrong of these)."""
    with f2tools.open(image) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        every = list(run.deleted())
        for found in every:
            run.digest(found)
        said = [as_dict(found) for found in (*every, *run.older())]
    certain = [
        one for one in said
        if one["grade"] == "certain" and one["type"] == "file" and one["size"] and one["path"] != "fill"
    ]  # fmt: skip
    return len(certain), [(why, one) for one in certain if (why := record.wrong(one))]


def test_what_is_certain_was_the_content(guest: Guest, tmp_path: Path) -> None:
    kinds = KINDS if SECONDS > 30 else IN_NEW_PLACES
    images = [tmp_path / f"{n}.img" for n in range(len(kinds))]
    for path, (options, _) in zip(images, kinds, strict=True):
        f2mkfs("-q", path, *options.split())
    seed = f"{time.time_ns():x}"
    env = {"MOUNTS": " ".join(mount for _, mount in kinds), "SEED": seed, "SECONDS_OF_LIFE": f"{SECONDS}"}
    files = {"workload": WORKLOAD.read_text()}
    result = guest.run(SCRIPT, images, env=env, files=files, timeout=SECONDS + 300, cpus=2)
    assert result.crashed, result.must_succeed()
    certain, wrong = 0, []
    for n, (path, kind) in enumerate(zip(images, kinds, strict=True)):
        count, bad = judge(path, Record(result.out / f"{n}.jsonl"))
        certain += count
        wrong += [(*kind, *one) for one in bad]
    print(f"{certain} certain, {len(wrong)} of them wrong, seed {seed}")
    # when a deletion comes is a matter of chance: one that nothing on the disk tells of is no reason to stop a change
    assert len(wrong) <= (0 if SECONDS > 30 else 1), "\n".join(map(str, wrong[:20]))
    assert certain > len(wrong)
