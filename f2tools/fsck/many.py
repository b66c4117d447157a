"""Several images checked in one call: a row each, in the order in which they were named, by several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from f2tools.device.media.remote import without_credentials
from f2tools.errors import F2fsError
from f2tools.fsck.check import DEFAULT_MEMORY, CheckReport, check
from f2tools.fsck.facts.image import open_image
from f2tools.fsck.report import summary_of
from f2tools.options import FAILED, FINDINGS_LEFT, FINE, said_by_system
from f2tools.process import processes


class Row(NamedTuple):
    """One image: the exit code that a check of it alone has, a line, and a summary."""

    image: str
    code: int
    said: str
    summary: dict[str, Any]


def summary_dict(image: str, report: CheckReport) -> dict[str, Any]:
    """How a volume stands, for programs."""
    severities = {str(severity): count for severity, count in sorted(report.severities.items()) if count}
    counts = {code: count for code, count in sorted(report.counts.items()) if count}
    seen = {"inodes": report.inodes, "nodes": report.nodes, "dentries": report.dentries}
    name = without_credentials(image)
    left_out = {"left_out": report.unwanted} if report.unwanted else {}
    sound = report.sound and not report.unwanted
    return {"image": name, "sound": sound, "severities": severities, "counts": counts, **left_out, **seen}


def check_one(image: str, memory: int = DEFAULT_MEMORY, content: bool = False) -> Row:
    """Check an image, whatever comes of it."""
    try:
        opened = open_image(image, ())
        try:
            report = check(opened, memory_bytes=memory, content=content)
        finally:
            opened.close()
    except (F2fsError, OSError) as error:
        said = said_by_system(error) if isinstance(error, OSError) else str(error)
        name = without_credentials(image)
        return Row(name, FAILED, said, {"image": name, "sound": False, "error": said})
    code = FINE if report.sound else FINDINGS_LEFT
    name = without_credentials(image)
    return Row(name, code, f"{name}: {summary_of(report)}", summary_dict(name, report))


def check_many(images: Sequence[str], jobs: int | None = None, memory: int = DEFAULT_MEMORY, content: bool = False
               ) -> Iterator[Row]:  # fmt: skip
    """Check images by so many processes, by default one for each CPU; the memory is that of each."""
    jobs = min(jobs or os.cpu_count() or 1, len(images))
    if jobs < 2:
        yield from (check_one(image, memory, content) for image in images)
        return
    with processes(jobs, "spawn") as mapped:
        yield from mapped(check_one, images, repeat(memory), repeat(content))
