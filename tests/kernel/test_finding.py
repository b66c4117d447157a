"""Where the guest's kernel comes from: found as distributions lay it out, fetched as Debian cuts it up, unpacked."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from f2tools.guest.build import NoGuest, download_kernel, find_kernel, key, unpack_kernel
from tests.judges import need_tool, run_tool

RELEASE = "7.2.13+deb14-amd64"
VERSION = "7.2.13-1"
EXACT = f"(= {VERSION})"
IMAGE, BASE, BINARY, MODULES = (f"linux-{part}-{RELEASE}" for part in ("image", "base", "binary", "modules"))
TOOLS = "kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120) | linux-initramfs-tool"  # no repository here has them


def kernel_files(image: str, lib: str) -> dict[str, list[str]]:
    """What makes up a kernel, by the package that has it since Debian 14."""
    modules = f"{lib}/modules/{RELEASE}"
    return {
        BASE: [f"{modules}/{name}" for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo")],
        BINARY: [image],
        MODULES: [f"{modules}/kernel/fs/f2fs/f2fs.ko.xz"],
    }


class Repository:
    """A repository of Debian packages, the only one that apt-get knows of."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for tool in ("apt-get", "apt-cache", "dpkg-deb"):
            need_tool(tool)
        self.directory = directory
        self.index: list[str] = []
        for name in (
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "packages",
        ):
            (directory / name).mkdir(parents=True)
        (directory / "status").touch()
        (directory / "etc/sources.list").write_text(f"deb [trusted=yes] file:{directory}/packages ./\n")
        config = directory / "apt.conf"
        own = {"Dir::State": "state", "Dir::State::status": "status", "Dir::Cache": "cache", "Dir::Etc": "etc"}
        lines = [f'{key} "{directory}/{name}";\n' for key, name in own.items()]
        config.write_text("".join([*lines, 'APT::Architecture "amd64";\nAPT::Sandbox::User "root";\n']))
        monkeypatch.setenv("APT_CONFIG", str(config))

    def add(self, package: str, depends: str = "", files: list[str] | None = None, version: str = VERSION) -> None:
        """Put a package into the repository; each of its files has its own name in it."""
        tree = self.directory / "trees" / f"{package}_{version}"
        control = f"Package: {package}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n"
        control += (f"Depends: {depends}\n" if depends else "") + "Description: made for a test\n"
        for name, text in [("DEBIAN/control", control), *zip(files or [], files or [], strict=True)]:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        deb = self.directory / "packages" / f"{package}_{version}.deb"
        built = run_tool("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", tree, deb)
        assert built.rc == 0, str(built)
        data = deb.read_bytes()
        where = f"Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        self.index.append(control + where)

    def publish(self) -> None:
        """Make apt know what was added."""
        (self.directory / "packages/Packages").write_text("\n".join(self.index))
        updated = run_tool("apt-get", "update")
        assert updated.rc == 0, str(updated)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository(tmp_path / "repository", monkeypatch)


def in_one_package(repository: Repository, lib: str) -> None:
    """The layouts up to Debian 13."""
    files = kernel_files(f"boot/vmlinuz-{RELEASE}", lib)
    repository.add("linux-image-amd64", f"{IMAGE} {EXACT}")
    repository.add(IMAGE, TOOLS, [name for names in files.values() for name in names])


def in_parts(repository: Repository) -> None:
    """The layout since Debian 14: the package of the kernel has dependencies alone."""
    repository.add("linux-image-amd64", f"linux-base-amd64 {EXACT}, {IMAGE} {EXACT}, linux-modules-amd64 {EXACT}")
    repository.add(IMAGE, f"dracut | {TOOLS}, {BASE} {EXACT}, {BINARY} {EXACT}, {MODULES} {EXACT}")
    for package, names in kernel_files(f"usr/lib/modules/{RELEASE}/vmlinuz", "usr/lib").items():
        repository.add(package, "" if package == BASE else f"kmod, {BASE} {EXACT}", names)


@pytest.mark.parametrize("layout", ["lib", "usr/lib", "parts"])
def test_a_kernel_is_downloaded_however_its_packages_are_cut(
    repository: Repository, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if layout == "parts":
        in_parts(repository)
    else:
        in_one_package(repository, layout)
    repository.publish()
    cache = tmp_path / "cache"
    cache.mkdir()
    for _ in range(2):  # the second time without asking apt
        kernel = download_kernel(cache)
        assert kernel.release == RELEASE
        assert "vmlinuz" in kernel.image.read_text()
        for name in ("kernel/fs/f2fs/f2fs.ko.xz", "modules.order", "modules.builtin", "modules.builtin.modinfo"):
            assert (kernel.modules / name).is_file(), name
        monkeypatch.setenv("APT_CONFIG", "/dev/null/none")
    assert {path.name for path in cache.iterdir()} == {"kernel"}


def test_the_parts_of_one_kernel_are_of_one_version(repository: Repository, tmp_path: Path) -> None:
    in_parts(repository)
    for package in (IMAGE, BASE, BINARY, MODULES):  # newer, but the package that says what is current names the older
        repository.add(package, files=[f"usr/lib/modules/{RELEASE}/newer-{package}"], version="7.2.13-2")
    repository.publish()
    kernel = download_kernel(tmp_path)
    assert not [path for path in kernel.modules.rglob("*") if path.name.startswith("newer")]


def test_what_is_missing_is_said(repository: Repository, tmp_path: Path) -> None:
    repository.publish()
    with pytest.raises(NoGuest, match="linux-image-amd64"):
        download_kernel(tmp_path)
    repository.add("linux-image-amd64", f"{IMAGE} {EXACT}")
    repository.add(IMAGE, f"{BASE} {EXACT}")
    repository.publish()
    with pytest.raises(NoGuest, match=re.escape(BASE)):  # apt has heard of it, and has none
        download_kernel(tmp_path)
    repository.add(BASE)
    repository.publish()
    with pytest.raises(NoGuest, match="no f2fs module.*" + re.escape(BASE)):
        download_kernel(tmp_path)


def current(repository: Repository, version: str, files: list[str] | None = None) -> None:
    """Publish a version of one and the same release."""
    repository.add("linux-image-amd64", f"{IMAGE} (= {version})", version=version)
    all_files = [name for names in kernel_files(f"boot/vmlinuz-{RELEASE}", "lib").values() for name in names]
    repository.add(IMAGE, TOOLS, [f"boot/of-{version}", *all_files] if files is None else files, version)
    repository.publish()


def grown_old(cache: Path) -> None:
    """Apt was asked long ago."""
    os.utime(cache / "kernel" / "packages", (0, 0))


def test_a_new_revision_of_the_same_release_is_downloaded_when_apt_was_not_asked_for_a_day(
    repository: Repository, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for version in ("7.2.13-1", "7.2.13-2"):
        current(repository, version)
        before = [path.name for path in cache.glob("kernel/boot/of-*")]
        download_kernel(cache)
        assert [path.name for path in cache.glob("kernel/boot/of-*")] == (before or [f"of-{version}"])
    grown_old(cache)
    assert download_kernel(cache).release == RELEASE
    assert [path.name for path in cache.glob("kernel/boot/of-*")] == ["of-7.2.13-2"]


@pytest.mark.parametrize("apt", ["knows none", "can't bring it", "brings another thing"])
def test_an_old_kernel_stays_where_no_newer_one_can_be_had(repository: Repository, apt: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    current(repository, "7.2.13-1")
    download_kernel(cache)
    if apt == "knows none":
        repository.index = []
        repository.publish()
    else:
        current(repository, "7.2.13-2", ["usr/share/doc/nothing"])
    if apt == "can't bring it":
        (repository.directory / "packages" / f"{IMAGE}_7.2.13-2.deb").unlink()
    grown_old(cache)
    for _ in range(2):
        assert "vmlinuz" in download_kernel(cache).image.read_text()
        assert [path.name for path in cache.glob("kernel/boot/of-*")] == ["of-7.2.13-1"]
    assert {path.name for path in cache.iterdir()} == {"kernel"}


def test_a_guest_of_another_revision_of_the_same_release_is_another_guest(tmp_path: Path) -> None:
    install(tmp_path, RELEASE, f"boot/vmlinuz-{RELEASE}")
    kernel = find_kernel(tmp_path)
    assert kernel is not None
    names = set()
    for version in ("7.2.13-1", "7.2.13-2", "7.2.13-2"):
        kernel.image.write_text(f"#1 SMP Debian {version}")
        names.add(key(kernel, None))
    assert len(names) == 2
    assert all(name.startswith(RELEASE) for name in names)


def install(root: Path, release: str, image: str, lib: str = "lib") -> None:
    """Lay out a kernel as it is installed."""
    for name in (image, f"{lib}/modules/{release}/kernel/fs/f2fs/f2fs.ko.xz"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize("lib", ["lib", "usr/lib"])
@pytest.mark.parametrize("image", ["boot/vmlinuz-{release}", "{lib}/modules/{release}/vmlinuz"])
def test_a_kernel_is_found_wherever_its_package_has_it(tmp_path: Path, lib: str, image: str) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-10-amd64"):
        install(tmp_path, release, image.format(lib=lib, release=release), lib)
    if lib == "usr/lib":
        (tmp_path / "lib").symlink_to("usr/lib")  # as an installed system has it
        assert find_kernel(tmp_path) is not None
        (tmp_path / "lib").unlink()  # as an unpacked package has it
    found = find_kernel(tmp_path)
    assert found is not None
    assert found.release == "6.1.0-10-amd64"
    assert found.image == tmp_path / image.format(lib=lib, release="6.1.0-10-amd64")


def test_the_newest_kernel_is_the_one_of_the_highest_version(tmp_path: Path) -> None:
    """Whatever numbers stand behind the version."""
    for release in ("7.3-amd64", "7.3.4+deb13-amd64", "7.2.13+deb14-amd64", "6.1.0-56-amd64"):
        install(tmp_path, release, f"usr/lib/modules/{release}/vmlinuz", "usr/lib")
    found = find_kernel(tmp_path)
    assert found is not None
    assert found.release == "7.3.4+deb13-amd64"


def test_a_kernel_without_image_or_without_f2fs_is_none(tmp_path: Path) -> None:
    install(tmp_path, "7.1-amd64", "boot/vmlinuz-7.0-amd64")
    (tmp_path / "lib/modules/7.0-amd64").mkdir()
    assert find_kernel(tmp_path) is None


def boot_image(payload: bytes) -> bytes:
    """A bzImage as far as its header tells where the payload lies; other packings' magic stands before and behind."""
    decoys = b"\x1f\x8b\x08" + b"\x28\xb5\x2f\xfd" + b"\xfd7zXZ\0"
    setup = bytearray(2 * 512)
    setup[0x1F1] = 1  # sectors of the setup, beside the first
    struct.pack_into("<4sH", setup, 0x202, b"HdrS", 0x20F)
    struct.pack_into("<II", setup, 0x248, len(decoys), len(payload))
    return bytes(setup) + decoys + payload + decoys


@pytest.mark.parametrize("pack", [lzma.compress, zstandard.compress, gzip.compress], ids=["xz", "zstd", "gzip"])
def test_a_kernel_is_unpacked_whatever_it_is_packed_with(pack: Callable[[bytes], bytes]) -> None:
    """The length of what is unpacked follows, as the kernel has it."""
    vmlinux = b"\x7fELF" + random.Random(1).randbytes(50_000)
    packed = pack(vmlinux)
    assert unpack_kernel(boot_image(packed + struct.pack("<I", len(vmlinux)))) == vmlinux
    torn = boot_image(packed[: len(packed) // 2])
    assert unpack_kernel(torn) == torn


def test_an_image_that_can_not_be_unpacked_is_taken_as_it_is() -> None:
    for image in (b"", b"\x7fELF" + bytes(2000), boot_image(b"packed otherwise"), boot_image(b"")):
        assert unpack_kernel(image) == image
