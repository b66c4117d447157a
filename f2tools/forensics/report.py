"""A report on an image, as JSON and as one HTML page: what it is, what is wrong with it, what was deleted, and when.

`dump info` and `fsck` are run as commands.  The page stands alone, and everything from the image is text in it, never
markup.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import f2tools
from f2tools import newfile
from f2tools.device import Device, open_device
from f2tools.device.media.block import open_block
from f2tools.device.media.image import FileDevice, kind_of, open_image
from f2tools.device.media.remote import is_url, without_credentials
from f2tools.device.open import file_and_part
from f2tools.errors import DeviceError, Unsupported
from f2tools.forensics.index import open_index
from f2tools.forensics.others import ask
from f2tools.forensics.picture import histogram, timeline_svg
from f2tools.forensics.states import lines
from f2tools.forensics.times import iso, local_time
from f2tools.forensics.undelete import CERTAIN, GRADES, PROBABLE, Undelete, as_dict
from f2tools.options import human_size
from f2tools.text import PAGE_HEAD, markup
from f2tools.version import __version__

HASH_AT_ONCE = 4 << 20
HASHED_ANYHOW = 4 << 30  # bytes; of larger images hashes are made where
MOST_UNPACKED = 64  # times what is stored is not less
MOST_ROWS = 5000  # of a table in the page; the JSON has all
STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:1.5em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em;overflow-wrap:anywhere}h2{font-size:1.15em;margin:1.8em 0 .4em}
table{border-collapse:collapse;margin:.5em 0}th,td{padding:.15em .7em;text-align:left;border-bottom:1px solid #8884;
vertical-align:top;overflow-wrap:anywhere;max-width:28em}thead th{border-bottom:2px solid #8888;overflow-wrap:normal}
td.n{text-align:right}thead+tbody td{min-width:4.8em}thead+tbody td:last-child{min-width:14em}
code{font-size:.92em;overflow-wrap:anywhere}.wide{overflow-x:auto}.note{color:#777;font-size:.9em}
.bad{border-left:4px solid #d33;padding:.3em .8em;background:#d331}svg{width:100%;height:auto}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}}
"""


# -- what is found ----------------------------------------------------------------------------------------------------


def examine(
    image: str,
    devices: Sequence[str] = (),
    keys: Sequence[str] = (),
    index_path: str | None = None,
    *,
    hashes: bool = True,
) -> dict[str, Any]:
    """Everything that the report says, as one value for JSON."""
    more = [word for device in devices for word in ("--device", device)]
    info = ask("dump", "info", "--json", image, *more, *(word for key in keys for word in ("--key", key)))
    fsck = ask("fsck", "-n", "--json", image, *more)
    findings = [one for one in fsck.values if not isinstance(one, dict) or one.get("record") != "summary"]
    with f2tools.open(image, devices, keys=keys) as volume, open_index(volume, index_path) as index:
        run = Undelete(volume, index)
        deleted = []
        for found in run.deleted():
            if found.grade in (CERTAIN, PROBABLE):
                run.digest(found)
            deleted.append(as_dict(found))
        timeline = histogram(_events(run))
        warnings = list(volume.warnings)
    images = [_image(path, hashes) for path in (image, *devices)]
    return {
        "format": 1,
        "tool": {"name": "f2tools", "version": __version__},
        "made": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "images": images,
        "warnings": [*warnings, *problems_of(images)],
        "volume": info.values[0] if info.values else None,
        "volume_problems": info.said.splitlines(),
        "fsck": {"exit_code": fsck.exit_code, "findings": findings, "said": fsck.said.splitlines()},
        "deleted": {
            "grades": {grade: sum(1 for one in deleted if one["grade"] == grade) for grade in GRADES},
            "files": deleted,
        },
        "timeline": timeline,
    }


def _events(run: Undelete) -> dict[str, list[int]]:
    """Times in ns at which files were created, modified and deleted, older versions included."""
    events: dict[str, set[tuple[int, int, int]]] = {"born": set(), "modified": set(), "deleted": set()}
    for line in lines(run):
        inode = line.inode
        if inode is None:
            continue
        times = (("born", inode.crtime_ns), ("modified", inode.mtime_ns), ("deleted", line.deleted_ns))
        for kind, time in times:
            if time is not None:
                events[kind].add((line.ino, inode.generation, time))
    return {kind: sorted(time for _, _, time in found) for kind, found in events.items()}


def _image(path: str, hashes: bool) -> dict[str, Any]:
    name, part = file_and_part(path)
    if is_url(name):
        shown = without_credentials(name)
        raise Unsupported(f"{shown}: a report is about files with their hashes and times; copy the image, then report")
    status = os.stat(name)
    with open_device(path) as device:
        files = [_file(one, hashes) for one in device.files()]
        found: dict[str, Any] = {
            "path": os.path.abspath(name),
            "part": part or None,
            "opened_as": type(device).__name__,
            "file_bytes": status.st_size,
            "content_bytes": device.size_bytes,
            "mtime_ns": status.st_mtime_ns,
            "files": files,
            "unhashed": None,
            "acquired": None,
            "problems": [],
        }
        if not hashes:
            return found
        if isinstance(device, FileDevice):  # its content is the file
            found["content"] = files[0]["hashes"]
        elif _may_hash(device.size_bytes, sum(one["stored_bytes"] for one in files)):
            found["file"] = files[0]["hashes"]
            try:
                found["content"] = _hashes(device)
                found["acquired"] = _acquired(name, found)
            except DeviceError as error:
                found["unhashed"] = f"not all of it can be read: {error}"
                found["problems"].append(str(error))
        else:
            found["file"] = files[0]["hashes"]
        if found.get("content") is None:
            found.pop("content", None)
            found["unhashed"] = found["unhashed"] or (
                f"its {device.size_bytes} bytes are far more than what is stored of them; "
                "they were not read for a hash, and most of them are fillings"
            )
        if found.get("file") is None:
            found.pop("file", None)
    return found


def _acquired(name: str, found: dict[str, Any]) -> dict[str, Any] | None:
    """The hashes that a container keeps of its disk, those of what is read, and whether they agree; None without any.

    What is wrong goes to the problems.
    """
    with open_device(name, whole=True) as disk:
        problems = list(disk.wrong_checksums())
        stored = disk.stored_hashes()
        read = _hashes(disk, stored) if stored else {}
    wrong = [which for which in stored if read[which] != stored[which]]
    problems += (
        f"{name}: its {which.upper()} was {stored[which]} when it was acquired, and is {read[which]}: what is read is "
        "not what was acquired"
        for which in wrong
    )
    found["problems"] += problems
    return {"stored": stored, "read": read, "same": not wrong} if stored else None


def problems_of(images: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with the evidence itself: what can't be read, and hashes that differ from those stored with it."""
    return [problem for image in images for problem in image["problems"]]


def _file(name: str, hashes: bool) -> dict[str, Any]:
    """A file or a device that is read, as it lies."""
    with _as_it_lies(name) as file:
        status = os.fstat(file.fd)
        stored = status.st_blocks * 512 if stat.S_ISREG(status.st_mode) else file.size_bytes
        return {
            "path": os.path.abspath(name),
            "bytes": file.size_bytes,
            "stored_bytes": stored,
            "hashes": _hashes(file) if hashes and _may_hash(file.size_bytes, stored) else None,
        }


def _as_it_lies(name: str) -> FileDevice:
    if kind_of(name) == stat.S_IFREG:
        return open_image(name)
    return open_block(name, False)


def _may_hash(size_bytes: int, stored_bytes: int) -> bool:
    """Whether reading all of it for a hash ends in time: a few hundred bytes can stand for terabytes of fillings."""
    return size_bytes <= max(HASHED_ANYHOW, MOST_UNPACKED * stored_bytes)


def _hashes(device: Device, names: Iterable[str] = ("sha256", "md5")) -> dict[str, str]:
    """Hashes of what is in an image; holes are not read."""
    sums = {name: hashlib.new(name, usedforsecurity=False) for name in names}
    zeros = bytes(HASH_AT_ONCE)
    at = 0

    def take(data: bytes | memoryview) -> None:
        for one in sums.values():
            one.update(data)

    for offset, length in (*device.data_ranges(0, device.size_bytes), (device.size_bytes, 0)):
        while at < offset:
            count = min(HASH_AT_ONCE, offset - at)
            take(memoryview(zeros)[:count])
            at += count
        while at < offset + length:
            count = min(HASH_AT_ONCE, offset + length - at)
            take(device.pread(at, count))
            at += count
    return {name: one.hexdigest() for name, one in sums.items()}


# -- the files --------------------------------------------------------------------------------------------------------


def write_report(found: dict[str, Any], directory: str, replace: bool = False) -> list[str]:
    """Put report.json and report.html into a directory, which is made if need be; their paths.

    OSError where a report is there already, unless it is to be replaced.
    """
    newfile.create_directory(directory)
    paths = [os.path.join(directory, name) for name in ("report.json", "report.html")]
    with ExitStack() as both:
        for path, text in zip(paths, (json.dumps(found, indent=1) + "\n", page(found)), strict=True):
            out = both.enter_context(newfile.replacing(path) if replace else newfile.making(path))
            out.write(text.encode("utf-8", "surrogateescape"))
    return paths


def page(found: dict[str, Any]) -> str:
    """The report as HTML."""
    title = f"Report on {', '.join(os.path.basename(one['path']) for one in found['images'])}"
    body = [f"<h1>{html_text(title)}</h1>"]
    body.append(
        f'<p class="note">Made {html_text(found["made"])} by f2tools {html_text(found["tool"]["version"])}.</p>'
    )
    if found["warnings"]:
        body.append(f'<div class="bad">{_lines(found["warnings"])}</div>')
    body += ["<h2>Image</h2>", *(_image_table(one) for one in found["images"])]
    body += ["<h2>Volume</h2>", _volume(found)]
    body += ["<h2>Encryption</h2>", _policies(found)]
    body += ["<h2>Findings of fsck</h2>", _findings(found["fsck"])]
    body += ["<h2>Timeline</h2>", timeline_svg(found["timeline"]), _outside(found["timeline"])]
    body += ["<h2>Deleted files</h2>", _deleted(found["deleted"])]
    return html_page(title, "".join(body))


def html_page(title: str, body: str) -> str:
    """A page that stands alone around its body: no script, nothing fetched."""
    return (
        PAGE_HEAD
        + "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html_text(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def html_text(value: object) -> str:
    """Text from anywhere: control characters and undecodable bytes as escapes, no markup."""
    return markup(str(value))


def _lines(texts: Iterable[object]) -> str:
    return "<br>".join(html_text(text) for text in texts)


def _pairs(rows: Iterable[tuple[str, object]]) -> str:
    cells = "".join(f"<tr><th>{html_text(name)}</th><td>{html_text(value)}</td></tr>" for name, value in rows)
    return f'<div class="wide"><table>{cells}</table></div>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[object]], total: int | None = None) -> str:
    """Rows under a header; `total` where not all of them are shown."""
    top = "".join(f"<th>{html_text(name)}</th>" for name in head)
    cells = "".join("<tr>" + "".join(f"<td>{html_text(value)}</td>" for value in row) + "</tr>" for row in rows)
    note = ""
    if total is not None and total > len(rows):
        note = f'<p class="note">The first {len(rows)} of {total}; report.json has all.</p>'
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table></div>{note}'


def _image_table(one: dict[str, Any]) -> str:
    rows: list[tuple[str, object]] = [("path", one["path"])]
    if one["part"]:
        rows.append(("partition", one["part"]))
    rows.append(("size", f"{one['content_bytes']} bytes ({human_size(one['content_bytes'])})"))
    if one["file_bytes"] != one["content_bytes"]:
        rows.append(
            ("file", f"{one['file_bytes']} bytes ({human_size(one['file_bytes'])}), read as {one['opened_as']}")
        )
    rows.append(("last written", iso(one["mtime_ns"])))
    if one["unhashed"]:
        rows.append(("no hash", one["unhashed"]))
    for what, label in (("content", "content"), ("file", "file as it lies")):
        rows += [(f"{name} of the {label}", value) for name, value in one.get(what, {}).items()]
    acquired = one["acquired"]
    for name, value in acquired["stored"].items() if acquired else ():
        same = acquired["read"][name] == value
        said = "as now" if same else f"NOW {acquired['read'][name]}"
        rows.append((f"{name} when acquired", f"{value}, {said}"))
    for file in one["files"] if len(one["files"]) > 1 else ():
        sums = ", ".join(f"{name} {value}" for name, value in (file["hashes"] or {}).items())
        rows.append(("read too" if file is not one["files"][0] else "read", f"{file['path']}: {sums or 'no hash'}"))
    return _pairs(rows)


def _volume(found: dict[str, Any]) -> str:
    volume = found["volume"]
    if volume is None:
        return f'<div class="bad">{_lines(found["volume_problems"])}</div>'
    geo, space, state = volume["geometry"], volume["space"], volume["state"]
    rows: list[tuple[str, object]] = [
        ("format", volume["format"]),
        ("label", volume["label"] or "none"),
        ("UUID", volume["uuid"]),
        ("formatted by", volume["init_version"]),
        ("last mounted by", volume["version"]),
        ("size", f"{volume['size_bytes']} bytes ({human_size(volume['size_bytes'])})"),
        ("blocks", f"{geo['block_count']} of {geo['block_size']} bytes, {geo['segment_count_main']} segments in main"),
        *(
            (f"area {name}", f"block {area['blkaddr']:#x}, {area['blocks']} blocks")
            for name, area in geo["areas"].items()
        ),
        ("features", ", ".join(volume["features"]) or "none"),
        ("used", f"{human_size(space['used_bytes'])}; {space['valid_inode_count']} inodes"),
        ("checkpoint", f"{state['checkpoint_ver']:#x}, {state['why']}"),
        ("unmounted cleanly", "yes" if state["clean"] else f"no; {state['fsynced_files']} files fsynced after it"),
    ]
    return _pairs(rows)


def _policies(found: dict[str, Any]) -> str:
    policies = (found["volume"] or {}).get("policies", [])
    if not policies:
        return "<p>No encryption policy is in use.</p>"
    rows = [
        (
            one["version"], one.get("identifier") or one.get("descriptor"), one["contents"],
            f"{one['filenames']}, padded to {one['padding']}", ", ".join(one["flags"]) or "-", one["inodes"],
            one["key"] or "not given",
        )
        for one in policies
    ]  # fmt: skip
    return html_table(("version", "identifier or descriptor", "content", "names", "flags", "inodes", "key"), rows)


def _findings(fsck: dict[str, Any]) -> str:
    findings = [one for one in fsck["findings"] if isinstance(one, dict)]
    said = f'<p class="note">{_lines(fsck["said"])}</p>' if fsck["said"] else ""
    if not findings:
        return f"<p>None; exit code {fsck['exit_code']}.</p>{said}"
    rows = [
        (one.get("code"), one.get("severity"), one.get("message"), (one.get("repair") or {}).get("name", "none"))
        for one in findings[:MOST_ROWS]
    ]
    return html_table(("code", "severity", "what", "repair"), rows, len(findings)) + said


def _outside(timeline: dict[str, Any]) -> str:
    outside = f"  {timeline['outside']} times far outside are left out." if timeline["outside"] else ""
    return f'<p class="note">A bar is {human_span(timeline["span"])}; times are UTC.{outside}</p>'


def human_span(seconds: int) -> str:
    """`15 minutes`, `a day`."""
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % size == 0 and seconds >= size:
            count = seconds // size
            return f"{count} {name}s" if count > 1 else f"{'an' if name == 'hour' else 'a'} {name}"
    return f"{seconds} seconds"


def _paths(one: dict[str, Any]) -> str:
    """The path of a file, and those that it had before."""
    before = "".join(f", also known as /{path.lstrip('/')}" for path in one.get("also_known_as", ()))
    return "/" + one["path"].lstrip("/") + before


def _deleted(deleted: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {grade}" for grade, count in deleted["grades"].items())
    files = deleted["files"]
    rows = [
        (
            one["grade"], _paths(one), one["type"], "" if one["size"] is None else one["size"],
            "" if one["mtime_ns"] is None else local_time(one["mtime_ns"]), one["ino"], one["sha256"] or "",
            "; ".join(one["reasons"]),
        )
        for one in files[:MOST_ROWS]
    ]  # fmt: skip
    head = ("grade", "path", "type", "size", "modified (UTC)", "inode", "SHA-256", "why")
    return f"<p>{html_text(counts)}</p>{html_table(head, rows, len(files)) if rows else ''}"
