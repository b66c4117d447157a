"""An open directory: what a listing takes from the file system, and when."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator

import pytest

from f2tools.fuse.served import Listing
from f2tools.vfs import DirEntry
from tests.fuse.memory import ROOT_INO, MemoryFileSystem, fail


class Counted(MemoryFileSystem):
    """Counts the entries that were taken from it."""

    def __init__(self, names: list[bytes], writable: bool = False) -> None:
        super().__init__()
        for name in names:
            self.create(ROOT_INO, name, stat.S_IFREG | 0o644, 0, 0)
        self.writable = writable  # type: ignore[misc]
        self.taken = 0
        self.fails_at = b""

    def entries(self, ino: int, position: int) -> Iterator[DirEntry]:
        for entry in super().entries(ino, position):
            if entry.name == self.fails_at:
                fail(errno.EIO)
            self.taken += 1
            yield entry


def request(listing: Listing, files: Counted, position: int, room: int) -> list[DirEntry]:
    """The answer to one request: the entry that finds no room is asked for again by the next one."""
    given: list[DirEntry] = []
    for entry in listing.items(files, position):
        if len(given) == room:
            break
        given.append(entry)
    return given


def all_of(listing: Listing, files: Counted, position: int = 0, room: int = 10) -> list[bytes]:
    names: list[bytes] = []
    while given := request(listing, files, position, room):
        names += [entry.name for entry in given]
        position = given[-1].after
    return names


NAMES = [b"n%03d" % number for number in range(300)]


def test_a_listing_of_what_cannot_change_takes_each_entry_once_and_no_sooner_than_it_is_asked_for() -> None:
    files = Counted(NAMES)
    listing = Listing(ROOT_INO)
    assert [entry.name for entry in request(listing, files, 0, 10)] == [b".", b"..", *NAMES[:8]]
    assert files.taken == 11
    assert all_of(listing, files, 10) == NAMES[8:]
    assert files.taken == len(NAMES) + 2


@pytest.mark.parametrize("writable", [False, True])
def test_a_listing_may_be_read_again_and_from_any_place(writable: bool) -> None:
    files = Counted(NAMES, writable)
    listing = Listing(ROOT_INO)
    assert all_of(listing, files) == [b".", b"..", *NAMES]
    assert all_of(listing, files, room=7) == [b".", b"..", *NAMES]
    assert all_of(listing, files, 200) == NAMES[198:]
    assert [entry.name for entry in request(listing, files, 5, 2)] == NAMES[3:5]
    assert [entry.name for entry in request(listing, files, 5, 2)] == NAMES[3:5]
    assert all_of(listing, files, 7) == NAMES[5:]


def test_a_listing_shows_what_comes_before_an_error_and_can_go_on_when_it_has_passed() -> None:
    files = Counted(NAMES)
    files.fails_at = NAMES[15]
    listing = Listing(ROOT_INO)
    first = request(listing, files, 0, 10)
    with pytest.raises(OSError, match="Input/output"):
        request(listing, files, first[-1].after, 10)
    with pytest.raises(OSError, match="Input/output"):
        request(listing, files, first[-1].after, 10)
    files.fails_at = b""
    assert all_of(listing, files, first[-1].after) == NAMES[8:]


@pytest.mark.parametrize("writable", [False, True])
def test_names_that_no_system_call_takes_are_left_out(writable: bool) -> None:
    files = Counted([b"a", b"../b", b"c\0d", b"e"], writable)
    assert all_of(Listing(ROOT_INO), files, room=1) == [b".", b"..", b"a", b"e"]
    assert writable or files.taken == 6
