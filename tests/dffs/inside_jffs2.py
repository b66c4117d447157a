"""Runs in the guest: JFFS2 on nandsim's chip does what `f2tools dffs report` measures, and the kernel's own commands to
the chip are counted by probes on the functions that send them.

Prints one JSON document.  Everything is made safe by sync(2) after each change, caches are dropped before each open,
and compression is off, as the Direct Flash File System has none.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
CHIP, TOP = "/dev/mtd0", Path("/tmp/nand")
PROBES = {"reads": "nand_lp_exec_read_page_op", "spares": "nand_read_oob_op", "writes": "nand_exec_prog_page_op",
          "erases": "nand_erase_op"}  # fmt: skip
Counts = dict[str, int]
SCALE = int(sys.argv[1])
PAGE, EACH = 2048, 40
FIRST_FILES, LAST_FILES, DIRECTORIES = 50, 200, 10
POSTMARK_DIRECTORIES, POSTMARK_FILES, POSTMARK_BYTES, OPERATIONS = 100, 1000, 128 << 10, 2000


def probe() -> None:
    """Count calls of the functions that send commands to the chip."""
    if not (TRACING / "kprobe_events").exists():
        run("mount", "-t", "tracefs", "none", str(TRACING))
    (TRACING / "kprobe_events").write_text("".join(f"p:{name} {function}\n" for name, function in PROBES.items()))
    for name in PROBES:
        (TRACING / f"events/kprobes/{name}/enable").write_text("1")


def counts() -> Counts:
    lines = (TRACING / "kprobe_profile").read_text().split("\n")
    found = {words[0]: int(words[1]) for words in (line.split() for line in lines) if words}
    missed = [line for line in lines if line.split()[2:3] not in ([], ["0"])]
    assert not missed, missed
    # a spare area alone is read by the same command as a page
    return {**found, "reads": found["reads"] - found["spares"]}


def spent(do: Callable[[], object], times: int = 1) -> dict[str, float]:
    before = counts()
    do()
    after = counts()
    total = {name: after[name] - before[name] for name in PROBES}
    return {
        "times": times, "pages_read": total["reads"], "spares_read": total["spares"],
        "pages_written": total["writes"], "erases": total["erases"],
        "read_each": round(total["reads"] / times, 3), "written_each": round(total["writes"] / times, 3),
    }  # fmt: skip


def run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def mount() -> None:
    run("mount", "-t", "jffs2", "-o", "compr=none,noatime", "mtd0", str(TOP))


def erased() -> None:
    """An empty volume."""
    subprocess.run(["umount", str(TOP)], check=False, stderr=subprocess.DEVNULL)
    run("/share/flash_erase", "-j", "-q", CHIP, "0", "0")
    mount()


def quiet() -> None:
    """Wait until the thread that checks nodes after a mount has nothing to read any more."""
    last, same = counts(), 0
    while same < 4:
        time.sleep(0.5)
        now = counts()
        same, last = same + 1 if now == last else 0, now


def again() -> dict[str, dict[str, float]]:
    """What a mount of what is there reads, and what is read behind it until that is at rest."""
    run("umount", str(TOP))
    return {"mount": spent(mount), "behind_it": spent(quiet)}


def drop_caches() -> None:
    Path("/proc/sys/vm/drop_caches").write_text("3")


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def calibrate() -> Counts:
    """What ten pages cost that are written and read as such: the probes count that and nothing else."""
    run("/share/flash_erase", "-q", CHIP, "0", "1")
    Path("/tmp/ten").write_bytes(os.urandom(10 * PAGE))
    before = counts()
    run("/share/nandwrite", "-q", CHIP, "/tmp/ten")
    run("/share/nanddump", "-q", "-l", str(10 * PAGE), "-f", "/tmp/back", CHIP)
    run("/share/flash_erase", "-q", CHIP, "0", "1")
    after = counts()
    assert Path("/tmp/ten").read_bytes() == Path("/tmp/back").read_bytes()
    return {name: after[name] - before[name] for name in PROBES}


def mounts() -> dict[str, object]:
    erased()
    for number in range(200):
        put(TOP / str(number), b"content")
    found: dict[str, object] = {"closed": again()}
    for files in (100, 1000):
        erased()
        for number in range(files // SCALE):
            if number % 200 == 0:
                directory = TOP / f"dir{number}"
                directory.mkdir()
            (directory / str(number)).touch()
        found[f"of_{files // SCALE}_files"] = again()
        print("mount", files, time.monotonic(), file=sys.stderr, flush=True)
    return found


def lookups() -> dict[str, object]:
    erased()
    places = []
    for number in range(DIRECTORIES):
        files = FIRST_FILES + (LAST_FILES - FIRST_FILES) * number // (DIRECTORIES - 1)
        directory = TOP / f"dir{number}"
        directory.mkdir()
        names = [directory / f"file{number}.{one}" for one in range(files)]
        for name in names:
            name.touch()
        places.append((files, names))
    again()
    rows, reads, times = [], 0, 0
    for files, names in places:
        some = names[:: 5 * SCALE]

        def look(some: list[Path] = some) -> None:
            for name in some:
                drop_caches()
                os.close(os.open(name, os.O_RDONLY))

        row = spent(look, len(some))
        rows.append({"files": files, "read_each": row["read_each"]})
        reads, times = reads + int(row["pages_read"]), times + len(some)
    return {"directories": rows, "read_each": round(reads / times, 3)}


def changes() -> dict[str, object]:
    erased()
    one, two = TOP / "one", TOP / "two"
    one.mkdir()
    two.mkdir()
    os.sync()
    names = [f"file{number}" for number in range(EACH)]

    def each(do: Callable[[str], object]) -> dict[str, float]:
        def all_of_it() -> None:
            for name in names:
                do(name)
                os.sync()

        return spent(all_of_it, EACH)

    def write(path: Path, content: bytes) -> None:
        with path.open("r+b") as file:
            file.write(content)

    found: dict[str, object] = {
        "create": each(lambda name: (one / name).touch()),
        "write_small": each(lambda name: write(one / name, b"x" * 100)),
        "write_page": each(lambda name: write(one / name, b"x" * PAGE)),
        "overwrite_page": each(lambda name: write(one / name, b"y" * PAGE)),
        "rename": each(lambda name: (one / name).rename(one / f"new{name}")),
        "rename_across": each(lambda name: (one / f"new{name}").rename(two / name)),
        "link": each(lambda name: os.link(two / name, one / f"link{name}")),
        "unlink_link": each(lambda name: (one / f"link{name}").unlink()),
        "delete": each(lambda name: (two / name).unlink()),
        "mkdir": each(lambda name: (one / f"dir{name}").mkdir()),
        "rmdir": each(lambda name: (one / f"dir{name}").rmdir()),
    }

    def many() -> None:
        for name in names:
            (one / f"many{name}").touch()
        os.sync()

    found["create_many_then_fsync"] = spent(many, EACH)
    return found


def postmark() -> dict[str, object]:
    """As in f2tools.dffs.report, with the same numbers by chance."""
    erased()
    chance = random.Random(1)
    directories = [TOP / f"s{number}" for number in range(max(1, POSTMARK_DIRECTORIES // SCALE))]
    for directory in directories:
        directory.mkdir()
    files: list[Path] = []
    made = iter(range(1 << 30))
    content = chance.randbytes(POSTMARK_BYTES)

    def create() -> None:
        path = chance.choice(directories) / f"f{next(made)}"
        put(path, content)
        files.append(path)

    def delete() -> None:
        files.pop(chance.randrange(len(files))).unlink()

    def operate() -> None:
        what = chance.random()
        if what < 0.25:
            chance.choice(files).read_bytes()
        elif what < 0.5:
            with chance.choice(files).open("r+b") as file:
                file.seek(POSTMARK_BYTES)
                file.write(content[: chance.randrange(1, 4096)])
        elif what < 0.75:
            create()
        elif len(files) > 1:
            delete()

    def phase(do: Callable[[], None], times: int) -> dict[str, float]:
        def all_of_it() -> None:
            for _ in range(times):
                do()
            os.sync()

        return spent(all_of_it, times)

    count = POSTMARK_FILES // SCALE
    phases = {"create": phase(create, count), "mixed": phase(operate, OPERATIONS // SCALE)}
    phases["delete"] = phase(delete, len(files))
    sums = {name: sum(int(row[name]) for row in phases.values()) for name in ("pages_read", "pages_written", "erases")}
    return {"directories": len(directories), "files": count, "operations": OPERATIONS // SCALE, **sums,
            "phases": phases}  # fmt: skip


def main() -> None:
    TOP.mkdir(exist_ok=True)
    probe()
    steps = {"calibration": calibrate, "mount": mounts, "lookup": lookups, "change": changes, "postmark": postmark}
    found: dict[str, object] = {"kernel": os.uname().release, "scale": SCALE}
    for name in sys.argv[2:] or list(steps):
        found[name] = steps[name]()
        print(name, time.monotonic(), file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
