#!/usr/bin/env python3
"""Write man/*.1 and man/*.8 from the commands' own help: the same source as docs/cli.md.

Run it after a command has changed, or scripts/make_cli_docs.py, which writes these pages too.
tests/test_docs.py fails while a page is not what this script would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent))

from make_cli_docs import EXIT_CODES, children, walk  # noqa: E402 - beside this script

from f2tools import __version__  # noqa: E402
from f2tools.cli import main as f2tools  # noqa: E402

MAN = ROOT / "man"
# what changes volumes is for administrators, section 8; what looks at them is for everybody
FOR_ALL = (
    "f2tools", "dump", "trace", "ftl", "fleet", "experiment", "history", "timeline", "strings", "slack", "report",
)  # fmt: skip


def pages() -> dict[str, str]:
    """The pages by their file names."""
    contexts = walk(f2tools, "f2tools", None)
    names = {context.command_path: file_name(context) for context in contexts}
    return {names[context.command_path]: page(context, names) for context in contexts}


def section(context: click.Context) -> str:
    """The section of the manual that a command belongs to."""
    words = context.command_path.split()
    return "1" if (words[1] if len(words) > 1 else words[0]) in FOR_ALL else "8"


def file_name(context: click.Context) -> str:
    """f2tools-dump-ls.1"""
    return f"{context.command_path.replace(' ', '-')}.{section(context)}"


def page(context: click.Context, names: dict[str, str]) -> str:
    """One command as a manual page."""
    command, path = context.command, context.command_path
    title = path.replace(" ", "-")
    lines = [
        ".\\\" Made by scripts/make_man.py; don't edit.",
        f'.TH "{title.upper()}" "{section(context)}" "" "f2tools {__version__}" "f2tools"',
        ".SH NAME",
        f"{roff(title)} \\- {roff(first_sentence(command))}",
        ".SH SYNOPSIS",
        f"\\fB{roff(path)}\\fR {roff(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        *prose(command),
    ]
    below = children(context)
    if below:
        lines.append(".SH COMMANDS")
        for name, child in below:
            page_name, _, number = names[f"{path} {name}"].rpartition(".")
            lines += [".TP", f"\\fB{roff(page_name)}\\fR({number})", roff(child.get_short_help_str(300))]
    rows = [row for item in command.get_params(context)
            if isinstance(item, click.Option) and (row := item.get_help_record(context))]  # fmt: skip
    if rows:
        lines.append(".SH OPTIONS")
        for option, text in rows:
            lines += [".TP", f"\\fB{roff(option)}\\fR", roff(" ".join(text.split()))]
    if context.parent is None:
        lines += [".SH EXIT STATUS", roff(" ".join(EXIT_CODES).replace("`", ""))]
    else:
        lines += [".SH SEE ALSO", see_also(context, names)]
    return "\n".join(lines) + "\n"


def see_also(context: click.Context, names: dict[str, str]) -> str:
    """The command above, and the whole."""
    assert context.parent is not None
    above = [context.parent.command_path, *(["f2tools"] if context.parent.parent is not None else [])]
    shown = (names[path].rpartition(".") for path in above)
    return ", ".join(f"\\fB{roff(name)}\\fR({number})" for name, _, number in shown)


def first_sentence(command: click.Command) -> str:
    text = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)])[.:] ", text)[0].rstrip(".")


def prose(command: click.Command) -> list[str]:
    """The help as paragraphs, what is marked as preformatted kept so."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            lines += [".PP", roff(" ".join(paragraph.split()))]
            continue
        rows = paragraph.splitlines()[1:]
        if rows and re.fullmatch(r"Examples?:", rows[0].strip()):
            lines.append(".SH EXAMPLES")
            rows = rows[1:]
        lines += [".PP", ".nf", ".RS 2", *map(roff, inspect.cleandoc("\n".join(rows)).splitlines()), ".RE", ".fi"]
    return lines


def roff(text: str) -> str:
    """Text that troff takes as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def write() -> list[str]:
    """Write the pages that are not current, and remove those of commands that are gone; their names."""
    MAN.mkdir(exist_ok=True)
    wanted, changed = pages(), []
    for path in MAN.iterdir():
        if path.name not in wanted:
            path.unlink()
            changed.append(path.name)
    for name, text in wanted.items():
        target = MAN / name
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed


if __name__ == "__main__":
    for name in write():
        print(f"man/{name}", file=sys.stderr)
