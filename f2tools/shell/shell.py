"""One shell: the image, the directory it is in, and what a line does.  Each line opens the image anew, so that what it
shows is what is there, and a line that changes something is done as a whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import click
from click.core import ParameterSource

from f2tools.edit.paths import Directory, Outside
from f2tools.edit.words import words_of
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.volume.glob import expand
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.options import say_error
from f2tools.process import Stopped
from f2tools.shell.commands import ALL, CHANGING, OWN, PATHS, READING, as_cp, command_of, summary
from f2tools.text import command_line, printable

_MAGIC = re.compile(r"([*?[])")


class Left(Exception):
    """The line `exit`."""


class ReadingOnly(F2fsError):
    """A change was asked for in a read-only shell."""

    exit_code = 1


class Shell:
    """A shell on one image; `run` does a line and returns its exit code."""

    def __init__(
        self,
        image: str,
        devices: tuple[str, ...] = (),
        keys: tuple[str, ...] = (),
        *,
        write: bool = False,
        undo: str | None = None,
    ) -> None:
        self.image, self._devices, self._keys = image, devices, keys
        self._write, self._undo = write, undo
        self.undo_logs: list[str] = []
        self._next_log: str | None = None
        self.directory = "/"
        with self.volume() as volume:
            self.warnings = volume.warnings

    def volume(self) -> Volume:
        """The image, opened for reading."""
        return open_volume(self.image, self._devices, keys=self._keys)

    def run(self, line: str) -> int:
        """Carry out a line, report its errors, and return the exit code; `Left` for `exit`."""
        try:
            words = words_of(line)
            return self._do(words) if words else 0
        except (Left, BrokenPipeError, Stopped):
            raise
        except (Exception, KeyboardInterrupt) as error:
            return say_error(error)

    def _do(self, words: list[str]) -> int:
        name, *rest = words
        if name in ("exit", "quit"):
            raise Left
        if name == "help" and rest and rest[0] not in OWN:
            name, rest = rest[0], ["--help"]
        if name in ("get", "put"):
            name, *rest = as_cp(name, rest)
        if name not in ALL:
            close = get_close_matches(name, ALL, 2, 0.5)
            meant = " or ".join(f"`{one}`" for one in close)
            raise Usage(f"there is no command {name!r}; {f'{meant}?' if close else '`help` lists them'}")
        if name in OWN:
            self._own(name, rest)
            return 0
        return self._command(name, rest)

    # -- commands of the shell itself -------------------------------------------------------------------------------

    def _own(self, name: str, words: list[str]) -> None:
        if name == "cd":
            self._cd(words)
        elif name == "pwd":
            click.echo(printable(self.directory))
        elif words:
            click.echo(summary(words[0]))
        else:
            for title, names in (("Look", READING), ("Change, with --write", CHANGING), ("Move about", OWN)):
                click.echo(f"{title}:")
                click.echo("\n".join(f"  {one:9} {summary(one)}" for one in names))

    def _cd(self, words: list[str]) -> None:
        if len(words) > 1:
            raise Usage("cd takes one directory; put quotes around a name with blanks")
        path = self.resolve(words[0] if words else "/")
        with self.volume() as volume:
            meant = expand(volume, os.fsencode(path))
            found = volume.path(meant[0] if len(meant) == 1 else path)
            if not found.inode.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            self.directory = os.fsdecode(found.path or b"/")

    def resolve(self, path: str) -> str:
        """A path in the image from the root on."""
        if path.startswith("/"):
            return path
        here = self.directory
        if _MAGIC.search(path):  # the directory's own name is no pattern
            here = _MAGIC.sub(r"[\1]", here)
        return here.rstrip("/") + "/" + path

    # -- commands of f2tools ----------------------------------------------------------------------------------------

    def _command(self, name: str, words: list[str]) -> int:
        command, takes_image = command_of(name)
        place = Directory(self.image, self.directory)
        self._next_log = self._free_log()
        try:
            with command.make_context(name, words, obj=place, help_option_names=["-h", "--help"]) as context:
                self._complete(name, context, takes_image)
                command.invoke(context)
        except click.exceptions.Exit as stop:
            return stop.exit_code
        finally:
            if self._next_log is not None and os.path.lexists(self._next_log):
                self.undo_logs.append(self._next_log)
        return 0

    def _complete(self, name: str, context: click.Context, takes_image: bool) -> None:
        """Put in what a line leaves out: the image and how it is opened, and the directory before its paths."""
        given = context.params
        if takes_image:
            given["image"] = self.image
        for option, value in (("devices", self._devices), ("keys", self._keys)):
            if option in given:
                given[option] = (*value, *given[option])
        for option in PATHS if takes_image else ():
            if option in given:
                default = context.get_parameter_source(option) in (ParameterSource.DEFAULT, None)
                given[option] = self._paths(given[option], default)
        places = [*given.get("sources", ()), given.get("target")]
        if name == "cp" and all(isinstance(place, Outside) for place in places):
            raise Usage("cp: all of this is on the host; put a colon before what is in the image, as in `cp :NAME .`")
        if name == "ln" and not given["symbolic"]:
            given["target"] = self.resolve(given["target"])
        if name in CHANGING and not given["dry_run"] and not isinstance(given.get("target"), Outside):
            if not self._write:
                again = command_line("f2tools shell --write", self.image)
                raise ReadingOnly(f"{name}: the image is open for reading only; `{again}` can change it")
            given["undo"] = given["undo"] or self._next_log

    def _paths(self, value: Any, default: bool) -> Any:
        if isinstance(value, tuple):
            return (self.directory,) if default or not value else tuple(map(self._path, value))
        return self.directory if default or value is None else self._path(value)

    def _path(self, text: str) -> str:
        """A path as a command takes it; `ino:5`, and 5 if no file has that name, are inodes."""
        if text.startswith("ino:"):
            return text
        if text.isdecimal():
            with suppress(OSError, F2fsError), self.volume() as volume:
                volume.path(self.resolve(text), follow=False)
                return self.resolve(text)
            return text
        return self.resolve(text)

    def _free_log(self) -> str | None:
        """An unused name for the next undo log."""
        if self._undo is None:
            return None
        names = (f"{self._undo}.{number}" if number > 1 else self._undo for number in itertools.count(1))
        return next(name for name in names if not os.path.lexists(name))

    def ways_back(self) -> list[str]:
        """The command lines that take back what was done, in their order."""
        return [command_line("f2tools undo", log, self.image) for log in reversed(self.undo_logs)]


def run_lines(shell: Shell, lines: Iterable[str]) -> int:
    """Do line after line, up to the first that fails; its exit code."""
    try:
        for line in lines:
            code = shell.run(line)
            if code:
                return code
    except Left:
        pass
    return 0
