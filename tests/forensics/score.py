"""How much of what is physically there comes back: `undelete` against the recoverable.json of a case.

    python tests/forensics/score.py tests/forensics/cases/history-a ...   (or any directory with the same files)

The bound are the non-empty deleted files whose last synced version is fully `linked` there and has its exact inode.
A file counts when path, size, mtime and sha256 are right.  Wrong content in grade certain is what must never be.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@dataclass
class Score:
    """The figures of one case."""

    name: str
    bound: int = 0
    back: int = 0
    grades: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    empty_bound: int = 0
    empty_back: int = 0
    alive: int = 0  # deletions that no checkpoint knows: the files are simply there
    named_bound: int = 0  # of the rest, those of which a dentry is left
    named: int = 0
    older_bound: int = 0
    older_back: int = 0
    older_grades: Counter[str] = field(default_factory=Counter)
    older_missed: list[str] = field(default_factory=list)
    certain: int = 0
    wrong_certain: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)


def load(path: Path) -> Any:
    """A JSON document, or a list of them when there is one a line."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file] if path.name.endswith(".jsonl.gz") else json.load(file)


def unpack(case: Path, directory: Path) -> Path:
    """The image of a case, sparse."""
    image = directory / f"{case.name}.img"
    if not image.exists():
        subprocess.run(["zstd", "-dq", "--sparse", str(case / "image.zst"), "-o", str(image)], check=True)
    return image


def score(case: Path, found: list[dict[str, Any]]) -> Score:
    """Hold what undelete printed (with --versions) against what is there."""
    truth = load(case / "recoverable.json.gz")
    versions = load(case / "versions.jsonl.gz") if (case / "versions.jsonl.gz").exists() else []
    result = Score(case.name)
    by_key: dict[tuple[int, int | None], list[dict[str, Any]]] = {}
    for item in found:
        by_key.setdefault((item["ino"], item.get("generation")), []).append(item)
    _deleted(result, truth, by_key)
    _older(result, truth, by_key)
    _certain(result, truth, versions, found)
    return result


def _deleted(result: Score, truth: Any, by_key: dict[Any, Any]) -> None:
    for entry in truth["deleted"]:
        if entry["type"] != "file" or not entry.get("versions"):
            continue
        items = by_key.get((entry["ino"], entry["gen"]), [])
        synced = [version for version in entry["versions"] if version["how"] != "unsynced"] or entry["versions"]
        last = synced[-1]
        if entry.get("after_last_checkpoint"):
            result.alive += 1
            continue
        paths = {entry["path"], *last["paths"]}
        if entry.get("linked") == "all" and last["exact_inode_blocks"]:
            result.bound += 1
            good = [item for item in items if _same(item, last) and item["path"] in paths]
            if good:
                result.back += 1
                result.grades[good[0]["grade"]] += 1
            else:
                near = [(i["path"], i["size"], i["mtime_ns"], i["grade"], i["sha256"] == last["sha256"]) for i in items]
                result.missed.append(f"{sorted(paths)} {last['size']} {last['mtime_ns']}: {near}")
        elif entry.get("linked") == "empty" and last["exact_inode_blocks"]:
            result.empty_bound += 1
            result.empty_back += any(_same(item, last) and item["path"] in paths for item in items)
        elif entry["dentries"]:
            result.named_bound += 1
            every = [i for key, some in by_key.items() if key[0] == entry["ino"] for i in some]
            result.named += any(item["path"] in paths for item in every)


def _older(result: Score, truth: Any, by_key: dict[Any, Any]) -> None:
    olds = [(entry["ino"], entry["gen"], entry["versions"][:-1]) for entry in truth["deleted"] if entry.get("versions")]
    gens = {entry["ino"]: None for entry in truth["changed"]}
    olds += [(entry["ino"], gens[entry["ino"]], entry["older_versions"]) for entry in truth["changed"]]
    for ino, gen, versions in olds:
        items = [i for key, some in by_key.items() if key[0] == ino and gen in (None, key[1]) for i in some]
        for version in versions:
            if version["how"] == "unsynced" or version.get("linked") != "all" or not version["exact_inode_blocks"]:
                continue
            result.older_bound += 1
            good = [item for item in items if _same(item, version) and item["path"] in version["paths"]]
            if good:
                result.older_back += 1
                result.older_grades[good[0]["grade"]] += 1
            else:
                near = [
                    (i["path"], i["size"], i["mtime_ns"], i["grade"], i["sha256"] == version.get("sha256"))
                    for i in items
                ]
                result.older_missed.append(f"{ino} {version['paths']} {version['size']} {version['mtime_ns']}: {near}")


def _certain(result: Score, truth: Any, versions: list[Any], found: list[dict[str, Any]]) -> None:
    known: dict[tuple[int, int], set[tuple[int, int, str]]] = {}
    for version in versions:
        if version.get("sha256") and version.get("gen") is not None:
            known.setdefault((version["ino"], version["gen"]), set()).add(
                (version["size"], version["mtime_ns"], version["sha256"])
            )
    for item in found:
        if item["grade"] != "certain" or item["type"] != "file":
            continue
        result.certain += 1
        states = known.get((item["ino"], item["generation"]))
        if not states:
            result.invented.append(f"{item['path']} ino {item['ino']} gen {item['generation']} {item['size']}")
            continue
        same = {sha for size, mtime, sha in states if (size, mtime) == (item["size"], item["mtime_ns"])}
        if same and item["sha256"] not in same:
            result.wrong_certain.append(
                f"{item['path']} ino {item['ino']} {item['size']} {item['mtime_ns']} {item['reasons']}"
            )


def _same(item: dict[str, Any], version: dict[str, Any]) -> bool:
    return (item["size"], item["mtime_ns"]) == (version["size"], version["mtime_ns"]) and (
        item["sha256"] == version.get("sha256", item["sha256"])
    )


def undelete(image: Path) -> list[dict[str, Any]]:
    """What `f2tools undelete --list --versions --json` prints."""
    command = [sys.executable, "-m", "f2tools", "undelete", str(image), "--list", "--versions", "--json"]
    if not (Path(sys.executable).parent / "f2tools").exists():
        raise SystemExit("f2tools is not installed here")
    command = [str(Path(sys.executable).parent / "f2tools"), *command[3:]]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _words(grades: Counter[str]) -> str:
    return ", ".join(f"{count} {grade}" for grade, count in grades.most_common())


def main(cases: list[str]) -> None:
    """Print a row for each case, as a table."""
    print("| case | deleted files back | in grade | empty | names of the rest", end="")
    print(" | older versions back | in grade | wrong in certain |")
    print("|---|---|---|---|---|---|---|---|")
    details = "-v" in cases
    with tempfile.TemporaryDirectory() as directory:
        for name in cases:
            if name == "-v":
                continue
            case = Path(name)
            result = score(case, undelete(unpack(case, Path(directory))))
            print(
                f"| {case.name} | {result.back} of {result.bound} | {_words(result.grades)} "
                f"| {result.empty_back} of {result.empty_bound} | {result.named} of {result.named_bound} "
                f"| {result.older_back} of {result.older_bound} | {_words(result.older_grades)} "
                f"| {len(result.wrong_certain)} of {result.certain} |"
            )
            if details:
                for what in ("missed", "older_missed", "wrong_certain", "invented"):
                    for text in getattr(result, what)[:12]:
                        print(f"    {what}: {text[:600]}")


if __name__ == "__main__":
    main(sys.argv[1:])
