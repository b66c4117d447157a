"""The `f2tools` command: finds the tool that is asked for, loads only that one, turns errors into exit codes."""

from __future__ import annotations

import codecs
import io
import os
import sys

import click

from f2tools.groups import LazyGroup
from f2tools.options import say_error
from f2tools.process import settle, told_to_end, why_not_here

TOOLS = {
    "mkfs": ("f2tools.mkfs.cli:mkfs", "Format an image or a device as F2FS."),
    "dump": ("f2tools.dump.cli:dump", "Look at every structure; list, extract and verify files."),
    "fsck": ("f2tools.fsck.cli:fsck", "Check a volume; say what is wrong and where."),
    "trace": ("f2tools.trace.cli:trace", "What a workload did to the device, from block traces."),
    "ftl": ("f2tools.ftl.cli:ftl", "What a load or a trace costs the flash, by translation layer."),
    "vsl": ("f2tools.vsl.cli:vsl", "A sparse space of blocks over an append-only log, in an image."),
    "dfs": ("f2tools.dfs.cli:dfs", "The Direct File System over such a space: make, check, look."),
    "experiment": ("f2tools.experiment.cli:main", "The evaluations of the papers, by command."),
    "dffs": ("f2tools.dffs.cli:dffs", "The Direct Flash File System on raw NAND: make, mount, check, look."),
    "recover": ("f2tools.recover.cli:recover", "Explain what a crash left, and bring back what was fsync'ed."),
    "clean": ("f2tools.clean.cli:clean", "Win free sections, and show what it takes."),
    "resize": ("f2tools.resize.cli:resize", "Let a volume grow or shrink, safely."),
    "defrag": ("f2tools.defrag.cli:defrag", "Make files contiguous, put them in order; say how fragmented they are."),
    "label": ("f2tools.tune.cli:label", "Print or set the label of a volume."),
    "tune": ("f2tools.tune.cli:tune", "Show or change UUID, features and extension lists of a volume."),
    "edit": ("f2tools.edit.cli:edit", "Change many files in an image as one step."),
    "cp": ("f2tools.edit.cli:cp", "Copy files into an image, out of it, or inside it."),
    "load": ("f2tools.load.cli:load", "Put a tree of files into an image."),
    "mv": ("f2tools.edit.cli:mv", "Rename or move files in an image."),
    "rm": ("f2tools.edit.cli:rm", "Remove files from an image."),
    "rmdir": ("f2tools.edit.cli:rmdir", "Remove empty directories from an image."),
    "mkdir": ("f2tools.edit.cli:mkdir", "Make directories in an image."),
    "ln": ("f2tools.edit.cli:ln", "Link files in an image."),
    "mknod": ("f2tools.edit.cli:mknod", "Make device nodes, fifos, sockets in an image."),
    "chmod": ("f2tools.edit.cli:chmod", "Change permissions in an image."),
    "chown": ("f2tools.edit.cli:chown", "Change owners in an image."),
    "touch": ("f2tools.edit.cli:touch", "Set times in an image."),
    "truncate": ("f2tools.edit.cli:truncate", "Set the size of files in an image."),
    "setfattr": ("f2tools.edit.cli:setfattr", "Set extended attributes in an image."),
    "setfacl": ("f2tools.edit.cli:setfacl", "Change ACLs in an image."),
    "chattr": ("f2tools.edit.cli:chattr", "Set flags and projects in an image."),
    "mount": ("f2tools.mount.cli:mount", "Mount an image as a file system, through FUSE."),
    "umount": ("f2tools.mount.cli:umount", "Unmount, and return when all is on the disk."),
    "scan": ("f2tools.forensics.cli:scan", "Index all that the log still holds."),
    "history": ("f2tools.forensics.cli:history", "All versions of a file or directory that are left."),
    "timeline": ("f2tools.forensics.cli:timeline", "When what happened, for living, deleted and older files."),
    "hashes": ("f2tools.forensics.cli:hashes", "Hashes of all files, as sets of known files or against them."),
    "undelete": ("f2tools.forensics.cli:undelete", "Bring back deleted files and older versions."),
    "carve": ("f2tools.forensics.examine_cli:carve", "Find files by type in blocks that no file owns."),
    "slack": ("f2tools.forensics.examine_cli:slack", "Show what is left in unused slots and tails."),
    "strings": ("f2tools.forensics.examine_cli:strings", "Print strings with the owners of their blocks."),
    "report": ("f2tools.forensics.examine_cli:report", "Write a report on an image, as HTML and JSON."),
    "fls": ("f2tools.forensics.tsk.cli:fls", "List names, living and deleted, as The Sleuth Kit does."),
    "icat": ("f2tools.forensics.tsk.cli:icat", "Write out a file by its address, as The Sleuth Kit does."),
    "istat": ("f2tools.forensics.tsk.cli:istat", "Show an inode by its address, as The Sleuth Kit does."),
    "blkcat": ("f2tools.forensics.tsk.cli:blkcat", "Write out blocks, as The Sleuth Kit does."),
    "fsstat": ("f2tools.forensics.tsk.cli:fsstat", "Show what a volume is, as The Sleuth Kit does."),
    "info": ("f2tools.info.cli:info", "What an image holds, and one screen about it."),
    "doctor": ("f2tools.doctor.cli:doctor", "Say in plain words how a volume is, and what to do next."),
    "fleet": ("f2tools.fleet.cli:fleet", "Ask many images or traces, a row each, by processes or a cluster."),
    "shell": ("f2tools.shell.cli:shell", "A prompt inside an image: ls, cd, cat, cp, undelete, inode ..."),
    "links": ("f2tools.compat.names:links", "Be called as mkfs.f2fs, sload.f2fs, fsck.f2fs ..."),
    "undo": ("f2tools.undo.cli:undo", "Take back what a command with --undo did to an image."),
}  # fmt: skip
SECTIONS = {
    "Make and look": ("mkfs", "info", "dump", "shell", "trace", "ftl", "vsl", "dfs", "dffs", "experiment", "links"),
    "Use": ("mount", "umount"),
    "Check and rescue": ("doctor", "fsck", "recover", "undo"),
    "Examine the past": ("scan", "history", "timeline", "undelete", "carve", "slack", "strings", "hashes", "report"),
    "As The Sleuth Kit": ("fls", "icat", "istat", "blkcat", "fsstat"),
    "Many at once": ("fleet",),
    "Tend": ("clean", "defrag", "resize", "label", "tune"),
    "Change files in an image": (
        "edit", "cp", "load", "mv", "rm", "rmdir", "mkdir", "ln", "mknod", "chmod", "chown", "touch", "truncate",
        "setfattr", "setfacl", "chattr",
    ),
}  # fmt: skip


DRAWN = dict(zip("─│├└◆…≤·░▒▓█▁▂▃▄▅▆▇", "-|+`*.<.:%##__..--=", strict=True))


class ReaderGone(Exception):
    """The reader of our output has gone, as `head` does; that is no error."""


class Main(LazyGroup):
    """The group of all tools."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click would make it exit code 1, which means something else here
            raise ReaderGone from error


# What one tool needs from another without importing it, by the name under which it asks.
KNOWN = {"f2tools.segment-logs": "f2tools.trace.attribute.segments:segment_logs"}


@click.group(cls=Main, commands=TOOLS, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="f2tools", message="f2tools %(version)s")
def main() -> None:
    """Tools for F2FS images and devices, without a kernel driver.

    \b
    Example:
      f2tools mkfs card.img --size 512M -l CARD
      f2tools dump ls card.img
    """
    click.get_current_context().meta.update(KNOWN)


def run() -> None:
    """Run the command line; the exit code tells who must act: docs/cli.md begins with what each of them means."""
    settle()
    _end_where_nothing_works()
    try:
        with told_to_end():
            code = _run()
    except KeyboardInterrupt as error:  # while the end was being told
        code = say_error(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # said already; what is left would be written once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _end_where_nothing_works() -> None:
    if why := why_not_here():
        click.echo(f"f2tools: {why}", err=True)
        sys.exit(8)


def _run() -> int:
    _open_what_is_closed()
    _write_what_the_terminal_can()
    try:
        code = _run_main()
        if not code:
            sys.stdout.flush()
        return code
    except (ReaderGone, BrokenPipeError):
        return 141
    except (Exception, KeyboardInterrupt) as error:
        return say_error(error)


def _run_main() -> int:
    code = _run_as_called()
    if code is not None:
        return code
    if "_F2TOOLS_COMPLETE" in os.environ:
        from f2tools.completion import register

        register()
    try:
        return main(standalone_mode=False) or 0
    except click.exceptions.Exit as stop:
        return stop.exit_code


def _run_as_called() -> int | None:
    """The exit code where a link calls us as one of the programs of f2fs-tools; see `compat`."""
    name = os.path.basename(sys.argv[0])
    if name == "f2tools" or name.endswith(".py"):
        return None
    from f2tools.compat.names import run_as

    return run_as(sys.argv[0])


def mount_helper() -> None:
    """`mount.fuse.f2tools`, which mount(8) runs for a line of fstab."""
    from f2tools.mount.cli import from_fstab, is_remount

    if is_remount(sys.argv[1:]):
        os.execvp("mount", ["mount", "-i", *sys.argv[1:]])
    sys.argv[1:] = from_fstab(sys.argv[1:])
    run()


def _open_what_is_closed() -> None:
    """A closed standard stream gets its descriptor, instead of the first file that is opened.

    What is printed to a closed standard output is an error, as it is delivered to nobody.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def _write_what_the_terminal_can() -> None:
    """Where the locale lacks a character, one that it has stands for it: drawings in ASCII, names with escapes."""
    codecs.register_error("f2tools", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        # the second is what Python gives a C locale, for bytes in names; it knows no other characters
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            # in UTF-8 only bytes of names that are not UTF-8 can't be written: they go out as they came
            stream.reconfigure(errors="surrogateescape" if stream.encoding.lower() == "utf-8" else "f2tools")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(DRAWN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in missing), error.end
