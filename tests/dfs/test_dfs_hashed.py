"""Hashed directories: what a lookup costs, what a bucket takes, and what is given back."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import count, islice

import pytest

from f2tools.dfs.buckets import BUCKET_BLOCKS, bucket_of
from f2tools.dfs.files import Files
from f2tools.dfs.layout import BLOCK, ROOT_INO
from f2tools.dfs.volume import Volume
from f2tools.dfs.write import WritableVolume
from tests.dfs import volumes
from tests.dfs.volumes import codes, content, geometry, reading, tree, volume

pytestmark = pytest.mark.usefixtures("directories")


@pytest.fixture(params=["hashed"])
def directories() -> Iterator[None]:
    volumes.hashed = True
    yield
    volumes.hashed = False


def reads_to_find(seen: Volume, name: bytes) -> int:
    """How many reads of the layer a lookup in the root takes, its inode known."""
    root, reads = seen.inode(ROOT_INO), 0
    read = seen.layer.read_vblocks

    def counted(start: int, blocks: int) -> bytes:
        nonlocal reads
        reads += 1
        return read(start, blocks)

    seen.layer.read_vblocks = counted  # type: ignore[method-assign]
    assert seen.find(root, name) is not None
    return reads


def many(number: int) -> WritableVolume:
    made = volume()
    for one in range(number):
        made.create(ROOT_INO, b"file %d" % one, 0o644)
    return made


def meeting(bucket: int) -> Iterator[bytes]:
    """Long names that all lead to one bucket."""
    names = (b"%0200d" % number for number in count())
    return (name for name in names if bucket_of(geometry(), bytes(16), name) == bucket)


def test_a_name_is_found_with_one_read_in_a_directory_of_any_size() -> None:
    for number in (1, 800):
        made = many(number)
        made.close()
        assert reads_to_find(reading(content(made)), b"file 0") == 1


def test_a_directory_gives_back_what_its_names_took_and_says_how_many_it_has() -> None:
    made = many(300)
    made.sync()
    before = made.layer.extents(made.inode(ROOT_INO).base, made.geo.chunk_blocks)
    assert made.inode(ROOT_INO).size == 301 * BLOCK
    for number in range(300):
        made.unlink(ROOT_INO, b"file %d" % number)
    made.sync()
    root = made.inode(ROOT_INO)
    assert sum(blocks for _, blocks in before) > 250
    assert made.layer.extents(root.base, made.geo.chunk_blocks) == [(root.base, 1)]
    assert root.size == BLOCK


def test_a_bucket_that_is_full_refuses_a_name_and_leaves_nothing_half_made() -> None:
    made, names = volume(), meeting(16 * BUCKET_BLOCKS)
    directory = made.mkdir(ROOT_INO, b"folder", 0o755)
    other = made.create(ROOT_INO, b"other", 0o644)
    taken = list(islice(names, 2 * BUCKET_BLOCKS))  # two fit into a block
    for name in taken:
        made.create(directory, name, 0o644)
    with pytest.raises(OSError, match="No space") as error:
        made.create(directory, next(names), 0o644)
    assert error.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        made.link(other, directory, next(names))
    with pytest.raises(OSError, match="No space"):
        made.rename(ROOT_INO, b"other", directory, next(names))
    made.unlink(directory, taken[0])
    made.rename(ROOT_INO, b"other", directory, next(names))
    made.close()
    assert codes(content(made)) == set()
    assert len(tree(reading(content(made)))) == 2 + 2 * BUCKET_BLOCKS


def test_a_listing_goes_on_where_it_stopped_and_names_each_file_once() -> None:
    made = many(700)
    made.sync()
    files, position, found = Files(made), 0, list[bytes]()
    while True:
        part = list(islice(files.entries(ROOT_INO, position), 50))
        if not part:
            break
        found += [entry.name for entry in part]
        position = part[-1].after
    assert sorted(found) == sorted([b".", b"..", *(b"file %d" % number for number in range(700))])
