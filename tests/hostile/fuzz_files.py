"""Coverage-guided fuzzing of what f2tools reads beside volumes: `python -m tests.hostile.fuzz_files KIND [options]`.

KIND is `overlay` or one of the `TARGETS`; options are those of libFuzzer, and a directory with a corpus.  An input is a
file that a command is given.  The command must end with a documented exit code and a word, whatever the file holds; the
limits are those of `tests.hostile.exercise`.  It works in .cache/fuzz/files, or in the directory F2_FUZZ_WORK.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["f2tools"]):
    import f2tools.blktrace.exported
    import f2tools.blktrace.foreign
    import f2tools.copyin.archive
    import f2tools.copyin.source_tar
    import f2tools.device.changes.overlay_log
    import f2tools.device.changes.undo
    import f2tools.device.containers.aff4
    import f2tools.device.containers.partition
    import f2tools.device.containers.qcow2
    import f2tools.device.containers.sparse
    import f2tools.device.containers.zst
    import f2tools.dump.cli
    import f2tools.mkfs.cli
    import f2tools.trace.cli
    import f2tools.undo.cli  # noqa: F401 - to be instrumented
    from f2tools.device.changes.overlay import Overlay
    from f2tools.errors import F2fsError

from tests.device.memory import Memory
from tests.hostile.corpus import seeds
from tests.hostile.exercise import exercise, measure_from_here
from tests.images import ROOT, copy_sparse, reference

TARGETS = {
    "container": ("dump", "info", "{work}/input"),
    "undo": ("undo", "{work}/input", "{image}", "--dry-run"),
    "tar": ("mkfs", "-q", "{work}/out", "--from", "{work}/input", "--size", "64M", "-f"),
    "trace": ("trace", "events", "{work}/input"),
}


def given_to(command: tuple[str, ...], work: Path) -> Callable[[], None]:
    """A run of a command on work/input."""
    image = copy_sparse(reference("plain").path, work / "image")

    def run() -> None:
        said = exercise(image, work, 3, 0, (command,))
        (work / "out").unlink(missing_ok=True)
        if said:
            raise AssertionError("\n".join(said))

    return run


def overlaid(work: Path) -> None:
    """An overlay opened on a log: it is refused, or read to its end."""
    try:
        with Overlay(Memory(1 << 20), work / "input") as overlay:
            overlay.pread(0, min(overlay.size_bytes, 1 << 21))
    except (F2fsError, OSError):
        return


def main() -> None:
    """Fuzz one kind, from the seeds of `tests.hostile.corpus` on."""
    kind = sys.argv.pop(1)
    work = Path(os.environ.get("F2_FUZZ_WORK") or ROOT / ".cache" / "fuzz" / "files" / kind)
    shutil.rmtree(work, ignore_errors=True)
    corpus = work / "corpus"
    corpus.mkdir(parents=True)
    for number, data in enumerate(seeds(kind, work)):
        (corpus / str(number)).write_bytes(data)
    measure_from_here()
    one = (lambda: overlaid(work)) if kind == "overlay" else given_to(TARGETS[kind], work)

    def one_input(data: bytes) -> None:
        (work / "input").write_bytes(data)
        one()

    atheris.Setup([*sys.argv, str(corpus), "-timeout=180", "-rss_limit_mb=2048"], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
