#!/usr/bin/env python3
"""What a mount is asked while it does some work, and what each answer costs: processor time without the kernel.

    bench/requests.py untar [--runs 5] [--profile 25] [--keep FILE]    one of the measures of bench/mount.py, recorded
    bench/requests.py FILE                                             a recording, answered by this version of f2tools

The direct server is mounted once and its requests are recorded.  Then it answers them on a fresh copy of the volume; of
the runs the one that took least is shown, and the least that all of them took without the timer around each.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import os
import pickle
import pstats
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from mount import MEASURES, Scale, Volume

from f2tools.device import open_device
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fuse.direct.protocol import IN_HEADER, Opcode
from f2tools.fuse.direct.server import Direct
from f2tools.fuse.options import ServeOptions
from f2tools.mount.tree import LiveTree

SIZE = 512 << 20  # bytes of the volume
BALANCED = 2000  # requests, after which memory is looked at, as a mount does it every half second
RECORDER = """
import pickle, sys
from f2tools.__main__ import run
from f2tools.fuse.direct.server import Direct
begin, answer, out = Direct.__init__, Direct._serve, open(sys.argv.pop(1), "wb")
def by_python(self, *args):
    begin(self, *args)
    self._serving = self._serving[0], [], *self._serving[2:]  # the core hands all requests out
def recording(self, length):
    pickle.dump(bytes(self._buffer[:length]), out)
    answer(self, length)
Direct.__init__, Direct._serve = by_python, recording
sys.argv.pop(0)
run()
"""


def record(measure: str, scale: Scale, work: Path) -> list[bytes]:
    """The requests of a measure, its preparation among them."""
    recorder = work / "recorder.py"
    recorder.write_text(RECORDER)
    volume = Volume("direct", work, SIZE, str(recorder))
    volume.mount()
    try:
        MEASURES[measure][0](volume, scale)
    finally:
        volume.unmount()
    requests = []
    with Path(f"{volume.image}.prof").open("rb") as recorded:
        while recorded.peek(1):
            requests.append(pickle.load(recorded))
    return requests


def answered(image: Path, requests: list[bytes], spent: dict[int, int] | None, profile: cProfile.Profile | None) -> int:
    """Nanoseconds of processor time that all answers took; `spent` gets them by opcode."""
    with image.open("wb") as file:
        file.truncate(SIZE)  # inodes of a new volume get the same numbers each time
    subprocess.run(["mkfs.f2fs", "-q", "-t", "0", image], check=True, stdout=subprocess.DEVNULL)
    tree = LiveTree(WritableVolume(open_device(image, write=True)))
    server, clock = Direct(tree, ServeOptions()), time.process_time_ns
    server._fd = os.open(os.devnull, os.O_WRONLY)
    gc.collect()
    if profile:
        profile.enable()
    began = clock()
    for number, request in enumerate(requests):
        length = len(request)
        server._buffer[:length] = request
        before = clock() if spent is not None else 0
        server._serve(length)
        if spent is not None:
            opcode = IN_HEADER.unpack_from(request)[1]
            spent[opcode] = spent.get(opcode, 0) + clock() - before
        if number % BALANCED == 0:
            tree.balance()
    took = clock() - began
    if profile:
        profile.disable()
    os.close(server._fd)
    tree.close()
    return took


def main() -> None:
    """Print the table, and with --profile where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", help=f"a recording, or one of {', '.join(MEASURES)}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000, help="small ones")
    parser.add_argument("--mib", type=int, default=32, help="of the large file")
    parser.add_argument("--keep", type=Path, help="keep the recording in this file")
    parser.add_argument("--profile", type=int, metavar="LINES", help="by time within a function")
    parser.add_argument("--work", type=Path, help="where images lie")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="f2bench-", dir=args.work) as directory:
        work = Path(directory)
        if args.what in MEASURES:
            requests = record(args.what, Scale(args.mib, args.files, work), work)
        else:
            requests = pickle.loads(Path(args.what).read_bytes())
        if args.keep:
            args.keep.write_bytes(pickle.dumps(requests))
        total, by_opcode = [], []
        for _ in range(args.runs):
            total.append(answered(work / "image", requests, None, None))
            by_opcode.append({})
            answered(work / "image", requests, by_opcode[-1], None)
        least = min(by_opcode, key=lambda spent: sum(spent.values()))
        counts = Counter(IN_HEADER.unpack_from(request)[1] for request in requests)
        print(f"{'request':12} {'times':>7} {'us each':>8} {'share':>6}")
        for opcode, took in sorted(least.items(), key=lambda item: -item[1]):
            times, share = counts[opcode], took / sum(least.values())
            print(f"{Opcode(opcode).name:12} {times:7} {took / times / 1e3:8.1f} {share:6.1%}")
        print(f"{'all':12} {len(requests):7} {min(total) / len(requests) / 1e3:8.1f}  {min(total) / 1e9:.3f} s")
        if args.profile:
            profile = cProfile.Profile()
            answered(work / "image", requests, None, profile)
            pstats.Stats(profile).sort_stats("tottime").print_stats(args.profile)


if __name__ == "__main__":
    main()
