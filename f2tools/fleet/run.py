"""One run: targets to workers, results to the journal, and when all are there to the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from f2tools.cluster import SchedulerGone, cluster, mapped
from f2tools.errors import Usage
from f2tools.fleet.journal import Journal
from f2tools.fleet.summary import Summary
from f2tools.fleet.tables import ENDING, needed, write_tables
from f2tools.fleet.verbs import VERBS, Options
from f2tools.fleet.work import failed, look_at


@dataclass(frozen=True)
class FleetRequest:
    """The targets, the verb with its options, and where the tables go."""

    verb: str
    targets: list[str]
    output: str
    jobs: int = 1
    scheduler: str | None = None
    options: Options = field(default_factory=Options)
    fresh: bool = False  # leave out what an earlier run that was cut off has done


def run(
    request: FleetRequest,
    *,
    resumed: Callable[[int], None] = lambda count: None,
    advance: Callable[[int], None] = lambda count: None,
) -> Summary:
    """Look at every target and write the tables; returns the summary.  SchedulerGone leaves the journal.

    `resumed` is told how many targets an earlier run has done, `advance` when one is.
    """
    if not request.output.endswith(ENDING):
        raise Usage(f"{request.output}: the output is a Parquet file, so its name ends in {ENDING}")
    needed()
    verb = VERBS[request.verb]
    with Journal(request.output, request.verb, request.options, fresh=request.fresh) as journal:
        todo = [target for target in request.targets if target not in journal]
        if len(todo) < len(request.targets):
            resumed(len(request.targets) - len(todo))
            advance(len(request.targets) - len(todo))
        if todo:
            try:
                _look_at_all(request, todo, journal, advance)
            except SchedulerGone as error:
                raise SchedulerGone(f"{error}, which goes on from what is done") from None
        summary = Summary(request.verb)
        write_tables(request.output, verb, map(summary.add, journal.results(request.targets)))
        journal.drop()
    return summary


def _look_at_all(request: FleetRequest, todo: list[str], journal: Journal, advance: Callable[[int], None]) -> None:
    with cluster(min(request.jobs, len(todo)), request.scheduler) as client:
        look = partial(look_at, request.verb, options=request.options)
        for target, result in mapped(client, look, todo):
            if isinstance(result, BaseException):
                result = failed(target, f"no worker could do it: {type(result).__name__}: {result}")
            journal.add(target, result)
            advance(1)
