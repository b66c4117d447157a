"""Under the names of f2fs-tools: the same options, the same exit codes, the same lines that scripts read."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import judges
from tests.compat.programs import MIB, blank, ours, theirs, tree
from tests.images import Reference, copy_sparse
from tests.mkfs.from_tools import facts, tree_of

UUID = "11111111-2222-3333-4444-555555555555"
TELLING = (
    "feature", "segs_per_sec", "secs_per_zone", "log_sectorsize", "log_blocksize", "block_count", "segment_count",
    "main_blkaddr", "extension_count",
)  # fmt: skip
MKFS = [
    "", "-l CARD", f"-U {UUID}", "-t 0", f"-g -f -l CARD -U {UUID} -t 0", "-q", "-a 0", "-d 1", "-e mp3,foo", "-E foo",
    "-i", "-o 30", "-O extra_attr,quota", "-O extra_attr -O inode_checksum", "-r", "-R 1:2", "-s 2", "-z 2", "-w 4096",
    "-T 5", "-C utf8 -O casefold", "-m -t 1", "-t nodiscard", "-V", "-Y", "-O nonsense",
]  # fmt: skip


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image that the C tools made and loaded."""
    directory = tmp_path_factory.mktemp("filled")
    image = blank(directory / "image", 160 * MIB)
    assert theirs("mkfs.f2fs", "-q", "-l", "CARD", image).rc == 0
    assert theirs("sload.f2fs", "-f", tree(directory / "tree"), image).rc in (0, 1)
    return image


def made_by(run: Callable[..., judges.Run], image: Path, options: str) -> tuple[int, dict[str, object], bytes]:
    """(exit code, telling fields, root inode's owner and time) of a format with these options."""
    blank(image, 96 * MIB)  # with two segments a section 64 MiB are enough for the release 1.16.0, and for no other
    done = run("mkfs.f2fs", *shlex.split(options), image)
    if done.rc or "-V" in options:
        return done.rc, {}, b""
    fields = judges.superblock_fields(image)
    telling = [*TELLING, *(["uuid"] if "-U" in options else []), *(["volum_name"] if "-l" in options else [])]
    return done.rc, {name: fields.get(name) for name in telling}, owner_and_time(image, "-T" in options)


def owner_and_time(image: Path, with_time: bool) -> bytes:
    import f2tools

    with f2tools.open(image) as volume:
        root = volume.root.inode
        return repr((root.i_uid, root.i_gid, root.i_mtime if with_time else None)).encode()


@pytest.mark.peer
@pytest.mark.parametrize("options", MKFS)
def test_mkfs_makes_the_same_volume_of_the_same_options(options: str, tmp_path: Path) -> None:
    assert made_by(ours, tmp_path / "ours", options) == made_by(theirs, tmp_path / "theirs", options)


@pytest.mark.peer
@pytest.mark.parametrize("line", [
    "-O compression {}", "-O inode_checksum {}", "-O project_quota,encrypt {}", "-O device_alias {}", "-b 4095 {}",
    f"-l {'x' * 600} {{}}", "-U zz {}", "{} 1000", "{} 1000 word", "{} word", "{} 0", "{} 200000", "{} 131072 word",
    "{} 131072x", "-c {}2 {} 1000", "-O nonsense {}2", "-O compression {}2", "-U zz {}2", "-b 4095",
])  # fmt: skip
def test_mkfs_ends_as_the_c_tool_whatever_the_command_line(line: str, tmp_path: Path) -> None:
    ends = []
    for run in (ours, theirs):
        image = blank(tmp_path / "image")
        done = run("mkfs.f2fs", *line.format(image, image).split())
        ends.append((done.rc, judges.superblock_fields(image)["block_count"] if done.rc == 0 else None))
    assert ends[0] == ends[1]


@pytest.mark.peer
def test_mkfs_ends_as_the_c_tool_where_it_must_not_write(filled: Path, tmp_path: Path) -> None:
    image = copy_sparse(filled, tmp_path / "image")
    before = image.read_bytes()
    for run in (ours, theirs):
        refused = run("mkfs.f2fs", image)
        assert refused.rc == 255, str(refused)
        assert "-f option to force overwrite" in refused.output
        assert image.read_bytes() == before
    assert ours("mkfs.f2fs", tmp_path / "none").rc == theirs("mkfs.f2fs", tmp_path / "none").rc == 255
    assert ours("mkfs.f2fs").rc == theirs("mkfs.f2fs").rc == 1
    assert not (tmp_path / "none").exists()


def test_mkfs_overwrites_what_it_does_not_know(tmp_path: Path) -> None:
    for run in (ours, theirs):
        image = tmp_path / run.__name__
        image.write_bytes(b"a letter" * (8 << 20))
        assert run("mkfs.f2fs", "-q", image).rc == 0


def test_mkfs_prints_what_scripts_read(tmp_path: Path) -> None:
    said = ours("mkfs.f2fs", "-l", "CARD", blank(tmp_path / "image")).output
    for line in ("Info: Label = CARD", "Info: sector size = 512", "Info: total sectors = 131072 (64 MB)",
                 "Info: format successful"):  # fmt: skip
        assert line in said.splitlines()
    assert ours("mkfs.f2fs", "-q", "-f", tmp_path / "image").output == ""
    assert re.fullmatch(r"mkfs\.f2fs \d+\.\d+\.\d+ \(.*\)\n", ours("mkfs.f2fs", "-V").output)


# ---- fsck -------------------------------------------------------------------------------------------------------

FSCK = [
    "", "-a", "-f", "-y", "-p 0", "-p 1", "-t", "-d 1", "-g android", "-c 10000 --debug-cache", "--dry-run", "-V",
    "-Y", "--no-kernel-check",
]  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("options", FSCK)
def test_fsck_of_a_sound_volume_ends_and_prints_as_the_c_tool(options: str, filled: Path, tmp_path: Path) -> None:
    image = copy_sparse(filled, tmp_path / "image")
    mine, other = (run("fsck.f2fs", *options.split(), image) for run in (ours, theirs))
    assert mine.rc == other.rc, f"{mine}\n{other}"
    # with -a and -p the C tool believes the checkpoint, and looks no further
    for line in other.output.splitlines():
        if line.startswith("[FSCK]") and not re.search("fixing SIT types|Max image size", line):
            assert line in mine.output.splitlines()
        elif re.match(r"Info: (super|total FS|Segments|Sections)", line):
            assert line.rstrip() in (own.rstrip() for own in mine.output.splitlines())
    if "-t" in options.split():
        assert dentries(mine.output) == dentries(other.output)


def dentries(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if "<ino = " in line)


@pytest.mark.peer
def test_fsck_ends_as_the_c_tool_where_there_is_nothing_to_check(tmp_path: Path) -> None:
    zeros = blank(tmp_path / "zeros")
    for arguments in ((zeros,), (tmp_path / "none",), (zeros, zeros), ()):
        assert ours("fsck.f2fs", *arguments).rc == theirs("fsck.f2fs", *arguments).rc


def test_fsck_asks_and_repairs_only_then(damaged: Callable[[str], Reference]) -> None:
    image = damaged("inode-nlink").path
    before = image.read_bytes()
    for options, answer in (((), "n\n"), ((), ""), (("--dry-run", "-y"), "y\n"), (("-N",), "y\n")):
        done = ours("fsck.f2fs", *options, image, answer=answer)
        assert done.rc == 4, str(done)
        assert "[Fail]" in done.output
        assert image.read_bytes() == before
    assert ours("fsck.f2fs", image, answer="y\n").rc == 1
    assert ours("fsck.f2fs", image).rc == 0
    judges.fsck_clean(image)


@pytest.mark.parametrize("option", ["-a", "-p", "-f", "-y"])
def test_fsck_repairs_by_its_options(option: str, damaged: Callable[[str], Reference]) -> None:
    image = damaged("inode-nlink").path
    assert ours("fsck.f2fs", option, image).rc == 1
    assert ours("fsck.f2fs", image).rc == 0


# ---- dump -------------------------------------------------------------------------------------------------------


@pytest.mark.peer
def test_dump_prints_the_tables_of_the_c_tool(filled: Path) -> None:
    mine, other = (judges._sections(run("dump.f2fs", "-d", "1", filled).output) for run in (ours, theirs))
    for title in ("Super block", "Checkpoint"):
        shared = mine[title].keys() & other[title].keys()
        assert len(shared) > 20
        assert {name: mine[title][name] for name in shared} == {name: other[title][name] for name in shared}
    assert {"user_block_count", "valid_block_count"} <= mine["Checkpoint"].keys()
    assert {"log_blocksize", "volum_name", "qf_ino[USRQUOTA]"} <= mine["Super block"].keys()


@pytest.mark.peer
def test_dump_writes_the_files_of_the_c_tool(filled: Path, tmp_path: Path) -> None:
    for run in (ours, theirs):
        directory = tmp_path / run.__name__
        directory.mkdir()
        assert run("dump.f2fs", "-n", "0~-1", "-s", "0~-1", "-a", "0~3", filled, cwd=directory).rc == 0
    mine, other = tmp_path / "ours", tmp_path / "theirs"
    for name in ("dump_nat", "dump_sit"):
        wanted = [fields(line) for line in (other / name).read_text().splitlines()]
        found = [fields(line) for line in (mine / name).read_text().splitlines()]
        assert len(found) == len(wanted)
        for row, like in zip(found, wanted, strict=True):
            assert {key: row.get(key) for key in like} == like
    assert (mine / "dump_ssa").read_text() == (other / "dump_ssa").read_text()


def fields(line: str) -> dict[str, str]:
    """`nid:    3	ino: 3` as a dictionary; any other line as its words."""
    found = dict(re.findall(r"(\w+): *(\S+)", line))
    return found or {"text": " ".join(line.split())}


def test_dump_copies_out_what_is_asked_for(filled: Path, tmp_path: Path) -> None:
    import f2tools

    with f2tools.open(filled) as volume:
        ino = volume.path("/text.txt").inode.ino
        content = volume.path("/text.txt").read()
        blkaddr = volume.path("/text.txt").inode.blkaddr
    assert ours("dump.f2fs", "-i", hex(ino), filled, cwd=tmp_path, answer="n\n").rc == 0
    assert not (tmp_path / "lost_found").exists()
    assert ours("dump.f2fs", "-i", hex(ino), filled, cwd=tmp_path, answer="y\n").rc == 0
    assert (tmp_path / "lost_found/text.txt").read_bytes() == content
    assert ours("dump.f2fs", "-f", "-r", "-o", tmp_path / "all", filled, cwd=tmp_path).rc == 0
    assert (tmp_path / "all/system/bin/ash").read_bytes() == b"#!" * 4000
    (tmp_path / "full" / "text.txt").mkdir(parents=True)
    refused = ours("dump.f2fs", "-f", "-o", tmp_path / "full", "-i", hex(ino), filled, cwd=tmp_path)
    assert f"Info: not whole: {tmp_path}/full/text.txt: can't be made: Is a directory" in refused.output
    assert ours("dump.f2fs", "-I", str(ino), filled).output.count("blkaddr: ") >= 1
    assert re.search(rf"nid +{ino}\n", ours("dump.f2fs", "-b", hex(blkaddr), filled).output)


# ---- label, defrag, resize --------------------------------------------------------------------------------------


@pytest.mark.peer
def test_a_label_is_printed_and_set_as_by_the_c_tool(filled: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        copy_sparse(filled, tmp_path / name)
    for arguments, line in (((), "Info: volume label = CARD"), (("NEW",), "Info: volume label is changed to NEW"),
                            ((), "Info: volume label = NEW"), (("A", "B"), "")):  # fmt: skip
        mine = ours("f2fslabel", tmp_path / "one", *arguments)
        other = theirs("f2fslabel", tmp_path / "two", *arguments)
        assert mine.rc == other.rc
        assert line in mine.output
        assert line in other.output


@pytest.mark.peer
@pytest.mark.parametrize("options", ["", "-s 0x1a00 -l 0x100 -t 0x2800", "-s 0x1a00 -l 0x10 -t 0x2800 -i", "-t 9"])
def test_defrag_moves_the_range_of_the_c_tool(options: str, filled: Path, tmp_path: Path) -> None:
    runs = []
    for run in (ours, theirs):
        image = copy_sparse(filled, tmp_path / run.__name__)
        runs.append(run("defrag.f2fs", *options.split(), image))
        assert tree_of(image)["entries"].keys() == tree_of(filled)["entries"].keys()
    mine, other = runs
    assert mine.rc == other.rc, f"{mine}\n{other}"
    assert moves(mine.output) == moves(other.output)
    judges.fsck_clean(tmp_path / "ours")


def moves(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("Info: Move")]


@pytest.mark.peer
@pytest.mark.parametrize("options", ["", "-s", f"-t {200 * MIB // 512}", "-V"])
def test_resize_reaches_the_size_of_the_c_tool(options: str, filled: Path, tmp_path: Path) -> None:
    found = []
    for run in (ours, theirs):
        image = copy_sparse(filled, tmp_path / run.__name__)
        with image.open("r+b") as file:
            file.truncate(256 * MIB)
        done = run("resize.f2fs", *options.split(), image, answer="y\n")
        fields = judges.superblock_fields(image)
        found.append((done.rc, fields["block_count"], image.stat().st_size))
        if run is ours:  # the C tool leaves one that its own fsck complains of
            judges.fsck_clean(image)
    assert found[0] == found[1]


def test_a_resize_that_is_not_wanted_is_not_made(filled: Path, tmp_path: Path) -> None:
    image = copy_sparse(filled, tmp_path / "image")
    with image.open("r+b") as file:
        file.truncate(256 * MIB)
    before = judges.superblock_fields(image)
    assert ours("resize.f2fs", image, answer="n\n").rc == 0
    assert judges.superblock_fields(image) == before
    assert ours("resize.f2fs", "-F", image, answer="n\n").rc == 0
    assert judges.superblock_fields(image) != before


# ---- sload ------------------------------------------------------------------------------------------------------

CONTEXTS = """/ u:object_r:rootfs:s0
/system(/.*)? u:object_r:system_file:s0
/system/system/bin/.* u:object_r:shell_exec:s0
"""


@pytest.mark.peer
@pytest.mark.parametrize("options", ["", "-P", "-T 1234567890", "-t /system -s {contexts}", "-d 0"])
def test_sload_loads_the_tree_of_the_c_tool(options: str, tmp_path: Path) -> None:
    contexts = tmp_path / "contexts"
    contexts.write_text(CONTEXTS)
    source = tree(tmp_path / "tree")
    trees = []
    for run in (ours, theirs):
        image = blank(tmp_path / run.__name__)
        assert theirs("mkfs.f2fs", "-q", "-O", "extra_attr,compression", image).rc == 0
        done = run("sload.f2fs", "-f", source, *options.format(contexts=contexts).split(), image)
        assert done.rc in (0, 1), str(done)
        document = tree_of(image)
        trees.append({path: labelled(entry) for path, entry in facts(document["entries"]).items() if path != "."})
        judges.fsck(image)
    assert trees[0] == trees[1]


def labelled(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with its label as text: the C tool leaves out the NUL that setfilecon(3) writes at its end."""
    label = entry.get("xattrs", {}).get("security.selinux")
    return entry if label is None else entry | {"xattrs": bytes.fromhex(label).rstrip(b"\0").decode()}


@pytest.mark.parametrize(
    ("options", "names"),
    [("-c -a lz4 -L 3", {"libc.so", "text.txt"}), ("-c -i txt", {"text.txt"}),
     ("-c -x so -m 2 -a LZ4", {"text.txt"}), ("-c -r", {"libc.so", "text.txt"}), ("", set())],
)  # fmt: skip
def test_sload_compresses_what_is_asked_for(options: str, names: set[str], tmp_path: Path) -> None:
    image = blank(tmp_path / "image")
    assert ours("mkfs.f2fs", "-q", "-O", "extra_attr,compression", image).rc == 0
    said = ours("sload.f2fs", "-f", tree(tmp_path / "tree"), *options.split(), image)
    assert said.rc == 0, str(said)
    assert compressed(image) == names
    judges.fsck_clean(image)
    plain = blank(tmp_path / "plain")
    assert ours("mkfs.f2fs", "-q", plain).rc == 0
    if options:
        assert "compression" in ours("sload.f2fs", "-f", tmp_path / "tree", *options.split(), plain).output


def compressed(image: Path) -> set[str]:
    """Names of files that are compressed."""
    import f2tools

    with f2tools.open(image) as volume:
        return {
            entry.name.decode() for _, _, entries in volume.walk() for entry in entries if entry.inode.compressed
        }  # fmt: skip


def test_sload_says_how_large_an_image_would_do(tmp_path: Path) -> None:
    image = blank(tmp_path / "image")
    assert ours("mkfs.f2fs", "-q", image).rc == 0
    said = ours("sload.f2fs", "-f", tree(tmp_path / "tree"), image).output
    line = next(line for line in said.splitlines() if "Max image size" in line)
    assert line.split()[4].isdecimal()  # what mkf2fsuserimg.sh takes with awk
    assert "[FSCK] other corrupted bugs                           [Ok..]" in said


def test_sload_keeps_what_is_there(tmp_path: Path) -> None:
    image, source = blank(tmp_path / "image"), tree(tmp_path / "tree")
    assert ours("mkfs.f2fs", "-q", image).rc == 0
    assert ours("sload.f2fs", "-f", source, image).rc == 0
    before = tree_of(image)["entries"]
    (source / "text.txt").write_bytes(b"another one")
    (source / "system/new").write_bytes(b"new")
    said = ours("sload.f2fs", "-f", source, image)
    assert said.rc == 0
    assert 'Skip the existing "text.txt"' in said.output
    after = tree_of(image)["entries"]
    assert after.pop("system/new")["size"] == 3
    assert facts({path: entry for path, entry in after.items() if path != "system"}) == facts(
        {path: entry for path, entry in before.items() if path != "system"}
    )
    judges.fsck_clean(image)


def test_sload_of_what_is_no_directory_ends_with_254(tmp_path: Path) -> None:
    """As sload.f2fs 1.16 does; 1.15 ends with 0."""
    image, empty = blank(tmp_path / "image"), blank(tmp_path / "empty")
    assert ours("mkfs.f2fs", "-q", image).rc == 0
    before = image.read_bytes()
    for source in (tmp_path / "none", empty, Path("/dev/null")):
        assert ours("sload.f2fs", "-f", source, image).rc == 254
        assert ours("sload.f2fs", "-f", source, empty).rc == ours("sload.f2fs", "-f", source, tmp_path / "no").rc == 255
    assert image.read_bytes() == before


def test_wrong_combinations_are_refused_as_by_the_c_tool(filled: Path, tmp_path: Path) -> None:
    image = copy_sparse(filled, tmp_path / "image")
    before = image.read_bytes()
    for options in ("-a lz4", "-c -i a -x b", "-c -L 9", "-c -m 4", "-Y"):
        mine, other = (run("sload.f2fs", "-f", tmp_path, *options.split(), image) for run in (ours, theirs))
        assert mine.rc == other.rc == 1, f"{mine}\n{other}"
    assert image.read_bytes() == before
    shutil.rmtree(tmp_path)
