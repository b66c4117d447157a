"""The manifest command: JSON that equals the kernel's, bounded work for absurd files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import f2tools
from f2tools.copyout.walk import walk
from f2tools.dump import manifest as manifest_module
from f2tools.dump.manifest import MAX_EXTENTS, entry_of, fiemap, manifest, segments
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.volume.volume import File
from tests import images
from tests.dump.craft import copy_of, f2, inode_offset, poke


def test_the_command_prints_the_manifest_with_the_devices_it_needs() -> None:
    case = images.reference("multi-device")
    result = f2("dump", "manifest", case.path, "--device", case.extra[0])
    assert result.code == 0, result.err
    document = json.loads(result.out)
    kernel = case.manifest()
    assert document["format"] == kernel["format"]
    assert document["statfs"] == kernel["statfs"]
    assert document["entries"] == kernel["entries"]
    assert list(document["entries"]) == list(kernel["entries"])


def test_it_goes_to_a_file_as_well(tmp_path: Path) -> None:
    case = images.reference("base")
    assert f2("dump", "manifest", case.path, "-o", tmp_path / "m.json").code == 0
    assert json.loads((tmp_path / "m.json").read_bytes())["entries"] == case.manifest()["entries"]
    assert f2("dump", "manifest", case.path, "/nope", "-o", tmp_path / "n.json").code == 1
    assert not (tmp_path / "n.json").exists()


def test_a_part_of_the_tree_keeps_its_paths() -> None:
    case = images.reference("plain")
    document = json.loads(f2("dump", "manifest", case.path, "/links").out)
    assert document["entries"] == {p: e for p, e in case.manifest()["entries"].items() if p.split("/")[0] == "links"}


@pytest.mark.parametrize("name", ["base", "plain", "noinline", "features", "compress-lz4", "checksums"])
def test_a_plain_file_has_the_same_words_as_any_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once or piece by piece; also where its content can't be read."""
    with f2tools.open(images.reference(name).path) as volume:
        plain = 0
        for found in walk(volume, volume.path("/", follow=False), []):
            file = File(volume, found.inode, found.path)
            text = manifest_module._plain(file)
            assert text is None or text == manifest_module._encoded(entry_of(file))
            plain += text is not None
            monkeypatch.setattr(type(volume.data), "chunks", _unreadable)
            text = manifest_module._plain(file)
            assert text is None or text == manifest_module._encoded(entry_of(file))
            monkeypatch.undo()
        assert plain


def _unreadable(*_: object) -> Iterator[tuple[int, memoryview]]:
    raise Corrupt(Where(ino=4), "not to be read")
    yield 0, memoryview(b"")


def test_an_absurd_size_is_an_error_and_not_a_long_wait(tmp_path: Path) -> None:
    case = copy_of("base", tmp_path)
    entries = case.manifest()["entries"]
    name = next(p for p, e in entries.items() if e["type"] == "file" and e["size"] > 5 * 4096 and e["nlink"] == 1)
    poke(case.path, inode_offset(case.path, name) + 16, (1 << 60).to_bytes(8, "little"))
    started = time.monotonic()
    result = f2("dump", "manifest", case.path)
    assert time.monotonic() - started < 60
    assert result.code == 1
    document = json.loads(result.out)
    assert document["errors"] == {name: "EUCLEAN"}
    assert document["entries"][name]["read_error"] == "EUCLEAN"
    assert document["entries"].keys() == entries.keys()


def test_a_sparse_file_of_terabytes_costs_what_it_holds(tmp_path: Path) -> None:
    case = copy_of("base", tmp_path)
    entries = case.manifest()["entries"]
    name = next(
        p
        for p, e in entries.items()
        if e["type"] == "file" and e["size"] > 5 * 4096 and e["nlink"] == 1 and "segments" not in e
    )
    poke(case.path, inode_offset(case.path, name) + 16, (3 << 40).to_bytes(8, "little"))
    with f2tools.open(case.path) as volume:
        entry = entry_of(volume.path(name))
    assert entry["size"] == 3 << 40
    assert len(entry["segment_sha256"]) == len(entry["segments"]) == 1
    assert sum(entry["segments"][0]) >= entries[name]["size"]
    result = f2("dump", "extract", case.path, name, "-o", tmp_path / "out")
    assert result.code == 0, result.err
    status = (tmp_path / "out" / name).stat()
    assert status.st_size == 3 << 40
    assert status.st_blocks * 512 < 1 << 20


def test_no_more_extents_than_the_kernel_side_tool_asked_for() -> None:
    case = images.reference("fragmented")
    with f2tools.open(case.path) as volume:
        name = max(case.manifest()["entries"].items(), key=lambda item: len(item[1].get("extents", ())))[0]
        file = volume.path(name)
        whole = fiemap(file)
        assert 5 < len(whole) <= MAX_EXTENTS
        assert whole[-1].flags & 1
        assert fiemap(file, 5) == whole[:5]
        assert sum(length for _, length in segments(file)) == file.inode.i_size


def test_the_library_gives_the_same_value() -> None:
    case = images.reference("base")
    with f2tools.open(case.path) as volume:
        assert manifest(volume) == json.loads(f2("dump", "manifest", case.path).out)
