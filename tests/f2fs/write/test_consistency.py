"""The judge judged: what the kernel wrote is consistent, and what was damaged is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import f2tools
from f2tools.errors import F2fsError
from tests import images
from tests.f2fs.write.consistency import problems

KERNEL_MADE = (*images.CLEAN, *images.CRASH, *images.FSCRYPT, *images.HISTORY)

# Damage to what the check reads past on purpose: the copies of checkpoint and superblock that are not in use.
ELSEWHERE = {"checkpoint-crc", "checkpoint-footer", "superblock-checksum", "superblock-first"}


@pytest.mark.parametrize("name", KERNEL_MADE)
def test_what_the_kernel_wrote_is_consistent(name: str) -> None:
    case = images.reference(name)
    with f2tools.open(case.path, case.extra) as volume:
        assert problems(volume) == []


@pytest.mark.parametrize("name", sorted(set(images.DAMAGED) - ELSEWHERE))
def test_damage_is_noticed(name: str, tmp_path: Path) -> None:
    case = images.damaged(name, tmp_path)
    try:
        with f2tools.open(case.path, case.extra) as volume:
            assert problems(volume)
    except F2fsError:
        pass  # it can't be read at all
