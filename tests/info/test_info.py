"""`f2tools info` on what f2tools makes, and on what others make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dump.craft import f2
from tests.images import Reference


@pytest.mark.parametrize(
    ("made", "kind", "name", "told"),
    [
        (["mkfs", "-q"], "f2fs", "F2FS", "uuid"),
        (["dfs", "mkfs"], "dfs", "DFS (Direct File System)", "small files"),
        (["dffs", "mkfs"], "dffs", "DFFS (Direct Flash File System)", "bad blocks"),
        (["vsl", "create"], "vsl", "a virtualized storage layer", "erase blocks"),
    ],
)
def test_what_was_made_is_named_and_shown(made: list[str], kind: str, name: str, told: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2(*made, image, "--size", "64M").code == 0
    before = image.read_bytes()
    done = f2("info", image)
    assert (done.code, done.text.splitlines()[0]) == (0, f"{image}: {name}")
    assert told in done.text
    shown = json.loads(f2("info", image, "--json").text)
    assert (shown["kind"], shown["holds"], shown["image"]) == (kind, name, str(image))
    assert shown["info"]
    assert image.read_bytes() == before


def test_a_foreign_system_is_named(tmp_path: Path) -> None:
    image = tmp_path / "image"
    content = bytearray(1 << 20)
    content[0x438:0x43A] = b"\x53\xef"
    image.write_bytes(content)
    shown = json.loads(f2("info", image, "--json").text)
    assert (shown["kind"], shown["holds"], shown["info"]) == ("other", "ext2", None)


def test_a_volume_that_cannot_be_opened_and_nothing_at_all_are_errors(
    tmp_path: Path, reference: Callable[[str], Reference]
) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    assert f2("info", image).code == 8
    assert f2("info", tmp_path / "none").code == 8
    whole = reference("plain").path.read_bytes()
    image.write_bytes(whole[: 2 << 20] + bytes(4 << 20) + whole[6 << 20 :])  # both checkpoints
    done = f2("info", image)
    assert (done.code, "f2tools fsck" in done.err) == (8, True)
