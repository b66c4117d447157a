"""The prompt: lines with a history, and with commands, options and paths completed.

readline does the editing: it is part of Python, has the keys that its user has set for every other program, and costs
nothing unless it is used.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from f2tools.errors import F2fsError
from f2tools.f2fs.volume.glob import beginning
from f2tools.newfile import create_directory
from f2tools.process import Stopped
from f2tools.shell.commands import ALL, CHANGING, READING, command_of
from f2tools.shell.shell import Left, Shell
from f2tools.text import printable

_SPECIAL = re.compile(r"([\s'\"\\#$])")
_REMEMBERED = 1000  # lines


def talk(shell: Shell) -> None:
    """Ask for lines until their end."""
    with suppress(ImportError):
        _prepare(shell)
    while True:
        try:
            line = input(f"{printable(os.path.basename(shell.image))}:{printable(shell.directory)}> ")
        except Stopped:
            raise
        except KeyboardInterrupt:
            click.echo()
            continue
        except EOFError:
            click.echo()
            return
        try:
            shell.run(line)
        except Left:
            return


def _prepare(shell: Shell) -> None:
    import readline

    found: list[str] = []

    def complete(_text: str, state: int) -> str | None:
        if not state:
            found[:] = completions(shell, readline.get_line_buffer()[: readline.get_endidx()])
        return found[state] if state < len(found) else None

    def show(_text: str, matches: Sequence[str], _longest: int) -> None:
        names = sorted(_name(match) for match in matches)
        width = max(map(len, names)) + 2
        each = max(1, shutil.get_terminal_size().columns // width)
        rows = (names[at : at + each] for at in range(0, len(names), each))
        print("\n" + "\n".join("".join(name.ljust(width) for name in row).rstrip() for row in rows))
        readline.redisplay()

    readline.set_completer_delims("")  # the whole line is completed: only we know what is a word
    readline.set_completer(complete)
    with suppress(AttributeError):
        readline.set_completion_display_matches_hook(show)
    readline.parse_and_bind("tab: complete")
    history = _history()
    if history is not None:
        with suppress(OSError):
            readline.read_history_file(history)
        readline.set_history_length(_REMEMBERED)
        atexit.register(_keep, history)


def _history() -> str | None:
    """The private file of earlier lines, as names in images are private; None where there can be none."""
    directory = os.path.join(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "f2tools")
    path = os.path.join(directory, "shell_history")
    with suppress(OSError, F2fsError, RuntimeError):
        create_directory(directory)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return path
    return None


def _keep(history: str) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(history)


def completions(shell: Shell, line: str) -> list[str]:
    """The possible completions of a line; each ends with its last word."""
    start, word, before = last_word(line)
    if not before:
        return [f"{line[:start]}{name} " for name in sorted(ALL) if name.startswith(word)]
    name = before[0]
    if word.startswith("-"):
        return [f"{line[:start]}{option} " for option in _options(name) if option.startswith(word)]
    if name == "help":
        return [f"{line[:start]}{one} " for one in sorted(ALL) if one.startswith(word)]
    on_host = _on_host(name, word, len([one for one in before[1:] if not one.startswith("-")]))
    found = _host_paths(word) if on_host else _image_paths(shell, word)
    if len(found) == 1 and not found[0].endswith("/"):
        return [f"{line[:start]}{_quoted(found[0])} "]
    return [line[:start] + _quoted(path) for path in found]


def _on_host(name: str, word: str, at: int) -> bool:
    if name == "cp":
        return not word.startswith(":")
    return (name == "get" and at > 0) or (name == "put" and at == 0)


def _options(name: str) -> list[str]:
    if name in ("get", "put"):
        name = "cp"
    if name not in READING and name not in CHANGING:
        return []
    options = (one for one in command_of(name)[0].params if isinstance(one, click.Option))
    return sorted(option for one in options for option in one.opts if len(option) > 2)


def _image_paths(shell: Shell, word: str) -> list[str]:
    """Paths in the image that begin like this, as they are written."""
    mark = ":" if word.startswith(":") else ""
    path = word[len(mark) :]
    typed = path.rpartition("/")
    with suppress(OSError, F2fsError), shell.volume() as volume:
        found = beginning(volume, os.fsencode(shell.resolve(path)))
        names = [(os.fsdecode(one).rpartition("/")[2], is_dir) for one, is_dir in found]
        return [mark + typed[0] + typed[1] + name + "/" * is_dir for name, is_dir in names]
    return []


def _host_paths(word: str) -> list[str]:
    above, slash, begun = word.rpartition("/")
    with suppress(OSError), os.scandir(os.path.expanduser(above + slash) or ".") as entries:
        names = [(one.name, one.is_dir()) for one in entries if begun or not one.name.startswith(".")]
        return sorted(above + slash + name + "/" * is_dir for name, is_dir in names if name.startswith(begun))
    return []


def _quoted(path: str) -> str:
    return _SPECIAL.sub(r"\\\1", path)


def _name(match: str) -> str:
    """What of a line is shown in a list: the last name."""
    word = last_word(match.rstrip(" "))[1]
    return word.rstrip("/").rpartition("/")[2] + "/" * word.endswith("/")


def last_word(line: str) -> tuple[int, str, list[str]]:
    """(where the last word begins, what it says so far, the words before it); a quote in it may be open."""
    words: list[str] = []
    start, word, quote, at = len(line), "", "", 0
    inside = False
    while at < len(line):
        one = line[at]
        if not inside and not one.isspace():
            start, inside = at, True
        if quote:
            if one == quote:
                quote = ""
            else:
                word += one
        elif one == "\\":
            at += 1
            word += line[at : at + 1]
        elif one in "'\"":
            quote = one
        elif one.isspace():
            if inside:
                words.append(word)
            word, inside, start = "", False, len(line)
        else:
            word += one
        at += 1
    return (start if inside else len(line)), word, words
