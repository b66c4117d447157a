"""Images and mount points whose names are not ASCII, or no UTF-8, whatever the locale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.f2fs.write.volumes import fresh, judge
from tests.mount.mounted import need_fuse

F2TOOLS = os.fsencode(Path(sys.executable).parent / "f2tools")
LOCALES = {
    "UTF-8": {"LC_ALL": "C.UTF-8"},
    "C": {"LC_ALL": "C"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


UMLAUT, BYTES = "jürgen".encode(), b"no \xff\xfe UTF-8, but\\with commas"


@pytest.mark.parametrize(
    ("name", "locale"), [(UMLAUT, "UTF-8"), (UMLAUT, "C"), (BYTES, "C"), (BYTES, "ASCII")], ids=repr
)
def test_any_name_can_be_mounted_shown_and_unmounted(tmp_path: Path, name: bytes, locale: str) -> None:
    need_fuse()
    above = os.path.join(os.fsencode(tmp_path), name)
    image, directory = os.path.join(above, name + b".img"), os.path.join(above, b"on " + name)
    os.makedirs(directory)
    os.rename(fresh(tmp_path), image)
    environment = {**os.environ, **LOCALES[locale]}

    def f2tools(*words: str | bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([F2TOOLS, *words], capture_output=True, check=False, timeout=120, env=environment)

    done = f2tools("mount", image, directory)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    try:
        with open(os.path.join(directory, name), "wb") as file:
            file.write(b"content")
        said = json.loads(f2tools("mount", "--stats", "--json", image).stdout)
        assert said["read_only"] is False
        again = f2tools("mount", image, tmp_path)
        assert again.returncode == 8
        assert b"mounted on" in again.stderr
        assert b"Traceback" not in again.stderr
    finally:
        done = f2tools("umount", directory)
    assert (done.returncode, done.stderr) == (0, b"")
    os.rename(image, tmp_path / "image")
    judge(tmp_path / "image")
