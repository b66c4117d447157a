"""Whatever is done in whatever order, a volume holds what a dictionary holds, closed or cut off, and is sound."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from f2tools.dffs.check import check
from f2tools.dffs.write import RENAME_EXCHANGE
from tests.dffs.volumes import TIGHT, colliding, content, reading, tree, volume, writing

NAMES = st.sampled_from([b"a", b"b", b"c" * 40, b"d" * 255, *colliding(12, 7), *colliding(6, 8)])
DIRECTORIES = st.sampled_from([b"", b"/one", b"/two", b"/one/in"])
SIZES = st.integers(0, 9000)
FAR = st.one_of(SIZES, st.integers(640_000, 660_000), st.integers(1_690_000, 1_710_000))


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
    """A volume and its model: by path a file's number, by number its content or a link's target."""

    def __init__(self) -> None:
        super().__init__()
        self.volume = volume(TIGHT, keep_nodes=8)
        self.paths: dict[bytes, int] = {}
        self.model: dict[int, bytes | tuple[bytes]] = {}
        for path in (b"/one", b"/two", b"/one/in"):
            parent, _, name = path.rpartition(b"/")
            self.volume.mkdir(self.ino(parent), name, 0o755)
        self.volume.sync()

    def ino(self, path: bytes) -> int:
        here = 1
        for part in path.split(b"/")[1:]:
            here = self.volume.lookup(here, part)
        return here

    @rule(directory=DIRECTORIES, name=NAMES, offset=FAR, data=st.binary(max_size=5000))
    def write(self, directory: bytes, name: bytes, offset: int, data: bytes) -> None:
        path = directory + b"/" + name
        wrote = 0
        with unless_full([]):
            if path not in self.paths:
                self.paths[path] = self.volume.create(self.ino(directory), name, 0o644)
                self.model[self.paths[path]] = b""
            if isinstance(self.model[self.paths[path]], tuple):
                return
            wrote = self.volume.write(self.ino(path), offset, data)
        if wrote:
            old = self.model[self.paths[path]]
            assert isinstance(old, bytes)
            padded = old.ljust(offset, b"\0")
            self.model[self.paths[path]] = padded[:offset] + data[:wrote] + padded[offset + wrote :]

    @rule(directory=DIRECTORIES, name=NAMES, size=FAR)
    def truncate(self, directory: bytes, name: bytes, size: int) -> None:
        path = directory + b"/" + name
        old = self.model.get(self.paths.get(path, 0))
        if isinstance(old, bytes):
            with unless_full([]):
                self.volume.truncate(self.ino(path), size)
                self.model[self.paths[path]] = old[:size].ljust(size, b"\0")

    @rule(directory=DIRECTORIES, name=NAMES, size=st.integers(1, 4000))
    def symlink(self, directory: bytes, name: bytes, size: int) -> None:
        path = directory + b"/" + name
        if path not in self.paths:
            with unless_full([]):
                self.paths[path] = self.volume.symlink(self.ino(directory), name, b"t" * size)
                self.model[self.paths[path]] = (b"t" * size,)

    @rule(directory=DIRECTORIES, name=NAMES, new_directory=DIRECTORIES, new_name=NAMES)
    def link(self, directory: bytes, name: bytes, new_directory: bytes, new_name: bytes) -> None:
        old, new = directory + b"/" + name, new_directory + b"/" + new_name
        if old in self.paths and new not in self.paths:
            with unless_full([]):
                self.volume.link(self.ino(old), self.ino(new_directory), new_name)
                self.paths[new] = self.paths[old]

    @rule(directory=DIRECTORIES, name=NAMES)
    def unlink(self, directory: bytes, name: bytes) -> None:
        path = directory + b"/" + name
        if path in self.paths:
            self.volume.unlink(self.ino(directory), name)
            del self.paths[path]

    @rule(directory=DIRECTORIES, name=NAMES, new_directory=DIRECTORIES, new_name=NAMES, exchange=st.booleans())
    def rename(self, directory: bytes, name: bytes, new_directory: bytes, new_name: bytes, exchange: bool) -> None:
        old, new = directory + b"/" + name, new_directory + b"/" + new_name
        if old not in self.paths or (exchange and new not in self.paths):
            return
        flags = RENAME_EXCHANGE if exchange else 0
        full: list[str] = []
        with unless_full(full):
            self.volume.rename(self.ino(directory), name, self.ino(new_directory), new_name, flags)
        if full:
            return
        if exchange:
            self.paths[old], self.paths[new] = self.paths[new], self.paths[old]
        elif self.paths.get(new) != self.paths[old]:
            self.paths[new] = self.paths.pop(old)

    @rule(old=DIRECTORIES, new=DIRECTORIES, name=NAMES)
    def move_a_directory_there_and_back(self, old: bytes, new: bytes, name: bytes) -> None:
        path = new + b"/" + name
        if not old or path in self.paths or (new + b"/").startswith(old + b"/"):
            return
        parent, _, last = old.rpartition(b"/")
        with unless_full([]):
            self.volume.rename(self.ino(parent), last, self.ino(new), name)
            self.volume.rename(self.ino(new), name, self.ino(parent), last)

    @rule()
    def sync(self) -> None:
        self.volume.sync()

    @rule(cut=st.booleans())
    def reopen(self, cut: bool) -> None:
        if cut:
            self.volume.sync()
            self.volume.abandon()
        else:
            self.volume.close()
        image = content(self.volume)
        seen = reading(image)
        found = check(seen)
        assert found.sound, found.findings
        assert cut or found.clean
        self.volume = writing(image, keep_nodes=8)

    @invariant()
    def the_volume_holds_what_the_model_holds(self) -> None:
        found = {path: value for path, value in tree(self.volume).items() if not isinstance(value, int)}
        assert found == {path: self.model[number] for path, number in self.paths.items()}

    def teardown(self) -> None:
        self.volume.close()


Machine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, derandomize=True)
TestMachine = Machine.TestCase
