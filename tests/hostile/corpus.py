"""Where fuzzing begins: a few small files of each kind, made or taken from those of the tests, and what it found.

`python -m tests.hostile.corpus KIND` takes from .cache/fuzz/KIND, where `tests.hostile.fuzz` left its corpus, those
that run more of our lines than smaller ones do, and puts them into the repository.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
import random
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import lz4.frame
import zstandard

from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.undo import UndoLog
from f2tools.device.containers.sparse import CRC32, DONT_CARE, FILL, RAW
from f2tools.device.media.image import open_image
from tests.blktrace.foreign import SAMPLES as FOREIGN
from tests.device.memory import Memory
from tests.device.test_sparse import sparse_file
from tests.hostile import sealed
from tests.images import DIRECTORY, ROOT
from tests.trace.traces import as_blkparse, as_ftrace, as_perf, request

KINDS = (
    "volume", "container", "undo", "overlay", "tar", "trace", "requests", "texts", "vsl", "dfs", "dffs", "index",
    "fuse", "http",
)  # fmt: skip
CONTAINERS = (
    "small.qcow2", "small-zstd.qcow2", "small-lz4.aff4", "small-map.aff4", "small.E01", "small.vhdx", "small.vmdk",
)  # fmt: skip
DISKS = ("gpt", "mbr")
SMALL_BYTES, SMALL_DATA_BYTES = 1 << 16, 8192
CUT_BYTES, CUT_DISK_BYTES = 4096, 1 << 16  # of a trace, of a disk with partitions
KEPT = Path(__file__).parent / "corpora"
KEPT_EACH = 1 << 13  # bytes of an input
FOUND = ROOT / ".cache" / "fuzz"
PACKAGE = str(ROOT / "f2tools")


def seeds(kind: str, work: Path) -> list[bytes]:
    """The files of a kind; `work` is for what is made on the way."""
    # which the fuzzer imports itself, to follow what they use
    from tests.hostile import fuzzed_fuse, fuzzed_http, fuzzed_index, fuzzed_texts

    made = {"container": _containers, "undo": _undo, "overlay": _overlay, "tar": _tars, "trace": _traces,
            "requests": _requests, "texts": fuzzed_texts.seeds,
            "fuse": lambda _: fuzzed_fuse.seeds(), "http": lambda _: fuzzed_http.seeds(),
            "index": lambda _: [bytes([n]) + data for n, data in enumerate(fuzzed_index.seeds())]}  # fmt: skip
    return made.get(kind, _patches)(work)


def kept(kind: str) -> list[bytes]:
    """What fuzzing of this kind has found and the repository keeps."""
    path = KEPT / f"{kind}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as packed:
        return [packed.read(name) for name in sorted(packed.namelist())]


def keep(kind: str) -> None:
    """Of what fuzzing left, from small to large, keep the inputs that run a line of ours that none before ran."""
    from tests.hostile.inputs import judge_of  # which the fuzzer imports itself, to follow it

    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        judge = judge_of(kind, work)
        known: set[tuple[str, int]] = set()
        for data in seeds(kind, work):
            known |= _lines_of(judge, data)
        found = {path.read_bytes() for path in (FOUND / kind / "corpus").iterdir()} | set(kept(kind))
        chosen: list[bytes] = []
        for data in sorted(found, key=lambda data: (len(data), data)):
            if len(data) <= KEPT_EACH and (lines := _lines_of(judge, data)) - known:
                known |= lines
                chosen.append(data)
    KEPT.mkdir(exist_ok=True)
    with zipfile.ZipFile(KEPT / f"{kind}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for data in chosen:
            name = zipfile.ZipInfo(hashlib.sha256(data).hexdigest()[:16])  # which has no time
            packed.writestr(name, data, zipfile.ZIP_DEFLATED)
    print(f"{kind}: {len(chosen)} of {len(found)} inputs, {len(known)} lines")


def _lines_of(judge: Callable[[bytes], None], data: bytes) -> set[tuple[str, int]]:
    """The lines of f2tools that an input runs."""
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if PACKAGE not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        judge(data)
    finally:
        sys.settrace(None)
    return lines


def _patches(_: Path) -> list[bytes]:
    """Of a kind whose inputs are changes: each command and each sample once."""
    return [b"", bytes(20), bytes(range(60)), *(bytes([n, n]) + bytes(range(2 + n, 60)) for n in range(1, 12))]


def _unpacked(path: Path, most: int = -1) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read(most)


def _containers(_: Path) -> list[bytes]:
    where = ROOT / "tests/device/data"
    whole = [_unpacked(where / f"{name}.zst") for name in CONTAINERS]
    chunks = [(RAW, 1, bytes(range(256)) * 16), (FILL, 2, b"fill"), (DONT_CARE, 5, b""), (CRC32, 0, bytes(4))]
    return [
        *whole, sparse_file(chunks), zstandard.ZstdCompressor().compress(bytes(1 << 16)),
        *(_unpacked(where / f"{name}.zst", CUT_DISK_BYTES) for name in DISKS),
    ]  # fmt: skip


def _undo(work: Path) -> list[bytes]:
    log = work / "log.undo"
    log.unlink(missing_ok=True)
    with UndoLog(open_image(small_image(work / "changed"), True), log) as device:
        device.pwrite(4096, b"changed")
        device.discard(40_000, 4096)
        device.resize(device.size_bytes + 4096)
    whole = log.read_bytes()
    named = sealed.undo_log(whole[:20] + bytes(16) + whole[36:])  # its random id would make each run another one
    return [named, named[:-200]]


def small_image(path: Path) -> Path:
    """What undo logs are of: no volume, as undoing asks for none, and small, so that they are small too."""
    path.write_bytes(random.Random(1).randbytes(SMALL_DATA_BYTES).ljust(SMALL_BYTES, b"\0"))
    return path


def _overlay(work: Path) -> list[bytes]:
    with Overlay(Memory(sealed.OVERLAID_BYTES), work / "log.overlay") as overlay:
        overlay.pwrite(4096, b"changed" * 100)
        overlay.write_zeroes(8192, 4096)
        overlay.flush()
    return [(work / "log.overlay").read_bytes()]


def _tars(work: Path) -> list[bytes]:
    (work / "file").write_bytes(b"content" * 100)
    found = []
    for mode, form in (("w", tarfile.PAX_FORMAT), ("w", tarfile.GNU_FORMAT), ("w:gz", tarfile.USTAR_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode, format=form) as tar:  # type: ignore[call-overload]
            tar.add(work / "file", "d/" + "long" * 20)
            tar.add(work / "file", "name")
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.LNKTYPE, "name"
            tar.addfile(link)
            special = tarfile.TarInfo("special")
            special.type, special.pax_headers = tarfile.CHRTYPE, {
                "SCHILY.xattr.user.x": "y", "SCHILY.xattr.system.posix_acl_access": "\2\0\0\0", "mtime": "1.5",
            }  # fmt: skip
            tar.addfile(special)
            sparse = tarfile.TarInfo("sparse")
            sparse.pax_headers, sparse.size = {"GNU.sparse.map": "0,512", "GNU.sparse.size": "4096"}, 512
            tar.addfile(sparse, io.BytesIO(bytes(512)))
        found.append(out.getvalue())
    plain = found[0]
    packed = lz4.frame.compress(plain)  # type: ignore[attr-defined]
    return [*found, packed, *(pack(plain) for pack in (lzma.compress, bz2.compress, zstandard.compress))]


def _traces(_: Path) -> list[bytes]:
    churn = DIRECTORY / "traces" / "churn"
    events = [*request(1_000, 64), *request(200_000, 72, 16)]
    texts = [as_ftrace(events).encode(), as_perf(events).encode(), "".join(as_blkparse(events)).encode()]
    return [_unpacked(churn / name, CUT_BYTES) for name in ("ftrace.txt.zst", "x.blktrace.0.zst")] + texts


def _requests(_: Path) -> list[bytes]:
    return [text.encode() for text, _ in FOREIGN.values()]


if __name__ == "__main__":
    keep(sys.argv[1])
