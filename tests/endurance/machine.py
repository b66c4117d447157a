"""Random operations on the engine and its model, with checkpoints, remounts and power cuts: each flavour in turn."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.stateful.machine import FLAVOURS, Machine

STEPS, EXAMPLES = 50, 10


def piece(number: int, work: Path) -> Outcome:
    """So many examples of one flavour, of so many operations each."""
    flavour = tuple(FLAVOURS)[number % len(FLAVOURS)]

    class One(Machine):
        flavours = (flavour,)

    outcome = Outcome(STEPS * EXAMPLES)
    outcome.counts[flavour] = STEPS * EXAMPLES
    chosen = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None, print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
    )  # fmt: skip
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            run_state_machine_as_test(seed(number)(One), settings=chosen)
    except Exception as error:  # whatever the machine runs into is what is looked for
        story = "\n".join([*getattr(error, "__notes__", ()), said.getvalue()])
        outcome.found.append(Found(f"{flavour}: {type(error).__name__}: {error}\n{story}"))
    return outcome


MACHINE = Campaign(
    "machine",
    "random operations on the engine and on a model of a few lines, with checkpoints, remounts and power cuts between"
    " them, in all flavours of volumes: both say the same",
    "operations", 1_000_000, STEPS * EXAMPLES, piece, in_memory=True,
)  # fmt: skip
