"""A new image file: it has its name once it is whole, so that a command that is killed leaves nothing to mistake."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from f2tools import newfile
from f2tools.device.media.image import ImageFile, lock, taken, unmade
from f2tools.errors import DeviceError

if TYPE_CHECKING:
    from pathlib import Path


@contextmanager
def new_image(path: str | Path, size_bytes: int) -> Generator[ImageFile]:
    """A new image file, all hole, which has its name when this ends: a command that is killed leaves nothing that looks
    like an image.  It stays open unless it is closed meanwhile, and is closed where the making fails; Taken."""
    if os.path.lexists(path):
        raise taken(os.fspath(path))
    with unnamed_image(path, size_bytes) as (image, publish):
        yield image
        publish()


@contextmanager
def unnamed_image(path: str | Path, size_bytes: int) -> Generator[tuple[ImageFile, Callable[[], None]]]:
    """The same, for an image that gets its name when the returned function is called, and otherwise vanishes."""
    name = os.fspath(path)
    try:
        unnamed = newfile.Unnamed(name, 0o666)
    except (OSError, ValueError) as error:
        raise unmade(name, error) from None
    with unnamed:
        image = ImageFile(name, unnamed.fd, 0, write=True)
        image.is_nameless = True

        def publish() -> None:
            try:
                unnamed.publish()
            except FileExistsError:
                raise DeviceError(f"{name}: somebody else has made it meanwhile; it was left alone") from None
            except OSError as error:
                raise unmade(name, error) from None
            image.is_nameless = False

        try:
            lock(unnamed.fd, name)
            image.resize(size_bytes)
            yield image, publish
        except BaseException:
            image.close()
            raise
