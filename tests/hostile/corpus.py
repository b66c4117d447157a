"""Where fuzzing begins: a few small files of each kind, made or taken from those of the tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import zstandard

from f2tools.device.changes.overlay import Overlay
from tests.device.memory import Memory
from tests.dump.craft import f2
from tests.images import DIRECTORY, ROOT, copy_sparse, reference

CONTAINERS = ("small.qcow2", "small-zstd.qcow2", "small-lz4.aff4", "small-map.aff4", "gpt", "mbr")
CUT_BYTES = 4096  # of a trace


def seeds(kind: str, work: Path) -> list[bytes]:
    """The files of a kind; `work` is for what is made on the way."""
    return {"container": _containers, "undo": _undo, "overlay": _overlay, "tar": _tars, "trace": _traces}[kind](work)


def _unpacked(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()


def _containers(_: Path) -> list[bytes]:
    return [_unpacked(ROOT / "tests/device/data" / f"{name}.zst") for name in CONTAINERS]


def _undo(work: Path) -> list[bytes]:
    image = copy_sparse(reference("plain").path, work / "changed")
    assert f2("label", image, "new", "--undo", work / "log.undo").code == 0
    return [(work / "log.undo").read_bytes()]


def _overlay(work: Path) -> list[bytes]:
    with Overlay(Memory(1 << 20), work / "log.overlay") as overlay:
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
        found.append(out.getvalue())
    return found


def _traces(_: Path) -> list[bytes]:
    churn = DIRECTORY / "traces" / "churn"
    return [_unpacked(churn / name)[:CUT_BYTES] for name in ("ftrace.txt.zst", "x.blktrace.0.zst")]
