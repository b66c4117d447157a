"""Programs that call the C tools, with ours in their place: they notice nothing, and what comes out is sound."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import f2tools
from tests import judges
from tests.compat.programs import MIB, TIMEOUT, blank, linked, tree
from tests.mkfs.from_tools import tree_of


@pytest.fixture(scope="session")
def ours_first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which mkfs.f2fs and the others are ours."""
    return linked(tmp_path_factory.mktemp("links"))


def run(environment: dict[str, str], *command: object, cwd: Path, wanted: int = 0, answer: str = "") -> str:
    """Run a program; what it said."""
    done = subprocess.run(
        [*map(str, command)], env=environment, cwd=cwd, capture_output=True, text=True, input=answer, timeout=TIMEOUT
    )
    assert done.returncode == wanted, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def names(image: Path | str) -> set[str]:
    return set(tree_of(Path(image))["entries"])


ALL = {".", "empty", "small", "system", "system/bin", "system/bin/ash", "system/bin/bash", "system/bin/sh",
       "system/lib", "system/lib/libc.so", "text.txt"}  # fmt: skip


def test_genimage_makes_an_f2fs_image(ours_first: dict[str, str], tmp_path: Path) -> None:
    program = judges.need_tool("genimage")
    tree(tmp_path / "root")
    (tmp_path / "in").mkdir()
    (tmp_path / "config").write_text(
        'image root.f2fs {\n name = "x"\n mountpoint = "/"\n size = 64M\n f2fs { label = "ROOT" extraargs = "-O '
        'extra_attr,inode_checksum" }\n}\n'
    )
    places = [word for what in ("root", "input", "output", "tmp")
              for word in (f"--{what}path", tmp_path / {"input": "in", "output": "out"}.get(what, what))]  # fmt: skip
    run(ours_first, program, *places, "--config", tmp_path / "config", cwd=tmp_path)
    assert names(tmp_path / "out/root.f2fs") == ALL
    with f2tools.open(tmp_path / "out/root.f2fs") as volume:
        assert volume.sb.version.startswith(b"f2tools ")
    judges.fsck_clean(tmp_path / "out/root.f2fs")


def test_systemd_repart_formats_a_partition(ours_first: dict[str, str], tmp_path: Path) -> None:
    program = judges.need_tool("systemd-repart")
    if not os.access("/dev/loop-control", os.W_OK):
        pytest.skip("no loop device to be had here; not tried: whether systemd-repart formats with our mkfs.f2fs")
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs/10.conf").write_text(
        "[Partition]\nType=linux-generic\nFormat=f2fs\nLabel=data\nSizeMinBytes=64M\nSizeMaxBytes=64M\n"
    )
    image = tmp_path / "disk"
    run(ours_first, program, "--definitions", tmp_path / "defs", "--empty=create", "--size=80M", "--dry-run=no", image,
        cwd=tmp_path)  # fmt: skip
    with f2tools.open(f"{image}@1") as volume:
        assert volume.sb.version.startswith(b"f2tools ")
        assert volume.sb.volume_name.decode("utf-16-le").rstrip("\0") == "data"


def test_the_calls_of_buildroot_nixos_and_mkosi(ours_first: dict[str, str], tmp_path: Path) -> None:
    tree(tmp_path / "target")
    features = "extra_attr,inode_checksum,sb_checksum,compression,flexible_inline_xattr,lost_found"
    uuid = "11111111-2222-3333-4444-555555555555"
    for number, command in enumerate((
        ("mkfs.f2fs", "-f", "-l", ""),  # fs/f2fs/f2fs.mk of Buildroot
        ("mkfs.f2fs", "-f", "-l", "NIXOS_SD", "-O", features),  # sd images of NixOS
        ("mkfs.f2fs", "-g", "-f", "-l", "root", "-U", uuid, "-t", "0"),  # make_filesystem() of systemd; mkosi's too
        ("mkfs.f2fs", "-f", "-l", "userdata", "-a", "0"),
    )):  # fmt: skip
        image = blank(tmp_path / f"{number}.img")
        run(ours_first, *command, image, cwd=tmp_path)
        run(ours_first, "sload.f2fs", "-f", "target", image, cwd=tmp_path)
        run(ours_first, "fsck.f2fs", "-f", image, cwd=tmp_path)
        assert names(image) - {"lost+found"} == ALL
        judges.fsck_clean(image)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_calls_of_androids_mkf2fsuserimg(sparse: bool, ours_first: dict[str, str], tmp_path: Path) -> None:
    """A read-only image is made twice: large, to learn how large it must be, and then in that size."""
    tree(tmp_path / "src")
    (tmp_path / "contexts").write_text("/system(/.*)? u:object_r:system_file:s0\n")
    lines = ["system/ 0 0 755", *(f"system/{path} 0 2000 {0o755:o}" for path in sorted(ALL - {"."}))]
    (tmp_path / "fs_config").write_text("\n".join(lines))
    image, size = tmp_path / "out.img", 256 * MIB
    load = ["-C", "fs_config", "-f", "src", "-p", "out", "-s", "contexts", "-t", "/system", "-T", "1230768000", "-c"]
    for _ in range(2):
        if sparse:
            image.unlink(missing_ok=True)
            image.touch()
        else:
            blank(image, size)
        more = ["-S", str(size)] if sparse else []
        run(ours_first, "make_f2fs", "-g", "android", *more, "-l", "system", "-O", "compression,extra_attr", "-O", "ro",
            image, cwd=tmp_path)  # fmt: skip
        said = run(ours_first, "sload_f2fs", *more[:1], *load, image, cwd=tmp_path)
        most = next(line for line in said.splitlines() if "Max image size" in line).split()[4]
        size = (int(most) + 6) * MIB
    assert size < 64 * MIB
    assert names(image) == ALL
    with f2tools.open(image) as volume:
        assert volume.device.size_bytes == size
        shell = volume.path("/system/bin/sh")
        assert (shell.inode.i_gid, shell.inode.i_mtime) == (2000, 1230768000)
        assert shell.xattrs()["security.selinux"].startswith(b"u:object_r:system_file:s0")
        assert volume.path("/text.txt").inode.compressed
        assert volume.geo.feature & 0x4000  # ro
    block_map = run(ours_first, "fsck.f2fs", *(["-S"] if sparse else []), "-M", image, cwd=tmp_path)
    assert sorted(line.split()[0] for line in block_map.splitlines()) == [
        "/small", "/system/bin/ash", "/system/bin/sh", "/system/lib/libc.so", "/text.txt"
    ]  # fmt: skip


def test_fsck_of_an_fstab_finds_ours(ours_first: dict[str, str], tmp_path: Path) -> None:
    program = judges.need_tool("fsck")
    image = blank(tmp_path / "image")
    run(ours_first, "mkfs.f2fs", "-q", image, cwd=tmp_path)
    for kind in ("f2fs", "f2tools", "fuse.f2tools"):
        said = run(ours_first, program, "-a", "-M", "-T", "-l", "-t", kind, image, cwd=tmp_path)
        assert "Ok.." in said or "sound" in said, said
    shutil.copy(image, tmp_path / "other")
    with (tmp_path / "other").open("r+b") as file:
        file.seek(1024)
        file.write(bytes(64))
    run(ours_first, "fsck.f2tools", "-n", tmp_path / "other", cwd=tmp_path, wanted=4)
    run(ours_first, "fsck.f2tools", "-a", "-C5", tmp_path / "other", cwd=tmp_path, wanted=1)
    run(ours_first, "fsck.f2tools", tmp_path / "none", cwd=tmp_path, wanted=8)


def test_what_partition_editors_read_of_dump_and_label(ours_first: dict[str, str], tmp_path: Path) -> None:
    image = blank(tmp_path / "image")
    run(ours_first, "mkfs.f2fs", "-q", "-l", "CARD", image, cwd=tmp_path)
    said = run(ours_first, "dump.f2fs", "-d", "1", image, cwd=tmp_path)
    for begins in ("user_block_count ", "valid_block_count ", "log_blocksize ", "Info: sector size = ",
                   "Info: total FS sectors = ", "Info: superblock features = "):  # fmt: skip
        assert any(line.startswith(begins) for line in said.splitlines()), begins
    with image.open("r+b") as file:
        file.truncate(128 * MIB)
    run(ours_first, "resize.f2fs", image, cwd=tmp_path)
    assert "131072 KB" in f"{judges.superblock_fields(image)['block_count'] * 4} KB"  # type: ignore[operator]
    assert "volume label = CARD" in run(ours_first, "f2fslabel", image, cwd=tmp_path)


def test_links_are_made_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/sload.f2fs").write_text("somebody's own")
    done = subprocess.run(["f2tools", "links", tmp_path / "links"], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1
    assert "--force replaces it" in done.stderr
    assert os.listdir(tmp_path / "links") == ["sload.f2fs"]
    for _ in range(2):
        done = subprocess.run(["f2tools", "links", "--force", tmp_path / "links"], capture_output=True, timeout=TIMEOUT)
        assert done.returncode == 0
    assert (tmp_path / "links/sload.f2fs").is_symlink()
