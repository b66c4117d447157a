"""Power cuts at every program and every erase, done by half: sound, and exactly what was committed is there."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from f2tools.device.changes.record import WRITE
from f2tools.dffs.check import check
from f2tools.dffs.volume import Volume
from f2tools.dffs.write import RENAME_EXCHANGE, WritableVolume
from tests.device.memory import Memory
from tests.dffs.volumes import TIGHT, clock, colliding, content, reading, recorded, torn, tree

ROOT = 1
NAMES = [*colliding(12), *(b"%d" % n for n in range(8))]
CHAIN = 11  # blocks
State = dict[bytes, object]


class Workload:
    """Steps on a volume, each with the tree after it; and which of them were safe after how many events."""

    def __init__(self, seed: int, steps: int) -> None:
        self.volume, self.recorder, self.before = recorded(TIGHT, filled=130)
        made = self.volume
        made._load()
        del made.log.chain[CHAIN:]
        made.space.chain = lambda free, most=0: free[:CHAIN]  # so that there are checkpoints, and soon
        self.chance = random.Random(seed)
        self.states: list[State] = [tree(self.volume)]
        self.begun: list[int] = [0]  # events before the step that made the state
        self.safe: list[tuple[int, int]] = [(0, 0)]  # (events, state)
        self.directories = {b"": ROOT}
        self.files: dict[bytes, int] = {}
        for _ in range(steps):
            begun = len(self.recorder.events)
            with suppress(OSError):  # no room; what was there stays
                self.step()
            self.states.append(tree(self.volume))
            self.begun.append(begun)
            if not self.volume.unsaved:
                self.safe.append((len(self.recorder.events), len(self.states) - 1))

    def place(self, path: bytes) -> tuple[int, bytes]:
        directory, _, name = path.rpartition(b"/")
        return self.directories[directory], name

    def step(self) -> None:
        chance, made = self.chance, self.volume
        what = chance.random()
        directory = chance.choice(list(self.directories))
        name = chance.choice(NAMES)
        path = directory + b"/" + name
        taken = path in self.files or path in self.directories
        if what < 0.06 and not taken and len(self.directories) < 6:
            self.directories[path] = made.mkdir(self.directories[directory], name, 0o755)
        elif what < 0.26 and not taken:
            self.files[path] = made.create(self.directories[directory], name, 0o644)
        elif what < 0.34 and not taken and self.files:
            old = chance.choice(list(self.files))
            made.link(self.files[old], self.directories[directory], name)
            self.files[path] = self.files[old]
        elif what < 0.56 and self.files:
            size = 700_000 if chance.random() < 0.1 else 4000
            file = self.files[chance.choice(list(self.files))]
            made.write(file, chance.randrange(size), chance.randbytes(chance.randrange(1, 6000)))
        elif what < 0.62 and self.files:
            made.truncate(self.files[chance.choice(list(self.files))], chance.randrange(3000))
        elif what < 0.70 and self.files:
            path = chance.choice(list(self.files))
            del self.files[path]
            made.unlink(*self.place(path))
        elif what < 0.78 and len(self.files) > 1:
            old, new = chance.sample(list(self.files), 2)
            same = self.files[old] == self.files[new]
            flags = RENAME_EXCHANGE if chance.random() < 0.5 else 0
            made.rename(*self.place(old), *self.place(new), flags)
            if flags:
                self.files[old], self.files[new] = self.files[new], self.files[old]
            elif not same:
                self.files[new] = self.files.pop(old)
        else:
            made.sync()

    def check(self, count: int, found: State) -> None:
        """The tree is one of those since the last fsync, to the byte."""
        first = max(state for events, state in self.safe if events <= count)
        last = max(number for number, begun in enumerate(self.begun) if begun <= count)
        assert found in self.states[first : last + 1], (count, first, last)


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_in_the_middle_of_any_program_or_erase_leaves_what_was_committed_and_nothing_else(
    seed: int,
) -> None:
    work = Workload(seed, 130)
    assert work.volume.log.checkpoints > 1
    chance = random.Random(seed)
    state = bytearray(work.before)
    for count, event in enumerate(work.recorder.events):
        if event.kind != WRITE:
            continue
        image = bytearray(state)
        torn(image, event, TIGHT, chance)
        state[event.offset : event.offset + event.length] = event.data
        seen = Volume(Memory(bytes(image)))
        if count % 4 == 0:
            report = check(seen)
            assert report.sound, (count, report.findings)
        before = tree(seen)
        work.check(count + 1, before)
        if count % 7 == 0:
            after = WritableVolume(Memory(bytes(image)), clock=clock())
            assert tree(after) == before, count  # what a reader was shown is what there is
            after.create(ROOT, b"after", 0o644)
            after.close()
            again = check(reading(content(after)))
            assert again.sound, (count, again.findings)
            assert again.clean
