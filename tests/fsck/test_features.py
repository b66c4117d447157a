"""A feature bit lost in both superblocks: the inodes say that it was set, and nothing of theirs is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_EXTRA_ATTR,
    F2FS_INLINE_XATTR,
    F2FS_PROJINHERIT_FL,
    F2FS_ROOT_INO,
    FEATURES,
)
from f2tools.f2fs.volume.super import read_superblocks
from tests import judges
from tests.dump.craft import Result, f2
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.fsck.craft import Made, Patient, codes, examine
from tests.fsck.sweep import tree_on


def switch_off(patient: Patient, *names: str) -> int:
    """Take these features away in both copies; the word as it was."""
    before = patient.vol.sb.feature
    bits = sum(FEATURES[name] for name in names)
    assert before & bits == bits
    for copy in (0, 1):
        patient.super(copy, feature=before & ~bits)
    patient.close()
    return before


def fsck(patient: Patient, *options: str) -> Result:
    """Run it on all devices of the volume."""
    return f2("fsck", *options, patient.path, *(word for path in patient.image.extra for word in ("--device", path)))


def seen(patient: Patient) -> tuple[Any, int]:
    """Its tree, and the feature word."""
    with open_device(patient.path, extra=patient.image.extra) as device:
        copies = read_superblocks(device)
        assert copies[0].sb is not None
        return tree_on(device)[0], copies[0].sb.feature


@pytest.mark.parametrize(
    ("name", "lost"),
    [("compress-lz4", "compression"), ("compress-released", "compression"), ("blocks16k-compress", "compression"),
     ("casefold", "casefold"), ("fscrypt", "encrypt"), ("fscrypt-android", "encrypt"), ("fscrypt-android", "casefold"),
     ("features", "verity"), ("features", "project_quota"), ("inline-xattr-size", "flexible_inline_xattr"),
     ("device-alias", "device_alias")],
)  # fmt: skip
def test_a_lost_feature_is_set_again_and_no_file_is_changed(name: str, lost: str, tmp_path: Path) -> None:
    patient = Patient(name, tmp_path)
    sound = seen(patient)
    switch_off(patient, lost)
    told = fsck(patient).text
    assert "S012 error   sb" in told
    assert f"inodes use a feature that is not set: {lost}: " in told
    assert fsck(patient, "-p").code == 1
    assert fsck(patient).code == 0
    assert seen(patient) == sound
    if patient.size == 4096 and not patient.image.extra:  # fsck.f2fs knows no other blocks here
        judges.fsck_clean(patient.path)


@pytest.mark.parametrize("size", [0xFFFF, 3, 4000])
def test_an_inode_that_cannot_be_read_speaks_for_nothing(size: int, tmp_path: Path) -> None:
    patient = Patient("compress-lz4", tmp_path)
    sound = seen(patient)
    for path in ("/compressed/text", "/compressed/inherit", "/compressed"):
        patient.inode(path, i_extra_isize=size)
    switch_off(patient, "compression")
    assert "S012" in fsck(patient).text
    assert fsck(patient, "-y").code == 1
    assert seen(patient) == sound


def test_several_lost_features_are_set_again(tmp_path: Path) -> None:
    patient = Patient("fscrypt-android", tmp_path)
    before = switch_off(patient, "encrypt", "casefold", "compression", "extra_attr", "quota")
    assert fsck(patient, "-p").code == 1
    assert seen(patient)[1] == before
    judges.fsck_clean(patient.path)


@pytest.mark.parametrize(
    ("options", "fields"),
    [("", {"i_inline": F2FS_EXTRA_ATTR | F2FS_INLINE_XATTR, "i_flags": F2FS_COMPR_FL, "i_extra_isize": 36,
           "i_compress_algorithm": 1, "i_log_cluster_size": 2}),
     ("-O extra_attr", {"i_flags": F2FS_PROJINHERIT_FL, "i_projid": 77}),
     ("-O extra_attr", {"i_flags": F2FS_COMPR_FL, "i_compress_algorithm": 1, "i_log_cluster_size": 2})],
)  # fmt: skip
def test_one_inode_alone_sets_no_feature(options: str, fields: dict[str, int], tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M {options}")
    with writable(image) as volume:
        before = volume.sb.feature
        for number in range(9):
            ino = volume.create(F2FS_ROOT_INO, b"f%d" % number, 0o100644)
            volume.write(ino, 0, bytes(range(256)) * 99)
    made = Made(image)
    made.inode("/f4", **fields)
    made.close()
    assert "S012" not in f2("fsck", image).text
    assert f2("fsck", "-y", image).code == 1
    with reading(image) as now:
        assert now.sb.feature == before
    assert f2("fsck", image).code == 0


@pytest.mark.parametrize("flag", [F2FS_CASEFOLD_FL, F2FS_COMPR_FL])
def test_a_flag_by_itself_goes(flag: int, tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M -O extra_attr")
    with writable(image) as volume:
        volume.mkdir(F2FS_ROOT_INO, b"d", 0o755)
    made = Made(image)
    made.inode("/d", i_flags=flag)
    made.close()
    assert set(codes(examine(image))) == {"I023"}
    assert f2("fsck", "-y", image).code == 1
    with reading(image) as now:
        assert not now.path(b"/d").inode.i_flags & flag
        assert not now.sb.feature & (FEATURES["casefold"] | FEATURES["compression"])
