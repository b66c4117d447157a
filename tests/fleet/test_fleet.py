"""Many targets at once give the rows that each gives alone, whatever happens to targets, workers and the run itself."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

from f2tools import cluster as fleet_cluster
from f2tools.cluster import SchedulerGone
from f2tools.device.media import remote
from f2tools.fleet.journal import Journal
from f2tools.fleet.page import page as page_of
from f2tools.fleet.run import FleetRequest, run
from f2tools.fleet.summary import SHOWN, Summary
from f2tools.fleet.targets import targets_of
from f2tools.fleet.verbs import VERBS, Options
from f2tools.fleet.work import Result, look_at
from tests import images
from tests.dump.craft import f2
from tests.fleet.schedulers import own_scheduler
from tests.fsck.craft import examine
from tests.trace import traces

pytestmark = pytest.mark.xdist_group("fleet")
FEW = ("active-logs-2", "crash-rename-only", "history-a")
ALL = os.environ.get("F2_FLEET_IMAGES") == "all"
DAMAGED = ("nat-zero", "inode-nlink", "checkpoint-both", "dentry-hash")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a cluster of two processes, which all tests share."""
    address = "127.0.0.1:0"
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, silence_logs=50, dashboard_address=address
    ) as local:
        with Client(local) as client:
            client.run(setattr, remote, "PAUSE_SECONDS", 0.01)  # the servers here are near, or never answer
        yield local.scheduler_address


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Images of all kinds: sound, crashed, damaged, one that is none and one that is not there."""
    directory = tmp_path_factory.mktemp("images")
    sound = [*images.CASES] if ALL else FEW
    found = [",".join(map(str, (one.path, *one.extra))) for one in map(images.reference, sound)]
    found += [str(images.damaged(name, directory / name).path) for name in (images.DAMAGED if ALL else DAMAGED)]
    (directory / "none.img").write_bytes(b"no image" * 1000)
    return [*found, str(directory / "none.img"), str(directory / "vanished.img")]


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("verb", ["check", "info", "undelete", "manifest", "scan"])
def test_a_fleet_gives_what_each_image_gives_alone(verb: str, fleet: list[str], scheduler: str, tmp_path: Path) -> None:
    chosen = fleet if verb == "check" or ALL else [*fleet[-6:-4], *fleet[-1:]]
    out = tmp_path / "out.parquet"
    done = f2("fleet", verb, *chosen, "--scheduler", scheduler, "-o", out)
    assert done.code == 1, done.err
    alone = [look_at(verb, target, Options()) for target in chosen]
    columns = VERBS[verb].columns
    assert rows(out) == [{name: one.row.get(name) for name in columns} for one in alone]
    names = VERBS[verb].finding_columns
    wanted = [{name: finding.get(name) for name in names} for one in alone for finding in one.findings]
    assert rows(tmp_path / "out.findings.parquet") == wanted
    assert not out.with_name("out.parquet.part").exists()


def test_a_row_of_check_is_what_fsck_says(fleet: list[str], scheduler: str, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    f2("fleet", "check", *fleet, "--scheduler", scheduler, "-o", out)
    found = {row["target"]: row for row in rows(out)}
    for target in fleet[:-2]:
        report = examine(*map(Path, target.split(",")))
        said = {str(level): count for level, count in report.severities.items()}
        row = found[target]
        assert (row["ok"], row["warnings"]) == (report.sound, said.get("warning", 0))
        assert row["errors"] == said.get("error", 0) + said.get("fatal", 0)
        assert (row["reason"] is None) == row["ok"]
    for target in fleet[-2:]:
        assert found[target]["errors"] is None
        assert not found[target]["looked_at"]
    assert "vanished.img: No such file" in found[fleet[-1]]["reason"]


def test_traces_give_the_numbers_of_their_reports(scheduler: str, tmp_path: Path) -> None:
    prefix = traces.unpacked("f2fs-varmail", tmp_path / "traces")
    out = tmp_path / "out.parquet"
    done = f2("fleet", "trace", f"{prefix}.blktrace.*", "--scheduler", scheduler, "-o", out, "--json")
    report = json.loads(f2("trace", "analyze", prefix, "--json").out)
    (row,) = rows(out)
    assert row["target"] == str(prefix)
    assert row["events"] == report["events"]
    assert row["latency_d2c_write_p99"] == report["latency"]["d2c"]["write"]["p99"]
    assert row["size_512k_request_share"] == report["size_512k"]["request_share"]
    assert json.loads(done.out)["targets"] == 1


def both_tables(out: Path) -> tuple[bytes, bytes]:
    return out.read_bytes(), out.with_name(f"{out.stem}.findings.parquet").read_bytes()


@pytest.fixture(scope="module")
def expected(fleet: list[str], scheduler: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The tables of a check in which nothing goes wrong."""
    out = tmp_path_factory.mktemp("expected") / "out.parquet"
    run(FleetRequest("check", fleet, str(out), scheduler=scheduler))
    return both_tables(out)


def test_processes_of_its_own_give_the_same_bytes(
    fleet: list[str], expected: tuple[bytes, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    command = [sys.executable, "-m", "f2tools", "fleet", "check", *fleet, "--jobs", "2", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{len(fleet)} targets" in done.stdout
    assert both_tables(out) == expected
    schema = pq.read_schema(out)
    wanted = {"target": "string", "ok": "bool", "errors": "int64", "warnings": "int64", "reason": "string"}
    assert {name: str(schema.field(name).type) for name in wanted} == wanted
    assert len(rows(out)) == len(fleet)


def test_only_tables_of_a_fleet_are_replaced(scheduler: str, tmp_path: Path) -> None:
    words = ("fleet", "info", images.reference("base").path, "--scheduler", scheduler)
    shutil.copy(images.reference("base").path, tmp_path / "y.findings.parquet")
    theirs = tmp_path / "theirs.parquet"
    pq.write_table(pa.table({"f2tools fleet": ["f2tools fleet"]}), theirs)
    shutil.copy(theirs, tmp_path / "z.parquet.part")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for out in ("y.parquet", "theirs.parquet", "z.parquet"):
        for more in ((), ("--fresh",)):
            done = f2(*words, "-o", tmp_path / out, *more)
            assert (done.code, "is there already, and is no" in done.err) == (1, True), done.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path in before} == before
    for _ in range(2):
        assert f2(*words, "-o", tmp_path / "mine.parquet", "--html", tmp_path / "mine.html").code == 0


@pytest.mark.parametrize("name", ["x.parquet", "x.findings.parquet", "./x.parquet"])
def test_the_page_is_none_of_the_tables(name: str, scheduler: str, tmp_path: Path) -> None:
    words = ("fleet", "info", "gone.img", "--scheduler", scheduler, "-o", tmp_path / "x.parquet")
    done = f2(*words, "--html", f"{tmp_path}/{name}")
    assert (done.code, "two outputs have this name" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def worker_pids(address: str) -> list[int]:
    with Client(address, set_as_default=False) as client:
        found: Any = client.run(os.getpid)
        return list(found.values())


def test_a_worker_that_is_killed_half_way_changes_nothing(
    fleet: list[str], scheduler: str, expected: tuple[bytes, bytes], tmp_path: Path
) -> None:
    victims = worker_pids(scheduler)[:1]

    def advance(_: int) -> None:
        while victims:
            os.kill(victims.pop(), signal.SIGKILL)

    out = tmp_path / "out.parquet"
    run(FleetRequest("check", fleet, str(out), scheduler=scheduler), advance=advance)
    assert not victims
    assert both_tables(out) == expected


def test_a_worker_that_sleeps_for_a_while_changes_nothing(
    fleet: list[str], scheduler: str, expected: tuple[bytes, bytes], tmp_path: Path
) -> None:
    sleeper = psutil.Process(worker_pids(scheduler)[0])
    waking = threading.Timer(2, sleeper.resume)

    def advance(_: int) -> None:
        if not waking.ident:
            sleeper.suspend()
            waking.start()

    out = tmp_path / "out.parquet"
    run(FleetRequest("check", fleet, str(out), scheduler=scheduler), advance=advance)
    waking.join()
    assert both_tables(out) == expected


class Cut(Exception):
    """The run ends here."""


def cut_after(count: int) -> Callable[[int], None]:
    left = [count]

    def advance(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            raise Cut

    return advance


def test_a_run_that_was_cut_off_goes_on_where_it_was(
    fleet: list[str], scheduler: str, expected: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"
    request = FleetRequest("check", fleet, str(out), scheduler=scheduler)
    with pytest.raises(Cut):
        run(request, advance=cut_after(4))
    assert not out.exists()
    part = tmp_path / "out.parquet.part"
    part.write_bytes(part.read_bytes()[:-10])  # the last line is torn
    told: list[int] = []
    run(request, resumed=told.append)
    assert told == [3]
    assert both_tables(out) == expected


def test_a_scheduler_that_dies_is_named_and_what_is_done_is_kept(scheduler: str, tmp_path: Path) -> None:
    targets, out = [f"gone-{number}.img" for number in range(40)], tmp_path / "out.parquet"
    with own_scheduler() as (address, process):

        def advance(_: int) -> None:
            process.kill()
            process.wait()

        with pytest.raises(SchedulerGone, match=f"{address}: the dask scheduler is gone; start it .* what is done"):
            run(FleetRequest("info", targets, str(out), scheduler=address), advance=advance)
    told: list[int] = []
    run(FleetRequest("info", targets, str(out), scheduler=scheduler), resumed=told.append)
    assert told[0] >= 1
    assert len(rows(out)) == 40


ROW = {"target": "a", "ok": True, "reason": None, "looked_at": True}
FORGED: dict[str, object] = {
    "no row": {"name": "a", "findings": []},
    "a row that is none": {"name": "a", "row": 7, "findings": []},
    "no verdict": {"name": "a", "row": ROW | {"ok": None}, "findings": []},
    "a column that there is not": {"name": "a", "row": ROW | {"more": 1}, "findings": []},
    "text for a number": {"name": "a", "row": ROW | {"size_bytes": "many"}, "findings": []},
    "a number that no column holds": {"name": "a", "row": ROW | {"size_bytes": 1 << 63}, "findings": []},
    "no reason": {"name": "a", "row": ROW | {"ok": False}, "findings": []},
    "a name of no file": {"name": "a", "row": ROW | {"label": "\ud800"}, "findings": []},
    "a finding that is none": {"name": "a", "row": ROW, "findings": [7]},
    "a finding without its columns": {"name": "a", "row": ROW, "findings": [{"code": "x"}]},
}


@pytest.mark.parametrize("how", [*FORGED, "lists without end"])
def test_a_line_of_a_journal_that_is_no_result_counts_as_not_written(how: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out.parquet")
    with Journal(out, "info", Options()) as journal:
        journal.add("before", Result(ROW, []))
    with open(f"{out}.part", "a") as file:
        file.write(f"{json.dumps(FORGED[how])}\n" if how in FORGED else "[" * 100_000 + "\n")
    with Journal(out, "info", Options()) as journal:
        assert ("before" in journal, "a" in journal) == (True, False)


def test_the_beginning_of_another_run_is_not_gone_on_with(fleet: list[str], scheduler: str, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with pytest.raises(Cut):
        run(FleetRequest("check", fleet, str(out), scheduler=scheduler), advance=cut_after(1))
    done = f2("fleet", "info", *fleet[:1], "--scheduler", scheduler, "-o", out)
    assert (done.code, "`fleet check`" in done.err, "--fresh" in done.err) == (2, True, True)
    assert f2("fleet", "info", *fleet[:1], "--scheduler", scheduler, "-o", out, "--fresh").code == 0
    assert rows(out)[0]["target"] == fleet[0]


def test_a_worker_of_another_version_is_named_in_one_sentence(
    fleet: list[str], scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = fleet_cluster.installed
    monkeypatch.setattr(fleet_cluster, "installed", lambda name: "9.9" if name == "f2tools" else here(name))
    done = f2("fleet", "check", *fleet, "--scheduler", scheduler, "-o", tmp_path / "out.parquet")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "has f2tools" in done.err
    assert "this machine has 9.9; install the same on both" in done.err


def test_a_scheduler_that_is_not_there_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_cluster, "SECONDS_TO_ANSWER", 2)
    done = f2("fleet", "check", "a.img", "--scheduler", "tcp://127.0.0.1:9", "-o", tmp_path / "out.parquet")
    assert (done.code, len(done.err.splitlines())) == (8, 1)
    assert "no dask scheduler answers there (Connection refused)" in done.err
    done = f2("fleet", "check", "a.img", "--scheduler", "127.0.0.1", "-o", tmp_path / "out.parquet")
    assert (done.code, "one is tcp://HOST:PORT" in done.err) == (2, True)


async def _no_time_left(address: str, timeout: float) -> None:
    raise OSError(f"Timed out trying to connect to {address} after {timeout} s") from TimeoutError()


async def _never(address: str, timeout: float) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("connect", [_no_time_left, _never])
def test_a_scheduler_that_is_not_there_is_said_so_where_dask_had_no_time_left(
    connect: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_cluster, "SECONDS_TO_ANSWER", 1)
    monkeypatch.setattr("distributed.comm.core.connect", connect)
    done = f2("fleet", "check", "a.img", "--scheduler", "tcp://127.0.0.1:9", "-o", tmp_path / "out.parquet")
    assert (done.code, len(done.err.splitlines())) == (8, 1)
    assert "no dask scheduler answers there (Connection refused)" in done.err


@pytest.mark.parametrize(
    ("said", "why"), [(b"", " (no answer within 1 s)"), (b"HTTP/1.1 400 Bad Request\r\n", ", but something else")]
)
def test_a_port_of_another_program_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes, why: str
) -> None:
    monkeypatch.setattr(fleet_cluster, "SECONDS_TO_ANSWER", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            client.sendall(said)
            with client:
                client.recv(1 << 16)
                client.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        done = f2("fleet", "check", "a.img", "--scheduler", address, "-o", tmp_path / "out.parquet")
    assert (done.code, len(done.err.splitlines())) == (8, 1)
    assert f"{address}: no dask scheduler answers there{why}; a scheduler has port 8786" in done.err


def test_a_worker_is_no_scheduler(scheduler: str, tmp_path: Path) -> None:
    with Client(scheduler, set_as_default=False) as client:
        worker = next(iter(client.scheduler_info()["workers"]))
    done = f2("fleet", "check", "a.img", "--scheduler", worker, "-o", tmp_path / "out.parquet")
    assert (done.code, "but something else" in done.err) == (8, True)


def test_without_dask_the_extra_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = f2("fleet", "check", "a.img", "-o", tmp_path / "out.parquet")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "pip install 'f2tools[fleet]'" in done.err


def test_a_page_shows_what_stands_out(fleet: list[str], scheduler: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    out = tmp_path / "out.parquet"
    done = f2("fleet", "check", *fleet, "--scheduler", scheduler, "-o", out, "--html", page)
    text = page.read_text()
    assert text.index("What stands out") < text.index("<svg")
    assert "Findings by code" in text
    assert "error: " in text.split("Findings by code")[-1]
    bad = [row["target"] for row in rows(out) if not row["ok"]]
    shown = [target for target in bad if target in text]
    assert len(shown) == min(len(bad), SHOWN)
    assert len(bad) <= SHOWN or f"{len(bad) - SHOWN} more are not ok" in text
    assert done.text.splitlines()[-1].startswith(f"{len(fleet)} targets: ")


def summary_of(verb: str, *given: tuple[dict[str, Any], bool]) -> Summary:
    summary = Summary(verb)
    for row, done in given:
        summary.add(Result({"reason": None, **row, "looked_at": done}, []))
    return summary


def test_a_sound_target_stands_out_only_by_what_few_have() -> None:
    usual = [({"target": f"{n}.img", "ok": True, "overwrites": 3.0, "utilization": 0.5}, True) for n in range(100)]
    worn = {"target": "worn.img", "ok": True, "overwrites": 300.0, "utilization": 0.5}
    broken = {"target": "broken.img", "ok": False, "reason": "broken.img: is no image"}
    summary = summary_of("info", *usual, (worn, True), (broken, False))
    assert [row["target"] for row in summary.outliers] == ["broken.img", "worn.img"]
    assert summary_of("info", *usual).outliers == []


def test_reasons_are_counted_without_the_names_of_targets() -> None:
    gone = [({"target": f"{n}.img", "ok": False, "reason": f"{n}.img: No such file"}, False) for n in range(50)]
    summary = summary_of("check", *gone)
    assert summary.as_dict()["reasons"] == {"No such file": 50}
    text = page_of(summary)
    assert "<td>50</td>" in text.split("Why targets could not be looked at")[1]
    assert "30 more are not ok" in text


def test_targets_are_names_patterns_and_lists_each_once(tmp_path: Path) -> None:
    for name in ("b.img", "a.img", "deep/c.img", "t.blktrace.0", "t.blktrace.1", "[x].img"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    listed = tmp_path / "list"
    listed.write_text(f"# cards\n{tmp_path}/b.img\n\n{tmp_path}/**/*.img\n")
    assert targets_of([f"@{listed}", str(tmp_path / "[x].img"), "gone.img"]) == [
        *(str(tmp_path / name) for name in ("b.img", "[x].img", "a.img", "deep/c.img")), "gone.img",
    ]  # fmt: skip
    other = os.path.relpath(tmp_path / "a.img")
    same = [f"./{other}", other, str(tmp_path / "a.img")]
    assert targets_of([*same, f"{other},b.img", f"{tmp_path}/a.img,./b.img"]) == [f"./{other}", f"{other},b.img"]
    assert targets_of([f"{tmp_path}/t.blktrace.*"], traces=True) == [str(tmp_path / "t")]
    done = f2("fleet", "check", f"{tmp_path}/*.none", "-o", tmp_path / "out.parquet")
    assert (done.code, "nothing fits this pattern" in done.err) == (2, True)


def test_a_mistake_of_ours_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(target: str, options: Options) -> tuple[dict[str, Any], list[Any]]:
        raise KeyError("nat")

    monkeypatch.setitem(VERBS, "check", VERBS["check"].__class__("check", {}, {}, wrong))
    result = look_at("check", "a.img", Options())
    assert isinstance(result, Result)
    assert "KeyError: 'nat': this is a mistake in f2tools" in result.row["reason"]


def test_ctrl_c_ends_all_processes_without_a_traceback(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    for number in range(400):
        (tmp_path / f"{number}.img").symlink_to(image)
    out, part = tmp_path / "out.parquet", tmp_path / "out.parquet.part"
    command = ["f2tools", "fleet", "check", tmp_path / "*.img", "-o", out, "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    while process.poll() is None and not (part.exists() and part.read_bytes().count(b"\n") > 2):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in said) == (130, False), said
    assert "goes on" in said


@pytest.mark.parametrize("seconds", [0.7, 1.0, 1.4, None])  # while workers start; None: later
def test_sigterm_ends_all_processes_at_once_without_a_traceback(tmp_path: Path, seconds: float | None) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    for number in range(400):
        (tmp_path / f"{number}.img").symlink_to(image)
    part = tmp_path / "out.parquet.part"
    command = ["f2tools", "fleet", "check", tmp_path / "*.img", "-o", tmp_path / "out.parquet", "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    if seconds is not None:
        time.sleep(seconds)
    while seconds is None and process.poll() is None and not (part.exists() and part.read_bytes().count(b"\n") > 2):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)  # as timeout(1) and service managers do
    _, said = process.communicate(timeout=60)  # which ends when nobody has standard error open any more
    assert process.returncode == -signal.SIGTERM
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_a_volume_on_several_devices_is_one_target(scheduler: str, tmp_path: Path) -> None:
    one = images.reference("multi-device")
    target = ",".join(map(str, (one.path, *one.extra)))
    assert one.extra
    for verb in ("check", "info", "scan", "undelete", "manifest"):
        row = look_at(verb, target, Options()).row
        assert (row["target"], row["looked_at"], row["reason"]) == (target, True, None)
    assert not look_at("check", str(one.path), Options()).row["ok"]
    assert "none.img" in look_at("check", f"{one.path},none.img", Options()).row["reason"]


def test_a_target_is_named_once_in_a_line(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "none.img").write_bytes(b"no image" * 1000)
    names = [str(tmp_path / name) for name in ("none.img", "gone.img", "")]
    done = f2("fleet", "check", *names, "--scheduler", scheduler, "-o", tmp_path / "out.parquet")
    lines = done.text.splitlines()
    assert len(lines) == 4
    for name in names:
        (line,) = (line for line in lines if line.startswith(f"{name}: "))
        assert line.count(f"{name}: ") == 1


def test_an_export_of_a_trace_is_a_target(scheduler: str, tmp_path: Path) -> None:
    prefix = traces.unpacked("fileserver", tmp_path / "traces")
    assert f2("trace", "export", prefix, "-o", tmp_path / "exports" / "one").code == 0
    (tmp_path / "exports" / "other").mkdir()
    assert targets_of([f"{tmp_path}/exports/*"], traces=True) == [str(tmp_path / "exports" / "one")]
    both = [look_at("trace", str(name), Options()).row for name in (prefix, tmp_path / "exports" / "one")]
    assert {**both[0], "target": ""} == {**both[1], "target": ""}


@pytest.mark.parametrize("verb", ["check", "trace"])
def test_a_password_in_a_url_is_nowhere(verb: str, scheduler: str, tmp_path: Path) -> None:
    urls = [
        "http://someone:secret-word@127.0.0.1:9/a.img",
        "zip://a.img::http://someone:secret-word@127.0.0.1:9/a.zip",
        "http://127.0.0.1:9/a.img?signature=secret-word",
        "sftp://someone:secret-word@127.0.0.1:9/a.img",
        "nothing://someone:secret-word@127.0.0.1/a.img",
    ]
    out, page = tmp_path / "out.parquet", tmp_path / "page.html"
    request = FleetRequest(verb, urls, str(out), scheduler=scheduler)
    with pytest.raises(Cut):
        run(request, advance=cut_after(4))
    kept = (tmp_path / "out.parquet.part").read_text()
    done = f2("fleet", verb, *urls, "--scheduler", scheduler, "-o", out, "--html", page)
    assert "4 targets were done" in done.err or "3 targets were done" in done.err
    again = f2("fleet", verb, *urls, "--scheduler", scheduler, "-o", out, "--json")
    shown = [kept, done.text, done.err, again.text, again.err, str(rows(out)), page.read_text()]
    assert len(rows(out)) == len(urls)
    for text in shown:
        assert "127.0.0.1" in text or text in (done.err, again.err)
        assert "secret-word" not in text
