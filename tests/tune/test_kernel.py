"""Volumes with features switched, in the real kernel: it mounts them, shows the same tree, and writes on; one boot.

All of the switches if F2_TUNE_SWITCHES is set, else those that combine most.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests import judges
from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.f2fs.write.volumes import FULL
from tests.images import copy_sparse
from tests.kernel.guest import MAX_IMAGES, Guest
from tests.kernel.log import assert_quiet
from tests.tune.test_tune import EXTRA, FREE, NEW_UUID, filled, run, tune

SCRIPT = """
set -e
count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o background_gc=off ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/%d.json $count
for n in $(seq 0 $((count - 1))); do
    mkdir /mnt/$n/by-kernel
    for f in 1 2 3; do dd if=/dev/urandom of=/mnt/$n/by-kernel/$f bs=30k count=1 status=none; done
    rm /mnt/$n/by-kernel/2
    sync -f /mnt/$n; echo more > /mnt/$n/by-kernel/more
    umount /mnt/$n
done
"""


def test_the_kernel_takes_every_switch(guest: Guest, tmp_path: Path) -> None:
    """Each feature that can be switched on or off, and all of them at once with a new UUID."""
    plain, rich = filled(tmp_path / "plain"), filled(tmp_path / "rich", f"--size 64M -O {FULL}")
    every = [name for name in (*FREE, *EXTRA) if name not in ("flexible_inline_xattr", "lost_found", "project_quota")]
    on = ",".join(every)
    cases: list[tuple[Path, list[str]]] = [(plain, [name]) for name in FREE]
    cases += [(rich, [f"!{name}"]) for name in (*EXTRA, "quota") if name != "compression"]
    cases += [(rich, ["compression"]), (rich, ["!quota,!project_quota", "quota,project_quota"]), (plain, [on])]
    cases += [(plain, [on, ",".join(f"!{name}" for name in every if name != "extra_attr")])]
    if not os.environ.get("F2_TUNE_SWITCHES"):
        cases = cases[-3:]
    images: list[Path] = []
    for number, (source, steps) in enumerate(cases):
        images.append(copy_sparse(source, tmp_path / f"{number}.img"))
        for step in steps:
            run(tune, images[-1], "-O", step, *(["--uuid", NEW_UUID] if step == on else []))
    assert len(images) <= MAX_IMAGES
    trees = [tree_of(image) for image in images]
    result = guest.run(SCRIPT, images, timeout=600).must_succeed()
    assert_quiet(result)
    for number, ((_, steps), image) in enumerate(zip(cases, images, strict=True)):
        assert_as_the_kernel(trees[number], result.json(f"{number}.json"), str(steps))
        judges.fsck_clean(image)
