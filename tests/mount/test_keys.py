"""Encrypted files through a mount with their keys; the kernel's view is the judge."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from f2tools.errors import DeviceError
from f2tools.f2fs.volume.node import NodeReader
from f2tools.mount import session
from f2tools.mount.options import parse_options
from f2tools.mount.session import MountRequest, open_tree
from f2tools.mount.tree import AnyTree
from tests import images


def keys_in(directory: Path, name: str, *directories: str) -> list[str]:
    found = []
    for key in json.loads(images.reference(name).text("keys.json"))["keys"]:
        if key["accepted"] and (not directories or key["dir"] in directories):
            path = directory / key["dir"]
            path.write_text(key["key"])
            found.append(str(path))
    return found


def find(tree: AnyTree, path: str) -> int:
    ino = 3
    for part in path.split("/"):
        found = tree.lookup(ino, os.fsencode(part))
        assert found is not None, path
        ino = found
    return ino


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_a_mount_with_keys_shows_what_the_kernel_shows(name: str, tmp_path: Path) -> None:
    case = images.reference(name)
    request = MountRequest(str(case.path), str(tmp_path), parse_options(["ro"]), keys=keys_in(tmp_path, name))
    tree = open_tree(request)
    entries = case.manifest("manifest-key")["entries"]
    assert not tree.writable
    for path, entry in list(entries.items())[1::5]:
        ino = find(tree, path)
        assert ino == entry["ino"]
        if entry["type"] == "file" and "sha256" in entry:
            assert hashlib.sha256(tree.read(ino, 0, entry["size"])).hexdigest() == entry["sha256"], path
        elif entry["type"] == "symlink":
            assert os.fsdecode(tree.readlink(ino)) == entry["target"]
        elif entry["type"] == "dir":
            names = {os.fsdecode(item.name) for item in tree.entries(ino, 0)} - {".", ".."}
            assert names == {p[len(path) + 1 :] for p in entries if p.startswith(path + "/")} & names
            assert len(names) == sum(p.rpartition("/")[0] == path for p in entries)
    tree.close()


@pytest.mark.parametrize("options", [["ro"], ["norecovery"], ["as-of=2100-01-01"]])
@pytest.mark.parametrize("name", ["fscrypt", "base"])
def test_a_key_that_opens_nothing_is_named(name: str, options: list[str], tmp_path: Path) -> None:
    right = keys_in(tmp_path, "fscrypt", "v2-adiantum")
    (tmp_path / "wrong").write_bytes(bytes(range(64)))
    keys = [*right, str(tmp_path / "wrong")]
    request = MountRequest(str(images.reference(name).path), str(tmp_path), parse_options(options), keys=keys)
    open_tree(request).close()
    idle = [text.partition(" opens nothing here: ")[0] for text in request.warnings if "opens nothing" in text]
    assert idle == (keys[1:] if name == "fscrypt" else keys)


def test_a_mount_does_not_read_all_inodes_for_what_a_key_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong").write_bytes(bytes(range(64)))
    image, most = str(images.reference("fscrypt").path), 4
    read: list[int] = []
    inodes = NodeReader.inodes
    monkeypatch.setattr(session, "MOST_INODES", most)
    monkeypatch.setattr(NodeReader, "inodes", lambda self, inos: [read.extend(inos), *inodes(self, inos)][1:])
    for name, count in ((image, most), (f"local://{image}", 0)):
        request = MountRequest(name, str(tmp_path), parse_options(["norecovery"]), keys=[str(tmp_path / "wrong")])
        open_tree(request).close()
        assert not any("opens nothing" in text for text in request.warnings)
        assert len(read) == 1 + count  # the root is read anyway
        read.clear()


def test_with_keys_nothing_is_written_and_other_directories_stay_locked(tmp_path: Path) -> None:
    case = images.reference("fscrypt")
    keys = keys_in(tmp_path, "fscrypt", "v2-adiantum")
    request = MountRequest(str(case.path), str(tmp_path), parse_options([]), keys=keys)
    tree = open_tree(request)
    assert not tree.writable
    assert "mounted read-only" in request.warnings[0]
    locked = next(item for item in tree.entries(find(tree, "v1-adiantum"), 0) if item.name not in (b".", b".."))
    inode = tree.inode(find(tree, f"v1-adiantum/{os.fsdecode(locked.name)}"))
    assert inode.ino == locked.ino
    with pytest.raises(OSError, match="key"):
        tree.read(next(
            item.ino for item in tree.entries(find(tree, "v1-adiantum"), 0)
            if stat.S_ISREG(tree.inode(item.ino).i_mode)
        ), 0, 10)  # fmt: skip
    tree.close()
    with pytest.raises(DeviceError, match="No such file"):  # of an overlay that is only read, too
        open_tree(
            MountRequest(str(case.path), str(tmp_path), parse_options([]), overlay=str(tmp_path / "o"), keys=keys)
        )
