"""Random operations against the model: a few thousand here, as many as wanted with F2_STATEFUL_OPERATIONS."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.machine import FLAVOURS, Machine

OPERATIONS = int(os.environ.get("F2_STATEFUL_OPERATIONS", "2500"))
STEPS = 50  # of one example; a step is one operation, some are hundreds
NIGHTLY = OPERATIONS > 10_000


@pytest.mark.peer
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_random_operations_leave_what_the_model_says(flavour: str) -> None:
    class One(Machine):
        flavours = (flavour,)

    examples = max(1, OPERATIONS // STEPS // len(FLAVOURS))
    run_state_machine_as_test(
        One,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            derandomize=not NIGHTLY,  # the same ones at every run, so that a failure is the change's
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
