"""Damaged and fuzzed images under a mount: no traceback, no hang, no process left, memory as for a sound one."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.node import Inode
from tests.hostile.damage import flips, patched, resealed
from tests.hostile.forge import Forge
from tests.hostile.targets import structures
from tests.images import DAMAGED, copy_sparse, damaged, reference
from tests.mount.hostile import live_with
from tests.mount.mounted import mounted, need_fuse
from tests.mount.suite_tools import mount_point

FACTOR = int(os.environ.get("F2_SUITE_FACTOR", "1"))
FUZZED = ("features", "compress-lz4", "crash-namespace", "fragmented")


DAMAGE = DAMAGED if FACTOR > 1 else DAMAGED[1::8]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_image_is_mounted_or_refused(name: str, tmp_path: Path) -> None:
    need_fuse()
    image = damaged(name, tmp_path).path
    for number, options in enumerate(((), ("ro",), ("norecovery",), ("checkpoint=older",))[: 4 if FACTOR > 1 else 1]):
        work = copy_sparse(image, tmp_path / "work.img")
        assert not live_with(work, tmp_path / "m", number, *options)


def test_fuzzed_images_are_mounted_or_refused(tmp_path: Path) -> None:
    need_fuse()
    failures: list[str] = []
    for name in FUZZED:
        chance = random.Random(f"{name}-{FACTOR}")
        image = reference(name).copy(tmp_path).path
        with f2tools.open(image) as volume:
            places = structures(volume)
        for number in range(3 * FACTOR):
            kind = chance.choice(sorted(places))
            patches = flips(chance, image, places[kind], chance.choice((1, 2, 8)))
            if kind in ("superblock", "checkpoint head"):
                patches = resealed(image, patches, places[kind], kind)
            with patched(image, patches):
                work = copy_sparse(image, tmp_path / "work.img")
            said = live_with(work, tmp_path / "m", number)
            what = ", ".join(f"{data[:16].hex()} at {offset}" for offset, data in patches)
            failures += [f"{name}, {kind}: {what}\n{line}" for line in said]
    assert not failures, "\n\n".join(failures[:10])


@pytest.mark.parametrize("server", ["pyfuse3", "direct"])
def test_an_inode_with_numbers_beyond_those_of_stat_hides_no_other(server: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    wild = [
        (field, value.to_bytes(width, "little"))
        for width, fields in (
            (8, ("i_blocks", "i_size", "i_atime", "i_mtime", "i_ctime")),
            (4, ("i_mtime_nsec", "i_links", "i_uid", "i_generation", "i_pino")),
        )
        for field in fields
        for value in (256**width - 1, 256**width // 2 - 1, 256**width // 2)
    ]
    with Forge(image) as forge:
        inos = [forge.text(b"wild") for _ in wild]
        names = [b"%02d-" % number + field.encode() for number, (field, _) in enumerate(wild)]
        forge.root((b"good", forge.text(b"good")), *zip(names, inos, strict=True))
    with f2tools.open(image) as volume:
        places = [volume.nodes.inode(ino).blkaddr * 4096 for ino in inos]
    with image.open("r+b") as file:
        for place, (field, value) in zip(places, wild, strict=True):
            file.seek(place + Inode.offset_of(field))
            file.write(value)
    with mount_point() as directory, mounted(image, directory, "-o", "ro", server=server) as mount:
        assert sorted(os.listdir(mount.directory)) == [*(name.decode() for name in names), "good"]
        assert (mount.directory / "good").read_bytes() == b"good"
        for path in sorted(mount.directory.iterdir()):
            assert path.stat().st_blocks >= 0, path
            with path.open("rb") as file:
                for offset in (0, 1 << 40, 1 << 62):
                    with suppress(OSError):
                        assert os.pread(file.fileno(), 4, offset).strip(b"\0") in (b"wild", b"good", b""), path


@pytest.mark.parametrize("server", ["pyfuse3", "direct"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("valid_block_count", 1 << 40), ("valid_node_count", (1 << 32) - 1), ("user_block_count", (1 << 64) - 1)],
)
def test_counts_that_cannot_be_are_no_free_blocks_below_zero(
    field: str, value: int, server: str, tmp_path: Path
) -> None:
    need_fuse(server)
    image = reference("plain").copy(tmp_path).path
    with f2tools.open(image) as volume:
        places = structures(volume)["checkpoint head"]
    width = Checkpoint.offset_of(field), 4 if field == "valid_node_count" else 8
    damage = [(start + width[0], value.to_bytes(width[1], "little")) for start, _ in places]
    with patched(image, resealed(image, damage, places, "checkpoint head")):
        with f2tools.open(image) as volume:
            said = volume.statfs()
            assert getattr(volume.cp, field) == value
        assert 0 <= said["f_bfree"] <= said["f_blocks"]
        assert 0 <= said["f_ffree"] <= said["f_bfree"]
        assert not live_with(image, tmp_path / "m", 0, "ro", f"server={server}")
