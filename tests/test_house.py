"""The limits that the code of f2tools keeps: lines of a module, methods of a class, parameters of a function."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "f2tools").rglob("*.py"))
MOST_LINES, MOST_METHODS, MOST_PARAMETERS = 600, 40, 8
TABLES = {"f2tools/fsck/problems.py"}  # as long as they have rows
STRICT = {"f2tools/f2fs", "f2tools/device", "f2tools/blktrace", "f2tools/codec.py", "f2tools/vfs.py"}
MOST_FUNCTION_LINES = 70
LONGER = {"f2tools/ftl/page.py: run": 75}  # compiled as one loop
# Where the command line begins: what it runs is loaded when it is run.
COMMANDS = ("cli.py", "_cli.py", "f2tools/cli.py", "f2tools/options.py", "f2tools/groups.py", "f2tools/completion.py")
COMMANDS += ("f2tools/__init__.py", "f2tools/library.py", "f2tools/compat/")
# Other modules that load one of ours in a function, each with what that saves.
LATE = {
    "f2tools/__main__.py": "click, until the process is settled: the collector would come a dozen times meanwhile",
    "f2tools/codec.py": "construct, unless somebody asks for it",
    "f2tools/mkfs/": "numpy, which takes longer to load than a volume to format",
    "f2tools/device/base.py": "numpy, where few blocks are read",
    "f2tools/device/open.py": "the kinds of images that this one is not",
    "f2tools/device/media/zones.py": "undo logs, where there are no zones",
    "f2tools/fleet/verbs.py": "the tools that other verbs ask",
    "f2tools/info/holds.py": "the file systems that this one is not",
    "f2tools/experiment/": "the tools that only other experiments or places need",
    "f2tools/ftl/options.py": "models, for help",
    "f2tools/ftl/replay.py": "the storage layer, for all other models",
    "f2tools/copyin/": "what only tar archives or changed owners need",
    "f2tools/copyout/walk.py": "numpy, for the other things that it has",
    "f2tools/dump/listing.py": "the engine, for help",
    "f2tools/edit/": "what only some verbs need",
    "f2tools/f2fs/volume/volume.py": "what looks for a newer state, where both checkpoints are valid",
    "f2tools/remarks.py": "what looks at the logs, where nothing waits for recovery",
    "f2tools/f2fs/volume/fscrypt.py": "ciphers, unless a key was given",
    "f2tools/fsck/check.py": "the readers of files, for volumes without such as it reads",
    "f2tools/fuse/": "the other server, and all of them for help",
    "f2tools/mount/session.py": "forensics, unless a mount shows the past",
    "f2tools/pictures/files.py": "drawing, where there is no picture",
    "f2tools/trace/": "the engine, for a trace without an image",
    "f2tools/blktrace/trace.py": "multiprocessing, for a trace that one process reads",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(), module)


def is_of_click(function: Function) -> bool:
    """Whether click gives it an argument for each option, so that their number is not ours to choose."""
    words = ("option", "argument", "command", "parameter")
    return any(word in ast.unparse(decorator) for decorator in function.decorator_list for word in words)


def parameters(function: Function, in_class: bool) -> int:
    given = function.args
    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    count += (given.vararg is not None) + (given.kwarg is not None)
    static = any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)
    return count - (in_class and not static)


def functions(node: ast.AST, in_class: bool = False) -> Iterator[tuple[Function, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, in_class
        yield from functions(child, isinstance(child, ast.ClassDef))


def test_no_module_is_longer_than_one_can_read() -> None:
    lines = {module: (ROOT / module).read_text().count("\n") for module in MODULES}
    assert {module: count for module, count in lines.items() if count > MOST_LINES and module not in TABLES} == {}


def test_no_class_has_more_methods_than_one_can_keep_in_mind() -> None:
    methods = {
        f"{module}: {node.name}": sum(isinstance(item, Function) for item in node.body)
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in methods.items() if count > MOST_METHODS} == {}


def test_no_function_takes_more_parameters_than_one_can_tell_apart() -> None:
    taken = {
        f"{module}: {function.name}": parameters(function, in_class)
        for module in MODULES
        for function, in_class in functions(tree_of(module))
        if not is_of_click(function)
    }
    assert {name: count for name, count in taken.items() if count > MOST_PARAMETERS} == {}


def test_the_types_of_what_others_stand_on_are_checked_strictly() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]
    assert set(said["strict"]) >= STRICT
    for path in STRICT:
        assert (ROOT / path).exists()
        for module in (ROOT / path).rglob("*.py") if (ROOT / path).is_dir() else [ROOT / path]:
            assert "# pyright: basic" not in module.read_text(), module
            assert "# pyright: standard" not in module.read_text(), module


def test_no_function_is_longer_than_a_screen_or_two() -> None:
    lines = {
        f"{module}: {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for module in MODULES
        for function, _ in functions(tree_of(module))
    }
    assert {name: count for name, count in lines.items() if count > LONGER.get(name, MOST_FUNCTION_LINES)} == {}


def name_of(module: str) -> str:
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(module: str, known: set[str]) -> set[str]:
    """The modules of f2tools that one names in imports of any kind: at the top, in functions, for types."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & known) or {node.module}
    return found & known


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules that lead to one another, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(group)

    for name in edges:
        if name not in index:
            visit(name)
    return groups


def test_no_module_leads_back_to_itself_not_even_by_types_or_in_functions() -> None:
    known = {name_of(module) for module in MODULES}
    edges = {name_of(module): imported(module, known) for module in MODULES}
    assert [sorted(group) for group in circles(edges)] == []


def named(node: ast.Import | ast.ImportFrom, known: set[str]) -> set[str]:
    """The modules that an import loads, those of f2tools and others."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    inside = {f"{node.module}.{alias.name}" for alias in node.names}
    return (inside & known) | {node.module or ""}


def at_once(body: list[ast.stmt], known: set[str]) -> set[str]:
    """The modules that are loaded when these statements of a module run, their packages included."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= named(node, known)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            found |= at_once(node.orelse, known)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            found |= at_once(node.body, known)
    return {name.rsplit(".", depth)[0] for name in found for depth in range(name.count(".") + 1)}


def late_imports(module: str) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    """The imports in functions of a module, with the function's name."""
    for function, _ in functions(tree_of(module)):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield function.name, node


def test_an_import_in_a_function_loads_something_that_is_not_there_anyway() -> None:
    known = {name_of(module): module for module in MODULES}
    edges = {name: at_once(tree_of(module).body, set(known)) for name, module in known.items()}
    useless = []
    for name, module in known.items():
        loaded, left = {"f2tools"}, [name, *(name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1))]
        while left:
            one = left.pop()
            if one not in loaded or one == "f2tools":
                loaded.add(one)
                left += edges.get(one, set()) - loaded
        for function, node in late_imports(module):
            if named(node, set(known)) <= loaded - {name}:
                useless.append(f"{module}: {function}: {ast.unparse(node)}")
    assert useless == []


def test_a_module_below_the_commands_imports_its_like_at_the_top_but_where_that_saves_much() -> None:
    known = {name_of(module) for module in MODULES}
    late = [
        f"{module}: {function}: {ast.unparse(node)}"
        for module in MODULES
        if not module.endswith(COMMANDS) and not module.startswith(COMMANDS) and not module.startswith(tuple(LATE))
        for function, node in late_imports(module)
        if named(node, known) & known
    ]
    assert late == []
    assert [path for path in LATE if not any(module.startswith(path) for module in MODULES)] == []
