"""Traces in other tools' forms: found out by themselves, read to the byte, and refused with line and reason."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from f2tools.blktrace.foreign.requests import DISCARD, RequestReader
from f2tools.blktrace.numbers import device_of
from f2tools.blktrace.trace import MIN_WINDOW
from f2tools.errors import Unsupported, Usage
from f2tools.ftl.export import export
from tests.blktrace.foreign import SAMPLES
from tests.trace import traces


def rows(path: Path | str, device: str | None = None) -> list[tuple[int, int, int, int]]:
    """All requests of a trace."""
    return [
        row
        for some in RequestReader(str(path), device)
        for row in zip(some.time.tolist(), some.offset.tolist(), some.size.tolist(), some.kind.tolist(), strict=True)
    ]


@pytest.mark.parametrize("form", SAMPLES)
def test_a_trace_is_read_whatever_its_form(form: str, tmp_path: Path) -> None:
    text, wanted = SAMPLES[form]
    plain, packed = tmp_path / "t", tmp_path / "t.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert RequestReader(str(plain)).form_name == form
    assert rows(plain) == rows(packed) == wanted
    plain.write_text(text.replace("\n", "\r\n"))
    assert rows(plain) == wanted
    plain.write_bytes(b"\xef\xbb\xbf" + text.encode())  # as Windows marks UTF-8
    assert rows(plain) == wanted


BAD = {
    "MSR Cambridge": ("128166372003061629,hm,1,Seek,1,1,1", "neither a read nor a write"),
    "SPC": ("0,1,512", "3 fields, 5 are needed"),
    "Alibaba": ("419,W,x,16384,1", "'x' is no number"),
    "Tencent": ("1,2,3,7,1063", "neither 0 nor 1"),
    "FIU": ("1 2 3", "3 fields, 8 are needed"),
    "fio iolog v2": ("/dev/sda jump 0 1", "no action 'jump'"),
    "fio iolog v3": ("1 f write 5", "without offset and length"),
    "MQSim": ("1 4 99999999999999999 8 1", "a request at byte"),
}


@pytest.mark.parametrize("form", SAMPLES)
def test_a_bad_line_is_named_with_its_reason(form: str, tmp_path: Path) -> None:
    text = SAMPLES[form][0]
    line, reason = BAD[form]
    (tmp_path / "t").write_text(f"{text}{line}\n{text.splitlines()[-1]}\n")
    with pytest.raises(Unsupported, match=rf"t: line {text.count(chr(10)) + 1}: .*{reason}.*{form}"):
        rows(tmp_path / "t")


NEGATIVE = {
    "MSR Cambridge": "128166372003061629,hm,1,Write,-4096,4096,413",
    "SPC": "0,-8,512,w,0.5",
    "Alibaba": "419,W,-4096,512,1577808144360768",
    "Tencent": "1538323200,-8,128,0,1063",
    "FIU": "89967195122987 4892 syslogd -8 8 W 6 0 531e779d39068430",
    "MQSim": "938513000 4 -8 16 0",
}


@pytest.mark.parametrize("form", NEGATIVE)
def test_a_negative_offset_is_named_wherever_it_stands(form: str, tmp_path: Path) -> None:
    good = SAMPLES[form][0].splitlines()[-1]
    for text, number in (
        (f"{NEGATIVE[form]}\n", 1),
        (f"{NEGATIVE[form]}\n{good}\n", 1),
        (f"{good}\n{NEGATIVE[form]}\n", 2),
    ):
        (tmp_path / "t").write_text(text)
        with pytest.raises(Unsupported, match=rf"t: line {number}: '-.*' is no number from 0 on \(read as {form}\)"):
            rows(tmp_path / "t")


def test_a_first_line_that_can_not_be_read_is_no_heading(tmp_path: Path) -> None:
    good = SAMPLES["MSR Cambridge"][0]
    (tmp_path / "t").write_text(f"128166372003061629,hm,1,Read,x,32768,413\n{good}")
    with pytest.raises(Unsupported, match="line 1: 'x' is no number"):
        rows(tmp_path / "t")
    (tmp_path / "t").write_text(f"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{good}")
    assert len(rows(tmp_path / "t")) == 2


def test_of_several_devices_one_has_to_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("0 1 8 8 0\n1 2 16 8 0\n2 1 24 8 0\n")
    with pytest.raises(Unsupported, match="line 2: a second device, '2' after '1'"):
        rows(tmp_path / "t")
    assert [offset for _, offset, _, _ in rows(tmp_path / "t", "1")] == [8 * 512, 24 * 512]
    with pytest.raises(Usage, match="nothing of device '3' in it; there are: 1, 2"):
        rows(tmp_path / "t", "3")


SDA, SDB, DM = device_of(8, 0), device_of(8, 16), device_of(253, 0)


def of_device(device: int, sectors: list[int], start: int = 0) -> list[traces.Ev]:
    """A write at each of these sectors, a millisecond apart."""
    found = [e for n, sector in enumerate(sectors) for e in traces.request(start + (n + 1) * 1_000_000, sector)]
    return [replace(event, device=device) for event in found]


def in_a_file_for_each(directory: Path, both: list[list[traces.Ev]]) -> Path:
    """As `blktrace -d /dev/sda -d /dev/sdb` leaves it."""
    for name, events in zip(("sda", "sdb"), both, strict=True):
        traces.write(directory, events, name=name)
    return directory


def in_one_file(directory: Path, both: list[list[traces.Ev]]) -> Path:
    """As `blkparse -d` dumps it."""
    events = sorted((event for some in both for event in some), key=lambda event: event.time)
    numbers = dict.fromkeys((SDA, SDB), 0)
    for n, event in enumerate(events):
        numbers[event.device] += 1
        events[n] = replace(event, sequence=numbers[event.device])
    directory.mkdir()
    (directory / "dump.bin").write_bytes(b"".join(traces.records(events)))
    return directory / "dump.bin"


def in_text(directory: Path, both: list[list[traces.Ev]]) -> Path:
    """What blkparse prints."""
    events = sorted((event for some in both for event in some), key=lambda event: event.time)
    (directory.parent / "t.txt").write_text("".join(traces.as_blkparse(events)))
    return directory.parent / "t.txt"


@pytest.mark.parametrize("form", [in_a_file_for_each, in_one_file, in_text])
def test_of_several_devices_in_a_blktrace_one_has_to_be_chosen(
    form: Callable[[Path, list[list[traces.Ev]]], Path], tmp_path: Path
) -> None:
    given = form(tmp_path / "of", [of_device(SDA, [8, 24, 40]), of_device(SDB, [16, 8])])
    with pytest.raises(Usage, match=r"requests to several devices, 8,0 and 8,16; .* choose one with --device"):
        rows(given)
    assert [offset // 512 for _, offset, _, _ in rows(given, "8,0")] == [8, 24, 40]
    assert [offset // 512 for _, offset, _, _ in rows(given, "8,16")] == [16, 8]
    for absent in ("8,1", "nonsense", ""):
        with pytest.raises(Usage, match=f"nothing of device '{absent}' in it; there are: 8,0, 8,16"):
            rows(given, absent)


def test_a_single_device_of_a_blktrace_is_none_to_be_chosen_but_can_be(tmp_path: Path) -> None:
    given = traces.write(tmp_path, of_device(SDA, [8, 24]))
    assert rows(given) == rows(given, "8,0")
    with pytest.raises(Usage, match="nothing of device '8,16' in it; there are: 8,0"):
        rows(given, "8,16")
    none = traces.write(tmp_path, [traces.Ev(1, "Q", device=SDA)], name="queued")
    with pytest.raises(Unsupported, match="no request was issued"):
        rows(none, "8,0")


def test_a_second_device_is_seen_however_late_it_shows(tmp_path: Path) -> None:
    first = [traces.Ev(time, "D", 8, device=SDA) for time in range(1, MIN_WINDOW + 2)]
    given = traces.write(tmp_path, [*first, traces.Ev(len(first) + 1, "D", 8, device=SDB, sequence=1)])
    read = iter(RequestReader(str(given)))
    assert len(next(read)) > 0
    with pytest.raises(Usage, match="8,0 and 8,16"):
        list(read)
    assert sum(map(len, RequestReader(str(given), "8,16"))) == 1
    assert sum(map(len, RequestReader(str(given), "8,0"))) == len(first)


def test_what_is_no_request_to_a_device_asks_for_no_choice(tmp_path: Path) -> None:
    """The names of processes and messages are of no device; the device mapper hands its bios on and issues nothing; a
    partition's bios are queued there and issued to the whole disk."""
    partition = device_of(8, 1)
    bios = [
        replace(event, device=upper, sector=event.sector - start, op=op)
        for upper, start in ((DM, 1), (partition, 2))
        for event in of_device(SDA, [8, 24])
        if event.op in "QC"
        for op in event.op
    ]
    remaps = [traces.Ev(event.time + 1, "A", event.sector, device=SDA) for event in bios if event.op == "Q"]
    flush = traces.Ev(5, "D", 0, 0, traces.FLUSH, device=SDB)
    notes = [
        replace(traces.note(time, op, data), device=0)
        for time, op, data in ((1, 0, b"fio\0"), (2, 1, bytes(8)), (3, 2, b"begin"))
    ]
    given = traces.write(tmp_path, [*notes, flush, *bios, *remaps, *of_device(SDA, [8, 24])])
    assert [offset // 512 for _, offset, _, _ in rows(given)] == [8, 24]


def test_one_of_several_devices_is_exported(tmp_path: Path) -> None:
    given = in_a_file_for_each(tmp_path / "of", [of_device(SDA, [8, 24, 40]), of_device(SDB, [16, 8])])
    out = io.StringIO()
    assert export(str(given), "mqsim", "/dev/x", out, "8,16")[:2] == (2, 0)
    assert [line.split()[2] for line in out.getvalue().splitlines()] == ["16", "8"]
    with pytest.raises(Usage, match="8,0 and 8,16"):
        export(str(given), "fio3", "/dev/x", io.StringIO())


@pytest.mark.parametrize("form", ["fio2", "fio3", "mqsim"])
def test_what_is_exported_is_the_same_trace(form: str, tmp_path: Path) -> None:
    given = traces.DIRECTORY / "churn"
    out = io.StringIO()
    written, left_out, _ = export(str(given), form, "/dev/x", out)
    (tmp_path / "t").write_text(out.getvalue())
    before, after = rows(given), rows(tmp_path / "t")
    if form == "mqsim":
        before = [row for row in before if row[3] != DISCARD]
    assert written == len(after) == len(before)
    assert (left_out > 0) == (form == "mqsim")
    assert [row[1:] for row in after] == [row[1:] for row in before]
    if form != "fio2":
        unit = 1000 if form == "fio3" else 1
        first = rows(given)[0][0]
        assert [row[0] // unit for row in after] == [(row[0] - first) // unit for row in before]
    with pytest.raises(Usage, match="spaces"):
        export(str(given), "fio3", "a b", io.StringIO())


def test_a_text_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("once upon a time\n")
    with pytest.raises(Unsupported):
        rows(tmp_path / "t")
