"""The bookkeeping of segments by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from tests.f2fs.write.volumes import fresh, writable


def test_a_block_that_is_named_twice_is_damage_and_counts_for_nothing(tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"file", 0o100644)
        volume.write(ino, 0, bytes(range(256)) * 64)
        volume.sync()
        segments = volume.segments
        blkaddrs = volume.mapper.get(volume.live(ino), np.arange(4))
        segno = volume.geo.segno(int(blkaddrs[0]))
        before = segments.vblocks.copy(), segments.held.copy(), segments.valid_map.copy()
        with pytest.raises(Corrupt, match=f"{int(blkaddrs[1]):#x}.*in use twice"):
            segments.invalidate(np.array([*blkaddrs, blkaddrs[1]]))
        for is_now, was in zip((segments.vblocks, segments.held, segments.valid_map), before, strict=True):
            assert np.array_equal(is_now, was)
        segments.invalidate(blkaddrs[:1])
        assert segments.vblocks[segno] == before[0][segno] - 1
        with pytest.raises(Corrupt, match="not marked valid"):
            segments.invalidate(blkaddrs[:1])
        volume.segments.adopt(blkaddrs[:1], segments.owners(segno)[1][:1].copy(), int(segments.types[segno]))


def test_a_clock_that_is_set_back_ends_nothing(tmp_path: Path) -> None:
    volume = writable(fresh(tmp_path))
    with volume:
        volume.clock.now -= 10**18  # type: ignore[attr-defined]
        ino = volume.create(F2FS_ROOT_INO, b"file", 0o100644)
        volume.write(ino, 0, bytes(20_000))
        volume.sync()
    assert volume.cp.elapsed_time < 10**6


def test_blocks_of_many_segments_become_invalid_as_those_of_one_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(7)
    with writable(fresh(tmp_path)) as volume:
        segments = volume.segments
        many = np.flatnonzero(segments.vblocks == 0)[:20]
        segments.valid_map[many] = chance.integers(0, 256, (many.size, segments.valid_map.shape[1]))
        segments.vblocks[many] = np.unpackbits(segments.valid_map[many], axis=1).sum(axis=1)
        segments.mtime[many] = chance.integers(0, 3, many.size) * 10**6
        at = [np.flatnonzero(np.unpackbits(row)) for row in segments.valid_map[many]]
        first = np.concatenate(
            [segments.geo.start_block(s) + some[:: chance.integers(1, 4)] for s, some in zip(many, at, strict=True)]
        )
        rest = np.setdiff1d(
            np.concatenate([segments.geo.start_block(s) + some for s, some in zip(many, at, strict=True)]), first
        )
        names = ("vblocks", "held", "valid_map", "mtime")
        kept = {name: getattr(segments, name).copy() for name in names}
        ended = []
        for few in (0, 1000):
            monkeypatch.setattr("f2tools.f2fs.write.valid_map.FEW_SEGMENTS", few)
            for said in (segments._before, segments.dirty_sit, segments.prefree):
                said.clear()
            for name in names:
                getattr(segments, name)[:] = kept[name]
            for some in (first, rest):
                segments.invalidate(chance.permutation(some))
                with pytest.raises(Corrupt, match=f"{int(some.min()):#x}.*not marked valid"):
                    segments.invalidate(some)
            ended.append({name: getattr(segments, name).copy() for name in (*names, "dirty_sit", "prefree")})
        assert all(np.array_equal(ended[0][name], ended[1][name]) for name in ended[0])
        assert not segments.vblocks[many].any()
        assert segments.held[many].all()
        for name in names:
            getattr(segments, name)[:] = kept[name] if name != "valid_map" else 0
        segments.vblocks[many] = 0
        for said in (segments._before, segments.dirty_sit, segments.prefree):
            said.clear()
