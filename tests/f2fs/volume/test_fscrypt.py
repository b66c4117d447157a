"""Encrypted trees with their keys, without them, and with the wrong ones; the kernel's view is the judge."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.dump.manifest import manifest
from f2tools.errors import Unsupported, Usage
from f2tools.f2fs.volume.fscrypt import FileKey, Keyring, MasterKey, Policy, read_keys
from tests import images
from tests.dump.craft import f2


def keys_of(name: str) -> list[dict[str, Any]]:
    found = json.loads(images.reference(name).text("keys.json"))["keys"]
    return [key for key in found if key["accepted"]]


def raw_keys(name: str) -> list[bytes]:
    return [bytes.fromhex(key["key"]) for key in keys_of(name)]


def key_file(tmp_path: Path, name: str, directory: str) -> Path:
    key = next(key for key in keys_of(name) if key["dir"] == directory)
    path = tmp_path / directory
    path.write_bytes(bytes.fromhex(key["key"]))
    return path


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_with_all_keys_the_tree_is_the_one_that_the_kernel_shows(name: str, tmp_path: Path) -> None:
    case = images.reference(name)
    files: list[object] = []
    for index, key in enumerate(keys_of(name)):
        path = tmp_path / str(index)
        path.write_bytes(bytes.fromhex(key["key"]) if index % 2 else b"0x" + key["key"].encode() + b"\n")
        files += ["--key", path]
    result = f2("dump", "manifest", case.path, *files)
    assert result.code == 0, result.err
    ours = json.loads(result.out)
    kernel = case.manifest("manifest-key")
    assert ours["entries"] == kernel["entries"]
    assert ours.get("errors", {}) == kernel["errors"]


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_a_key_opens_its_own_directory_and_nothing_else(name: str) -> None:
    case = images.reference(name)
    with_key, without = (case.manifest(f"manifest-{which}")["entries"] for which in ("key", "nokey"))
    for key in (keys_of(name)[0], keys_of(name)[-1]):
        with f2tools.open(case.path, keys=[bytes.fromhex(key["key"])]) as volume:
            ours = manifest(volume)["entries"]
        opened = {p: e for p, e in with_key.items() if p.split("/")[0] == key["dir"]}
        assert opened
        assert {p: e for p, e in ours.items() if p.split("/")[0] == key["dir"]} == opened
        assert ours.keys() - opened.keys() == {p for p in without if p.split("/")[0] != key["dir"]}


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_what_a_policy_calls_a_key_is_computed(name: str) -> None:
    for key in keys_of(name):
        made = MasterKey(bytes.fromhex(key["key"]))
        if key["version"] == 2:
            assert made.identifier.hex() == key["identifier"]
        else:
            assert made.descriptor.hex() == key["descriptor"]


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_every_path_is_found_by_its_plain_name(name: str) -> None:
    case = images.reference(name)
    kernel = case.manifest("manifest-key")["entries"]
    with f2tools.open(case.path, keys=raw_keys(name)) as volume:
        for path, entry in list(kernel.items())[:: 3 if name == "fscrypt" else 4]:
            assert volume.path(os.fsencode(path), follow=False).inode.ino == entry["ino"], path
        with pytest.raises(FileNotFoundError):
            volume.path(os.fsencode(keys_of(name)[0]["dir"]) + b"/no such name")
        with pytest.raises(FileNotFoundError):
            volume.path(os.fsencode(keys_of(name)[0]["dir"]) + b"/" + b"x" * 300)


def test_an_encrypted_directory_that_ignores_case_does_so() -> None:
    case = images.reference("fscrypt-android")
    entries = case.manifest("manifest-key")["entries"]
    folded = {p for p, e in entries.items() if e["type"] == "dir" and e["flags"] & 0x40000000}
    tried = 0
    with f2tools.open(case.path, keys=raw_keys("fscrypt-android")) as volume:
        for path, entry in entries.items():
            directory, _, name = path.rpartition("/")
            if directory in folded and name.upper() != name and name.isascii():
                found = volume.path(os.fsencode(f"{directory}/{name.upper()}"), follow=False)
                assert found.inode.ino == entry["ino"]
                tried += 1
    assert tried > 20


def test_files_come_out_of_extract_and_tar_as_they_were(tmp_path: Path) -> None:
    import hashlib
    import tarfile

    name, directory = "fscrypt-android", "v2-adiantum"
    case = images.reference(name)
    key = key_file(tmp_path, name, directory)
    entries = {p: e for p, e in case.manifest("manifest-key")["entries"].items() if p.startswith(directory + "/")}
    assert any("compress" in e for e in entries.values())
    assert f2("dump", "extract", case.path, directory, "--key", key, "-o", tmp_path / "out").code == 0
    assert f2("dump", "tar", case.path, directory, "--key", key, "-o", tmp_path / "out.tar").code == 0
    with tarfile.open(tmp_path / "out.tar") as archive:
        for path, entry in entries.items():
            member = archive.getmember(path)
            if entry["type"] == "symlink":
                assert os.readlink(tmp_path / "out" / path) == entry["target"] == member.linkname
            if entry["type"] != "file":
                continue
            assert hashlib.sha256((tmp_path / "out" / path).read_bytes()).hexdigest() == entry["sha256"], path
            content = archive.extractfile(member)
            assert content is not None
            if "segments" not in entry:  # tarfile doesn't join what is stored with holes
                assert hashlib.sha256(content.read()).hexdigest() == entry["sha256"], path


def test_without_the_right_key_the_message_names_the_one_that_is_wanted(tmp_path: Path) -> None:
    case = images.reference("fscrypt")
    (tmp_path / "wrong").write_bytes(bytes(range(32)))
    entries = case.manifest("manifest-key")["entries"]
    ino = entries["v1-adiantum/big"]["ino"]
    wanted = next(key["descriptor"] for key in keys_of("fscrypt") if key["dir"] == "v1-adiantum")
    result = f2("dump", "cat", case.path, "--key", tmp_path / "wrong", f"ino:{ino}")
    assert (result.code, result.out) == (1, b"")
    assert "no key that was given" in result.err
    assert wanted in result.err
    with f2tools.open(case.path) as volume, pytest.raises(Unsupported, match=f"there is no key .*{wanted}"):
        volume.inode(ino).read()


def test_info_lists_the_policies_and_says_which_key_opens_nothing(tmp_path: Path) -> None:
    case = images.reference("fscrypt")
    key = key_file(tmp_path, "fscrypt", "v2-iv-ino-lblk-32")
    (tmp_path / "wrong").write_bytes(bytes(range(64)))
    result = f2("dump", "info", case.path, "--json", "--key", key, "--key", tmp_path / "wrong")
    assert result.code == 1
    assert f"{tmp_path}/wrong opens nothing here" in result.err
    policies = json.loads(result.out)["policies"]
    assert sum(policy["inodes"] for policy in policies) == sum(
        e.get("statx_attributes", 0) & 0x800 != 0 or ("target" in e and p.count("/") > 0)
        for p, e in case.manifest("manifest-key")["entries"].items()
    ) - _further_links(case)
    known = {entry.get("identifier") or entry.get("descriptor"): entry for entry in keys_of("fscrypt")}
    assert {policy.get("identifier") or policy.get("descriptor") for policy in policies} == known.keys()
    opened = [policy for policy in policies if policy["key"]]
    assert [policy["flags"] for policy in opened] == [["iv_ino_lblk_32"]]
    assert "no key given" in f2("dump", "info", case.path).text


def _further_links(case: images.Reference) -> int:
    entries = case.manifest("manifest-key")["entries"].values()
    inos = [e["ino"] for e in entries if e["type"] != "dir"]
    return len(inos) - len(set(inos))


def test_damage_to_encrypted_trees_is_an_error_and_no_crash() -> None:
    from f2tools.device import open_device
    from f2tools.device.changes.overlay import Overlay
    from f2tools.f2fs.volume.volume import Volume

    draw = random.Random(20)
    case = images.reference("fscrypt-android")
    keyring = Keyring(raw_keys("fscrypt-android")[:3])
    with f2tools.open(case.path) as volume:
        nodes = volume.nat.entries()["block_addr"]
        nodes = nodes[nodes > 1].tolist()
        directories = [e.blkaddr for _, inode, _ in volume.walk() for e in volume.data.extents(inode)]
    for _ in range(4):
        with Overlay(open_device(case.path)) as device:
            for _ in range(60):
                block = draw.choice(nodes if draw.random() < 0.7 else directories)
                # anywhere; or where contexts and names are
                at = draw.choice((draw.randrange(4080), draw.randrange(80), 3780 + draw.randrange(200)))
                device.pwrite(block * 4096 + at, draw.randbytes(draw.choice((1, 2, 16))))
            found = manifest(Volume(device, keyring=keyring))
        assert len(found["entries"]) > 100
        assert set(found.get("errors", {}).values()) <= {"EUCLEAN", "EOPNOTSUPP", "EIO", "ENAMETOOLONG"}


def test_policies_that_no_kernel_takes_are_refused() -> None:
    def of(key: bytes, contents: int, names: int, flags: int = 0, unit: int = 0) -> FileKey:
        return FileKey(MasterKey(key, "key"), Policy(2, contents, names, flags, unit, b""), bytes(16), 7, bytes(16))

    blocks = np.zeros((1, 4096), np.uint8)
    for key in (of(bytes(64), 10, 4), of(bytes(64), 99, 4), of(bytes(64), 1, 4, unit=200), of(bytes(64), 1, 4, unit=3)):
        with pytest.raises(Unsupported):
            key.decrypt_blocks(blocks, 0)
    with pytest.raises(Unsupported):
        of(bytes(64), 1, 1).decrypt_name(bytes(32))
    with pytest.raises(ValueError, match="15 bytes"):
        of(bytes(64), 1, 4).decrypt_name(bytes(15))

    def of_v1(key: bytes, flags: int) -> FileKey:
        return FileKey(MasterKey(key, "key"), Policy(1, 1, 4, flags, 0, b""), bytes(16), 7, bytes(16))

    with pytest.raises(Unsupported, match="halves"):
        of_v1(b"k" * 64, 4).decrypt_blocks(blocks, 0)
    with pytest.raises(Unsupported, match="needs a key of 64 bytes"):
        of_v1(b"k" * 32, 0).decrypt_blocks(blocks, 0)
    halves = of(bytes(range(64)), 1, 4, unit=11).decrypt_blocks(blocks, 5)  # units of 2048 bytes
    assert (halves[0, :2048] != halves[0, 2048:]).any()


@pytest.mark.parametrize("content", [b"", b"short", bytes(65), b"zz" * 40, bytes(200)])
def test_what_is_no_key_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Usage, match="16 to 64 bytes"):
        read_keys(tmp_path / "key")
    with pytest.raises(Usage, match="can't be read"):
        read_keys(tmp_path / "nothing")


def test_a_descriptor_that_was_chosen_freely_is_given_with_the_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(64)))
    ring = Keyring([f"00112233aabbccdd:{tmp_path / 'key'}"])
    found = ring.find(bytes.fromhex("00112233aabbccdd"))
    assert found is not None
    assert found.raw == bytes(range(64))
    assert ring.find(found.identifier) is found
    with pytest.raises(Usage, match="can't be read"):
        read_keys("00112233aabbccdd:/nowhere")
    (tmp_path / "00112233aabbccdd:name").write_bytes(bytes(16))
    assert read_keys(tmp_path / "00112233aabbccdd:name")[0].said == b""


def test_a_file_of_hex_digits_that_could_be_a_raw_key_is_taken_for_both() -> None:
    text = b"00112233445566778899aabbccddeeff"
    found = read_keys(text)
    assert [key.raw for key in found] == [bytes.fromhex(text.decode()), text]
    ring = Keyring([text])
    assert all(ring.find(key.identifier) is key and ring.find(key.descriptor) is key for key in ring.sources[0])


def test_patterns_match_the_names_that_a_listing_shows(tmp_path: Path) -> None:
    case = images.reference("fscrypt")
    key = key_file(tmp_path, "fscrypt", "v2-adiantum")
    inos = {p: e["ino"] for p, e in case.manifest("manifest-key")["entries"].items() if p.startswith("v2-adiantum/")}
    ino = inos["v2-adiantum/0123456789abcdef"]
    for pattern in ("/v2-adiantum/0123456789abcde?", "/v2-ad*/[0-9]*cdef"):
        found = json.loads(f2("dump", "stat", "--json", "--key", key, case.path, pattern).out)
        assert [one["ino"] for one in found] == [ino]
    names = f2("dump", "ls", case.path, "/v2-adiantum").text.split()
    all_of_them = f2("dump", "extract", case.path, "/v2-adiantum/*", "--json", "-o", tmp_path / "out")
    lost = {one["path"].partition("v2-adiantum/")[2].split("/")[0] for one in json.loads(all_of_them.out)["lost"]}
    assert len(lost) > 10
    assert lost < set(names)
    for name in names:
        locked = json.loads(f2("dump", "stat", "--json", case.path, f"/v2-adiantum/{name[:-1]}?").out)
        assert [os.path.basename(one["path"]) for one in locked] == [name]
