"""Inputs that fuzzing has found, each once more: they reach more than the files that the tests make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.corpus import KINDS, kept, seeds
from tests.hostile.exercise import in_child
from tests.hostile.inputs import judge_of


@pytest.mark.parametrize("kind", KINDS)
def test_what_fuzzing_has_found_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    inputs = [*seeds(kind, tmp_path), *kept(kind)]

    def all_of_them() -> list[str]:
        judge = judge_of(kind, tmp_path)
        for data in inputs:
            judge(data)
        return []

    assert not in_child(all_of_them)
