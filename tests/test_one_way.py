"""One way to do each thing: paths in images, patterns, words that are meant, what is there already."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from f2tools.cli import main
from f2tools.compat.names import PROGRAMS
from f2tools.edit.verbs import VERBS
from f2tools.errors import F2fsError
from f2tools.options import FileName, Size
from f2tools.sizes import parse_size
from tests.dump.craft import f2, poke


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def said(*words: object) -> str:
    """What a command prints that must succeed."""
    done = run(*words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("one_way")
    (directory / "in").mkdir()
    for name in ("one.txt", "two.txt", "three.jpg"):
        (directory / "in" / name).write_text(f"{name}\n")
    said("mkfs", "-q", directory / "image", "--size", "64M", "--from", directory)
    return directory / "image"


def test_a_path_in_an_image_is_written_alike_everywhere(image: Path) -> None:
    for words in (("dump", "cat"), ("dump", "stat"), ("dump", "inode"), ("dump", "map"), ("dump", "ls", "-l")):
        assert said(*words, f"{image}:/in/one.txt") == said(*words, image, "/in/one.txt")
    assert said("dump", "cat", f"{image}:/in/one.txt", f"{image}:/in/two.txt", "/in/one.txt") == (
        "one.txt\ntwo.txt\none.txt\n"
    )
    with pytest.raises(F2fsError, match="in one image"):
        raised(run("dump", "cat", f"{image}:/in/one.txt", f"{image.parent / 'in/one.txt'}:/x"))


def raised(result: Result) -> None:
    assert result.exception is not None, result.output
    raise result.exception


def test_a_pattern_is_quoted_once(image: Path, tmp_path: Path) -> None:
    assert said("dump", "cat", f"{image}:/in/*.txt") == "one.txt\ntwo.txt\n"
    assert said("dump", "cat", image, "/i?/[ot]*.txt") == "one.txt\ntwo.txt\n"
    said("dump", "extract", f"{image}:/in/*.jpg", "-o", tmp_path / "out")
    assert os.listdir(tmp_path / "out/in") == ["three.jpg"]
    assert run("dump", "cat", f"{image}:/in/*.png").exit_code == 1


@pytest.mark.parametrize(
    ("words", "meant"),
    [("ls", "dump ls"), ("stat", "dump stat"), ("dmp", "dump"), ("dump extrct", "dump extract"), ("umont", "umount")],
)
def test_an_unknown_command_is_told_what_may_be_meant(words: str, meant: str) -> None:
    with pytest.raises(F2fsError, match=f"`[a-z0-9 ]*{meant}`") as told:
        raised(run(*words.split()))
    assert told.value.exit_code == 2


def test_sizes_may_be_in_sectors() -> None:
    assert [parse_size(text) for text in ("2048s", "1M", "8K", "1.5KiB", "0x200", "7")] == [
        1 << 20, 1 << 20, 8192, 1536, 512, 7
    ]  # fmt: skip
    for wrong in ("1.3s", "7sB", "s", "1x"):
        with pytest.raises(ValueError, match=r"size|whole"):
            parse_size(wrong)


@pytest.mark.parametrize(
    "line",
    ["timeline {i} -o {f}", "dump tar {i} -o {f}", "dump manifest {i} -o {f}", "dump metadata {i} {f}",
     "scan {i} -o {f}",
     "report {i} -o {d}",
     "carve {i} -o {d}", "slack {i} -o {d}", "undelete {i} -o {d}", "history {i} /in/one.txt --extract 1 -o {f}"],
)  # fmt: skip
def test_what_is_there_is_not_written_over(line: str, image: Path, tmp_path: Path) -> None:
    file, directory = tmp_path / "file", tmp_path / "folder"
    directory.mkdir()
    for path in (file, directory / "kept"):
        path.write_text("somebody's own")
    words = line.format(i=image, f=file, d=directory).split()
    with pytest.raises(F2fsError, match="--force writes all the same") as told:
        raised(run(*words))
    assert told.value.exit_code == 1
    assert file.read_text() == (directory / "kept").read_text() == "somebody's own"
    assert os.listdir(directory) == ["kept"]
    done = run(*words, "--force")
    assert not isinstance(done.exception, F2fsError), done.exception
    assert (directory / "kept").read_text() == "somebody's own"


@pytest.mark.parametrize(
    "line",
    ["hashes {i} -o {i}", "timeline {i} -o {i}", "dump tar {i} -o {i}", "dump manifest {i} -o {i}",
     "dump metadata {i} {i}", "scan {i} -o {i}", "history {i} /in/one.txt --extract 1 -o {i}",
     "timeline {i} -o {link}", "hashes {i}@+0 -o {i}", "hashes {i} --known {link} -o {i}"],
)  # fmt: skip
def test_no_force_writes_over_the_image_that_is_read(line: str, image: Path, tmp_path: Path) -> None:
    copy, link = tmp_path / "copy", tmp_path / "link"
    shutil.copy(image, copy)
    link.hardlink_to(copy)
    with pytest.raises(F2fsError, match="is what this command reads") as told:
        raised(run(*line.format(i=copy, link=link).split(), "--force"))
    assert told.value.exit_code == 1
    assert filecmp.cmp(image, copy, shallow=False)
    assert filecmp.cmp(image, link, shallow=False)


def test_no_piece_of_an_image_is_written_over(image: Path, tmp_path: Path) -> None:
    content = image.read_bytes()
    pieces = [tmp_path / f"card.{number:03}" for number in (1, 2)]
    for piece, half in zip(pieces, (content[: len(content) // 2], content[len(content) // 2 :]), strict=True):
        piece.write_bytes(half)
    for command in ("timeline", "dump tar"):
        with pytest.raises(F2fsError, match="give another name"):
            raised(run(*command.split(), pieces[0], "-o", pieces[1], "--force"))
    assert b"".join(piece.read_bytes() for piece in pieces) == content


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images of the other two systems, with the same files."""
    directory = tmp_path_factory.mktemp("others")
    (directory / "from/in").mkdir(parents=True)
    for name in ("one.txt", "two.txt", "three.jpg"):
        (directory / "from/in" / name).write_text(f"{name}\n")
    for system in ("dfs", "dffs"):
        said(system, "mkfs", directory / system, "--size", "16M", "--from", directory / "from")
    return {system: directory / system for system in ("dfs", "dffs")}


@pytest.mark.parametrize("system", ["dfs", "dffs"])
def test_the_other_systems_have_the_same_paths_patterns_and_refusals(
    system: str, others: dict[str, Path], tmp_path: Path
) -> None:
    image = others[system]
    assert said(system, "dump", "cat", f"{image}:/in/one.txt") == "one.txt\n"
    assert said(system, "dump", "cat", f"{image}:/in/*.txt", "/in/thre?.jpg") == "one.txt\ntwo.txt\nthree.jpg\n"
    assert said(system, "dump", "ls", f"{image}:/i*").split() == ["one.txt", "three.jpg", "two.txt"]
    assert run(system, "dump", "cat", f"{image}:/in/*.png").exit_code != 0
    with pytest.raises(F2fsError, match=f"`main {system} fsck`"):
        raised(run(system, "fsk"))
    out = tmp_path / "out"
    for command in ("tar", "manifest"):
        out.write_text("somebody's own")
        with pytest.raises(F2fsError, match="--force writes all the same") as told:
            raised(run(system, "dump", command, image, "-o", out))
        assert told.value.exit_code == 1
        assert out.read_text() == "somebody's own"
        said(system, "dump", command, image, "-o", out, "--force")
        with pytest.raises(F2fsError, match="is what this command reads"):
            raised(run(system, "dump", command, image, "-o", image, "--force"))
    with pytest.raises(F2fsError, match="not written over") as told:
        raised(run(system, "mkfs", image, "--size", "16M"))
    assert told.value.exit_code == 1


def test_files_that_are_in_the_way_are_not_called_lost(image: Path, tmp_path: Path) -> None:
    said("dump", "extract", image, "-o", tmp_path)
    done = run("dump", "extract", image, "-o", tmp_path)
    assert done.exit_code == 1
    assert "lost" not in done.output
    assert "not copied" in done.output


def test_a_name_that_is_taken_keeps_its_extension() -> None:
    from f2tools.forensics.restore import _suffixed

    assert _suffixed(b"IMG.jpg", b"~2") == b"IMG~2.jpg"
    assert _suffixed(b".profile", b"~2") == b".profile~2"
    assert len(_suffixed(b"x" * 255, b"~2")) == 255
    assert _suffixed(b"y" * 250 + b".jpeg", b"~12").endswith(b"~12.jpeg")


def test_undelete_takes_one_image_and_says_when_nothing_matches(image: Path, tmp_path: Path) -> None:
    with pytest.raises(F2fsError, match="one image at a time"):
        raised(run("undelete", image, image))
    assert run("undelete", image, "no such name").exit_code == 1


@pytest.mark.parametrize("words", [
    ("fleet", "info", "{image}", "-o", "{dir}/x.parquet", "--html", "{image}"),
    ("fleet", "info", "{image}", "-o", "{image}"),
    ("clean", "--simulate", "{image}", "--svg", "{image}"),
    ("trace", "analyze", "{trace}", "--html", "{image}"), ("trace", "analyze", "{trace}", "--svg", "{image}"),
])  # fmt: skip
def test_a_page_or_picture_replaces_no_file_of_another_kind(words: tuple[str, ...], tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    trace = tmp_path / "trace.blktrace.0"
    trace.write_bytes(b"")
    before = image.read_bytes()
    result = f2(*(word.format(image=image, dir=tmp_path, trace=tmp_path / "trace") for word in words))
    assert (result.code, image.read_bytes() == before) == (1, True), result.err
    assert "is there already" in result.err


@pytest.mark.parametrize(("line", "code"), [
    ("mkfs {image}", 1), ("mkfs {image} -f --undo {there}", 1), ("mkfs {there} -S 64M", 1),
    ("label {image} NEW --undo {there}", 1), ("mkdir {image}:/a --undo {there}", 1),
    ("shell {image} --write --undo {there} -c ls", 1),
    ("fsck -y {image} --undo {there}", 8), ("fsck {image} --salvage {dir}", 8),  # 1 is that all was repaired
])  # fmt: skip
def test_what_is_there_has_the_same_exit_code_everywhere(line: str, code: int, tmp_path: Path) -> None:
    image, there = tmp_path / "image", tmp_path / "there"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    poke(image, 4096 + 1024, bytes(4))  # so that there is something to repair
    there.write_bytes(b"a letter")
    before = image.read_bytes()
    result = f2(*line.format(image=image, there=there, dir=tmp_path).split())
    assert (result.code, there.read_bytes(), image.read_bytes() == before) == (code, b"a letter", True), result.err


def commands(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its words."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None, word
        if isinstance(command, click.Group):
            yield from commands(command, f"{name}{word} ")
        else:
            yield f"{name}{word}", command


def test_an_offset_is_taken_by_every_command_on_a_volume_and_is_in_bytes_with_suffixes() -> None:
    for name, command in commands(main):
        options = {text: option for option in command.params for text in option.opts}
        elsewhere = name.split()[0] in ("dfs", "dffs", "ftl", "vsl")
        if {"--device", "--undo"} & set(options) and not elsewhere:
            assert "--offset" in options, name
        if "--offset" in options:
            assert isinstance(options["--offset"].type, Size), name
    with pytest.raises(F2fsError, match="--offset is for one that is there"):
        raised(run("mkfs", "new", "--size", "64M", "--offset", "1M"))


# what takes any text, as it names no file or directory of the host; what is not here must refuse an empty one
OF_NO_FILE = {
    # sizes, names, patterns, times
    "--free", "--map-owner", "--exclude", "--compress", "--compress-ext", "--label", "--uuid", "--features",
    "--encoding", "--root-owner", "--cold-extensions", "--hot-extensions", "--nid", "--segno", "--as-of", "--only",
    "--skip", "--explain", "--scheduler", "--op", "--process", "--device NAME", "--file", "--fs", "--salt", "--owner",
    "--mode", "--date", "--name", "--value", "--remove", "--modify", "--extract", "--diff", "--living", "--deleted",
    "--type", "--note", "--head", "-f", "-i", "-z", "-o OPTION,...", "--command",
    # paths in the image, or as programs that use it will see them
    "--selinux-mount", "--paths", "-m", "path", "paths", "which", "what",
    "segnos", "nid", "inode", "blkaddr", "struct", "new", "pattern", "mode", "owner", "command",
}  # fmt: skip


def test_an_empty_name_of_a_file_is_taken_by_no_parameter() -> None:
    for name, command in commands(main):
        context = click.Context(command)
        for given in command.params:
            word = max(given.opts, key=len)
            assert type(given.type) is not click.Path, (name, word)
            if isinstance(given, click.Option) and given.is_flag:
                continue
            if {word, f"{word} {given.metavar}"} & OF_NO_FILE and not isinstance(given.type, FileName):
                continue
            with pytest.raises(click.UsageError):
                given.type.convert("", given, context)


@pytest.mark.parametrize("line", [
    "cp {i}:/stdin @", "cp {i}:/in @", "cp -r {i}:/in @", "cp @ {i}:/x", "cp stdin @ {i}:/", "ln -s @ {i}:/l",
    "ln @ {i}:/l", "mv @ {i}:/x", "mv {i}:/in @", "rm -rf @", "load @ --from in", "load {i} --from @",
    "load {i} --from in --sort @", "edit @ -c ls", "shell @ -c ls",
    "mount @ m", "mount {i} @", "mount --stats @", "umount @", "dfs mount @ m", "dfs mount {i} @", "dffs mount @ m",
    "trace analyze @", "trace compare @ x", "trace compare x @", "trace events @", "trace export @ -o out",
    "trace record @ true", "ftl simulate @", "ftl compare @", "ftl sweep @", "ftl export @", "fleet info @ -o out",
    "experiment fsync --on @", "mkfs @ --size 64M", "mkfs new --size 64M -c @", "info {i} --backing @", "info @",
])  # fmt: skip
def test_an_empty_name_is_wrong_usage_and_nothing_is_made(
    line: str, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in ("in", "m"):
        (tmp_path / directory).mkdir()
    for name in ("stdin", "x.blktrace.0"):
        (tmp_path / name).write_text("PRECIOUS")
    before, there = image.read_bytes(), sorted(os.listdir(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = run(*(word.replace("@", "").format(i=image) for word in line.split()))
    assert (result.exit_code, "is empty" in result.output) == (2, True), (result.output, result.exception)
    assert sorted(os.listdir(tmp_path)) == there
    assert (tmp_path / "stdin").read_text() == "PRECIOUS"
    assert image.read_bytes() == before
    assert os.listdir(tmp_path / "in") == []


@pytest.mark.parametrize("line", ["fsck @", "fsck {i} @", "fsck {i} --undo @", "dfs fsck @", "dffs fsck @"])
def test_an_empty_name_is_wrong_usage_of_what_checks(line: str, image: Path) -> None:
    assert run(*(word.replace("@", "").format(i=image) for word in line.split())).exit_code == 16


@pytest.mark.parametrize(
    ("name", "code"),
    [("mkfs.f2fs", 255), ("sload.f2fs", 255), ("fsck.f2fs", 8), ("dump.f2fs", 255), ("defrag.f2fs", 255),
     ("resize.f2fs", 255), ("f2fslabel", 255), ("fsck.f2tools", 16), ("fsck.fuse.f2tools", 16)],
)  # fmt: skip
def test_an_empty_name_of_a_device_is_what_the_c_tools_say_of_no_file(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert import_module(f"f2tools.compat.{PROGRAMS[name]}").main(name, [""]) % 256 == code
    told = capsys.readouterr().err
    assert "Error: " in told
    assert "mistake in f2tools" not in told
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    ["rm -r ''", "mv in ''", "cp -r '' in/x", "get -r ''", "get -r in ''", "put stdin ''", "put '' in", "ln -s '' l"],
)
def test_an_empty_path_at_the_prompt_is_not_the_present_directory(
    line: str, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stdin").write_text("PRECIOUS")
    before = image.read_bytes()
    monkeypatch.chdir(tmp_path)
    result = f2("shell", image, "--write", "-c", line)
    assert (result.code, "is empty" in result.err) == (2, True), result.err
    assert (os.listdir(tmp_path), image.read_bytes() == before) == (["stdin"], True)


@pytest.mark.parametrize("line", ["rm -r ''", "cp '' :/x", "mkdir ''", "ln -s '' :/l", "mv :/in ''"])
def test_an_empty_path_in_a_script_is_not_the_root(line: str, image: Path) -> None:
    before = image.read_bytes()
    result = f2("edit", image, "-c", line)
    assert (result.code, "is empty" in result.err) == (2, True), result.err
    assert image.read_bytes() == before


# the letters of commands that bear another program's name are that program's
SLEUTHS = ("fls", "icat", "istat", "blkcat", "fsstat")
NAMESAKES = {
    "-n": {"mv": "--no-clobber", "setfattr": "--name", "strings": "--bytes"},
    "-f": {"mount": "--foreground", "dfs mount": "--foreground", "dffs mount": "--foreground"} | dict.fromkeys(SLEUTHS),
    "-h": {"chown": "--no-dereference", "setfattr": "--no-dereference", "fls": None, "icat": None, "blkcat": None},
}
# what these say to each other is held elsewhere: -n checks only, -f checks what looks sound too
CHECKERS = ("fsck", "dfs fsck", "dffs fsck")


def test_n_f_and_h_mean_the_same_in_every_command_and_its_help_says_so() -> None:
    unix = {verb.name for verb in VERBS.values()}
    for name, command in commands(main):
        command._help_option = None  # click keeps that of the first call, which another test may have made without -h
        options = {text: option for option in command.params for text in option.opts}
        page = run(*name.split(), "--help").output
        for letter, long in (("-n", "--dry-run"), ("-f", "--force"), ("-h", "--help")):
            if name in NAMESAKES[letter]:
                own = NAMESAKES[letter][name]
                assert letter in options[own or letter].opts, (name, letter)
            elif name in CHECKERS and letter != "-h":
                assert letter not in options or long not in options[letter].opts, (name, letter)
            elif letter == "-h":
                assert run(*name.split(), "-h").output == page, name
                assert re.search(r"^  (-\w, )?-h, (-\w, )?--help +Show this", page, re.M), name
            elif long in options and not (letter == "-n" and name in unix):
                assert letter in options[long].opts, (name, letter)
                assert re.search(rf"^  {letter}, {long} ", page, re.M), name
            else:
                assert letter not in options, (name, letter)


def test_a_server_that_is_named_twice_is_named_alike(image: Path, tmp_path: Path) -> None:
    with pytest.raises(F2fsError, match="contradict each other") as told:
        raised(run("mount", image, tmp_path, "--server", "direct", "-o", "ro,server=pyfuse3"))
    assert told.value.exit_code == 2


def test_a_scheduler_that_is_no_address_is_refused_for_small_traces_too(tmp_path: Path) -> None:
    (tmp_path / "trace.blktrace.0").write_bytes(b"")
    with pytest.raises(F2fsError, match="is no address") as told:
        raised(run("trace", "analyze", tmp_path / "trace", "--scheduler", "nonsense"))
    assert told.value.exit_code == 2
