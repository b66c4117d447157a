#!/usr/bin/env python3
"""Write docs/cli.md from the commands' own help, docs/layout.md and docs/problems.md from what the code declares;
and the manual pages.

Run it after a command, a structure or a problem has changed: .venv/bin/python scripts/make_cli_docs.py
tests/test_docs.py fails while a file is not what this script would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import get_args

import click

from f2tools.cli import main as f2tools
from f2tools.codec import Layout, LayoutType
from f2tools.f2fs import layout as layout_package
from f2tools.fsck.fields import WITNESSES
from f2tools.fsck.findings import Problem
from f2tools.fsck.plans import ComputeAnew, TableName
from f2tools.fsck.problems import CATALOGUE
from f2tools.fsck.repair.phases import REPAIRS, Phase, phases_of

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Made by scripts/make_cli_docs.py; don't edit. -->"
EXIT_CODES = (
    "Exit codes: 0 fine; 1 something could not be read or done, and messages say what; 2 wrong usage, and nothing was",
    "done; 8 not an F2FS image, or a file or device that can't be opened, read or written; 70 a mistake in f2tools",
    "itself, with a traceback to report; 130 interrupted; 141 the reader of a pipe has gone. `fsck` has those of",
    "fsck(8), and 8 for its own mistakes too. Results go to the standard output, messages and progress bars to the",
    "standard error.",
)
LETTERS = (
    "A letter means one thing: `-h` is help, `-n` writes nothing (`--dry-run`; in `fsck` it checks only), `-f` is",
    "`--force`. Three kinds of commands have the letters that their users know instead: those with the name of a Unix",
    "command (`mv -n`, `rm -f`, `chown -h`, `strings -n` ...), `mount -f`, and The Sleuth Kit's. `fsck -f` checks",
    "what looks clean too, as fsck does everywhere, and forces nothing. `--offset` is in bytes, with `K`, `M` ... or",
    "`s` for sectors of 512. What is there already is not written over without `--force`, with exit code 1, in `fsck`",
    "8, except for pages, pictures and tables that f2tools made; what a command reads, and the file of an `--undo`, is",
    "never written over. Paths in images are `IMAGE:/PATH`, or IMAGE and then paths; `*`, `?` and `[...]` in them are",
    "matched inside the image, so they are quoted for the shell.",
)
NAMES = (
    "Control characters, marks of direction and bytes that are no UTF-8 are printed in names as `\\xNN`, byte by byte;",
    "a backslash before what would look like that is `\\x5c`, so no two names look alike. A bodyfile has `\\x7c` for",
    "`|`, l2tcsv `\\x2c` for a comma; lines for `sha256sum -c` have its own escapes, and JSON those of JSON.",
)
AROUND = (
    "`f2tools COMMAND --help` says what stands here, and `python -m f2tools` is the same as `f2tools`. For commands",
    'and options completed by the shell: `eval "$(_F2TOOLS_COMPLETE=bash_source f2tools)"` in `~/.bashrc`, with',
    "`zsh_source` in `~/.zshrc`; in fish: `_F2TOOLS_COMPLETE=fish_source f2tools | source`.",
)
# in disk order; a module that is not named here comes after them
MODULE_ORDER = (
    "super", "checkpoint", "nat", "sit", "summary", "node", "dentry", "xattr", "compress", "quota", "verity",
)  # fmt: skip

PROBLEM_GROUPS = (
    ("Superblock", "S"), ("Checkpoint", "C"), ("Journals", "J"), ("Node address table", "N"),
    ("Segment information table", "G"), ("Summaries", "A"), ("Open logs", "L"), ("Nodes", "F"), ("Inodes", "I"),
    ("Data blocks", "B"), ("Directories", "D"), ("Extended attributes", "X"), ("Compression", "Z"), ("Verity", "V"),
    ("Quota", "Q"), ("Orphans", "O"), ("After the checkpoint", "R"), ("Zones", "W"), ("Out of reach", "U"),
    ("Device", "H"),
)  # fmt: skip


def cli_page() -> str:
    """The reference of all commands."""
    contexts = walk(f2tools, "f2tools", None)
    head = ["# The commands", "", NOTE, "", *EXIT_CODES, ""]
    head += [*LETTERS, "", *NAMES, "", *AROUND]
    index = [f"- [`{context.command_path}`](#{anchor(context.command_path)})" for context in contexts]
    sections = [line for context in contexts for line in command_section(context)]
    return "\n".join([*head, "", *index, "", *sections]).rstrip() + "\n"


def walk(command: click.Command, name: str, parent: click.Context | None) -> list[click.Context]:
    """A command and all below it, as contexts, which know their settings and how they are called."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    return [context, *(below for child_name, child in children(context) for below in walk(child, child_name, context))]


def children(context: click.Context) -> list[tuple[str, click.Command]]:
    """The commands of a group."""
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [(name, child) for name, child in found if child is not None]


def command_section(context: click.Context) -> list[str]:
    """The section of one command: usage, prose, example, options."""
    command, path = context.command, context.command_path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"## {path}", "", "```text", usage, "```", "", *prose_of(command)]
    below = children(context)
    if below:
        lines += ["| command | what it does |", "|---|---|"]
        for name, child in below:
            said = cell(child.get_short_help_str(300))
            lines.append(f"| [`{name}`](#{anchor(f'{path} {name}')}) | {said} |")
        lines.append("")
    options = [item for item in command.get_params(context) if isinstance(item, click.Option)]
    rows = [row for option in options if (row := option.get_help_record(context))]
    if rows:
        lines += ["| option | |", "|---|---|"]
        lines += [f"| `{cell(names)}` | {cell(text)} |" for names, text in rows]
        lines.append("")
    return lines


def prose_of(command: click.Command) -> list[str]:
    """The help text as Markdown: paragraphs joined, what is marked as preformatted kept so."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            lines += [" ".join(paragraph.split()), ""]
            continue
        rows = paragraph.splitlines()[1:]
        if rows and re.fullmatch(r"Examples?:", rows[0].strip()):
            rows = rows[1:]
        lines += ["```sh", *inspect.cleandoc("\n".join(rows)).splitlines(), "```", ""]
    return lines


def layout_page() -> str:
    """Every declared structure as a table."""
    lines = ["# Structures", "", NOTE, ""]
    lines += ["Offsets and sizes in bytes, for blocks of 4096 bytes; integers are little-endian and nothing is padded."]
    lines += ["`f2tools dump layout --block-size 16384` prints the same for larger blocks. [format.md](format.md) says"]
    lines += ["how the structures hang together.", ""]
    for module, structures in declared():
        lines += [f"## {module.split('.')[-1]}", ""]
        lines += [(import_module(module).__doc__ or "").strip(), ""]
        for structure in structures:
            lines += structure_section(structure)
    return "\n".join(lines).rstrip() + "\n"


def declared() -> list[tuple[str, list[LayoutType]]]:
    """(module, its structures in the order of their declaration), in disk order."""
    names = [item.name for item in iter_modules(layout_package.__path__)]
    names.sort(key=lambda name: (MODULE_ORDER.index(name) if name in MODULE_ORDER else len(MODULE_ORDER), name))
    found: list[tuple[str, list[LayoutType]]] = []
    for name in names:
        module = import_module(f"f2tools.f2fs.layout.{name}")
        here = [
            value
            for value in vars(module).values()
            if isinstance(value, LayoutType) and value is not Layout and value.__module__ == module.__name__
        ]
        if here:
            found.append((module.__name__, here))
    return found


def structure_section(structure: LayoutType) -> list[str]:
    """Offset, size, type and meaning of every field."""
    said = " ".join((structure.__doc__ or "").split())
    lines = [f"### {structure.__name__}", "", f"{said} {structure.size} bytes.", ""]
    lines += ["| offset | size | type | field | |", "|--:|--:|---|---|---|"]
    for item in structure.fields:
        lines.append(f"| {item.offset} | {item.size} | `{item.type_name}` | `{item.name}` | {cell(item.meaning)} |")
    return [*lines, ""]


def problems_page() -> str:
    """The catalogue of fsck."""
    lines = ["# What `f2tools fsck` finds", "", NOTE, ""]
    lines += ["Codes are permanent. `info` is told and means nothing bad; from `warning` on a volume does not count as"]
    lines += ["sound and the exit code is 4; `error` means that something is lost, or will be when the volume is"]
    lines += [
        "written to; after a `fatal` one the check could not go on. `f2tools fsck --explain CODE` prints the same."
    ]
    for title, letter in PROBLEM_GROUPS:
        lines += ["", f"## {title}", "", "| code | severity | | what would put it right |", "|---|---|---|---|"]
        for problem in CATALOGUE.values():
            if problem.code.startswith(letter):
                repair = "" if problem.repair == "none" else problem.repair
                said = f"**{problem.text}**. {problem.meaning}"
                head = f"{problem.code} `{problem.name}` | {problem.severity}"
                lines.append(f"| {head} | {cell(said)} | {cell(repair)} |")
    lines += ["", "## What a repair does, and when", ""]
    lines += ["A round of a repair does the first of these that changes something; then everything is checked again."]
    lines += ["What is only noted (`info`) is left as it is. `fsck -i` asks for each group, and again where a"]
    lines += ["later round finds more for it.", ""]
    lines += ["| phase | group | what is done | findings |", "|---|---|---|---|"]
    for phase in Phase:
        served = [problem for problem in CATALOGUE.values() if phase in phases_of_problem(problem)]
        codes = ", ".join(sorted(problem.code for problem in served))
        lines.append(f"| {words(phase)} | {phase.group} | {cell(phase.text)} | {codes} |")
    lines += ["", "`fsck --json` shows the name of a plan in `repair` of a finding; one without a name is not shown."]
    lines += ["", "| plan | what it is | phases |", "|---|---|---|"]
    for plan, steps in REPAIRS.items():
        told = getattr(plan, "what", plan.name)
        names = get_args(TableName) if plan is ComputeAnew else [told]
        name = ", ".join(f"`{each}`" for each in names if each)
        when = ", ".join(words(phase) for phase in Phase if phase in steps)
        lines.append(f"| {name} | {cell(plan.__doc__ or '')} | {when} |")
    lines += ["", "## Who else knows a field", ""]
    lines += ["Where one field is wrong, a repair asks the others; what nobody else knows of a file can't come back."]
    lines += ["", "| field | told by | known to it alone |", "|---|---|---|"]
    lines += [f"| {item.structure} `{item.field}` | {item.others} | {', '.join(item.alone)} |" for item in WITNESSES]
    return "\n".join(lines).rstrip() + "\n"


def phases_of_problem(problem: Problem) -> set[Phase]:
    """The phases in which something is done about a problem."""
    return {phase for plan in problem.plans for phase in phases_of(plan, problem.severity)}


def words(phase: Phase) -> str:
    """The name of a phase."""
    return phase.name.lower().replace("_", " ")


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def anchor(title: str) -> str:
    """What Markdown viewers make of a heading."""
    return title.lower().replace(" ", "-")


PAGES = {"cli.md": cli_page, "layout.md": layout_page, "problems.md": problems_page}


def write() -> list[str]:
    """Write the pages that are not current; their names."""
    changed = []
    for name, page in PAGES.items():
        target = DOCS / name
        text = page()
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed


if __name__ == "__main__":
    import make_man

    for changed in write():
        print(f"docs/{changed}", file=sys.stderr)
    for changed in make_man.write():
        print(f"man/{changed}", file=sys.stderr)
