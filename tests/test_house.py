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
# Modules that name each other, if only in types or when a function is called: each group with its reason.
CIRCLES = (
    {"device.base", "device.vectors"},  # numpy is loaded by the first that reads many blocks
    {"blktrace.sources", "blktrace.ahead", "blktrace.exported"},  # a trace whose streams are traces' streams elsewhere
    {"dffs.engine", "dffs.cleaning", "dffs.opening"},  # one engine in three files
    {"forensics.timeline", "forensics.dfxml"},  # one of the forms of a timeline, in a file of its own
)
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


def test_modules_lead_to_one_another_in_no_circle_but_those_that_are_known() -> None:
    known = {name_of(module) for module in MODULES}
    edges = {name_of(module): imported(module, known) for module in MODULES}
    allowed = [{f"f2tools.{name}" for name in circle} for circle in CIRCLES]
    assert [sorted(group) for group in circles(edges) if not any(group <= circle for circle in allowed)] == []
