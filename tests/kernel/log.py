"""The kernel's log of f2fs: what each Linux from 6.1 to 7.3 says of volumes without fault, and judges that go by it.

A test that expects more, of damage or of what it did on purpose, allows that to these judges in words of the log.
"""

from __future__ import annotations

from f2tools.guest.boot import Result

# of a mount that recovers nothing
MOUNTED = (
    "Mounted with checkpoint version",
    "Found nat_bits in checkpoint",
    "Using encoding defined by superblock",
    "Mount Device [",  # one of several
    "IO Block Size",  # follows the list of devices
    "Zoned block device feature",
    "Checking entire write pointers",  # of a zoned device; since Linux 6.12
    "Skip to start discard thread for readonly image",  # since Linux 6.12
    "f2fs_recover_fsync_data: recovery fsync data, check_only:",  # of each mount since Linux 7.3, before it looks
    "recover fsync data on readonly fs",  # before it looks, too
)
# of a mount that rolls forward what was fsync'ed
RECOVERED = (
    "recovered fsync",
    "recover_inode:",
    "recover_dentry:",
    "recover_data:",  # do_recover_data: since Linux 7.3, with counts
    "checkpoint: version",  # that it ends with
)


def said_of(result: Result, disk: str = "") -> list[str]:
    """What f2fs said of a volume on /dev/DISK, or of all of them."""
    mark = f"F2FS-fs ({disk.removeprefix('/dev/')})" if disk else "F2FS-fs"
    return [line for line in result.dmesg.splitlines() if mark in line]


def complaints(said: list[str], *allowed: str) -> list[str]:
    """Of these lines those that are not said of a volume without fault, nor allowed."""
    return [line for line in said if not any(words in line for words in (*MOUNTED, *RECOVERED, *allowed))]


def assert_quiet(result: Result, *allowed: str) -> None:
    """The kernel had nothing to complain of, besides what is allowed."""
    bad = complaints(said_of(result), *allowed)
    bad += [line for line in result.dmesg.splitlines() if "WARNING:" in line or "BUG:" in line]
    assert not bad, "\n".join(bad[:40])


def has_recovered(result: Result, disk: str) -> bool:
    """Whether the kernel rolled anything forward on this disk."""
    return any(words in line for line in said_of(result, disk) for words in RECOVERED)


def assert_nothing_recovered(result: Result, disk: str = "") -> None:
    """The kernel mounted this disk, or all of them, and had nothing else to say."""
    said = said_of(result, disk)
    assert said, "the kernel says nothing of a volume that it mounted"
    bad = [line for line in said if not any(words in line for words in MOUNTED)]
    assert not bad, "\n".join(bad[:40])
