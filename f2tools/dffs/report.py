"""The paper's figures as counts: pages that a mount, a look-up, a change read and write, on a chip in memory.

Nothing is timed.  What a look-up reads is counted with the mapping table in memory and no other page; what a change
writes, with an fsync after each.  JFFS2 stands beside it as it was measured, YAFFS2 as a model that says so.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from f2tools.dffs.layout import PAGE_KINDS, ROOT_ID, Shape
from f2tools.dffs.mkfs import format_chip
from f2tools.dffs.nodes import Directory
from f2tools.dffs.volume import Volume
from f2tools.dffs.write import WritableVolume
from f2tools.flash.nand import Geometry, Nand

FIRST_FILES, LAST_FILES, DIRECTORIES = 50, 200, 10
EACH = 40  # changes of a kind
FILES = (100, 1000, 10000)  # on the volumes that are mounted
POSTMARK = {"directories": 100, "files": 1000, "file_bytes": 128 << 10, "operations": 2000}
COMPILE = {"directories": 40, "sources": 800, "headers": 300, "includes": 20, "source_bytes": 12 << 10,
           "object_bytes": 20 << 10}  # fmt: skip


@dataclass
class Spent:
    """Pages read (and spare areas alone) and written, by what was done; and how often it was."""

    times: int = 0
    reads: int = 0
    spares: int = 0
    writes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: totals, and the means."""
        each = max(1, self.times)
        return {
            "times": self.times, "pages_read": self.reads, "spares_read": self.spares, "pages_written": self.writes,
            "read_each": round(self.reads / each, 3), "written_each": round(self.writes / each, 3),
            "written_by_kind": self.kinds,
        }  # fmt: skip


def together(times: int, spent: Iterable[Spent]) -> Spent:
    """The sum of what was spent, as that of so many."""
    whole, kinds = Spent(times), Counter[str]()
    for one in spent:
        whole.reads, whole.spares, whole.writes = (
            whole.reads + one.reads, whole.spares + one.spares, whole.writes + one.writes,
        )  # fmt: skip
        kinds.update(one.kinds)
    whole.kinds = dict(kinds)
    return whole


@contextmanager
def spending(volume: Volume, times: int = 1) -> Iterator[Spent]:
    """Count what is read and written."""
    pages = volume.pages
    before = pages.reads, pages.spare_reads, pages.writes
    log = getattr(volume, "log", None)
    kinds = dict(log.written) if log is not None else {}
    spent = Spent(times)
    yield spent
    spent.reads, spent.spares, spent.writes = (
        now - then for now, then in zip((pages.reads, pages.spare_reads, pages.writes), before, strict=True)
    )
    if log is not None:
        spent.kinds = {
            PAGE_KINDS[kind]: number - kinds.get(kind, 0)
            for kind, number in sorted(log.written.items())
            if number > kinds.get(kind, 0)
        }


def measure(shape: Shape, *, scale: int = 1, seed: int = 1, advance: Callable[[int], None] = lambda _: None) -> Any:
    """All figures; `scale` divides the sizes of the workloads."""
    steps: dict[str, Callable[[], Any]] = {
        "mount": lambda: mounts(shape),
        "mount_by_files": lambda: [mount_with(shape, max(1, files // scale)) for files in FILES],
        "lookup": lambda: lookups(shape, seed),
        "change": lambda: changes(shape),
        "memory": lambda: [memory(shape, files // scale) for files in (1000, 10000)],
        "postmark": lambda: postmark(shape, scale, seed),
        "compile": lambda: compilation(shape, scale, seed),
        "models": lambda: models(shape),
        "measured": measured,
    }
    found: dict[str, Any] = {
        "chip": {"blocks": shape.blocks, "page_size": shape.page_size, "pages_per_block": shape.pages_per_block},
        "scale": scale,
    }
    for name, step in steps.items():
        found[name] = step()
        advance(1)
    return found


def chip_of(shape: Shape) -> Nand:
    """A chip in memory with an empty volume."""
    chip = Nand(Geometry(shape.blocks, shape.page_size, shape.spare_size, shape.pages_per_block))
    format_chip(chip, uuid=bytes(16), now=0)
    return chip


def opened(chip: Nand) -> WritableVolume:
    """Its volume, with a clock of its own."""
    ticks = count(1)
    return WritableVolume(chip, clock=lambda: next(ticks) * 1_000_000_000)


def mounts(shape: Shape) -> dict[str, Any]:
    """What a mount reads: of a volume that was closed, and after a power cut."""
    chip = chip_of(shape)
    made = opened(chip)
    for number in range(200):
        made.write(made.create(ROOT_ID, b"%d" % number, 0o644), 0, b"content")
    made.close()
    found = {"closed": _mount(chip)}
    made = opened(chip)
    for number in range(100):
        made.create(ROOT_ID, b"new%d" % number, 0o644)
        made.sync()
    made.abandon()
    return found | {"after_a_cut": _mount(chip)}


def mount_with(shape: Shape, files: int) -> dict[str, int]:
    """What a mount of a closed volume with so many files reads, and the bytes that it then holds."""
    chip = chip_of(shape)
    made = opened(chip)
    _fill(made, files)
    made.close()
    del made
    tracemalloc.start()
    seen = opened(chip)
    seen.directory(ROOT_ID)
    found = {
        "files": files, "pages_read": seen.pages.reads, "spares_read": seen.pages.spare_reads,
        "bytes": tracemalloc.get_traced_memory()[0],
    }  # fmt: skip
    tracemalloc.stop()
    return found


def _fill(made: WritableVolume, files: int) -> None:
    """Empty files, 200 to a directory."""
    directory = 0
    for number in range(files):
        if number % 200 == 0:
            directory = made.mkdir(ROOT_ID, b"dir%d" % number, 0o755)
        made.create(directory, b"%d" % number, 0o644)
    made.sync()


def _mount(chip: Nand) -> dict[str, int]:
    seen = Volume(chip)
    seen.directory(ROOT_ID)
    return {"pages_read": seen.pages.reads, "spares_read": seen.pages.spare_reads}


def lookups(shape: Shape, seed: int) -> dict[str, Any]:
    """What opening a file by its name reads, in directories of 50 to 200 files; a stat reads the same."""
    made = opened(chip_of(shape))
    rows: list[dict[str, Any]] = []
    total = Spent()
    for number in range(DIRECTORIES):
        files = FIRST_FILES + (LAST_FILES - FIRST_FILES) * number // (DIRECTORIES - 1)
        ino = made.mkdir(ROOT_ID, b"dir%d" % number, 0o755)
        names = [b"file%d.%d" % (number * seed, one) for one in range(files)]
        for name in names:
            made.create(ino, name, 0o644)
        made.sync()
        with spending(made, files) as spent:
            for name in names:
                made._nodes.clear()
                assert made.find(made.directory(ino), name) is not None
        directory = made.directory(ino)
        rows.append(
            {"files": files, "read_each": round(spent.reads / files, 3), "virtual_inodes": directory.pages}
        )  # fmt: skip
        total.times, total.reads = total.times + files, total.reads + spent.reads
    return {"buckets": shape.buckets, "directories": rows, "read_each": round(total.reads / total.times, 3)}


def changes(shape: Shape) -> dict[str, Any]:
    """What a change writes that is made safe by itself, and what it takes to make many safe at once."""
    made = opened(chip_of(shape))
    directory, other = made.mkdir(ROOT_ID, b"one", 0o755), made.mkdir(ROOT_ID, b"two", 0o755)
    made.sync()
    size = shape.page_size
    inos: list[int] = []

    def names(kind: str) -> list[bytes]:
        return [f"{kind}{number}".encode() for number in range(EACH)]

    def each(do: Callable[[int], object]) -> dict[str, Any]:
        with spending(made, EACH) as spent:
            for number in range(EACH):
                do(number)
                made.sync()
        return spent.as_dict()

    file = names("file")
    found = {
        "create": each(lambda n: inos.append(made.create(directory, file[n], 0o644))),
        "write_small": each(lambda n: made.write(inos[n], 0, b"x" * 100)),
        "write_page": each(lambda n: made.write(inos[n], 0, b"x" * size)),
        "overwrite_page": each(lambda n: made.write(inos[n], 0, b"y" * size)),
        "rename": each(lambda n: made.rename(directory, file[n], directory, b"new" + file[n])),
        "rename_across": each(lambda n: made.rename(directory, b"new" + file[n], other, file[n])),
        "link": each(lambda n: made.link(inos[n], directory, b"link" + file[n])),
        "unlink_link": each(lambda n: made.unlink(directory, b"link" + file[n])),
        "delete": each(lambda n: made.unlink(other, file[n])),
        "mkdir": each(lambda n: made.mkdir(directory, b"dir" + file[n], 0o755)),
        "rmdir": each(lambda n: made.rmdir(directory, b"dir" + file[n])),
    }
    with spending(made, EACH) as spent:
        for name in names("many"):
            made.create(directory, name, 0o644)
        made.sync()
    found["create_many_then_fsync"] = spent.as_dict()
    return found


def memory(shape: Shape, files: int) -> dict[str, int]:
    """Most bytes that the volume had at once while all files were made, and then looked up; 200 to a directory."""
    chip = chip_of(shape)
    tracemalloc.start()
    made = opened(chip)
    _fill(made, files)
    for entry in made.entries(made.directory(ROOT_ID)):
        assert isinstance(entry.inode, Directory)
        for _ in made.entries(entry.inode):
            pass
    _, peak = tracemalloc.get_traced_memory()
    kept, least = len(made._nodes), made.keep_nodes
    tracemalloc.stop()
    return {"files": files, "peak_bytes": peak, "nodes_kept": kept, "most_nodes": least}


def postmark(shape: Shape, scale: int, seed: int) -> dict[str, Any]:
    """Postmark: files are made; half of the operations read or append, half delete or make; all are deleted then."""
    made, chance = opened(chip_of(shape)), random.Random(seed)
    size = POSTMARK["file_bytes"]
    directories = [made.mkdir(ROOT_ID, b"s%d" % n, 0o755) for n in range(max(1, POSTMARK["directories"] // scale))]
    files: list[tuple[int, bytes]] = []
    next_name = count()
    content = chance.randbytes(size)
    fits = made.capacity * shape.page_size * 3 // 4 // (size + 2 * shape.page_size)

    def create() -> None:
        place = chance.choice(directories), b"f%d" % next(next_name)
        made.write(made.create(*place, 0o644), 0, content)
        files.append(place)

    def delete() -> None:
        made.unlink(*files.pop(chance.randrange(len(files))))

    def operate() -> None:
        what = chance.random()
        if what < 0.25:
            ino = made.lookup(*chance.choice(files))
            made.read_at(ino, 0, size)
        elif what < 0.5:
            ino = made.lookup(*chance.choice(files))
            made.write(ino, size, content[: chance.randrange(1, 4096)])
        elif what < 0.75 and len(files) < fits:
            create()
        elif len(files) > 1:
            delete()

    wanted = min(POSTMARK["files"] // scale, fits)
    operations = POSTMARK["operations"] // scale
    phases: dict[str, Spent] = {}
    for name, do, times in (("create", create, wanted), ("mixed", operate, operations), ("delete", delete, 0)):
        times = times or len(files)
        with spending(made, times) as phases[name]:
            for _ in range(times):
                do()
            made.sync()
    erases = made.space.erases[made.space.usable]
    return {
        "directories": len(directories), "files": wanted, "operations": operations,
        **together(operations, phases.values()).as_dict(),
        "phases": {name: spent.as_dict() for name, spent in phases.items()},
        "erases_least": int(erases.min()), "erases_most": int(erases.max()),
    }  # fmt: skip


def compilation(shape: Shape, scale: int, seed: int) -> dict[str, Any]:
    """Like a compilation of a kernel: each source is read, and headers, by their paths; an object is written."""
    chip, chance = chip_of(shape), random.Random(seed)
    made = opened(chip)
    include = made.mkdir(ROOT_ID, b"include", 0o755)
    text, code = b"text" * (COMPILE["source_bytes"] // 4), b"code" * (COMPILE["object_bytes"] // 4)
    headers = [b"h%d.h" % number for number in range(max(1, COMPILE["headers"] // scale))]
    for name in headers:
        made.write(made.create(include, name, 0o644), 0, text[:4000])
    directories = [made.mkdir(ROOT_ID, b"drv%d" % n, 0o755) for n in range(max(1, COMPILE["directories"] // scale))]
    sources = [(chance.choice(directories), b"s%d.c" % number) for number in range(COMPILE["sources"] // scale)]
    for directory, name in sources:
        made.write(made.create(directory, name, 0o644), 0, text)
    made.close()
    made = opened(chip)
    with spending(made, len(sources)) as spent:
        for directory, name in sources:
            made.read_at(made.lookup(directory, name), 0, len(text))
            for header in chance.sample(headers, min(COMPILE["includes"], len(headers))):
                made.read_at(made.lookup(include, header), 0, 4000)
            made.write(made.create(directory, name[:-1] + b"o", 0o644), 0, code)
        made.sync()
    return {"sources": len(sources), "headers": len(headers), **spent.as_dict()}


def measured() -> dict[str, Any]:
    """What Linux's JFFS2 reads and writes for the same, on nandsim's chip of 256 MiB, and how that was counted."""
    return {"jffs2": json.loads(Path(__file__).with_name("jffs2.json").read_text())}


def models(shape: Shape) -> dict[str, Any]:
    """What others would read and write, from what is known about them; not measured."""
    return {
        "measured": False,
        "yaffs2": {
            "mount": {"spares_read": shape.pages},
            "create": {"written_each": 1},
            "delete": {"written_each": 1},
            "why": "without a checkpoint a mount reads the spare area of every page; a change of an object writes its "
            "header, one page, and no directory",
        },
        "jffs2": {
            "mount": {"pages_read": shape.pages},
            "mount_with_summaries": {"pages_read": shape.blocks},
            "create": {"written_each": 1},
            "delete": {"written_each": 1},
            "why": "a mount reads every node, or the summary at the end of each erase block; the nodes of inode and "
            "name of a create share a page when it is made safe by itself",
        },
    }
