"""The commands that any file system with a `Tree` has: ls, stat, cat, extract, tar, manifest.  They only read.

Where options or arguments differ from volume to volume, the group that they are added to has commands of its own.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.copyout.keep import Keep, keep_options
from f2tools.copyout.walk import Lost, not_in_full, placed, shown
from f2tools.errors import Usage
from f2tools.options import FileName, force_option, json_option, must_be_free, print_json, progress
from f2tools.text import counted, printable, printable_name

if TYPE_CHECKING:
    from f2tools.copyout.tree import Tree

MOST_RANGES = 8  # of a file, named on standard error


@dataclass(frozen=True)
class TreeCommands:
    """The names of one file system's commands, and how they open a volume."""

    group: str
    """The group's words behind `f2tools`."""
    example: str
    """An image, in the examples of the help."""
    opened: Callable[[str], AbstractContextManager[Any]]
    """The volume in an image, a `Tree`."""
    statfs: Callable[[Any], dict[str, int]]
    """What a manifest says of a volume: f_bsize, f_blocks, f_bfree."""
    metavar: str = "IMAGE"
    doubt: Callable[[Any], str | None] = lambda _: None
    """Why a volume may have more than it shows, if that is so; then the output counts as incomplete."""

    def image_argument(self, function: Callable[..., None]) -> Callable[..., None]:
        """The argument that names the image."""
        return click.argument("image", type=FileName(), metavar=self.metavar)(function)

    def add_to(self, group: click.Group) -> None:
        """Add all of them."""
        for run in (self._ls, self._stat, self._cat, self._extract, self._tar, self._manifest):
            function = run()
            name = function.__name__
            example = _EXAMPLES[name].format(self.example)
            text = f"{inspect.getdoc(function)}\n\n\b\nExample:\n  f2tools {self.group} {name} {example}\n"
            group.command(name, help=text)(self.image_argument(function))

    def _ls(self) -> Callable[..., None]:
        @click.argument("paths", nargs=-1, metavar="[PATH]...")
        @click.option("-l", "long", is_flag=True, help="Mode, links, owner, size and time too.")
        @click.option("-R", "recursive", is_flag=True, help="Everything below as well.")
        @click.option("-i", "numbers", is_flag=True, help="Inode numbers too.")
        @json_option
        def ls(image: str, paths: tuple[str, ...], long: bool, recursive: bool, numbers: bool, as_json: bool) -> None:
            """List directories."""
            from f2tools.copyout.tree import expand_all, listed
            from f2tools.copyout.tree_show import facts, long_line

            lost: list[Lost] = []
            rows: list[dict[str, Any]] = []
            with self.opened(image) as volume:
                for path, inode in listed(volume, expand_all(volume, paths or ("/",)), recursive, lost):
                    found = facts(volume, inode)
                    if as_json:
                        rows.append({"path": shown(path), **found})
                        continue
                    number = f"{inode.ino:>10} " if numbers else ""
                    name = path if recursive else path.rpartition(b"/")[2] or path
                    click.echo(number + (long_line(found, inode.mode, name) if long else printable_name(shown(name))))
                doubt = self.doubt(volume)
            if as_json:
                print_json({"image": image, "entries": rows, "lost": [item.as_dict() for item in lost]})
            say_lost(lost, doubt=doubt)

        return ls

    def _stat(self) -> Callable[..., None]:
        @click.argument("paths", nargs=-1, required=True, metavar="PATH...")
        @json_option
        def stat(image: str, paths: tuple[str, ...], as_json: bool) -> None:
            """Show what stat says about files."""
            from f2tools.copyout.tree import expand_all
            from f2tools.copyout.tree_show import facts

            with self.opened(image) as volume:
                rows = [
                    {"path": shown(path), **facts(volume, volume.at_path(path, follow=False))}
                    for path in expand_all(volume, paths)
                ]
                doubt = self.doubt(volume)
            if as_json:
                print_json({"image": image, "entries": rows})
            else:
                for row in rows:
                    say_fields(row)
            say_lost([], doubt=doubt)

        return stat

    def _cat(self) -> Callable[..., None]:
        @click.argument("paths", nargs=-1, required=True, metavar="PATH...")
        def cat(image: str, paths: tuple[str, ...]) -> None:
            """Write the content of files to standard output."""
            from f2tools.copyout.tree import expand_all, parts

            with self.opened(image) as volume:
                for path in expand_all(volume, paths):
                    inode = volume.at_path(path)
                    if not inode.is_file:
                        raise Usage(f"{shown(path)}: a {inode.kind}, which has no content to be shown")
                    for part in parts(volume, inode, 0, inode.size):
                        if part.error is not None:
                            sys.stdout.buffer.flush()
                            raise part.error
                        sys.stdout.buffer.write(part.content)
                sys.stdout.buffer.flush()
                say_lost([], doubt=self.doubt(volume))

        return cat

    def _extract(self) -> Callable[..., None]:
        @click.argument("path", default="/")
        @click.option(
            "-o",
            "--output",
            required=True,
            type=FileName(),
            metavar="DIR",
            help="The directory to put files in; made if need be.",
        )
        @keep_options
        @json_option
        def extract(image: str, path: str, output: str, keep: Keep, as_json: bool) -> None:
            """Copy files out, with times, links, holes and attributes; nothing that is there is replaced.

            Owners, devices, set-user-ID bits and whatever else gives rights are copied only on request, as from an
            archive. What can't be read is listed at the end, and the exit code is 1.
            """
            from f2tools.copyout.times import said_of_times
            from f2tools.copyout.tree_extract import extract as copy_out

            with self.opened(image) as volume:
                report = copy_out(volume, output, path, keep)
                doubt = self.doubt(volume)
            if as_json:
                print_json({"image": image, **report.as_dict()})
            else:
                left = report.left_out
                bits = counted(left, "device or set-user-ID bit", "devices or set-user-ID bits")
                said = f"; {bits} left out, --all keeps them" if left else ""
                click.echo(
                    f"{printable(output)}: {counted(report.files, 'file')}, "
                    f"{counted(report.directories, 'directory', 'directories')}, {counted(report.symlinks, 'link')}, "
                    f"{report.bytes} bytes{said}"
                )
                if report.times_not_set:
                    click.echo(said_of_times(report.times_not_set))
            say_lost([*report.partial, *report.lost], output, doubt)

        return extract

    def _tar(self) -> Callable[..., None]:
        @click.argument("paths", nargs=-1, metavar="[PATH]...")
        @click.option(
            "-o",
            "--output",
            type=FileName(),
            metavar="FILE",
            help="Write here; .gz and .zst are compressed.  [default: stdout]",
        )
        @force_option
        def tar(image: str, paths: tuple[str, ...], output: str | None, force: bool) -> None:
            """Write the tree, or parts of it, as a tar archive, holes as holes."""
            from f2tools.copyout.archive import open_archive
            from f2tools.copyout.tree import expand_all
            from f2tools.copyout.tree_tar import write_tar

            must_be_free(output, force)
            with self.opened(image) as volume, progress("files", None) as bar:
                with open_archive(output) as out:
                    report = write_tar(volume, out, expand_all(volume, paths), bar.advance)
                doubt = self.doubt(volume)
            say_lost(report.lost, doubt=doubt)

        return tar

    def _manifest(self) -> Callable[..., None]:
        @click.argument("path", default="/")
        @click.option("-o", "--output", type=FileName(), metavar="FILE", help="Write here.  [default: stdout]")
        @force_option
        def manifest(image: str, path: str, output: str | None, force: bool) -> None:
            """The whole tree as JSON, with metadata and hashes, so that two trees can be compared.  Always JSON."""
            from f2tools.copyout.tree_show import manifest as manifest_of

            must_be_free(output, force)
            with self.opened(image) as volume, progress("files", None) as bar:
                found = manifest_of(volume, os.fsencode(path), self.statfs(volume), bar.advance)
                doubt = self.doubt(volume)
            with newfile.text_output(output) as out:
                json.dump(found, out, indent=0)
                out.write("\n")
            if "errors" in found:
                click.echo(f"f2tools: {not_in_full(len(found['errors']))}", err=True)
            say_lost([], doubt=doubt)
            if "errors" in found:
                sys.exit(1)

        return manifest


_EXAMPLES = {
    "ls": "-l {} /etc",
    "stat": "{} /etc/passwd",
    "cat": "{} /etc/passwd",
    "extract": "{} -o files",
    "tar": "{} -o card.tar.zst",
    "manifest": "{} > card.json",
}


def at(volume: Tree, path: str, *, follow: bool = True) -> Any:
    """The inode at a path that a user gave."""
    return volume.at_path(os.fsencode(path), follow=follow)


def say_fields(row: dict[str, Any]) -> None:
    """Fields one below the other."""
    width = max(map(len, row), default=0)
    for name, value in row.items():
        click.echo(f"{name:<{width}}  {printable(str(value))}")


def _bytes(ranges: tuple[tuple[int, int], ...]) -> str:
    """Which bytes of a file are missing, at the end of a message."""
    if not ranges:
        return ""
    shown = ", ".join(f"{start} to {start + length - 1}" for start, length in ranges[:MOST_RANGES])
    more = f" and {len(ranges) - MOST_RANGES} more ranges" if len(ranges) > MOST_RANGES else ""
    return f"; missing: bytes {shown}{more}"


def say_lost(lost: list[Lost], target: str | None = None, doubt: str | None = None) -> None:
    """Say what could not be read, or not copied to `target`, which is named by its path there, and what is in doubt;
    the exit code is 1 then."""
    for item in lost:
        name = shown(item.path) if target is None else placed(target, item.path)
        partly = "only partly: " if item.ranges else ""
        click.echo(f"f2tools: {partly}{printable_name(name)}: {printable(item.reason)}{_bytes(item.ranges)}", err=True)
    if doubt is not None:
        click.echo(f"f2tools: {printable(doubt)}", err=True)
    if lost or doubt is not None:
        sys.exit(1)
