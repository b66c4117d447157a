"""Extraction: the tree in the target is the tree in the image, and nothing is ever outside the target."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.copyout import extract as module
from f2tools.copyout import piece
from f2tools.copyout.extract import TargetFull, extract
from f2tools.copyout.keep import ALL, Keep
from f2tools.f2fs.layout.nat import NatEntry
from tests import images
from tests.dump.craft import copy_of, f2, host_tree, inode_offset, poke, rename, set_ino
from tests.f2fs.write.volumes import fresh, writable

ROOT = os.geteuid() == 0
ROOT_INO = 3
WHOLE = (
    "plain",
    "features",
    "compress-lz4",
    "compress-zstd",
    "casefold",
    "noinline",
    "fragmented",
    "multi-device",
    "phone",
)


def extracted(case: images.Reference, target: Path, *paths: str, keep: Keep = ALL, **options: Any) -> Any:
    """A faithful copy unless said otherwise."""
    with f2tools.open(case.path, case.extra) as volume:
        return extract(volume, target, paths, keep=keep, **options)


@pytest.mark.parametrize("name", WHOLE)
def test_the_tree_in_the_target_is_the_tree_in_the_image(name: str, tmp_path: Path) -> None:
    case = images.reference(name)
    kernel = case.manifest("manifest-now" if name == "phone" else "manifest")["entries"]
    report = extracted(case, tmp_path / "out")
    assert report.lost == []
    assert report.partial == []
    host = host_tree(tmp_path / "out")
    devices = {p for p, e in kernel.items() if e["type"] in ("char", "block")}
    assert host.keys() == kernel.keys() - (set() if ROOT else devices)
    assert report.devices_not_made == (0 if ROOT else len(devices))
    same_file: dict[int, set[Any]] = defaultdict(set)
    keys = {"type", "mode", "size", "mtime_ns", "sha256", "target", "rdev"} | ({"uid", "gid"} if ROOT else set())
    for path, entry in host.items():
        expected = kernel[path]
        for key in keys & entry.keys() & expected.keys():
            if not (key == "mode" and expected["type"] == "symlink") and not (key == "mode" and not ROOT):
                assert entry[key] == expected[key], (path, key)
        if "host_key" in entry and expected["nlink"] > 1:
            same_file[expected["ino"]].add(entry["host_key"])
    assert all(len(keys) == 1 for keys in same_file.values()), "hard links are hard links"
    assert len(same_file) == len({key for keys in same_file.values() for key in keys})


def test_holes_stay_holes(tmp_path: Path) -> None:
    case = images.reference("plain")
    extracted(case, tmp_path / "out", "sparse")
    host = host_tree(tmp_path / "out")
    sparse = {
        path: e for path, e in case.manifest()["entries"].items() if path.startswith("sparse/") and e.get("segments")
    }
    assert sparse
    for path, entry in sparse.items():
        written = sum(-(-length // 4096) * 8 for _, length in entry["segments"])
        assert host[path]["host_blocks"] <= written + 64, path
        assert host[path]["size"] == entry["size"]


def test_user_attributes_are_set_or_counted(tmp_path: Path) -> None:
    case = images.reference("plain")
    report = extracted(case, tmp_path / "out", "xattr")
    missing = 0
    for path, entry in case.manifest()["entries"].items():
        if not path.startswith("xattr") or entry["type"] == "symlink":
            continue
        for name, value in entry.get("xattrs", {}).items():
            try:
                assert os.getxattr(os.fsencode(tmp_path / "out" / path), name).hex() == value
            except OSError:
                missing += 1
    assert missing <= sum(report.xattrs_not_set.values())


def test_paths_take_only_what_is_below_them(tmp_path: Path) -> None:
    case = images.reference("plain")
    names = case.manifest()["entries"]
    report = extracted(case, tmp_path / "out", "links", "small")
    assert report.complete
    got = host_tree(tmp_path / "out").keys()
    wanted = {p for p, e in names.items() if p.split("/")[0] in ("links", "small") or p == "."}
    devices = {p for p, e in names.items() if e["type"] in ("char", "block")}
    assert got == wanted - (set() if ROOT else devices)


def test_an_inode_number_is_put_under_its_own_name(tmp_path: Path) -> None:
    case = images.reference("plain")
    entry = case.manifest()["entries"]["small"]
    result = f2("dump", "extract", "--all", case.path, f"ino:{entry['ino']}", "-o", tmp_path / "out")
    assert result.code == 0, result.err
    assert host_tree(tmp_path / "out").keys() == {"."} | {
        p for p in case.manifest()["entries"] if p.split("/")[0] == "small"
    }


def test_excluded_patterns_are_left_out(tmp_path: Path) -> None:
    case = images.reference("plain")
    report = extracted(case, tmp_path / "out", exclude=["links", "xattr/*"])
    got = host_tree(tmp_path / "out").keys()
    assert "links" not in got
    assert "xattr" in got
    assert not [p for p in got if p.startswith("xattr/")]
    assert report.excluded > 1


def test_existing_files_are_kept_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    case = images.reference("base")
    names = [p for p, e in case.manifest()["entries"].items() if e["type"] == "file" and e["nlink"] == 1]
    target = tmp_path / "out"
    mine = target / names[0]
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (target / "keep").write_text("not in the image")
    report = extracted(case, target)
    assert mine.read_text() == "mine"
    assert [item.path.decode() for item in report.lost] == ["/" + names[0]]
    assert "--force" in report.lost[0].reason
    report = extracted(case, target, force=True)
    assert report.complete
    assert host_tree(target)[names[0]]["sha256"] == case.manifest()["entries"][names[0]]["sha256"]
    assert (target / "keep").read_text() == "not in the image"


@pytest.mark.parametrize("force", [False, True])
def test_a_symbolic_link_in_the_target_is_never_followed(tmp_path: Path, force: bool) -> None:
    case = images.reference("base")
    entries = case.manifest()["entries"]
    directory = next(p for p, e in entries.items() if e["type"] == "dir" and p != "." and "/" not in p)
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "out"
    target.mkdir()
    (target / directory).symlink_to(outside)
    report = extracted(case, target, force=force)
    assert os.listdir(outside) == []
    assert report.complete == force
    assert (target / directory).is_symlink() != force


HOSTILE = [b"../../../../evil", b"..", b".", b"/tmp/f2-evil", b"a/b", b"a\0b", b"../x"]


@pytest.mark.parametrize("evil", HOSTILE)
@pytest.mark.parametrize("directory", [False, True])
def test_a_hostile_name_stays_inside_and_is_reported(tmp_path: Path, evil: bytes, directory: bool) -> None:
    case = copy_of("base", tmp_path / "image")
    entries = case.manifest()["entries"]
    name = max(
        (p for p, e in entries.items() if (e["type"] == "dir") == directory and p != "."),
        key=lambda p: len(os.path.basename(os.fsencode(p))),
    )
    old = os.path.basename(os.fsencode(name))
    if -(-len(evil) // 8) > -(-len(old) // 8):
        evil = evil[: -(-len(old) // 8) * 8]
    rename(case.path, os.path.dirname(name) or "/", old, evil)
    target = tmp_path / "deep" / "er" / "out"
    target.parent.mkdir(parents=True)
    result = f2("dump", "extract", case.path, "-o", target)
    assert result.code == 1, result.err
    assert "slash or a NUL" in result.err or "is named" in result.err
    assert sorted(os.listdir(tmp_path)) == ["deep", "image"]
    assert os.listdir(tmp_path / "deep") == ["er"]
    assert os.listdir(tmp_path / "deep" / "er") == ["out"]
    assert not os.path.exists("/tmp/f2-evil")
    for command in (["tar"], ["manifest"], ["ls", "-R"], ["tree"], ["verify"]):
        assert f2("dump", command[0], case.path, *command[1:]).code in (0, 1)


def test_a_symbolic_link_planted_by_the_image_is_not_followed(tmp_path: Path) -> None:
    """A link and a directory of one name: whichever comes first, nothing goes through the link."""
    case = copy_of("plain", tmp_path / "image")
    outside = tmp_path / "outside"
    outside.mkdir()
    entries = case.manifest()["entries"]
    link = next(p for p, e in entries.items() if e["type"] == "symlink" and e["size"] > 40 and p.startswith("links/"))
    at = inode_offset(case.path, link)
    target = os.fsencode(outside)
    with f2tools.open(case.path) as volume:
        inode = volume.path(link, follow=False).inode
        assert inode.has_inline_data
        at += 360 + inode.extra_isize + 4
    poke(case.path, at, target + bytes(inode.i_size - len(target)) if inode.i_size > len(target) else target)
    poke(case.path, inode_offset(case.path, link) + 16, len(target).to_bytes(8, "little"))
    with f2tools.open(case.path) as volume:
        small, found = volume.path("small").inode, volume.path(link, follow=False).inode
    set_ino(case.path, "/", b"sparse", found.ino)  # a link in the root,
    rename(case.path, "/", b"sparse", b"small")  # of the name of a directory
    result = f2("dump", "extract", "--force", case.path, "-o", tmp_path / "out")
    assert result.code == 1
    assert os.listdir(outside) == []
    assert small.is_dir


def test_a_directory_that_holds_itself_ends(tmp_path: Path) -> None:
    case = copy_of("plain", tmp_path / "image")
    with f2tools.open(case.path) as volume:
        links = volume.path("links").inode.ino
    child = next(p for p in case.manifest()["entries"] if p.startswith("links/"))
    set_ino(case.path, "links", os.path.basename(os.fsencode(child)), links)
    result = f2("dump", "extract", case.path, "-o", tmp_path / "out")
    assert result.code == 1
    assert "second place" in result.err
    for command in (["tar"], ["manifest"], ["ls", "-R"], ["tree"], ["verify"]):
        assert f2("dump", command[0], case.path, *command[1:]).code == 1, command


def test_two_entries_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    case = copy_of("base", tmp_path / "image")
    entries = case.manifest()["entries"]
    files = [p for p, e in entries.items() if e["type"] == "file"]
    one, two = next(
        (a, b)
        for a in files
        for b in files
        if a != b
        and os.path.dirname(a) == os.path.dirname(b)
        and len(os.fsencode(os.path.basename(a))) == len(os.fsencode(os.path.basename(b)))
    )
    rename(
        case.path, os.path.dirname(one) or "/", os.fsencode(os.path.basename(two)), os.fsencode(os.path.basename(one))
    )
    for index, force in enumerate([False, True]):
        report = extracted(case, tmp_path / f"out{index}", force=force)
        assert [item.path.decode() for item in report.lost] == ["/" + one]
        assert host_tree(tmp_path / f"out{index}")[one]["sha256"] in (entries[one]["sha256"], entries[two]["sha256"])


def test_what_can_be_read_of_a_damaged_file_is_kept(tmp_path: Path) -> None:
    """A bad address in the middle: the rest is there, the gap is a hole, and it is said."""
    case = copy_of("base", tmp_path / "image")
    entries = case.manifest()["entries"]
    name = next(
        p
        for p, e in entries.items()
        if e["type"] == "file" and e["nlink"] == 1 and "segments" not in e and 5 * 4096 < e["size"] < 64 * 4096
    )
    with f2tools.open(case.path) as volume:
        whole = volume.path(name).read()
        extra = volume.path(name).inode.extra_isize
    poke(case.path, inode_offset(case.path, name) + 360 + extra + 4 * 2, (0xFFFFFFF0).to_bytes(4, "little"))
    result = f2("dump", "extract", "--json", case.path, "-o", tmp_path / "out")
    assert result.code == 1
    report = json.loads(result.out)
    assert [item["path"] for item in report["partial"]] == ["/" + name]
    assert "outside the main area" in report["partial"][0]["reason"]
    assert (tmp_path / "out" / name).read_bytes() == whole[: 2 * 4096] + bytes(4096) + whole[3 * 4096 :]


def test_a_lost_direct_node_costs_only_what_it_maps(tmp_path: Path) -> None:
    case = copy_of("plain", tmp_path / "image")
    entries = case.manifest()["entries"]
    name = next(p for p, e in entries.items() if e["type"] == "file" and 6 << 20 < e["size"] < 32 << 20)
    with f2tools.open(case.path) as volume:
        inode = volume.path(name).inode
        whole, first, per = volume.path(name).read(), inode.addrs_per_inode * 4096, inode.addrs_per_block * 4096
        nid = int(inode.nids[0])
        at = volume.nodes.address(nid) * 4096
    poke(case.path, at + 4096 - 24, (nid + 1).to_bytes(4, "little"))
    report = extracted(case, tmp_path / "out", name)
    assert [item.path.decode() for item in report.partial] == ["/" + name]
    got = (tmp_path / "out" / name).read_bytes()
    assert len(got) == len(whole)
    assert got[:first] == whole[:first]
    assert got[first + per + per :] == whole[first + per + per :]


def test_an_image_that_is_cut_off_gives_what_is_left(tmp_path: Path) -> None:
    case = copy_of("plain", tmp_path / "image")
    os.truncate(case.path, 40 << 20)
    report = extracted(case, tmp_path / "out")
    assert report.files > 0
    assert report.lost or report.partial
    entries = case.manifest()["entries"]
    bad = {item.path.decode("utf-8", "surrogateescape").lstrip("/") for item in report.lost + report.partial}
    for path, entry in host_tree(tmp_path / "out").items():
        if "sha256" in entry and path not in bad:
            assert entry["sha256"] == entries[path]["sha256"], path


def test_what_is_not_extracted_is_named_by_its_path_on_the_host(tmp_path: Path) -> None:
    image, out = fresh(tmp_path), tmp_path / "out"
    assert f2("edit", image, "-c", "mkdir /d", "-c", "touch /d/x").code == 0
    (out / "d").mkdir(parents=True)
    (out / "d" / "x").touch()
    result = f2("dump", "extract", image, "-o", out)
    assert (result.code, f"f2tools: not copied: {out}/d/x: something of that name" in result.err) == (1, True)


def test_a_full_target_ends_the_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    write = os.write

    def full(fd: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(TargetFull, match=f"^{tmp_path}/out/[^/].*: No space left"):
        extracted(images.reference("base"), tmp_path / "out")
    assert calls == 4
    assert TargetFull.exit_code == 1


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_file_that_was_cut_short_is_not_left_behind(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "in" / name).write_bytes(os.urandom(3_000_000))
    image = fresh(tmp_path)
    assert f2("cp", "-r", tmp_path / "in", f"{image}:/d").code == 0
    pwrite, written = os.pwrite, 0

    def cut_short(fd: int, data: Any, offset: int) -> int:
        nonlocal written
        written += len(data)
        if written > 4_000_000:
            raise error
        return pwrite(fd, data, offset)

    out = tmp_path / "out"
    with f2tools.open(image) as volume, monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", cut_short)
        patch.setattr(volume.device, "extent_source", lambda offset, length: None)
        with pytest.raises((TargetFull, KeyboardInterrupt)):
            extract(volume, out)
    left = os.listdir(out / "d")
    assert 0 < len(left) < 3
    for name in left:
        assert (out / "d" / name).read_bytes() == (tmp_path / "in" / name).read_bytes()


def test_encrypted_files_are_reported_and_the_rest_is_copied(tmp_path: Path) -> None:
    case = images.reference("fscrypt")
    report = extracted(case, tmp_path / "out")
    encrypted = [e for e in case.manifest("manifest-nokey")["entries"].values() if "open_error" in e]
    assert len([item for item in report.lost if "the content is encrypted" in item.reason]) == len(encrypted)
    assert report.directories > 10


def utime_of_32_bits(at: Any, ns: tuple[int, int], utime: Any = os.utime) -> None:
    most = (1 << 31) * 1_000_000_000
    atime_ns, mtime_ns = (min(max(time, -most), most - 1) for time in ns)
    utime(at, ns=(atime_ns, mtime_ns))


@pytest.mark.parametrize("core", [True, False], ids=["core", "alone"])
def test_times_that_the_target_can_not_hold_are_counted(
    core: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, second = fresh(tmp_path), 1_000_000_000
    times = [0, 5, -5 * second, 1 << 31, -9_000_000_000 * second, 9_000_000_000 * second, 20_000_000_000 * second]
    with writable(image) as volume:
        for number, time in enumerate(times):
            volume.set_times(volume.create(ROOT_INO, b"%d" % number, 0o100644), time, time)
            volume.set_times(volume.symlink(ROOT_INO, b"link%d" % number, b"there"), 0, time)
            volume.set_times(volume.mkdir(ROOT_INO, b"dir%d" % number, 0o755), 0, time)
    if not core:  # as on a target that holds what 32 bits hold
        monkeypatch.setattr(piece, "core", None)
        monkeypatch.setattr(os, "utime", utime_of_32_bits)
    with f2tools.open(image) as volume:
        report = extract(volume, tmp_path / "out", keep=ALL)
    changed = 0
    for number, time in enumerate(times):
        for name in (f"{number}", f"link{number}", f"dir{number}"):
            changed += os.lstat(tmp_path / "out" / name).st_mtime_ns != time
    assert changed >= (0 if core else 9)
    assert report.times_not_set == changed
    said = f"{changed} have other times than in the image, which the target can't hold"
    assert (said in f2("dump", "extract", image, "-o", tmp_path / "again").text) == (changed > 0)


def test_set_user_id_does_not_survive_a_change_of_owner(tmp_path: Path) -> None:
    case = copy_of("base", tmp_path / "image")
    entries = case.manifest()["entries"]
    name = next(p for p, e in entries.items() if e["type"] == "file" and e["nlink"] == 1 and "xattrs" not in e)
    at = inode_offset(case.path, name)
    poke(case.path, at, (stat.S_IFREG | 0o6755).to_bytes(2, "little"))
    poke(case.path, at + 4, (12345).to_bytes(4, "little"))
    report = extracted(case, tmp_path / "out", keep=Keep(special_bits=True, modes=True))
    assert stat.S_IMODE(os.lstat(tmp_path / "out" / name).st_mode) == 0o755
    assert report.set_ids_dropped == 1
    if ROOT:
        extracted(case, tmp_path / "mine")
        status = os.lstat(tmp_path / "mine" / name)
        assert stat.S_IMODE(status.st_mode) == 0o6755
        assert status.st_uid == 12345


def test_a_tree_a_thousand_deep_is_copied(tmp_path: Path) -> None:
    """More levels than directories are kept open, and than Python may recurse."""
    case = images.reference("base")
    with f2tools.open(case.path) as volume:
        run = module._Run(volume, str(tmp_path / "out"), ALL, False, (), None)
        top = run._open_target(whole=True)
        top.todo = []
        run.stack.append(top)
        directory = next(e.inode for e in volume.listdir(volume.root.inode) if getattr(e.inode, "is_dir", False))
        for _ in range(1500):
            run._enter(run.stack[-1], b"d" * 20, directory.ino)
            run.stack[-1].todo = []
        deepest = os.fstat(run.stack[-1].fd).st_ino
        while run.stack:
            run._leave()
        run.close()
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    for _ in range(1500):
        below = os.open(b"d" * 20, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    assert os.fstat(fd).st_ino == deepest
    assert os.fstat(fd).st_mtime_ns == directory.mtime_ns
    os.close(fd)
    remove_deep(tmp_path / "out")


def remove_deep(top: Path) -> None:
    """pytest's own clean-up is recursive."""
    while True:
        names = os.listdir(top)
        if not names:
            return
        inner = top / names[0]
        for name in os.listdir(inner):
            os.rename(inner / name, top / "next")
        os.rmdir(inner)
        if (top / "next").exists():
            os.rename(top / "next", inner)


@pytest.mark.parametrize("name", images.DAMAGED)
def test_a_damaged_image_is_read_as_far_as_it_goes(name: str, tmp_path: Path) -> None:
    case = images.damaged(name, tmp_path / "image")
    for command in (["extract", "-o", tmp_path / "out"], ["manifest"], ["tar"], ["ls", "-Rl"], ["tree"], ["verify"]):
        result = f2("dump", command[0], case.path, *command[1:])
        assert result.code in (0, 1, 8), (command, result.err)
        assert "Traceback" not in result.err


# -- what to do about what is lost ------------------------------------------------------------------------------------


def without_a_nat_block(tmp_path: Path) -> Path:
    """An image of whose node address table one block is lost, but for what the kernel keeps for itself."""
    image = images.reference("plain").copy(tmp_path).path
    with f2tools.open(image) as volume:
        start = int(volume.nat.blkaddrs[0]) * volume.geo.block_size
    with image.open("r+b") as file:
        file.seek(start + 4 * NatEntry.size)
        file.write(bytes(4096 - 4 * NatEntry.size))
    return image


def test_whoever_reads_a_volume_that_lost_nodes_is_told_how_to_have_them_yet(tmp_path: Path) -> None:
    image = without_a_nat_block(tmp_path)
    salvage = f"`f2tools fsck --salvage DIR {image}`"
    commands = [
        ("dump", "extract", image, "-o", tmp_path / "out"), ("dump", "ls", "-R", image), ("dump", "tree", image),
        ("dump", "tar", image, "-o", tmp_path / "all.tar"), ("dump", "manifest", image, "-o", tmp_path / "all.json"),
        ("dump", "cat", image, "/bigdir/entry-00034"), ("cp", "-r", f"{image}:/.", tmp_path / "copy"),
    ]  # fmt: skip
    for words in commands:
        done = f2(*words)
        assert done.code == 1, words
        assert done.err.count(salvage) == 1, words
        assert f"`f2tools doctor {image}`" in done.err, words
    assert salvage not in f2("dump", "ls", image, "/nothing").err
    f2("fsck", "--salvage", tmp_path / "salvaged", image)
    found = sum(len(files) for _, _, files in os.walk(tmp_path / "salvaged/files"))
    assert found > 5 * sum(len(files) for _, _, files in os.walk(tmp_path / "out"))


def test_where_only_the_target_is_in_the_way_the_image_is_not_blamed(tmp_path: Path) -> None:
    image = images.reference("plain").path
    assert f2("dump", "extract", image, "/names", "-o", tmp_path / "out").code == 0
    again = f2("dump", "extract", image, "/names", "-o", tmp_path / "out")
    assert again.code == 1
    assert "--salvage" not in again.err
    locked = f2("dump", "extract", images.reference("fscrypt").path, "-o", tmp_path / "locked")
    assert locked.code == 1
    assert "there is no key" in locked.err
    assert "--salvage" not in locked.err
