"""The algorithm and the level of compressed files: what readers need is found in the clusters, and said where not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.f2fs.layout.compress import LEVELS, is_level
from f2tools.f2fs.layout.constants import F2FS_COMPR_FL
from tests.dump.craft import f2
from tests.fsck.craft import Made, Patient
from tests.mkfs.tools import f2mkfs

TEXT = b"hello\n" * 60_000
OPTIONS = ("-O", "extra_attr,inode_checksum,flexible_inline_xattr,compression", "--compress-ext", "txt")


def packed(directory: Path, how: str) -> Path:
    """A volume with the compressed files /a.txt and /b.txt, and /plain."""
    tree = directory / "tree"
    tree.mkdir()
    (tree / "a.txt").write_bytes(TEXT)
    (tree / "b.txt").write_bytes(TEXT[::-1])
    (tree / "plain").write_bytes(TEXT)
    image = directory / "image"
    f2mkfs("-q", image, "--size", "64M", "--from", str(tree), "--compress", how, *OPTIONS)
    return image


def field(image: Path, path: str, name: str) -> int:
    with f2tools.open(image) as volume:
        return int(volume.path(path).inode.extra[name])


def repair(image: Path) -> tuple[str, dict[str, str]]:
    """What a repair says, and what became of files that are not just whole."""
    done = f2("fsck", "-y", "--json", image)
    assert done.code == 1, done.text
    lines = [json.loads(line) for line in done.text.splitlines()]
    return done.text, {line["path"]: line["state"] for line in lines if line["record"] == "file"}


@pytest.mark.parametrize(("how", "number"), [("lzo", 0), ("lz4:9", 1), ("zstd:3", 2), ("zstd", 2)])
@pytest.mark.parametrize("wrong", [4, 255])
def test_the_algorithm_is_the_one_that_reads_the_clusters(how: str, number: int, wrong: int, tmp_path: Path) -> None:
    image = packed(tmp_path, how)
    made = Made(image)
    made.inode("/a.txt", i_compress_algorithm=wrong)
    made.close()
    assert "I028 error" in f2("fsck", image).text
    _, fates = repair(image)
    assert not fates
    assert f2("fsck", image).code == 0
    assert f2("dump", "cat", f"{image}:/a.txt").out == TEXT


@pytest.mark.parametrize("size", [0, 1 << 62])
def test_clusters_are_found_whatever_the_size_says(size: int, tmp_path: Path) -> None:
    image = packed(tmp_path, "zstd:3")
    made = Made(image)
    made.inode("/a.txt", i_compress_algorithm=9, i_size=size)
    made.inode("/b.txt", i_compress_algorithm=9, i_size=size)
    made.close()
    text, fates = repair(image)
    assert text.count("i_compress_algorithm = 2, zstd: its clusters are read with it") == 2
    assert set(fates.values()) == {"guessed"}
    assert f2("dump", "cat", f"{image}:/a.txt").out.startswith(TEXT)


def test_lzo_rle_is_told_by_its_stream(tmp_path: Path) -> None:
    patient = Patient("compress-lzo-rle", tmp_path)
    path, before = _compressed(patient, True)
    patient.inode(path, i_compress_algorithm=77)
    patient.close()
    repair(patient.path)
    assert f2("dump", "cat", f"{patient.path}:{path}").out == before
    assert field(patient.path, path, "i_compress_algorithm") == 3


def _compressed(patient: Patient, saves: bool) -> tuple[str, bytes]:
    """A file under compression, and its content; one of which clusters are compressed, or one of which none is."""
    for name, entry in patient.image.manifest()["entries"].items():
        inode = patient.vol.path(f"/{name}").inode if "compress" in entry else None
        if inode is not None and inode.is_file and bool(inode.extra["i_compr_blocks"]) is saves:
            return f"/{name}", patient.vol.path(f"/{name}").read()
    raise AssertionError("no such file")


def test_a_file_of_which_no_cluster_can_be_read_is_not_called_whole(tmp_path: Path) -> None:
    image = packed(tmp_path, "zstd:3")
    made = Made(image)
    made.inode("/a.txt", i_compress_algorithm=9)
    words = np.array(made.words("/a.txt"))
    for addr in words[(words > 0) & (words < 0xFFFFFFFE)].tolist():
        made.write(addr * made.size + 24, b"\xa5" * 500)
    made.close()
    assert f2("fsck", "-p", image).code == 4  # to guess is for who is told
    assert field(image, "/a.txt", "i_compress_algorithm") == 9
    text, fates = repair(image)
    assert fates == {"/a.txt": "doubtful"}
    assert "i_compress_algorithm = 2, zstd: its algorithm is a guess: no algorithm alone reads a compressed" in text


def test_a_file_without_a_compressed_cluster_is_whole_whatever_algorithm_it_gets(tmp_path: Path) -> None:
    patient = Patient("compress-zstd", tmp_path)
    path, before = _compressed(patient, False)
    patient.inode(path, i_compress_algorithm=4)
    patient.close()
    text, fates = repair(patient.path)
    assert not fates
    assert "it has no compressed cluster" in text
    assert f2("dump", "cat", f"{patient.path}:{path}").out == before


# -- levels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "level", "right"),
    [("zstd:3", 22, True), ("zstd:3", 23, False), ("zstd:3", 31, False), ("lz4", 1, False), ("lz4", 2, False),
     ("lz4", 3, True), ("lz4", 12, True), ("lz4", 16, True), ("lz4", 17, False), ("lzo", 3, False)],
)  # fmt: skip
def test_a_level_that_the_algorithm_has_not_is_set_to_the_default(
    how: str, level: int, right: bool, tmp_path: Path
) -> None:
    """Linux 7.3 refuses the inode: "unsupported compress level"."""
    image = packed(tmp_path, how)
    made = Made(image)
    made.inode("/a.txt", i_compress_flag=level << 8)
    made.close()
    done = f2("fsck", image)
    assert ("I028 error" in done.text) is not right
    if right:
        return
    _, fates = repair(image)
    assert not fates
    assert field(image, "/a.txt", "i_compress_flag") == 0
    assert f2("fsck", image).code == 0
    assert f2("dump", "cat", f"{image}:/a.txt").out == TEXT


def test_a_level_of_another_algorithm_tells_that_the_algorithm_is_wrong(tmp_path: Path) -> None:
    image = packed(tmp_path, "zstd:3")
    made = Made(image)
    made.inode("/a.txt", i_compress_algorithm=0)
    made.close()
    assert "level 3 of lzo" in f2("fsck", image).text
    repair(image)
    assert field(image, "/a.txt", "i_compress_algorithm") == 2
    assert field(image, "/a.txt", "i_compress_flag") >> 8 == 3
    assert f2("dump", "cat", f"{image}:/a.txt").out == TEXT


@pytest.mark.parametrize("fields", [{"i_compress_algorithm": 4}, {"i_log_cluster_size": 0}, {"i_compress_flag": 256}])
def test_a_directory_that_hands_compression_down_has_right_fields_too(fields: dict[str, int], tmp_path: Path) -> None:
    patient = Patient("compress-lz4", tmp_path)
    assert patient.vol.path("/compressed").inode.i_flags & F2FS_COMPR_FL
    before = {name: patient.vol.path("/compressed").inode.extra[name] for name in fields}
    patient.inode("/compressed", **fields)
    patient.close()
    assert "I028 error" in f2("fsck", patient.path).text
    repair(patient.path)
    assert f2("fsck", patient.path).code == 0
    assert {name: field(patient.path, "/compressed", name) for name in fields} == before


@pytest.mark.parametrize("how", ["lz4:1", "lz4:2", "lz4:17", "zstd:23", "lzo:1", "lzo-rle:3"])
def test_mkfs_takes_no_level_that_a_kernel_refuses(how: str, tmp_path: Path) -> None:
    done = f2("mkfs", tmp_path / "x", "--size", "64M", "--from", tmp_path, "--compress", how)
    assert (done.code, " has " in done.err) == (2, True), done.err


def test_the_default_level_goes_with_each_algorithm() -> None:
    assert all(is_level(number, 0) and not is_level(number, 256) for number in range(len(LEVELS)))
