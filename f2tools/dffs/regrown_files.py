"""The files of a damaged volume as they should be: where their content lies, and the changes to their inodes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from f2tools.dffs.derive import Walk
from f2tools.dffs.layout import DATA, INDEX, index_key
from f2tools.dffs.mending import Mending
from f2tools.dffs.nodes import File
from f2tools.dffs.scan import UNKNOWN, WHOLE, WRONG
from f2tools.errors import F2fsError
from f2tools.repaired import Repair
from f2tools.text import printable


@dataclass
class Fix:
    """The changes to a node: only its place, or the fields that are not None."""

    name: bytes | None = None
    parent: int | None = None
    links: int | None = None
    pages: int | None = None
    size: int | None = None
    content: dict[int, int] | None = None
    """By page of the file: where it lies."""
    as_read: list[int] = field(default_factory=list)
    """Pages of the file to be written anew with the wrong bits that they have."""


class RegrownFiles(Walk):
    """What becomes of files, by what leads to them."""

    def __init__(self, volume: Mending, said: Repair) -> None:
        super().__init__(volume, self._told, volume.advance)
        self.mending = volume
        self.scan = volume.scan
        self.said = said
        self.fixes: dict[int, Fix] = {}
        """By what leads to a node."""
        self.inos: set[int] = set()
        """Numbers of the files that are in the tree."""
        self.told: set[int] = set()
        """Pages that can't be used and that something leads to: it is said what became of that."""
        self._trouble = False

    def _told(self, code: str, detail: str, ino: int | None, page: int | None) -> None:
        self._trouble = True

    def take(self, page: int, ino: int | None) -> bool:
        if not 0 < page < self.shape.pages or self.reached.live[page]:
            return False
        self.reached.live[page] = True
        return True

    def fix(self, pointer: int) -> Fix:
        """What has to change of the node that this leads to."""
        return self.fixes.setdefault(pointer, Fix())

    def lose(self, what: str) -> None:
        """Say once that something is lost."""
        if what not in self.said.lost:
            self.said.lost.append(what)

    def leads_somewhere(self, file: File) -> bool:
        """Whether a symbolic link has a target; True for other files."""
        if not file.is_link:
            return True
        try:
            target = self.volume.readlink(file)
        except (F2fsError, OSError):
            target = b""
        if target and b"\0" not in target:
            return True
        self.lose(f"symbolic link {shown(file.name)}, inode {file.ino}: its target can't be read")
        return False

    def file_at(self, file: File, pointer: int) -> None:
        """A file's pages; what is wrong with them is noted."""
        self.advance(1)
        self.reached.files += 1
        self.inos.add(file.ino)
        self.reached.last_ino = max(self.reached.last_ino, file.ino)
        older = file.page in self.mending.older
        if older:
            self.said.lost.append(f"what changed in inode {file.ino} since an older page of it was written")
        if file.inline is not None or not (file.is_file or file.is_link):
            return
        found, indexes, unusable, sound = self.map_of(file)
        if not sound or older:
            end = None if self.mending.sure or older else -(-file.size // self.shape.page_size)
            for number, page in self.scan.content_of(file.ino).items():
                if number not in found and (end is None or number < end) and self.take(page, file.ino):
                    found[number] = page
            for page in indexes:
                self.reached.live[page] = False
            if not older:
                self.say_missing(file, {number: page for number, page in unusable.items() if number not in found})
            self.fix(pointer).content = found
            self.said.done.append(f"inode {file.ino}: where its content lies is made anew, {len(found)} pages")
        elif file.pages != len(found) + len(indexes):
            self.fix(pointer).pages = len(found) + len(indexes)
        self.check_content(file, found, pointer)

    def map_of(self, file: File) -> tuple[dict[int, int], list[int], dict[int, int], bool]:
        """(where the pages of a file are, its index pages, where they should be and are not, whether nothing was
        wrong)."""
        direct, per = self.shape.direct, self.shape.pointers
        found: dict[int, int] = {}
        indexes: list[int] = []
        unusable: dict[int, int] = {}
        sound = True
        most = -(-(file.size if file.is_link else self.shape.max_size) // self.shape.page_size)
        todo = [(level, 0, file.slots[direct + level]) for level in (2, 1, 0) if file.slots[direct + level]]
        numbers = [(place, page) for place, page in enumerate(file.slots[:direct]) if page]
        while True:
            for number, page in numbers:
                right = number < most and self.scan.is_content(page, DATA, file.ino, number)
                if right and self.take(page, file.ino):
                    found[number] = page
                else:
                    unusable[number] = page
                    sound = False
            numbers = []
            if not todo:
                return found, indexes, unusable, sound
            level, number, page = todo.pop()
            below = self.index_at(file, level, number, page)
            if below is None or not self.take(page, file.ino):
                self.told.add(page)
                sound = False
                continue
            indexes.append(page)
            if level:
                base = number * per + 1
                todo += [(level - 1, base + place, one) for place, one in enumerate(below) if one]
            else:
                base = direct + number * per
                numbers = [(base + place, one) for place, one in enumerate(below) if one]

    def index_at(self, file: File, level: int, number: int, page: int) -> array[int] | None:
        """An index page of a file; None where it can't be used."""
        if not self.scan.is_content(page, INDEX, file.ino, index_key(level, number)) or self.scan.state[page] != WHOLE:
            return None
        return array("I", self.mending.pages.content(page))

    def say_missing(self, file: File, missing: dict[int, int]) -> None:
        """Content of which no page is left, by page of the file: where it lay; it is zeros from now on."""
        self.told |= {page for page in missing.values() if 0 < page < self.shape.pages}
        size = self.shape.page_size
        within = sorted(number for number in missing if number * size < file.size)
        if within:
            self.said.lost.append(
                f"inode {file.ino} {shown(file.name)}: content that is on no page that can be read, and is zeros now, "
                f"in bytes {byte_runs(within, size)}"
            )

    def check_content(self, file: File, found: dict[int, int], pointer: int) -> None:
        """Pages that can't be read as they were written, and pages behind the end of the file."""
        size = self.shape.page_size
        wrong = sorted(number for number, page in found.items() if self.scan.state[page] in (WRONG, UNKNOWN))
        if wrong:
            self.fix(pointer).as_read = wrong
            self.said.lost.append(
                f"inode {file.ino} {shown(file.name)}: bits of its content, which is kept as it can be read, in bytes "
                + byte_runs(wrong, size)
            )
        last = max(found, default=-1)
        if last * size >= file.size and not file.is_link:
            self.fix(pointer).size = (last + 1) * size
            self.said.lost.append(
                f"where inode {file.ino} ended: by its own size at {file.size}, and it has content up to "
                f"{(last + 1) * size}"
            )  # fmt: skip


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """(first, last) of each run in ascending numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def byte_runs(numbers: list[int], size: int) -> str:
    """The bytes of these pages, in ascending order, for people."""
    return ", ".join(f"{first * size} to {(last + 1) * size - 1}" for first, last in runs(numbers))


def shown(name: bytes) -> str:
    """A name as text."""
    return printable(name.decode("utf-8", "surrogateescape"))
