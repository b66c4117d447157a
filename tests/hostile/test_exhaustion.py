"""Small input that asks for endless work, memory or output: every bound has its own sentence."""

from __future__ import annotations

import json
from pathlib import Path

from tests.hostile.limits import limited

EVENT = "fio-12 [000] ..... {time}.000000: block_rq_issue: 8,0 W 4096 () {sector} + 8 [fio]\n"


def test_a_trace_line_of_spaces_is_passed_over(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    blanks = " " * 60_000
    lines = (blanks + ": ", "x" + blanks + ": ", "fio-12" + blanks + ": ", "fio-12 [000]" + blanks + ": ")
    trace.write_text("".join(line + "\n" for line in lines) + EVENT.format(time=1, sector=4096))
    done = limited("trace", "analyze", trace, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["events"] == 1


def test_names_numbers_and_messages_in_a_trace_fill_no_memory(tmp_path: Path) -> None:
    """A text of 40 MB: a new process and a new kind of page in every line, long messages, a number of 5,000 digits."""
    trace = tmp_path / "trace.txt"
    head = "x-{0} [000] ..... 1.{0:06}: "
    page = (
        "f2fs_submit_page_write: dev = (8,0), ino = {1}, page_index = 0x0, oldaddr = 0x1, newaddr = 0x2, "
        "rw = WRITE(), type = {2}\n"
    )
    with trace.open("w") as out:
        out.write(EVENT.format(time=1, sector=4096))
        out.write((head + page).format(1, "9" * 5000, "DATA"))
        for number in range(100_000):
            out.write((head + page).format(number, number, f"KIND{number}" + "K" * 20))
            if not number % 4:
                out.write((head + "tracing_mark_write: {1}\n").format(number, "m" * 800))
    done = limited("trace", "analyze", trace, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["events"] == 1
