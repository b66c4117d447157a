"""What `make demo` compares trees with: it is run by users who are not root, and twice on the same files."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).resolve().parent.parent / "scripts" / "demo_check.py"


def test_files_that_not_even_their_owner_may_read_are_compared_and_stay_so(tmp_path: Path) -> None:
    """The second comparison found modes that the first one had set."""
    files = tmp_path / "files"
    files.mkdir()
    entries = {}
    for mode in (0o000, 0o200, 0o444):
        name = f"{mode:03o}"
        (files / name).write_text(name)
        (files / name).chmod(mode)
        status = os.lstat(files / name)
        entries[name] = {
            "type": "file", "size": 3, "mode": f"{mode:04o}", "mtime_ns": status.st_mtime_ns,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
        }  # fmt: skip
    manifest = json.dumps({"entries": entries, "statfs": {}})
    (tmp_path / "ours.json").write_text(manifest)
    (tmp_path / "theirs.json.gz").write_bytes(gzip.compress(manifest.encode()))
    powerless = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []  # root's name without root's rights
    command = [*powerless, sys.executable, str(CHECK), "compare", "theirs.json.gz", "ours.json", "files"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "3 of 3 extracted files have that content" in done.stdout
    assert [oct(os.lstat(files / name).st_mode & 0o7777) for name in entries] == ["0o0", "0o200", "0o444"]
