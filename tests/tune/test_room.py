"""Features whose fields lie in the extra attributes, switched on where inodes were made with less room than they need.

fsck.f2fs takes checksum and project from where they would be, whatever i_extra_isize says, and its repair writes there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.f2fs.layout.constants import F2FS_EXTRA_ATTR, F2FS_INLINE_DATA, F2FS_INLINE_DENTRY
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.tune.cli import tune
from f2tools.tune.tune import Refused, TuneRequest, apply, plan
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.f2fs.write.volumes import fresh, writable
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet
from tests.tune.test_kernel import SCRIPT
from tests.tune.test_tune import EXTRA, ROOT_INO, both_copies, features, manifest_of, report, run, sound, tree

MADE_WITH = (
    "-O extra_attr", "-O extra_attr,quota", "-O extra_attr,lost_found", "-O extra_attr,project_quota",
    "-O extra_attr,project_quota,quota", "-O extra_attr,flexible_inline_xattr,quota", "-O extra_attr,inode_crtime",
    "-O extra_attr,compression,quota", "-g android",
)  # fmt: skip
SWITCHED = [name for name in EXTRA if name != "flexible_inline_xattr"]


def by_c(directory: Path, options: str, mib: int = 64) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "c.img"
    judges.mkfs(path, *options.split(), size=mib << 20)
    return path


def by_us(directory: Path, options: str) -> Path:
    return fresh(directory, f"--size 64M {options}")


def with_files(path: Path) -> Path:
    with writable(path) as volume:
        top = volume.mkdir(ROOT_INO, b"d", 0o755)
        for parent, name, size in ((ROOT_INO, b"in-root", 20), (top, b"small", 200), (top, b"large", 70000)):
            volume.write(volume.create(parent, name, 0o644), 0, name * (size // len(name)))
    return path


@pytest.mark.peer
@pytest.mark.parametrize("maker", [by_us, by_c])
@pytest.mark.parametrize("options", MADE_WITH)
def test_fsck_f2fs_finds_no_fault_after_a_switch(options: str, maker: Any, tmp_path: Path) -> None:
    base = with_files(maker(tmp_path, options))
    before, had = tree(base), features(base)
    off = [name for name in SWITCHED if name not in had]
    for names in [*off, ",".join(off)]:
        path = images.copy_sparse(base, tmp_path / "copy")
        run(tune, path, "-O", names)
        assert features(path) == had | set(names.split(",")), names
        both_copies(path)
        assert tree(path) == before, names
        sound(path)
        with writable(path) as volume:
            volume.write(volume.create(ROOT_INO, b"later", 0o644), 0, b"later")
        sound(path)


@pytest.mark.peer
def test_what_sload_f2fs_put_there_gets_room_too(tmp_path: Path) -> None:
    path = by_c(tmp_path, "-O extra_attr,quota")
    loaded(path, tmp_path, 300000)
    before = tree(path)
    run(tune, path, "-O", "inode_checksum,project_quota")
    assert tree(path) == before
    sound(path)


@pytest.mark.peer
def test_a_file_that_fills_its_room_and_further_nodes_is_in_the_way(tmp_path: Path) -> None:
    path = by_c(tmp_path, "-O extra_attr", 256)
    loaded(path, tmp_path, 5 << 20)
    assert report(tune, path)["switches"]["inode_checksum"]["stays_because"].startswith("1 inodes")
    before = path.read_bytes()
    with pytest.raises(Refused, match="1 inodes have no room for a checksum"):
        run(tune, path, "-O", "inode_checksum")
    with pytest.raises(Refused, match="no room for a project"):
        run(tune, path, "-O", "project_quota,quota")
    assert path.read_bytes() == before
    run(tune, path, "-O", "project_quota")  # which alone counts nothing
    sound(path)


def loaded(path: Path, directory: Path, size: int) -> None:
    """Put a file of so many bytes, a directory and a link into the volume, by sload.f2fs."""
    source = directory / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/file").write_bytes(bytes(range(1, 251)) * (size // 250))
    (source / "empty").touch()
    (source / "link").symlink_to("sub/file")
    assert judges.run_tool("sload.f2fs", "-f", source, path).rc == 0


@pytest.mark.peer
@pytest.mark.parametrize("name", ["phone", "fscrypt-android", "features", "compress-user", "blocks16k-casefold"])
def test_volumes_of_the_kernel(name: str, tmp_path: Path) -> None:
    """A kernel of today gives its inodes no more room than the features of the volume take, and larger blocks."""
    case = images.reference(name).copy(tmp_path)
    before, had = alike(tree(case.path)), features(case.path)
    run(tune, case.path, "-O", ",".join(one for one in SWITCHED if one not in had))
    assert alike(tree(case.path)) == before
    if name.startswith("blocks16k"):
        with open_volume(case.path) as volume:
            assert_consistent(volume)
        assert f2("fsck", case.path).code == 0
    else:
        sound(case.path)


def alike(entries: dict[str, Any]) -> dict[str, Any]:
    """Without what content says that moves out of its inode: blocks and their number, the size of a directory."""
    gone = ("blocks", "flags", "size")
    return {name: {k: v for k, v in entry.items() if k not in gone} for name, entry in entries.items()}


# -- content in the inode -----------------------------------------------------------------------------------------


def narrowed(volume: WritableVolume, inode: LiveInode, size: int = 4) -> None:
    """Let an inode whose content can move up have less room, as an older kernel makes it."""
    old = inode.extra_isize
    start, end = (
        INODE_ADDR_OFFSET + size,
        INODE_ADDR_OFFSET + 4 * (inode.geo.addrs_per_inode - inode.inline_xattr_addrs),
    )
    content = inode.block[INODE_ADDR_OFFSET + old : end].copy()
    inode.block[start:end] = 0
    inode.block[start : start + content.size] = content
    inode.set(i_extra_isize=size)
    volume.nodes.touch(inode)


@pytest.mark.peer
def test_content_in_the_inode_moves_within_it_or_out_of_it(tmp_path: Path) -> None:
    path = fresh(tmp_path, "--size 64M -O extra_attr,quota")
    with writable(path) as volume:
        little, much = (volume.create(ROOT_INO, name, 0o644) for name in (b"little", b"much"))
        folder = volume.mkdir(ROOT_INO, b"folder", 0o755)
        device = volume.create(ROOT_INO, b"null", 0o020666, rdev=(1, 3))
        link = volume.symlink(ROOT_INO, b"link", b"folder/0")
        for number in range(20):
            volume.create(folder, b"%d" % number, 0o600)
        for ino in (folder, little, much, device, link):
            if ino == folder:
                volume.names.leave_inode(volume.live(folder))
                volume.files.write_back_all()
            narrowed(volume, volume.live(ino))
        volume.write(little, 0, b"little")
        volume.write(much, 0, b"m" * (volume.live(much).inline_area.size))
        volume.setxattr(much, "user.name", b"value")
        empty = volume.mkdir(ROOT_INO, b"inline", 0o755)
        _narrow_dir(volume, volume.live(empty))
        volume.create(empty, b"inside", 0o600)
    before = alike(tree(path))
    with open_volume(path) as volume:
        inodes = {name: volume.path(b"/" + name).inode for name in (b"little", b"much", b"inline")}
        assert all(inode.extra_isize == 4 for inode in inodes.values())
        assert inodes[b"much"].i_inline & F2FS_INLINE_DATA
        assert inodes[b"inline"].i_inline & F2FS_INLINE_DENTRY
    run(tune, path, "-O", "inode_checksum,project_quota")
    assert alike(tree(path)) == before
    sound(path)
    with open_volume(path) as volume:
        inodes = {name: volume.path(b"/" + name).inode for name in inodes}
        assert {inode.extra_isize for inode in inodes.values()} == {12}
        assert inodes[b"little"].i_inline & F2FS_INLINE_DATA
        assert not inodes[b"much"].i_inline & F2FS_INLINE_DATA


def _narrow_dir(volume: WritableVolume, inode: LiveInode) -> None:
    """The same for a directory in its inode, whose room says where names lie."""
    inode.inline_area[:] = 0
    inode.set(i_extra_isize=4)
    volume.names.fill_new(inode, ROOT_INO)
    volume.nodes.touch(inode)


# -- power cuts, the kernel ---------------------------------------------------------------------------------------


def test_the_power_may_fail_while_inodes_get_room(tmp_path: Path) -> None:
    base = with_files(fresh(tmp_path, "--size 64M -g android"))
    before = tree(base)
    recorder = Recorder(Overlay(open_device(base)))
    apply(recorder, plan(Volume(recorder), TuneRequest(on=("inode_checksum",))))
    for count in range(0, len(recorder.events) + 1, 2):
        with open_device(base) as below:
            device = Overlay(below)
            recorder.replay(count, device)
            WritableVolume(device).sync()
            with Volume(device) as volume:
                assert manifest_of(volume) == before
                if volume.sb.feature & 0x20:
                    assert all(
                        inode.extra_isize >= 12
                        for inode in map(volume.nodes.inode, (ROOT_INO, 4, 5, 6))
                        if inode.i_inline & F2FS_EXTRA_ATTR
                    )


def test_the_kernel_takes_inodes_with_more_room(guest: Guest, tmp_path: Path) -> None:
    cases = {
        "android": with_files(by_us(tmp_path / "0", "-g android")),
        "c": with_files(by_c(tmp_path / "1", "-g android")),
        "quota": with_files(by_us(tmp_path / "2", "-O extra_attr,quota")),
        "sload": by_c(tmp_path / "3", "-O extra_attr"),
    }  # fmt: skip
    loaded(cases["sload"], tmp_path, 300000)
    for path in cases.values():
        run(tune, path, "-O", ",".join(name for name in SWITCHED if name not in features(path)))
    trees = [tree_of(path) for path in cases.values()]
    result = guest.run(SCRIPT, list(cases.values()), timeout=600).must_succeed()
    assert_quiet(result)
    for number, (name, path) in enumerate(cases.items()):
        assert_as_the_kernel(trees[number], result.json(f"{number}.json"), name)
        judges.fsck_clean(path)
