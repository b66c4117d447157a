"""One load on one file system of a real kernel, in QEMU: formatted, run and traced there, on a virtual disk.

The guest has what the host has: where the tools of a file system, or blktrace, are not installed, an error says so
before anything is booted.  The kernel's own counters of the disk are taken beside the trace, from its start to its end,
which is after the unmount; so what a file system sends late counts too.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import tempfile
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path

import zstandard

from f2tools import newfile
from f2tools.errors import DeviceError
from f2tools.experiment import files, loads
from f2tools.experiment.loads import GIB, MIB
from f2tools.experiment.measure import traced
from f2tools.experiment.model import Numbers, Unfinished, Work
from f2tools.guest.boot import Guest, GuestFailed, NotDone, Result
from f2tools.guest.build import NoGuest, libraries, which
from f2tools.options import human_size

TIMEOUT = 1200  # seconds for a load; without KVM on a busy machine it takes many times as long as else
MEMORY_MIB = 1536
CPUS = 1  # several guests run beside each other; a load has one process, and emulating a second costs a quarter more
BACKGROUND, DIRTY = (
    GIB // 4,
    GIB // 2,
)  # memory for what waits to be written, as machines of the papers' time had; scaled
# What formats each, its package, the options of mkfs and of mount.  A small ext4 would get blocks of 1 KiB, and zeros
# its tables in the background, which the trace would have in it.
TOOLS: dict[str, tuple[str, str, str, str]] = {
    "f2fs": ("mkfs.f2fs", "f2fs-tools", "-f", "discard,alloc_mode=default"),
    "ext3": ("mkfs.ext4", "e2fsprogs", "-t ext3 -q -F -b 4096 -E nodiscard", "discard"),
    "ext4": ("mkfs.ext4", "e2fsprogs", "-q -F -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0", "discard"),
    "btrfs": ("mkfs.btrfs", "btrfs-progs", "-q -f -K -m single -n 4096", "discard"),  # as it did on an SSD then
    "nilfs2": ("mkfs.nilfs2", "nilfs-tools", "-q -f -K", "discard"),
}
# numbers of /sys/block/DEVICE/stat by their places
# Its write-back does nothing but wait for nilfs2's own thread, which comes every 5 s or when so many blocks wait.  With
# less memory for these everyone who writes waits too, 5 s for each memory full; so it comes before that.
NILFS2_BLOCKS = 3600
STAT = {
    "reads": 0, "read_sectors": 2, "writes": 4, "write_sectors": 6, "discards": 11, "discard_sectors": 13,
    "flushes": 15,
}  # fmt: skip
WAYS = ("IPU", "SSR", "LFS")  # in place, threaded, appended
EXIT_STATES = {7: "formatting or mounting failed", 8: "the load failed", 9: "the kernel has no module of that name"}

# The disk takes requests of 512 KiB, as the papers' did; little is held in memory, as the load is a share of theirs.
# F2FS of today sees to volumes of up to 16 GiB otherwise than to the paper's: it overwrites in place, discards single
# blocks and uses segments again at once (f2fs_tuning_parameters() in fs/f2fs/super.c).  Scaled volumes are as small, so
# they get the ways of the large ones.
SCRIPT = """
disk=/sys/block/vda
modprobe $FS || exit 9
echo 512 > $disk/queue/max_sectors_kb
echo $BACKGROUND > /proc/sys/vm/dirty_background_bytes
echo $DIRTY > /proc/sys/vm/dirty_bytes
echo 500 > /proc/sys/vm/dirty_expire_centisecs
eval "$MKFS /dev/vda" > $OUT/mkfs.txt 2>&1 || { cat $OUT/mkfs.txt; exit 7; }
[ $FS != nilfs2 ] || nilfs-tune -f -m $NILFS2_BLOCKS /dev/vda >> $OUT/mkfs.txt 2>&1 || { cat $OUT/mkfs.txt; exit 7; }
mount -i -t $FS -o $MOUNT /dev/vda /mnt || { dmesg | tail; exit 7; }
if [ -e /share/fio ]; then
    mkdir /tmp/bin
    printf '#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --library-path /share /share/fio "$@"\n' > /tmp/bin/fio
    chmod 755 /tmp/bin/fio
    export PATH=$PATH:/tmp/bin
fi
mkdir -p /tmp/ours/f2tools/experiment
cp /share/*.py /tmp/ours/f2tools/experiment
export PYTHONPATH=/tmp/ours
if [ $FS = f2fs ]; then
    echo 0 > /sys/fs/f2fs/vda/ipu_policy
    echo 512 > /sys/fs/f2fs/vda/discard_granularity
fi 2> /dev/null
python3 -m f2tools.experiment.loads PREPARE $LOAD /share/given.json /mnt > $OUT/prepare.json || exit 8
sync
mkdir /tmp/trace
blktrace -d /dev/vda -D /tmp/trace -o trace -b 2048 -n 8 -a queue -a issue -a complete -a requeue \\
    > $OUT/blktrace.txt 2>&1 &
tracer=$!
while ! [ -e /sys/kernel/debug/block/vda/trace0 ]; do sleep 0.1; done
sleep 2
blocks() { cat /sys/kernel/debug/f2fs/status > $OUT/$1 2> /dev/null; }
blocks status-before
cat $disk/stat > $OUT/before
python3 -m f2tools.experiment.loads RUN $LOAD /share/given.json /mnt $disk/stat > $OUT/run.json; state=$?
sync
blocks status-after
umount /mnt
cat $disk/stat > $OUT/after
sleep 1
kill -INT $tracer; wait $tracer
for file in /tmp/trace/*; do
    dd if="$file" of="$OUT/${file##*/}" bs=512k status=none  # busybox's cp has pieces of 4 KiB, each a round trip
done
[ $state = 0 ] || exit 8
"""


def on_guest(work: Work, fs: str, mount: str, load: str, params: Numbers, size: int) -> Numbers:
    """Format, prepare, run; `mount`: further options for it.

    NoGuest or DeviceError says what is not to be had, Unfinished that it takes too long.
    """
    program, package, options, mounted = TOOLS[fs]
    for needed, of in ((program, package), ("blktrace", "blktrace")):
        if which(needed) is None:
            raise NoGuest(f"{needed} is not installed here, so the guest lacks it; apt-get install {of}")
    setting = work.setting
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="f2tools-experiment-")))
        free = shutil.disk_usage(place).free
        if free < size:
            raise DeviceError(
                f"{place.parent} has {human_size(free)} free, and the guest's disk may take {human_size(size)}; "
                "$TMPDIR names another place for it"
            )
        image = place / "disk"
        with image.open("wb") as file:
            file.truncate(size)
        background = setting.bytes(BACKGROUND, MIB)
        try:
            result = Guest.ready(place).run(
                SCRIPT, [image], timeout=TIMEOUT, memory_mib=MEMORY_MIB, cpus=CPUS,
                files=_sources()
                | {"given.json": json.dumps({"params": params, "seed": setting.seed})}
                | (_program("fio") if params.get("fio") else {}),
                env={
                    "FS": fs, "MKFS": f"{program} {options}", "MOUNT": ",".join(filter(None, (mounted, mount))),
                    "BACKGROUND": str(background), "DIRTY": str(setting.bytes(DIRTY, 2 * MIB)), "LOAD": load,
                    "NILFS2_BLOCKS": str(min(NILFS2_BLOCKS, background // files.BLOCK)),
                },
            )  # fmt: skip
        except NotDone:
            raise Unfinished(f"{load} on {fs} in the guest was not done within {TIMEOUT} s") from None
        if result.rc != 0:
            why = EXIT_STATES.get(result.rc or 0, f"the script ended with {result.rc}")
            raise GuestFailed(f"{fs} in the guest: {why}\n{result.stdout[-1500:]}{result.stderr[-1500:]}")
        work.advance(1.0)
        return _numbers(work, result, size, bool(params.get("map")))


def _program(name: str) -> dict[str, bytes]:
    """A program of the host that the guest has not, with its libraries."""
    path = which(name)
    if path is None:
        raise NoGuest(f"{name} is not installed here; apt-get install {name}")
    return {file.name: file.read_bytes() for file in (path, *libraries(path))}


@cache
def _sources() -> dict[str, str | bytes]:
    return {f"{module.__name__.rsplit('.')[-1]}.py": inspect.getsource(module) for module in (files, loads)}


def _numbers(work: Work, result: Result, size: int, drawn: bool) -> Numbers:
    """What the load said, the device's counters, the trace."""
    out = result.out
    prepared, run = result.json("prepare.json"), result.json("run.json")
    before, after = ([int(word) for word in (out / name).read_text().split()] for name in ("before", "after"))
    rounds = run["rounds"]
    found: Numbers = {
        "calls": run["calls"], "size_bytes": size, "full": prepared["full"], "kernel": _release(result.dmesg),
        "run": between(before, after),
        "rounds": [between(a, b) for a, b in pairwise(rounds)],
        "enospc_in_round": 0 if prepared["enospc"] else run["enospc_in_round"],
        "enospc_before": prepared["enospc"],
        "trace": traced(str(out), drawn),
    }  # fmt: skip
    was, now = (blocks_by_way((out / name).read_text()) for name in ("status-before", "status-after"))
    if was and now:
        found["blocks_by_way"] = {way: now[way] - was[way] for way in WAYS}
    if work.directory is not None:
        for path in sorted(out.glob("trace.blktrace.*")):
            with newfile.replacing(str(work.directory / f"{path.name}.zst")) as file, path.open("rb") as source:
                zstandard.ZstdCompressor(level=3).copy_stream(source, file)
        for name in ("mkfs.txt", "blktrace.txt", "run.json"):
            shutil.copy(out / name, work.directory / name)
    return found


def blocks_by_way(status: str) -> dict[str, int]:
    """Blocks that F2FS has written since it was mounted, as its status in debugfs says; nothing where it says none."""
    found = {way: re.search(rf"^{way}: (\d+) blocks", status, re.MULTILINE) for way in WAYS}
    return {way: int(one[1]) for way, one in found.items() if one} if all(found.values()) else {}


def _release(dmesg: str) -> str:
    found = re.search(r"Linux version (\S+)", dmesg)
    return found[1] if found else ""


def between(before: list[int], after: list[int]) -> dict[str, int]:
    """The counters of the device from one moment to another, sectors as bytes."""
    moved = {name: after[at] - before[at] for name, at in STAT.items() if at < len(after)}
    return {
        **{name: moved[name] for name in ("reads", "writes", "discards", "flushes") if name in moved},
        **{f"{name}_bytes": moved[f"{name}_sectors"] * 512 for name in ("read", "write", "discard")},
    }
