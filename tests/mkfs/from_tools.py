"""What the tests of `mkfs --from` share: the tree of a directory or an image as facts, written down independently."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import f2tools
from f2tools.dump.manifest import manifest

WRITER = Path(__file__).parents[1] / "kernel" / "inside" / "bin" / "manifest"
FACTS = ("type", "mode", "uid", "gid", "mtime_ns", "nlink", "target", "sha256", "segment_sha256", "rdev", "xattrs")


def facts(entries: dict[str, dict[str, Any]], *more: str) -> dict[str, dict[str, Any]]:
    """What of a manifest does not depend on the file system; sizes of files, and where they have holes."""
    return {
        path: {name: entry[name] for name in (*FACTS, *more) if name in entry}
        | ({} if entry["type"] == "dir" else {"size": entry["size"], "segments": entry.get("segments")})
        for path, entry in entries.items()
    }


def tree_of(image: Path) -> dict[str, Any]:
    """Our manifest of an image."""
    with f2tools.open(image) as volume:
        document = json.loads(json.dumps(manifest(volume)))
    assert "errors" not in document, document["errors"]
    return document


def directory_of(top: Path, work: Path) -> dict[str, dict[str, Any]]:
    """The manifest of a directory of the host, by the program that writes the kernel's ones."""
    out = work / "host.json"
    arguments, sys.argv = sys.argv, ["manifest", str(top), str(out)]
    try:
        runpy.run_path(str(WRITER), run_name="__main__")
    finally:
        sys.argv = arguments
    return json.loads(out.read_text())["entries"]


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two files are equal."""
    with one.open("rb") as a, other.open("rb") as b:
        while True:
            left, right = a.read(1 << 20), b.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True


def copied(top: Path, to: Path) -> Path:
    """A copy of a directory made in another order; times and attributes as they are."""
    shutil.copytree(top, to, symlinks=True)
    return to
