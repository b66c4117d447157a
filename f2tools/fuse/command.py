"""The mount command of any file system: options in, a mount out; in the background it returns when that is usable.

Each file system says how its volume in an open image file becomes a `vfs.FileSystem`, and has options of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import F2fsError, Usage
from f2tools.filename import PathAsGiven
from f2tools.fuse.options import CHOICES, SERVERS, SWITCHES, ServeOptions, parse_words, with_server_word
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.device.base import Device
    from f2tools.fuse.options import ServeOptions
    from f2tools.vfs import FileSystem

_HELP = """Mount {metavar} on DIRECTORY, read and write.  `f2tools umount DIRECTORY` unmounts it.

What was fsync'ed survives a crash at any moment.  What was not is safe after some seconds (commit=).

\b
Options for -o:
  ro                    read-only
  sync                  every change is safe when the call returns
  commit=SECONDS        make what was written safe at least so often (default 5)
  writeback_cache       let the kernel collect writes
  relatime, noatime, strictatime
  uid=N, gid=N, umask=N
                        show every file as belonging to one user
  allow_other           other users may use it too
  dev, suid             of root: device nodes, and set-user-ID and set-group-ID bits, have their effect
  noexec                no program of it is run
  server=pyfuse3|direct as --server

\b
Example:
  f2tools {group} mount {example} /mnt/card
  f2tools umount /mnt/card
"""


def server_option() -> click.Option:
    """--server of the mount commands that are made here."""
    return click.Option(
        ["--server"],
        type=click.Choice(SERVERS),
        help="What speaks with the kernel: pyfuse3, the default where it is installed, or direct, this process itself,"
        " which takes Linux 5.13 or later.",
    )


def mount_command(
    group: str, example: str, opened: Callable[..., FileSystem], *, metavar: str = "IMAGE",
    options: Sequence[click.Parameter] = (),
) -> click.Command:  # fmt: skip
    """`f2tools GROUP mount`; `opened` takes an open image file, whether it may be written, a list for warnings, and the
    command's options.

    It raises an error if the volume can't be used at all; then the file is closed here.
    """

    def mount(
        image: str, directory: str, words: tuple[str, ...], foreground: bool, server: str | None, **how: Any
    ) -> None:
        given = with_server_word(words, server)
        _mount(f"f2tools {group} mount", image, directory, given, foreground, lambda *file: opened(*file, **how))

    given = [
        click.Argument(["image"], type=PathAsGiven(), metavar=metavar),
        click.Argument(["directory"], type=PathAsGiven()),
        click.Option(["-o", "words"], multiple=True, metavar="OPTION,...", help="Mount options; see above."),
        *options,
        click.Option(["-f", "--foreground"], is_flag=True, help="Serve in the foreground, until it is unmounted."),
        server_option(),
    ]
    text = _HELP.format(group=group, example=example, metavar=metavar)
    return click.Command("mount", callback=mount, params=given, help=text)


def _mount(
    command: str,
    image: str,
    directory: str,
    words: Sequence[str],
    foreground: bool,
    opened: Callable[[Device, bool, list[str]], FileSystem],
) -> None:
    from f2tools.device.media.mounted import must_be_free
    from f2tools.fuse.daemon import in_background
    from f2tools.fuse.needed import require_fuse, with_server

    switches = {name: value for name, value in SWITCHES.items() if "discard" not in name}  # trims are not put off here
    options = ServeOptions(**parse_words(words, switches, {"server": CHOICES["server"]}))  # type: ignore[arg-type]
    must_be_free(directory)
    if not os.path.isdir(directory):
        raise Usage(f"{directory}: not a directory")
    warnings: list[str] = []
    options = with_server(options, warnings)
    require_fuse(options)
    image, directory = os.path.abspath(image), os.path.realpath(directory)
    if foreground:
        _serve(image, directory, options, opened, warnings, lambda: _say(image, warnings))
        return
    error, code = in_background(
        lambda ready: _serve(image, directory, options, opened, warnings, ready), warnings, command
    )
    if error is not None:
        failure = F2fsError(error)
        failure.exit_code = code
        raise failure
    _say(image, warnings)


def _say(image: str, warnings: list[str]) -> None:
    for text in warnings:
        print(f"f2tools: {printable(image)}: {printable(text)}", file=sys.stderr)


def _serve(
    image: str,
    directory: str,
    options: ServeOptions,
    opened: Callable[[Device, bool, list[str]], FileSystem],
    warnings: list[str],
    ready: Callable[[], None],
) -> None:
    from f2tools.device.media.image import lock
    from f2tools.device.media.mounted import mark_mounted
    from f2tools.device.open import file_and_part, files_below, open_device
    from f2tools.fuse import session

    write = not options.read_only and os.access(file_and_part(image)[0], os.W_OK)
    if not write and not options.read_only:
        warnings.append(f"mounted read-only: {image} can't be written by this user")
    file = open_device(image, write=write, whole=True, below_layers=True)
    locked = files_below(file)
    try:
        for one in locked:
            if write:
                mark_mounted(one.fd)
            else:
                lock(one.fd, image, shared=True)
        files = opened(file, write, warnings)
    except BaseException:
        file.close()
        raise
    session.serve(files, image, directory, options, ready, [one.fd for one in locked] if write else [])
