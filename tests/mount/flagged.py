"""Volumes with a directory for each flag that keeps content from being changed, and in it a file for each way."""

from __future__ import annotations

import subprocess
from pathlib import Path

from f2tools.f2fs.layout.constants import F2FS_APPEND_FL, F2FS_IMMUTABLE_FL, F2FS_PIN_FILE, FADVISE_VERITY_BIT
from f2tools.f2fs.write.volume import WritableVolume, open_for_writing
from tests.mount.ways import CONTENT, FILES

PLAIN = ("none", "immutable", "append", "pinned", "verity")
COMPRESSED = ("compressed", "released", "released_immutable")


def flagged(directory: Path, name: str = "flagged.img") -> Path:
    """A volume with files of each flag of PLAIN."""
    source = _source(directory / "plain", PLAIN)
    image = directory / name
    _f2("mkfs", image, "--size", "64M", "-O", "extra_attr,verity", "--from", source, "-q")
    _flag(image, PLAIN)
    return image


def compressed(directory: Path, name: str = "compressed.img") -> Path:
    """A volume with files of each flag of COMPRESSED, all of them compressed."""
    source = _source(directory / "compressed", COMPRESSED[1:])
    image = directory / name
    _f2("mkfs", image, "--size", "64M", "--from", source, "--compress", "lz4", "--release", "-q")
    _f2("load", image, "--from", _source(directory / "more", COMPRESSED[:1]), "--compress", "lz4")
    _flag(image, COMPRESSED)
    return image


def _f2(*command: object) -> None:
    subprocess.run(["f2tools", *map(str, command)], check=True, capture_output=True)


def _source(directory: Path, flags: tuple[str, ...]) -> Path:
    for flag in flags:
        (directory / flag).mkdir(parents=True)
        for name in FILES:
            (directory / flag / name).write_bytes(CONTENT)
    return directory


def _flag(image: Path, flags: tuple[str, ...]) -> None:
    with open_for_writing(image) as volume:
        for flag in flags:
            for name in FILES[:-1]:
                _set(volume, volume.path(f"/{flag}/{name}").inode.ino, flag)


def _set(volume: WritableVolume, ino: int, flag: str) -> None:
    inode = volume.live(ino)
    if flag.endswith("immutable"):
        volume.set_flags(ino, inode.i_flags & 0xFFFF | F2FS_IMMUTABLE_FL)
    elif flag == "append":
        volume.set_flags(ino, F2FS_APPEND_FL)
    elif flag == "pinned":
        inode.set(i_inline=inode.i_inline | F2FS_PIN_FILE)
        volume.nodes.touch(inode)
    elif flag == "verity":
        inode.set(i_advise=inode.i_advise | FADVISE_VERITY_BIT)
        volume.nodes.touch(inode)
