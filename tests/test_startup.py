"""What a command imports before it does anything.  Modules are counted, not seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from f2tools.cli import TOOLS, main

HEAVY = {"numpy", "construct", "rich", "lz4", "zstandard", "lzallright"}
# What click alone brings is some 50 modules beyond the bare interpreter; ours and what they need come on top.
MORE_THAN_CLICK = 40

PROBE = """
import contextlib, io, json, sys
command = json.loads(sys.argv[1])
sys.argv = ["f2tools", *command]
if command[:1] != ["--nothing"]:
    from f2tools.cli import run
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            run()
        except SystemExit as stop:
            assert stop.code in (None, 0), stop.code
else:
    import click
print(json.dumps(sorted(sys.modules)))
"""
THREADS = """
import os, sys
sys.argv[0] = "f2tools"
from f2tools.cli import run
try:
    run()
finally:
    assert "numpy" in sys.modules
    print(len(os.listdir("/proc/self/task")), file=sys.stderr)
"""


def modules_of(*command: str) -> set[str]:
    """What is in sys.modules when `f2tools COMMAND` has ended, in a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(command)],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree with the words that call it, groups included."""
    context = click.Context(group, info_name="f2tools")
    found: list[tuple[tuple[str, ...], click.Command]] = [(path, group)]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{name} is listed and not there"
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


COMMANDS = commands()
NAMES = [" ".join(path) or "f2tools" for path, _ in COMMANDS]


def test_help_of_the_whole_brings_nothing_heavy() -> None:
    loaded = modules_of("--help")
    assert not loaded & HEAVY
    ours = {name for name in loaded if name.split(".")[0] == "f2tools"}
    light = ("cli", "errors", "filename", "groups", "lazy", "options", "process", "sizes", "text", "version")
    assert ours == {"f2tools", *(f"f2tools.{name}" for name in light)}
    more = loaded - modules_of("--nothing")
    assert len(more) <= MORE_THAN_CLICK, sorted(more)


# What a command brings besides Python, click and numpy, when it does its work: the most modules of ours, and of others.
# A module is 0.2 to 0.5 ms; who needs more says here why that is worth it.
NEVER = {
    "numpy.ma", "construct", "rich", "tempfile", "ctypes.util", "multiprocessing", "subprocess", "importlib.metadata",
    "_hashlib", "hashlib", "hmac", "base64", "cryptography", "lz4", "zstandard", "pdb", "asyncio", "logging", "socket",
}  # fmt: skip
GRAPHS = {
    ("mkfs", "-q", "--size", "64M"): (56, 30, {"numpy", "ctypes", "pathlib", "dataclasses", "fnmatch", "glob"}),
    ("fsck",): (134, 40, {"pathlib"}),  # with what looks for newer copies of nodes, where journals are lost
    ("dump", "ls"): (85, 40, {"pathlib"}),
    ("dump", "info", "--json"): (81, 40, {"pathlib"}),
    ("info", "--json"): (86, 40, {"pathlib"}),  # these three, too, say where journals are older
}


@pytest.mark.parametrize("command", list(GRAPHS), ids=lambda words: " ".join(words))
def test_a_command_loads_what_it_needs_and_no_more(command: tuple[str, ...], tmp_path: Path) -> None:
    image = str(tmp_path / "small.img")
    if command[0] != "mkfs":
        modules_of("mkfs", "-q", image, "--size", "64M")
    loaded = modules_of(*command, image)
    most_of_ours, most_of_others, unused = GRAPHS[command]
    before = modules_of("--nothing")  # an editable installation's finder alone brings pathlib
    assert not (loaded - before) & (NEVER | unused)
    more = loaded - before
    ours = {name for name in more if name.split(".")[0] == "f2tools"}
    others = {name for name in more - ours if name.split(".")[0] != "numpy"}
    assert len(ours) <= most_of_ours, sorted(ours)
    assert len(others) <= most_of_others, sorted(others)


def without_a_number_of_threads() -> dict[str, str]:
    """The environment of somebody who never heard of OpenBLAS."""
    return {name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name}


def test_a_command_starts_no_threads_for_matrices_that_it_has_not(tmp_path: Path) -> None:
    image = str(tmp_path / "small.img")
    modules_of("mkfs", "-q", image, "--size", "64M")
    done = subprocess.run(
        [sys.executable, "-c", THREADS, "fsck", image],
        capture_output=True, text=True, check=True, env=without_a_number_of_threads(),
    )  # fmt: skip
    assert done.stderr == "1\n"


def test_the_library_leaves_its_host_its_environment_and_its_collector() -> None:
    code = "import gc, os; before = dict(os.environ), gc.get_threshold(); import f2tools.cli, f2tools.library; "
    code += "import f2tools.f2fs.volume.volume; print((dict(os.environ), gc.get_threshold()) == before)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=without_a_number_of_threads()
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS if path], ids=NAMES[1:])
def test_help_of_a_command_brings_nothing_heavy(path: tuple[str, ...]) -> None:
    assert not modules_of(*path, "--help") & HEAVY


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "f2tools", "--version"],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.startswith("f2tools ")


def test_a_shell_completes_commands_without_loading_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_F2TOOLS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "f2tools d")
    monkeypatch.setenv("COMP_CWORD", "1")
    code = "import sys; sys.argv[0] = 'f2tools'\nfrom f2tools.cli import run\ntry: run()\n"
    code += "except SystemExit: print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,dump", "plain,dfs", "plain,dffs", "plain,defrag", "plain,doctor", "False"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("mkfs -O quo", "quota"), ("mkfs -O quota,ver", "quota,verity"), ("fsck --explain n00", "N003")],
)
def test_a_shell_completes_features_and_codes(words: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_F2TOOLS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"f2tools {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    code = "import sys; sys.argv[0] = 'f2tools'\nfrom f2tools.cli import run\nrun()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"plain,{wanted}" in done.stdout.split(), done.stderr


# the tools that are made of others, and their parts
STANDS_ON = {"load": {"mkfs"}, "doctor": {"fsck"}, "info": {"dump"}}


def test_one_tool_does_not_load_another() -> None:
    packages = {tool: module.split(".")[1] for tool, (module, _) in TOOLS.items()}
    for tool, package in packages.items():
        loaded = {name.split(".")[1] for name in modules_of(tool, "--help") if name.startswith("f2tools.")}
        others = set(packages.values()) - {package} - STANDS_ON.get(tool, set())
        assert not loaded & others, f"{tool} loads {loaded & others}"


def test_importing_the_library_is_cheap_until_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, f2tools; print([m for m in ('numpy', 'construct') if m in sys.modules])"],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=NAMES)
def test_every_help_has_an_example_and_says_what_each_option_does(
    path: tuple[str, ...], command: click.Command
) -> None:
    text = command.help or ""
    assert "Example" in text, "no example"
    assert f"f2tools {' '.join(path)}".strip() in text, "the example doesn't show this command"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{parameter.opts[0]} has no help"
