"""`f2tools mount`: options in, a mount out; in the background the command returns when the mount is usable."""

from __future__ import annotations

import logging
import os
import stat
import sys
from typing import TYPE_CHECKING

import click

from f2tools.device.media.mounted import must_be_free
from f2tools.device.media.remote import is_url
from f2tools.errors import F2fsError, Usage
from f2tools.filename import PathAsGiven
from f2tools.fuse.options import SERVERS, with_server_word
from f2tools.options import (
    FileName,
    at_offset,
    device_option,
    json_option,
    key_option,
    offset_option,
    print_json,
)
from f2tools.text import printable, printable_lines

if TYPE_CHECKING:
    from f2tools.mount.session import MountRequest


@click.command()
@click.argument("image", type=PathAsGiven())
@click.argument("directory", type=PathAsGiven(), required=False)
@click.option("-o", "options", multiple=True, metavar="OPTION,...", help="Mount options; see above.")
@click.option("-f", "--foreground", is_flag=True, help="Serve in the foreground, until it is unmounted.")
@click.option(
    "--overlay",
    type=FileName(),
    metavar="FILE",
    help="Leave the image as it is; changes go to FILE, which can be mounted with again.",
)
@click.option(
    "--server",
    type=click.Choice(SERVERS),
    help="What speaks with the kernel: pyfuse3, the default where it is installed, or direct, this process itself,"
    " which also has fallocate, holes, lsattr and chattr, O_TMPFILE, fstrim and times of birth.",
)
@click.option("--stats", is_flag=True, help="Show what a mount, named by its image or directory, is doing.")
@offset_option
@device_option
@key_option
@json_option
def mount(
    image: str,
    directory: str | None,
    options: tuple[str, ...],
    foreground: bool,
    overlay: str | None,
    server: str | None,
    stats: bool,
    devices: tuple[str, ...],
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Mount IMAGE on DIRECTORY, read and write, without a kernel driver for F2FS.

    The command returns when the mount is usable. `f2tools umount DIRECTORY` unmounts it, and returns when everything is
    on the disk. `fusermount3 -u` returns before that; a program that opens the image file then waits until it is
    complete, and so does one that copies it while it is mounted. On block devices, and file systems without leases,
    nothing waits, but everything is written as soon as no file is open and no request came for a tenth of a second.

    What was fsync'ed survives a crash at any moment: the next mount, or the kernel's, brings it back. What was not is
    safe after some seconds (commit=). `sync` and `sync -f` of the whole machine do not reach a mount through FUSE: use
    `sync FILE` for one file, `sync DIRECTORY` for all. With --key nothing is written.

    Limits of quotas hold for all but root; -o usrquota, grpquota and prjquota, which the kernel needs, change nothing.

    \b
    Options for -o:
      ro                    read-only; what was fsync'ed before a crash is shown
      norecovery            read-only, as the last checkpoint has it
      checkpoint=older      read-only, as the other checkpoint has it
      as-of=CP_VER|TIME     read-only, as of a checkpoint or a time, rebuilt from the log
      sync                  every change is safe when the call returns
      commit=SECONDS        make what was written safe at least so often (default 5)
      writeback_cache       let the kernel collect writes: faster where they are many and small, but a full volume or
                            quota is then told by fsync and close, not by write, and may leave files with holes
      background_gc=on|off  clean while no requests come (default on)
      active_logs=2|4|6     how many logs are written (default 6)
      fsync_mode=posix|strict
                            strict: data is durable before its place is written, and fsync of a new file keeps the
                            names that were moved in its directory (default posix, as the kernel's)
      discard, nodiscard    give segments that become free back to the device (default discard)
      relatime, noatime, strictatime
      uid=N, gid=N, umask=N
                            show every file as belonging to one user
      allow_other           other users may use it too
      dev, suid             of root: device nodes, and set-user-ID and set-group-ID bits and capabilities, have their
                            effect; without these they have none, but in a line of /etc/fstab they do unless it says
                            nodev, nosuid
      noexec                no program of it is run
      overlay=FILE          as --overlay; with ro FILE is read and not written
      server=pyfuse3|direct as --server

    \b
    Example:
      f2tools mount card.img /mnt/card
      f2tools mount --stats /mnt/card
      f2tools umount /mnt/card

    \b
    A line of /etc/fstab, once mount.fuse.f2tools is linked into /sbin:
      /images/card.img  /mnt/card  fuse.f2tools  noauto,allow_other  0  0
    """
    if stats:
        _show_stats(image, directory, as_json)
        return
    if as_json:
        raise Usage("--json belongs to --stats")
    if directory is None:
        raise Usage("a directory to mount on is needed")
    _mount(at_offset(image), directory, with_server_word(options, server), devices, overlay, foreground, keys)


@click.command()
@click.argument("directory", type=PathAsGiven())
def umount(directory: str) -> None:
    """Unmount DIRECTORY, which f2tools has mounted; return when everything is on the disk.

    An image can be named instead of the directory, if it is mounted once. Where the last checkpoint could not be
    written, the exit code is 8.

    \b
    Example:
      f2tools umount /mnt/card
    """
    from f2tools.mount.unmount import unmount

    unmount(directory, lambda text: click.echo(f"f2tools: {printable(text)}", err=True))


def _mount(
    image: str,
    directory: str,
    texts: list[str],
    devices: tuple[str, ...],
    overlay: str | None,
    foreground: bool,
    keys: tuple[str, ...] = (),
) -> None:
    from f2tools.fuse.needed import require_fuse, with_server
    from f2tools.mount.options import parse_options

    warnings: list[str] = []
    options = with_server(parse_options(texts), warnings)
    _check_directory(directory)
    require_fuse(options)
    from f2tools.mount.session import MountRequest, serve

    request = MountRequest(  # fusermount3 follows no link at the end of a path
        image if is_url(image) else os.path.abspath(image), os.path.realpath(directory), options,
        [os.path.abspath(device) for device in devices],
        None if (overlay or options.overlay) is None else os.path.abspath(overlay or options.overlay or ""),
        keys, warnings,
    )  # fmt: skip
    logging.basicConfig(format="f2tools mount: %(message)s", level=logging.WARNING)
    if foreground:
        serve(request, lambda: _say(request))
        return
    from f2tools.fuse.daemon import in_background

    logging.disable(logging.CRITICAL)  # the process in the background speaks through this one until it is ready
    error, code = in_background(
        lambda ready: serve(request, lambda: (logging.disable(0), ready())[1]), request.warnings, "f2tools mount"
    )
    if error is not None:
        failure = F2fsError(error)
        failure.exit_code = code
        raise failure
    _say(request)


def _say(request: MountRequest) -> None:
    for text in request.warnings:
        print(f"f2tools: {printable(request.image)}: {printable(text)}", file=sys.stderr)


def _check_directory(directory: str) -> None:
    must_be_free(directory)
    try:
        mode = os.stat(directory).st_mode
    except OSError as error:
        raise F2fsError(f"{directory}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise F2fsError(f"{directory}: not a directory")


def _show_stats(what: str, more: str | None, as_json: bool) -> None:
    from f2tools.mount.status import ask, render

    if more is not None:
        raise Usage("--stats takes one image or directory")
    numbers = ask(what)
    if numbers is None:
        raise F2fsError(f"{what}: not mounted by f2tools, or by another user")
    if as_json:
        print_json(numbers)
    else:
        click.echo(printable_lines(render(numbers)))


def is_remount(words: list[str]) -> bool:
    """Whether mount(8) asks its helper to remount with other options: only the kernel does that for FUSE."""
    return "remount" in (name for word in from_fstab(words)[1:] for name in word.split(","))


def from_fstab(words: list[str]) -> list[str]:
    """The arguments for `f2tools` from those that mount(8) gives to a helper: IMAGE DIRECTORY [-sfnv] [-o OPTIONS]."""
    names = [word for word in words if not word.startswith("-")]
    options: list[str] = []
    for at, word in enumerate(words):
        if word == "-o" and at + 1 < len(words):
            options += ["-o", words[at + 1]]
            names.remove(words[at + 1])
        elif word.startswith("-o") and len(word) > 2:
            options += ["-o", word[2:]]
    if os.geteuid() == 0:  # as for any file system that root mounts; FUSE has it the other way round
        named = {name for option in options[1::2] for name in option.split(",")}
        options += [word for name in ("dev", "suid") if f"no{name}" not in named for word in ("-o", name)]
    return ["mount", *options, "--", *names]
