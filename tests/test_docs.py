"""The documents against the code: generated pages are current, examples run, links lead somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import f2tools
from f2tools.f2fs.layout.node import NodeFooter
from tests.images import CLEAN, copy_sparse, reference
from tests.judges import find_tool, missing_judge

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md")]
PAGES += sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def script(name: str) -> ModuleType:
    """A script of the project as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


GENERATE = """
import json, make_cli_docs, make_man
print(json.dumps([{name: page() for name, page in make_cli_docs.PAGES.items()}, make_man.pages()]))
"""


@pytest.fixture(scope="module")
def generated() -> tuple[dict[str, str], dict[str, str]]:
    """(pages of docs/, manual pages) from a new process: commands that were called before remember how."""
    done = subprocess.run([sys.executable, "-c", GENERATE], cwd=ROOT / "scripts", capture_output=True, check=True)
    docs, man = json.loads(done.stdout)
    return docs, man


@pytest.mark.parametrize("name", ["cli.md", "layout.md", "problems.md"])
def test_the_generated_pages_are_current(name: str, generated: tuple[dict[str, str], dict[str, str]]) -> None:
    found = (DOCS / name).read_text(encoding="utf-8")
    assert found == generated[0][name], f"docs/{name} is old; run .venv/bin/python scripts/make_cli_docs.py"


def test_every_page_stands_once_in_the_contents_of_the_site() -> None:
    trees = re.findall(r"^```\{toctree\}$(.*?)^```$", (DOCS / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if re.fullmatch(r"[a-z-]+", line)]
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


def test_the_manual_pages_are_current(generated: tuple[dict[str, str], dict[str, str]]) -> None:
    wanted = generated[1]
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "man").iterdir()}
    assert sorted(found) == sorted(wanted)
    old = [name for name, text in wanted.items() if found[name] != text]
    assert old == [], "these are old; run .venv/bin/python scripts/make_cli_docs.py"


def test_the_manual_pages_are_installed_and_troff_takes_them() -> None:
    import tomllib

    installed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    listed = {path.name for patterns in installed.values() for text in patterns for path in ROOT.glob(text)}
    assert listed == {path.name for path in (ROOT / "man").iterdir()}
    groff = find_tool("groff")
    if groff is None:
        missing_judge("groff", "whether troff takes the manual pages")
    done = subprocess.run(
        [groff, "-man", "-ww", "-z", *sorted((ROOT / "man").iterdir())], capture_output=True, text=True, timeout=300
    )
    assert done.stderr == ""


def headings(page: Path) -> set[str]:
    """The anchors of a page as Markdown viewers make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        if anchor:
            assert anchor in headings(target), f"{page.name} links to {link}; there is no such heading"


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promised = re.findall(r"^- .*?(?=^- |^#|\Z)", text[text.index("## What is promised") :], re.MULTILINE | re.DOTALL)
    named = [re.findall(r"`(test_\w+)`", promise) for promise in promised]
    assert all(named), "a promise without a test"
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    assert {name for names in named for name in names} - defined == set()


def test_every_structure_the_format_page_names_is_declared() -> None:
    make = script("make_cli_docs")
    declared = {structure.kernel_name() for _, structures in make.declared() for structure in structures}
    text = (DOCS / "format.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`struct (\w+)`", text))
    assert named, "the page names no structure"
    assert named <= declared, f"not declared: {sorted(named - declared)}"


def test_the_format_page_explains_every_feature_and_checkpoint_flag() -> None:
    from f2tools.f2fs.layout import constants

    text = (DOCS / "format.md").read_text(encoding="utf-8")
    for names in (constants.FEATURES, constants.CP_FLAGS, constants.INLINE_FLAGS, constants.ADVISE_FLAGS):
        for name, bit in names.items():
            assert re.search(rf"^\| `?{bit:#x}`? \| `{name}` \|", text, re.MULTILINE), f"no row for {name} {bit:#x}"


def examples(page: Path) -> str:
    """The Python sessions of a page, everything else blanked, so that line numbers stay."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        inside = line == "```python" if line.startswith("```") else inside
        lines.append(line if inside and not line.startswith("```") else "")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", [DOCS / "library.md", ROOT / "README.md"], ids=lambda page: page.name)
def test_the_examples_give_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_sparse(reference("base").path, tmp_path / "card.img")  # the examples write to it
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    assert test.examples, f"{page.name} has no examples"
    result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS).run(test)
    assert not result.failed, capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in CLEAN if not name.startswith("active-logs")])
def test_nodes_have_the_offsets_and_lie_in_the_logs_that_the_format_page_says(name: str) -> None:
    case = reference(name)
    with f2tools.open(case.path, list(case.extra)) as volume:
        per_node = volume.geo.addrs_per_block
        nids = volume.nat.used()[2:]
        blkaddrs = volume.nat.lookup(nids)["block_addr"].astype(np.int64)
        blocks = volume.device.read_blocks(blkaddrs, volume.geo.block_size)
        logs = volume.sit.types[volume.geo.segno(blkaddrs)]
    footers = blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
    offset, not_dir = footers["flag"].astype(np.int64) >> 3, (footers["flag"] & 1).astype(bool)
    indirect = np.isin(offset, (3, 4 + per_node, 5 + 2 * per_node))
    deep = (offset >= 6 + 2 * per_node) & (offset != 0x1FFFFFFF)
    indirect |= deep & ((offset - 6 - 2 * per_node) % (per_node + 1) == 0)
    np.testing.assert_array_equal(offset == 0, footers["nid"] == footers["ino"])
    np.testing.assert_array_equal(logs, np.where(indirect, 5, np.where(not_dir, 4, 3)))
