"""Workers of a dask cluster that count a trace in parts give the report of one process, whatever happens to them."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, LocalCluster

from f2tools import cluster
from f2tools.errors import Corrupt, Usage, Where
from f2tools.trace import analyze as analysis
from f2tools.trace import pieces
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.dump.craft import f2
from tests.fleet.schedulers import own_scheduler
from tests.trace import traces
from tests.trace.test_jobs import damaged
from tests.trace.test_pieces import TRACES, cuts_of

pytestmark = pytest.mark.xdist_group("fleet")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, silence_logs=50, dashboard_address="127.0.0.1:0"
    ) as local:
        yield local.scheduler_address


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: traces.unpacked(name, tmp_path_factory.mktemp("traces")) for name in TRACES}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The parts that have come from the workers."""
    came: list[int] = []
    monkeypatch.setattr(analysis, "cuts_of", lambda files: cuts_of(files, 40 << 10))
    monkeypatch.setattr(pieces, "SHORTEST", 4)
    put = pieces._put
    monkeypatch.setattr(pieces, "_put", lambda *given: came.append(given[2].first) or put(*given))
    return came


def report(trace: Path, scheduler: str | None = None) -> str:
    return json.dumps(analyze(AnalysisRequest(str(trace), scheduler=scheduler)).report)


def workers(address: str) -> list[int]:
    with Client(address, set_as_default=False) as client:
        found: Any = client.run(os.getpid)
        return list(found.values())


@pytest.mark.parametrize("name", TRACES)
def test_a_cluster_reports_what_one_process_reports(
    name: str, unpacked: dict[str, Path], scheduler: str, small_parts: list[int]
) -> None:
    assert report(unpacked[name], scheduler) == report(unpacked[name])
    assert len(small_parts) >= 2


def test_a_worker_that_is_killed_half_way_changes_nothing(
    unpacked: dict[str, Path], scheduler: str, monkeypatch: pytest.MonkeyPatch, small_parts: list[int]
) -> None:
    victims = workers(scheduler)[:1]
    put = pieces._put

    def killing(*given: Any) -> None:
        while victims:
            os.kill(victims.pop(), signal.SIGKILL)
        put(*given)

    monkeypatch.setattr(pieces, "_put", killing)
    alone = report(unpacked["f2fs-varmail"])
    assert report(unpacked["f2fs-varmail"], scheduler) == alone
    assert len(small_parts) == 8
    assert not victims


def test_a_scheduler_that_dies_half_way_is_named(unpacked: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    put = pieces._put
    with own_scheduler() as (address, process):

        def killing(*given: Any) -> None:
            process.kill()
            process.wait()
            put(*given)

        monkeypatch.setattr(pieces, "_put", killing)
        done = f2("trace", "analyze", unpacked["f2fs-varmail"], "--scheduler", address)
    said = f"f2tools: tcp://{address}: the dask scheduler is gone; start it again and give the same command\n"
    assert (done.code, done.out, done.err) == (8, b"", said)


def test_a_worker_that_sleeps_for_a_while_changes_nothing(
    unpacked: dict[str, Path], scheduler: str, monkeypatch: pytest.MonkeyPatch, small_parts: list[int]
) -> None:
    sleeper = psutil.Process(workers(scheduler)[0])
    waking = threading.Timer(2, sleeper.resume)
    put = pieces._put

    def sleeping(*given: Any) -> None:
        if not waking.ident:
            sleeper.suspend()
            waking.start()
        put(*given)

    monkeypatch.setattr(pieces, "_put", sleeping)
    alone = report(unpacked["nilfs2-randwrite"])
    assert report(unpacked["nilfs2-randwrite"], scheduler) == alone
    waking.join()
    assert small_parts


def test_a_damaged_trace_is_read_here_as_a_whole(tmp_path: Path, scheduler: str) -> None:
    prefix = damaged(tmp_path)
    assert report(prefix, scheduler) == report(prefix)


def test_a_worker_of_another_version_is_named_in_one_sentence(
    unpacked: dict[str, Path], scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cluster.installed
    monkeypatch.setattr(cluster, "installed", lambda name: "9.9" if name == "f2tools" else here(name))
    done = f2("trace", "analyze", unpacked["churn"], "--scheduler", scheduler)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "has f2tools" in done.err
    assert "this machine has 9.9; install the same on both" in done.err


def test_a_worker_that_comes_between_two_questions_is_held_to_what_it_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked:
        """A client of a cluster where a worker joins after the first question, and another leaves."""

        def __init__(self, answer: str) -> None:
            self.workers, self.answer = iter([["a", "b"], ["a", "late"], ["late"]]), answer

        def run(self, question: Any, *package: str, **_: str) -> dict[str, Any]:
            return {worker: self.answer if package else question() for worker in next(self.workers, ["late"])}

    monkeypatch.setattr(cluster, "installed", lambda _: "1.0")
    found: Any = Asked("1.0")
    cluster.same_versions(found, "tcp://nowhere")
    found = Asked("2.0")
    with pytest.raises(Usage, match=r"worker a has .* 2\.0 and this machine has 1\.0"):
        cluster.same_versions(found, "tcp://nowhere")


def test_a_trace_that_the_workers_do_not_see_is_said_so(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = traces.unpacked("churn", tmp_path)
    path = Path(f"{prefix}.blktrace.0")
    begun = analysis.task_of

    def shortened(*given: Any) -> Any:
        task = begun(*given)
        path.write_bytes(path.read_bytes()[:-48])
        return task

    monkeypatch.setattr(analysis, "task_of", shortened)
    done = f2("trace", "analyze", prefix, "--scheduler", scheduler)
    assert (done.code, len(done.err.splitlines())) == (8, 1)
    assert f"{path}: has " in done.err
    assert "not the same file" in done.err
    monkeypatch.setattr(analysis, "task_of", lambda *given: (begun(*given), path.unlink())[0])
    done = f2("trace", "analyze", prefix, "--scheduler", scheduler)
    assert (done.code, len(done.err.splitlines())) == (8, 1)
    assert f"{path}: No such file or directory, says a worker of {scheduler}" in done.err


@pytest.mark.parametrize("name", ["unpacked", "packed"])
def test_a_trace_that_is_not_handed_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.undo()  # parts as large as they are
    trace = traces.DIRECTORY / "churn" if name == "packed" else traces.unpacked("churn", tmp_path)
    done = f2("trace", "analyze", trace, "--scheduler", "tcp://127.0.0.1:1")
    assert done.code == 0
    assert "was read here, and not by the workers: it is too small or can't be cut" in done.err
    assert "read here" not in f2("trace", "analyze", trace).err


def test_an_error_is_the_same_after_its_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(Corrupt(Where(path="x", offset=16), "is wrong")))
    assert (type(error), str(error), error.where.offset) == (Corrupt, "path x, offset 0x10: is wrong", 16)
