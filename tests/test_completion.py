"""What a shell completes: by click's own completion, and by bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dump.craft import f2

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    (folder / "tree" / "etc").mkdir(parents=True)
    (folder / "tree" / "my pictures").mkdir()
    for name in ("etc/fstab", "etc/hosts", "etc/hostname", "my pictures/Jürgen.jpg"):
        (folder / "tree" / name).touch()
    path = folder / "card.img"
    assert f2("mkfs", "-q", path, "--size", "64M", "--from", folder / "tree").code == 0
    return path


def completed(line: str, shell: str = "zsh") -> list[str]:
    """What is offered at the end of a line, by the completion that click calls for a shell."""
    words = line.split(" ")
    env = os.environ | {
        "_F2TOOLS_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    code = "import sys; sys.argv[0] = 'f2tools'\nfrom f2tools.cli import run\nrun()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert not done.stderr
    if shell == "bash":
        return [one.partition(",")[2] for one in done.stdout.splitlines()]
    return done.stdout.splitlines()[1::3]


def test_paths_in_an_image_are_completed_after_it_and_after_a_colon(image: Path) -> None:
    assert completed(f"f2tools rm {image}:/etc/ho") == [f"{image}:/etc/hostname", f"{image}:/etc/hosts"]
    assert completed(f"f2tools cp {image}:/e") == [f"{image}:/etc/"]
    assert completed(f"f2tools dump ls {image} /etc/f") == ["/etc/fstab"]
    assert completed(f"f2tools dump cat {image}:/etc/f") == [f"{image}:/etc/fstab"]
    assert completed(f"f2tools dump inode {image} /m") == ["/my pictures/"]
    assert completed(f"f2tools history {image} /etc/f") == ["/etc/fstab"]
    assert completed("f2tools rm nowhere.img:/e") == []
    assert completed("f2tools rm x") == [""]  # files of the host, by the shell


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("f2tools mkfs -O quota,ver", "quota,verity"),
        ("f2tools tune x.img -O !quo", "!quota"),
        ("f2tools fsck --explain n00", "N003"),
        ("f2tools trace analyze --explain sequ", "sequentiality"),
        ("f2tools she", "shell"),
    ],
)
def test_features_codes_metrics_and_commands_are_completed(line: str, wanted: str) -> None:
    assert wanted in completed(line)
    assert wanted in completed(line, "bash")


BASH = r"""
eval "$(_F2TOOLS_COMPLETE=bash_source f2tools)"
compopt() { :; }
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_f2tools_completion f2tools
printf '%s\n' "${COMPREPLY[@]}"
"""


def test_bash_goes_on_after_the_colon_at_which_it_ends_a_word(image: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    env = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}

    def offered(line: str, *words: str) -> list[str]:
        command = [bash, "--norc", "-c", BASH, "bash", line, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=image.parent, env=env)
        return done.stdout.splitlines()

    # as bash takes these lines apart
    assert offered("f2tools rm card.img:/e", "f2tools", "rm", "card.img", ":", "/e") == ["/etc/"]
    assert offered("f2tools rm card.img:", "f2tools", "rm", "card.img", ":") == [""]
    assert offered("f2tools dump ls card.img /etc/h", "f2tools", "dump", "ls", "card.img", "/etc/h") == [
        "/etc/hostname", "/etc/hosts",
    ]  # fmt: skip
    assert offered(r"f2tools rm card.img:/my\ p", "f2tools", "rm", "card.img", ":", r"/my\ p") == ["/my pictures/"]
    words = ("f2tools", "rm", "card.img", ":", r"/my\ pictures/J")
    assert offered(r"f2tools rm card.img:/my\ pictures/J", *words) == ["/my pictures/Jürgen.jpg"]
    assert offered("f2tools mkfs -O quota,ver", "f2tools", "mkfs", "-O", "quota,ver") == ["quota,verity"]
