"""The devices of a volume in another order than in its device table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import Usage
from f2tools.fsck.facts.image import open_image
from tests.dump.craft import f2
from tests.images import reference

FEW = (40, 40, 40)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(sizes: Sequence[int], paths: Sequence[str] = ()) -> list[str]:
    """A volume on image files of so many MiB, which the table has by other names with `paths`; their names."""
    names = ["a.img", "b.img", "c.img"][: len(sizes)]
    words: list[str] = []
    for name, mib in zip(names, sizes, strict=True):
        words += [*(["-c"] if words else []), name, "--size", f"{mib}M"]
    assert f2("mkfs", *words, *(word for path in paths for word in ("--device-path", path))).code == 0
    return names


def opens(first: str, *others: str) -> None:
    f2tools.open(first, others).close()
    open_image(first, others).close()


def refused(match: str, first: str, *others: str) -> None:
    with pytest.raises(Usage, match=match):
        f2tools.open(first, others)
    with pytest.raises(Usage, match=match):
        open_image(first, others)


def with_nodes_on_the_second(paths: Sequence[str]) -> list[str]:
    """The same, so full that nodes lie on the second."""
    names = made(FEW, paths)
    with f2tools.open(names[0], names[1:], write=True) as volume:
        big = volume.create(3, b"big", 0o644)
        with suppress(OSError):  # no room
            for number in range(1 << 20):
                if number in (0, 1500):
                    volume.write(big, number << 12, b"x" * (24 << 20))
                volume.write(volume.create(3, b"f%d" % number, 0o644), 0, b"y" * 5000)
    return names


@pytest.mark.usefixtures("here")
def test_image_files_by_the_names_of_each_other_are_refused() -> None:
    a, b, c = made(FEW)
    opens(a, b, c)
    opens(a, f"./{b}", os.path.abspath(c))
    refused(r"c\.img was named in the place of b\.img; name .*: a\.img, b\.img, c\.img", a, c, b)
    os.link(b, "other")
    refused(r"b\.img was named in the place of c\.img", a, "other", b)


@pytest.mark.usefixtures("here")
def test_nodes_tell_which_device_is_which_whatever_they_are_called() -> None:
    a, b, c = with_nodes_on_the_second(["/dev/sda", "/dev/sdb", "/dev/sdc"])
    opens(a, b, c)
    refused(r"b\.img holds what belongs on /dev/sdb", a, c, b)


@pytest.mark.usefixtures("here")
def test_nodes_count_more_than_names() -> None:
    a, b, c = with_nodes_on_the_second([])
    os.rename(b, "other")
    os.rename(c, b)
    os.rename("other", c)
    opens(a, c, b)
    refused(r"c\.img holds what belongs on b\.img", a, b, c)


@pytest.mark.usefixtures("here")
def test_what_the_kernel_calls_a_device_says_nothing() -> None:
    """`/dev/sdb` may be another disk after each start, and a dump may be called as the disk was."""
    a, b, c = made(FEW, ["/dev/a.img", "/dev/c.img", "/dev/b.img"])
    opens(a, b, c)


@pytest.mark.usefixtures("here")
def test_devices_that_fit_only_the_other_way_round_are_refused() -> None:
    a, b, c = made((40, 60, 40), ["/dev/vda", "/dev/vdb", "/dev/vdc"])
    opens(a, b, c)
    refused(r"c\.img has 41943040 bytes where 62914560 are needed, and would fit in the place of /dev/vdc", a, c, b)


@pytest.mark.usefixtures("here")
def test_longer_devices_and_copies_by_other_names_open() -> None:
    a, b, c = made((40, 60, 40))
    for name in (b, c):
        os.rename(name, f"copy of {name}")
        os.truncate(f"copy of {name}", 80 << 20)
    opens(a, f"copy of {b}", f"copy of {c}")


@pytest.mark.parametrize("name", ["multi-device", "device-alias"])
def test_volumes_of_the_kernel_and_of_mkfs_f2fs_open(name: str) -> None:
    case = reference(name)
    opens(str(case.path), *map(str, case.extra))
