"""What can't be done is refused before anything is written, with what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from f2tools.cli import main
from f2tools.device.media.mounted import in_use
from f2tools.errors import DeviceError, F2fsError, Taken, Usage
from tests.mkfs.tools import MIB, blank, f2mkfs, planned, superblock


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "--size 1G makes it"),
        ("--size 1M", "smallest size"),
        ("--size 64M -O nonsense", "there are encrypt"),
        ("--size 64M -O inode_checksum", "-O extra_attr,inode_checksum"),
        ("--size 64M -O atomic_write", "there is no feature"),
        ("--size 64M -C klingon", "there is utf8"),
        ("--size 64M -C utf8:loose", r"\[no\]strict"),
        ("--size 64M -b 2048", "4096, 8192, 16384"),
        ("--size 64M -o 100", "percentage"),
        ("--size 64M -s 0", "-s 0"),
        ("--size 64M -z 999999999", "-z"),
        ("--size 64M -s 16", "smaller sections"),
        ("--size 64M -Z 10", "-m"),
        ("--size 64M -m", "--zone-size"),
        ("--size 64M --conventional-zones 3", "goes with --zone-size"),
        ("--size 64M -R root", "1000:1000"),
        ("--size 64M -U 12345", "UUID"),
        ("--size 64M -T -5", "1970"),
        ("--size 64M -e toolongext", "1 to 7 bytes"),
        ("--size 64M -e .txt", "without its dot"),
        (f"--size 64M -l {'x' * 513}", "512"),
        (f"--size 64M -e {','.join(f'e{n}' for n in range(40))}", "room for"),
        ("--size 64M -c nothere", "nothere does not exist"),
        ("--size 64M -c @name", "DEVICE@NAME"),
        ("--size 64M --size 64M", "2 sizes for 1"),
        ("-S 64M --size 64M", "-S"),
        ("--size 64M --undo log", "nothing to keep"),
        ("--size 17T", "16 TiB"),
        ("--size 64M --erase-block 1000", "erase-block"),
        ("--size 64M -s 3 --erase-block 4M", "multiple of 2"),
    ],
)
def test_a_request_that_makes_no_sense(
    options: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Usage, match=said):
        f2mkfs("image", *shlex.split(options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", ["", "--size 64M", "--size 64M --dry-run", "--size 64M -c /dev/nothere2"])
def test_no_file_is_made_among_devices(options: str, tmp_path: Path) -> None:
    for name in ("/dev/nothere", "/dev/disk/../nothere"):
        with pytest.raises(Usage, match=r"/dev/.*: there is no such device"):
            f2mkfs(name, *shlex.split(options))
    (tmp_path / "link").symlink_to("/dev")
    with pytest.raises(Usage, match="there is no such device"):
        f2mkfs(tmp_path / "link" / "nothere", *shlex.split(options))
    assert not Path("/dev/nothere").exists()


def test_no_image_is_named() -> None:
    with pytest.raises(Usage, match="which image"):
        f2mkfs()


def test_an_existing_file_system_of_any_kind_needs_force(tmp_path: Path) -> None:
    image = blank(tmp_path / "image", 64 * MIB)
    with image.open("r+b") as f:
        f.seek(1080)
        f.write(b"\x53\xef")
    before = image.read_bytes()
    with pytest.raises(Taken, match=r"holds ext2; -f"):
        f2mkfs(image)
    assert image.read_bytes() == before
    assert planned(image, "-f")["overwritten"] == {str(image): "ext2"}
    with pytest.raises(Taken, match=r"holds F2FS; -f"):
        f2mkfs(image)
    with pytest.raises(Taken, match="holds F2FS"):
        f2mkfs(image, "-g", "android")  # which implies -f in mkfs.f2fs


@pytest.mark.parametrize("offset", [0, 20 * MIB, 64 * MIB - 1])
def test_a_file_with_anything_in_it_needs_force(offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the superblock has 64 bytes for a device's path
    image = blank(Path("image"), 64 * MIB)
    with image.open("r+b") as f:
        f.seek(offset)
        f.write(b"x")
    before = image.read_bytes()
    for more in ((), ("--dry-run",), ("--size", "128M")):
        with pytest.raises(Taken, match=r"image holds data, though no file system that is known; -f overwrites it"):
            f2mkfs(image, *more)
    with pytest.raises(Taken, match="holds data"):
        f2mkfs(Path("new"), "--size", "64M", "-c", image)
    assert image.read_bytes() == before
    assert not (Path("new")).exists()
    f2mkfs(Path("new"), "--size", "64M", "-c", f"{image}@kept")  # which is a file of the volume then
    f2mkfs("-q", image, "-f")
    assert Taken.exit_code == 1


def test_a_file_of_zeros_is_formatted(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(64 * MIB))
    f2mkfs("-q", image)


def test_every_device_is_looked_at(tmp_path: Path) -> None:
    first, second = tmp_path / "a", blank(tmp_path / "b", 64 * MIB)
    with second.open("r+b") as f:
        f.write(b"XFSB")
    with pytest.raises(Taken, match="holds XFS"):
        f2mkfs(first, "--size", "64M", "-c", second, "--device-path", "a", "--device-path", "b")
    assert not first.exists()


def test_a_device_can_not_be_used_twice(tmp_path: Path) -> None:
    image = blank(tmp_path / "a", 64 * MIB)
    (tmp_path / "b").hardlink_to(image)
    with pytest.raises(Usage, match="used once"):
        f2mkfs(image, "-c", tmp_path / "b")


def test_a_long_path_does_not_fit_in_the_device_table(tmp_path: Path) -> None:
    second = blank(tmp_path / ("x" * 100), 64 * MIB)
    with pytest.raises(Usage, match="--device-path"):
        f2mkfs(tmp_path / "a", "--size", "64M", "-c", second)
    assert not (tmp_path / "a").exists()


def test_an_image_is_cut_only_with_force(tmp_path: Path) -> None:
    image = blank(tmp_path / "image", 128 * MIB)
    with pytest.raises(Taken, match="-f cuts it"):
        f2mkfs(image, "--size", "64M")
    f2mkfs("-q", image, "--size", "64M", "-f")
    assert image.stat().st_size == 64 * MIB


def test_more_sectors_than_there_are(tmp_path: Path) -> None:
    image = blank(tmp_path / "image", 64 * MIB)
    with pytest.raises(Usage, match="131072 sectors of 512 bytes"):
        f2mkfs(image, 131073)


def test_a_directory_is_no_image(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="directory"):
        f2mkfs(tmp_path)
    with pytest.raises(F2fsError, match="no directory"):
        f2mkfs(tmp_path / "missing/image", "--size", "64M")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    image = blank(tmp_path / "image", 64 * MIB)
    said = planned(image, "--dry-run")
    assert not said["written"]
    assert image.stat().st_blocks == 0
    assert planned(tmp_path / "new", "--size", "64M", "--dry-run")["created"] == [str(tmp_path / "new")]
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_not_attached_is_not_in_use(tmp_path: Path) -> None:
    assert in_use(str(blank(tmp_path / "image", MIB))) is None
    assert in_use(str(tmp_path / "missing")) is None


def test_letters_of_mkfs_f2fs_without_effect_are_accepted(tmp_path: Path) -> None:
    f2mkfs("-q", "-a", 1, "-d", 1, "-H", tmp_path / "image", "--size", "64M")
    assert superblock(tmp_path / "image").magic == 0xF2F52010


def test_the_summary_names_what_matters(tmp_path: Path) -> None:
    text = f2mkfs(tmp_path / "card.img", "--size", "512M", "-l", "CARD", "--erase-block", "4M")
    for word in ("512 MiB", "CARD", "uuid", "4 MiB", "main", "alignment: erase block 4 MiB"):
        assert word in text
    assert len(text.splitlines()) <= 24


def test_help_has_examples() -> None:
    from click.testing import CliRunner

    text = CliRunner().invoke(main, ["mkfs", "--help"]).output
    assert "Examples:" in text
    assert "--erase-block" in text
