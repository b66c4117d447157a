"""Images, directories and outputs may be called anything: every command works with names beyond ASCII, or no text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_lines import CHANGING, FORMATTING, READING, filled

ROOT = Path(__file__).resolve().parent.parent
LINES = ("mkfs -q {i} --size 64M", *CHANGING, *READING, *FORMATTING)
TRACE = b"  8,0    1        1     0.000000000   100  Q   W 2048 + 8 [cp]\n"
# The lines run in one process of their own, whose locale is not ours.
RUNNER = """
import contextlib, io, json, sys, traceback
from f2tools.cli import run
answers = []
for words in json.loads(sys.stdin.buffer.read().decode("ascii")):
    sys.argv = ["f2tools", *words]
    out, err = (io.TextIOWrapper(io.BytesIO(), sys.stdout.encoding, write_through=True) for _ in range(2))
    code = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        err.write(traceback.format_exc())
    answers.append([code, err.buffer.getvalue().decode("latin-1")])
print(json.dumps(answers))
"""
NAMES = {
    "umlauts": ("jürgen".encode(), "ü.img".encode()),
    "no text": (b"j\xffrgen", b"\xff\xfe.img"),
    "blanks and quotes": (b"it's a", b'"card" $1.img'),
}
LOCALES = {
    "UTF-8": {"LC_ALL": "C.UTF-8"},
    "C": {"LC_ALL": "C"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


def decoded(name: bytes, locale: str) -> str:
    """As Python has a file name in this locale."""
    return name.decode("ascii" if locale == "ASCII" else "utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("locale", "name"), [("C", "umlauts"), ("C", "no text"), ("ASCII", "no text"), ("UTF-8", "blanks and quotes")]
)
def test_every_command_works_whatever_image_and_directory_are_called(locale: str, name: str, tmp_path: Path) -> None:
    directory_name, image_name = NAMES[name]
    directory = os.path.join(os.fsencode(tmp_path), directory_name)
    os.mkdir(directory)
    image = os.path.join(directory, image_name)
    places = {"i": image, "d": directory, "f": directory + b"/f\xc3\xa4\xff", "t": directory + b"/t\xff"}
    with open(places["f"], "wb") as file:
        file.write(b"hello" * 2000)
    with open(places["t"], "wb") as file:
        file.write(TRACE)
    words = {key: decoded(value, locale) for key, value in places.items()}
    lines = [filled(line, **words) for line in LINES]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(lines).encode(), capture_output=True, cwd=ROOT, check=False,
        env={**environment, **LOCALES[locale], "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    wrong = [(line, code, said) for line, (code, said) in zip(LINES, answers, strict=True) if code or "Error" in said]
    assert wrong == [], "\n".join(map(str, wrong))
    made = os.listdir(directory)
    assert {image_name, b"files", b"files.tar", b"index", b"report", b"salvaged", b"timeline"} <= set(made)
