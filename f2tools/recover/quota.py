"""Quota files that count wrongly before a recovery: it charges what it brings back on top, and counts nothing anew."""

from __future__ import annotations

from collections.abc import Iterator

from f2tools.device import Device
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.fsck.check import DEFAULT_MEMORY
from f2tools.fsck.checks.checkpoint import check_flags
from f2tools.fsck.checks.contents import check_quotas
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding
from f2tools.fsck.problems import CP_QUOTA_STALE

SHOWN = 20
_STAYS = (
    "this stays so: what comes back or goes is charged on top, or not at all where quota is marked or can't be read"
)


def wrong_quota(device: Device, again: str) -> list[str]:
    """What `fsck` says of the quota of the newest checkpoint, a line each, then what recovery does about it.

    Nothing where quota is right, or the volume has none.  `again`: the command that counts anew.
    """
    image = Image(device)
    if image.pack is None or not quota_inos(image.sb):
        return []
    found = list(_findings(image))
    if not found:
        return []
    said = [finding.message for finding in found[:SHOWN]]
    if len(found) > SHOWN:
        said.append(f"and {len(found) - SHOWN} more")
    return [*said, f"{_STAYS}; {again} counts it anew"]


def _findings(image: Image) -> Iterator[Finding]:
    yield from (finding for finding in check_flags(image) if finding.problem is CP_QUOTA_STALE)
    scan = Scan(image, DEFAULT_MEMORY)
    for _ in scan.run([]):
        pass
    yield from check_quotas(Tree(scan))
