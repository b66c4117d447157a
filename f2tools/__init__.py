"""Tools for F2FS volumes: read, check and write them without a kernel driver.

import f2tools

with f2tools.open("card.img") as vol:
    print(vol.path("/etc/hostname").read())

with f2tools.open("card.img", write=True) as vol:
    vol.write(vol.path("/etc/hostname").inode.ino, 0, b"card")
"""

from __future__ import annotations

import os

from f2tools.version import __version__

TYPE_CHECKING = False  # `typing` takes as long as the interpreter, and Ctrl-C ends a command only after this module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, overload

    from f2tools.f2fs.volume.volume import File, Volume
    from f2tools.f2fs.write.volume import Policy, WritableVolume
    from f2tools.library import check, extract, scan, undelete
    from f2tools.library import mkfs as make_image

__all__ = [
    "File", "Policy", "Volume", "WritableVolume", "__version__", "check", "extract", "make_image", "open", "scan",
    "undelete",
]  # fmt: skip
# the commands as functions; `f2tools.mkfs` is the package
_FUNCTIONS = {name: name for name in ("check", "extract", "scan", "undelete")} | {"make_image": "mkfs"}

Path = str | os.PathLike[str]


if TYPE_CHECKING:

    @overload
    def open(
        path: Path,
        devices: Sequence[Path] = ...,
        checkpoint: Literal["newest", "older"] = ...,
        *,
        write: Literal[False] = ...,
        recovered: bool = ...,
        keys: Sequence[Path | bytes] = ...,
    ) -> Volume: ...
    @overload
    def open(
        path: Path,
        devices: Sequence[Path] = ...,
        checkpoint: Literal["newest"] = ...,
        *,
        write: Literal[True],
        policy: Policy | None = ...,
    ) -> WritableVolume: ...


def open(
    path: Path,
    devices: Sequence[Path] = (),
    checkpoint: Literal["newest", "older"] = "newest",
    *,
    write: bool = False,
    policy: Policy | None = None,
    recovered: bool = False,
    keys: Sequence[Path | bytes] = (),
) -> Volume | WritableVolume:
    """Open an image, a device or an Android sparse image; for writing, it is recovered first as a mount would.

    With `recovered` a volume for reading is too, but in memory: nothing is written.  `keys`: master keys of fscrypt, as
    bytes, or the paths of files that hold one, raw or in hex; for reading only.

    NotF2fs where there is no volume; what `write` needs of it: see `WritableVolume`.
    """
    from f2tools.text import several

    if checkpoint not in ("newest", "older"):
        raise ValueError(f"checkpoint is 'newest' or 'older', not {checkpoint!r}")
    more, keys = [os.fspath(device) for device in several(devices)], several(keys)
    if not write and recovered:
        from f2tools.f2fs.write.recovered import open_recovered

        return open_recovered(os.fspath(path), more, checkpoint, keys)
    if not write:
        from f2tools.f2fs.volume.volume import open_volume

        return open_volume(os.fspath(path), more, checkpoint, keys)
    if recovered:
        raise ValueError("recovered=True is for reading; a volume that is opened for writing is recovered anyway")
    if keys:
        raise ValueError("encrypted files are only read: a volume that is opened for writing takes no keys")
    if checkpoint != "newest":
        raise ValueError("a volume is written through its newest checkpoint")
    from f2tools.f2fs.write.volume import open_for_writing

    return open_for_writing(os.fspath(path), more, policy)


def __getattr__(name: str) -> Any:
    # the engine takes numpy with it; a command that doesn't need it must start without
    if name in ("File", "Volume"):
        from f2tools.f2fs.volume import volume

        return getattr(volume, name)
    if name in _FUNCTIONS:
        from importlib import import_module

        return getattr(import_module("f2tools.library"), _FUNCTIONS[name])
    if name in ("Policy", "WritableVolume"):
        from f2tools.f2fs.write import volume as writer

        return getattr(writer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
