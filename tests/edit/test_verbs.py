"""Words, ACLs and paths as people write them; names of any bytes; other images; deep trees."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.dump.manifest import manifest
from f2tools.edit.acls import parse_rules, with_rules
from f2tools.edit.paths import Inside, Outside, parse_path
from f2tools.edit.words import words_of
from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import F2FS_NODUMP_FL, F2FS_PROJINHERIT_FL
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import FULL, fresh

ALL_ONES = 0xFFFFFFFF
F2TOOLS = Path(sys.executable).parent / "f2tools"


def tree(path: Path) -> dict[str, Any]:
    with f2tools.open(path) as volume:
        assert_consistent(volume)
        return manifest(volume)["entries"]


def done(*arguments: object) -> bytes:
    result = f2(*arguments)
    assert result.code == 0, result.err
    return result.out


def lines(image: Path, *commands: str) -> None:
    done("edit", image, *(word for line in commands for word in ("-c", line)))


def test_words_are_those_of_a_shell() -> None:
    assert words_of('a  \'b c\'\t"d \\" e"f \\ g # no more') == ["a", "b c", 'd " ef', " g"]
    assert words_of("a#b ''") == ["a#b", ""]
    assert [os.fsencode(word) for word in words_of(r"$'\xff\n\t\'\\\101' x")] == [b"\xff\n\t'\\A", b"x"]
    assert words_of("  # nothing") == []
    for wrong in ("'a", '"a', "$'a"):
        with pytest.raises(Usage):
            words_of(wrong)


def test_places_in_images_and_on_the_host(tmp_path: Path) -> None:
    assert parse_path("card.img:/etc/x") == Inside("card.img", b"/etc/x")
    assert parse_path(":/x") == Inside("", b"/x")
    assert parse_path("/host/file") == Outside("/host/file")
    odd = tmp_path / "a:"
    odd.mkdir()
    (odd / "image").touch()
    assert parse_path(f"{odd}/image:/b:/c") == Inside(f"{odd}/image", b"/b:/c")


def test_entries_of_an_acl() -> None:
    plain = [(1, 6, 0xFFFFFFFF), (4, 4, 0xFFFFFFFF), (32, 4, 0xFFFFFFFF)]
    more = with_rules(plain, parse_rules("u:7:rwx,g:5:r", False))
    assert more == [plain[0], (2, 7, 7), plain[1], (8, 4, 5), (16, 7, 0xFFFFFFFF), plain[2]]
    assert with_rules(more, parse_rules("m::r", False))[4] == (16, 4, 0xFFFFFFFF)
    assert with_rules(more, parse_rules("u:7,g:5", False, removing=True)) == plain
    assert parse_rules("d:o::x", False)[0].default
    for wrong in ("", "u:root:r", "x:1:r", "u:1:q", "m:1:r", "u:1", "u:4294967295:r"):
        with pytest.raises(Usage):
            parse_rules(wrong, False)


@pytest.mark.peer
def test_acls_like_setfacl(tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M -O {FULL}")
    lines(image, "mkdir -p -m 750 /d/sub", "touch /d/f", "chmod 640 /d/f")
    done("setfacl", "-R", "-m", "u:1000:rwx,d:g:100:rx", f"{image}:/d")
    with f2tools.open(image) as volume:
        names = {path: volume.path(path).xattrs() for path in ("/d", "/d/sub", "/d/f")}
        assert volume.path("/d/f").inode.i_mode & 0o777 == 0o670
    assert set(names["/d"]) == {"system.posix_acl_access", "system.posix_acl_default"}
    assert set(names["/d/f"]) == {"system.posix_acl_access"}
    lines(image, "mkdir /d/born")
    with f2tools.open(image) as volume:
        assert "system.posix_acl_default" in volume.path("/d/born").xattrs(), "inherited"
    done("setfacl", "-b", f"{image}:/d/f", ":/d")
    with f2tools.open(image) as volume:
        assert volume.path("/d/f").xattrs() == {}
        assert volume.path("/d").xattrs() == {}
    judges.fsck_clean(image)


@pytest.mark.peer
def test_names_of_any_bytes(tmp_path: Path) -> None:
    image, host = fresh(tmp_path), tmp_path / "host"
    host.mkdir()
    odd = [b"\xff\xfe", b"new\nline", b"-r", b" ", b"$'x'", b"a:b", b"\x1b[31m", "ü".encode(), b"x" * 255]
    for name in odd:
        (host / os.fsdecode(name)).write_bytes(name)
    done("cp", "-r", host, f"{image}:/")
    with f2tools.open(image) as volume:
        for name in odd:
            assert volume.path(b"/host/" + name).read() == name
    said = done("rm", "-r", "--dry-run", f"{image}:/host").decode()
    assert "\x1b" not in said
    lines(image, r"rm $'/host/\xff\xfe' $'/host/new\nline' '/host/ '", "mv -- /host/-r /host/$'\\r'")
    judges.fsck_clean(image)
    assert len(tree(image)) == 2 + len(odd) - 3


@pytest.mark.peer
@pytest.mark.parametrize("name", ["features", "compress-zstd", "casefold"])
def test_a_tree_from_another_image_stays_what_it_was(name: str, tmp_path: Path) -> None:
    source = images.reference(name)
    image = fresh(tmp_path, f"--size 256M -C utf8 -O {FULL}")
    done("cp", "-a", f"{source.path}:/.", f"{image}:/")
    judges.fsck_clean(image)
    theirs, ours = tree(source.path), tree(image)
    for path, entry in theirs.items():
        if path in (".", "lost+found"):
            continue
        for key in ("type", "mode", "uid", "gid", "size", "nlink", "mtime_ns", "sha256", "target", "xattrs", "rdev"):
            if (entry["type"], key) == ("dir", "size"):
                continue  # that depends on what there was in it
            assert ours[path].get(key) == entry.get(key), (path, key)
    tops = sorted(path for path in ours if "/" not in path and path != ".")
    done("mkdir", f"{image}:/again")
    done("cp", "-a", *(f"{image}:/{path}" for path in tops), f"{image}:/again")
    both = tree(image)
    assert len(both) == 2 * len(ours)
    for path, entry in ours.items():
        if path != ".":
            assert both[f"again/{path}"].get("sha256") == entry.get("sha256"), path
    judges.fsck_clean(image)


@pytest.mark.peer
def test_what_cp_does_with_what_is_there(tmp_path: Path) -> None:
    image, new = fresh(tmp_path), tmp_path / "new"
    new.write_bytes(b"new")
    new.chmod(0o777)
    lines(
        image,
        "mkdir /d",
        "touch /d/new",
        "chmod 604 /d/new",
        "chown 3:4 /d/new",
        "ln /d/new /hard",
        "ln -s d/x /dangling",
    )
    lines(image, f"cp {new} :/d", f"cp {new} :/dangling", "ln -s ../hard /d/soft", f"cp {new} :/d/soft")
    entries = tree(image)
    assert (entries["hard"]["mode"], entries["hard"]["uid"], entries["hard"]["size"]) == ("0604", 3, 3)
    assert entries["d/x"]["size"] == 3, "through the link"
    assert entries["dangling"]["type"] == "symlink"
    assert entries["d/x"]["mode"] == f"{0o777 & ~_umask():04o}"
    done("cp", new, f"{image}:/mine", "--owner", "7:8")
    assert (tree(image)["mine"]["uid"], tree(image)["mine"]["gid"]) == (7, 8)
    judges.fsck_clean(image)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@pytest.mark.peer
def test_a_deep_tree(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 128M")
    path = "/deep" + "/d" * 1500
    lines(image, f"mkdir -p {path}", f"touch {path}/f", "chmod -R u+w /deep", "cp -r :/deep /copy")
    judges.fsck_clean(image)
    lines(image, "rm -r /deep /copy")
    assert set(tree(image)) == {"."}


def test_standard_input(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    subprocess.run([F2TOOLS, "cp", "-", f"{image}:/from stdin"], input=b"x" * 5_000_000, check=True)
    subprocess.run([F2TOOLS, "edit", image, "-"], input=b"mkdir '/\xff'\ntouch $'/\\xff/y'\n", check=True)
    with f2tools.open(image) as volume:
        assert volume.path("/from stdin").read() == b"x" * 5_000_000
        assert volume.path(b"/\xff/y").inode.i_size == 0


def test_an_image_is_not_copied_into_itself(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    (tmp_path / "other").write_text("text")
    result = f2("cp", "-r", tmp_path, f"{image}:/all", "--json")
    assert result.code == 0
    assert "left out" in result.err
    report = json.loads(result.out)
    assert report["checkpoints"] == 1
    assert [change["path"] for change in report["changes"]] == ["/all", "/all/other"]


def test_cp_copies_out_as_well(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "b.jpg", "c.txt"):
        (tmp_path / "in" / name).write_bytes(name.encode() * 3000)
    done("cp", "-r", tmp_path / "in", f"{image}:/pictures")
    out = tmp_path / "out"
    out.mkdir()
    done("cp", f"{image}:/pictures/a.jpg", out / "named")
    done("cp", f"{image}:/pictures/*.jpg", out)
    done("cp", "-r", f"{image}:/pictures", out)
    assert (out / "named").read_bytes() == b"a.jpg" * 3000
    assert sorted(os.listdir(out)) == ["a.jpg", "b.jpg", "named", "pictures"]
    assert sorted(os.listdir(out / "pictures")) == ["a.jpg", "b.jpg", "c.txt"]
    for words, code in (
        (("cp", f"{image}:/pictures", out), 1), (("cp", f"{image}:/none", out), 1), (("cp", "here", out), 2),
        (("cp", f"{image}:/pictures/*.jpg", out / "not there"), 1),
        (("cp", "--dry-run", f"{image}:/pictures/a.jpg", out), 2),
    ):  # fmt: skip
        assert f2(*words).code == code


def test_copying_out_replaces_neither_the_image_nor_what_is_no_file(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"content")
    done("cp", "-r", tmp_path / "in", f"{image}:/in")
    before = image.read_bytes()
    (tmp_path / "other name").symlink_to(image)
    os.link(image, tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    for target, why in (
        (image, "the image itself"),
        (tmp_path / "link", "the image itself"),
        (tmp_path / "pipe", "a pipe"),
    ):
        result = f2("cp", f"{image}:/in/file", target)
        assert (result.code, image.read_bytes() == before) == (1, True), target
        assert why in result.err or "pipe or socket" in result.err
        assert f2("shell", image, "-c", f"get in/file {target}").code != 0
    assert (tmp_path / "pipe").is_fifo()
    assert image.read_bytes() == before


def test_what_is_copied_onto_a_directory_makes_it_the_same(tmp_path: Path) -> None:
    """As cp -a source/. target does it; without -a the target stays what it is."""
    image, other, source = fresh(tmp_path), fresh(tmp_path, name="other"), tmp_path / "source"
    (source / "d").mkdir(parents=True)
    source.chmod(0o750)
    os.utime(source, ns=(1, 978307200_123456789))
    before = tree(image)["."]
    done("cp", "-r", f"{source}/.", f"{image}:/")
    assert tree(image)["."]["mode"] == before["mode"]
    done("cp", "-a", f"{source}/.", f"{image}:/")
    done("setfattr", "-n", "user.a", "-v", "b", f"{image}:/")
    done("cp", "-a", f"{image}:/.", f"{other}:/")
    for one in (image, other):
        root = tree(one)["."]
        assert (root["mode"], root["mtime_ns"]) == ("0750", 978307200_123456789)
        assert root["uid"] == os.geteuid()
        assert list(root["xattrs"]) == ["user.a"]
    judges.fsck_clean(other)


def test_copying_out_to_the_standard_output(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    content = os.urandom(3_000_001)
    (tmp_path / "in").write_bytes(content)
    done("cp", tmp_path / "in", f"{image}:/file")
    lines(image, "truncate -s 5M /hole", "mkdir /d", "cp :/file /d/more")
    link = tmp_path / "stdout"  # as /dev/stdout is
    link.symlink_to("/proc/self/fd/1")
    here = tmp_path / "here"
    here.mkdir()
    for target in ("-", link):
        run = subprocess.run([F2TOOLS, "cp", "-v", f"{image}:/file", target], capture_output=True, cwd=here, check=True)
        assert run.stdout == content
    with open(tmp_path / "to", "wb") as out:
        subprocess.run([F2TOOLS, "cp", f"{image}:/hole", link], stdout=out, cwd=here, check=True)
    assert (tmp_path / "to").read_bytes() == bytes(5 << 20)
    assert link.is_symlink()
    assert os.listdir(here) == []
    messages = tmp_path / "stderr"
    messages.symlink_to("/proc/self/fd/2")
    with open(tmp_path / "log", "w") as log:
        print("before", file=log, flush=True)
        assert subprocess.run([F2TOOLS, "cp", f"{image}:/file", messages], stderr=log, cwd=here).returncode == 1
    said = (tmp_path / "log").read_text()
    assert said.startswith("before\n")
    assert "the file that messages go to" in said
    for words, code in (
        (("-r", f"{image}:/d", "-"), 1), ((f"{image}:/file", f"{image}:/hole", "-"), 1),
        (("--json", f"{image}:/file", "-"), 2), ((f"{image}:/none", "-"), 1),
    ):  # fmt: skip
        run = subprocess.run([F2TOOLS, "cp", *words], capture_output=True, cwd=here)
        assert (run.returncode, run.stdout) == (code, b""), words
    assert os.listdir(here) == []


def test_copying_out_writes_where_links_lead(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    (tmp_path / "in").write_bytes(b"new")
    done("cp", tmp_path / "in", f"{image}:/file")
    lines(image, "mkdir /d", "touch /d/x", "ln -s file /link")
    (tmp_path / "sub").mkdir()
    kept = tmp_path / "sub" / "kept"
    (tmp_path / "link").symlink_to("sub/again")
    (tmp_path / "sub" / "again").symlink_to("kept")
    for options in ((), ("-a",)):
        kept.write_bytes(b"old")
        done("cp", *options, f"{image}:/file", tmp_path / "link")
        assert kept.read_bytes() == b"new"
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "sub" / "again").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to pipe").symlink_to("pipe")
    (tmp_path / "to nothing").symlink_to("nothing")
    (tmp_path / "around").symlink_to("around")
    for name in ("to pipe", "to nothing", "around"):
        assert f2("cp", f"{image}:/file", tmp_path / name).code == 1
        assert (tmp_path / name).is_symlink()
    assert not (tmp_path / "nothing").exists()
    done("cp", "-r", f"{image}:/link", tmp_path / "link")  # a link takes the place of a link
    assert os.readlink(tmp_path / "link") == "file"


def test_copying_a_directory_out_replaces_no_file(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    lines(image, "mkdir -p /d/e", "touch /d/e/x /d/f")
    note = tmp_path / "note"
    note.write_bytes(b"mine")
    below = tmp_path / "out" / "d" / "e"
    below.parent.mkdir(parents=True)
    below.write_bytes(b"mine")
    for target in (note, tmp_path / "out"):
        result = f2("cp", "-r", f"{image}:/d", target)
        assert (result.code, "a directory does not replace what is there" in result.err) == (1, True)
    assert (note.read_bytes(), below.read_bytes()) == (b"mine", b"mine")
    assert (below.parent / "f").exists()


def test_what_can_not_be_copied_out_is_named_by_its_path_on_the_host(tmp_path: Path) -> None:
    image, out = fresh(tmp_path), tmp_path / "out"
    lines(image, "mkdir /d", "touch /d/x")
    (out / "d" / "x").mkdir(parents=True)
    for target, said in ((out, out / "d" / "x"), (f"{out}/", out / "d" / "x"), (".", "./d/x")):
        before = os.getcwd()
        os.chdir(out)
        try:
            result = f2("cp", "-r", f"{image}:/d", target)
        finally:
            os.chdir(before)
        assert (result.code, result.err) == (1, f"f2tools: {said}: can't be made: Is a directory\n")
    assert json.loads(f2("cp", "-r", "--json", f"{image}:/d", out).text)["lost"][0]["path"] == "/d/x"


def test_what_is_in_a_directory_is_copied_out_into_another(tmp_path: Path) -> None:
    """As cp -a directory/. target does it, for the root of the image, too."""
    image = fresh(tmp_path)
    lines(image, "mkdir -p /d/e", "touch /d/e/x /d/f")
    for source, target, names in (
        ("/d/.", "there", {"e", "f"}), ("/.", "there", {"d"}), ("/d/.", "link", {"e", "f"}), ("/.", "new", {"d"}),
        ("/", "new", {"d"}), ("/d/.", "new", {"e", "f"}),
    ):  # fmt: skip
        where = tmp_path / "out"
        (where / "there").mkdir(parents=True)
        (where / "link").symlink_to("there")
        done("cp", "-a", f"{image}:{source}", where / target)
        assert set(os.listdir(where / target)) == names, (source, target)
        assert set(os.listdir(where)) - {"new"} == {"there", "link"}
        shutil.rmtree(where)


ACL = struct.pack("<I" + "HHI" * 5, 2, 1, 7, ALL_ONES, 2, 7, 8, 4, 0, ALL_ONES, 16, 7, ALL_ONES, 32, 0, ALL_ONES)


def rights(top: Path) -> dict[str, Any]:
    """Mode, owner, time of directories, and attributes of everything below."""
    found = {}
    for path in (top, *top.rglob("*")):
        status = path.lstat()
        when = status.st_mtime_ns if path.is_dir() and path != top else None
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        found[str(path.relative_to(top))] = (oct(status.st_mode), status.st_uid, status.st_gid, when, xattrs)
    return found


def leaves_acls(directory: Path) -> bool:
    """Whether the installed cp -a leaves what a copy inherits: coreutils 9.7 does so, 9.1 takes it away."""
    for name in ("from", "below"):
        (directory / "probe" / name).mkdir(parents=True)
    os.setxattr(directory / "probe" / "below", "system.posix_acl_default", ACL)
    subprocess.run(["cp", "-a", directory / "probe" / "from", directory / "probe" / "below"], check=True)
    left = os.listxattr(directory / "probe" / "below" / "from")
    shutil.rmtree(directory / "probe")
    return bool(left)


def with_acls_of(source: Path, target: str, theirs: dict[str, Any], before: dict[str, Any]) -> None:
    """Give what cp -a copied there the ACLs of the source and no others, and what was there the set-group-ID it had."""
    for path in (source, *source.rglob("*")):
        name = os.path.normpath(os.path.join(target, path.relative_to(source)))
        mode, uid, gid, when, xattrs = theirs[name]
        acls = {key: os.getxattr(path, key) for key in os.listxattr(path) if "posix_acl" in key}
        kept = int(before.get(name, ("0",))[0], 8) & stat.S_ISGID
        others = {key: value for key, value in xattrs.items() if "posix_acl" not in key}
        theirs[name] = (oct(int(mode, 8) | kept), uid, gid, when, acls | others)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets owners")
@pytest.mark.parametrize("option", ["-a", "-r"])
@pytest.mark.parametrize(("source", "target"), [("/src", ""), ("/src/.", "src"), ("/.", "")])
def test_directories_that_are_there_become_what_cp_makes_of_them(
    option: str, source: str, target: str, tmp_path: Path
) -> None:
    image, host = fresh(tmp_path, f"--size 64M -O {FULL}"), tmp_path / "host"
    (host / "src" / "sub" / "new").mkdir(parents=True)
    (host / "src" / "acl").mkdir()
    (host / "src" / "sub" / "f").touch()
    os.setxattr(host / "src" / "acl", "system.posix_acl_access", ACL)
    os.setxattr(host / "src", "user.a", b"1")
    os.chown(host / "src", 5, 6)
    for path, mode in (("src/sub/new", 0o755), ("src/sub/f", 0o640), ("src/sub", 0o3711), ("src", 0o700), (".", 0o751)):
        (host / path).chmod(mode)
        os.utime(host / path, ns=(1, 978307200_123456789))
    done("cp", "-a", f"{host}/.", f"{image}:/")
    for name in ("ours", "theirs"):
        there = tmp_path / name / "src"
        (there / "sub").mkdir(parents=True)
        (there / "acl").mkdir()
        os.setxattr(there, "user.old", b"2")
        os.setxattr(there / "sub", "system.posix_acl_access", ACL)
        os.setxattr(there / "sub", "system.posix_acl_default", ACL)
        for path, mode in ((there / "sub", 0o1777), (there / "acl", 0o2755), (there, 0o775)):
            os.chown(path, 8, 9)
            path.chmod(mode)
            os.utime(path, ns=(1, 1115251200_000000000))
    before = rights(tmp_path / "ours")
    done("cp", option, f"{image}:{source}", tmp_path / "ours" / target)
    subprocess.run(["cp", option, f"{host}{source}", tmp_path / "theirs" / target], check=True)
    ours, theirs = rights(tmp_path / "ours"), rights(tmp_path / "theirs")
    if option == "-a" and leaves_acls(tmp_path):
        with_acls_of(host / "src", "src", theirs, before)
    if option == "-r":  # new files get what each program gives them
        theirs = {path: (*found[:3], None, found[4]) for path, found in theirs.items() if path in before}
        ours = {path: (*found[:3], None, found[4]) for path, found in ours.items() if path in before}
    assert ours == theirs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets owners")
def test_copies_have_the_acls_of_their_sources_and_no_others(tmp_path: Path) -> None:
    host, image, loaded = tmp_path / "host", tmp_path / "image", tmp_path / "loaded"
    for made in ("src/sub", "src/acl", "dst/there/sub"):
        (host / made).mkdir(parents=True)
    for made in ("src/f", "src/sub/f", "src/acl/f", "dst/there/f", "dst/there/sub/f"):
        (host / made).touch(0o640)
    for made in ("src/acl/f", "src/acl", "dst/there/f", "dst/there/sub"):
        os.setxattr(host / made, "system.posix_acl_access", ACL)
    for made in ("src/acl", "dst", "dst/there", "dst/there/sub"):
        os.setxattr(host / made, "system.posix_acl_default", ACL)
    shutil.copytree(host / "src", loaded / "dst" / "loaded")
    for path in (loaded / "dst" / "loaded").rglob("f"):
        os.setxattr(path, "user.a", b"1")
    done("mkfs", "-q", image, "--size", "64M", "--from", host)

    done("cp", "-a", f"{image}:/src", f"{image}:/dst/copy")
    done("cp", "-a", host / "src", f"{image}:/dst/copied")
    done("cp", "-a", f"{image}:/src/.", f"{image}:/dst/there")
    done("load", image, "--from", loaded)
    subprocess.run(["cp", "-a", host / "src", host / "dst" / "copy"], check=True)
    subprocess.run(["cp", "-a", host / "src", host / "dst" / "copied"], check=True)
    subprocess.run(["cp", "-a", f"{host}/src/.", host / "dst" / "there"], check=True)
    subprocess.run(["cp", "-a", loaded / "dst" / "loaded", host / "dst" / "loaded"], check=True)
    (tmp_path / "out").mkdir()
    done("cp", "-a", f"{image}:/dst", tmp_path / "out")

    theirs, ours = rights(host / "dst"), rights(tmp_path / "out" / "dst")
    if leaves_acls(tmp_path):
        for target in ("copy", "copied", "there", "loaded"):
            with_acls_of(loaded / "dst" / "loaded" if target == "loaded" else host / "src", target, theirs, {})
    assert {path: found[4] for path, found in ours.items()} == {path: found[4] for path, found in theirs.items()}
    assert {path: found[0] for path, found in ours.items()} == {path: found[0] for path, found in theirs.items()}


def test_a_link_where_a_directory_is_copied_to_leaves_what_it_leads_to_alone(tmp_path: Path) -> None:
    image, outside = fresh(tmp_path), tmp_path / "outside"
    lines(image, "mkdir -p /d/e", "chmod 700 /d /d/e")
    outside.mkdir(0o755)
    for link in ("one/d", "two/d/e"):
        (tmp_path / link).parent.mkdir(parents=True)
        (tmp_path / link).symlink_to(outside)
        before = outside.stat()
        result = f2("cp", "-a", f"{image}:/d", (tmp_path / link).parents[link.count("/") - 1])
        assert (result.code, f"{tmp_path / link}: " in result.err) == (1, True)
        assert (outside.stat(), os.listdir(outside)) == (before, [])


def test_what_a_pipe_or_a_device_says_is_copied_in(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    content = os.urandom(300_001)
    for name in ("/dev/stdin", "/proc/self/fd/0"):
        run = subprocess.run(
            [F2TOOLS, "cp", "--json", name, f"{image}:/said"], input=content, capture_output=True, check=True
        )
        assert [change["size"] for change in json.loads(run.stdout)["changes"]] == [len(content)]
        with f2tools.open(image) as volume:
            assert volume.path("/said").read() == content
        lines(image, "rm /said")
    done("cp", "/dev/null", f"{image}:/empty")
    os.mkfifo(tmp_path / "pipe")
    done("cp", "-r", tmp_path / "pipe", f"{image}:/pipe")
    with f2tools.open(image) as volume:
        assert volume.path("/empty").inode.is_file
        assert volume.path("/pipe").inode.kind == "fifo"


def test_patterns_name_files_in_the_image(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    lines(image, "mkdir /d", "touch /d/a1 /d/a2 /d/b1 /d/.a3 '/d/*'")
    assert f2("rm", f"{image}:/d/z*").code == 1
    assert f2("rm", "-f", f"{image}:/d/z*").code == 0
    done("chmod", "600", f"{image}:/?/a[12]")
    done("rm", f"{image}:/d/*")  # there is a file of that name
    with f2tools.open(image) as volume:
        assert sorted(entry.name for entry in volume.listdir(volume.path("/d").inode)) == [b".a3", b"a1", b"a2", b"b1"]
        assert [volume.path(f"/d/{name}").inode.i_mode & 0o777 for name in ("a1", "a2", "b1")] == [0o600, 0o600, 0o644]
    done("rm", f"{image}:/d/[ab]*")
    with f2tools.open(image) as volume:
        assert [entry.name for entry in volume.listdir(volume.path("/d").inode)] == [b".a3"]


def test_set_id_bits_go_with_the_owner(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    lines(image, "touch /p", "chmod 4755 /p", "chown 5:5 /p", "touch /q", "chmod 2755 /q")
    with f2tools.open(image) as volume:
        assert stat.S_IMODE(volume.path("/p").inode.i_mode) == 0o755
        assert stat.S_IMODE(volume.path("/q").inode.i_mode) == 0o2755


def test_what_chattr_advises_for_a_feature_that_is_missing_works(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M -O casefold -C utf8")
    done("touch", f"{image}:/old")
    refused = f2("chattr", "-p", 42, f"{image}:/old")
    assert "f2tools tune image -O extra_attr,project_quota adds it" in refused.err.replace(str(image), "image")
    done("tune", image, "-O", "extra_attr,project_quota")
    refused = f2("chattr", "-p", 42, f"{image}:/old")
    assert (refused.code, "/old: made before the volume had extra_attr" in refused.err) == (1, True), refused.err
    done("cp", "-a", f"{image}:/old", f"{image}:/new")
    done("chattr", "-p", 42, f"{image}:/new")
    assert tree(image)["new"]["projid"] == 42
    assert "-O compression adds it" in f2("chattr", "+c", f"{image}:/new").err


def test_chattr_gives_files_no_flags_of_directories(tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M -O {FULL}")
    lines(image, "mkdir /d", "mkdir /d/e", "touch /d/f")
    refused = f2("chattr", "+P", f"{image}:/d/f")
    assert (refused.code, "Operation not supported" in refused.err) == (1, True), refused.err
    done("chattr", "-R", "+Pd", "-p", 7, f"{image}:/d")
    with f2tools.open(image) as volume:
        flags = [volume.path(path).inode.i_flags for path in ("/d", "/d/e", "/d/f")]
    assert [bool(found & F2FS_PROJINHERIT_FL) for found in flags] == [True, True, False]
    assert all(found & F2FS_NODUMP_FL for found in flags)


def test_files_that_do_not_say_their_size_are_copied_to_their_end(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    sized = Path("/sys/kernel/mm/transparent_hugepage/enabled")  # says 4096 bytes and has some twenty
    for number, source in enumerate([Path("/proc/version"), *([sized] if sized.exists() else [])]):
        content = source.read_bytes()
        assert content
        assert len(content) != source.stat().st_size
        for options in ([], ["-a"]):
            done("cp", *options, source, f"{image}:/of-{number}")
            assert done("dump", "cat", image, f"/of-{number}") == content


def test_a_url_is_no_image_called_as_its_scheme() -> None:
    assert parse_path("http://host:80/card.img:/a/b") == Inside("http://host:80/card.img", b"/a/b")
    assert parse_path("s3://bucket/card.img") == Outside("s3://bucket/card.img")
