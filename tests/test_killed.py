"""Commands that are killed while they make a file: nothing is left under its name, and nothing beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps import ALL

F2TOOLS = [sys.executable, "-m", "f2tools"]
TRACED = [shutil.which("strace") or "strace", "-f", "-qq", "-o", "/dev/null"]
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace sends the signals")


@pytest.fixture(autouse=True)
def signals_as_from_a_terminal() -> Iterator[None]:
    """Programs inherit what is ignored, as SIGHUP by nohup and SIGINT by what a shell starts with `&`."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    for number, handler in before.items():
        if handler == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("source")
    for number in range(60):
        (directory / f"f{number}").write_bytes(os.urandom(20_000))
    return directory


def killed_at(call: str, when: int, number: signal.Signals, directory: Path, *command: object) -> int:
    """The exit code, as the shell has it, of a command that gets a signal at that call of that system call."""
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal={number.name[3:]}:when={when}"]
    words = [*TRACED, *inject, *F2TOOLS, *map(str, command)]
    done = subprocess.run(words, cwd=directory, capture_output=True, timeout=120, text=True)
    said = "" if number == signal.SIGKILL else "f2tools: interrupted"
    assert done.stderr.strip() == said, done.stderr
    code = done.returncode
    return 128 - code if code < 0 else code


@needs_strace
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("when", "command"),
    [
        (300, ("dffs", "mkfs", "new", "--size", "16M", "--from")),
        (60, ("dfs", "mkfs", "new", "--size", "64M", "--from")),
        (2, ("vsl", "create", "new", "--size", "8M")),
        (12, ("mkfs", "-q", "new", "--size", "64M", "--from")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_new_image_that_is_killed_is_none(
    when: int, command: tuple[str, ...], number: signal.Signals, tmp_path: Path, source: Path
) -> None:
    words = [*command, source] if command[-1] == "--from" else list(command)
    assert killed_at("pwrite64", when, number, tmp_path, *words) == 128 + number
    assert list(tmp_path.iterdir()) == []


NAMING = ("link", "linkat", "rename", "renameat", "renameat2")
OUTPUTS = [
    ("dump", "tar", "IMAGE", "-o", "out.tar"),
    ("dump", "metadata", "IMAGE", "out.img"),
    ("dump", "manifest", "IMAGE", "-o", "out.json"),
    ("timeline", "IMAGE", "-o", "out.csv"),
    ("hashes", "IMAGE", "-o", "out.txt"),
    ("scan", "IMAGE", "-o", "out.idx"),
    ("report", "IMAGE", "-o", "out"),
    ("undelete", "IMAGE", "-o", "out", "--all"),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    made = tmp_path_factory.mktemp("image") / "v.img"
    subprocess.run([*F2TOOLS, "mkfs", "-q", made, "--size", "64M", "--from", source], check=True)
    subprocess.run([*F2TOOLS, "rm", f"{made}:/f7", f"{made}:/f8"], check=True, capture_output=True)
    return made


def reads_of(words: list[str], directory: Path) -> tuple[str, int]:
    """By which call a command reads most, and how often before its output is there: SQLite reads that once more."""
    log = directory / "strace.log"
    calls = f"trace=pread64,preadv,{','.join(NAMING)}"
    traced = [TRACED[0], "-f", "-qq", "-o", log, "-e", calls, *F2TOOLS, *words]
    done = subprocess.run(traced, cwd=directory, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line.split(None, 1) for line in log.read_text().splitlines()]
    made = [call.split("(")[0] for process, call in lines if process == lines[0][0]]
    there = max((at for at, call in enumerate(made) if call in NAMING), default=len(made))
    reads = Counter(call for call in made[:there] if call not in NAMING)
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return reads.most_common(1)[0]


@needs_strace
@pytest.mark.parametrize("command", OUTPUTS, ids=lambda command: " ".join(command[:-3]))
def test_an_output_that_is_killed_is_none(command: tuple[str, ...], tmp_path: Path, image: Path) -> None:
    words = [str(image) if word == "IMAGE" else word for word in command]
    call, calls = reads_of(words, tmp_path)
    half, later = calls // 2, calls * 3 // 4
    each = {signal.SIGTERM: (half,), signal.SIGHUP: (later,), signal.SIGKILL: (half, later)}
    for number in SIGNALS:
        for when in (half, later) if ALL else each[number]:
            assert killed_at(call, when, number, tmp_path, *words) == 128 + number, (number, when)
            left = [path for path in tmp_path.rglob("*") if path.is_file()]
            if number == signal.SIGKILL and command[0] == "scan":  # SQLite wants a name
                assert all(path.name.endswith(".new") for path in left)
                left = []
            if number == signal.SIGKILL and command[0] == "undelete":
                shutil.rmtree(tmp_path / "out", ignore_errors=True)
                left = []
            assert left == [], (number, when)


START = [sys.executable, "-c", "import sys; sys.argv[0] = 'f2tools'; from f2tools.__main__ import run; run()", "--help"]


@needs_strace
def test_ctrl_c_at_the_start_gives_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "strace.log"
    subprocess.run([TRACED[0], "-qq", "-o", log, "-e", "trace=openat", *START], check=True, capture_output=True)
    opened = log.read_text().splitlines()
    first = next(at for at, call in enumerate(opened, 1) if "f2tools/" in call and "process" in call)
    for when in range(first, len(opened), 7):
        inject = ["-e", "trace=openat", "-e", f"inject=openat:signal=INT:when={when}"]
        done = subprocess.run([*TRACED, *inject, *START], capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stderr, (when, done.stderr)
        assert done.returncode in (130, -signal.SIGINT), when


@needs_strace
def test_nohup_is_respected(tmp_path: Path, image: Path) -> None:
    inject = ["-e", "trace=pread64", "-e", "inject=pread64:signal=HUP:when=5+"]
    words = ["dump", "tar", str(image), "-o", "out.tar"]
    subprocess.run(["nohup", *TRACED, *inject, *F2TOOLS, *words], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out.tar").stat().st_size > 60 * 20_000


STOPPED = """
import os, signal
from f2tools.process import settle, told_to_end
settle()
with told_to_end():
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
        print("a forked process goes on")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGHUP)
        print("in order", flush=True)
"""


def test_a_second_signal_does_not_break_off_what_the_first_brings() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("-15\nin order\n", "", -signal.SIGTERM)


def children_of(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_processes_for_many_images_end_with_the_first(number: signal.Signals, tmp_path: Path, image: Path) -> None:
    images = [tmp_path / f"{one}.img" for one in range(60)]
    for one in images:
        one.hardlink_to(image)
    main = subprocess.Popen([*F2TOOLS, "fsck", "--jobs", "2", *images], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert main.stdout is not None
    main.stdout.readline()  # one is done
    workers = children_of(main.pid)
    assert len(workers) >= 2
    main.send_signal(number)
    said, errors = main.communicate(timeout=60)  # the workers hold the pipes
    assert main.returncode == -number
    assert said.count(b"\n") < 59
    assert b"Traceback" not in errors
    while any(map(runs, workers)):  # for ever, where they don't end
        time.sleep(0.05)


@needs_strace
def test_an_image_with_an_undo_log_says_how_it_is_as_before(tmp_path: Path, source: Path) -> None:
    """Where anything was changed before Ctrl-C."""
    made = [*F2TOOLS, "mkfs", "-q", "base", "--size", "64M", "--from", str(source)]
    subprocess.run(made, cwd=tmp_path, check=True, timeout=120)
    changed = 0
    for when in (2, 8, 20):
        image, log = tmp_path / f"{when}", tmp_path / f"{when}.undo"
        image.write_bytes((tmp_path / "base").read_bytes())
        inject = ["-e", "trace=pwrite64", "-e", f"inject=pwrite64:signal=INT:when={when}"]
        words = [*TRACED, *inject, *F2TOOLS, "resize", "--no-check", "--undo", log.name, image.name, "256M"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=120, text=True)
        assert done.returncode == 130, done.stderr
        same = image.read_bytes() == (tmp_path / "base").read_bytes()
        if not same:
            changed += 1
            assert f"`f2tools undo {log.name} {image.name}` takes back what was changed" in done.stderr
            back = [*F2TOOLS, "undo", log.name, image.name]
            subprocess.run(back, cwd=tmp_path, check=True, timeout=120, capture_output=True)
            assert image.read_bytes() == (tmp_path / "base").read_bytes()
    assert changed
