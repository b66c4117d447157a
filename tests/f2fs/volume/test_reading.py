"""Every reference image reads as the kernel read it: all names, all that stat, xattrs, FIEMAP and the content say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import f2tools
from f2tools.dump.manifest import manifest
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, NEW_ADDR
from f2tools.f2fs.volume.data import _few_runs, _plain_runs
from tests import images

# Facts of the machine that made the manifest; no image holds them.
NOT_IN_THE_IMAGE = {"kernel", "mount", "source"}

# What the kernel can't tell of a file that it can't open, and the image can: compared by inode number with the manifest
# that was made with the keys, in a test of its own.
MORE_THAN_THE_KERNEL = {"policy", "nonce"}

# The truth about the images that sload.f2fs filled is the tree that it was given.  sload keeps whole seconds only and
# leaves out fifos; a directory's size is the file system's own affair; the manifest hashed a file of 68 MiB as a whole,
# where the kernel's manifests hash what is above 64 MiB by segment: its only segment is the whole file.
SLOAD_LEAVES_OUT = {"fifo"}


def tree(case: images.Reference, checkpoint: Any = "newest") -> dict[str, Any]:
    """Our manifest of an image."""
    with f2tools.open(case.path, case.extra, checkpoint) as volume:
        return manifest(volume)


def differences(ours: dict[str, Any], kernel: dict[str, Any]) -> list[Any]:
    """(path, key, ours, the kernel's) of all that differs, and which entries only one of them has."""
    found: list[Any] = []
    plain = kernel.keys() - NOT_IN_THE_IMAGE - {"entries", "errors"}
    found += [(key, ours.get(key), kernel[key]) for key in plain if ours.get(key) != kernel[key]]
    if ours.get("errors", {}) != kernel.get("errors", {}):
        found.append(("errors", ours.get("errors"), kernel.get("errors")))
    mine, theirs = ours["entries"], kernel["entries"]
    found += [(path, "only with us") for path in mine.keys() - theirs.keys()]
    found += [(path, "only with the kernel") for path in theirs.keys() - mine.keys()]
    for path in mine.keys() & theirs.keys():
        a, b = mine[path], theirs[path]
        allowed = MORE_THAN_THE_KERNEL if "open_error" in b else set()
        for key in (a.keys() | b.keys()) - allowed:
            if a.get(key) != b.get(key):
                found.append((path, key, a.get(key), b.get(key)))
    return found


def expected_of(case: images.Reference) -> str:
    """The manifest that shows the image as it is: not recovered, without keys."""
    return next(
        name
        for name in ("manifest-norecovery", "manifest-nokey", "manifest-now", "manifest")
        if name in case.manifests()
    )


KERNEL_MADE = [name for name in images.CASES if name not in images.SLOADED and name not in images.SPARSE]
WITH_OLDER = [name for name in KERNEL_MADE if "manifest-previous" in images.reference(name).manifests()]


@pytest.mark.parametrize("name", KERNEL_MADE)
def test_an_image_reads_as_the_kernel_reads_it(name: str) -> None:
    case = images.reference(name)
    kernel = case.manifest(expected_of(case))
    ours = tree(case)
    # f2fs_seek_block() and f2fs_fiemap() look for addresses, which an alias has not
    for alias in (case.case[word] for word in ("alias", "released") if word in case.case):
        for entry in (ours["entries"][alias], kernel["entries"][alias]):
            entry.pop("segments", None)
            entry.pop("extents", None)
    assert differences(ours, kernel) == []
    assert list(ours["entries"]) == list(kernel["entries"]), "the order of the paths"


@pytest.mark.parametrize("name", WITH_OLDER)
def test_the_older_checkpoint_reads_as_the_kernel_reads_it(name: str) -> None:
    case = images.reference(name)
    assert differences(tree(case, "older"), case.manifest("manifest-previous")) == []


@pytest.mark.parametrize("name", images.SPARSE)
def test_an_android_sparse_image_reads_as_the_image_inside(name: str) -> None:
    case = images.reference(name)
    inside = images.reference(case.case["raw"])
    assert differences(tree(case), inside.manifest("manifest-now")) == []


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_policies_and_nonces_are_those_that_the_kernel_has_with_keys(name: str) -> None:
    case = images.reference(name)
    ours = {entry["ino"]: entry for entry in tree(case)["entries"].values()}
    compared = 0
    for path, entry in case.manifest("manifest-key")["entries"].items():
        for key in MORE_THAN_THE_KERNEL & entry.keys():
            assert ours[entry["ino"]].get(key) == entry[key], path
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize("name", images.SLOADED)
def test_what_sload_was_given_is_what_we_read(name: str) -> None:
    case = images.reference(name)
    ours = tree(case)
    assert "errors" not in ours
    given = {p: e for p, e in case.manifest()["entries"].items() if e["type"] not in SLOAD_LEAVES_OUT}
    assert ours["entries"].keys() - {"."} == given.keys() - {"."}
    for path, entry in given.items():
        found = dict(ours["entries"][path])
        if len(found.get("segment_sha256", ())) == 1 and "segments" not in found:
            found["sha256"] = found["segment_sha256"][0]
        for key, value in entry.items():
            if key == "mtime_ns":
                assert found[key] == value // 10**9 * 10**9, path
            elif key == "device_alias":
                assert found["flags"] & 0x800000, path  # an alias is pinned
                assert len(found["extents"]) == 1, path
            elif not (key == "size" and entry["type"] == "dir"):
                assert found.get(key) == value, (path, key)


def test_no_reference_image_is_left_out() -> None:
    assert set(KERNEL_MADE) | set(images.SLOADED) | set(images.SPARSE) == set(images.CASES)
    assert len(images.CASES) > 45


def test_a_large_directory_is_walked_in_pieces_and_listed_whole() -> None:
    with f2tools.open(images.reference("noinline").path) as volume:
        pieces = [(path, len(entries)) for path, _, entries in volume.walk() if path == b"/bigdir"]
        assert len(pieces) > 1
        assert max(count for _, count in pieces) <= 1024
        whole = volume.listdir(volume.path("/bigdir").inode)
        assert len(whole) == sum(count for _, count in pieces)
        empty = [entries for _, inode, entries in volume.walk() if inode.i_links == 2 and not entries]
        assert all(entries == [] for entries in empty)


@given(
    fofs=st.integers(0, 1000),
    pieces=st.lists(
        st.tuples(st.sampled_from([0, 1, 5, 100, COMPRESS_ADDR - 1, COMPRESS_ADDR, NEW_ADDR]), st.integers(1, 4))
    ),
    steps=st.booleans(),
)
def test_few_addresses_are_cut_into_the_runs_that_many_are(
    fofs: int, pieces: list[tuple[int, int]], steps: bool
) -> None:
    addrs = [(first + n * steps) % (1 << 32) for first, count in pieces for n in range(count)]
    assert _few_runs(fofs, tuple(addrs)) == list(_plain_runs(fofs, np.array(addrs, np.uint32)))
