"""The commands at the prompt: those of f2tools, as they are, on the image that is open."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib import import_module

import click

_SHOW, _FILES, _EDIT = "f2tools.dump.structures_cli", "f2tools.dump.files_cli", "f2tools.edit.cli"

READING = {
    "ls": f"{_FILES}:ls", "cat": f"{_FILES}:cat", "stat": f"{_FILES}:stat", "tree": f"{_FILES}:tree",
    "info": f"{_SHOW}:info", "inode": f"{_SHOW}:inode", "dentries": f"{_SHOW}:dentries", "map": f"{_SHOW}:map_",
    "block": f"{_SHOW}:block", "node": f"{_SHOW}:node",
    "undelete": "f2tools.forensics.cli:undelete", "history": "f2tools.forensics.cli:history",
}  # fmt: skip
CHANGING = {
    name: f"{_EDIT}:{name}"
    for name in (
        "cp", "mv", "rm", "mkdir", "rmdir", "ln", "mknod", "chmod", "chown", "touch", "truncate", "setfattr",
        "setfacl", "chattr",
    )
}  # fmt: skip
OWN = {
    "cd": "Go to a directory, without one to the root.",
    "pwd": "Say which directory this is.",
    "get": "Copy out: get [-r] PATH [TO], of the host the present directory unless TO says otherwise.",
    "put": "Copy in: put [-r] FILE [TO], into the present directory of the image unless TO says otherwise.",
    "help": "List the commands; help COMMAND says all about one.",
    "exit": "Leave, as do quit and the end of the input.",
}
ALL = (*READING, *CHANGING, *OWN, "quit")
PATHS = ("path", "paths", "which", "what")  # parameters that are a path in the image
_OF_THE_IMAGE = ("image", "offset", "backing", "cache")  # said once, when the shell begins


def command_of(name: str) -> tuple[click.Command, bool]:
    """A command without the parameters that name the image, and whether it takes one."""
    module, _, attribute = (READING.get(name) or CHANGING[name]).partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    own = copy.copy(command)
    own.params = [parameter for parameter in command.params if parameter.name not in _OF_THE_IMAGE]
    return own, any(parameter.name == "image" for parameter in command.params)


def summary(name: str) -> str:
    """What a command does, in a line."""
    if name in OWN:
        return OWN[name]
    return command_of(name)[0].get_short_help_str(90)


def as_cp(name: str, words: Sequence[str]) -> list[str]:
    """`get` and `put` as the `cp` that they stand for."""
    options = [word for word in words if word.startswith("-") and word != "-"]
    paths = [word for word in words if word not in options]
    if name == "get":
        sources, target = (paths, ".") if len(paths) < 2 else (paths[:-1], paths[-1])
        return ["cp", *options, *(f":{source}" for source in sources), target]
    sources, target = (paths, ".") if len(paths) < 2 else (paths[:-1], paths[-1])
    return ["cp", *options, *sources, f":{target}"]
