"""Whatever is done in whatever order, a volume holds what a dictionary holds, closed or cut off, and is sound."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from f2tools.dfs.check import check
from f2tools.dfs.write import RENAME_EXCHANGE, WritableVolume
from tests.dfs import volumes
from tests.dfs.volumes import MIDDLE, content, reading, tree, volume, writing

NAMES = st.sampled_from([b"a", b"b", b"c" * 40, b"d" * 255])
DIRECTORIES = st.sampled_from([b"", b"/one", b"/two", b"/one/in"])
SIZES = st.integers(0, 6000)


@contextmanager
def unless_full(said: list[str]) -> Iterator[None]:
    """A step that may find no room; then that is said."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        said.append("full")


class Machine(RuleBasedStateMachine):
    """A volume and its model: by path, the content of a file or the target of a link; directories are fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.volume = self.empty_volume()
        self.model: dict[bytes, bytes | tuple[bytes]] = {}
        for path in (b"/one", b"/two", b"/one/in"):
            parent, _, name = path.rpartition(b"/")
            self.volume.mkdir(self.ino(parent), name, 0o755)
        self.volume.sync()

    def empty_volume(self) -> WritableVolume:
        return volume(shape=MIDDLE, size=1000 * 512)

    def ino(self, path: bytes) -> int:
        here = 1
        for part in path.split(b"/")[1:]:
            here = self.volume.lookup(here, part)
        return here

    @rule(directory=DIRECTORIES, name=NAMES, offset=SIZES, data=st.binary(max_size=3000))
    def write(self, directory: bytes, name: bytes, offset: int, data: bytes) -> None:
        path = directory + b"/" + name
        old = self.model.get(path, b"")
        if isinstance(old, tuple):
            return
        wrote = 0
        with unless_full([]):
            if path not in self.model:
                self.volume.create(self.ino(directory), name, 0o644)
                self.model[path] = b""
            wrote = self.volume.write(self.ino(path), offset, data)
        if wrote:
            padded = old.ljust(offset, b"\0")
            self.model[path] = padded[:offset] + data[:wrote] + padded[offset + wrote :]

    @rule(directory=DIRECTORIES, name=NAMES, size=SIZES)
    def truncate(self, directory: bytes, name: bytes, size: int) -> None:
        path = directory + b"/" + name
        old = self.model.get(path)
        if isinstance(old, bytes):
            with unless_full([]):
                self.volume.truncate(self.ino(path), size)
                self.model[path] = old[:size].ljust(size, b"\0")

    @rule(directory=DIRECTORIES, name=NAMES, size=st.integers(1, 2000))
    def symlink(self, directory: bytes, name: bytes, size: int) -> None:
        path = directory + b"/" + name
        if path not in self.model:
            with unless_full([]):
                self.volume.symlink(self.ino(directory), name, b"t" * size)
                self.model[path] = (b"t" * size,)

    @rule(directory=DIRECTORIES, name=NAMES)
    def unlink(self, directory: bytes, name: bytes) -> None:
        path = directory + b"/" + name
        if path in self.model:
            self.volume.unlink(self.ino(directory), name)
            del self.model[path]

    @rule(directory=DIRECTORIES, name=NAMES, new_directory=DIRECTORIES, new_name=NAMES, exchange=st.booleans())
    def rename(self, directory: bytes, name: bytes, new_directory: bytes, new_name: bytes, exchange: bool) -> None:
        old, new = directory + b"/" + name, new_directory + b"/" + new_name
        if old not in self.model or (exchange and new not in self.model):
            return
        flags = RENAME_EXCHANGE if exchange else 0
        full: list[str] = []
        with unless_full(full):
            self.volume.rename(self.ino(directory), name, self.ino(new_directory), new_name, flags)
        if full:
            return
        if exchange:
            self.model[old], self.model[new] = self.model[new], self.model[old]
        elif old != new:
            self.model[new] = self.model.pop(old)

    @rule()
    def sync(self) -> None:
        self.volume.sync()

    @rule(cut=st.booleans())
    def reopen(self, cut: bool) -> None:
        if cut:
            self.volume.sync()
        else:
            self.volume.close()
        image = content(self.volume)
        found = check(reading(image))
        assert found.sound, found.findings
        assert cut or found.clean
        self.volume = writing(image)

    @precondition(lambda self: self.volume.unsaved)
    @rule()
    def room_is_kept_for_what_is_not_safe(self) -> None:
        assert self.volume.journal.free_blocks >= 0

    @invariant()
    def the_volume_holds_what_the_model_holds(self) -> None:
        found = {path: value for path, value in tree(self.volume).items() if not isinstance(value, int)}
        assert found == self.model

    def teardown(self) -> None:
        self.volume.close()
        found = check(reading(content(self.volume)))
        assert found.sound, found.findings


class HashedMachine(Machine):
    """The same with hashed directories."""

    def empty_volume(self) -> WritableVolume:
        volumes.hashed = True
        try:
            return super().empty_volume()
        finally:
            volumes.hashed = False


for _machine in (Machine, HashedMachine):
    _machine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, derandomize=True)
TestMachine, TestHashedMachine = Machine.TestCase, HashedMachine.TestCase
