"""Coverage-guided fuzzing of what f2tools reads: `python -m tests.hostile.fuzz KIND [options of libFuzzer]`.

KIND is one of `tests.hostile.corpus.KINDS`.  It begins with the inputs of that module, and with what it has found in
.cache/fuzz/KIND, or below the directory F2_FUZZ_WORK; what is new goes there.
"""

from __future__ import annotations

import os
import shutil
import sys
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
    import f2tools.device.containers.libyal
    import f2tools.device.containers.partition
    import f2tools.device.containers.qcow2
    import f2tools.device.containers.sparse
    import f2tools.device.containers.split
    import f2tools.device.containers.zst
    import f2tools.dump.cli
    import f2tools.mkfs.cli
    import f2tools.trace.cli
    import f2tools.undo.cli  # noqa: F401 - to be instrumented
    from tests.hostile.inputs import judge_of

from tests.hostile.corpus import FOUND, KINDS, kept, seeds
from tests.hostile.exercise import measure_from_here

LIMITS = ("-timeout=180", "-rss_limit_mb=2048")


def main() -> None:
    """Fuzz one kind; libFuzzer ends the process."""
    kind, *options = sys.argv[1:] or ["volume"]
    if kind not in KINDS:
        raise SystemExit(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
    work = Path(os.environ.get("F2_FUZZ_WORK") or FOUND) / kind
    found, begin = work / "corpus", work / "begin"
    found.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(begin, ignore_errors=True)
    begin.mkdir()
    for number, data in enumerate([*seeds(kind, work), *kept(kind)]):
        (begin / str(number)).write_bytes(data)
    measure_from_here()
    judge = judge_of(kind, work)
    atheris.Setup([sys.argv[0], *options, str(found), str(begin), *LIMITS], judge)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
