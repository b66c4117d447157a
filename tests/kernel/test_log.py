"""The judges of the kernel's log see a complaint, whatever harmless lines stand around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.guest.boot import Result
from tests.kernel.log import assert_nothing_recovered, assert_quiet, has_recovered

CLEAN = """
[    0.000000] Linux version 7.3.4+deb13-amd64
[    6.105281] F2FS-fs (vda): f2fs_recover_fsync_data: recovery fsync data, check_only: 0
[    6.105935] F2FS-fs (vda): Mounted with checkpoint version = 60535fb0
[    6.416431] F2FS-fs (vdb): Skip to start discard thread for readonly image
[    6.417021] F2FS-fs (vdb): recover fsync data on readonly fs
[    6.417563] F2FS-fs (vdb): Mounted with checkpoint version = 6b8b456d
"""
ROLLED = """
[    7.100201] F2FS-fs (vda): do_recover_data: start to recover dnode
[    7.100302] F2FS-fs (vda): recover_inode: ino = 5, name = x, inline = 1
[    7.100403] F2FS-fs (vda): checkpoint: version = 60535fb1
"""
WRONG = "[    7.200201] F2FS-fs (vdb): inconsistent node block, nid:7\n"


def logged(text: str) -> Result:
    return Result(rc=0, stdout="", stderr="", dmesg=text, out=Path(), seconds=0)


def test_a_clean_mount_is_quiet_and_recovers_nothing() -> None:
    result = logged(CLEAN)
    assert_quiet(result)
    for disk in ("", "vda", "/dev/vdb"):
        assert_nothing_recovered(result, disk)
    assert not has_recovered(result, "vda")


def test_a_recovery_is_quiet_and_shows() -> None:
    result = logged(CLEAN + ROLLED)
    assert_quiet(result)
    assert has_recovered(result, "/dev/vda")
    assert not has_recovered(result, "/dev/vdb")
    assert_nothing_recovered(result, "vdb")
    for disk in ("", "vda"):
        with pytest.raises(AssertionError, match="start to recover"):
            assert_nothing_recovered(result, disk)


def test_a_complaint_is_one_until_it_is_allowed() -> None:
    result = logged(CLEAN + WRONG)
    with pytest.raises(AssertionError, match="inconsistent node block"):
        assert_quiet(result)
    assert_quiet(result, "inconsistent node")
    with pytest.raises(AssertionError, match="inconsistent node block"):
        assert_nothing_recovered(result, "vdb")
    with pytest.raises(AssertionError, match="WARNING"):
        assert_quiet(logged(CLEAN + "[    8.1] WARNING: CPU: 0 PID: 1 at fs/f2fs/node.c:1\n"))


def test_a_disk_that_was_not_mounted_is_no_clean_one() -> None:
    with pytest.raises(AssertionError, match="nothing of a volume"):
        assert_nothing_recovered(logged(CLEAN), "vdc")
