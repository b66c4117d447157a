"""A target that goes away or changes while a fleet looks at it is a row that says so, and the others have theirs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from f2tools.device.media import image as files
from f2tools.device.media import remote
from f2tools.fleet.run import FleetRequest, run
from f2tools.fleet.verbs import VERBS, Options
from f2tools.fleet.work import look_at
from tests.device.servers import web
from tests.dump.craft import f2
from tests.images import copy_sparse, reference
from tests.trace import traces

pytestmark = pytest.mark.xdist_group("fleet")
IMAGE_VERBS = [verb for verb in VERBS if verb != "trace"]


def after_reads(monkeypatch: pytest.MonkeyPatch, count: int, do: Callable[[], object]) -> list[int]:
    """Have something happen at the so many-th read of a file, and tell whether it did."""
    left = [count]
    happened: list[int] = []

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(*given: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                happened.append(1)
                do()
            return real(*given)

        return read

    for name in ("pread", "pread_into"):
        monkeypatch.setattr(files.ImageFile, name, counting(getattr(files.ImageFile, name)))
    return happened


@pytest.mark.parametrize("verb", IMAGE_VERBS)
@pytest.mark.parametrize("reads", [1, 4, 8])
def test_a_file_that_is_truncated_while_it_is_read_has_a_reason(
    verb: str, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_sparse(reference("crash-rename-only").path, tmp_path / "a.img")
    happened = after_reads(monkeypatch, reads, lambda: os.truncate(path, 1 << 20))
    result = look_at(verb, str(path), Options())
    row = result.row
    assert happened
    assert (row["target"], row["ok"]) == (str(path), False)
    assert row["reason"]
    assert "mistake" not in row["reason"]


def test_a_file_that_is_removed_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_sparse(reference("crash-rename-only").path, tmp_path / "a.img")
    whole = look_at("check", str(path), Options())
    assert after_reads(monkeypatch, 4, path.unlink) == []
    assert look_at("check", str(path), Options()) == whole
    again = look_at("check", str(path), Options()).row
    assert (again["looked_at"], "No such file" in again["reason"]) == (False, True)


def test_a_trace_that_shrinks_or_goes_has_a_reason(tmp_path: Path) -> None:
    prefix = traces.unpacked("churn", tmp_path)
    for path in tmp_path.rglob("*.blktrace.*"):
        os.truncate(path, 1000)
    row = look_at("trace", str(prefix), Options()).row
    assert (row["ok"], bool(row["reason"])) == (False, True)
    shutil.rmtree(prefix.parent)
    row = look_at("trace", str(prefix), Options()).row
    assert (row["looked_at"], "no file of this name" in row["reason"]) == (False, True)


def test_files_that_go_in_mid_run_are_rows_and_the_run_ends(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    names = [str(copy_sparse(image, tmp_path / f"{number:02}.img")) for number in range(24)]

    def advance(_: int) -> None:  # called while the workers have the next ones
        for number, name in enumerate(names[12:]):
            if Path(name).exists():
                os.truncate(name, 4096) if number % 2 else os.unlink(name)

    out = tmp_path / "out.parquet"
    summary = run(FleetRequest("check", names, str(out), jobs=2), advance=advance)
    found = pq.read_table(out).to_pylist()
    assert [row["target"] for row in found] == names
    assert all(row["ok"] for row in found[:6])
    for row in found[12:]:
        assert (row["ok"], bool(row["reason"])) == (False, True)
    assert summary.targets == 24


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A URL of an image, and what ends its server."""
    root, at = tmp_path / "root", tmp_path / "nginx"
    root.mkdir()
    at.mkdir()
    copy_sparse(reference("crash-rename-only").path, root / "a.img")
    with web(root, at) as base:
        yield f"{base}/a.img", lambda: os.kill(int((at / "pid").read_text()), 15)


@pytest.mark.parametrize("verb", ["check", "manifest"])
def test_a_server_that_goes_away_while_an_image_is_read_has_a_reason(
    verb: str, served: tuple[str, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, end = served
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)
    real, left = remote.RemoteDevice._ranges, [3]

    def ranges(self: remote.RemoteDevice, spans: Any) -> list[bytes]:
        left[0] -= 1
        if not left[0]:
            end()
        return real(self, spans)

    monkeypatch.setattr(remote.RemoteDevice, "_ranges", ranges)
    row = look_at(verb, url, Options()).row
    assert -10 < left[0] <= 0  # and not once for each block
    assert (row["looked_at"], "a.img: can't be read: " in row["reason"]) == (False, True)
    assert verb != "check" or row["reason"].endswith("so it has gone away")  # it goes on behind a bad place


def test_a_file_on_a_server_that_shrinks_is_said_to_have_changed(
    served: tuple[str, Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = remote.RemoteDevice._ranges, [3]

    def ranges(self: remote.RemoteDevice, spans: Any) -> list[bytes]:
        left[0] -= 1
        if not left[0]:
            os.truncate(tmp_path / "root" / "a.img", 3 << 20)
        return real(self, spans)

    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(remote.RemoteDevice, "_ranges", ranges)
    row = look_at("check", served[0], Options()).row
    assert (row["ok"], bool(row["reason"])) == (False, True)
    assert "mistake" not in row["reason"]
