"""The best overprovision is found without trying every percentage; here they are all tried."""

from hypothesis import given
from hypothesis import strategies as st

from f2tools.f2fs.layout.constants import NR_CURSEG_TYPE, U32_MAX
from f2tools.f2fs.volume.areas import best_overprovision, ceil_div


def tried_all(main: int, usable: int, section_count: int, segs_per_sec: int, sections: int) -> float:
    """get_best_overprovision() in f2fs_fs.h, line by line."""
    candidate, end, step = (10.0, 95.0, 5.0) if main < 256 else (0.01, 10.0, 0.01)
    buffer, per_section = NR_CURSEG_TYPE * segs_per_sec, ceil_div(usable, section_count)
    best = most = 0.0
    while candidate <= end:
        reserved = sections * per_section or int((100 / candidate + 1 + NR_CURSEG_TYPE) * per_section)
        reserved = ceil_div(reserved, per_section) * per_section
        hidden = (usable - reserved & U32_MAX) * candidate / 100
        if hidden > 0:
            space = usable - max(float(reserved), hidden) - buffer
            if most < space:
                most, best = space, candidate
        candidate += step
    return best


def test_every_small_main_area_gets_what_trying_finds() -> None:
    for main in range(1, 1200):
        assert best_overprovision(main, main, main, 1) == tried_all(main, main, main, 1, 0), main


@given(
    section_count=st.integers(1, 1 << 23),
    segs_per_sec=st.integers(1, 64),
    lost=st.integers(0, 1 << 12),
    sections=st.integers(0, 200),
)
def test_any_main_area_gets_what_trying_finds(section_count: int, segs_per_sec: int, lost: int, sections: int) -> None:
    main = section_count * segs_per_sec
    usable = max(1, main - lost)  # zones may have less capacity than size
    asked = main, usable, section_count, segs_per_sec, sections
    assert best_overprovision(*asked) == tried_all(*asked)
