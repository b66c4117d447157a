"""Volumes filled from directories and archives hold what these hold."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from f2tools.dfs.volume import open_volume
from tests.dump.craft import f2
from tests.walking import below


def tree_of(directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(below(directory)):
        status = path.lstat()
        name = str(path.relative_to(directory))
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[name] = (status.st_mode, status.st_mtime_ns, content)
    return found


def sources(directory: Path) -> Path:
    top = directory / "source"
    (top / "inner" / "deep").mkdir(parents=True)
    (top / "inner" / "small").write_bytes(b"small" * 100)
    (top / "inner" / "deep" / "large").write_bytes(os.urandom(100_000))
    with (top / "holes").open("wb") as file:
        file.truncate(1 << 27)
        file.seek(1 << 26)
        file.write(b"in the middle")
    os.link(top / "inner" / "small", top / "linked")
    os.symlink("inner/small", top / "link")
    os.symlink("x" * 600, top / "long link")
    os.setxattr(top / "linked", "user.name", b"value")
    (top / "inner").chmod(0o2750)
    for path in (top / "holes", top / "inner" / "deep", top / "inner"):
        os.utime(path, ns=(10**18 + 5, 10**18 + 7))
    return top


def test_a_volume_filled_from_a_directory_is_copied_out_as_it_was(tmp_path: Path) -> None:
    top, image = sources(tmp_path), tmp_path / "card.dfs"
    done = f2("dfs", "mkfs", image, "--size", "4M", "--from", top)
    assert (done.code, "filled with 5 files and 3 directories" in done.text) == (0, True), done
    assert f2("dfs", "fsck", image).code == 0
    assert f2("dfs", "dump", "extract", image, "-o", tmp_path / "out", "--all").code == 0
    assert tree_of(tmp_path / "out") == tree_of(top)
    out = tmp_path / "out"
    assert (out / "linked").stat().st_ino == (out / "inner" / "small").stat().st_ino
    assert os.getxattr(out / "linked", "user.name") == b"value"
    with open_volume(str(image)) as volume:
        assert volume.mapped_blocks(volume.at_path(b"/holes")) == 8  # a page of the source's file system
        assert volume.clean


def test_a_volume_filled_from_an_archive_holds_what_the_archive_holds(tmp_path: Path) -> None:
    top, image, archive = sources(tmp_path), tmp_path / "card.dfs", tmp_path / "source.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("inner", "linked", "link", "long link"):
            tar.add(top / name, name)
    assert f2("dfs", "mkfs", image, "--size", "4M", "--from", archive).code == 0
    assert f2("dfs", "dump", "cat", image, "/link").out == b"small" * 100
    assert f2("dfs", "dump", "cat", image, "/inner/deep/large").out == (top / "inner" / "deep" / "large").read_bytes()


def test_files_that_do_not_fit_are_named_and_leave_no_image(tmp_path: Path) -> None:
    top, image = sources(tmp_path), tmp_path / "card.dfs"
    (top / "huge").write_bytes(os.urandom(3 << 20))
    done = f2("dfs", "mkfs", image, "--size", "1M", "--from", top)
    assert (done.code, "huge: the volume is full" in done.err, image.exists()) == (2, True, False)
    (top / "huge").unlink()
    done = f2("dfs", "mkfs", image, "--size", "4M", "--chunk", "64M", "--from", top)
    assert (done.code, "holes: " in done.err, "--chunk" in done.err, image.exists()) == (2, True, True, False)
    (top / "holes").unlink()
    os.setxattr(top / "linked", "user.long", b"v" * 1000)
    done = f2("dfs", "mkfs", image, "--size", "4M", "--from", top)
    assert (done.code, image.exists()) == (2, False)
    assert "its inode has no room for the attribute user.long of 1000 bytes; --no-xattrs" in done.err
    assert f2("dfs", "mkfs", image, "--size", "4M", "--from", top, "--no-xattrs").code == 0
    assert f2("dfs", "mkfs", tmp_path / "new", "--size", "4M", "--from", tmp_path / "nothing").code == 8
    assert f2("dfs", "mkfs", tmp_path / "new", "--size", "4M", "--no-xattrs").code == 2
    assert not (tmp_path / "new").exists()
