"""The prompt inside an image: lines, exit codes, changes and their undo, names of any kind, completion, a terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

import f2tools
from f2tools.shell.prompt import completions, last_word
from f2tools.shell.shell import Shell
from tests.dump.craft import Result, f2
from tests.judges import fsck_clean

LETTER = "Brief an Jürgen.txt"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image with names with umlauts, blanks and quotes."""
    tree = tmp_path / "tree"
    (tree / "Bilder aus Köln" / "Dom").mkdir(parents=True)
    (tree / "Bilder aus Köln" / LETTER).write_text("hallo\n")
    (tree / "Bilder aus Köln" / "it's [1]").write_text("one\n")
    (tree / "notes").write_text("notes\n")
    (tree / ".hidden").touch()
    path = tmp_path / "card.img"
    assert f2("mkfs", "-q", path, "--size", "64M", "--from", tree).code == 0
    return path


def lines(image: Path, *said: str, options: tuple[str, ...] = ()) -> Result:
    """What `f2tools shell` makes of these lines."""
    return f2("shell", image, *options, *(word for line in said for word in ("-c", line)))


def test_lines_go_on_from_the_directory_that_cd_went_to(image: Path) -> None:
    done = lines(image, "cd 'Bilder aus Köln'", "pwd", "ls", r"cat Brief\ an\ Jürgen.txt", "cd ..", "pwd", "ls -a")
    assert done.code == 0, done.err
    assert done.text.splitlines() == [
        "/Bilder aus Köln", LETTER, "Dom", "it's [1]", "hallo", "/", ".hidden", "Bilder aus Köln", "notes",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("sl", 2, "there is no command 'sl'; `ls`"),
        ("qwertz", 2, "`help` lists them"),
        ("cd nowhere", 1, "No such file"),
        ("cd notes", 1, "Not a directory"),
        ("cat nowhere", 1, "nowhere"),
        ("ls --nothing", 2, "No such option"),
        ("cat 'open", 2, "a quote is left open"),
        ("cp a b", 2, "put a colon before what is in the image"),
        ("rm notes", 1, "open for reading only"),
        ("block x", 2, "not a number"),
    ],
)
def test_what_can_not_be_done_is_said_and_ends_a_script(line: str, code: int, said: str, image: Path) -> None:
    before = image.read_bytes()
    done = lines(image, "pwd", line, "ls")
    assert done.code == code
    assert said in done.err
    assert done.text == "/\n", "what comes after must not be done"
    assert image.read_bytes() == before


def test_a_script_on_the_standard_input_is_done_line_by_line(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '# a comment\n\ncd Bilder*\ncat "Brief an Jürgen.txt"\nexit\ncat never'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(script.encode())))
    done = f2("shell", image)
    assert (done.code, done.text) == (0, "hallo\n")


def test_files_are_copied_out_and_in_and_every_change_can_be_taken_back(image: Path, tmp_path: Path) -> None:
    before = image.read_bytes()
    (tmp_path / "new ä").write_text("new\n")
    done = lines(
        image,
        "cd 'Bilder aus Köln'",
        f"get {LETTER.replace(' ', chr(92) + ' ')} {tmp_path}/out",
        f"put '{tmp_path}/new ä'",
        f"cp '{tmp_path}/new ä' :/in-root",
        "mkdir -p Alt/tief",
        "mv 'new ä' Alt/tief",
        "ln 'Alt/tief/new ä' hard",
        "rm /notes",
        f"cp -r :Alt {tmp_path}/tree",
        "ls hard Alt/tief",
        options=("--write", "--undo", str(tmp_path / "undo")),
    )
    assert done.code == 0, done.err
    assert (tmp_path / "out").read_text() == "hallo\n"
    assert (tmp_path / "tree" / "Alt" / "tief" / "new ä").read_text() == "new\n"
    with f2tools.open(image) as volume:
        assert volume.path("/in-root").read() == b"new\n"
        assert volume.path("/Bilder aus Köln/hard").inode.i_links == 2
        with pytest.raises(FileNotFoundError):
            volume.path("/notes")
    fsck_clean(image)
    for line in done.err.partition("to take it back: ")[2].strip().split(" && "):
        assert f2(*line.split()[1:]).code == 0
    assert image.read_bytes() == before


def test_deleted_files_structures_and_help_are_at_hand(image: Path, tmp_path: Path) -> None:
    assert f2("rm", f"{image}:/notes").code == 0
    back = f"undelete notes -o {tmp_path}/back"
    done = lines(image, "undelete", back, "inode 'Bilder aus Köln'", "stat .", "help", "help ls", "ls -h")
    assert done.code == 0, done.err
    assert "  notes\n" in done.text
    assert (tmp_path / "back" / "notes").read_text() == "notes\n"
    assert "i_current_depth" in done.text
    assert "dentries" in done.text
    assert done.text.count("Usage: ls") == 2
    assert "IMAGE" not in done.text.partition("Usage: ls")[2].splitlines()[0]


def test_the_words_of_an_unfinished_line_are_known() -> None:
    assert last_word("") == (0, "", [])
    assert last_word("ls ") == (3, "", ["ls"])
    assert last_word("cat a\\ b") == (4, "a b", ["cat"])
    assert last_word("cat 'a b") == (4, "a b", ["cat"])
    assert last_word('cp "x y" :a') == (9, ":a", ["cp", "x y"])


def test_tab_completes_commands_options_and_paths(image: Path, tmp_path: Path) -> None:
    shell = Shell(str(image))
    assert completions(shell, "un") == ["undelete "]
    assert completions(shell, "help un") == ["help undelete "]
    assert "ls --human " in completions(shell, "ls --h")
    assert completions(shell, "cat no") == ["cat notes "]
    assert completions(shell, "cat ") == [r"cat Bilder\ aus\ Köln/", "cat notes"]
    assert completions(shell, "cat .") == ["cat .hidden "]
    assert completions(shell, "cat 'Bilder aus Köln/i") == [r"cat Bilder\ aus\ Köln/it\'s\ [1] "]
    assert shell.run("cd Bilder*") == 0
    assert completions(shell, "cd D") == ["cd Dom/"]
    assert completions(shell, "get B") == [r"get Brief\ an\ Jürgen.txt "]
    assert completions(shell, "cp :/no") == ["cp :/notes "]
    assert completions(shell, f"put {tmp_path}/car") == [f"put {tmp_path}/card.img "]
    assert completions(shell, "cat /nowhere/x") == []
    # what is completed is what is meant
    for line in completions(shell, "cat "):
        assert line.endswith("/") or shell.run(line) == 0


def test_a_terminal_has_a_prompt_a_history_and_completion(image: Path, tmp_path: Path) -> None:
    terminal, ours = pty.openpty()
    # Ctrl-C is for whoever the terminal controls, and what a test run in the background has ignored stays ignored
    leads = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "f2tools", "shell", image]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, "-c", leads, *command], stdin=ours, stdout=ours, stderr=ours, env=environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(ours)
    said = b""

    def until(text: bytes, again: bytes = b"") -> bytes:
        nonlocal said
        end = time.monotonic() + 60
        while text not in said and time.monotonic() < end:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    said += os.read(terminal, 4096)
                except OSError:
                    break
            else:
                os.write(terminal, again)
        assert text in said, (said, process.poll())
        before, said = said[: said.index(text)], said[said.index(text) + len(text) :]
        return before

    until(b"card.img:/> ")
    os.write(terminal, b"cat no\t\n")
    until(b"notes\r\n")
    until(b"card.img:/> ")
    os.write(terminal, b"cat half a li\x03")
    # Python's readline misses a Ctrl-C that comes just before it waits for a key; a user presses it again
    until(b"card.img:/> ", again=b"\x03")
    os.write(terminal, b"nonsense\n")
    until(b"there is no command 'nonsense'")
    os.write(terminal, b"cd Bi\t\n")
    until("card.img:/Bilder aus Köln> ".encode())
    os.write(terminal, b"\x04")
    assert process.wait(60) == 0
    os.close(terminal)
    history = tmp_path / "state" / "f2tools" / "shell_history"
    assert "cat notes" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_an_undo_log_of_somebody_else_is_passed_over_and_not_advised(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    before = image.read_bytes()
    (tmp_path / "log.2").write_bytes(b"not ours")
    result = f2("shell", image, "--write", "--undo", tmp_path / "log", "-c", "mkdir a", "-c", "mkdir b")
    assert result.code == 0, result.err
    assert "log.3" in result.err
    assert "log.2" not in result.err
    for log in ("log.3", "log"):
        assert f2("undo", tmp_path / log, image).code == 0
    assert image.read_bytes() == before


def test_a_reader_of_both_streams_that_leaves_ends_it_as_one_of_a_pipe_does(image: Path, tmp_path: Path) -> None:
    words = ["shell", "--write", "--undo", tmp_path / "undo", image, "-c", "touch /a", "-c", "ls -lR /"]
    command = [sys.executable, "-c", "from f2tools.cli import run; run()", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 141
    assert f2("dump", "ls", image, "/a").code == 0
