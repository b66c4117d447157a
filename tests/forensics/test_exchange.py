"""What other tools of the trade read: DFXML by its schema, log2timeline's CSV by the rules of its readers."""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import images
from tests.dump.craft import f2
from tests.forensics.history_cases import image_of
from tests.judges import need_tool

SCHEMA = Path(__file__).parent / "dfxml" / "dfxml.xsd"
SPACE = {"d": "http://www.forensicswiki.org/wiki/Category:Digital_Forensics_XML", "f": "urn:f2tools:dfxml"}


@pytest.fixture(scope="module", params=["phone", "compress-zstd", "fscrypt"])
def dfxml(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(image, its DFXML)."""
    image = images.reference(request.param).path
    path = tmp_path_factory.mktemp("dfxml") / "image.dfxml"
    assert f2("timeline", image, "--format", "dfxml", "-o", path).code == 0
    return image, path


def test_dfxml_is_valid_by_its_schema(dfxml: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [need_tool("xmllint"), "--noout", "--nonet", "--schema", SCHEMA, dfxml[1]],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_byte_runs_hold_the_content_that_the_hashes_are_of(dfxml: tuple[Path, Path]) -> None:
    checked: Counter[str] = Counter()
    for one in ElementTree.parse(dfxml[1]).iterfind(".//d:fileobject", SPACE):
        sums = {found.get("type"): found.text for found in one.iterfind("d:hashdigest", SPACE)}
        runs = one.findall("d:byte_runs/d:byte_run", SPACE)
        if not sums or any(run.get("uncompressed_len") for run in runs):
            checked["packed"] += bool(sums)
            continue
        size = int(one.findtext("d:filesize", "0", SPACE))
        content = bytearray(size)
        with dfxml[0].open("rb") as image:
            for run in runs:
                image.seek(int(run.get("img_offset", "")))
                at = int(run.get("file_offset", ""))
                content[at : at + int(run.get("len", ""))] = image.read(int(run.get("len", "")))
        assert len(content) == size
        assert sums == {name: hashlib.new(name, content).hexdigest() for name in ("md5", "sha1", "sha256")}
        state = one.findtext("f:state", "", SPACE).split()[0]
        checked[f"{state} {'resident' if any(run.get('type') for run in runs) else 'outside'}"] += 1
    if "phone" in str(dfxml[0]):
        assert checked["live outside"] > 50
        assert checked["deleted outside"] > 100
        assert checked["deleted resident"] > 0
    if "zstd" in str(dfxml[0]):
        assert checked["packed"] > 0


def test_rows_for_log2timeline_are_split_at_commas() -> None:
    image = image_of("phone")
    rows = [line.split(",") for line in f2("timeline", image, "--format", "l2tcsv").text.splitlines()]
    assert {len(row) for row in rows} == {17}
    names = rows[0]
    events = [json.loads(line) for line in f2("timeline", image, "--format", "jsonl").text.splitlines()]
    times = Counter()
    for row in (dict(zip(names, row, strict=True)) for row in rows[1:]):
        assert (row["timezone"], row["version"], row["format"]) == ("UTC", "2", "f2tools")
        assert len(row["MACB"]) == 4
        assert not row["MACB"].strip("MACB.")
        when = datetime.datetime.strptime(f"{row['date']} {row['time']} +0000", "%m/%d/%Y %H:%M:%S %z")
        extra = dict(item.split(": ") for item in row["extra"].split("; "))
        for kind in row["type"].split("; "):
            times[int(when.timestamp()) * 10**9 + int(extra["nanoseconds"]), row["filename"], kind] += 1
    kinds = {"modified": "Content Modification Time", "accessed": "Last Access Time", "born": "Creation Time",
             "changed": "Metadata Modification Time", "deleted": "Deletion Time"}  # fmt: skip
    assert times == Counter((event["time_ns"], event["path"], kinds[event["event"]]) for event in events)


def test_a_comma_in_a_name_does_not_make_a_column(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a,b\n=c").touch()
    assert f2("mkfs", "-q", tmp_path / "image", "--size", "64M", "--from", tmp_path / "in").code == 0
    rows = f2("timeline", tmp_path / "image", "--format", "l2tcsv").text.splitlines()
    assert {row.count(",") for row in rows} == {16}
    assert any(",/a\\x2cb\\x0a=c," in row for row in rows)


def test_json_and_another_format_contradict_each_other() -> None:
    image = images.reference("plain").path
    refused = f2("timeline", image, "--format", "dfxml", "--json")
    assert (refused.code, refused.out) == (2, b"")
    lines = f2("timeline", image, "--json").out
    assert lines == f2("timeline", image, "--json", "--format", "jsonl").out != f2("timeline", image).out
