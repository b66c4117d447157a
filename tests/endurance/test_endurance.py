"""The runner judged: shards hold each piece once, a reproducer gives the image back, the ledger says what was run."""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase

from f2tools.f2fs.write.volume import WritableVolume
from f2tools.mount import session
from tests.endurance import images, injected, ledger, machine, nightly, parsers, power, runner
from tests.endurance.__main__ import make_image
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.endurance.outside import Watch
from tests.endurance.plan import CAMPAIGNS, Piece, named, shard
from tests.endurance.warm import MEMORY, Warm
from tests.f2fs.write.volumes import formatted
from tests.hostile import exercise
from tests.hostile.corpus import KINDS
from tests.hostile.exercise import grown_bytes, in_child
from tests.images import ROOT, copy_sparse, reference
from tests.mount.mounted import need_fuse

# variables that say where something is, or what to do first, and not how much
AIDS = {"F2_FSCK_FIRST"}


def campaign(name: str, pieces: int, found: int = -1) -> Campaign:
    def piece(seed: int, _: Path) -> Outcome:
        return Outcome(10, found=[Found("it broke")] if seed == found else [])

    return Campaign(name, "what it does", "turns", pieces * 10, 10, piece)


def test_the_shards_hold_every_piece_once_and_all_campaigns_at_one_pace() -> None:
    some = [campaign("few", 7), campaign("many", 100)]
    shards = [shard(number, 5, some) for number in range(1, 6)]
    assert sorted((p.campaign.name, p.seed) for s in shards for p in s) == sorted(
        (one.name, seed) for one in some for seed in range(one.pieces)
    )
    (whole,) = [shard(1, 1, some)]
    half = [piece.campaign.name for piece in whole[: len(whole) // 2]]
    assert half.count("few") in (3, 4)


def test_a_reproducer_gives_the_image_back(tmp_path: Path) -> None:
    patches = [(4096, b"new words"), (4100, b"bytes")]  # the second on the first
    found = Found("a traceback", "plain", patches, ["f2tools fsck {image}"])
    runner.keep(found, CAMPAIGNS[0], 7, tmp_path / "found")
    make_image(argparse.Namespace(story=tmp_path / "found/story.json", out=tmp_path / "image"))
    wanted = bytearray(reference("plain").path.read_bytes())
    wanted[4096 : 4096 + 9] = b"new bytes"
    assert (tmp_path / "image").read_bytes() == wanted


def test_a_search_for_less_damage_ends_when_each_try_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(100))
    damage = [(at, b"x") for at in range(64)]
    tried: list[bytes] = []

    def fails() -> bool:
        tried.append(image.read_bytes())
        return b"x" in tried[-1][:1]

    assert images._smallest(image, damage, fails) == damage[:1]
    assert len(tried) <= 40
    now = iter(range(0, 10**6, 30))
    monkeypatch.setattr(images.time, "monotonic", lambda: next(now))
    tried.clear()
    assert damage[0] in images._smallest(image, damage, fails)
    assert len(tried) <= images.SMALLER_SECONDS / 30
    assert image.read_bytes() == bytes(100)


def test_what_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def run_piece(piece: Piece, *_: object) -> dict[str, object]:
        ran.append(piece.seed)
        found = [{"what": "it broke", "where": "x"}] if piece.seed == 3 else []
        return {"campaign": "c", "seed": piece.seed, "done": 1, "counts": {}, "found": found, "seconds": 1.0}

    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(runner, "run_piece", run_piece)
    pieces = shard(1, 1, [campaign("c", 6)])
    assert not runner.run_shard(pieces[:4], "1/1", 3600, 1), "something was found"
    assert runner.run_shard(pieces, "1/2", 3600, 1)
    assert ran == [0, 1, 2, 3, 4, 5]
    assert not list(tmp_path.glob("*/found/*"))


def test_what_no_commit_has_run_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def run_piece(piece: Piece, *_: object) -> dict[str, object]:
        ran.append(piece.seed)
        return {"campaign": "c", "seed": piece.seed, "done": 1, "counts": {}, "found": [], "seconds": 1.0}

    (tmp_path / "sums").write_text(json.dumps([{"campaign": "c", "seeds": "0-1"}]))
    (tmp_path / "another").mkdir()
    (tmp_path / "another/results-1-of-1.jsonl").write_text(json.dumps({"campaign": "c", "seed": 3}) + "\n")
    monkeypatch.setattr(ledger, "RESULTS", tmp_path / "sums")
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(runner, "run_piece", run_piece)
    runner.run_shard(shard(1, 1, [campaign("c", 6)]), "1/1", 3600, 1, ledger.run_before(tmp_path))
    assert ran == [2, 4, 5, 0, 1, 3]


def test_a_piece_says_at_its_end_what_it_did(tmp_path: Path) -> None:
    outcome = Outcome(5, found=[Found("a line\nand another")])
    line = runner.outcome_line(outcome, campaign("c", 1), 0, tmp_path / "c-0", 1.25)
    said = runner.last_words(f"a line\nand another\n{line}\n")
    assert said == {
        "done": 5, "counts": {}, "cpu_seconds": 1.2, "found": [{"what": "a line\nand another", "where": "c-0"}]
    }  # fmt: skip
    assert runner.last_words(f"a line\n{line[:-5]}") is None


def test_a_piece_that_dies_is_something_found(tmp_path: Path) -> None:
    warm = Warm()
    line = runner.run_piece(Piece(campaign("unknown", 1), 0), tmp_path, 60, 120, warm)
    warm.close()
    assert line is not None
    assert "there is no campaign" in (tmp_path / "unknown-0/story.json").read_text()
    assert line["found"][0]["what"].startswith("the piece ended with 1")


def test_a_piece_that_hangs_is_killed_and_the_next_one_runs(tmp_path: Path) -> None:
    warm = Warm()
    out = tmp_path / "said"
    assert warm.run(Piece(named("lost-blocks"), 0), tmp_path / "kept", out, 0.01) is None
    assert warm.run(Piece(campaign("unknown", 1), 0), tmp_path / "kept", out, 60) == 1
    assert "there is no campaign" in out.read_text()
    before = set(Path(MEMORY).glob("f2-endurance-*"))
    assert warm.run(Piece(named("repairs"), 0), tmp_path / "kept", out, 1.5) is None
    left = [path.name.split("-")[2] for path in set(Path(MEMORY).glob("f2-endurance-*")) - before]
    assert all(not pid.isdigit() or Path(f"/proc/{pid}").exists() for pid in left), left  # others may be at work
    warm.close()


def _breaks() -> None:
    raise KeyError("planted")


def _spins() -> None:
    while True:
        pass


def _dies() -> None:
    os.kill(os.getpid(), 9)


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "traceback": (_breaks, "KeyError: 'planted'"),
    "hang": (_spins, "still running"),
    "memory": (lambda: bytearray(b"x") * (600 << 20), "more than 448 MiB"),
    "very much memory": (lambda: bytearray(b"x") * (4 << 30), "MemoryError"),
    "death": (_dies, "died with status 9"),
    "exit code": (lambda: sys.exit(7), "exit code 7"),
    "silence": (lambda: sys.exit(1), "without a word"),
    "write outside": (lambda: Path("../outside").write_text("x"), "a write outside: open"),
    "write to the image": (lambda: Path("image").write_bytes(b"x"), "the image was written to"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_with_a_planted_fault_is_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, said = FAULTS[fault]
    work = tmp_path / "work"
    work.mkdir()
    image = work / "image"
    image.write_bytes(bytes(4096))
    os.utime(image, (1, 1))
    monkeypatch.setattr(exercise, "SECONDS", 3)
    monkeypatch.setattr(exercise, "_main", lambda words: done() if words[0] == "dump" else None)
    fine: list[tuple[str, ...]] = [("info", "{image}"), ("fsck", "{image}")]
    assert not images._look(image, work, 0, tuple(fine))
    found = images._look(image, work, 0, (fine[0], ("dump", "info", "{image}"), fine[1]))
    assert any(said in line for line in found), found


def test_a_command_does_not_answer_for_the_memory_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(4096))
    held: list[bytes] = []
    monkeypatch.setattr(exercise, "_main", lambda _: held.append(b"x" * (300 << 20)))
    assert not images._look(image, tmp_path, 0, (("info", "{image}"), ("dump", "info", "{image}")))


class _Knot:
    """Garbage, once nobody has it, that only a collection frees."""

    def __init__(self) -> None:
        self.itself, self.held = self, b"x" * (1 << 20)


def test_what_a_process_does_not_use_hides_no_memory_of_a_command() -> None:
    def task() -> list[str]:
        gc.enable()
        gc.collect()
        taken = b"x" * (100 << 20)
        return [str(grown_bytes() - len(taken))]

    once = bytearray(30 << 20)
    del once  # from now on the allocator keeps what is smaller to itself
    many = [b"x" * (1 << 20) for _ in range(200)]
    last = b"x" * (1 << 20)  # so that those before it are free, and not given back
    del many
    gc.disable()
    try:
        for _ in range(60):
            _Knot()
        (more,) = in_child(task)
    finally:
        gc.enable()
    assert last
    assert int(more) > -(10 << 20)


@pytest.mark.parametrize(
    ("fault", "said"),
    [(_breaks, "the mount ended with 99"), (_dies, "the mount ended with -9"), (lambda: None, "")],
)
def test_a_mount_with_a_planted_fault_is_found(
    fault: Callable[[], None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_fuse()
    image = copy_sparse(reference("compress-lz4").path, tmp_path / "image")
    opened = session.open_tree

    def open_tree(request: session.MountRequest) -> object:
        fault()
        if not said:
            image.write_bytes(b"x")
        return opened(request)

    assert not images._mount(image, tmp_path, 1)
    monkeypatch.setattr(session, "open_tree", open_tree)
    assert any((said or "the mount wrote to the image") in line for line in images._mount(image, tmp_path, 1))


def test_an_engine_with_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formatted()  # what later tests copy lies elsewhere than this test's files
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "crowded_image", lambda: None)
    monkeypatch.setattr(machine, "EXAMPLES", 3)
    assert not machine.piece(0, tmp_path).found
    monkeypatch.setattr(machine, "EXAMPLES", 60)  # what is drawn depends on the modules that are there
    monkeypatch.setattr(machine, "PHASES", (Phase.generate,))
    monkeypatch.setattr(WritableVolume, "write", lambda _, ino, offset, data: len(data))
    (found,) = machine.piece(0, tmp_path).found
    assert "plain: " in found.what


def test_what_tests_do_in_small_is_done_as_a_whole_somewhere() -> None:
    """Each file of tests whose amount a variable says is in a campaign, with that variable."""
    readers = {
        str(path.relative_to(ROOT)): set(re.findall(r'environ\.get\("(F2\w+)"', path.read_text()))
        for path in (ROOT / "tests").glob("**/test_*.py")
    }
    for path, variables in readers.items():
        if re.search(r"^from tests(\.sweeps import | import .*\bsweeps\b)", (ROOT / path).read_text(), re.MULTILINE):
            variables.add("F2_SWEEPS")
    readers = {path: variables - AIDS for path, variables in readers.items() if variables - AIDS}
    assert set(readers) == nightly.TESTS.keys() | nightly.LATER_TESTS.keys() | nightly.ELSEWHERE.keys()
    for path, text in (nightly.TESTS | nightly.LATER_TESTS).items():
        assert {word.partition("=")[0] for word in text.split()} == readers[path]
    assert {named(name).name for name in nightly.ELSEWHERE.values()} == {
        "power",
        "repairs",
        "crashes",
        "machine",
        "tables",
        "lost-writes",
    }
    cut = [path for path, name in nightly.ELSEWHERE.items() if name == "power"]
    assert all(any(test.startswith(path) for test in power.TESTS) for path in cut)


def test_a_part_of_the_night_that_fails_or_is_left_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    text = "import os\ndef test_it() -> None:\n    assert os.environ['F2_MUCH'] == '1'\n"
    (tmp_path / "test_night.py").write_text(text)
    assert nightly._tests("test_night.py", "F2_MUCH=1", tmp_path) == Outcome(1, Counter({"tests passed": 1}))
    (found,) = nightly._tests("test_night.py", "F2_MUCH=2", tmp_path).found
    assert "F2_MUCH=2 pytest test_night.py" in found.what
    (found,) = nightly._tests("no_such_test.py", "F2_MUCH=1", tmp_path).found
    assert "not found" in found.what


def test_a_write_outside_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    watch = Watch()
    with watch.only_in([tmp_path / "in"]):
        (tmp_path / "in/good").write_text("x")
        (tmp_path / "bad").write_text("x")
        (tmp_path / "in/../also").mkdir()
        os.symlink("/", tmp_path / "in/link")
        (tmp_path / "bad").read_text()
    assert watch.said == [f"open {tmp_path}/bad", f"os.mkdir {tmp_path}/also"]


def test_a_write_into_shared_memory_is_one_outside_and_one_to_a_device_is_none(tmp_path: Path) -> None:
    watch = Watch()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        with watch.only_in([tmp_path]):
            Path(memory, "bad").write_text("x")
            Path("/dev/null").write_text("x")
        assert watch.said == [f"open {memory}/bad"]


def test_each_case_is_told_as_it_ended_the_last_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (
        ("RESULTS", "[]"),
        ("CASES", '{"xfstests": {"a": ["failed: 1 | 2", "0"], "b": ["passed", "0"]}}'),
    ):
        monkeypatch.setattr(ledger, name, tmp_path / name)
        (tmp_path / name).write_text(text)
    (tmp_path / "runs/1").mkdir(parents=True)
    line = {
        "campaign": "xfstests",
        "seed": 0,
        "done": 1,
        "counts": {},
        "found": [],
        "seconds": 1,
        "said": {"c direct": "passed", "d pyfuse3": "passed", "d direct": "passed"},
    }
    (tmp_path / "runs/1/results-a.jsonl").write_text(json.dumps(line) + "\n")
    ledger.add_results(tmp_path / "runs")
    page = ledger.page()
    assert "| failed: 1 \\| 2 | 1 | a |\n| passed | 4 | b, c direct, d |" in page


def test_the_ledger_says_what_an_hour_of_a_core_does_and_how_many_are_left() -> None:
    rows = [
        {"campaign": "machine", "done": 500, "minutes": 9.0},
        {"campaign": "machine", "done": 5000, "minutes": 9.0, "cpu_minutes": 3.0},
    ]
    (line,) = [line for line in ledger.overview([{**row, "found": ""} for row in rows]) if line.startswith("| machine")]
    assert [cell.strip() for cell in line.split("|")[3:6]] == ["5,500", "100,000", "10"]
    (line,) = [line for line in ledger.overview([]) if line.startswith("| machine")]
    assert [cell.strip() for cell in line.split("|")[3:6]] == ["0", "-", "-"]


def test_of_an_hour_of_each_kind_more_of_one_is_not_less_of_another() -> None:
    goal = parsers.HOUR
    first, second, *rest = goal
    row = {"campaign": "parsers", "done": 1, "minutes": 9.0, "found": "", "seeds": "0", "commit": "x"}
    rows = [{**row, "counts": {first: 2 * goal[first], second: goal[second] // 2}}]
    (line,) = [line for line in ledger.overview(rows) if line.startswith("| parsers")]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[3] == f"{goal[first] + goal[second] // 2:,}"
    assert cells[5] == f"{len(rest) + 0.5:.1f}"


def test_each_kind_of_input_has_as_many_pieces_and_their_inputs_are_an_hour() -> None:
    assert set(parsers.HOUR) == set(KINDS)
    assert sum(parsers.TOGETHER) == len(KINDS)
    kinds = Counter(parsers.kind_of(seed) for seed in range(parsers.PARSERS.pieces))
    assert kinds == dict.fromkeys(KINDS, parsers.PIECES_OF_A_KIND)
    assert not any(goal % parsers.PIECES_OF_A_KIND for goal in parsers.HOUR.values())


def test_a_seed_of_the_parsers_stands_for_the_kind_that_it_always_has() -> None:
    begun = "volume, container, undo, overlay, tar, trace, requests, texts, vsl, dfs, dffs, index"
    assert [parsers.kind_of(seed) for seed in range(144)] == begun.split(", ") * 12
    assert [parsers.kind_of(seed) for seed in range(144, 168)] == ["fuse", "http"] * 12


def test_a_fuzzer_that_did_not_begin_says_why() -> None:
    missing = "Traceback (most recent call last):\nFileExistsError: .cache/reference\n"
    assert parsers.why_it_ended(missing) == missing
    uncaught = " === Uncaught Python exception: ===\nKeyError: 7\n"
    assert parsers.why_it_ended(f"#512 pulse cov: 3\n{uncaught}") == uncaught.lstrip()


@pytest.mark.parametrize(("campaign", "seed"), [(images, 2), (injected, 30)])
def test_what_has_found_mistakes_goes_on_in_small(
    campaign: ModuleType, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "IMAGES", 3)
    monkeypatch.setattr(images, "warm", lambda: None)
    monkeypatch.setattr(injected, "CASES", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    piece = {images: images.read, injected: injected.piece}[campaign]
    said: list[str] = in_child(lambda: [found.what for found in piece(seed, tmp_path).found])
    assert not said


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        ([], ""),
        ([4, 1, 2, 3, 9], "1-4, 9"),
        ([5, 12, 19, 26, 27, 28], "5-26/7, 27-28"),
        ([0, 7, 14, 15, 16, 30], "0, 7, 14-16, 30"),
    ],
)
def test_seeds_are_written_as_ranges(seeds: list[int], text: str) -> None:
    assert ledger.ranges(seeds) == text
    assert ledger.numbers(text) == set(seeds)
    assert not ledger.numbers(ledger.NO_SEED)


def test_the_ledger_is_current() -> None:
    assert ledger.PAGE.read_text() == ledger.page(), "docs/endurance.md is old; run make endurance-ledger"


def test_what_was_found_is_accounted_for() -> None:
    """Each finding says what became of it, and the tests that it names are there."""
    notes = json.loads(ledger.FINDINGS.read_text())["found"]
    told = {(note["campaign"], seed) for note in notes for seed in ledger.numbers(note["seeds"])}
    rows = json.loads(ledger.RESULTS.read_text())
    found = {(row["campaign"], seed) for row in rows for seed in ledger.numbers(row["found"])}
    assert found <= told, "findings.json says nothing of these"
    for path, name in re.findall(r"`(tests/\S+\.py)::(\w+)`", "".join(note["became"] for note in notes)):
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
