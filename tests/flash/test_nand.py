"""The chip: programmed once and in order, erased whole, with the faults that were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.errors import DeviceError, Usage
from f2tools.flash.nand import (
    TIMINGS,
    EraseFailed,
    Faults,
    Geometry,
    Nand,
    PowerCut,
    ProgramFailed,
    ReadFailed,
)
from tests.flash.chips import SMALL, chip

DATA, SPARE = b"d" * 2048, b"s" * 64


def test_a_page_reads_as_it_was_programmed_and_an_erased_one_as_ff() -> None:
    nand = chip()
    assert nand.read(5) == (b"\xff" * 2048, b"\xff" * 64)
    nand.program(5, b"short", b"\xff\xffx")
    data, spare = nand.read(5)
    assert data == b"short".ljust(2048, b"\xff")
    assert spare == b"\xff\xffx".ljust(64, b"\xff")
    assert nand.read_spare(5) == spare


def test_a_page_is_programmed_once_and_in_order_until_its_block_is_erased() -> None:
    nand = chip()
    nand.program(2, DATA, SPARE)
    for page in (2, 1):
        with pytest.raises(Usage, match=f"page {page} can't be programmed"):
            nand.program(page, DATA, SPARE)
    assert nand.next_page(0) == 3
    nand.erase(0)
    nand.program(0, DATA, SPARE)
    assert nand.read(2) == (b"\xff" * 2048, b"\xff" * 64)
    assert nand.erase_counts.tolist() == [1] + [0] * 23


def test_what_is_past_the_end_or_too_long_is_refused() -> None:
    nand = chip()
    with pytest.raises(DeviceError, match="past the end"):
        nand.read(SMALL.pages)
    with pytest.raises(DeviceError, match="no block 24"):
        nand.erase(24)
    with pytest.raises(Usage):
        nand.program(0, b"x" * 2049, b"")
    with pytest.raises(Usage, match="planes"):
        Geometry(blocks=5, planes=2)


def test_a_dump_has_each_page_followed_by_its_spare_area(tmp_path: Path) -> None:
    geometry = Geometry(blocks=4, pages_per_block=4)
    path = tmp_path / "chip.bin"
    with Nand.create(path, geometry) as nand:
        nand.program(5, DATA, b"\xff\xff" + b"s" * 62)
        nand.mark_bad(3)
        dump = nand.dump()
    assert path.read_bytes() == dump
    assert dump[5 * 2112 : 6 * 2112] == DATA + b"\xff\xff" + b"s" * 62
    assert dump[12 * 2112 + 2048] == 0
    with Nand.open(path, geometry, write=True) as nand:
        assert [nand.is_bad(block) for block in range(4)] == [False, False, False, True]
        assert nand.next_page(1) == 2
        with pytest.raises(Usage):
            nand.program(5, DATA, SPARE)
        nand.program(6, DATA, SPARE)
        nand.erase(1)
        assert nand.next_page(1) == 0
    with Nand.open(path, geometry) as nand, pytest.raises(DeviceError, match="read-only"):
        nand.erase(0)
    with pytest.raises(DeviceError, match="take"):
        Nand.open(path, Geometry(blocks=5, pages_per_block=4))


def test_faults_come_by_their_seed_and_are_counted() -> None:
    def run(seed: int) -> list[str]:
        nand = chip(Faults(seed, factory_bad=0.2, read_failure=0.1, program_failure=0.1, erase_failure=0.2))
        seen = []
        for page in range(SMALL.pages):
            try:
                nand.program(page, DATA, b"\xff")
                nand.read(page)
                seen.append("fine")
            except (ProgramFailed, ReadFailed) as error:
                seen.append(type(error).__name__)
        for block in range(SMALL.blocks):
            try:
                nand.erase(block)
            except EraseFailed:
                seen.append("erase")
        counters = nand.counters
        assert min(counters.read_failures, counters.program_failures, counters.erase_failures) > 0
        return seen

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_bits_are_read_wrong_and_stay_right_in_the_flash() -> None:
    nand = chip(Faults(seed=3, bit_error=1e-4))
    nand.program(0, DATA, SPARE)
    reads = {nand.read_raw(0, 1) for _ in range(20)}
    assert len(reads) > 5
    assert nand.counters.flipped_bits > 0
    nand.faults = Faults()
    assert nand.read(0) == (DATA, SPARE)
    nand.flip(0, [0, 9])
    assert nand.read(0)[0][:2] == bytes([DATA[0] ^ 1, DATA[1] ^ 2])


def erase_often(nand: Nand, count: int) -> None:
    for _ in range(count):
        nand.erase(7)


def test_a_worn_out_block_fails_and_others_do_not() -> None:
    nand = chip(Faults(endurance=50))
    with pytest.raises(EraseFailed):
        erase_often(nand, 5000)
    assert nand.erase_counts[7] >= 50
    for _ in range(49):
        nand.erase(8)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_tears_the_page_that_was_being_programmed(seed: int) -> None:
    nand = chip()
    nand.cut_power(2, seed=seed)
    nand.program(0, DATA, SPARE)
    nand.program(1, DATA, SPARE)
    with pytest.raises(PowerCut):
        nand.program(2, DATA, SPARE)
    with pytest.raises(PowerCut):
        nand.read(0)
    nand.power_on()
    assert nand.read(1) == (DATA, SPARE)
    torn = b"".join(nand.read(2))
    whole = next((n for n, (a, b) in enumerate(zip(torn, DATA + SPARE, strict=True)) if a != b), len(torn))
    assert torn[: max(0, whole)] == (DATA + SPARE)[:whole]
    assert all(got | wanted == got for got, wanted in zip(torn, DATA + SPARE, strict=True))  # bits only missing


def test_a_power_cut_tears_an_erase_and_the_block_must_be_erased_again() -> None:
    nand = chip()
    for page in range(16):
        nand.program(page, DATA, SPARE)
    nand.cut_power(0, seed=5)
    with pytest.raises(PowerCut):
        nand.erase(0)
    nand.power_on()
    pages = {b"".join(nand.read(page)) for page in range(16)}
    assert DATA + SPARE in pages
    assert b"\xff" * 2112 in pages
    with pytest.raises(Usage):
        nand.program(0, DATA, SPARE)
    nand.erase(0)
    nand.program(0, DATA, SPARE)


def test_time_is_what_the_data_sheet_says_and_planes_work_together() -> None:
    slc = TIMINGS["slc"]
    transfer = round(2112 * slc.byte_ns)
    nand = Nand(Geometry(blocks=4, planes=2), timing=slc)
    nand.program(0, DATA, SPARE)
    assert nand.counters.busy_ns == slc.program_ns + transfer
    nand.read(0)
    assert nand.counters.busy_ns == slc.program_ns + slc.read_ns + 2 * transfer
    nand.erase(0)
    before = nand.counters.busy_ns
    nand.program_planes([0, 64], [DATA, DATA], [SPARE, SPARE])
    assert nand.counters.busy_ns - before == slc.program_ns + 2 * transfer
    with pytest.raises(Usage, match="planes"):
        nand.program_planes([128, 1], [DATA, DATA], [SPARE, SPARE])
    with pytest.raises(Usage, match="planes"):
        nand.program_planes([1, 129], [DATA, DATA], [SPARE, SPARE])


def test_memory_that_was_never_programmed_is_not_touched() -> None:
    nand = Nand(Geometry(blocks=1 << 16))  # 8 GiB of address space
    nand.program((1 << 16) * 64 - 1, DATA, SPARE)
    assert nand.read((1 << 16) * 64 - 1) == (DATA, SPARE)
