"""Coverage-guided fuzzing of what f2tools reads: `python -m tests.hostile.fuzz KIND [options of libFuzzer]`.

KIND is one of `tests.hostile.corpus.KINDS`.  It begins with the inputs of that module, and with what it has found in
.cache/fuzz/KIND, or below the directory F2_FUZZ_WORK; what is new goes there.  Followed are the lines of the modules
that those inputs load.  With the name of a FILE, only that input is run.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["f2tools"]):
    from tests.hostile.corpus import FOUND, KINDS, kept, seeds
    from tests.hostile.exercise import measure_from_here
    from tests.hostile.inputs import judge_of

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
    with atheris.instrument_imports(include=["f2tools"]):
        inputs = [*seeds(kind, work), *kept(kind)]
        judge = judge_of(kind, work)
        for number, data in enumerate(inputs):
            (begin / str(number)).write_bytes(data)
            judge(data)
    measure_from_here()
    # an input that is named is run once more, which libFuzzer does where no directory is
    corpora = [] if any(Path(word).is_file() for word in options) else [str(found), str(begin)]
    atheris.Setup([sys.argv[0], *options, *corpora, *LIMITS], judge)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
