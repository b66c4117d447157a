"""The loads of the papers' evaluations, for any file system that has the few calls of `Files`.

Everything here and in `files` uses only the standard library: it is also run as a program, by the Python of a guest or
of this machine, on a directory (`python -m f2tools.experiment.loads PREPARE|RUN LOAD FILE DIRECTORY`, parameters and
seed in FILE).  Threads of the papers' tools are taken in turns, so that a load is the same calls in the same order for
every file system and depends on nothing but its seed.  A load has two halves that may run in two processes: `prepare`
makes what is there before, `run` is what is measured.
"""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from f2tools.experiment.files import BLOCK, PIECE, Directory, Files, Rounds, Watch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BATCH = 64  # single blocks that are passed together
SYNC_EVERY = 4096  # blocks, where a load is said to be made safe now and then
BIGGEST = 64 * MIB  # of the files that only fill the volume
SLACK = 0.004  # of the room, left for directories and nodes when a volume is filled


Params = dict[str, Any]


class Load:
    """One load; `params` are the papers' numbers, scaled."""

    def __init__(self, params: Params, seed: int) -> None:
        self.params = params
        self.seed = seed

    def chance(self, what: str) -> random.Random:
        """A source of chance of its own for each use."""
        return random.Random(f"{self.seed} {what}")

    def prepare(self, files: Files) -> None:
        """Make the files that are there before the measurement."""

    def run(self, files: Files, watch: Watch) -> None:
        """Do what is measured."""
        raise NotImplementedError


def put(files: Files, path: str, size: int, fsync: bool = False, piece: int = PIECE) -> None:
    """A new file of this size."""
    file = files.create(path)
    try:
        for at in range(0, size, piece):
            files.write(file, at, min(piece, size - at))
        if fsync:
            files.fsync(file)
    finally:
        files.close(file)


def get(files: Files, path: str, size: int) -> None:
    """Read a whole file."""
    file = files.open(path)
    files.read(file, 0, size)
    files.close(file)


def append(files: Files, path: str, at: int, size: int, fsync: bool = False) -> None:
    """Lengthen a file."""
    file = files.open(path)
    try:
        files.write(file, at, size)
        if fsync:
            files.fsync(file)
    finally:
        files.close(file)


def batches(count: int, size: int = BATCH) -> Iterator[int]:
    """A number in pieces."""
    while count > 0:
        yield min(count, size)
        count -= size


class Iozone(Load):
    """A file written from start to end, then all its blocks of 4 KiB at random; the latter is measured.

    Where `fio` is asked for it does the latter: the same calls in an order of its own.
    """

    def prepare(self, files: Files) -> None:
        put(files, "iozone", self.params["file_bytes"], fsync=True, piece=512 * KIB)

    def run(self, files: Files, watch: Watch) -> None:
        if self.params.get("fio") and isinstance(files, Directory):
            self._fio(files)
            return
        blocks = list(range(self.params["file_bytes"] // BLOCK))
        self.chance("order").shuffle(blocks)
        file = files.open("iozone")
        for at in range(0, len(blocks), BATCH):
            some = blocks[at : at + BATCH]
            files.overwrite(file, some)
            watch.advance(len(some) / len(blocks))
        files.fsync(file)
        files.close(file)

    def _fio(self, files: Directory) -> None:
        size = self.params["file_bytes"]
        subprocess.run(
            ["fio", "--name=iozone", f"--filename={files.root}/iozone", "--rw=randwrite", f"--bs={BLOCK}",
             f"--size={size}", f"--randseed={self.seed}", "--ioengine=psync", "--end_fsync=1", "--output=/dev/null"],
            check=True,
        )  # fmt: skip
        files.calls.update({"write": size // BLOCK, "write_bytes": size, "fsync": 1})


class Sqlite(Load):
    """Records inserted, updated and deleted, one to a transaction, in SQLite's write-ahead mode, synchronous.

    Where `library` is asked for SQLite itself does it, with fdatasync as it is built today.  Else the calls are those
    that it made on a phone of the paper's time: frames of a page and 24 bytes behind the others of the log, an fsync,
    and when that has 1,000 the pages go to the database.
    """

    FRAME, HEAD, LIMIT = BLOCK + 24, 32, 1000
    PER_LEAF = 36  # records of 100 bytes in a page

    def run(self, files: Files, watch: Watch) -> None:
        if self.params.get("library") and isinstance(files, Directory):
            self._real(files, watch)
        else:
            self._as_it_calls(files, watch)

    def _real(self, files: Directory, watch: Watch) -> None:
        import sqlite3

        count = self.params["records"]
        base = sqlite3.connect(os.path.join(files.root, "test.db"), isolation_level=None)
        base.execute("PRAGMA page_size=4096")
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
        chance = self.chance("records")
        statements: list[tuple[str, Callable[[int], tuple[Any, ...]]]] = [
            ("INSERT INTO t VALUES (?, ?)", lambda n: (n, chance.randbytes(100))),
            ("UPDATE t SET v = ? WHERE id = ?", lambda n: (chance.randbytes(100), n)),
            ("DELETE FROM t WHERE id = ?", lambda n: (n,)),
        ]
        for sql, values in statements:
            for n in range(count):
                base.execute(sql, values(n))
                files.note("fsync")
                files.note("write", BLOCK)
                watch.advance(1 / count / 3)
        base.close()

    def _as_it_calls(self, files: Files, watch: Watch) -> None:
        count = self.params["records"]
        leaves = -(-count // self.PER_LEAF)
        base, log = files.create("test.db"), files.create("test.db-wal")
        files.write(base, 0, BLOCK)
        files.fsync(base)
        files.write(log, 0, self.HEAD)
        frames, changed = 0, {0}
        for phase in range(3):
            for n in range(count):
                leaf = 2 + n // self.PER_LEAF
                # a page that fills up brings a new one, an entry in the root and a larger database in its first page
                pages = {leaf, 1, 0} if phase != 1 and n % self.PER_LEAF == 0 else {leaf}
                for _ in pages:
                    files.write(log, self.HEAD + frames * self.FRAME, 24)
                    files.write(log, self.HEAD + frames * self.FRAME + 24, BLOCK)
                    frames += 1
                files.fsync(log)
                changed |= pages
                if frames >= self.LIMIT:
                    for page in sorted(changed):
                        files.write(base, page * BLOCK, BLOCK)
                    files.fsync(base)
                    frames, changed = 0, set()
                watch.advance(1 / count / 3)
        for page in range(2 + leaves):
            files.write(base, page * BLOCK, BLOCK)
        files.fsync(base)
        files.close(log)
        files.unlink("test.db-wal")
        files.close(base)


class Apps(Load):
    """Many small files, written in small pieces, each made safe; one call of a hundred reads."""

    def prepare(self, files: Files) -> None:
        files.mkdir("app")

    def run(self, files: Files, watch: Watch) -> None:
        chance = self.chance("app")
        count, each = self.params["files"], max(1, self.params["bytes"] // self.params["files"])
        for n in range(count):
            file = files.create(f"app/{n}")
            for at in range(0, each, BLOCK):
                files.write(file, at, min(BLOCK, each - at))
                files.fsync(file)
                if chance.random() < 0.01:
                    files.read(file, 0, BLOCK)
            files.close(file)
            watch.advance(1 / count)


class Videoserver(Load):
    """Large files written from start to end by threads in turns; one piece of five is read."""

    def run(self, files: Files, watch: Watch) -> None:
        chance = self.chance("video")
        size, count = self.params["file_bytes"], self.params["files"]
        waiting = list(range(count))
        open_files: list[list[int]] = []  # file, bytes so far
        pieces = count * -(-size // PIECE)
        while waiting or open_files:
            while waiting and len(open_files) < self.params["threads"]:
                open_files.append([files.create(f"video{waiting.pop(0)}"), 0])
            for one in list(open_files):
                file, at = one
                files.write(file, at, min(PIECE, size - at))
                if chance.random() < 0.25:
                    files.read(file, chance.randrange(0, at + 1), PIECE)
                one[1] = at + PIECE
                if one[1] >= size:
                    files.close(file)
                    open_files.remove(one)
                watch.advance(1 / pieces)


class Fileserver(Load):
    """Make a file, lengthen another, read one, delete one: 70 writes to 30 reads, nothing is made safe."""

    def prepare(self, files: Files) -> None:
        for n in range(-(-self.params["files"] // self.params["width"])):
            files.mkdir(f"d{n}")
        for n in range(self.params["files"]):
            put(files, self.path(n), self.params["file_bytes"])

    def path(self, n: int) -> str:
        """The name of a file by its number."""
        return f"d{n // self.params['width'] % -(-self.params['files'] // self.params['width'])}/f{n}"

    def run(self, files: Files, watch: Watch) -> None:
        self.rounds(files, watch, self.params["loops"], 0)

    def rounds(self, files: Files, watch: Watch, loops: int, which: int, share: float = 1.0) -> None:
        """So many loops of it; `which` round."""
        chance = self.chance(f"round {which}")
        size = self.params["file_bytes"]
        first = self.params["files"] + which * loops
        alive = self.alive(which)
        for n in range(first, first + loops):
            at = chance.randrange(len(alive))
            files.unlink(self.path(alive[at]))  # first, as on a full volume there is no room else
            alive[at] = alive[-1]
            alive.pop()
            put(files, self.path(n), size)
            alive.append(n)
            append(files, self.path(alive[chance.randrange(len(alive) // 2)]), size, self.params["append_bytes"])
            get(files, self.path(alive[chance.randrange(len(alive))]), size)
            watch.advance(share / loops)

    def alive(self, _which: int) -> list[int]:
        """The numbers of the files that are there."""
        return list(range(self.params["files"]))


class Varmail(Load):
    """Mails: one is deleted, one is made and made safe, one is lengthened and made safe, one is read."""

    def prepare(self, files: Files) -> None:
        for n in range(self.params["directories"]):
            files.mkdir(f"m{n}")
        for n in range(self.params["files"]):
            put(files, self.path(n), self.size(n))

    def path(self, n: int) -> str:
        """The name of a mail by its number."""
        return f"m{n % self.params['directories']}/{n}"

    def size(self, n: int) -> int:
        """How long it is at first: a gamma distribution, as Filebench has it."""
        return max(1, int(random.Random(f"{self.seed} {n}").gammavariate(1.5, self.params["file_bytes"] / 1.5)))

    def run(self, files: Files, watch: Watch) -> None:
        for _ in self.steps(files):
            watch.advance(1 / self.params["loops"])

    def steps(self, files: Files) -> Iterator[None]:
        """One mail after the other."""
        chance = self.chance("mail")
        alive = list(range(self.params["files"]))
        sizes = {n: self.size(n) for n in alive}
        for n in range(len(alive), len(alive) + self.params["loops"]):
            at = chance.randrange(len(alive))
            gone = alive[at]
            alive[at] = n
            files.unlink(self.path(gone))
            del sizes[gone]
            sizes[n] = self.size(n)
            put(files, self.path(n), sizes[n], fsync=True)
            other = alive[chance.randrange(len(alive))]
            more = 1 + int(chance.expovariate(1 / self.params["file_bytes"]))
            get(files, self.path(other), sizes[other])
            append(files, self.path(other), sizes[other], more, fsync=True)
            sizes[other] += more
            get(files, self.path(alive[chance.randrange(len(alive))]), BLOCK)
            yield


class Oltp(Load):
    """Blocks of large files overwritten at random, each made safe, and twenty times as many reads."""

    def prepare(self, files: Files) -> None:
        for n in range(self.params["files"]):
            put(files, f"table{n}", self.params["file_bytes"])

    def run(self, files: Files, watch: Watch) -> None:
        chance = self.chance("rows")
        blocks = self.params["file_bytes"] // BLOCK
        tables = [files.open(f"table{n}") for n in range(self.params["files"])]
        for _ in range(self.params["writes"]):
            table = chance.choice(tables)
            files.overwrite(table, [chance.randrange(blocks)])
            files.fsync(table)
            for _ in range(self.params["reads_per_write"]):
                files.read(chance.choice(tables), chance.randrange(blocks) * BLOCK, BLOCK)
            watch.advance(1 / self.params["writes"])
        for table in tables:
            files.close(table)


class Multihead(Varmail):
    """Mails, and beside them pictures that are copied and stay."""

    def run(self, files: Files, watch: Watch) -> None:
        """Copying waits for nobody and mails wait for each fsync: `copied_each` bytes are copied for one of mail."""
        files.mkdir("photos")
        copied = mailed = 0
        size = self.params["picture_bytes"]
        for _ in self.steps(files):
            mailed += 2 * self.params["file_bytes"]
            while copied < self.params["pictures"] and copied * size < mailed * self.params["copied_each"]:
                put(files, f"photos/{copied}.jpg", size, piece=128 * KIB)
                copied += 1
            watch.advance(1 / self.params["loops"])


class Cleaning(Load):
    """Cold data, and a hot region whose blocks are overwritten at random, in rounds."""

    def prepare(self, files: Files) -> None:
        """Both regions; their sizes are shares of what users may have on the empty volume."""
        whole = files.free()
        for name in ("cold", "hot"):
            self._region(files, name, int(whole * self.params[name] / 100))

    def _region(self, files: Files, name: str, size: int) -> None:
        for n in range(-(-size // BIGGEST)):
            put(files, f"{name}{n}", min(BIGGEST, size - n * BIGGEST) // BLOCK * BLOCK)

    def run(self, files: Files, watch: Watch) -> None:
        chance = self.chance("hot")
        hot: list[int] = []
        with suppress(FileNotFoundError):
            while True:
                hot.append(files.open(f"hot{len(hot)}"))
        rounds, writes = self.params["rounds"], self.params["round_bytes"] // BLOCK
        whole = sum(files.size(file) for file in hot) // BLOCK
        most = BIGGEST // BLOCK
        for _ in range(rounds):
            for count in batches(writes, SYNC_EVERY):
                for some in batches(count):
                    chosen: dict[int, list[int]] = {}
                    for _ in range(some):
                        number, block = divmod(chance.randrange(whole), most)
                        chosen.setdefault(number, []).append(block)
                    for number in sorted(chosen):
                        files.overwrite(hot[number], chosen[number])
                files.sync()
                watch.advance(count / writes / rounds)
            watch.round()


class AdaptiveFileserver(Fileserver):
    """The fileserver on a volume that is nearly full, in rounds."""

    def prepare(self, files: Files) -> None:
        whole = files.free()
        super().prepare(files)
        fill_up(files, whole, 1 - self.params["full"] / 100)

    def alive(self, which: int) -> list[int]:
        """Bring back the state after the earlier rounds, by the same random numbers."""
        alive = list(range(self.params["files"]))
        for earlier in range(which):
            chance = self.chance(f"round {earlier}")
            loops = self.params["loops"]
            first = self.params["files"] + earlier * loops
            for n in range(first, first + loops):
                at = chance.randrange(len(alive))
                alive[at] = alive[-1]
                alive.pop()
                alive.append(n)
                chance.randrange(len(alive) // 2)
                chance.randrange(len(alive))
        return alive

    def run(self, files: Files, watch: Watch) -> None:
        for which in range(self.params["rounds"]):
            self.rounds(files, watch, self.params["loops"], which, 1 / self.params["rounds"])
            files.sync()
            watch.round()


def fill_up(files: Files, whole: int, left: float) -> None:
    """Files until only that share of `whole` is free."""
    number = 0
    while (room := files.free() - int(whole * left)) > BIGGEST // 16:
        put(files, f"full{number}", min(BIGGEST, int(room * (1 - SLACK))) // BLOCK * BLOCK)
        number += 1


class AdaptiveIozone(Load):
    """Files that fill the volume, and blocks of each overwritten at random, in rounds."""

    def prepare(self, files: Files) -> None:
        size = int(files.free() * (1 - SLACK)) // self.params["files"] // BLOCK * BLOCK
        for n in range(self.params["files"]):
            put(files, f"iozone{n}", size)

    def run(self, files: Files, watch: Watch) -> None:
        chance = self.chance("blocks")
        rounds, count = self.params["rounds"], self.params["files"]
        open_files: list[int] = []
        with suppress(FileNotFoundError):  # a volume that was full before has fewer
            while len(open_files) < count:
                open_files.append(files.open(f"iozone{len(open_files)}"))
        for _ in range(rounds):
            for file in open_files:
                blocks = files.size(file) // BLOCK
                for some in batches(self.params["round_bytes"] // BLOCK):
                    files.overwrite(file, [chance.randrange(blocks) for _ in range(some)])
                watch.advance(1 / rounds / count)
            files.sync()
            watch.round()


class Fsync(Load):
    """Blocks of files that are there overwritten at random, each made safe at once."""

    def prepare(self, files: Files) -> None:
        files.mkdir("f")
        for n in range(self.params["files"]):
            put(files, f"f/{n}", self.params["file_bytes"])

    def run(self, files: Files, watch: Watch) -> None:
        chance = self.chance("blocks")
        open_files = [files.open(f"f/{n}") for n in range(self.params["files"])]
        for _ in range(self.params["writes"]):
            file = chance.choice(open_files)
            files.overwrite(file, [chance.randrange(self.params["file_bytes"] // BLOCK)])
            files.fsync(file)
            watch.advance(1 / self.params["writes"])


class Replay(Load):
    """Calls that are given one by one, in rounds, each in a directory of its own; all is made safe after a round.

    A call is its name, the path within that directory, and what `Files` wants besides.
    """

    def prepare(self, files: Files) -> None:
        for n in range(len(self.params["rounds"])):
            files.mkdir(f"r{n}")

    def run(self, files: Files, watch: Watch) -> None:
        whole = sum(len(calls) for calls in self.params["rounds"])
        for n, calls in enumerate(self.params["rounds"]):
            handles: dict[str, int] = {}
            for call, name, *more in calls:
                path = f"r{n}/{name}" if name else f"r{n}"
                if call == "create":
                    handles[path] = files.create(path)
                elif call == "fsync" and name:
                    files.fsync(handles[path])
                elif call == "fsync":
                    files.fsync_directory(path)
                elif call == "write":
                    files.write(handles[path], *more)
                elif call == "mkdir":
                    files.mkdir(path)
                elif call == "unlink":
                    files.close(handles.pop(path))
                    files.unlink(path)
                watch.advance(1 / whole)
            for file in handles.values():
                files.close(file)
            files.sync()
            watch.round()


LOADS: dict[str, type[Load]] = {
    "iozone": Iozone, "sqlite": Sqlite, "apps": Apps, "videoserver": Videoserver, "fileserver": Fileserver,
    "varmail": Varmail, "oltp": Oltp, "multihead": Multihead, "cleaning": Cleaning,
    "adaptive-fileserver": AdaptiveFileserver, "adaptive-iozone": AdaptiveIozone, "fsync": Fsync,
    "replay": Replay,
}  # fmt: skip


def main(words: list[str]) -> int:
    """Do half of a load on a directory; prints what was called, and the counters of the device by round, as JSON."""
    half, name, given_in, root, *stat = words
    with open(given_in) as file:
        given = json.load(file)
    load = LOADS[name](given["params"], given["seed"])
    how = {name: given["params"][name] for name in ("sync_each", "pause", "direct") if name in given["params"]}
    files = Directory(root, **how)
    if half == "PREPARE":
        ended = False
        try:
            load.prepare(files)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            ended = True
        told = os.statvfs(root)
        print(json.dumps({"calls": files.calls, "enospc": ended, "full": 1 - told.f_bavail / told.f_blocks}))
        return 0
    watch = Rounds(stat[0] if stat else None)
    full = None
    try:
        load.run(files, watch)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        full = len(watch.kept) - 1 if watch.stat else 0
    with suppress(OSError):
        files.sync()
    print(json.dumps({"calls": files.calls, "rounds": watch.kept, "enospc_in_round": full}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
