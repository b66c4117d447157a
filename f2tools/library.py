"""The commands as functions: what `f2tools.check`, `mkfs`, `load`, `extract`, `scan` and `undelete` are.

Each does what the command of its name does, and returns what that prints as a value.  Errors are F2fsError, with what
to do next in their text; nothing is printed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from f2tools.text import several

if TYPE_CHECKING:
    from f2tools.copyout.keep import Keep
    from f2tools.copyout.report import CopyReport
    from f2tools.forensics.index import Index
    from f2tools.fsck.check import CheckReport
    from f2tools.load.load import Loaded
    from f2tools.mkfs.make import MkfsReport

    Path = str | os.PathLike[str]


def check(image: Path, devices: Sequence[Path] = (), *, content: bool = False) -> CheckReport:
    """Check all structures against each other: `report.sound`, `report.findings`; with `content` file contents too."""
    from f2tools.fsck.check import check as run
    from f2tools.fsck.facts.image import open_image

    opened = open_image(os.fspath(image), [os.fspath(device) for device in several(devices)])
    try:
        report = run(opened, content=content)
    finally:
        opened.close()
    report.tree = None  # it holds the image
    return report


def mkfs(
    image: Path,
    size: int | str | None = None,
    *,
    source: Path | None = None,
    label: str = "",
    features: Sequence[str] = (),
    timestamp: int | None = None,
    force: bool = False,
) -> MkfsReport:
    """Format an image, which a size (`"512M"`, `"auto"`) makes, and fill it with a directory or an archive.

    For all other options see `f2tools.mkfs.make.MkfsRequest` and `f2tools.mkfs.populate.Fill`.
    """
    from f2tools.mkfs.make import MkfsRequest, make
    from f2tools.mkfs.populate import Fill
    from f2tools.mkfs.request import Options, parse_features
    from f2tools.options import source_date_epoch
    from f2tools.sizes import parse_size

    automatic = size == "auto"
    number = parse_size(size) if isinstance(size, str) and not automatic else size
    return make(
        MkfsRequest(
            image=os.fspath(image),
            options=Options(label=label, features=parse_features(several(features))),
            timestamp=timestamp,
            source_date_epoch=source_date_epoch(),
            sizes=(number,) if isinstance(number, int) else (),
            force=force,
            fill=Fill(os.fspath(source)) if source is not None else None,
            auto_size=automatic,
        )
    )


def load(image: Path, source: Path, **how: Any) -> Loaded:
    """Put a directory or an archive into an image that exists; `how`: fields of `f2tools.mkfs.populate.Fill`."""
    from f2tools.load.load import load_into
    from f2tools.mkfs.populate import Fill

    return load_into(os.fspath(image), Fill(os.fspath(source), **how))


def extract(
    image: Path, target: Path, paths: Sequence[Path] = (), *, keep: Keep | None = None, force: bool = False
) -> CopyReport:
    """Copy files out below a directory, all of them or those below `paths`, patterns among them."""
    from f2tools.copyout.extract import extract as run
    from f2tools.copyout.keep import NOTHING
    from f2tools.f2fs.volume.glob import expand_all
    from f2tools.f2fs.volume.volume import open_volume

    wanted = tuple(map(os.fsdecode, several(paths)))
    with open_volume(os.fspath(image)) as volume:
        return run(volume, target, expand_all(volume, wanted), keep=keep or NOTHING, force=force)


def scan(image: Path, index: Path | None = None) -> Index:
    """Find every node and directory block, live or not: an index, in a new file where one is named; close it."""
    from f2tools.forensics.index import build_index
    from f2tools.forensics.without_start import open_to_examine

    with open_to_examine(os.fspath(image), (), (), None) as volume:
        return build_index(volume, index)


def undelete(image: Path, target: Path | None = None, pattern: str | None = None) -> list[dict[str, Any]]:
    """What was deleted and can come back, and how sure that is; with a target it is written below that directory."""
    from contextlib import nullcontext

    from f2tools.forensics.index import build_index
    from f2tools.forensics.restore import Restorer
    from f2tools.forensics.undelete import Undelete, as_dict, selected
    from f2tools.forensics.without_start import open_to_examine

    rows: list[dict[str, Any]] = []
    with open_to_examine(os.fspath(image), (), (), None) as volume, build_index(volume) as index:
        run = Undelete(volume, index)
        directory = None if target is None else os.fspath(target)
        with nullcontext() if directory is None else Restorer(volume, run.contents, directory) as restorer:
            for found in run.deleted():
                if not selected(found, pattern):
                    continue
                if restorer is not None:
                    restorer.put(found)
                rows.append(as_dict(found))
    return rows
