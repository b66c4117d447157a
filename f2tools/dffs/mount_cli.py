"""`f2tools dffs mount`: options in, a mount out; in the background the command returns when the mount is usable."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from f2tools.errors import F2fsError, Usage
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.dffs.space import Policy
    from f2tools.fuse.options import ServeOptions


@click.command()
@click.argument("flash", type=click.Path(path_type=str))
@click.argument("directory", type=click.Path(path_type=str))
@click.option("-o", "words", multiple=True, metavar="OPTION,...", help="Mount options; see above.")
@click.option("--cache", "keep_nodes", type=click.IntRange(64, 1 << 20), default=1024, show_default=True,
              help="Inodes and directories kept in memory; it doesn't grow with their number.")  # fmt: skip
@click.option("--policy", type=click.Choice(["greedy", "cost-benefit"]), default="greedy", show_default=True,
              help="Which erase blocks are cleaned first.")  # fmt: skip
@click.option("-f", "--foreground", is_flag=True, help="Serve in the foreground, until it is unmounted.")
def mount(
    flash: str, directory: str, words: tuple[str, ...], keep_nodes: int, policy: Policy, foreground: bool
) -> None:  # fmt: skip
    """Mount FLASH on DIRECTORY, read and write.  `f2tools umount DIRECTORY` unmounts it.

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

    \b
    Example:
      f2tools dffs mount card.nand /mnt/card
      f2tools umount /mnt/card
    """
    from f2tools.fuse.daemon import in_background
    from f2tools.fuse.needed import require_fuse
    from f2tools.fuse.options import SWITCHES, ServeOptions, parse_words

    switches = {name: value for name, value in SWITCHES.items() if "discard" not in name}  # trims are not put off here
    options = ServeOptions(**parse_words(words, switches, {}))  # type: ignore[arg-type]
    if not os.path.isdir(directory):
        raise Usage(f"{directory}: not a directory")
    require_fuse(options)
    image, directory = os.path.abspath(flash), os.path.realpath(directory)
    if foreground:
        _serve(image, directory, options, (keep_nodes, policy), [], lambda: None)
        return
    warnings: list[str] = []
    error, code = in_background(
        lambda ready: _serve(image, directory, options, (keep_nodes, policy), warnings, ready),
        warnings,
        "f2tools dffs mount",
    )
    if error is not None:
        failure = F2fsError(error)
        failure.exit_code = code
        raise failure
    for text in warnings:
        print(f"f2tools: {printable(image)}: {printable(text)}", file=sys.stderr)


def _serve(
    image: str,
    directory: str,
    options: ServeOptions,
    how: tuple[int, Policy],
    warnings: list[str],
    ready: Callable[[], None],
) -> None:
    from f2tools.device.media.image import lock, open_image
    from f2tools.device.media.mounted import mark_mounted
    from f2tools.dffs.files import Files, LiveFiles
    from f2tools.dffs.volume import Volume
    from f2tools.dffs.write import WritableVolume
    from f2tools.fuse import session

    keep_nodes, policy = how
    write = not options.read_only and os.access(image, os.W_OK)
    if not write and not options.read_only:
        warnings.append(f"mounted read-only: {image} can't be written by this user")
    file = open_image(image, write=write)
    try:
        if write:
            mark_mounted(file.fd)
        else:
            lock(file.fd, image, shared=True)
        files = (
            LiveFiles(WritableVolume(file, keep_nodes=keep_nodes, policy=policy))
            if write
            else Files(Volume(file, keep_nodes=keep_nodes))
        )
        files.inode(files.root_ino)  # what can't be used at all is told now
    except BaseException:
        file.close()
        raise
    session.serve(files, image, directory, options, ready, [file.fd] if write else [])
