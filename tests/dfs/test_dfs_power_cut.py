"""Power cuts at every append and erase of a mixed workload: sound, what was fsync'ed there, no directory half done."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from f2tools.copyin.filling import fill, read_source
from f2tools.device.changes.record import Recorder
from f2tools.dfs.check import check
from f2tools.dfs.mkfs import format_layer, geometry_for
from f2tools.dfs.volume import NotDfs, Volume
from f2tools.dfs.write import RENAME_EXCHANGE, WritableVolume
from f2tools.errors import Corrupt
from f2tools.flash.medium import NotVsl
from f2tools.flash.vsl import WHOLE_SPACE, create_on_device, open_vsl
from tests.device.memory import Memory
from tests.dfs import volumes
from tests.dfs.volumes import CHUNK, SLOT, TIGHT, TIGHT_SIZE, clock, recorded, tree
from tests.flash.chips import after_cut, cuts

pytestmark = pytest.mark.usefixtures("directories")

ROOT = 1
State = dict[bytes, object]


class Workload:
    """Steps on a volume, each with the tree after it; and which of them were safe after how many events."""

    def __init__(self, seed: int, steps: int) -> None:
        self.volume, self.recorder, self.before = recorded()
        self.chance = random.Random(seed)
        self.states: list[State] = [tree(self.volume)]
        self.begun: list[int] = [0]  # events before the step that made the state
        self.safe: list[tuple[int, int]] = [(0, 0)]  # (events, state)
        self.directories = {b"": ROOT}
        self.files: dict[bytes, int] = {}
        for _ in range(steps):
            begun = len(self.recorder.events)
            self.step()
            self.states.append(tree(self.volume))
            self.begun.append(begun)
            if not self.volume.unsaved:
                self.safe.append((len(self.recorder.events), len(self.states) - 1))

    def step(self) -> None:
        chance, made = self.chance, self.volume
        what = chance.random()
        directory = chance.choice(list(self.directories))
        name = b"%d" % chance.randrange(12)
        path = directory + b"/" + name
        taken = path in self.files or path in self.directories
        if what < 0.1 and not taken and len(self.directories) < 6:
            self.directories[path] = made.mkdir(self.directories[directory], name, 0o755)
        elif what < 0.3 and not taken:
            self.files[path] = made.create(self.directories[directory], name, 0o644)
        elif what < 0.6 and self.files:
            path = chance.choice(list(self.files))
            made.write(self.files[path], chance.randrange(3000), chance.randbytes(chance.randrange(1, 1500)))
        elif what < 0.66 and self.files:
            made.truncate(self.files[chance.choice(list(self.files))], chance.randrange(3000))
        elif what < 0.75 and self.files:
            path = chance.choice(list(self.files))
            del self.files[path]
            made.unlink(self.directories[path.rpartition(b"/")[0]], path.rpartition(b"/")[2])
        elif what < 0.85 and len(self.files) > 1:
            old, new = chance.sample(list(self.files), 2)
            flags = RENAME_EXCHANGE if chance.random() < 0.5 else 0
            (old_directory, _, old_name), (new_directory, _, new_name) = old.rpartition(b"/"), new.rpartition(b"/")
            made.rename(self.directories[old_directory], old_name, self.directories[new_directory], new_name, flags)
            if flags:
                self.files[old], self.files[new] = self.files[new], self.files[old]
            else:
                self.files[new] = self.files.pop(old)
        else:
            made.sync()

    def check(self, count: int, found: State) -> None:
        """The tree is one of those since the last fsync; of files written since, each block is one that was."""
        first = max(state for events, state in self.safe if events <= count)
        last = max(number for number, begun in enumerate(self.begun) if begun <= count)
        window = self.states[first : last + 1]
        assert any(self.same(found, state, window) for state in window), (count, first, last)

    def same(self, found: State, state: State, window: list[State]) -> bool:
        if found.keys() != state.keys():
            return False
        for path, value in state.items():
            got = found[path]
            if not isinstance(value, bytes) or not isinstance(got, bytes):
                if got != value:
                    return False
                continue
            if len(got) != len(value):
                return False
            written = [other for one in window for other in one.values() if isinstance(other, bytes)]
            for at in range(0, len(got), 512):
                block, old = got[at : at + 512], value[at : at + 512]
                # a file that became shorter and was then written has its old end until that is safe
                later = [other[at : at + 512] for other in written]
                if block != old and not any(
                    block in (new.ljust(512, b"\0")[: len(old)], (new + old[len(new) :])[: len(old)]) for new in later
                ):
                    return False
        return True


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_append_or_erase_leaves_a_sound_volume_with_all_that_was_fsynced(seed: int) -> None:
    work = Workload(seed, 130)
    assert work.volume.layer._cleaner.blocks_cleaned > 0
    assert work.volume.journal.through_log + work.volume.journal.as_one > 5
    chance = random.Random(seed)
    for count in cuts(work.recorder):
        device = after_cut(work.recorder, work.before, count, chance if count % 3 == 0 else None)
        image = bytes(device.content)
        seen = Volume(open_vsl(device))
        report = check(seen)
        assert report.sound, (count, report.findings)
        before = tree(seen)
        work.check(count, before)
        if count % 4:
            continue
        device.pwrite(0, image)
        after = WritableVolume(open_vsl(device), clock=clock())
        assert tree(after) == before, count  # what a reader was shown is what there is
        after.create(ROOT, b"after", 0o644)
        after.close()
        again = check(Volume(open_vsl(device)))
        assert again.sound, (count, again.findings)
        assert again.clean


def test_a_power_cut_at_any_moment_of_filling_leaves_no_volume_or_a_sound_one_and_a_closed_one_is_whole(
    tmp_path: Path,
) -> None:
    top = tmp_path / "source"
    (top / "inner").mkdir(parents=True)
    for number in range(12):
        (top / "inner" / f"file {number}").write_bytes(bytes([number]) * (700 * number))
    (top / "link").symlink_to("inner")
    before = bytes(TIGHT.image_bytes)
    recorder = Recorder(Memory(before))
    layer = create_on_device(recorder, TIGHT_SIZE, TIGHT, space_blocks=WHOLE_SPACE)
    format_layer(layer, geometry_for(TIGHT_SIZE // 512, CHUNK, SLOT, hashed=volumes.hashed), closed=False)
    filled = WritableVolume(layer, clock=clock())
    with closing(read_source(str(top))) as source:
        fill(filled, ROOT, source)
    whole = tree(filled)
    filled.close()
    outcomes: set[str] = set()
    for count in cuts(recorder):
        device = after_cut(recorder, before, count)
        try:
            seen = Volume(open_vsl(device))
        except (NotDfs, NotVsl, Corrupt) as error:
            outcomes.add(type(error).__name__)
            continue
        report = check(seen)
        assert report.sound, (count, report.findings)
        outcomes.add("closed" if report.clean else "not closed")
        assert not report.clean or tree(seen) == whole, count
    assert outcomes >= {"closed", "not closed", "NotDfs"}
