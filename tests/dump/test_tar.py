"""Archives: GNU tar, bsdtar and Python read them, and what they unpack is the tree in the image."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import zstandard

import f2tools
from f2tools.dump.tar import write_tar
from tests import images
from tests.dump.craft import copy_of, f2, host_tree, inode_offset, poke, rename
from tests.judges import missing_judge

ROOT = os.geteuid() == 0
CASES = ("plain", "features", "compress-lz4", "casefold", "multi-device")


def archive(case: images.Reference, *paths: str) -> tuple[bytes, Any]:
    out = io.BytesIO()
    with f2tools.open(case.path, case.extra) as volume:
        report = write_tar(volume, out, paths)
    return out.getvalue(), report


def unpacker(name: str) -> list[str]:
    if shutil.which(name) is None:
        missing_judge(name, "whether it reads our archives")
    return [name, "-xpf", "-", "--xattrs"] if name == "tar" else [name, "-xpf", "-"]


@pytest.mark.parametrize("tool", ["tar", "bsdtar"])
@pytest.mark.parametrize("name", CASES)
def test_other_programs_unpack_the_tree(name: str, tool: str, tmp_path: Path) -> None:
    command = unpacker(tool)
    case = images.reference(name)
    kernel = case.manifest()["entries"]
    data, report = archive(case)
    assert report.complete
    assert report.sockets == len([e for e in kernel.values() if e["type"] == "socket"])
    done = subprocess.run(command, input=data, cwd=tmp_path, capture_output=True, check=False)
    # attributes may be too large for the file system of the target, or for root only
    attributes = ("setxattr", "extended attributes", "exit delayed", "previous errors", "implausibly", "in the future")
    complaints = [
        line
        for line in done.stderr.decode(errors="replace").splitlines()
        if not any(words in line for words in attributes)
    ]
    assert complaints == [] or not ROOT
    host = host_tree(tmp_path)
    left_out = {"socket"} | (set() if ROOT else {"char", "block"})
    assert host.keys() == {p for p, e in kernel.items() if e["type"] not in left_out}
    linked: dict[int, set[Any]] = defaultdict(set)
    for path, entry in host.items():
        expected = kernel[path]
        for key in ("type", "size", "sha256", "target", "rdev", *(("uid", "gid", "mode") if ROOT else ())):
            if key in entry and key in expected and not (key == "mode" and expected["type"] == "symlink"):
                assert entry[key] == expected[key], (path, key)
        # bsdtar takes -86400.000000001 for -86400 and a nanosecond more
        if entry["type"] != "dir" and not (tool == "bsdtar" and expected["mtime_ns"] < 0):
            assert entry["mtime_ns"] == expected["mtime_ns"], path
        if "host_key" in entry and expected["nlink"] > 1:
            linked[expected["ino"]].add(entry["host_key"])
    assert linked or name not in ("plain", "features")
    assert all(len(keys) == 1 for keys in linked.values())


def test_python_reads_what_is_in_it() -> None:
    case = images.reference("plain")
    kernel = case.manifest()["entries"]
    data, _ = archive(case)
    found: dict[str, tarfile.TarInfo] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            found[member.name] = member
            expected = kernel[member.name]
            assert (member.uid, member.gid) == (expected["uid"], expected["gid"])
            assert f"{member.mode:04o}" == expected["mode"]
            if member.isreg():
                assert member.size == expected["size"]
            prefix = "SCHILY.xattr."
            names = {k.removeprefix(prefix) for k in member.pax_headers if k.startswith(prefix)}
            if not member.islnk():
                assert names == {n.replace("%", "%25").replace("=", "%3D") for n in expected.get("xattrs", {})}
    assert found.keys() == {p for p, e in kernel.items() if e["type"] != "socket"}


def test_holes_are_not_written() -> None:
    case = images.reference("plain")
    kernel = case.manifest()["entries"]
    data, _ = archive(case, "sparse")
    written = sum(
        sum(length for _, length in e["segments"]) if "segments" in e else e["size"]
        for p, e in kernel.items()
        if p.startswith("sparse/")
    )
    apparent = sum(e["size"] for p, e in kernel.items() if p.startswith("sparse/"))
    assert len(data) < written + (1 << 20) < apparent


def test_attributes_come_back(tmp_path: Path) -> None:
    command = unpacker("tar")
    case = images.reference("plain")
    data, _ = archive(case, "xattr")
    subprocess.run(command, input=data, cwd=tmp_path, capture_output=True, check=False)
    compared = 0
    for path, entry in case.manifest()["entries"].items():
        if not path.startswith("xattr/"):
            continue
        for name, value in entry.get("xattrs", {}).items():
            if name.startswith("user."):
                try:
                    assert os.getxattr(os.fsencode(tmp_path / path), name).hex() == value
                    compared += 1
                except OSError:  # too large for the file system of the target
                    assert len(value) > 2000
    assert compared


@pytest.mark.parametrize("name", [b"caf\xe9-" + b"x" * 20, b"\xff\xfe" + b"y" * 240])
def test_names_stay_the_bytes_that_they_are(tmp_path: Path, name: bytes) -> None:
    case = copy_of("plain", tmp_path / "image")
    entries = case.manifest()["entries"]
    old = max(
        (p for p, e in entries.items() if e["type"] == "file"), key=lambda p: len(os.path.basename(os.fsencode(p)))
    )
    last = os.path.basename(os.fsencode(old))
    name = name[: len(last)]
    rename(case.path, os.path.dirname(old) or "/", last, name)
    directory = os.path.dirname(os.fsencode(old))
    data, _ = archive(case, os.path.dirname(old))
    for tool in ("tar", "bsdtar"):
        target = tmp_path / tool
        target.mkdir()
        subprocess.run(unpacker(tool), input=data, cwd=target, capture_output=True, check=False)
        assert name in os.listdir(os.path.join(os.fsencode(target), directory)), tool
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert os.fsdecode(directory + b"/" + name) in tar.getnames()


def test_the_suffix_chooses_the_compression(tmp_path: Path) -> None:
    case = images.reference("base")
    plain, _ = archive(case)
    for suffix in ("tar", "tar.gz", "tar.zst"):
        result = f2("dump", "tar", case.path, "-o", tmp_path / f"x.{suffix}")
        assert result.code == 0, result.err
    assert (tmp_path / "x.tar").read_bytes() == plain
    assert gzip.decompress((tmp_path / "x.tar.gz").read_bytes()) == plain
    reader = zstandard.ZstdDecompressor().stream_reader((tmp_path / "x.tar.zst").read_bytes())
    assert reader.read() == plain
    assert f2("dump", "tar", case.path).out == plain


def test_a_terminal_gets_no_archive() -> None:
    result = f2("dump", "tar", images.reference("base").path, terminal=True)
    assert result.code == 2
    assert "terminal" in result.err
    assert result.out == b""


def test_a_damaged_file_does_not_break_the_archive(tmp_path: Path) -> None:
    case = copy_of("base", tmp_path / "image")
    entries = case.manifest()["entries"]
    name = next(
        p
        for p, e in entries.items()
        if e["type"] == "file" and e["nlink"] == 1 and "segments" not in e and 5 * 4096 < e["size"] < 64 * 4096
    )
    with f2tools.open(case.path) as volume:
        whole, extra = volume.path(name).read(), volume.path(name).inode.extra_isize
    poke(case.path, inode_offset(case.path, name) + 360 + extra + 4 * 2, (0xFFFFFFF0).to_bytes(4, "little"))
    result = f2("dump", "tar", case.path, "-o", tmp_path / "x.tar")
    assert result.code == 1
    assert name in result.err
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert len(tar.getnames()) == len([e for e in entries.values() if e["type"] != "socket"])
        file = tar.extractfile(name)
        assert file is not None
        assert file.read() == whole[: 2 * 4096] + bytes(4096) + whole[3 * 4096 :]


@pytest.mark.parametrize("tool", ["tar", "bsdtar"])
def test_access_control_lists_come_back(tmp_path: Path, tool: str) -> None:
    """Neither program takes them from the attribute records."""
    options = ["--acls", "--numeric-owner"] + (["--xattrs"] if tool == "tar" else [])
    command = [*unpacker(tool), *options]
    case = images.reference("plain")
    data, _ = archive(case, "acl")
    subprocess.run(command, input=data, cwd=tmp_path, capture_output=True, check=False)
    kernel = case.manifest()["entries"]
    wanted = {
        (path, name): value
        for path, entry in kernel.items()
        if path.startswith("acl/")
        for name, value in entry.get("xattrs", {}).items()
        if name.startswith("system.posix_acl")
    }
    assert wanted
    for (path, name), value in wanted.items():
        assert os.getxattr(os.fsencode(tmp_path / path), name).hex() == value, (path, name)


def test_a_directory_is_followed_by_all_that_is_in_it() -> None:
    """GNU tar sets the time of a directory as soon as the archive leaves it; what came later would change it again."""
    data, _ = archive(images.reference("plain"))
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        directories = [os.path.dirname(name) for name in read.getnames() if name != "."]
    left: set[str] = set()
    inside: set[str] = set()
    for directory in directories:
        now = {directory, *(directory[:at] for at, letter in enumerate(directory) if letter == "/")} - {""}
        left |= inside - now
        assert not left & now
        inside = now
