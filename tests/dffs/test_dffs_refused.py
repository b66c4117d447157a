"""An operation that fails at any of its steps leaves the old tree or makes the new one, and says which.

Either it is a refusal: the tree is as before, in memory and once it is safe, and the volume goes on.  Or nothing is
written any more: what is on the flash is sound, and what was safe before.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from functools import cache

import pytest

from f2tools.dffs.layout import ROOT_ID
from f2tools.dffs.nodes import Directory
from f2tools.dffs.volume import Volume
from f2tools.dffs.write import RENAME_EXCHANGE, RENAME_WHITEOUT, WritableVolume
from f2tools.errors import F2fsError
from tests.device.failing import ERRORS, Steps, failing
from tests.dffs.volumes import TIGHT, codes, colliding, content, reading, volume, writing
from tests.sweeps import some

Operation = Callable[[WritableVolume], object]
SOME = 5  # steps of each operation that fail; all with $F2_SWEEPS
MET = colliding(12)  # names of one bucket


def at(made: WritableVolume, path: bytes) -> int:
    inode = made.at_path(path)
    made.remember(inode)
    return inode.ino


def moved(old: bytes, name: bytes, new: bytes, new_name: bytes, flags: int = 0) -> Operation:
    return lambda v: v.rename(at(v, old), name, at(v, new), new_name, flags)


OPERATIONS: dict[str, Operation] = {
    "create": lambda v: v.create(at(v, b"/d"), b"new", 0o644, 1, 2),
    "create a node": lambda v: v.create(ROOT_ID, b"new", 0o20644, rdev=(1, 3)),
    "create in a bucket": lambda v: v.create(at(v, b"/met"), MET[9], 0o644),
    "create in a bucket of one": lambda v: v.create(at(v, b"/one"), MET[9], 0o644),
    "mkdir": lambda v: v.mkdir(at(v, b"/d"), b"new", 0o755),
    "mkdir in a bucket of one": lambda v: v.mkdir(at(v, b"/one"), MET[9], 0o755),
    "symlink": lambda v: v.symlink(ROOT_ID, b"new", b"d/f"),
    "symlink of pages": lambda v: v.symlink(ROOT_ID, b"new", b"x" * 3000),
    "link": lambda v: v.link(at(v, b"/d/f"), at(v, b"/e"), b"new"),
    "link in a bucket of one": lambda v: v.link(at(v, b"/d/f"), at(v, b"/one"), MET[9]),
    "link of a linked one": lambda v: v.link(at(v, b"/1"), at(v, b"/e"), b"new"),
    "unlink": lambda v: v.unlink(at(v, b"/d"), b"f"),
    "unlink one of two": lambda v: v.unlink(ROOT_ID, b"1"),
    "unlink a large one": lambda v: v.unlink(ROOT_ID, b"large"),
    "unlink in a bucket": lambda v: v.unlink(at(v, b"/met"), MET[0]),
    "rmdir": lambda v: v.rmdir(at(v, b"/d"), b"empty"),
    "rename": moved(b"/d", b"f", b"/e", b"g"),
    "rename in place": moved(b"/d", b"f", b"/d", b"g"),
    "rename in a bucket": moved(b"/met", MET[0], b"/met", MET[9]),
    "rename in a bucket of one": moved(b"/one", MET[0], b"/one", MET[9]),
    "rename to a bucket of one": moved(b"/d", b"f", b"/one", MET[9]),
    "rename of a name": moved(b"/", b"2", b"/e", b"g"),
    "rename a directory": moved(b"/d", b"sub", b"/e", b"g"),
    "rename over a file": moved(b"/d", b"f", b"/", b"large"),
    "rename over a file in a bucket": moved(b"/met", MET[0], b"/met", MET[1]),
    "rename over a directory": moved(b"/d", b"sub", b"/d", b"empty"),
    "exchange": moved(b"/d", b"f", b"/e", b"other", RENAME_EXCHANGE),
    "exchange in a bucket": moved(b"/met", MET[0], b"/met", MET[1], RENAME_EXCHANGE),
    "exchange with a directory": moved(b"/d", b"f", b"/", b"e", RENAME_EXCHANGE),
    "whiteout": moved(b"/d", b"f", b"/e", b"g", RENAME_WHITEOUT),
    "whiteout in place": moved(b"/d", b"f", b"/d", b"g", RENAME_WHITEOUT),
    "whiteout in a bucket": moved(b"/met", MET[0], b"/met", MET[9], RENAME_WHITEOUT),
    "whiteout in a bucket of one": moved(b"/one", MET[0], b"/one", MET[9], RENAME_WHITEOUT),
    "whiteout over a file": moved(b"/d", b"f", b"/", b"large", RENAME_WHITEOUT),
    "whiteout over a file in a bucket": moved(b"/met", MET[0], b"/met", MET[1], RENAME_WHITEOUT),
    "whiteout of a name": moved(b"/", b"2", b"/e", b"g", RENAME_WHITEOUT),
    "whiteout of a directory": moved(b"/d", b"sub", b"/e", b"g", RENAME_WHITEOUT),
    "write": lambda v: v.write(at(v, b"/d/f"), 10, b"new" * 100),
    "write that moves it out": lambda v: v.write(at(v, b"/d/f"), 1000, b"new" * 700),
    "write into pages": lambda v: v.write(at(v, b"/large"), 1000, b"new" * 1700),
    "truncate": lambda v: v.truncate(at(v, b"/large"), 700),
    "truncate to nothing": lambda v: v.truncate(at(v, b"/large"), 0),
    "truncate to more": lambda v: v.truncate(at(v, b"/d/f"), 100_000),
    "chmod": lambda v: v.setattr(at(v, b"/d/f"), mode=0o700),
    "setxattr": lambda v: v.setxattr(at(v, b"/d/f"), "user.new", b"value"),
    "removexattr": lambda v: v.removexattr(at(v, b"/d/f"), "user.old"),
    "release": lambda v: v.release(v.nameless[0]),
}  # fmt: skip


@cache
def image() -> bytes:
    made = volume(TIGHT)
    directory, other = made.mkdir(ROOT_ID, b"d", 0o755), made.mkdir(ROOT_ID, b"e", 0o755)
    file = made.create(directory, b"f", 0o644)
    made.write(file, 0, b"small" * 200)
    made.setxattr(file, "user.old", b"old")
    made.create(made.mkdir(directory, b"sub", 0o755), b"below", 0o600)
    made.mkdir(directory, b"empty", 0o755)
    made.create(other, b"other", 0o600)
    made.write(made.create(ROOT_ID, b"large", 0o644), 0, b"large" * 1000)
    made.link(made.create(ROOT_ID, b"1", 0o644), ROOT_ID, b"2")
    met = made.mkdir(ROOT_ID, b"met", 0o755)
    for name in MET[:3]:
        made.create(met, name, 0o644)
    made.create(made.mkdir(ROOT_ID, b"one", 0o755), MET[0], 0o644)
    made.close()
    assert codes(content(made)) == set()
    return content(made)


def begun() -> WritableVolume:
    """A volume with changes that are not safe yet, and a file that is held without a name."""
    made = writing(image())
    held = made.create(ROOT_ID, b"held", 0o644)
    made.hold(held)
    made.write(held, 0, b"held" * 1000)
    made.unlink(ROOT_ID, b"held")
    return made


def everything(of: Volume) -> dict[bytes, tuple[object, ...]]:
    """By path: all that a user can see of it, but for the times of what is read."""
    found: dict[bytes, tuple[object, ...]] = {}
    todo = [(b"", of.directory(ROOT_ID))]
    while todo:
        path, inode = todo.pop()
        seen = (inode.mode, inode.uid, inode.gid, inode.links, inode.mtime, inode.ctime, dict(inode.xattrs), inode.ino)
        if isinstance(inode, Directory):
            names = [(entry.name, entry.inode) for entry in of.entries(inode)]
            assert inode.size == len(names) == len(dict(names))
            todo += [(path + b"/" + name, below) for name, below in names]
            found[path] = (*seen, inode.parent)
        elif stat.S_ISLNK(inode.mode):
            found[path] = (*seen, of.readlink(inode))
        else:
            found[path] = (*seen, inode.rdev, inode.size, of.read_content(inode, 0, inode.size))
    return found


def steps_of(made: WritableVolume, error: str) -> Steps:
    """What an operation asks of what lies below it, as far as it can end with this error."""
    if error in ("ENOSPC", "Ctrl-C"):
        yield from ((made, name) for name in ("check_ids", "new_id", "new_ino", "adopt", "touch", "drop_id"))
        yield from ((made.names, name) for name in ("ids_for", "insert", "remove", "replace"))
        yield from ((made, name) for name in ("make_room", "free_content", "_fresh_page", "_put_content"))
    else:
        yield from ((made, name) for name in ("find", "child", "directory", "virtual", "content_page", "bucket"))
    yield from ((made.space, name) for name in ("give",))


def judge(made: WritableVolume, before: dict[bytes, tuple[object, ...]]) -> None:
    """After an operation that ended with an error."""
    if made.broken is None:
        assert everything(made) == before
        made.create(ROOT_ID, b"afterwards", 0o644)
        made.unlink(ROOT_ID, b"afterwards")
        before = everything(made)
        made.close()
        assert everything(reading(content(made))) == before
        assert codes(content(made)) == set()
        return
    made.close()
    again = writing(content(made))
    there = everything(again)
    again.close()
    assert codes(content(again)) == set()
    assert there in (before, everything(reading(image())))


def is_refused(made: WritableVolume, name: str) -> bool:
    """Whether there is no room for an operation."""
    try:
        OPERATIONS[name](made)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


def count(name: str, error: str) -> int:
    """How many steps an operation makes of which each can end with this error."""
    made = begun()
    everything(made)  # what was looked at is not read again
    with failing(steps_of(made, error), -1, ERRORS[error]()) as steps:
        OPERATIONS[name](made)
    return len(steps)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_fails_at_any_step_is_refused_or_the_last_one(name: str, error: str) -> None:
    last, steps_made = 0, count(name, error)
    for number in some(range(steps_made), SOME):
        made = begun()
        before = everything(made)
        with failing(steps_of(made, error), number, ERRORS[error]()) as steps:
            try:
                OPERATIONS[name](made)
            except (OSError, F2fsError, KeyboardInterrupt):
                pass
            else:  # where there is no room for all of it, it is written page by page
                assert name.startswith("write"), f"{steps[number]} failed, and nobody was told"
                assert steps[number] == "make_room"
                continue
        last += made.broken is not None
        judge(made, before)
    assert steps_made or name == "release"  # which reads nothing
    assert last or error in ("corrupt", "EIO")


@pytest.mark.parametrize("left", range(3))
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_volume_says_of_an_operation_that_may_lack_logical_ids_is_true(name: str, left: int) -> None:
    made = begun()
    made._load()
    before = everything(made)
    free = [number for number in range(1, made.shape.ids) if not made.id_page(number) and number not in made._by_id]
    for number in free[left:]:
        made.table_page(number // made.shape.pointers)[number % made.shape.pointers] = 7  # as if in use
    if is_refused(made, name):
        assert everything(made) == before
        assert made.broken is None
        assert not any(made.id_page(number) or number in made._by_id for number in free[:left])
    else:
        assert everything(made) != before or name == "release"
    for number in free[left:]:
        made.table_page(number // made.shape.pointers)[number % made.shape.pointers] = 0
    after = everything(made)
    made.close()
    assert everything(reading(content(made))) == after
    assert codes(content(made)) == set()


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_volume_without_free_inode_numbers_says_of_an_operation_is_true(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begun()
    before = everything(made)
    monkeypatch.setattr("f2tools.dffs.waiting.MOST_INOS", made._next_ino)
    if is_refused(made, name):
        assert everything(made) == before
        assert any(word in name for word in ("create", "symlink", "whiteout"))
    after = everything(made)
    monkeypatch.undo()
    made.close()
    assert everything(reading(content(made))) == after
    assert codes(content(made)) == set()
