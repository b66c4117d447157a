"""What the F2FS engine is held to, every engine is that can be mounted: the same model and workload, through `vfs`."""

from __future__ import annotations

import errno
import random
import stat
from pathlib import Path

import pytest

from tests.conformance.engines import ENGINES, MODELS_ROOT, Engine
from tests.f2fs.write.model import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT
from tests.f2fs.write.volumes import Twin, differences
from tests.f2fs.write.workload import FILE, Workload, text

ROOT = MODELS_ROOT
PARTS = ("small", "large", "links", "names", "churn")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return ENGINES[request.param](tmp_path)


def twin_of(engine: Engine) -> Twin:
    return Twin(engine.served, engine.served.model())  # type: ignore[arg-type]


def assert_kept(engine: Engine, twin: Twin) -> None:
    """What the volume holds is what the model holds, before it is closed and after; and it is sound."""
    before = engine.served.model()
    for found in (before, engine.again().model()):
        said = differences(found, twin.model)
        assert not said, "\n".join(said[:20])


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_workload_is_kept(engine: Engine, part: str) -> None:
    twin = twin_of(engine)
    getattr(Workload(twin, 1), part)()
    assert_kept(engine, twin)


def test_errors_are_those_of_the_system_calls(engine: Engine) -> None:
    twin = twin_of(engine)
    directory = twin.mkdir(ROOT, b"folder", 0o755)
    inner = twin.mkdir(directory, b"inner", 0o755)
    ino = twin.create(ROOT, b"file", FILE)
    for name, arguments, expected in (
        ("lookup", (ROOT, b"none"), errno.ENOENT),
        ("lookup", (ino, b"none"), errno.ENOTDIR),
        ("create", (ROOT, b"file", FILE), errno.EEXIST),
        ("create", (ROOT, b"n" * 256, FILE), errno.ENAMETOOLONG),
        ("create", (ino, b"x", FILE), errno.ENOTDIR),
        ("mkdir", (ROOT, b"file", 0o755), errno.EEXIST),
        ("link", (directory, ROOT, b"x"), errno.EPERM),
        ("link", (ino, ROOT, b"folder"), errno.EEXIST),
        ("unlink", (ROOT, b"folder"), errno.EISDIR),
        ("unlink", (ROOT, b"none"), errno.ENOENT),
        ("rmdir", (ROOT, b"file"), errno.ENOTDIR),
        ("rmdir", (ROOT, b"folder"), errno.ENOTEMPTY),
        ("rename", (ROOT, b"folder", inner, b"x"), errno.EINVAL),
        ("rename", (ROOT, b"file", ROOT, b"folder"), errno.EISDIR),
        ("rename", (ROOT, b"folder", ROOT, b"file"), errno.ENOTDIR),
        ("rename", (ROOT, b"file", ROOT, b"folder", RENAME_NOREPLACE), errno.EEXIST),
        ("rename", (ROOT, b"file", ROOT, b"none", RENAME_EXCHANGE), errno.ENOENT),
        ("rename", (directory, b"inner", ROOT, b"folder"), errno.ENOTEMPTY),
        ("symlink", (ROOT, b"long", b"t" * 4096), errno.ENAMETOOLONG),
        ("getxattr", (ino, "user.none"), errno.ENODATA),
        ("removexattr", (ino, "user.none"), errno.ENODATA),
    ):
        with pytest.raises(OSError) as caught:
            twin.do(name, *arguments)
        assert caught.value.errno == expected, f"{name}{arguments}: {caught.value!r}"
    assert_kept(engine, twin)


def test_what_is_held_stays_without_a_name_and_goes_at_the_release(engine: Engine) -> None:
    twin = twin_of(engine)
    ino = twin.create(ROOT, b"held", FILE)
    twin.write(ino, 0, b"still there")
    twin.hold(ino)
    twin.unlink(ROOT, b"held")
    assert twin.read_at(ino, 0, 100) == b"still there"
    assert engine.served.files.nameless
    twin.release(ino)
    assert engine.served.files.nameless == []
    assert_kept(engine, twin)


def test_attributes_of_files_are_kept_replaced_and_removed(engine: Engine) -> None:
    twin = twin_of(engine)
    ino = twin.create(ROOT, b"file", FILE, 7, 8)
    for name, value in (("user.a", b"1"), ("user.b", b"v" * 60), ("trusted.c", b""), ("user.a", b"longer than one")):
        twin.setxattr(ino, name, value)
    twin.removexattr(ino, "user.b")
    twin.setattr(ino, mode=0o4711, atime_ns=-(10**9), mtime_ns=(1 << 33) * 10**9 + 5)
    twin.setattr(ino, uid=1000, gid=1000)
    assert twin.listxattr(ino) == ["trusted.c", "user.a"]
    assert_kept(engine, twin)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_done_in_whatever_order_is_what_the_model_has_after_it(engine: Engine, seed: int) -> None:
    twin, chance = twin_of(engine), random.Random(seed)
    directories = [ROOT, twin.mkdir(ROOT, b"one", 0o755), twin.mkdir(ROOT, b"two", 0o700)]
    names = [b"a", b"b", b"c", b"n" * 255, "größe".encode(), b"\xff\xfe"]
    for step in range(250):
        directories = [number for number in directories if number in twin.model.nodes]
        files = [number for number, node in twin.model.nodes.items() if node.is_file]
        here, there, name, other = *chance.choices(directories, k=2), *chance.choices(names, k=2)
        what = chance.randrange(12)
        if what == 0:
            made = twin.attempt("mkdir", here, name, 0o755)
            directories += [made] if made else []
        elif what == 1:
            twin.attempt("symlink", here, name, b"t" * chance.randrange(1, 900))
        elif what == 2:
            twin.attempt("rmdir", here, name)
        elif what == 3:
            twin.attempt("unlink", here, name)
        elif what < 7:
            twin.attempt("rename", here, name, there, other, chance.choice([0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE,
                                                                            RENAME_WHITEOUT]))  # fmt: skip
        elif what == 7 and files:
            twin.attempt("link", chance.choice(files), there, other)
        elif what == 8 and files:
            twin.attempt("truncate", chance.choice(files), chance.randrange(20000))
        elif what < 11 and files:
            twin.attempt("write", chance.choice(files), chance.randrange(20000), text(step, chance.randrange(1, 9000)))
        else:
            twin.attempt("create", here, name, stat.S_IFREG | 0o600)
        if step % 60 == 59:
            engine.served.sync()
    assert_kept(engine, twin)
