"""Deleted files of small volumes: everything that belongs to them, and when something is not sure."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.forensics.content import Contents
from f2tools.forensics.index import open_index
from f2tools.forensics.restore import Restorer
from f2tools.forensics.undelete import Undelete, as_dict
from tests.dump.craft import f2
from tests.dump.test_extract import utime_of_32_bits
from tests.forensics.history_cases import image_of
from tests.forensics.past_of import ROOT, living, undeleted
from tests.images import copy_sparse, reference
from tests.unreadable import lose

BLOCK = 4096


def noise(blocks: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(blocks * BLOCK)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_deleted_file_comes_back_whole(tmp_path: Path) -> None:
    content = noise(20)[:-100]
    with living(tmp_path) as (life, image):
        life.file(b"letter", content)
        life.later()
        life.volume.unlink(ROOT, b"letter")
        life.later()
    found = undeleted(image)["letter"]
    assert (found.grade, found.sha256) == ("certain", sha256(content))


def test_a_file_with_indirect_nodes_comes_back_whole(tmp_path: Path) -> None:
    content = noise(923 + 2 * 1018 + 300)
    with living(tmp_path) as (life, image):
        life.file(b"large", content)
        life.later()
        life.volume.unlink(ROOT, b"large")
        life.later()
    found = undeleted(image)["large"]
    assert (found.grade, found.sha256) == ("certain", sha256(content))


def test_blocks_that_another_file_has_now_are_gaps(tmp_path: Path) -> None:
    content = noise(4000)
    with living(tmp_path) as (life, image):
        life.file(b"old", content)
        life.later()
        life.volume.unlink(ROOT, b"old")
        life.later()
        for number in range(5):  # the log goes round
            life.file(b"new-%d" % number, noise(1500, number + 2))
            life.later()
            if number < 4:
                life.volume.unlink(ROOT, b"new-%d" % number)
                life.later()
    found = undeleted(image)["old"]
    assert found.grade in ("partial", "name only")
    assert found.content is not None
    assert sum(length for _, length in found.content.gaps) > 0
    with f2tools.open(image) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        for other in run.deleted():
            run.digest(other)
            if other.content is None or not other.path.startswith((b"old", b"new")):
                continue
            written = content if other.path == b"old" else noise(1500, int(other.path[4:]) + 2)
            if other.content.gaps:  # what is left is not the file, and neither is its hash
                assert other.sha256 is None
                assert as_dict(other)["sha256"] is None
                assert (as_dict(other)["sha256_with_gaps"] is None) == (other.grade == "name only")
            for offset, data in run.contents.chunks(other.content):
                assert bytes(data) == written[offset : offset + len(data)], "somebody else's block"


def test_an_overwritten_file_has_its_older_versions(tmp_path: Path) -> None:
    first, second = noise(10, 1), noise(10, 2)
    with living(tmp_path, ipu="never") as (life, image):
        ino = life.file(b"kept", first)
        life.later()
        life.volume.write(ino, 0, second)
        life.later()
    found = undeleted(image, versions=True)["kept"]
    assert (found.state, found.grade, found.sha256) == ("older", "certain", sha256(first))


def test_content_of_inline_files_symlinks_and_directories(tmp_path: Path) -> None:
    with living(tmp_path) as (life, image):
        directory = life.volume.mkdir(ROOT, b"folder", 0o750)
        life.file(b"note", b"a few words", directory)
        life.volume.symlink(directory, b"there", b"/some/where")
        life.later()
        for name in (b"note", b"there"):
            life.volume.unlink(directory, name)
        life.volume.rmdir(ROOT, b"folder")
        life.later()
    found = undeleted(image)
    assert found["folder"].type == "dir"
    assert found["folder/note"].sha256 == sha256(b"a few words")
    assert found["folder/there"].target == b"/some/where"


def test_a_file_replaced_by_a_rename_is_a_deleted_file(tmp_path: Path) -> None:
    with living(tmp_path) as (life, image):
        life.file(b"draft", b"old text")
        life.later()
        life.file(b"draft.new", b"new text")
        life.volume.rename(ROOT, b"draft.new", ROOT, b"draft")
        life.later()
    found = undeleted(image)["draft"]
    assert (found.state, found.sha256) == ("deleted", sha256(b"old text"))


def test_the_path_is_the_last_one(tmp_path: Path) -> None:
    with living(tmp_path) as (life, image):
        directory = life.volume.mkdir(ROOT, b"before", 0o755)
        life.file(b"name", b"text", directory)
        life.later()
        life.volume.rename(ROOT, b"before", ROOT, b"after")
        life.later()
        life.volume.unlink(directory, b"name")
        life.later()
    assert "after/name" in undeleted(image)


def test_extended_attributes_times_and_mode_come_back(tmp_path: Path, run_f2tools: Any) -> None:
    with living(tmp_path / "x") as (life, image):
        ino = life.file(b"program", noise(3), mode=0o755)
        life.volume.setxattr(ino, "user.colour", b"green")
        life.volume.setxattr(ino, "user.long", b"x" * 2000)
        life.volume.set_times(ino, 10**18, 10**18 + 5)
        life.later()
        life.volume.unlink(ROOT, b"program")
        life.later()
    done = run_f2tools("undelete", image, "-o", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    item = json.loads(done.stdout)
    path = Path(item["file"])
    assert path == tmp_path / "out" / "program"
    status = path.stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns, status.st_atime_ns) == (0o755, 10**18 + 5, 10**18)
    if os.listxattr(path):  # the file system of the tests may have none
        assert os.getxattr(path, "user.colour") == b"green"
        assert os.getxattr(path, "user.long") == b"x" * 2000
    assert item["sha256"] == sha256(noise(3)) == sha256(path.read_bytes())


def test_times_that_the_target_can_not_hold_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with living(tmp_path / "x") as (life, image):
        life.volume.set_times(life.file(b"later", b"text"), mtime_ns=(1 << 32) * 10**9)
        life.file(b"now", b"text")
        life.later()
        for name in (b"later", b"now"):
            life.volume.unlink(ROOT, name)
        life.later()
    monkeypatch.setattr(os, "utime", utime_of_32_bits)
    done = f2("undelete", image, "-o", tmp_path / "out")
    assert done.code == 0
    assert "f2tools: 1 has other times than in the image, which the target can't hold\n" in done.err


def test_a_compressed_file_comes_back_plain(tmp_path: Path) -> None:
    content = b"the same line again\n" * 5000
    options = "--size 64M -O extra_attr,compression"
    with living(tmp_path, options) as (life, image):
        ino = life.volume.create(ROOT, b"log", 0o100644)
        life.volume.set_flags(ino, 0x4)  # FS_COMPR_FL
        life.volume.write(ino, 0, content)
        life.later()
        life.volume.unlink(ROOT, b"log")
        life.later()
    found = undeleted(image)["log"]
    assert (found.grade, found.sha256) == ("certain", sha256(content))


def test_a_file_deleted_while_open_is_found(tmp_path: Path) -> None:
    with living(tmp_path) as (life, image):
        ino = life.file(b"held", b"still open")
        life.later()
        life.volume.hold(ino)
        life.volume.unlink(ROOT, b"held")
        life.later()
        copied = copy_sparse(image, tmp_path / "copy")
    found = undeleted(copied)
    assert [(item.state, item.sha256) for item in found.values()] == [("unlinked", sha256(b"still open"))]


def test_a_file_known_only_by_its_fsync_mark_is_found(tmp_path: Path) -> None:
    with living(tmp_path) as (life, image):
        life.file(b"other", b"")
        life.later()
        ino = life.file(b"short-lived", noise(2))
        life.volume.fsync(ino)
        life.volume.unlink(ROOT, b"short-lived")
        life.later()
    found = undeleted(image)["short-lived"]
    assert found.sha256 == sha256(noise(2))
    assert found.inode is not None
    assert found.inode.fsync


# -- putting files somewhere -------------------------------------------------------------------------------------------


def renamed_in_image(image: Path, old: bytes, new: bytes) -> int:
    """Change i_name in all inode blocks and the name in all slots that have it, in place; returns how many."""
    assert len(old) == len(new)
    data = bytearray(image.read_bytes())
    count = data.count(old)
    image.write_bytes(data.replace(old, new))
    return count


@pytest.mark.parametrize("name", [b"../../escaped", b"/etc/escapedX", b"a/../../../b_"])
def test_nothing_is_made_outside_the_target(tmp_path: Path, name: bytes, run_f2tools: Any) -> None:
    harmless = b"harmless-name"
    with living(tmp_path / "x") as (life, image):
        life.file(harmless, b"content")
        life.later()
        life.volume.unlink(ROOT, harmless)
        life.later()
    assert renamed_in_image(image, harmless, name) > 0
    top = tmp_path / "deep" / "target"
    top.parent.mkdir()
    before = sorted(path for path in tmp_path.rglob("*"))
    run_f2tools("undelete", image, "-o", top)
    made = [path for path in tmp_path.rglob("*") if path not in before]
    assert made
    assert all(path == top or top in path.parents for path in made)
    assert not Path("/etc/escapedX").exists()


def test_a_symbolic_link_in_the_target_is_not_followed(tmp_path: Path, run_f2tools: Any) -> None:
    with living(tmp_path / "x") as (life, image):
        directory = life.volume.mkdir(ROOT, b"folder", 0o755)
        life.file(b"inner", b"content", directory)
        life.later()
        life.volume.unlink(directory, b"inner")
        life.volume.rmdir(ROOT, b"folder")
        life.later()
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "folder").symlink_to(outside)
    run_f2tools("undelete", image, "-o", target, "--force")
    assert list(outside.iterdir()) == []
    assert (target / "folder~2" / "inner").read_bytes() == b"content"


def test_two_of_one_name_are_both_kept(tmp_path: Path, run_f2tools: Any) -> None:
    with living(tmp_path / "x") as (life, image):
        for text in (b"first", b"second"):
            life.file(b"same", text)
            life.later()
            life.volume.unlink(ROOT, b"same")
            life.file(b"filler-" + text, b"")
            life.later()
    run_f2tools("undelete", image, "-o", tmp_path / "out")
    assert {path.read_bytes() for path in (tmp_path / "out").iterdir()} == {b"first", b"second"}


def test_a_file_that_was_cut_short_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(600)
    with living(tmp_path / "x") as (life, image):
        life.file(b"photo", content)
        life.later()
        life.volume.unlink(ROOT, b"photo")
        life.later()
    pwrite = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        if offset + len(data) > 100 * BLOCK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        done = f2("undelete", image, "photo", "-o", tmp_path / "out")
    assert (done.code, "No space left on device" in done.err) == (1, True)
    assert not (tmp_path / "out").exists()
    assert f2("undelete", image, "photo", "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "photo").read_bytes() == content


def refused(*_: Any, **__: Any) -> None:
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def deleted_with_a_link(directory: Path) -> Path:
    """An image where a/file and a/link were deleted."""
    with living(directory) as (life, image):
        above = life.volume.mkdir(ROOT, b"a", 0o755)
        life.file(b"file", noise(3), above)
        life.volume.symlink(above, b"link", b"target")
        life.later()
        for name in (b"file", b"link"):
            life.volume.unlink(above, name)
        life.later()
    return image


def test_what_was_not_made_is_named_by_its_path_in_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, out = deleted_with_a_link(tmp_path / "x"), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refused)
        patch.setattr(os, "symlink", refused)
        done = f2("undelete", image, "-o", out)
    said = [line for line in done.err.splitlines() if "can't be made" in line]
    assert (done.code, sorted(said)) == (
        1, [f"f2tools: {path}: can't be made: File too large" for path in ("a/file", "a/link")]
    )  # fmt: skip


def test_what_was_made_in_part_is_named_by_its_path_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: Any) -> None:
        raise DeviceError("a bad place")

    image, out = deleted_with_a_link(tmp_path / "x"), tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a" / "file").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(Contents, "chunks", unreadable)
        done = f2("undelete", image, "a/file", "-o", out, "--force")
    assert (done.code, f"f2tools: {out}/a/file~2: a bad place\n" in done.err) == (1, True), done.err


@pytest.mark.parametrize("name", ["file", "link"])
def test_what_has_no_path_and_was_not_made_is_named_by_its_inode(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = deleted_with_a_link(tmp_path / "x")
    with f2tools.open(image) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        found = next(one for one in run.deleted() if one.path == f"a/{name}".encode())
        with Restorer(volume, run.contents, str(tmp_path / "out")) as restorer, monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", refused)
            patch.setattr(os, "symlink", refused)
            restorer.put(replace(found, path=b"", paths=[b""]))
        assert [item.path for item in restorer.report.lost] == [b"inode %d" % found.ino]


def test_files_are_what_the_lines_say(tmp_path: Path, run_f2tools: Any) -> None:
    done = run_f2tools("undelete", image_of("history-d"), "-o", tmp_path / "out", "--json", "--versions")
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in done.stdout.splitlines()]
    written = [item for item in items if item["file"] and item["type"] == "file"]
    assert len(written) > 300
    for item in written:
        path = Path(item["file"])
        digest = item["sha256_with_gaps" if "missing" in item else "sha256"]
        assert (sha256(path.read_bytes()), path.stat().st_mtime_ns) == (digest, item["mtime_ns"])
        assert {"path", "ino", "size", "mtime_ns", "sha256", "grade", "reasons", "file"} <= item.keys()
    older = [item for item in items if item["state"] == "older"]
    assert all("version" in item for item in older)
    assert len({item["file"] for item in written}) == len(written)


def test_what_is_locked_is_not_brought_back_and_that_is_an_error(tmp_path: Path) -> None:
    done = f2("undelete", reference("fscrypt").path, "-o", tmp_path / "out")
    rows = [line for line in done.text.splitlines() if line.startswith(("certain", "probable"))]
    assert done.code == 1
    assert len([line for line in rows if " file " in line]) == done.text.count("the content is encrypted")
    count = done.text.count("the content is encrypted")
    assert f"; {count} of them encrypted, and their key was not given (--key)\n" in done.err
    assert f"f2tools: {count} were not brought back:\n" in done.err
    assert done.err.count("the content is encrypted and there is no key (") == count > 20
    listed = f2("undelete", reference("fscrypt").path)
    assert (listed.code, listed.out) == (0, done.out)
    items = [json.loads(line) for line in f2("undelete", reference("fscrypt").path, "--json").text.splitlines()]
    assert sum(item["reasons"][-1].startswith("the content is encrypted") for item in items) == count


def test_each_locked_file_is_named_once_where_it_has_no_hashes() -> None:
    done = f2("hashes", reference("fscrypt").path)
    lines = done.err.splitlines()
    assert done.code == 1
    assert len(lines) == len(set(lines)) > 500
    assert all(
        re.fullmatch(r"f2tools: /[^: ]+: the content is encrypted and there is no key \(.*\)", one) for one in lines
    )
    deleted = [json.loads(line) for line in f2("undelete", reference("fscrypt").path, "--json").text.splitlines()]
    paths = {line.split(": ")[1] for line in lines}
    assert {f"/{one['path']}" for one in deleted if one["type"] == "file"} <= paths


def test_a_pattern_that_selects_nothing_makes_no_directory(tmp_path: Path) -> None:
    assert f2("undelete", image_of("history-a"), "no such *", "-o", tmp_path / "out").code == 1
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    assert f2("undelete", image_of("history-a"), "no such *", "-o", tmp_path / "mine", "--force").code == 1
    assert (tmp_path / "mine").is_dir()


def test_all_names_of_a_file_come_back(tmp_path: Path, run_f2tools: Any) -> None:
    with living(tmp_path / "x") as (life, image):
        ino = life.file(b"one", b"content")
        directory = life.volume.mkdir(ROOT, b"folder", 0o755)
        life.volume.link(ino, directory, b"two")
        life.later()
        life.volume.unlink(ROOT, b"one")
        life.volume.unlink(directory, b"two")
        life.later()
    done = run_f2tools("undelete", image, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    one, two = tmp_path / "out/one", tmp_path / "out/folder/two"
    assert one.read_bytes() == two.read_bytes() == b"content"
    assert one.stat().st_nlink == 2


def test_a_pattern_selects_by_path_name_or_directory(run_f2tools: Any) -> None:
    image = image_of("history-a")

    def paths(pattern: str) -> list[str]:
        done = run_f2tools("undelete", image, pattern, "--list", "--json")
        return [json.loads(line)["path"] for line in done.stdout.splitlines()]

    assert all(path.endswith(".txt") for path in paths("*.txt"))
    assert {path.partition("/")[0] for path in paths("doomed")} == {"doomed"}
    assert paths("/docs/inline4.txt") == ["docs/inline4.txt"]


def test_the_list_says_the_grades(run_f2tools: Any) -> None:
    done = run_f2tools("undelete", image_of("history-a"))
    assert "certain    file" in done.stdout
    assert "certain," in done.stderr


# -- doubt -------------------------------------------------------------------------------------------------------------


def test_an_inode_of_which_the_newer_version_was_overwritten_is_not_certain(tmp_path: Path) -> None:
    with living(tmp_path, ipu="never") as (life, image):
        ino = life.file(b"changing", noise(3, 1))
        life.later()
        life.volume.write(ino, 0, noise(3, 2))
        life.later()
        life.volume.unlink(ROOT, b"changing")
        life.later()
    newest = undeleted(image)["changing"]
    assert (newest.grade, newest.sha256) == ("certain", sha256(noise(3, 2)))
    assert newest.inode is not None
    data = bytearray(image.read_bytes())
    at = newest.inode.blkaddr * BLOCK
    data[at : at + BLOCK] = bytes(BLOCK)
    image.write_bytes(data)
    older = undeleted(image)["changing"]
    assert (older.grade, older.sha256) == ("probable", sha256(noise(3, 1)))
    assert "newer versions may have been overwritten" in older.reasons


def test_content_that_looks_like_nodes_is_no_node(tmp_path: Path) -> None:
    """A file that holds the image of a volume brings node blocks of its own."""
    with living(tmp_path / "inner") as (life, inner):
        life.file(b"from-inside", b"content")
        life.later()
        life.volume.unlink(ROOT, b"from-inside")
        life.later()
    content = inner.read_bytes()[: 32 << 20]
    with living(tmp_path / "outer", "--size 128M") as (life, image):
        life.file(b"disk.img", content)
        life.later()
    assert undeleted(image) == {}


def test_layouts_that_the_scan_reads_by_offset() -> None:
    assert InodeLayout.offset_of("i_namelen") == 88
    assert NodeFooter.size == 24


def test_a_block_that_can_t_be_read_is_a_gap_in_its_file_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {name: noise(20, seed) for seed, name in enumerate((b"hit", b"whole"))}
    with living(tmp_path) as (life, image):
        for name, content in contents.items():
            life.file(name, content)
        life.later()
        for name in contents:
            life.volume.unlink(ROOT, name)
        life.later()
    found = undeleted(image)["hit"].content
    assert found is not None
    bad, index, out = found.addresses()[7], tmp_path / "index", tmp_path / "out"
    lose(monkeypatch, bad * BLOCK)
    told = f"f2tools: 1 block could not be read, the first is {bad:#x}\n"
    scanned = f2("scan", image, "-o", index)
    assert (scanned.code, told in scanned.err) == (1, True)
    for words in (("undelete", "-o", out), ("undelete", "--index", index, "-o", tmp_path / "again")):
        done = f2(*words, image)
        assert (done.code, told in done.err) == (1, True), done.err
        assert "1 certain, 0 probable, 1 partial, 0 name only" in done.err
        assert b"partial: blocks can't be read" in done.out
    assert (out / "whole").read_bytes() == contents[b"whole"]
    assert (out / "hit").read_bytes() == contents[b"hit"][: 7 * BLOCK] + bytes(BLOCK) + contents[b"hit"][8 * BLOCK :]
    hashed = f2("hashes", "--deleted", "--format", "sha256", image)
    assert (hashed.code, sha256(contents[b"whole"]).encode() in hashed.out) == (1, True)
    for words in (("history", image, "whole"), ("timeline", image)):
        assert f2(*words).code == 1


def test_a_free_block_that_fails_after_the_scan_costs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with living(tmp_path) as (life, image):
        for seed, name in enumerate((b"hit", b"whole")):
            life.file(name, noise(20, seed))
        life.later()
        for name in (b"hit", b"whole"):
            life.volume.unlink(ROOT, name)
        life.later()
    found = undeleted(image)["hit"].content
    assert found is not None
    assert f2("scan", image, "-o", tmp_path / "index").code == 0
    lose(monkeypatch, found.addresses()[7] * BLOCK)
    done = f2("undelete", "--index", tmp_path / "index", image, "-o", tmp_path / "out")
    assert done.code == 1
    assert (tmp_path / "out" / "whole").read_bytes() == noise(20, 1)
