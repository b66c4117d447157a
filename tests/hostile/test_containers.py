"""Forged containers: little that unpacks to very much, and images that name files which are none of theirs."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.containers.beneath import open_beneath, step_beneath
from f2tools.device.containers.beside import backing
from f2tools.errors import DeviceError
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


# -- what an image names ----------------------------------------------------------------------------------------------


def qcow2_on(path: Path, named: str, size: int = 1 << 20) -> Path:
    """A qcow2 image that holds nothing itself, on top of a file."""
    name = named.encode()
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 72, len(name), 16, size, 0, 1, 65536, 131072, 1, 0, 0)
    path.write_bytes((head + name).ljust(65536, b"\0") + bytes(131072))
    return path


def vmdk_of(path: Path, named: str) -> Path:
    """A VMDK descriptor of one flat extent."""
    path.write_text(
        '# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType="monolithicFlat"\n\n'
        f'# Extent description\nRW 2048 FLAT "{named}" 0\n\n# The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = "4"\n'
        'ddb.adapterType = "ide"\n'
    )
    return path


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """The directory of an image, and a file elsewhere that is nobody's business."""
    home = tmp_path / "home"
    home.mkdir()
    secret = tmp_path / "secret.img"
    secret.write_bytes(b"SECRET".ljust(1 << 20, b"s"))
    (home / "link.img").symlink_to(secret)
    (home / "out").symlink_to(tmp_path)
    (home / "link.img.002").symlink_to(secret)
    (home / "own.img").write_bytes(b"OWN".ljust(1 << 20, b"o"))
    return home, secret


@pytest.mark.parametrize("make", [qcow2_on, vmdk_of])
@pytest.mark.parametrize("named", ["{secret}", "../secret.img", "out/secret.img", "link.img", "/dev/zero", "gone.img"])
def test_an_image_reads_no_file_outside_of_its_directory(
    make: Callable[[Path, str], Path], named: str, directories: tuple[Path, Path]
) -> None:
    home, secret = directories
    image = make(home / "image", named.format(secret=secret))
    with pytest.raises(DeviceError, match="--backing"):
        open_device(image, whole=True)


@pytest.mark.parametrize("make", [qcow2_on, vmdk_of])
def test_an_image_reads_a_file_elsewhere_that_the_user_named(
    make: Callable[[Path, str], Path], directories: tuple[Path, Path]
) -> None:
    home, secret = directories
    image = make(home / "image", f"/old/place/{secret.name}")
    with backing([secret]), open_device(image, whole=True) as device:
        assert device.pread(0, 6) == b"SECRET"
        assert device.files() == [str(image), str(secret)]
    image = make(home / "image", "own.img")
    with open_device(image, whole=True) as device:
        assert device.pread(0, 3) == b"OWN"


def test_a_piece_of_an_image_that_is_a_link_elsewhere_is_refused(directories: tuple[Path, Path]) -> None:
    home, _ = directories
    (home / "disk.001").write_bytes(bytes(4096))
    (home / "disk.002").symlink_to("../secret.img")
    with pytest.raises(DeviceError, match="leads out"):
        open_device(home / "disk.001")


def pieces_of(path: Path, named: str) -> Path:
    """A first piece; the next one has the name that is asked for."""
    first = path.parent / f"{named}.001"
    first.write_bytes(bytes(4096))
    (path.parent / f"{named}.002").write_bytes(b"OWN".ljust(4096, b"o"))
    return first


@pytest.mark.parametrize(("make", "named"), [(qcow2_on, "own.img"), (vmdk_of, "own.img"), (pieces_of, "disk")])
def test_a_file_that_is_swapped_after_it_was_looked_at_is_not_read(
    make: Callable[[Path, str], Path], named: str, directories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, secret = directories
    image = make(home / "image", named)
    target = home / (f"{named}.002" if make is pieces_of else named)
    true_open = os.open
    swapped: list[str] = []

    def swap(path: str, flags: int, *rest: int, **more: int) -> int:
        if path == str(target) and not flags & os.O_PATH:
            target.unlink()
            target.symlink_to(secret)
            swapped.append(path)
        return true_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(DeviceError, match="was replaced"):
        open_device(image, whole=True)
    assert swapped


def test_no_way_below_a_directory_leads_out_of_it_with_an_old_kernel_either(directories: tuple[Path, Path]) -> None:
    home, _ = directories
    (home / "in").mkdir()
    (home / "in/own.img").write_bytes(b"x")
    fd = os.open(home, os.O_PATH)
    try:
        for find in (open_beneath, step_beneath):
            found = find(fd, "in/own.img")
            assert os.path.samestat(os.fstat(found), (home / "in/own.img").stat())
            os.close(found)
            for name in ("link.img", "out/secret.img"):
                with pytest.raises(OSError, match=r"cross-device|symbolic links|Not a directory"):
                    find(fd, name)
    finally:
        os.close(fd)


def test_info_and_report_say_which_files_were_read(directories: tuple[Path, Path]) -> None:
    home, _ = directories
    assert limited("mkfs", home / "base.img", "--size", "64M", "-q").code == 0
    elsewhere = (home / "base.img").rename(home.parent / "base.img")
    image = qcow2_on(home / "image", str(elsewhere), 64 << 20)
    assert limited("dump", "info", image).code != 0
    info = limited("dump", "info", image, "--json", "--backing", elsewhere)
    assert json.loads(info.out)["files"] == [str(image), str(elsewhere)]
    done = limited("report", image, "-o", home / "report", "--backing", elsewhere)
    assert done.code == 0, done.err
    files = json.loads((home / "report/report.json").read_text())["images"][0]["files"]
    assert [one["path"] for one in files] == [str(image), str(elsewhere)]
    for one in files:
        assert one["hashes"]["sha256"] == hashlib.sha256(Path(one["path"]).read_bytes()).hexdigest()


def test_a_qcow2_image_whose_tables_are_all_the_same_one_is_refused(tmp_path: Path) -> None:
    """32 MiB of entries that lead to one table: looked through cluster by cluster, 34 thousand million of them."""
    size, entries = 1 << 50, 1 << 21
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, 16, size, 0, entries, 1 << 16, 0, 0, 0, 0)
    table = struct.pack(">Q", 32 << 20) * entries
    (tmp_path / "image").write_bytes(head.ljust(1 << 16, b"\0") + table + bytes(32 << 20))
    done = limited("dump", "info", tmp_path / "image")
    assert done.code != 0
    assert "share a table" in done.err
