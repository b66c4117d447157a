"""An operation that fails at any of its steps leaves the old tree or makes the new one, and says which.

Either it is a refusal: the tree is as before, in memory and once it is safe, and the volume goes on.  Or nothing is
written any more: what is on the device is sound, and what was safe before.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import cache

import pytest

from f2tools.dfs.volume import Volume
from f2tools.dfs.write import RENAME_EXCHANGE, RENAME_WHITEOUT, WritableVolume
from f2tools.errors import F2fsError
from tests.device.failing import ERRORS, Steps, failing
from tests.dfs import volumes
from tests.dfs.volumes import TIGHT, TIGHT_SIZE, codes, content, reading, volume, writing
from tests.sweeps import ALL, some

pytestmark = pytest.mark.usefixtures("directories")

ROOT = 1
SOME = 6  # steps of each operation that fail; all with $F2_SWEEPS
Operation = Callable[[WritableVolume], object]


def at(made: WritableVolume, path: bytes) -> int:
    return made.at_path(path).ino


OPERATIONS: dict[str, Operation] = {
    "create": lambda v: v.create(at(v, b"/d"), b"new", 0o644, 1, 2),
    "create a node": lambda v: v.create(ROOT, b"new", 0o20644, rdev=(1, 3)),
    "create with ACLs": lambda v: v.create(at(v, b"/acl"), b"new", 0o664),
    "mkdir": lambda v: v.mkdir(at(v, b"/d"), b"new", 0o755),
    "symlink": lambda v: v.symlink(ROOT, b"new", b"d/f"),
    "symlink of blocks": lambda v: v.symlink(ROOT, b"new", b"x" * 900),
    "link": lambda v: v.link(at(v, b"/d/f"), at(v, b"/e"), b"new"),
    "unlink": lambda v: v.unlink(at(v, b"/d"), b"f"),
    "unlink one of two": lambda v: v.unlink(ROOT, b"one"),
    "unlink a large one": lambda v: v.unlink(ROOT, b"large"),
    "rmdir": lambda v: v.rmdir(at(v, b"/d"), b"empty"),
    "rename": lambda v: v.rename(at(v, b"/d"), b"f", at(v, b"/e"), b"g"),
    "rename in place": lambda v: v.rename(at(v, b"/d"), b"f", at(v, b"/d"), b"g"),
    "rename a directory": lambda v: v.rename(at(v, b"/d"), b"sub", at(v, b"/e"), b"g"),
    "rename a directory in place": lambda v: v.rename(at(v, b"/d"), b"sub", at(v, b"/d"), b"g"),
    "rename over a file": lambda v: v.rename(at(v, b"/d"), b"f", ROOT, b"large"),
    "rename over a directory": lambda v: v.rename(at(v, b"/d"), b"sub", at(v, b"/d"), b"empty"),
    "exchange": lambda v: v.rename(at(v, b"/d"), b"f", at(v, b"/e"), b"other", RENAME_EXCHANGE),
    "exchange directories": lambda v: v.rename(at(v, b"/d"), b"sub", ROOT, b"e", RENAME_EXCHANGE),
    "exchange with a directory": lambda v: v.rename(at(v, b"/d"), b"f", ROOT, b"e", RENAME_EXCHANGE),
    "whiteout": lambda v: v.rename(at(v, b"/d"), b"f", at(v, b"/e"), b"g", RENAME_WHITEOUT),
    "whiteout in place": lambda v: v.rename(at(v, b"/d"), b"f", at(v, b"/d"), b"g", RENAME_WHITEOUT),
    "whiteout over a file": lambda v: v.rename(at(v, b"/d"), b"f", ROOT, b"large", RENAME_WHITEOUT),
    "whiteout of a directory": lambda v: v.rename(at(v, b"/d"), b"sub", at(v, b"/e"), b"g", RENAME_WHITEOUT),
    "whiteout over a directory": lambda v: v.rename(at(v, b"/d"), b"sub", at(v, b"/d"), b"empty", RENAME_WHITEOUT),
    "write": lambda v: v.write(at(v, b"/d/f"), 10, b"new" * 100),
    "write that moves it out": lambda v: v.write(at(v, b"/d/f"), 1000, b"new" * 700),
    "write behind the end": lambda v: v.write(at(v, b"/large"), 7000, b"new" * 700),
    "write where it was cut": lambda v: v.write(at(v, b"/cut"), 700, b"new" * 700),
    "truncate": lambda v: v.truncate(at(v, b"/large"), 700),
    "truncate to nothing": lambda v: v.truncate(at(v, b"/large"), 0),
    "truncate to more": lambda v: v.truncate(at(v, b"/d/f"), 100_000),
    "chmod": lambda v: v.setattr(at(v, b"/acl"), mode=0o700),
    "chown": lambda v: v.setattr(at(v, b"/d/f"), uid=5, gid=6),
    "utimens": lambda v: v.setattr(at(v, b"/d/f"), atime_ns=5, mtime_ns=6),
    "setxattr": lambda v: v.setxattr(at(v, b"/d/f"), "user.new", b"value"),
    "setxattr of an ACL": lambda v: v.setxattr(at(v, b"/d/f"), "system.posix_acl_access", ACL),
    "removexattr": lambda v: v.removexattr(at(v, b"/d/f"), "user.old"),
    "release": lambda v: v.release(v.nameless[0]),
}  # fmt: skip
CONTENT = ("write", "truncate")  # goes to the layer at once: what a cut leaves of it is old or new, block by block
ACL = bytes.fromhex("02000000 01000600ffffffff 0200070005000000 04000600ffffffff 10000700ffffffff 20000000ffffffff")


def filled(made: WritableVolume) -> None:
    directory, other = made.mkdir(ROOT, b"d", 0o755), made.mkdir(ROOT, b"e", 0o755)
    file = made.create(directory, b"f", 0o644)
    made.write(file, 0, b"small" * 200)
    made.setxattr(file, "user.old", b"old")
    made.create(made.mkdir(directory, b"sub", 0o755), b"below", 0o600)
    made.mkdir(directory, b"empty", 0o755)
    made.create(other, b"other", 0o600)
    made.write(made.create(ROOT, b"large", 0o644), 0, b"large" * 1000)
    made.link(made.create(ROOT, b"one", 0o644), ROOT, b"two")
    acl = made.mkdir(ROOT, b"acl", 0o755)
    made.setxattr(acl, "system.posix_acl_default", ACL)
    made.setxattr(acl, "system.posix_acl_access", ACL)
    made.write(made.create(ROOT, b"cut", 0o644), 0, b"cut" * 600)


@cache
def image(hashed: bool, tight: bool = False) -> bytes:
    assert hashed == volumes.hashed
    made = volume(shape=TIGHT, size=TIGHT_SIZE) if tight else volume()
    filled(made)
    made.close()
    assert codes(content(made)) == set()
    return content(made)


def begun(before: bytes) -> WritableVolume:
    """A volume with changes that are not safe yet, and a file that is held without a name."""
    made = writing(before)
    made.truncate(at(made, b"/cut"), 600)
    held = made.create(ROOT, b"held", 0o644)
    made.hold(held)
    made.write(held, 0, b"held" * 1000)
    made.unlink(ROOT, b"held")
    return made


def everything(of: Volume) -> dict[bytes, tuple[object, ...]]:
    """By path: all that a user can see of it, but for the times of what is read."""
    found: dict[bytes, tuple[object, ...]] = {}
    todo = [(b"", of.inode(ROOT))]
    while todo:
        path, inode = todo.pop()
        seen = (inode.mode, inode.uid, inode.gid, inode.links, inode.mtime, inode.ctime, dict(inode.xattrs), inode.rdev)
        if inode.is_dir:
            entries = {entry.name: entry for entry in of.dentries(inode)}
            todo += [(path + b"/" + e.name, of.inode(e.ino)) for e in entries.values() if e.name not in (b".", b"..")]
            found[path] = (*seen, entries[b"."].ino, entries[b".."].ino)
        elif inode.is_link:
            found[path] = (*seen, of.readlink(inode))
        else:
            found[path] = (*seen, inode.size, of.read_content(inode, 0, inode.size))
    return found


def steps_of(made: WritableVolume, error: str) -> Steps:
    """What an operation asks of what lies below it, as far as it can end with this error."""
    if error in ("ENOSPC", "Ctrl-C"):
        yield from ((made, name) for name in ("_free_ino", "_fitting", "_put"))
        yield from ((made.journal, name) for name in ("write", "trim", "bury", "commit"))
        yield from ((made.names, name) for name in ("check_room", "add", "remove", "lead_to"))
    else:
        yield from ((made, name) for name in ("inode", "block"))
        yield from ((made.names, name) for name in ("find", "is_empty"))
    if error != "corrupt":
        yield from ((made.layer, name) for name in ("write_vblocks", "pwrite", "read_vblocks"))


def judge(made: WritableVolume, before: dict[bytes, tuple[object, ...]], safe: bytes, name: str) -> None:
    """After an operation that ended with an error."""
    if made.broken is None:
        assert everything(made) == before
        made.create(ROOT, b"afterwards", 0o644)
        made.unlink(ROOT, b"afterwards")
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
    if not name.startswith(CONTENT):
        assert there in (before, everything(reading(safe)))


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
    made = begun(image(volumes.hashed))
    everything(made)  # what was looked at is not read again
    with failing(steps_of(made, error), -1, ERRORS[error]()) as steps:
        OPERATIONS[name](made)
    return len(steps)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_fails_at_any_step_is_refused_or_the_last_one(name: str, error: str) -> None:
    safe, refused, last = image(volumes.hashed), 0, 0
    for number in some(range(count(name, error)), SOME):
        made = begun(safe)
        before = everything(made)
        with failing(steps_of(made, error), number, ERRORS[error]()) as steps:
            try:
                OPERATIONS[name](made)
            except (OSError, F2fsError, KeyboardInterrupt):
                pass
            else:
                pytest.fail(f"{steps[number]} failed, and nobody was told")
        refused, last = refused + (made.broken is None), last + (made.broken is not None)
        judge(made, before, safe, name)
    assert refused if error == "corrupt" else last


@pytest.mark.parametrize("free", range(9) if ALL else (0, 1, 3, 5))
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_full_volume_says_of_an_operation_is_true(name: str, free: int) -> None:
    """So many blocks are free."""
    safe = image(volumes.hashed, tight=True)
    made = begun(safe)
    made.sync()
    filler = made.create(ROOT, b"filler", 0o644)
    made.write(filler, 0, bytes(BLOCK := 512))
    made.sync()
    size = (made.journal.free_blocks - free) * BLOCK
    assert made.write(filler, BLOCK, b"f" * size) == size
    made.sync()
    assert made.journal.free_blocks == free
    before = everything(made)
    if is_refused(made, name):
        assert everything(made) == before
    else:
        assert everything(made) != before or name == "release"
    assert made.broken is None
    after = everything(made)
    made.close()
    assert everything(reading(content(made))) == after
    assert codes(content(made)) == set()


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_volume_without_free_inodes_says_of_an_operation_is_true(name: str) -> None:
    made = begun(image(volumes.hashed))
    used, before = made.inodes_used, everything(made)
    made.inodes_used = made.geo.max_ino
    if is_refused(made, name):
        assert everything(made) == before
        assert any(word in name for word in ("create", "mkdir", "symlink", "whiteout"))
    made.inodes_used += used - made.geo.max_ino
    after = everything(made)
    made.close()
    assert everything(reading(content(made))) == after
    assert codes(content(made)) == set()


def test_a_listed_directory_that_is_full_takes_no_name_by_a_rename() -> None:
    """It grows up to the end of its chunk; the next one is another inode's.  Buckets have a test of their own."""
    made = begun(image(False))
    old, new = at(made, b"/d"), at(made, b"/e")
    made.geo.__dict__["max_size"] = 512
    for number in range(2):  # with what is there, two of them fill a block
        made.create(new, b"%02d" % number * 80, 0o644)
    for flags in (0, RENAME_WHITEOUT):
        before = everything(made)
        with pytest.raises(OSError, match="No space"):
            made.rename(old, b"f", new, b"n" * 200, flags)
        assert everything(made) == before
    with pytest.raises(OSError, match="No space"):
        made.create(new, b"n" * 200, 0o644)
    assert (made.inode(new).size, made.broken) == (512, None)
