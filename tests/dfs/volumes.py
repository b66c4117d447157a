"""Small volumes for tests, in memory; what a volume holds as plain values; and damage done to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from f2tools.device.changes.record import Recorder
from f2tools.dfs.check import DfsReport, check
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import ROOT_INO, Geometry
from f2tools.dfs.mkfs import format_layer, geometry_for
from f2tools.dfs.volume import Volume
from f2tools.dfs.write import WritableVolume
from f2tools.flash.vsl import WHOLE_SPACE, Shape, Vsl, create_on_device, open_vsl
from tests.device.memory import Memory

SHAPE = Shape(page_size=4096, pages_per_block=16, blocks=80)
SIZE = 4 << 20
MIDDLE = Shape(page_size=4096, pages_per_block=8, blocks=24)
TIGHT = Shape(page_size=4096, pages_per_block=8, blocks=12)
TIGHT_SIZE = 340 * 512
CHUNK, SLOT = 64 << 20, 2048
FOLDER, FILE, LINK, INNER = 2, 3, 4, 5  # the inodes of `sample`
hashed = False  # the kind of directories that volumes are made with; see conftest.py


def clock() -> Callable[[], int]:
    """A clock that goes on by a second each time it is looked at."""
    ticks = count(1_000)
    return lambda: next(ticks) * 1_000_000_000


def formatted(shape: Shape = SHAPE, size: int = SIZE, chunk: int | None = CHUNK, slot: int | None = SLOT) -> Vsl:
    """A layer in memory with an empty volume: small chunks and slots, unless told otherwise."""
    layer = create_on_device(Memory(shape.image_bytes), size, shape, space_blocks=WHOLE_SPACE)
    format_layer(layer, geometry_for(size // 512, chunk, slot, hashed=hashed), uuid=bytes(16), now=0)
    layer.checkpoint()
    return layer


def volume(**settings: object) -> WritableVolume:
    """An empty volume, to be changed."""
    return WritableVolume(formatted(**settings), clock=clock())  # type: ignore[arg-type]


def sample(**settings: object) -> bytes:
    """An image with a directory that holds a file, a link and a directory."""
    made = volume(**settings)
    directory = made.mkdir(ROOT_INO, b"folder", 0o755)
    file = made.create(directory, b"file", 0o644)
    made.write(file, 0, b"content" * 100)
    link = made.symlink(directory, b"link", b"file")
    inner = made.mkdir(directory, b"inner", 0o755)
    assert (directory, file, link, inner) == (FOLDER, FILE, LINK, INNER)
    made.close()
    assert codes(content(made)) == set()
    return content(made)


def content(of: WritableVolume) -> bytes:
    """The image that a volume is in, as it is."""
    return bytes(of.layer.medium.device.content)  # type: ignore[attr-defined]


def reading(image: bytes) -> Volume:
    return Volume(open_vsl(Memory(image)))


def writing(image: bytes) -> WritableVolume:
    return WritableVolume(open_vsl(Memory(image)), clock=clock())


def recorded(shape: Shape = TIGHT, size: int = TIGHT_SIZE) -> tuple[WritableVolume, Recorder, bytes]:
    """A fresh volume whose device records what is done from now on, and what the device holds now."""
    before = bytes(formatted(shape, size).medium.device.content)  # type: ignore[attr-defined]
    recorder = Recorder(Memory(before))
    return WritableVolume(open_vsl(recorder), clock=clock()), recorder, before


def codes(image: bytes) -> set[str]:
    """The codes of what a check finds."""
    return {finding.code for finding in report(image).findings}


def report(image: bytes) -> DfsReport:
    return check(reading(image))


def tree(of: Volume) -> dict[bytes, object]:
    """By path: the bytes of files, the target of links, the number of links of directories."""
    found: dict[bytes, object] = {}
    todo: list[tuple[bytes, Inode]] = [(b"", of.inode(ROOT_INO))]
    while todo:
        path, inode = todo.pop()
        if inode.is_dir:
            found[path or b"/"] = inode.links
            todo += [
                (path + b"/" + entry.name, of.inode(entry.ino))
                for entry in of.dentries(inode)
                if entry.name not in (b".", b"..")
            ]
        elif inode.is_link:
            found[path] = (of.readlink(inode),)
        else:
            found[path] = of.read_content(inode, 0, inode.size)
    return found


def change_block(layer: Vsl, block: int, change: Callable[[bytearray], object]) -> None:
    """Change a block of the space; it must differ after that."""
    before = layer.read_vblocks(block, 1)
    after = bytearray(before)
    change(after)
    assert bytes(after) != before
    layer.write_vblocks(block, bytes(after))


def without_past(image: bytes) -> bytes:
    """The same volume in a layer whose log holds nothing but what is mapped."""
    old = open_vsl(Memory(image))
    new = create_on_device(Memory(SHAPE.image_bytes), SIZE, SHAPE, space_blocks=WHOLE_SPACE)
    for start, blocks in old.extents():
        new.write_vblocks(start, old.read_vblocks(start, blocks))
    new.checkpoint()
    return bytes(new.medium.device.content)  # type: ignore[attr-defined]


def geometry() -> Geometry:
    return geometry_for(SIZE // 512, CHUNK, SLOT, hashed=hashed)
