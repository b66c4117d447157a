"""A layer on a chip that loses power, against a plain dict."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from f2tools.flash.nand import Geometry, Nand, PowerCut
from f2tools.flash.vsl import create_on_nand, open_on_nand
from tests.flash.chips import blocks_of

BLOCKS = 200
STARTS = st.integers(0, BLOCKS - 1)
COUNTS = st.sampled_from([1, 1, 2, 4, 9, 24])
GEOMETRY = Geometry(blocks=16, pages_per_block=8)


class LayerMachine(RuleBasedStateMachine):
    """`known` is what must be there; while `unsure`, what each block may hold, the youngest last."""

    @initialize()
    def begin(self) -> None:
        self.nand = Nand(GEOMETRY)
        self.layer = create_on_nand(self.nand, space_blocks=BLOCKS + 64)
        self.known: dict[int, bytes] = {}
        self.unsure: dict[int, list[bytes]] = {}
        self.number = 0

    def value(self) -> bytes:
        self.number += 1
        return self.number.to_bytes(4, "little") * 128

    def may(self, block: int, value: bytes) -> None:
        self.unsure.setdefault(block, []).append(value)

    def now(self, block: int) -> bytes:
        return self.unsure.get(block, [self.known.get(block, bytes(512))])[-1]

    @rule(start=STARTS, count=COUNTS)
    def write(self, start: int, count: int) -> None:
        values = [self.value() for _ in range(count)]
        for n, value in enumerate(values):
            self.may(start + n, value)
        self.layer.write_vblocks(start, b"".join(values))

    @rule(start=STARTS, count=COUNTS)
    def trim(self, start: int, count: int) -> None:
        for block in range(start, start + count):
            self.may(block, bytes(512))
        self.layer.trim_vblocks(start, count)

    @rule(blocks=st.lists(STARTS, min_size=1, max_size=6, unique=True))
    def write_as_one(self, blocks: list[int]) -> None:
        values = {block: self.value() for block in blocks}
        for block, value in values.items():
            self.may(block, value)
        self.layer.write_atomic(list(values.items()))

    @rule()
    def flush(self) -> None:
        self.layer.flush()
        self.flush_known()

    @rule()
    def checkpoint(self) -> None:
        self.layer.checkpoint()
        self.flush()

    @rule(use_checkpoint=st.booleans())
    def close_and_open(self, use_checkpoint: bool) -> None:
        self.layer.close()
        self.flush_known()
        self.layer = open_on_nand(self.nand, use_checkpoint=use_checkpoint)
        assert blocks_of(self.layer) == {block: data for block, data in self.known.items() if block in self.mapped()}

    def flush_known(self) -> None:
        self.known.update({block: values[-1] for block, values in self.unsure.items()})
        self.unsure.clear()

    def mapped(self) -> set[int]:
        return {block for first, count in self.layer.extents() for block in range(first, first + count)}

    @rule(after=st.integers(0, 25), seed=st.integers(0, 1000), use_checkpoint=st.booleans(), again=st.integers(0, 4))
    def lose_power(self, after: int, seed: int, use_checkpoint: bool, again: int) -> None:
        self.nand.cut_power(after, seed=seed)
        try:
            for number in range(40):
                self.write((seed * 7 + number * 13) % BLOCKS, 1 + number % 9)
                if number % 3 == 2:
                    self.trim((seed + number) % BLOCKS, 5)
                if number % 5 == 4:
                    self.flush()
        except PowerCut:
            pass
        self.nand.power_on()
        for number in range(again):  # and again while it recovers
            self.layer = open_on_nand(self.nand, use_checkpoint=use_checkpoint)
            self.nand.cut_power(number, seed=seed + number)
            try:
                self.write(number, 1)
                self.layer.flush()
            except PowerCut:
                pass
            self.nand.power_on()
        self.layer = open_on_nand(self.nand, use_checkpoint=use_checkpoint)
        found = blocks_of(self.layer)
        for block in set(found) | set(self.known) | set(self.unsure):
            allowed = [self.known.get(block, bytes(512)), *self.unsure.get(block, [])]
            assert found.get(block, bytes(512)) in allowed, block
        self.known, self.unsure = found, {}

    @invariant()
    def reads_as_written(self) -> None:
        if not hasattr(self, "layer"):
            return
        content = self.layer.read_vblocks(0, BLOCKS + 24)
        for block in range(BLOCKS + 24):
            assert content[block * 512 : block * 512 + 512] == self.now(block), block
        assert int(self.layer.table.live.sum()) == self.layer.mapped_blocks


TestLayer = LayerMachine.TestCase
TestLayer.settings = settings(
    max_examples=15, stateful_step_count=25, derandomize=True, suppress_health_check=list(HealthCheck)
)
