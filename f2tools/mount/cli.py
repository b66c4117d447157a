"""`f2tools mount`: options in, a mount out; in the background the command returns when the mount is usable."""

from __future__ import annotations

import logging
import os

import click

from f2tools.errors import F2fsError, Usage
from f2tools.options import device_option, image_argument


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@image_argument
@click.argument("directory", type=click.Path(path_type=str))
@click.option("-o", "options", multiple=True, metavar="OPTION,...", help="Mount options; see below.")
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground until the volume is unmounted.")
@device_option
def mount(image: str, directory: str, options: tuple[str, ...], foreground: bool, devices: tuple[str, ...]) -> None:
    """Mount an image as a file system, read and write."""
    from f2tools.mount.options import parse_options
    from f2tools.mount.session import Request, serve

    logging.basicConfig(format="f2tools mount: %(message)s", level=logging.WARNING)
    serve(Request(image, os.path.abspath(directory), parse_options(options), devices), lambda: None)
