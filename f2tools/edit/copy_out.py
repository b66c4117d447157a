"""What `cp` copies out of an image: files to the host, as cp(1) names them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from f2tools.copyout.content import copy_content
from f2tools.copyout.extract import extract
from f2tools.copyout.keep import ALL, NOTHING
from f2tools.copyout.report import CopyReport
from f2tools.copyout.walk import Lost
from f2tools.edit.errors import EditFailed
from f2tools.edit.paths import Inside, Outside
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.glob import expand
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.newfile import behind_links
from f2tools.options import progress
from f2tools.remarks import said_of_state

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import File


def copy_out(
    sources: Sequence[Inside | Outside],
    target: str,
    devices: Sequence[str] = (),
    *,
    recursive: bool,
    keep: bool,
    tell: Callable[[str], object],
) -> list[CopyReport]:
    """What was copied: into `target` where that is a directory, else a single file by that name, or to the standard
    output.  What a user should know of the image is told before anything is looked for.

    Files that are there are replaced, where a link leads to one, that; a directory replaces none.  `keep`: owners, all
    modes, attributes and devices too, and directories that are there get theirs.  Of a directory written as
    `directory/.` what is in it is copied.  Usage, EditFailed.
    """
    inside = [source for source in sources if isinstance(source, Inside)]
    images = {source.image for source in inside}
    if len(inside) < len(sources) or len(images) != 1:
        raise Usage("one side of a copy is one image: IMAGE:/PATH to the host, or from the host to IMAGE:/PATH")
    image = images.pop()
    with open_volume(image, devices) as volume:
        for note in (*volume.warnings, *said_of_state(volume, image)):
            tell(note)
        files = [file for source in inside for file in _files(volume, source, recursive)]
        if len(files) == 1 and files[0].inode.is_file:
            if is_output(target):
                return [_written(image, files[0])]
            target = _behind(target)
        elif target == "-":
            raise EditFailed("only a single file can be written to the standard output")
        within = os.path.isdir(target)
        if not within and (len(files) > 1 or target.endswith("/")):
            raise EditFailed(f"{target}: no directory, into which these could be copied")
        directory, name = (target, "") if within else os.path.split(target.rstrip("/"))
        if not within and not os.path.isdir(directory or "."):
            raise EditFailed(f"{directory}: no such directory")
        poured = [file for file in files if file.inode.is_dir and (file.path or b"").endswith(b"/.")]
        if within and poured:  # what is in them goes into the target, as with cp(1)
            if len(poured) < len(files):
                raise EditFailed(f"{target}: copy what is in directories, DIRECTORY/., by a command of its own")
            directory, name = os.path.split(os.path.realpath(target))
        chosen: list[str | File] = []
        for file in files:
            own = os.fsencode(name) or (file.path or b"").rstrip(b"/").rpartition(b"/")[2]
            if file.inode.ino == F2FS_ROOT_INO and len(files) == 1 and (poured or not within):
                directory = target
                chosen = ["/"]
                break
            if own in (b"", b".", b".."):
                raise EditFailed(f"{image}:/ has no name; copy {image}:/., or name the copy")
            chosen.append(replace(file, path=b"/" + own))
        with progress("copying", len(chosen)) as bar:
            report = extract(
                volume,
                directory or ".",
                chosen,
                keep=replace(ALL, directories=True) if keep else NOTHING,
                force=True,
                over_files=False,
                advance=bar.advance,
            )
    return [report]


def is_output(target: str) -> bool:
    """Whether a target is the standard output: `-`, or a link such as /dev/stdout that leads to where it goes."""
    if target == "-":
        return True
    try:
        return os.path.islink(target) and os.path.samestat(os.stat(target), os.fstat(1))
    except OSError:
        return False


def _behind(target: str) -> str:
    """The file that a target means; a link to anything else is left alone."""
    if not os.path.islink(target) or os.path.isdir(target):
        return target
    try:
        status = os.stat(target)
    except OSError as error:
        raise EditFailed(f"{target}: is a link, and where it leads can't be written: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise EditFailed(f"{target}: is a link to a device, pipe or socket, and is not replaced")
    with suppress(OSError):  # there may be no standard error
        if os.path.samestat(status, os.fstat(2)):
            raise EditFailed(f"{target}: is a link to the file that messages go to, and is not replaced")
    return behind_links(target)


def _written(image: str, file: File) -> CopyReport:
    """The content of a file on the standard output; what can't be read is in the report."""
    report, path = CopyReport("-"), os.fsencode(f"{image}:") + (file.path or b"")
    try:
        copy_content(file, sys.stdout.buffer)
        report.files, report.bytes = 1, file.inode.i_size
    except F2fsError as error:
        report.lost.append(Lost(path, str(error)))
    except OSError as error:
        if error.filename is None:  # of the output, not of the image
            raise
        report.lost.append(Lost(path, error.strerror or str(error)))
    sys.stdout.buffer.flush()
    return report


def _files(volume: Volume, source: Inside, recursive: bool) -> list[File]:
    """The files that a path or a pattern means."""
    found: list[File] = []
    for path in expand(volume, source.path):
        try:
            file = volume.path(path, follow=not recursive)
        except OSError as error:
            raise EditFailed(f"{source.image}:{os.fsdecode(path)}: {error.strerror or error}") from None
        if file.inode.is_dir and not recursive:
            raise EditFailed(f"{source.image}:{os.fsdecode(path)}: is a directory; -r copies it with all in it")
        found.append(replace(file, path=path))
    if not found:
        raise EditFailed(f"{source}: nothing is called so")
    return found
