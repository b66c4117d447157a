"""A volume on several devices of which one is cut off: found, not written to, and made whole again like one image."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

import f2tools
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import open_image
from tests.dump.craft import Result, f2

MIB = 1 << 20
FILES = {f"f{number}": bytes([number]) * (3 * MIB) for number in range(1, 23)}
SIZES = {"a.img": 40, "b.img": 40, "c.img": 40}
OTHERS = ("--device", "b.img", "--device", "c.img")


@pytest.fixture(autouse=True)
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tree").mkdir()
    for name, content in FILES.items():
        (Path("tree") / name).write_bytes(content)
    words = [word for name, mib in SIZES.items() for word in ("-c", name, "--size", f"{mib}M")][1:]
    assert f2("mkfs", *words, "--from", "tree").code == 0


def tool(*words: str) -> Result:
    return f2(*words, *OTHERS)


def held(name: str) -> dict[str, bytes]:
    """What salvage wrote."""
    return {path.name: path.read_bytes() for path in (Path(name) / "files").iterdir()}


def test_salvage_reads_what_lies_on_all_of_the_devices() -> None:
    assert tool("fsck", "a.img", "--salvage", "out").code == 0
    assert held("out") == FILES


@pytest.mark.parametrize("short", ["b.img", "c.img"])
def test_a_device_that_is_cut_off_is_found_and_not_written_to(short: str) -> None:
    os.truncate(short, 8 * MIB)
    found = tool("fsck", "a.img")
    assert found.code == 4
    assert "S009" in found.text
    assert "B004" in found.text
    with closing(open_image("a.img", ["b.img", "c.img"])) as image:
        counts = check(image).counts
    assert counts["S009"] == 1
    assert not counts["H001"], "what is not there was not unreadable"
    warning = f"{short} is cut off: {32 * MIB} bytes of the volume are missing at its end"
    with f2tools.open("a.img", ["b.img", "c.img"]) as reader:
        assert warning in reader.warnings
    assert warning in tool("undelete", "a.img").err
    assert "S009" in tool("doctor", "a.img").text
    before = [Path(name).read_bytes() for name in SIZES]
    for verb in (("rm", "a.img:/f1"), ("tune", "a.img", "--label", "new")):
        refused = tool(*verb)
        assert refused.code == 8
        assert f"{short}: cut off: {32 * MIB} bytes of the volume are missing" in refused.err
    assert [Path(name).read_bytes() for name in SIZES] == before


@pytest.mark.parametrize("short", ["b.img", "c.img"])
def test_what_is_left_is_salvaged_and_the_device_made_as_long_again(short: str) -> None:
    os.truncate(short, 8 * MIB)
    tool("fsck", "a.img", "--salvage", "out")
    with closing(open_image("a.img", ["b.img", "c.img"])) as image:
        hit = {finding.path for finding in check(image).findings if finding.code == "B004"}
    whole = {name: content for name, content in held("out").items() if f"/{name}" not in hit}
    assert hit
    assert whole == {name: content for name, content in FILES.items() if f"/{name}" not in hit}
    done = tool("fsck", "-y", "a.img")
    assert f"{short} is made {32 * MIB} bytes longer" in done.text
    assert "partly there" in done.text or "nothing there" in done.text
    assert {name: os.path.getsize(name) // MIB for name in SIZES} == SIZES
    assert tool("fsck", "a.img").code == 0


def test_undo_cuts_the_last_device_off_again_and_of_another_it_is_not_tried() -> None:
    os.truncate("c.img", 8 * MIB)
    assert tool("fsck", "-y", "--undo", "u", "a.img").code == 1
    assert tool("undo", "u", "a.img").code == 0
    assert os.path.getsize("c.img") == 8 * MIB
    os.truncate("c.img", 40 * MIB)
    os.truncate("b.img", 8 * MIB)
    refused = tool("fsck", "-y", "--undo", "v", "a.img")
    assert refused.code == 8
    assert "an undo log could not take back that it is made longer" in refused.err
    assert not Path("v").exists()
    assert os.path.getsize("b.img") == 8 * MIB
