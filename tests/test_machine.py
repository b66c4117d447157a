"""Machines on which nothing here gives right results are refused in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import f2tools
from f2tools.errors import F2fsError
from tests.images import reference

RUN = """
import sys
{planted}
sys.argv = ["f2tools", "fsck", {image!r}]
from f2tools.cli import run
run()
"""
PLANTED = {
    "sys.maxsize = 2**31 - 1": "32-bit little-endian",
    "sys.byteorder = 'big'": "64-bit big-endian",
}


@pytest.mark.parametrize(("planted", "said"), PLANTED.items(), ids=PLANTED.values())
def test_a_command_ends_before_it_does_anything(planted: str, said: str) -> None:
    program = RUN.format(planted=planted, image=str(reference("base").path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (8, "")
    assert done.stderr == (
        "f2tools: f2tools works on 64-bit little-endian machines, such as x86-64 and arm64; this Python is"
        f" {said}\n"
    )  # fmt: skip


def test_the_library_opens_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    image = reference("base").path
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(F2fsError, match="this Python is 64-bit big-endian"):
        f2tools.open(image)
    monkeypatch.undo()
    f2tools.open(image).close()


def test_the_core_is_not_taken_where_words_have_their_high_byte_first() -> None:
    program = "import sys; sys.byteorder = 'big'; from f2tools.native import core; sys.exit(core is not None)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == 0
