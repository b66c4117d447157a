"""A mounted volume as the target of copies: where it folds names, none of two files may overwrite the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, writable
from tests.mount.mounted import mounted

CASEFOLD = 0x40000000


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that differ in their case: two files, a file and a directory, a file and a link, two names of one file."""
    directory = tmp_path_factory.mktemp("names")
    tree, path = directory / "tree", directory / "image"
    tree.mkdir()
    for name in ("a.txt", "A.TXT", "both", "one"):
        (tree / name).write_text(name)
    (tree / "BOTH").mkdir()
    (tree / "BOTH" / "inner").write_text("inner")
    (tree / "ONE").symlink_to("nowhere")
    (tree / "more").write_text("more")
    os.link(tree / "more", tree / "A.txt")
    assert f2("mkfs", path, "--size", "48M", "-q", "--from", tree).code == 0
    return path


@pytest.mark.parametrize("options", [(), ("--force",)], ids=["new", "force"])
def test_of_two_names_that_the_target_takes_for_one_none_overwrites_the_other(
    image: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    target = fresh(tmp_path, "--size 64M -C utf8 -O casefold")
    with writable(target) as volume:
        volume.set_flags(volume.mkdir(3, b"folded", 0o755), CASEFOLD)
    with mounted(target, tmp_path / "mnt") as mount:
        out = mount.directory / "folded"
        if options:
            (out / "one").write_text("from before, to be replaced")
        done = f2("dump", "extract", image, "-o", out, *options)
        assert done.code == 1
        lines = [line for line in done.err.splitlines() if "takes it for another name that is there" in line]
        lost = {os.path.relpath(line.split(": ")[2], out) for line in lines}
        assert len(lost) == 4, done.err
        assert "--force" not in done.err
        there = {name: out / name for name in os.listdir(out)}
        assert not there.keys() & lost
        assert there.keys() | lost == set(os.listdir(image.with_name("tree")))
        for name, path in there.items():
            if path.is_dir():
                assert (path / "inner").read_text() == "inner"
            elif not path.is_symlink():
                assert path.read_text() == ("more" if name in ("more", "A.txt") else name)
