"""Random operations on the engine and its model, with checkpoints, remounts and power cuts: each flavour in turn."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.stateful.machine import FLAVOURS, Machine, crowded_image

STEPS, EXAMPLES = 50, 10
PHASES = (Phase.generate, Phase.shrink)


@cache
def warm() -> None:
    """Make the volume that is crowded, and let Hypothesis read the constants of all modules, as it does once."""
    crowded_image()
    _run("plain", 0, 1, 1)


def piece(number: int, work: Path) -> Outcome:
    """So many examples of one flavour, of so many operations each."""
    warm()
    flavour = tuple(FLAVOURS)[number % len(FLAVOURS)]
    outcome = Outcome(STEPS * EXAMPLES)
    outcome.counts[flavour] = STEPS * EXAMPLES
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            _run(flavour, number, EXAMPLES, STEPS)
    except Exception as error:  # whatever the machine runs into is what is looked for
        for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
            story = "\n".join([*getattr(one, "__notes__", ()), said.getvalue()])
            outcome.found.append(Found(f"{flavour}: {type(one).__name__}: {one}\n{story}"))
    return outcome


def _run(flavour: str, number: int, examples: int, steps: int) -> None:
    class One(Machine):
        flavours = (flavour,)

    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=True,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
    )  # fmt: skip
    run_state_machine_as_test(seed(number)(One), settings=chosen)


MACHINE = Campaign(
    "machine",
    "random operations on the engine and on a model of a few lines, with checkpoints, remounts and power cuts between"
    " them, in all flavours of volumes: both say the same",
    "operations", 1_000_000, STEPS * EXAMPLES, piece, warm=warm, in_memory=True,
)  # fmt: skip
