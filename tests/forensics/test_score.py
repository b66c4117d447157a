"""What comes back of what is physically there, and that nothing wrong is called certain."""

from __future__ import annotations

import pytest

from tests.forensics.history_cases import NAMES, found_in, score_of

# Older versions that no tool could name or tell from the image alone: where directories were discarded or overwritten,
# names before the last one are gone with them.
OLDER_MISSED = {"history-b": 4, "history-c-small": 3, "history-d": 1, "phone-discard": 1}


@pytest.mark.parametrize("name", NAMES)
def test_of_deleted_files_all_but_one_in_a_hundred_come_back(name: str) -> None:
    result = score_of(name)
    assert result.back >= 0.99 * result.bound, result.missed
    assert result.empty_back == result.empty_bound


@pytest.mark.parametrize("name", NAMES)
def test_of_older_versions_as_many_come_back(name: str) -> None:
    result = score_of(name)
    assert result.older_bound - result.older_back <= OLDER_MISSED.get(name, 0), result.older_missed


@pytest.mark.parametrize("name", NAMES)
def test_no_content_in_grade_certain_is_wrong(name: str) -> None:
    result = score_of(name)
    assert result.wrong_certain == []


@pytest.mark.parametrize("name", ["history-a", "history-c", "history-lfs", "phone"])
def test_most_are_certain_where_nothing_was_overwritten(name: str) -> None:
    result = score_of(name)
    assert result.grades["certain"] >= 0.99 * result.back


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back_where_nothing_else_is_left(name: str) -> None:
    result = score_of(name)
    assert result.named == result.named_bound


def test_nothing_that_lives_is_called_deleted() -> None:
    for name in NAMES:
        for item in found_in(name):
            if item["state"] == "deleted":
                assert item["path"] not in {other["path"] for other in found_in(name) if other["state"] == "live"}


def test_uses_of_one_inode_number_are_told_apart() -> None:
    found = [item for item in found_in("history-a") if item["ino"] == 398 and item["state"] == "deleted"]
    assert len({item["generation"] for item in found}) == len(found) >= 1
    older = [item for item in found_in("history-a") if item["ino"] == 398]
    assert len({item["generation"] for item in older}) == 2
