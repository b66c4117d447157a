"""One load on one file system wherever it is run: the engine, the guest, a directory or a device."""

from __future__ import annotations

from typing import Any

from f2tools.experiment.measure import on_engine
from f2tools.experiment.model import Numbers, Part, Setting, Work

CHECKPOINTS = "f2fs-checkpoint"  # F2FS whose every fsync is a checkpoint
APPENDING = "f2fs-append"  # F2FS that never fills holes
# How a variant of F2FS is had: of the engine its policy, of the kernel an option of mount, and what the load does.
VARIANTS: dict[str, tuple[Numbers, str, Numbers]] = {
    CHECKPOINTS: ({"checkpoint_each": True}, "", {"sync_each": True}),
    APPENDING: ({"policy": {"adaptive": False}}, "mode=lfs", {}),
}


def load_parts(
    setting: Setting, load: str, params: Numbers, size: int, variants: tuple[str, ...] = (), **engine: Any
) -> list[Part]:  # fmt: skip
    """A part for each file system that can be had there, F2FS in its variants too; named after it."""
    given = {"load": load, "params": params, "size": size}
    if setting.on == "engine":
        return [
            Part(name, _on_engine, {**given, "engine": {**engine, **VARIANTS.get(name, ({}, "", {}))[0]}})
            for name in ("f2fs", *variants)
        ]
    function = _on_guest
    names = (*setting.fs, *variants)
    if setting.place == "mounted":
        from f2tools.experiment.mounted import is_device, source_of

        function = _on_mounted
        if not is_device(setting.on):  # which stays mounted as it is
            kind = source_of(setting.on)[1]
            names = (kind, *(name for name in variants if kind == "f2fs" and not VARIANTS[name][1]))
    parts = []
    for name in names:
        _, mount, more = VARIANTS.get(name, ({}, "", {}))
        fs = "f2fs" if name in VARIANTS else name
        parts.append(Part(name, function, {**given, "params": params | more, "fs": fs, "mount": mount}))
    return parts


def _on_guest(work: Work, **given: Any) -> Numbers:
    from f2tools.experiment.onguest import on_guest

    return on_guest(work, **given)


def _on_mounted(work: Work, **given: Any) -> Numbers:
    from f2tools.experiment.mounted import on_mounted

    return on_mounted(work, **given)


def _on_engine(work: Work, load: str, params: Numbers, size: int, engine: Numbers) -> Numbers:
    return on_engine(work, load, params, size, **engine)


def only_guest(what: str = "other file systems") -> str:
    """Why what was run can't tell."""
    return f"not run here; --on guest has {what}"
