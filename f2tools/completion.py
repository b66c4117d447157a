"""What a shell completes beyond commands and options: paths in images, after `IMAGE:/` and where a command takes them.

The functions for bash and zsh are click's with two changes: a colon or a blank doesn't end a word, and no blank follows
a directory.  `f2tools.cli` registers them when a shell asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, ZshComplete, add_completion_class, split_arg_string

LINE, PIECE = "_F2TOOLS_LINE", "_F2TOOLS_PIECE"  # bash: the line up to the cursor, and what of it will be replaced
IN_IMAGE = "path"  # the type of an item that is a path in an image
_LAST_WORD = re.compile(r"""(?:[^\s\\'"]|\\.|'[^']*'?|"(?:[^"\\]|\\.)*"?)*$""", re.DOTALL)

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    response=$(env _F2TOOLS_LINE="${COMP_LINE:0:$COMP_POINT}" _F2TOOLS_PIECE="${COMP_WORDS[$COMP_CWORD]}" \\
        %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            path)
                compopt -o filenames
                [[ $value != */ ]] || compopt -o nospace
                COMPREPLY+=("$value")
                ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a completions described paths directories response
    local type key descr
    (( ! $+commands[%(prog_name)s] )) && return 1
    local -x COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1))
    response=("${(@f)$(env %(complete_var)s=zsh_complete %(prog_name)s)}")
    for type key descr in ${response}; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            path) if [[ $key == */ ]]; then directories+=("$key"); else paths+=("$key"); fi ;;
            plain) if [[ $descr == _ ]]; then completions+=("$key"); else described+=("$key":"$descr"); fi ;;
        esac
    done
    [[ -z $described ]] || _describe -V unsorted described -U
    [[ -z $completions ]] || compadd -U -V unsorted -a completions
    [[ -z $paths ]] || compadd -U -a paths
    [[ -z $directories ]] || compadd -U -S '' -a directories
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class Bash(BashComplete):
    """Completion for bash, which takes a colon for the end of a word and replaces only what is after it."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get(LINE)
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)
        return (words[1:-1], words[-1]) if words and _last(line) else (words[1:], "")

    def format_completion(self, item: CompletionItem) -> str:
        line, piece = os.environ.get(LINE, ""), os.environ.get(PIECE, "")
        last = _last(line)
        stays = last if piece in (":", "=", "@") else last[: -len(piece)] if piece and last.endswith(piece) else ""
        kept = "".join(split_arg_string(stays))
        return f"{item.type},{item.value.removeprefix(kept)}"


class Zsh(ZshComplete):
    """Completion for zsh."""

    source_template = _ZSH


def register() -> None:
    """Let click use these; to be called before it answers a shell."""
    add_completion_class(Bash, "bash")
    add_completion_class(Zsh, "zsh")


def files() -> list[CompletionItem]:
    """Let the shell complete with files of the host."""
    return [CompletionItem("", type="file")]


def after_image(incomplete: str) -> list[CompletionItem]:
    """Completions of `IMAGE:/PA`; files of the host where no image is named yet."""
    image, colon, path = incomplete.partition(":/")
    if not colon or not image:
        return files()
    return _items(f"{image}:", image, (), f"/{path}")


def image_or_path(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For IMAGE, and `IMAGE:/PATH` in its place."""
    return after_image(incomplete)


def path_in_image(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For a PATH after its IMAGE."""
    image = ctx.params.get("image")
    if not image or ":/" in incomplete:
        return after_image(incomplete)
    if incomplete and not incomplete.startswith("/"):
        return []
    opening = ctx.params.get("devices") or ()
    return _items("", image, opening, incomplete or "/")


def _items(before: str, image: str, devices: Sequence[str], path: str) -> list[CompletionItem]:
    """The paths that begin like this; errors are not shown in a shell."""
    from f2tools.errors import F2fsError
    from f2tools.f2fs.volume.glob import beginning
    from f2tools.f2fs.volume.volume import open_volume

    found: list[Any] = []
    with suppress(OSError, F2fsError), open_volume(image, devices) as volume:
        found = beginning(volume, os.fsencode(path))
    names = [before + os.fsdecode(one) + "/" * is_directory for one, is_directory in found]
    return [CompletionItem(name, type=IN_IMAGE) for name in names if name.isprintable()]


def _last(line: str) -> str:
    """The last word of a line as it is written, empty after a blank."""
    match = _LAST_WORD.search(line)
    return match[0] if match else ""
