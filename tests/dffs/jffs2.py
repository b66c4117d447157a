"""JFFS2 measured in the guest.  `python -m tests.dffs.jffs2` writes the figures that `f2tools dffs report` shows."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.dffs.mtd_utils import mtd_utils
from tests.kernel.guest import Guest

INSIDE = Path(__file__).with_name("inside_jffs2.py")
RECORDED = Path(__file__).parents[2] / "f2tools/dffs/jffs2.json"
STEPS = {"calibration": 1, "change": 1, "lookup": 1, "mount": 1, "postmark": 4}  # what the sizes are divided by
SCRIPT = """
chmod +x /share/nand* /share/flash_erase
modprobe nandsim id_bytes=0x20,0xaa,0x00,0x15
modprobe jffs2
python3 /share/inside.py $SCALE $STEPS > $OUT/found.json
"""
HOW = (
    "JFFS2 of the Linux kernel named here, mounted with compr=none,noatime on nandsim's chip of 256 MiB (pages of "
    "2048+64 bytes, 64 of them in an erase block; cleanmarkers by flash_erase -j), in QEMU.  Commands to the chip were "
    "counted by kprobes on the kernel's functions that send them: nand_lp_exec_read_page_op, less nand_read_oob_op, "
    "which reads a spare area alone; nand_exec_prog_page_op; nand_erase_op.  `calibration`: ten pages written and read "
    "by nandwrite and nanddump.  After each change sync(2); before each open drop_caches.  `behind_it` is what the "
    "thread reads that checks nodes after a mount.  Postmark has a quarter of the files, directories and operations.  "
    "Made by `python -m tests.dffs.jffs2`."
)


def measured(guest: Guest, steps: tuple[str, ...], scale: int = 1, timeout: float = 300) -> dict[str, Any]:
    """What the guest counted; `scale` divides the sizes of workloads."""
    files = {**mtd_utils(), "inside.py": INSIDE.read_bytes()}
    done = guest.run(
        SCRIPT, files=files, env={"STEPS": " ".join(steps), "SCALE": str(scale)}, timeout=timeout, memory_mib=1536
    )
    assert done.rc == 0, done.stderr[-2000:]
    return json.loads((done.out / "found.json").read_text())


def main() -> None:
    found: dict[str, Any] = {"measured": True, "how": HOW}
    with tempfile.TemporaryDirectory() as work:
        for step, scale in STEPS.items():
            found.update(measured(Guest.ready(Path(work)), (step,), scale, 3000))
    found.pop("scale")
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
