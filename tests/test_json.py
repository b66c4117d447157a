"""docs/json.md against what the commands print: every name that stands there, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from f2tools.flash.vsl import create_vsl
from tests.dump.craft import f2
from tests.images import reference

PAGE = Path(__file__).resolve().parent.parent / "docs" / "json.md"
ROWS = {cells[1].strip(" `"): cells[3] for line in PAGE.read_text().splitlines() if len(cells := line.split("|")) == 5}
WORDS: dict[str, tuple[object, ...]] = {
    "dump node": (3,), "dump inode": ("/verity/v1",), "dump dentries": ("/",), "dump block": ("0x4665",),
    "dump map": ("/verity/v700001",), "dump ssa": (3,), "dump stat": ("/verity/v1",), "dump cat": ("/verity/v1",),
    "dump extract": ("/verity/v1", "-o", "OUT/files"), "dump tar": ("/verity/v1", "-o", "OUT/tar"),
    "dump metadata": ("OUT/metadata",),
    "clean": ("--dry-run",), "clean --simulate": ("--simulate",), "resize": ("256M", "--dry-run"),
    "resize --minimum": ("--minimum",), "defrag": ("--dry-run",), "defrag --report": ("--report",),
    "scan": ("-o", "OUT/index"), "history": ("/",), "report": ("--no-hashes", "-o", "OUT/report"),
}  # fmt: skip
PLAIN = (
    "dump info", "dump superblock", "dump checkpoint", "dump nat", "dump sit", "dump segments", "dump ls", "dump tree",
    "dump manifest", "dump verify", "fsck", "recover", "label", "tune", "timeline", "slack",
)  # fmt: skip
OF_ANOTHER_IMAGE = {"slack": "history-a"}  # where there is something to print


def first(text: str) -> dict[str, Any]:
    """The document, or the first object of a list or of lines."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = json.loads(text.splitlines()[0])
    return found[0] if isinstance(found, list) else found


@pytest.mark.parametrize("command", [*PLAIN, *WORDS])
def test_a_command_prints_the_names_of_the_page(command: str, tmp_path: Path) -> None:
    image = reference(OF_ANOTHER_IMAGE.get(command, "features")).path
    more = [str(word).replace("OUT", str(tmp_path)) for word in WORDS.get(command, ())]
    done = f2(*(word for word in command.split() if word[0] != "-"), image, *more, "--json")
    assert done.code in (0, 1), done.err
    names = set(first(done.out.decode()))
    top, *rest = re.findall(r"`([^`]*)`", ROWS[command].split(";")[0])
    assert set(top.split()) <= names
    assert names <= {name for words in (top, *rest) for name in words.split()}


@pytest.mark.parametrize("command", ["vsl info", "vsl map", "vsl check"])
def test_a_command_on_a_layer_prints_the_names_of_the_page(command: str, tmp_path: Path) -> None:
    image = tmp_path / "card.vsl"
    with create_vsl(image, 1 << 20) as layer:
        layer.pwrite(0, b"x" * 512)
    done = f2(*command.split(), image, "--json")
    top, *rest = re.findall(r"`([^`]*)`", ROWS[command].split(";")[0])
    assert (set(first(done.out.decode())), rest) == (set(top.split()), [])


@pytest.mark.parametrize(
    "command",
    ["dfs fsck", "dfs recover", "dfs dump info", "dfs dump ls", "dfs dump stat", "dfs dump extract", "dfs dump inode",
     "dfs dump map", "dfs dump wal"],
)  # fmt: skip
def test_a_command_on_a_direct_file_system_prints_the_names_of_the_page(command: str, tmp_path: Path) -> None:
    image = tmp_path / "card.dfs"
    assert f2("dfs", "mkfs", image, "--size", "1M").code == 0
    words = {"stat": ["/"], "inode": ["/"], "map": ["/"], "extract": ["-o", tmp_path / "out"]}
    done = f2(*command.split(), image, *words.get(command.split()[-1], []), "--json")
    top = re.findall(r"`([^`]*)`", ROWS[command].split(";")[0])[0]
    assert set(first(done.out.decode())) == set(top.split())


@pytest.mark.parametrize(
    "command",
    [
        "dffs fsck",
        "dffs recover",
        "dffs dump info",
        "dffs dump ls",
        "dffs dump stat",
        "dffs dump extract",
        "dffs dump page",
    ],
)
def test_a_command_on_a_direct_flash_file_system_prints_the_names_of_the_page(command: str, tmp_path: Path) -> None:
    image = tmp_path / "card.nand"
    assert f2("dffs", "mkfs", image, "--size", "8M").code == 0
    words = {"stat": ["/"], "page": ["2"], "extract": ["-o", tmp_path / "out"]}
    done = f2(*command.split(), image, *words.get(command.split()[-1], []), "--json")
    top = re.findall(r"`([^`]*)`", ROWS[command].split(";")[0])[0]
    assert set(first(done.out.decode())) == set(top.split())


def test_the_figures_of_a_direct_flash_file_system_have_the_names_of_the_page() -> None:
    done = f2("dffs", "report", "--size", "64M", "--scale", 50, "--json")
    top = re.findall(r"`([^`]*)`", ROWS["dffs report"].split(";")[0])[0]
    assert set(first(done.out.decode())) == set(top.split())


LIKE_EDIT = set("cp edit mv rm rmdir mkdir ln mknod chmod chown touch truncate setfattr setfacl chattr".split())  # noqa: SIM905


def test_every_command_with_json_is_on_the_page() -> None:
    cli = (PAGE.parent / "cli.md").read_text()
    sections = re.findall(r"^## f2tools (.+?)$(.*?)(?=^## |\Z)", cli, re.MULTILINE | re.DOTALL)
    wanted = {name for name, body in sections if "| `--json` |" in body} - LIKE_EDIT
    wanted -= {name for name in wanted if name.startswith("experiment ")} - {"experiment list", "experiment cleaning"}
    assert wanted <= set(ROWS), sorted(wanted - set(ROWS))
