"""A case: a directory with the reports on several images, one page over them, and the chain of custody.

`case.json` says of every examination when, by whom, with which version and arguments, and the hashes of the image then.
Each entry holds its own hash, that of the entry before and those of its report and page.  So a change shows, unless
all that follows it is made anew; that, and an end that was cut off, shows to who wrote down the hash of a later entry.
Nothing is written over: an image that is examined again gets a further report, which says so if its hash has changed.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from collections import defaultdict
from collections.abc import Container, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from f2tools import __version__, newfile, untrusted_json
from f2tools.errors import Corrupt, Where
from f2tools.forensics.picture import timeline_svg
from f2tools.forensics.report import html_page, html_table, html_text, write_report

CASE = "case.json"
PAGE = "index.html"
MOST_SHARED = 1000  # rows of contents that several images have


def is_case(directory: str) -> bool:
    """Whether a directory is a case already."""
    return os.path.isfile(os.path.join(directory, CASE))


class Added(NamedTuple):
    """The files that were written, the hash of the last entry of the custody, and what is wrong with the case."""

    files: list[str]
    head: str
    problems: list[str]


def read_case(directory: str, head: str = "") -> dict[str, Any]:
    """What case.json holds; Corrupt where an entry was changed or does not follow the one before, where none has the
    hash `head`, or no page can be made of them."""
    path = os.path.join(directory, CASE)
    try:
        with open(path, encoding="utf-8") as file:
            case = untrusted_json.loads(file.read())
        entries = case["custody"]
        before = None
        for number, entry in enumerate(entries, 1):
            if entry["previous"] != before:
                raise Corrupt(Where(path=path), f"entry {number} of the custody does not follow the one before it")
            before = _digest(entry)
            if "page_sha256" in entry and entry.get("digest") != before:  # older versions wrote neither
                raise Corrupt(Where(path=path), f"entry {number} of the custody was changed: its hash is not its own")
            _ = [one["hashes"] for one in entry["files"]]
        if head and head.lower() not in map(_digest, entries):
            raise Corrupt(Where(path=path), f"no entry of the custody has the hash {head}: it was cut off or made anew")
        page(directory, case)  # which takes all that its entries, and the reports that they vouch for, must have
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise Corrupt(Where(path=path), f"is no case: {type(error).__name__}: {error}") from None
    return case


def add(directory: str, reports: Sequence[dict[str, Any]], arguments: Sequence[str], note: str = "") -> Added:
    """Put reports, as `examine` makes them, into a case, which is made if need be."""
    newfile.create_directory(directory)
    case = read_case(directory) if is_case(directory) else {"format": 1, "custody": []}
    problems = changed_since(directory, case["custody"])
    written: list[str] = []
    for found in reports:
        image = found["images"][0]
        used = {PAGE, CASE, *(entry["report"] for entry in case["custody"])}
        part = f"@{image['part']}" if image["part"] else ""
        name = _free_name(directory, os.path.basename(image["path"]) + part, used)
        paths = write_report(found, os.path.join(directory, name))
        written += paths
        entry = _entry(case["custody"], found, name, arguments, note)
        entry |= {"report_sha256": _sha256(paths[0]), "page_sha256": _sha256(paths[1])}
        case["custody"].append(entry | {"digest": _digest(entry)})
        problems += _said_of(entry)
    for name, text in ((CASE, json.dumps(case, indent=1) + "\n"), (PAGE, page(directory, case))):
        path = os.path.join(directory, name)
        with newfile.text_output(path) as out:
            out.write(text)
        written.append(path)
    return Added(written, case["custody"][-1]["digest"], problems)


def changed_since(directory: str, custody: Sequence[dict[str, Any]]) -> list[str]:
    """The reports and pages that are not what was written, a sentence each."""
    said: list[str] = []
    for number, entry in enumerate(custody, 1):
        for name, key in (("report.json", "report_sha256"), ("report.html", "page_sha256")):
            path = os.path.join(directory, entry["report"], name)
            if key not in entry:  # older versions kept no hash of the page
                continue
            try:
                how = "" if _sha256(path) == entry[key] else "was changed since"
            except OSError as error:
                how = f"can't be read any more ({error.strerror})"
            if how:
                said.append(f"{path}: {how}; it was written on {entry['time']}, entry {number} of the custody")
    return said


def _said_of(entry: dict[str, Any]) -> list[str]:
    """What an entry says of an image that is another one than before."""
    if entry["unchanged"] is False:
        return [f"{entry['image']}: was another one on {entry['time']} than when it was examined before"]
    elsewhere = entry.get("elsewhere")
    if elsewhere and elsewhere["unchanged"] is False:
        return [
            f"{entry['image']}: holds the volume that was examined as {elsewhere['image']} on {elsewhere['time']},"
            " with other hashes: if it is the same evidence, it has changed"
        ]
    return []


def _free_name(directory: str, name: str, used: Container[str]) -> str:
    """A name in the directory for the reports on an image, none that is there or was `used`."""
    plain = "".join(c if c.isalnum() or c in "-_.@+" else "_" for c in name).lstrip(".") or "image"
    found, number = plain, 1
    while os.path.lexists(os.path.join(directory, found)) or found in used:
        number += 1
        found = f"{plain}-{number}"
    return found


def _entry(
    custody: list[dict[str, Any]], found: dict[str, Any], name: str, arguments: Sequence[str], note: str
) -> dict[str, Any]:
    """An entry without the hashes of its report and its own."""
    image = found["images"][0]
    uuid = (found["volume"] or {}).get("uuid")
    same = [one for one in custody if (one["image"], one["part"]) == (image["path"], image["part"])]
    files = [{key: one[key] for key in ("path", "bytes", "hashes")} for one in image["files"]]
    user = None
    with suppress(OSError, KeyError):
        user = getpass.getuser()
    return {
        "time": found["made"],
        "user": user,
        "host": socket.gethostname(),
        "tool": f"f2tools {__version__}",
        "arguments": list(arguments),
        "note": note,
        "image": image["path"],
        "part": image["part"],
        "bytes": image["content_bytes"],
        "mtime_ns": image["mtime_ns"],
        "content": image.get("content"),
        "files": files,
        "uuid": uuid,
        "unchanged": None if not same else _same(same[-1], image, files),
        "elsewhere": None if same else _elsewhere(custody, image, files, uuid),
        "report": name,
        "previous": _digest(custody[-1]) if custody else None,
    }


def _elsewhere(
    custody: list[dict[str, Any]], image: dict[str, Any], files: list[dict[str, Any]], uuid: str | None
) -> dict[str, Any] | None:
    """The last examination of what seems to be the same evidence at another path: of the same content, or volume."""
    for one in reversed(custody):
        content = image.get("content")  # which a copy in a container of another kind has as well
        same = one["content"] == content if one["content"] and content else _same(one, image, files)
        if same or (uuid is not None and one.get("uuid") == uuid):
            return {"image": one["image"], "time": one["time"], "unchanged": same}
    return None


def _same(before: dict[str, Any], image: dict[str, Any], files: list[dict[str, Any]]) -> bool | None:
    """Whether an image is unchanged; None where there are no hashes to compare."""
    pairs = [(before["content"], image.get("content"))]
    pairs += [(one["hashes"], other["hashes"]) for one, other in zip(before["files"], files, strict=False)]
    told = [one == other for one, other in pairs if one and other]
    return all(told) if told else None


def _digest(entry: dict[str, Any]) -> str:
    """The hash of an entry, of all but the hash itself."""
    rest = {key: value for key, value in entry.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- the page ---------------------------------------------------------------------------------------------------


def page(directory: str, case: dict[str, Any]) -> str:
    """One page over all images: what they are, what they share, who examined them when."""
    newest = {(one["image"], one["part"]): one for one in case["custody"]}
    reports = {one["report"]: _report(directory, one) for one in newest.values()}
    rows = [_row(one, reports[one["report"]]) for one in newest.values()]
    head = ("image", "bytes", "volume", *("certain", "probable", "partial", "name only"), "SHA-256", "report")
    body = [f"<h1>{html_text(f'Case of {len(newest)} images')}</h1>", html_table(head, rows)]
    said = [text for one in case["custody"] for text in _said_of(one)]
    body += [
        f'<div class="bad">{html_text(text)}</div>' for text in (*changed_since(directory, case["custody"]), *said)
    ]
    for one in newest.values():
        report = reports[one["report"]]
        if report is not None:
            body.append(f"<h2>{html_text(one['report'])}</h2>{timeline_svg(report['timeline'])}")
    body += ["<h2>Deleted content that several images have</h2>", _shared(reports)]
    body += ["<h2>Chain of custody</h2>", _custody(case["custody"])]
    return html_page(f"Case {os.path.basename(os.path.abspath(directory))}", "".join(body))


def _report(directory: str, entry: dict[str, Any]) -> dict[str, Any] | None:
    """The report of an entry; None where it is no longer what was written."""
    path = os.path.join(directory, entry["report"], "report.json")
    try:
        if _sha256(path) != entry["report_sha256"]:
            return None
        with open(path, encoding="utf-8") as file:
            return untrusted_json.loads(file.read())
    except (OSError, ValueError):
        return None


def _row(entry: dict[str, Any], report: dict[str, Any] | None) -> list[object]:
    where = entry["image"] + (f"@{entry['part']}" if entry["part"] else "")
    if report is None:
        return [
            where,
            entry["bytes"],
            "the report was changed or is gone",
            "",
            "",
            "",
            "",
            _hash(entry),
            entry["report"],
        ]
    volume = report["volume"] or {}
    what = f"{volume.get('label') or 'no label'}, {volume.get('uuid', 'not readable')}"
    return [where, entry["bytes"], what, *report["deleted"]["grades"].values(), _hash(entry), entry["report"]]


def _hash(entry: dict[str, Any]) -> str:
    sums = entry["content"] or (entry["files"][0]["hashes"] if entry["files"] else None)
    return sums["sha256"] if sums else "not made"


def _shared(reports: dict[str, dict[str, Any] | None]) -> str:
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for name, report in reports.items():
        for one in report["deleted"]["files"] if report is not None else ():
            if one["sha256"] and one["size"]:
                places[one["sha256"]].setdefault(name, one["path"])
    rows = [
        (digest, "; ".join(f"{name}: /{path}" for name, path in found.items()))
        for digest, found in places.items()
        if len(found) > 1
    ]
    if not rows:
        return "<p>None.</p>"
    return html_table(("SHA-256", "images and paths"), rows[:MOST_SHARED], len(rows))


def _custody(entries: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["time"], f"{one['user'] or '?'}@{one['host']}", one["tool"], " ".join(one["arguments"]),
            one["image"], _hash(one), _compared(one), one["note"], _digest(one),
        )
        for one in entries
    ]  # fmt: skip
    head = ("time", "who", "tool", "arguments", "image", "SHA-256", "image is", "note", "hash of this entry")
    note = (
        "Write down the hash of the last entry, and keep it elsewhere: with --head it shows later whether entries were"
        " cut off or made anew."
    )
    return f'{html_table(head, rows)}<p class="note">{html_text(note)}</p>'


def _compared(entry: dict[str, Any]) -> str:
    """How an image compares with what was examined before."""
    said = {None: "", True: "as before", False: "CHANGED"}
    elsewhere = entry.get("elsewhere")
    if not elsewhere:
        return said[entry["unchanged"]]
    return f"{said[elsewhere['unchanged']] or 'not compared'}: {elsewhere['image']}"
