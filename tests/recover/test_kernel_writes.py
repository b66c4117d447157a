"""What the kernel wrote, as a disk with a cache leaves it: of what no flush came after, some is lost or torn.

The kernel recovers such a volume, and so do we; nothing else may be needed.  F2_TORN says how many volumes are judged.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from f2tools.device import open_device
from tests.fsck import lost_writes
from tests.kernel import write_log
from tests.kernel.guest import Guest
from tests.recover.test_kernel_crashes import Crashed, judge_round

TORN = int(os.environ.get("F2_TORN", "5"))
TOGETHER = 10


def torn(number: int, directory: Path) -> Crashed:
    """A volume at some moment of one of the logs that are kept."""
    chance = random.Random(number)
    log = number % len(write_log.KEPT)
    recording = lost_writes.recorded(len(lost_writes.KINDS) + log)
    count = chance.randrange(write_log.made(log), len(recording.recorder.events) + 1)
    path = directory / f"torn-{number}.img"
    with path.open("wb") as file:
        file.truncate(recording.image.stat().st_size)
    with open_device(path, write=True) as device:
        said = recording.torn(count, device, chance)
    return Crashed(f"torn {number}: log {log}, after event {count}, {said}", [path])


def test_the_kernel_recovers_what_we_recover_of_writes_that_were_lost_or_torn(guest: Guest, tmp_path: Path) -> None:
    for first in range(0, TORN, TOGETHER):
        volumes = [torn(number, tmp_path) for number in range(first, min(first + TOGETHER, TORN))]
        _, wrong = judge_round(guest, volumes, tmp_path)
        assert not wrong, "\n\n".join(wrong)
