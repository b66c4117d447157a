"""`mkfs --from`: the volume holds the tree of the source, in the smallest size if asked for, or there is no image."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shlex
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.write.bulk import together
from f2tools.mkfs import populate as populating
from tests import judges
from tests.dump.craft import f2
from tests.mkfs.from_tools import directory_of, facts, same_bytes, tree_of
from tests.mkfs.source_tools import populate, run
from tests.mkfs.tools import f2mkfs

CASES = [
    "",
    "-O ro",
    "-O extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr,sb_checksum",
    "-O quota,extra_attr,project_quota,lost_found",
    "-g android",
    "-C utf8",
    "-s 4",
    "-s 2 -z 2",
    "-i",
    "--compress lz4",
    "--compress zstd:3 --compress-log-size 3",
    "--compress lzo --compress-ext txt,bin",
    "--compress zstd --release",
    "-O ro --compress lz4 --release",
    "--sort size",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind, some that compress, one that needs indirect nodes, directories of many blocks."""
    top = populate(tmp_path_factory.mktemp("source") / "tree")
    (top / "zeros.bin").write_bytes(bytes(300_000))
    (top / "text.txt").write_bytes(b"".join(b"line %d of a text\n" % number for number in range(60_000)))
    with (top / "far").open("wb") as file:
        for block in (0, 922, 923, 3000, 5000, 1018 * 3, 1018 * 1018 * 3):  # whole clusters would be fsck.f2fs's end
            file.seek(block * 4096)
            file.write(b"x" * 5000)
    (top / "many").mkdir()
    for number in range(700):
        (top / "many" / f"a rather long name of a file {number}").write_bytes(b"%d" % number)
    (top / "mid.bin").write_bytes(random.Random(1).randbytes(4_500_000))
    for path in top.rglob("*"):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
    return top


def without_own(tree: dict, options: str) -> dict:
    """What of an image comes from the source: the rest of it are the volume's own names."""
    del options
    return {path: entry for path, entry in tree.items() if path != "lost+found"}


def host_facts(directory: Path, tmp_path: Path, options: str) -> dict:
    """The directory as the image should show it."""
    expected = facts(directory_of(directory, tmp_path))
    if "lost_found" in options:
        expected["."]["nlink"] += 1
    if "--compress" in options:  # compressed clusters are shown as holes
        for entry in expected.values():
            entry.pop("segments", None)
            entry.pop("segment_sha256", None)
    return expected


@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize("size", ["auto", "160M"])
def test_the_volume_holds_the_tree(options: str, size: str, directory: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", image, "--size", size, "--from", directory, *shlex.split(options))
    expected = host_facts(directory, tmp_path, options)
    found = without_own(facts(tree_of(image)["entries"]), options)
    assert found.keys() == expected.keys()
    for path, entry in expected.items():
        assert {name: found[path].get(name) for name in entry} == entry, path
    judges.fsck_clean(image)


@pytest.mark.parametrize("options", ["", "-O ro", "-s 4", "--compress zstd --release"])
def test_auto_is_the_smallest_size(options: str, directory: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", image, "--size", "auto", "--from", directory, *shlex.split(options))
    size = image.stat().st_size
    unit = (4 if "-s 4" in options else 1) * 2 << 20
    smaller = tmp_path / "smaller"
    for less in (unit, 3 * unit):
        with pytest.raises(Usage):
            f2mkfs("-q", smaller, "--size", size - less, "--from", directory, *shlex.split(options))
        assert not smaller.exists()


def test_free_room_is_left(directory: Path, tmp_path: Path) -> None:
    for free, wanted in (("25%", None), ("64M", 64 << 20)):
        image = tmp_path / free
        f2mkfs("-q", image, "--size", "auto", "--free", free, "--from", directory)
        with f2tools.open(image) as volume:
            cp = volume.cp
            left = cp.user_block_count - cp.valid_block_count
            assert left * 4096 >= (wanted if wanted is not None else cp.user_block_count * 4096 // 4)


def test_too_small_says_what_is_needed_and_leaves_no_image(directory: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    with pytest.raises(Usage, match=r"does not fit.*needs .* \((\d+) bytes\)") as caught:
        f2mkfs(image, "--size", "50M", "--from", directory)
    assert os.listdir(tmp_path) == []
    size = int(str(caught.value).rpartition("(")[2].split()[0])
    f2mkfs(image, "--size", size, "--from", directory)
    assert image.stat().st_size == size


@pytest.mark.parametrize("options", ["", "-O quota,extra_attr,project_quota", "--compress lz4", "-O ro"])
def test_what_is_there_is_not_lost_to_files_that_do_not_fit(options: str, directory: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", image, "--size", "auto", "--from", directory, *shlex.split(options))
    size = image.stat().st_size
    before = image.read_bytes()
    more = tmp_path / "more"
    run("cp", "-a", directory, more)
    (more / "large").write_bytes(os.urandom(size))
    for rehearse in (["--dry-run"], []):
        with pytest.raises(Usage, match=r"does not fit.*needs .* \((\d+) bytes\)"):
            f2mkfs("-q", "-f", image, "--from", more, *rehearse, *shlex.split(options))
        assert image.read_bytes() == before
    with pytest.raises(Usage, match="does not fit"):
        f2mkfs("-q", "--dry-run", tmp_path / "new", "--size", size, "--from", more, *shlex.split(options))
    f2mkfs("-q", "-f", image, "--from", directory, *shlex.split(options))  # what just fits is not refused
    assert image.read_bytes() == before


def test_the_same_files_give_the_same_bytes(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, archived = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    f2mkfs("-q", first, "--size", "auto", "--from", directory)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    for path in directory.rglob("*"):
        os.stat(path, follow_symlinks=False)
    copy = tmp_path / "copy"
    run("cp", "-a", directory, copy)
    f2mkfs("-q", second, "--size", "auto", "--from", copy)
    assert same_bytes(first, second)
    run("tar", "--xattrs", "--acls", "--sparse", "--format=pax", "-cf", tmp_path / "x.tar", "-C", directory, ".")
    f2mkfs("-q", archived, "--size", "auto", "--from", tmp_path / "x.tar")
    assert facts(tree_of(archived)["entries"]) == facts(tree_of(first)["entries"])


def test_an_archive_on_standard_input_and_what_bsdtar_lists(directory: Path, tmp_path: Path) -> None:
    image, archive = tmp_path / "image", tmp_path / "x.tar"
    subprocess.run(
        f"tar --xattrs --acls --sparse -C {shlex.quote(str(directory))} -c . | zstd -q | "
        f"f2tools mkfs -q {shlex.quote(str(image))} --size auto --from -",
        shell=True,
        check=True,
    )
    f2 = tmp_path / "out.tar"
    run("f2tools", "dump", "tar", image, "-o", f2)
    run("tar", "--xattrs", "--acls", "--sparse", "-C", directory, "-cf", archive, ".")
    bsdtar = judges.need_tool("bsdtar")

    def listed(path: Path) -> list[bytes]:
        # it can't convert the name that is not UTF-8, says so and goes on
        names = subprocess.run(
            [bsdtar, "-tf", str(path)], env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, check=False
        ).stdout.splitlines()
        return sorted(name.removeprefix(b"./").rstrip(b"/") for name in names if name not in (b"./", b"."))

    assert listed(f2) == listed(archive)
    judges.fsck_clean(image)


def test_owners_excludes_and_the_root(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "keep").mkdir(parents=True)
    (top / "keep" / "a.o").write_bytes(b"object")
    (top / "keep" / "a.c").write_bytes(b"source")
    (top / "cache").mkdir()
    (top / "cache" / "x").write_bytes(b"x")
    image, rules = tmp_path / "image", tmp_path / "rules"
    rules.write_text("# a comment\n/cache/*\n")
    f2mkfs(
        "-q", image, "--size", "64M", "--from", top, "--map-owner", "me:4321", "-R", "7:8", "--exclude", "*.o",
        "--exclude-from", rules,
    )  # fmt: skip
    tree = tree_of(image)["entries"]
    assert set(tree) == {".", "keep", "keep/a.c", "cache"}
    assert (tree["."]["uid"], tree["."]["gid"]) == (7, 8)
    assert (tree["keep/a.c"]["uid"], tree["keep/a.c"]["gid"]) == (4321, 4321)


def test_android_labels_and_owners(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "sh").write_bytes(b"#!")
    contexts, config = tmp_path / "contexts", tmp_path / "config"
    contexts.write_text(
        "/system(/.*)? u:object_r:system_file:s0\n/system/bin/sh -- u:object_r:shell_exec:s0\n/system/bin -d <<none>>\n"
    )
    config.write_text("system 0 0 755\nsystem/bin 0 2000 751\nsystem/bin/sh 0 2000 755 capabilities=0xc0\n")
    image = tmp_path / "image"
    f2mkfs(
        "-q", image, "--size", "64M", "--from", top, "--selinux", contexts, "--selinux-mount", "/system",
        "--fs-config", config,
    )  # fmt: skip
    tree = tree_of(image)["entries"]
    label = {path: bytes.fromhex(entry.get("xattrs", {}).get("security.selinux", "")) for path, entry in tree.items()}
    assert label == {".": b"u:object_r:system_file:s0\0", "bin": b"", "bin/sh": b"u:object_r:shell_exec:s0\0"}
    assert (tree["bin"]["mode"], tree["bin"]["gid"]) == ("0751", 2000)
    assert "security.capability" in tree["bin/sh"]["xattrs"]
    judges.fsck_clean(image)


def test_dry_run_says_what_would_be_there(directory: Path, tmp_path: Path) -> None:
    said = f2mkfs(tmp_path / "image", "--size", "auto", "--from", directory, "--dry-run")
    assert "to be filled" in said
    assert "files of" in said
    document = json.loads(f2mkfs(tmp_path / "image", "--size", "auto", "--from", directory, "--dry-run", "--json"))
    assert document["filled"]["names"] == sum(len(d) + len(f) for _, d, f in os.walk(directory))
    assert document["written"] is False
    assert os.listdir(tmp_path) == []


# -- what goes wrong ------------------------------------------------------------------------------------------------


def _grows_while_loaded(monkeypatch: pytest.MonkeyPatch, action: object) -> None:
    """Do something to the source after it was listed and before it is read."""
    assert callable(action)
    reading = populating.read_source

    def then(*args: object, **keywords: object) -> object:
        tree = reading(*args, **keywords)  # type: ignore[arg-type]
        action()
        return tree

    monkeypatch.setattr("f2tools.mkfs.make.read_source", then)


@pytest.mark.parametrize("what", ["grows", "shrinks", "goes", "touched"])
def test_a_file_that_changes_is_named_and_there_is_no_image(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "steady").write_bytes(b"x" * 10_000)
    victim = top / "victim"
    victim.write_bytes(b"x" * 10_000)
    actions = {
        "grows": lambda: victim.write_bytes(b"x" * 20_000),
        "shrinks": lambda: victim.write_bytes(b"x" * 5_000),
        "goes": victim.unlink,
        "touched": lambda: os.utime(victim, ns=(5, 5)),
    }
    _grows_while_loaded(monkeypatch, actions[what])
    with pytest.raises(F2fsError, match="victim"):
        f2mkfs(tmp_path / "image", "--size", "64M", "--from", top)
    assert os.listdir(tmp_path) == ["top"]


def test_what_was_there_is_no_volume_after_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, image = tmp_path / "top", tmp_path / "image"
    top.mkdir()
    (top / "victim").write_bytes(b"x" * 10_000)
    f2mkfs("-q", image, "--size", "64M")
    _grows_while_loaded(monkeypatch, (top / "victim").unlink)
    with pytest.raises(F2fsError, match="victim"):
        f2mkfs("-q", "-f", image, "--from", top)
    assert image.read_bytes()[:8192] == bytes(8192)


def test_undo_brings_back_what_was_there(tmp_path: Path) -> None:
    top, image, before = tmp_path / "top", tmp_path / "image", tmp_path / "before"
    top.mkdir()
    (top / "file").write_bytes(b"x" * 100_000)
    f2mkfs("-q", image, "--size", "64M", "-l", "OLD")
    before.write_bytes(image.read_bytes())
    f2mkfs("-q", "-f", image, "--from", top, "--undo", tmp_path / "undo")
    assert "file" in tree_of(image)["entries"]
    run("f2tools", "undo", tmp_path / "undo", image)
    assert same_bytes(image, before)


def test_the_image_inside_the_source_is_left_out(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").write_bytes(b"x")
    image = top / "image"
    for _ in range(2):
        f2mkfs("-q", "-f", image, "--size", "64M", "--from", top)
        assert set(tree_of(image)["entries"]) == {".", "file"}


def test_devices_from_an_archive_need_no_root(tmp_path: Path) -> None:
    import io

    archive = tmp_path / "x.tar"
    with tarfile.open(archive, "w") as tar:
        for name, kind, major, minor in (("dev/null", tarfile.CHRTYPE, 1, 3), ("dev/sda", tarfile.BLKTYPE, 8, 1000)):
            member = tarfile.TarInfo(name)
            member.type, member.devmajor, member.devminor, member.mode = kind, major, minor, 0o660
            tar.addfile(member)
        member = tarfile.TarInfo("/etc/passwd")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"root"))
    f2mkfs("-q", tmp_path / "image", "--size", "64M", "--from", archive)
    tree = tree_of(tmp_path / "image")["entries"]
    assert tree["dev/null"]["rdev"] == [1, 3]
    assert tree["dev/sda"]["rdev"] == [8, 1000]
    assert tree["etc"]["mode"] == "0755"
    assert "etc/passwd" in tree


@pytest.mark.parametrize(
    "options",
    [
        "--size auto",
        "--size 64M --free 10%",
        "--size 64M --exclude x",
        "--size 64M --from /nope",
        "--size 64M --from . --compress rar",
        "--size 64M --from . --compress lz4:99",
        "--size 64M --from . --release",
        "--size auto --from . --free 100%",
        "--size 64M --from . --map-owner x",
        "--size 64M --from . --sort /nope",
        "--size auto --size auto --from . -c other",
        "--size 64M --from . --selinux /nope",
    ],
)
def test_refused(options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((F2fsError, Usage)):
        f2mkfs("image", *shlex.split(options))
    assert os.listdir(tmp_path) == []


def test_sparse_images_are_filled_too(directory: Path, tmp_path: Path) -> None:
    tool = judges.need_tool("simg2img")
    f2mkfs("-q", tmp_path / "image", "-S", "auto", "--from", directory)
    run(tool, tmp_path / "image", tmp_path / "raw")
    f2mkfs("-q", tmp_path / "plain", "--size", "auto", "--from", directory, "-t", "0")
    assert facts(tree_of(tmp_path / "raw")["entries"]) == facts(tree_of(tmp_path / "plain")["entries"])


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "secret").write_bytes(b"x" * 5000)
    opening = os.open

    def refused(path: object, *args: object, **keywords: object) -> int:
        if os.fsencode(path).endswith(b"secret"):  # type: ignore[arg-type]  # root reads everything
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opening(path, *args, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(together, "core", None)  # whose calls are none of Python's
    with pytest.raises(F2fsError, match="secret: Permission denied"):
        f2mkfs(tmp_path / "image", "--size", "64M", "--from", top)
    assert os.listdir(tmp_path) == ["top"]


def test_attributes_that_are_written_are_not_kept_in_memory(tmp_path: Path) -> None:
    """Each set of its own, in a node of its own: more files take no such block more."""
    taken = []
    for count in (1500, 4500):
        with tarfile.open(tmp_path / f"{count}.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for number in range(count):
                member = tarfile.TarInfo(f"{number}")
                member.pax_headers = {"SCHILY.xattr.user.tag": f"{number}-" + "x" * 300}
                archive.addfile(member)
        tracemalloc.start()
        made = f2("mkfs", "-q", tmp_path / f"{count}.img", "--size", "128M", "--from", tmp_path / f"{count}.tar")
        taken.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert made.code == 0, made.err
    assert taken[1] - taken[0] < 3000 * 3000


@pytest.mark.parametrize("options", ["-q", "", "--json"])
def test_an_archive_that_is_cut_off_between_two_files_is_told_on_stderr(options: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(cut_archive())
    with (tmp_path / "a.tar").open("rb") as archive:
        done = subprocess.run(
            [sys.executable, "-m", "f2tools", "mkfs", *options.split(), "v.img", "--size", "64M", "--from", "-"],
            cwd=tmp_path, stdin=archive, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == "f2tools: note: standard input: the archive has no end mark; is it complete?\n"


def cut_archive() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name in ("one", "two"):
            info = tarfile.TarInfo(name)
            info.size = 700
            archive.addfile(info, io.BytesIO(bytes(700)))
    return whole.getvalue()[: 512 + 1024]
