"""Forged containers: little that unpacks to very much, and images that name files which are none of theirs."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from tests.hostile.limits import limited

A = "http://aff4.org/Schema#"


def aff4(path: Path, turtle: str, members: dict[str, bytes]) -> Path:
    """An AFF4 volume with this metadata."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("container.description", "aff4://own", zipfile.ZIP_STORED)
        archive.writestr("information.turtle", turtle)
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def mapped(name: str, size: int = 65536) -> str:
    return f"<aff4://own/{name}> <{A}x> <y> ; a <{A}Map> ; <{A}size> {size} .\n"


def test_an_aff4_image_of_maps_on_maps_is_refused(tmp_path: Path) -> None:
    """Seven levels of maps, each of which names all of the next."""
    levels, width = 7, 6
    layout = b"".join(struct.pack("<QQQI", i, 1, 0, i % width) for i in range(100_000))
    members, turtle = {}, f"<aff4://own> <{A}dataStream> <aff4://own/0-0> .\n"
    for level in range(levels):
        below = [f"aff4://own/{level + 1}-{n}" for n in range(width)] if level + 1 < levels else [f"{A}Zero"] * width
        for n in range(width):
            turtle += mapped(f"{level}-{n}")
            members[f"{level}-{n}/map"] = layout
            members[f"{level}-{n}/idx"] = "\n".join(below).encode()
    done = limited("dump", "info", aff4(tmp_path / "image", turtle, members))
    assert done.code != 0
    assert "maps have more than 64 MiB" in done.err


def test_an_aff4_image_whose_map_leads_to_itself_is_refused(tmp_path: Path) -> None:
    members = {"loop/map": struct.pack("<QQQI", 0, 65536, 0, 0), "loop/idx": b"aff4://own/loop"}
    done = limited("dump", "info", aff4(tmp_path / "image", mapped("loop"), members))
    assert done.code != 0
    assert "maps on maps" in done.err


def test_an_aff4_image_with_endless_metadata_is_refused(tmp_path: Path) -> None:
    done = limited("dump", "info", aff4(tmp_path / "image", "a b c .\n" * 3_000_000, {}))
    assert done.code != 0
    assert "information.turtle has" in done.err


def test_a_remark_in_the_metadata_of_an_aff4_image_is_read_once(tmp_path: Path) -> None:
    """Number signs, which were tried in every way of making several remarks of one."""
    done = limited("dump", "info", aff4(tmp_path / "image", "#" * 1000, {}))
    assert done.code != 0
    assert "0 images" in done.err


def test_the_directory_of_an_aff4_image_has_a_bound(tmp_path: Path) -> None:
    """800,000 members that are holes in the file; each would be an object."""
    image = aff4(tmp_path / "image", mapped("x"), {})
    size = 40 << 20
    with image.open("r+b") as file:
        end = image.stat().st_size
        file.truncate(end + size)
        file.seek(end + size)
        file.write(struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0, 0, size, end, 0))
    done = limited("dump", "info", image)
    assert done.code != 0
    assert "directory has" in done.err
