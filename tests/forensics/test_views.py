"""Views as of a checkpoint against what the kernel saw then."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.copyout.walk import Lost, shown, walk
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.forensics.index import open_index
from f2tools.forensics.past import Past
from f2tools.forensics.view import Sureness, cp_ver_of, open_as_of, view_of
from tests.forensics.history_cases import CASES, image_of
from tests.forensics.score import load


def tree(volume: Volume) -> dict[str, Inode]:
    """Path -> inode of all that can be read."""
    lost: list[Lost] = []
    found = {shown(item.path)[1:]: item.inode for item in walk(volume, volume.root, lost) if item.path != b"/"}
    return {path: inode for path, inode in found.items() if not path.startswith(".burn")}


def differences(volume: Volume, sure: Sureness, view: dict[str, Any], versions: dict[Any, Any]) -> list[str]:
    """How a view differs from what was recorded; what the view itself says to be unsure of does not count."""
    found = tree(volume)
    said = [f"missing {path}" for path in view["tree"].keys() - found.keys()]
    said += [f"too much {path}" for path in found.keys() - view["tree"].keys()]
    unsure = {shown(path)[1:] for path in (*sure.gaps, *sure.doubtful)}
    for path in view["tree"].keys() & found.keys():
        file, number = view["tree"][path]
        version = versions.get((file, number))
        if version is None or version["type"] != "file" or file in view.get("dirty", []):
            continue
        inode = found[path]
        if (inode.i_size, inode.mtime_ns) != (version["size"], version["mtime_ns"]):
            said.append(f"other state {path}")
        elif path not in unsure:
            content = File(volume, inode).read()
            if hashlib.sha256(content).hexdigest() != version["sha256"]:
                said.append(f"other content {path}")
    return said


@pytest.mark.parametrize("name", ["history-a", "history-d", "history-gc", "history-inplace", "history-lfs", "phone"])
def test_the_tree_is_what_it_was_after_every_checkpoint(name: str) -> None:
    versions = {(v["fid"], v["ver"]): v for v in load(CASES / name / "versions.jsonl.gz")}
    views = load(CASES / name / "views.jsonl.gz")
    with f2tools.open(image_of(name)) as volume, open_index(volume) as index:
        past = Past(volume, index)
        for view in [*views[::7], *views[-2:]]:
            found, sure = view_of(past, view["cp_ver"])
            assert differences(found, sure, view, versions) == [], view["cp_ver"]


@pytest.mark.parametrize("name", ["history-c", "history-c-small"])
def test_a_view_of_which_directories_were_overwritten_has_the_names_that_are_sure(name: str) -> None:
    views = load(CASES / name / "views.jsonl.gz")
    with f2tools.open(image_of(name)) as volume, open_index(volume) as index:
        past = Past(volume, index)
        for view in views[::9]:
            found, sure = view_of(past, view["cp_ver"])
            names = tree(found).keys()
            assert names <= view["tree"].keys()
            if names != view["tree"].keys():
                assert sure.grade == "partial"
                assert "partial" in found.warnings[-1]
            if name == "history-c":
                assert len(names) >= 0.5 * len(view["tree"])


@pytest.mark.parametrize(("what", "how"), [
    ("now", {}), ("previous", {"checkpoint": "older"}), ("recovered", {"recovered": True}),
])  # fmt: skip
def test_the_three_views_of_a_power_cut_are_the_kernels(what: str, how: dict[str, Any]) -> None:
    entries = load(CASES / "history-d" / f"manifest-{what}.json.gz")["entries"]
    with f2tools.open(image_of("history-d"), **how) as volume:
        assert same_as_kernel(volume, entries, recovered=what == "recovered") == []


@pytest.mark.parametrize("name", ["history-b", "phone", "phone-discard"])
def test_an_unmounted_volume_is_what_the_kernel_sees(name: str) -> None:
    entries = load(CASES / name / "manifest-now.json.gz")["entries"]
    for checkpoint in ("newest", "older"):
        with f2tools.open(image_of(name), checkpoint=checkpoint) as volume:
            assert same_as_kernel(volume, entries) == []


def same_as_kernel(volume: Volume, entries: dict[str, Any], recovered: bool = False) -> list[str]:
    """How the tree differs from a manifest of the kernel."""
    found = {shown(item.path)[1:] or ".": item.inode for item in walk(volume, volume.root, [])}
    said = sorted(found.keys() ^ entries.keys())
    for path in found.keys() & entries.keys():
        inode, entry = found[path], entries[path]
        # recovery changes directories, and when it does so is its own affair
        mtime = entry["mtime_ns"] if inode.is_dir and recovered else inode.mtime_ns
        have = (inode.ino, f"{inode.i_mode & 0o7777:04o}", inode.i_size, mtime, inode.i_uid)
        if have != (entry["ino"], entry["mode"], entry["size"], entry["mtime_ns"], entry["uid"]):
            said.append(path)
        elif "sha256" in entry and hashlib.sha256(File(volume, inode).read()).hexdigest() != entry["sha256"]:
            said.append(f"content of {path}")
    return said


def test_a_time_means_the_last_checkpoint_made_by_then() -> None:
    image = image_of("history-a")
    with f2tools.open(image) as volume, open_index(volume) as index:
        past = Past(volume, index)
        assert cp_ver_of(past, "2100-01-01T00:00:00Z") == volume.cp.checkpoint_ver
        early = cp_ver_of(past, "2024-03-02")
        assert early == cp_ver_of(past, str(early)) == cp_ver_of(past, early) < volume.cp.checkpoint_ver
        for nothing in ("1999-01-01", 5, "soon"):
            with pytest.raises(Usage):
                cp_ver_of(past, nothing)
    with open_as_of(image, "2024-03-02") as volume:
        assert volume.path("/doomed/inline3.txt").inode.i_size == 946


def test_what_was_overwritten_is_an_error_and_not_newer_content() -> None:
    with f2tools.open(image_of("history-a")) as volume, open_index(volume) as index:
        found, sure = view_of(Past(volume, index), volume.cp.checkpoint_ver - 57)
        assert sure.gaps == [b"/big/large3.bin"]
        with pytest.raises(F2fsError, match="written to since"):
            found.path("/big/large3.bin").read()


def test_dump_takes_as_of(tmp_path: Path, run_f2tools: Any) -> None:
    image = image_of("history-a")
    done = run_f2tools("dump", "ls", image, "/doomed", "--as-of", "2024-03-02")
    assert "inline3.txt" in done.stdout.split()
    assert "rebuilt from the log" in done.stderr
    done = run_f2tools("dump", "extract", image, "/doomed", "--as-of", "2024-03-02", "-o", tmp_path / "out")
    assert (tmp_path / "out/doomed/inline3.txt").stat().st_size == 946
    assert run_f2tools("dump", "ls", image, "--as-of", "5").returncode == 2


def test_a_mount_as_of_a_time_shows_what_was_there_then(tmp_path: Path) -> None:
    from f2tools.mount.options import parse_options
    from f2tools.mount.session import MountRequest, open_tree

    image = image_of("history-a")
    shown_then = open_tree(MountRequest(str(image), str(tmp_path), parse_options(["as-of=2024-03-02"])))
    assert not shown_then.writable
    directory = shown_then.lookup(3, b"doomed")
    assert directory is not None
    file = shown_then.lookup(directory, b"inline3.txt")
    assert file is not None
    with open_as_of(image, "2024-03-02") as volume:
        assert shown_then.read(file, 0, 5000) == volume.path("/doomed/inline3.txt").read()
    shown_then.close()
