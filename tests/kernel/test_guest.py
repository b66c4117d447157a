"""The guest itself: it boots, its kernel mounts f2fs, its manifests tell the truth, its power can be cut."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.guest import boot
from f2tools.guest.build import Built
from tests import judges
from tests.images import Reference, with_whole_clusters
from tests.kernel.guest import Guest, GuestFailed

MIB = 1 << 20


def blank(path: Path, size: int) -> Path:
    with path.open("wb") as f:
        f.truncate(size)
    return path


QEMU_WITHOUT_KVM = """#!/bin/sh
echo "$2" >> {log}
case "$2" in kvm*) exec sleep 60;; esac
for word; do case "$word" in local,path=*) share=${{word#local,path=}}; share=${{share%%,*}};; esac; done
touch $share/out/.started
echo 0 > $share/out/.rc
"""


def test_a_kvm_that_boots_nothing_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    qemu, log = tmp_path / "qemu", tmp_path / "log"
    qemu.write_text(QEMU_WITHOUT_KVM.format(log=log))
    qemu.chmod(0o755)
    monkeypatch.setattr(boot, "which", lambda program: qemu)
    monkeypatch.setattr(boot, "KVM_DEVICE", "/dev/null")
    monkeypatch.setattr(boot, "KVM_BOOT_TIMEOUT", 0.3)
    built = Built(tmp_path)
    for _ in range(2):
        boot.Guest(built, tmp_path).run("true").must_succeed()
    boot.Guest(built, tmp_path).run("true").must_succeed()
    asked = [line.split(",")[0] for line in log.read_text().splitlines()]
    assert asked == ["kvm", "tcg", "tcg", "tcg"]


def test_many_images_are_formatted_filled_and_written_down_in_one_boot(guest: Guest, tmp_path: Path) -> None:
    images = [blank(tmp_path / f"{n}.img", 64 * MIB) for n in range(20)]
    script = """
        set -e
        for disk in "${IMAGES[@]}"; do
            mkfs.f2fs -f $disk > /dev/null
            mount -t f2fs $disk /mnt
            mkdir -p /mnt/folder; cp /share/content "/mnt/folder/$WORD"; ln -s "$WORD" /mnt/folder/link
            umount /mnt
        done
        for disk in $IMAGES ${IMAGES[19]}; do
            mount -t f2fs -o ro $disk /mnt
            manifest /mnt $OUT/${disk#/dev/}.json
            umount /mnt
        done
    """
    content = os.urandom(10000)
    result = guest.run(script, images, files={"content": content}, env={"WORD": "it's here"}).must_succeed()
    for image, name in ((images[0], "vda.json"), (images[19], "vdt.json")):
        entries = result.json(name)["entries"]
        assert set(entries) == {".", "folder", "folder/link", "folder/it's here"}
        assert entries["folder/it's here"]["sha256"] == hashlib.sha256(content).hexdigest()
        assert entries["folder/link"]["target"] == "it's here"
        judges.fsck_clean(image)


def test_the_manifest_is_that_of_the_reference_images(guest: Guest, reference: Callable[[str], Reference]) -> None:
    cases = [reference(name) for name in ("base", "features", "compress-zstd", "casefold")]
    script = """
        for disk in "${IMAGES[@]}"; do
            mount -t f2fs -o ro,norecovery $disk /mnt && manifest /mnt $OUT/${disk#/dev/}.json && umount /mnt || exit
        done
    """
    result = guest.run(script, [case.path for case in cases]).must_succeed()
    for letter, case in zip("abcd", cases, strict=True):
        found, recorded = with_whole_clusters(result.json(f"vd{letter}.json")), case.manifest()
        assert found["entries"] == recorded["entries"]
        assert found["statfs"] == recorded["statfs"]


def test_the_trees_it_makes_leave_nothing_for_fsck(guest: Guest, tmp_path: Path) -> None:
    images = [blank(tmp_path / name, 256 * MIB) for name in ("plain", "compress", "casefold")]
    script = """
        set -ex
        mkfs.f2fs -f $IMAGES
        mkfs.f2fs -f -O extra_attr,compression ${IMAGES[1]}
        mkfs.f2fs -f -O casefold -C utf8 ${IMAGES[2]}
        n=0
        for kind in plain compress casefold; do
            mount -t f2fs ${IMAGES[$n]} /mnt
            mktree $kind /mnt seed
            umount /mnt
            n=$((n + 1))
        done
    """
    result = guest.run(script, images).must_succeed()
    assert "setxattr acl" not in result.stdout
    for image in images:
        judges.fsck_clean(image)


def test_after_a_power_cut_the_image_has_what_was_synced(guest: Guest, tmp_path: Path) -> None:
    image = blank(tmp_path / "image", 64 * MIB)
    script = """
        mkfs.f2fs -f $IMAGES && mount -t f2fs $IMAGES /mnt && echo kept > /mnt/kept && sync -f /mnt
        echo lost > /mnt/lost
        crash
    """
    assert guest.run(script, [image]).crashed
    after = guest.run("mount -t f2fs $IMAGES /mnt && ls /mnt", [image]).must_succeed()
    assert after.stdout.split() == ["kept"]


def test_the_host_can_cut_the_power_after_a_mark(guest: Guest) -> None:
    result = guest.run("echo before; mark here; sleep 600; echo after", cut_after=("here", 0.1))
    assert result.crashed
    assert result.stdout.split() == ["before"]


def test_a_script_that_hangs_or_fails_is_told_apart(guest: Guest) -> None:
    with pytest.raises(GuestFailed, match="not done within"):
        guest.run("sleep 600", timeout=0.5)
    assert guest.run("echo why >&2; exit 7").rc == 7
