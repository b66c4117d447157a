#!/usr/bin/env python3
"""The loads of `f2tools dfs report` on ext4 and F2FS by a real kernel: writes f2tools/dfs/peers.json.

    bench/dfs_peers.py [--output FILE]

In QEMU, as `f2tools experiment dfs --on guest` does it: the same calls, each load in a directory of its own, and a sync
after it; the kernel's counters of the disk from one sync to the next.  The two loads of large writes are run once more
with O_DIRECT.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from f2tools.dfs.report import DIRECT, LOADS
from f2tools.experiment.model import Setting, Work
from f2tools.experiment.onguest import TOOLS, on_guest
from f2tools.experiment.studies.dfs import SIZE, calls_of

FILE_SYSTEMS = ("ext4", "f2fs")
KEPT = {"requests": "writes", "written_bytes": "write_bytes", "flushes": "flushes", "discards": "discards"}
HERE = Path(__file__).resolve().parents[1] / "f2tools" / "dfs" / "peers.json"


def version(program: str) -> str:
    """What a formatting program says of itself."""
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"[0-9]+\.[0-9]+\.[0-9]+", said.stdout + said.stderr)
    return f"{program} {found[0] if found else '?'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE)
    output = parser.parse_args().output
    loads: dict[str, dict[str, Any]] = {name: {} for name in [*LOADS, *DIRECT]}
    kernel = ""
    for fs in FILE_SYSTEMS:
        for names, how in ((list(LOADS), {}), (list(DIRECT), {"direct": True})):
            params = {"rounds": [calls_of(LOADS[DIRECT.get(name, name)]) for name in names], **how}
            found = on_guest(Work(Setting(on="guest"), None, lambda _: None), fs, "", "replay", params, SIZE)
            kernel = found["kernel"]
            for name, counted in zip(names, found["rounds"], strict=True):
                loads[name][fs] = {ours: counted[theirs] for ours, theirs in KEPT.items()}
            print(fs, names, "done", flush=True)
    made = {
        "command": "bench/dfs_peers.py", "date": datetime.date.today().isoformat(), "kernel": kernel,
        "disk": f"virtual, {SIZE} bytes, requests up to 512 KiB; counted by /sys/block/vda/stat",
        "formatted_by": {fs: f"{version(TOOLS[fs][0])}, {TOOLS[fs][2]}" for fs in FILE_SYSTEMS},
        "mounted_with": {fs: TOOLS[fs][3] for fs in FILE_SYSTEMS},
    }  # fmt: skip
    output.write_text(json.dumps({"made": made, "loads": loads}, indent=1) + "\n")


if __name__ == "__main__":
    main()
