"""Text files that commands read beside an image or a trace, fuzzed: lists, scripts, rules, and JSON read back.

The first byte of an input says which; the rest is the file's content.  What is written by f2tools itself may have been
changed by anybody since.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from f2tools.errors import F2fsError
from f2tools.fleet.journal import Journal
from f2tools.fleet.summary import Summary
from f2tools.fleet.tables import write_tables
from f2tools.fleet.verbs import VERBS, Options
from f2tools.forensics.case import page, read_case
from tests.dump.craft import f2
from tests.hostile.exercise import exercise
from tests.images import copy_sparse, reference
from tests.trace import traces

IMAGE = "compress-lzo-rle"
OUTPUT = "fleet.parquet"
MAKE = ("mkfs", "-q", "{work}/out", "--from", "{work}/tree", "--size", "64M", "-f")
FILL_BYTES = 4096  # in the file of the tree


@dataclass(frozen=True)
class Text:
    """A file that is read: its name, what reads it, and contents to begin with."""

    path: str
    command: tuple[str, ...]
    begin: tuple[bytes, ...]


TEXTS = (
    Text("known", ("hashes", "{image}", "--living", "--known", "{work}/known"), (
        b"d41d8cd98f00b204e9800998ecf8427e  name\n", b"\xef\xbb\xbfda39a3ee5e6b4b0d3255bfef95601890afd80709\n",
        b'"SHA-1","MD5","FileName"\n"DA39A3EE5E6B4B0D3255BFEF95601890AFD80709","D41D8CD98F00B204E9800998ECF8427E",""\n',
        b"%%%% HASHDEEP-1.0\n%%%% size,md5,sha256,filename\n## x\n0,d41d8cd98f00b204e9800998ecf8427e,e3b0,f\n",
    )),
    Text("key", ("dump", "ls", "{image}", "--key", "{work}/key"), (b"0x" + b"ab" * 64 + b"\n", bytes(range(32)))),
    Text("script", ("edit", "{image}", "{work}/script", "--dry-run"), (
        b"mkdir -p /a/b\nchmod u+x,g=rw /a # why\nchown 1:2 /a\n",
        b"touch -d 2020-01-01T00:00:00 $'\\xff\\n'\nrm -r '/a b'\n",
        b'setfacl -m u:1:rwx,g::r--,m::rw- "/a"\nsetfattr -n user.x -v 0xab /a\nchattr +i /a\n',
        b"mv /a /b\nln -s x /l\nln /a /c\nrmdir /d\nmknod /n c 1 3\ntruncate -s 1M /f\nsetfacl -b /f\n",
    )),
    Text("excluded", (*MAKE, "--exclude-from", "{work}/excluded"), (
        b"*.o\n/d/**/[!a-c]?\n# none\nd/\n", b"\\*\n[\n[]a]\n",
    )),
    Text("order", (*MAKE, "--sort", "{work}/order"), (b"d/file\n./name\n", b"d\n")),
    Text("contexts", (*MAKE, "--selinux", "{work}/contexts"), (
        b"/.* u:object_r:x:s0\n/d(/.*)? -d u:object_r:y:s0\n/name -- <<none>>\n", b"/[[:alpha:]]+\\.(a|b)$ u:x\n",
    )),
    Text("config", (*MAKE, "--fs-config", "{work}/config"), (
        b" 0 0 0755\nd 0 2000 0750 capabilities=0xc0\nd/file 1 1 644 selabel=u:x\n",
    )),
    Text("listed", ("defrag", "{image}", "--sort", "access-list", "--access-list", "{work}/listed", "--dry-run"), (
        b"/a\n# none\n/b/c\n",
    )),
    Text("fio", ("trace", "analyze", "{work}/trace/t", "--fio", "{work}/fio", "--json"), (
        b'note\n{"jobs": [{"write": {"io_bytes": 4096}}]}',
    )),
    Text("trace/record.json", ("trace", "analyze", "{work}/trace", "--json"), (
        b'{"app_bytes": 4096, "offset": 0, "counters": {"before": {}, "after": {"kbytes": 3}}}', b"[1]",
    )),
    Text("export/export.json", ("trace", "analyze", "{work}/export", "--json"), ()),
    Text("case/case.json", (), ()),
    Text(f"{OUTPUT}.part", (), ()),
)  # fmt: skip


def seeds(work: Path) -> list[bytes]:
    """Every file as it should be."""
    image = prepared(work)
    options = Options()
    with Journal(str(work / OUTPUT), "info", options) as journal:
        row, findings = VERBS["info"].look(str(image), options)
        whole = {"target": "image", "ok": True, "reason": None, "looked_at": True} | row
    line = json.dumps({"name": "image", "row": whole, "findings": findings}).encode() + b"\n"
    Path(journal.path).unlink()
    entry = {
        "time": "2026", "user": "u", "host": "h", "tool": "t", "arguments": ["a"], "note": "", "image": "i", "part": "",
        "bytes": 1, "mtime_ns": 1, "content": None, "files": [], "unchanged": None, "report": "r", "report_sha256": "",
        "previous": None,
    }  # fmt: skip
    made = {
        "export/export.json": (work / "export/export.json").read_bytes(),
        "case/case.json": json.dumps({"format": 1, "custody": [entry]}).encode(),
        f"{OUTPUT}.part": line,
    }
    found = []
    for number, text in enumerate(TEXTS):
        found += [bytes([number]) + content for content in text.begin or (made[text.path],)]
    return found


def prepared(work: Path) -> Path:
    """What the commands need, made in `work`; the image."""
    image = copy_sparse(reference(IMAGE).path, work / "image")
    (work / "tree/d").mkdir(parents=True, exist_ok=True)
    (work / "tree/d/file").write_bytes(b"x" * FILL_BYTES)
    (work / "tree/name").write_bytes(b"")
    traces.write(work / "trace", traces.request(1_000, 64) + traces.request(200_000, 72, 16))
    shutil.rmtree(work / "export", ignore_errors=True)
    done = f2("trace", "export", work / "trace/t", "-o", work / "export")
    assert done.code == 0, done.err
    (work / "case").mkdir(exist_ok=True)
    return image


def judge(work: Path) -> Callable[[bytes], None]:
    """Takes an input; raises where that has shown a mistake of ours."""
    image = prepared(work)

    def one(data: bytes) -> None:
        text = TEXTS[(data[0] if data else 0) % len(TEXTS)]
        content = data[1:]
        if text.path == "script" and b"cp" in content:
            return  # copies from the host, where a fuzzer should not look around
        path = work / text.path
        if text.path == f"{OUTPUT}.part":
            _resumed(work, content)
        elif text.path == "case/case.json":
            path.write_bytes(content)
            with suppress(F2fsError):
                page(str(work / "case"), read_case(str(work / "case")))
        else:
            path.write_bytes(content)
            said = exercise(image, work, 3, 0, (text.command,))
            (work / "out").unlink(missing_ok=True)
            if said:
                raise AssertionError("\n".join(said))
        path.unlink(missing_ok=True)

    return one


def _resumed(work: Path, content: bytes) -> None:
    """A run goes on behind a journal whose first line is right and whose others are these."""
    output = str(work / OUTPUT)
    Journal(output, "info", Options(), fresh=True).__exit__()
    with Path(output + ".part").open("ab") as file:
        file.write(content)
    with Journal(output, "info", Options()) as journal:
        done = [name for name in ("image",) if name in journal]
        write_tables(output, VERBS["info"], map(Summary("info").add, journal.results(done)))
