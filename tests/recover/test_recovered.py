"""A crashed volume looked at as a mount would leave it: the tree is the kernel's, and the image stays as it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.device import open_device
from f2tools.dump.manifest import manifest
from f2tools.f2fs.write.volume import WritableVolume
from tests import images
from tests.dump.craft import f2
from tests.mkfs.tools import f2mkfs
from tests.recover.test_recover import content

ROOT_INO = 3


def digest(*paths: Path) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def shown(*args: object) -> Any:
    result = f2("dump", *args)
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.parametrize("name", images.CRASH)
def test_the_recovered_tree_is_the_kernels(name: str) -> None:
    case = images.reference(name)
    before = digest(case.path)
    with f2tools.open(case.path, recovered=True) as volume:
        entries = manifest(volume)["entries"]
        assert not volume.orphans().size
    assert content(entries) == content(case.manifest("manifest-recovered")["entries"])
    assert digest(case.path) == before


def test_every_command_on_files_shows_it(tmp_path: Path) -> None:
    """Of files that were made after the checkpoint, and of which nothing is seen without recovery."""
    case = images.reference("crash-new-file")
    before = digest(case.path)
    old, new = case.manifest("manifest-norecovery")["entries"], case.manifest("manifest-recovered")["entries"]
    name = next(name for name in sorted(new.keys() - old.keys()) if new[name]["type"] == "file" and new[name]["size"])
    path, directory = f"/{name}", f"/{name}".rpartition("/")[0] or "/"
    assert f2("dump", "stat", case.path, path).code == 1
    assert hashlib.sha256(f2("dump", "cat", "--recovered", case.path, path).out).hexdigest() == new[name]["sha256"]
    (facts,) = shown("stat", "--recovered", "--json", case.path, path)
    assert (facts["ino"], facts["size"]) == (new[name]["ino"], new[name]["size"])
    for command in ("ls", "tree", "manifest"):
        at = directory if command != "tree" else "/"
        assert Path(name).name in json.dumps(shown(command, "--recovered", "--json", case.path, at)), command
        assert Path(name).name not in json.dumps(shown(command, "--json", case.path, at)), command
    assert f2("dump", "extract", "--recovered", case.path, path, "-o", tmp_path / "out").code == 0
    assert digest(tmp_path / "out" / name) == [new[name]["sha256"]]
    assert f2("dump", "tar", "--recovered", case.path, path, "-o", tmp_path / "x.tar").code == 0
    assert f2("dump", "verify", "--recovered", case.path, path).code == 0
    assert digest(case.path) == before


@pytest.mark.parametrize("name", ["base", "fragmented", "sparse-phone"])
def test_a_volume_that_needs_nothing_is_read_as_it_lies(name: str) -> None:
    case = images.reference(name)
    with f2tools.open(case.path, recovered=True) as volume, f2tools.open(case.path) as plain:
        assert volume.pack.cp.checkpoint_ver == plain.pack.cp.checkpoint_ver
        assert [row["ino"] for row in volume.nat.entries()[:50]] == [row["ino"] for row in plain.nat.entries()[:50]]


def test_a_volume_on_several_devices(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    f2mkfs("-q", paths[0], "--size", "64M", "--size", "64M", "-c", paths[1], "--device-path", "a", "--device-path", "b")
    volume = WritableVolume(open_device(paths[0], write=True, extra=paths[1:]))
    volume.sync()
    there = volume.create(ROOT_INO, b"there", 0o644)
    volume.write(there, 0, b"fsync'ed" * 3000)
    volume.fsync(there)
    volume.create(ROOT_INO, b"lost", 0o644)
    volume.abandon()
    before = digest(*paths)
    with f2tools.open(paths[0], paths[1:], recovered=True) as read:
        assert read.path("/there").read() == b"fsync'ed" * 3000
        with pytest.raises(FileNotFoundError):
            read.path("/lost")
    result = f2("dump", "cat", "--recovered", paths[0], "--device", paths[1], "/there")
    assert result.out == b"fsync'ed" * 3000
    assert digest(*paths) == before


def test_it_is_for_reading() -> None:
    with pytest.raises(ValueError, match="reading"):
        f2tools.open(images.reference("base").path, write=True, recovered=True)  # type: ignore[call-overload]
