"""Quota of a volume that is written: who is charged, what the limits are, and the quota files at each checkpoint."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from f2tools.device import Device
from f2tools.errors import Corrupt, DeviceError
from f2tools.f2fs.layout.constants import CP_QUOTA_NEED_FSCK_FLAG, F2FS_PROJINHERIT_FL
from f2tools.f2fs.volume.checkpoint import Which
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.quota import Quota, quota_inos
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.policy import Policy

if TYPE_CHECKING:
    from f2tools.f2fs.write.quota import Quotas

from f2tools.f2fs.write.parts import fail
from f2tools.f2fs.write.quota import open_quotas
from f2tools.f2fs.write.zoned import Zoned

COUNT_ANEW = "f2tools fsck -y counts it anew"


class Charging(Zoned):
    """Charges owners for what they use; `quota` keeps the accounts."""

    privileged = False  # what is changed is changed for root, whom no limit binds

    def __init__(
        self, device: Device, which: Which, policy: Policy, clock: Callable[[], int], seed: int | None
    ) -> None:
        super().__init__(device, which, policy, clock, seed)
        self.quota_lost = ""  # why what the quota files say is not to be trusted any more
        self.when_quota_is_lost: Callable[[], object] | None = None  # called then
        if quota_inos(self.sb):
            self.space.charge = self._charge

    @cached_property
    def quotas(self) -> Quotas | None:
        """Who is charged for files; None where the volume has no quota files, or one is not sound or can't be read.

        None also where they are marked as out of date: the mark stays, for fsck; see f2fs_enable_quotas() in super.c.
        """
        if not self._counts:
            return None
        try:
            return self._open_quotas()
        except (Corrupt, DeviceError) as error:
            self._give_up_quota(error)
            return None

    @property
    def quota_note(self) -> str | None:
        """What who changes the volume should know: that quota is not counted, so that no limit holds, and what helps.

        As the quota files are opened by the first change that is charged, it may be too early to ask before.
        """
        if self.quota_lost:
            return f"quota is not counted any more and marked as out of date: {self.quota_lost}; {COUNT_ANEW}"
        if quota_inos(self.sb) and not self._counts:
            return f"quota is marked as out of date, so it is not counted and no limit holds; {COUNT_ANEW}"
        return None

    def _give_up_quota(self, error: Exception) -> None:
        self.quota_lost = str(error)
        if self.when_quota_is_lost is not None:
            self.when_quota_is_lost()

    @property
    def _counts(self) -> bool:
        return bool(quota_inos(self.sb)) and not self.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG

    def _open_quotas(self) -> Quotas:
        return open_quotas(self.sb, self.nodes, self.data, lambda: self.clock() / 1e9)

    def _counted(self, kind: str) -> Quotas:
        """The quotas, for who asks for a kind; ESRCH where it is not counted, F2fsError where it can't be read now."""
        if "quotas" not in vars(self) and self._counts:
            vars(self)["quotas"] = self._open_quotas()
        if self.quotas is None or kind not in self.quotas.trees:
            fail(errno.ESRCH)
        return self.quotas

    def transfer(self, inode: LiveInode, uid: int | None, gid: int | None, projid: int | None) -> None:
        """Charge new owners instead of the old ones; OSError EDQUOT before anything changes."""
        if self.quotas is not None:
            with self._sound_quota():
                self.quotas.transfer(inode, uid, gid, projid, self.privileged)

    def note_usage(self, usage: Mapping[tuple[int, int, int], Sequence[int]]) -> None:
        """Charge (inodes, blocks) by (uid, gid, projid) that were written without asking quota."""
        if self.quotas is not None:
            with self._sound_quota():
                self.quotas.add_usage(usage)

    def quota(self, kind: str, number: int) -> Quota | None:
        """Limits and use of a user, group or project; None where there is neither.  OSError ESRCH: not counted."""
        return self._counted(kind).get(kind, number)

    def set_quota(self, kind: str, number: int, **limits: int | None) -> None:
        """Set limits of a user, group or project: inodes_soft, inodes_hard, space_soft, space_hard (bytes).

        0 is none, what is not named stays.  OSError ESRCH where the volume does not count this kind, ERANGE.
        """
        self.usable()
        self._counted(kind).set_limits(kind, number, **limits)
        self._changed = True

    def within_limits(self, said: Mapping[str, int], inode: LiveInode, gone: Sequence[Inode] = ()) -> dict[str, int]:
        """What statfs(2) says below a directory whose project has limits; see f2fs_statfs_project().

        `gone`: files that are still charged, and count no longer.
        """
        said = dict(said)
        if inode.i_flags & F2FS_PROJINHERIT_FL and self.quotas is not None and "project" in self.quotas.trees:
            project = inode.extra.get("i_projid", 0)
            found = self.quotas.get("project", project)
            if found is not None:
                gone = [one for one in gone if one.extra.get("i_projid", 0) == project]
                size = self.geo.block_size
                space = min(filter(None, (found.space_soft, found.space_hard)), default=0) // size
                inodes = min(filter(None, (found.inodes_soft, found.inodes_hard)), default=0)
                used = found.space // size - sum(one.i_blocks - 1 for one in gone)
                _limit(said, space, used, "f_blocks", "f_bfree", "f_bavail")
                _limit(said, inodes, found.inodes - len(gone), "f_files", "f_ffree")
        return said

    def _charge(self, inode: Inode, inodes: int, blocks: int) -> None:
        if self.quotas is not None:
            with self._sound_quota():
                self.quotas.charge(inode, inodes, blocks, self.privileged)

    def _flush_quota(self) -> None:
        """Write what the quota files should say; without room they are left to fsck, as the kernel does."""
        quotas = vars(self).get("quotas")
        if quotas is None:
            return
        inos = quota_inos(self.sb)
        with self._sound_quota():
            for kind, changed in quotas.changes().items():
                inode = self.live(inos[kind])
                for offset, data in changed:
                    self.files.write(inode, offset, memoryview(data))
                self.stamp_at(inode, self.clock(), modified=True)
            quotas.written()
        for ino in inos.values():  # a device that does not take them is no quota file that can't be read
            if ino in self.files.pages:
                self.files.write_back(self.live(ino))

    @contextmanager
    def _sound_quota(self) -> Generator[None, None, None]:
        """Stop trusting a quota file that is damaged, can't be read or has no room; the checkpoint tells fsck."""
        try:
            yield
        except (Corrupt, DeviceError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            vars(self)["quotas"] = None
            self._give_up_quota(error)


def _limit(said: dict[str, int], limit: int, used: int, total: str, *free: str) -> None:
    if limit:
        said[total] = min(said[total], limit)
        said |= {name: min(said[name], max(limit - used, 0)) for name in free}
