"""f2tools itself in the guest: on real disks, partitions, loop and zoned devices, with the real blktrace.

What is tried there is in onboard/, as tests of pytest; what fails is shown here as it was there.  A few of them in one
boot, all of them with F2_REAL_DEVICES=all.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.kernel.guest import Guest

MIB = 1 << 20
ONBOARD = "tests/kernel/onboard"
FEW = (
    f"{ONBOARD}/devices.py::test_a_disk_that_is_set_read_only",
    f"{ONBOARD}/recording.py::test_a_workload_on_a_mounted_volume[blktrace]",
    f"{ONBOARD}/zoned.py::test_a_zoned_device_that_lost_power",
)
ALL = (f"{ONBOARD}/devices.py", f"{ONBOARD}/recording.py", f"{ONBOARD}/zoned.py", "tests/device/test_block.py")
SCRIPT = """
modprobe loop
cd /run/project
python -m pytest -q -p no:cacheprovider --durations=10 -rs $CHOSEN
"""


def test_f2tools_on_real_devices(guest: Guest, tmp_path: Path) -> None:
    disks = [tmp_path / name for name in ("first", "second")]
    for disk in disks:
        with disk.open("wb") as file:
            file.truncate(256 * MIB)
    chosen = ALL if os.environ.get("F2_REAL_DEVICES") == "all" else FEW
    done = guest.run(SCRIPT, disks, env={"CHOSEN": " ".join(chosen)}, with_f2tools=True, timeout=1800)
    print(done.stdout[-2000:])
    assert done.rc == 0, done.stdout[-20000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout, done.stdout[-2000:]  # there are loop devices
