"""Take over a case of the recorded histories: the image as it is, of the truth what the tests ask for.

    python tests/forensics/cases/trim.py FOLDER_OF_THE_RECORDED_CASE ...

README.md beside this file says how the cases were recorded.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = ("fid", "ver", "how", "type", "ino", "gen", "paths", "size", "mtime_ns", "sha256")
STATE = ("how", "size", "mtime_ns", "sha256", "paths", "linked", "exact_inode_blocks")
DELETED = ("type", "path", "ino", "gen", "deleted_t", "after_last_checkpoint", "linked", "dentries")
VIEW = ("how", "cp_ver", "tree", "dirty")
ENTRY = ("type", "mode", "uid", "gid", "size", "nlink", "ino", "mtime_ns", "sha256", "target")


def some(item: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields that are kept."""
    return {name: item[name] for name in names if name in item}


def lines(path: Path) -> list[dict[str, Any]]:
    """One document a line."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def save(path: Path, text: str) -> None:
    """The same text gives the same bytes."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.encode())


def trim(source: Path) -> None:
    """One case."""
    target = HERE / source.name
    target.mkdir(exist_ok=True)
    shutil.copyfile(source / "image.zst", target / "image.zst")
    truth = json.loads(gzip.decompress((source / "recoverable.json.gz").read_bytes()))
    for entry in truth["deleted"]:
        entry["dentries"] = entry["dentries"][:1]
    deleted = [
        {**some(entry, DELETED), "versions": [some(version, STATE) for version in entry.get("versions", [])]}
        for entry in truth["deleted"]
    ]
    changed = [
        {"ino": entry["ino"], "older_versions": [some(version, STATE) for version in entry["older_versions"]]}
        for entry in truth["changed"]
    ]
    save(target / "recoverable.json.gz", json.dumps({"deleted": deleted, "changed": changed}))
    versions = [json.dumps(some(version, VERSION)) for version in lines(source / "versions.jsonl.gz")]
    save(target / "versions.jsonl.gz", "\n".join(versions) + "\n")
    views = [json.dumps(some(view, VIEW)) for view in lines(source / "views.jsonl.gz")]
    save(target / "views.jsonl.gz", "\n".join(views) + "\n")
    for path in source.glob("manifest-*.json.gz"):
        manifest = json.loads(gzip.decompress(path.read_bytes()))
        if path.name == "manifest-previous.json.gz" and not (source / "manifest-recovered.json.gz").exists():
            continue  # after an unmount both checkpoints have the same tree
        entries = {name: some(entry, ENTRY) for name, entry in manifest["entries"].items()}
        save(target / path.name, json.dumps({"entries": entries}))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        trim(Path(name))
