"""Making a damaged volume sound from what is left of it, and saying what was lost.

An inode's place follows from its number, so what is mapped there tells its base, and how far it reaches; entries tell
its kind; names tell how many links it has.  What has lost its name gets one back that is still in the log of the layer,
or goes to `lost+found`; what leads nowhere is removed, and finally, what belongs to nothing is given back.

Every step writes one block, and each leaves a volume that is nearer to a sound one: a repair that was killed is simply
done again.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator
from zlib import crc32

from f2tools.dfs.buckets import BUCKET_BLOCKS, bucket_of
from f2tools.dfs.check import check
from f2tools.dfs.dentries import (
    EMPTY,
    HEAD,
    Dentry,
    Malformed,
    entries_of,
    entry_problem,
    first_block,
    with_entry,
    with_target,
    without_entry,
)
from f2tools.dfs.hashed import block_for
from f2tools.dfs.image import layer_in_memory, layer_to_change
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, DOTS, LINK_MAX, ROOT_INO, SUPER_PLACES, WAL_START, DirRecord, Geometry
from f2tools.dfs.leftover import leftovers, strays
from f2tools.dfs.older import older_names
from f2tools.dfs.remade import FROM_ITS_PLACE, inode_from
from f2tools.dfs.volume import Volume, read_super
from f2tools.dfs.wal import idle_head, put_in_place, read_head
from f2tools.errors import F2fsError
from f2tools.flash.vsl import Vsl
from f2tools.repaired import Repair, free_name
from f2tools.text import printable

LOST_AND_FOUND = b"lost+found"
_RECORD = DirRecord.unpacker()[0]


def rehearse(path: str, now: int) -> tuple[Repair, bool]:
    """(what a repair of an image does, whether its volume is sound after it), all of it in memory."""
    layer = layer_in_memory(path)
    try:
        said = repair(layer, now=now)
        return said, check(Volume(layer)).sound
    finally:
        layer.abandon()


def repair_image(path: str, now: int, undo: str | None = None) -> Repair:
    """Repair the volume in an image; with `undo`, what is overwritten in the image is kept in that new file."""
    layer = layer_to_change(path, undo)
    try:
        said = repair(layer, now=now)
    except BaseException:
        layer.abandon()
        raise
    layer.close()
    return said


def repair(layer: Vsl, *, now: int) -> Repair:
    """Repair the volume on a layer and make that safe; NotDfs where no superblock is left.  `now` is for new inodes."""
    return _Repairer(layer, now).run()


class _Repairer:
    """One repair of one volume."""

    def __init__(self, layer: Vsl, now: int) -> None:
        self.layer = layer
        self.now = now
        self.volume = Volume(layer)
        self.geo: Geometry = self.volume.geo
        # where pages are lost, content without an inode may have lost it with them
        self.clean = self.volume.clean or layer.lost_pages > 0
        self.said = Repair()
        self.modes: dict[int, int] = {}
        self.types: dict[int, Counter[int]] = {}  # what entries say of the kind of an inode that is not usable
        self.parents: dict[int, int] = {}
        self.names: Counter[int] = Counter()
        self.below: Counter[int] = Counter()

    def run(self) -> Repair:
        self.log()
        self.supers()
        self.inodes()
        self.directories()
        self.cut_circles()
        self.adopt()
        self.links()
        if self.geo.hashed:
            self.counts()
        self.layer.flush()
        self.space()
        self.lost_pages()
        self.finish()
        return self.said

    # -- the layer below

    def lost_pages(self) -> None:
        """Give up what damaged pages of the layer held, and tell it."""
        layer, lost = self.layer, self.layer.lost_pages
        for start, count in layer.in_damaged_pages():
            for block in range(start, start + count):
                try:
                    layer.read_vblocks(block, 1)
                except F2fsError:
                    ino = self.geo.owner(block)[1]
                    self.said.lost.append(f"block {block:#x}, of inode {ino}: reading it is an error from now on")
        if lost:
            self.said.lost.append(f"what {lost} pages of the storage layer held: content may be missing, or older")
            for ino in sorted(self.modes):
                if empty := self.volume.empty_blocks(self.volume.inode(ino)):
                    self.said.lost.append(f"content of inode {ino}, if {empty} blocks that are empty had some")
        if layer.opened.damaged or layer.opened.lost:
            layer.give_up_lost()
            self.said.done.append("the erase blocks with damaged pages emptied")

    # -- the system file

    def log(self) -> None:
        """Complete a waiting transaction; begin anew a log that can't be read."""
        if self.geo.hashed:
            return
        try:
            waiting = self.volume.waiting
        except F2fsError:
            try:
                seq = read_head(self.layer).seq
            except F2fsError:
                seq = 0
            self.layer.write_vblocks(WAL_START, idle_head(seq))
            self.volume.waiting = None
            self.said.done.append("write-ahead log begun anew")
            self.said.lost.append("a transaction that may have been in the write-ahead log")
            return
        if waiting is not None:
            put_in_place(self.layer, waiting)
            self.volume.waiting = None
            self.said.done.append(f"transaction {waiting.seq} of the write-ahead log put in its place")

    def supers(self) -> None:
        """Both superblocks are the one that counts."""
        for place in SUPER_PLACES:
            try:
                same = read_super(self.layer, place).build() == self.volume.sb.build()
            except F2fsError:
                same = False
            if not same:
                self.layer.write_vblocks(place, self.volume.sb.build().ljust(BLOCK, b"\0"))
                self.said.done.append(f"superblock at block {place} written anew")

    # -- inodes

    def inodes(self) -> None:
        """Make every inode that is there or has content usable, or remove it."""
        broken: set[int] = set()
        for ino in self.volume.inode_numbers():
            try:
                self.modes[ino] = self.usable(ino).mode
            except F2fsError:
                broken.add(ino)
        if self.clean:  # elsewhere such content never became part of a file
            broken |= {one.ino for one in leftovers(self.volume) if one.free}
        if ROOT_INO not in self.modes:
            broken.add(ROOT_INO)
        if not broken:
            return
        for ino in [*self.modes, *broken]:
            if ino in broken or stat.S_ISDIR(self.modes[ino]):
                self.note_types(ino)
        for ino in sorted(broken):
            self.remake(ino)

    def usable(self, ino: int) -> Inode:
        """An inode that is sound by itself; F2fsError where it isn't."""
        inode = self.volume.inode(ino)
        if inode.is_link:
            target = self.volume.readlink(inode)
            if not target or b"\0" in target:
                raise F2fsError("the link leads nowhere")
        if ino == ROOT_INO and not inode.is_dir:
            raise F2fsError("the root is no directory")
        return inode

    def note_types(self, directory: int) -> None:
        """What the entries at the place of a directory say of the kinds of their inodes."""
        base = self.geo.own_chunk(directory)
        for start, count in self.volume.mapped(base, self.geo.chunk_blocks):
            for block in range(start, start + count):
                try:
                    entries = entries_of(self.volume.block(block), 0)
                except (Malformed, F2fsError):
                    continue
                for entry in entries:
                    if entry.name not in DOTS and entry_problem(self.geo, entry) is None:
                        self.types.setdefault(entry.ino, Counter())[entry.type << 12] += 1

    def remake(self, ino: int) -> None:
        """Write an inode anew from its place, its entries and what is left of it; or give it up."""
        kinds = self.types.get(ino, Counter())
        made = inode_from(self.volume, ino, kinds, self.now)
        if made is None:
            self.layer.trim_vblocks(self.geo.inode_block(ino), 1)
            self.said.lost.append(f"inode {ino}, of which nothing can be made")
            return
        inode, what = made
        self.put(inode)
        self.modes[ino] = inode.mode
        self.said.done.append(f"inode {ino} written anew as a {inode.kind} of {inode.size} bytes: {what}")
        if inode.is_file and inode.size % BLOCK == 0 and inode.size:
            self.said.lost.append(f"where in its last block inode {ino} ended; it is taken whole, with zeros behind")
        if what == FROM_ITS_PLACE:
            self.said.lost.append(f"owner, permissions, times and extended attributes of inode {ino}")

    def put(self, inode: Inode) -> None:
        self.layer.write_vblocks(self.geo.inode_block(inode.ino), inode.build())

    # -- directories

    def directories(self) -> None:
        """Make every directory whole blocks of good entries, none of them twice."""
        directories = sorted(ino for ino, mode in self.modes.items() if stat.S_ISDIR(mode))
        said: dict[int, int] = {}
        for ino in directories:
            self.whole_blocks(self.volume.inode(ino))
            for entry in self.volume.dentries(self.volume.inode(ino)):
                if entry.name == b"..":
                    said[ino] = entry.ino
        wanted = self.places_of_directories(directories, said)
        for ino in directories:
            self.entries(self.volume.inode(ino), wanted)

    def whole_blocks(self, directory: Inode) -> None:
        """Blocks that are no records are written anew with the entries that can still be told, holes are closed."""
        runs = self.volume.mapped(directory.base, self.volume.reach(directory))
        blocks = [block for start, count in runs for block in range(start, start + count)]
        if self.geo.hashed:
            if directory.base not in blocks:
                self.layer.write_vblocks(directory.base, first_block(directory.ino, ROOT_INO, stat.S_IFDIR >> 12))
                self.said.done.append(f"directory {directory.ino}: begun anew, with `.` and `..`")
        elif len(blocks) != directory.blocks:
            self.close_holes(directory, blocks)
        for block in blocks:
            at = (block - directory.base) * BLOCK
            data = self.read(block)
            try:
                entries = entries_of(data, at)
            except Malformed:
                kept = [entry for entry in found_in(data, at) if self.may_be(entry) and self.in_its_bucket(entry)]
                self.said.done.append(
                    f"directory {directory.ino}: the block at byte {at:#x} written anew with {len(kept)} entries"
                )
                self.said.lost.append(f"entries of directory {directory.ino} in the block at byte {at:#x}, "
                                      "if there were others")  # fmt: skip
                self.layer.write_vblocks(block, block_of(kept))
                continue
            for entry in entries:
                problem = entry_problem(self.geo, entry)
                if problem is not None:
                    self.drop(directory, entry, problem)

    def read(self, block: int) -> bytes:
        """A block; zeros, which are no records, where the flash has lost it."""
        try:
            return self.volume.block(block)
        except F2fsError:
            return bytes(BLOCK)

    def close_holes(self, directory: Inode, blocks: list[int]) -> None:
        """Move the blocks of a directory together, to its beginning, and let its size say how many there are.

        From the first on, so that a block is at two places for a while, and never at none.
        """
        for number, block in enumerate(blocks):
            if block != directory.base + number:
                self.layer.write_vblocks(directory.base + number, self.read(block))
        if not blocks:
            self.layer.write_vblocks(directory.base, first_block(directory.ino, ROOT_INO, stat.S_IFDIR >> 12))
            self.said.lost.append(f"all entries of directory {directory.ino}")
        directory.size = max(1, len(blocks)) * BLOCK
        self.put(directory)
        self.layer.flush()
        end = directory.base + directory.blocks
        self.layer.trim_vblocks(end, directory.base + self.geo.chunk_blocks - end)
        blocks[:] = range(directory.base, end)
        self.said.done.append(f"directory {directory.ino}: made of {len(blocks)} blocks without holes")

    def may_be(self, entry: Dentry) -> bool:
        """Whether bytes that look like an entry are one: its inode exists, and is of that kind."""
        return entry_problem(self.geo, entry) is None and self.modes.get(entry.ino, 0) >> 12 == entry.type

    def in_its_bucket(self, entry: Dentry) -> bool:
        """Whether an entry stands where its name leads to; where directories are lists it does anywhere."""
        bucket = entry.offset // BLOCK // BUCKET_BLOCKS * BUCKET_BLOCKS
        return not self.geo.hashed or bucket_of(self.geo, self.volume.hash_key, entry.name) == bucket

    def places_of_directories(self, directories: list[int], said: dict[int, int]) -> dict[int, int]:
        """By directory: the one that it stands in, which is the one that its `..` says, or the first that has it."""
        wanted: dict[int, int] = {}
        for ino in directories:
            for entry in self.volume.dentries(self.volume.inode(ino)):
                if entry.name in DOTS or entry.ino == ROOT_INO or not stat.S_ISDIR(self.modes.get(entry.ino, 0)):
                    continue
                if entry.ino not in wanted or said.get(entry.ino) == ino:
                    wanted[entry.ino] = ino
        return wanted

    def entries(self, directory: Inode, wanted: dict[int, int]) -> None:
        """Each entry leads to an inode of its type, each name stands once, `.` and `..` are there."""
        names: set[bytes] = set()
        for entry in list(self.volume.dentries(directory)):
            mode = self.modes.get(entry.ino)
            if entry.name in names:
                self.drop(directory, entry, "the name stands there twice")
            elif entry.name in DOTS:
                names.add(entry.name)
                if entry.name == b"." and entry.ino != directory.ino:
                    self.lead_to(directory, entry, directory.ino, stat.S_IFDIR)
            elif mode is None:
                self.drop(directory, entry, f"inode {entry.ino} is not there")
            elif stat.S_ISDIR(mode) and (wanted.get(entry.ino) != directory.ino or entry.ino in self.parents):
                self.drop(directory, entry, f"directory {entry.ino} stands elsewhere")
            else:
                names.add(entry.name)
                self.names[entry.ino] += 1
                if stat.S_ISDIR(mode):
                    self.parents[entry.ino] = directory.ino
                if entry.type != mode >> 12:
                    self.lead_to(directory, entry, entry.ino, mode)
                if not self.in_its_bucket(entry):
                    self.add(directory, entry.name, entry.ino, mode)
                    self.take_out(directory, entry)
                    self.said.done.append(f"directory {directory.ino}: entry {shown(entry.name)} moved to its bucket")
        for name in DOTS:
            if name not in names:
                self.add(directory, name, directory.ino if name == b"." else ROOT_INO, stat.S_IFDIR)
                self.said.done.append(f"directory {directory.ino}: `{name.decode()}` is there again")

    def drop(self, directory: Inode, entry: Dentry, why: str) -> None:
        """Remove an entry that is given up."""
        self.take_out(directory, entry)
        self.said.lost.append(f"entry {shown(entry.name)} of directory {directory.ino}: {why}")

    def take_out(self, directory: Inode, entry: Dentry) -> None:
        """Remove an entry from its block."""
        number, at = divmod(entry.offset, BLOCK)
        block = self.volume.block(directory.base + number)
        self.layer.write_vblocks(directory.base + number, without_entry(block, at))

    def lead_to(self, directory: Inode, entry: Dentry, ino: int, mode: int) -> None:
        """Let an entry lead to an inode, and say its type."""
        number, at = divmod(entry.offset, BLOCK)
        block = self.volume.block(directory.base + number)
        self.layer.write_vblocks(directory.base + number, with_target(block, at, ino, mode >> 12))
        self.said.done.append(f"directory {directory.ino}: entry {shown(entry.name)} leads to inode {ino}")

    def add(self, directory: Inode, name: bytes, ino: int, mode: int, first: int = 0) -> int:
        """Add an entry from block `first` on, in a block more where none has room; which block that is."""
        if self.geo.hashed:
            return self.add_to_bucket(directory, name, ino, mode)
        for number in range(first, directory.blocks):
            try:
                made = with_entry(self.volume.block(directory.base + number), name, ino, mode >> 12)[0]
            except ValueError:
                continue
            self.layer.write_vblocks(directory.base + number, made)
            return number
        self.layer.write_vblocks(directory.base + directory.blocks, with_entry(EMPTY, name, ino, mode >> 12)[0])
        directory.size += BLOCK
        self.put(directory)
        return directory.blocks - 1

    def add_to_bucket(self, directory: Inode, name: bytes, ino: int, mode: int) -> int:
        """Add an entry to the bucket of its name.  Names are counted at the end."""
        found = block_for(self.volume, directory, name)
        if found is None:
            raise F2fsError(f"directory {directory.ino}: no room for {shown(name)} in the bucket of that name")
        number, block = found
        self.layer.write_vblocks(directory.base + number, with_entry(block, name, ino, mode >> 12)[0])
        return number

    # -- the tree

    def cut_circles(self) -> None:
        """Directories that hold each other and can't be reached are taken out of each other."""
        reached = {ROOT_INO}
        for ino in sorted(self.parents):
            way: set[int] = set()
            here: int | None = ino
            while here is not None and here not in reached and here not in way:
                way.add(here)
                here = self.parents.get(here)
            if here in way:
                directory = self.volume.inode(self.parents.pop(here))
                entry = next(e for e in self.volume.dentries(directory) if e.ino == here and e.name not in DOTS)
                self.drop(directory, entry, "the directories above it lead in a circle")
                self.names[here] -= 1
            reached.update(way)

    def adopt(self) -> None:
        """What has no name gets an older one back, or one in `lost+found`; what was deleted while it was open goes."""
        nameless = [ino for ino in sorted(set(self.modes) - {ROOT_INO}) if not self.names[ino]]
        for ino in list(nameless):
            inode = self.volume.inode(ino)
            if not inode.links and self.is_empty(inode):
                self.layer.trim_vblocks(self.geo.inode_block(ino), 1)
                del self.modes[ino]
                nameless.remove(ino)
                self.said.done.append(f"inode {ino}, a file that was deleted while it was open, removed")
        if not nameless:
            return
        directories = [ino for ino, mode in self.modes.items() if stat.S_ISDIR(mode)]
        older = older_names(self.volume, directories, {ino: self.modes[ino] >> 12 for ino in nameless})
        left = [ino for ino in nameless if not any(self.named_again(ino, *at) for at in older.get(ino, ()))]
        home, names, at = None, set[bytes](), 0
        for ino in left:
            inode = self.volume.inode(ino)
            if home is None:
                home = self.lost_and_found()
                names = {entry.name for entry in self.volume.dentries(home)}
            name = free_name(names, b"#%d" % ino)
            names.add(name)
            at = self.add(home, name, ino, inode.mode, at)
            self.names[ino] += 1
            if inode.is_dir:
                self.parents[ino] = home.ino
            self.said.done.append(f"inode {ino}, a {inode.kind} without a name, is now /lost+found/{shown(name)}")

    def named_again(self, ino: int, above: int, name: bytes) -> bool:
        """Give an inode a name that it had, unless that is taken or the directory lies below the inode."""
        directory, here = self.volume.inode(above), above
        while here in self.parents and here != ino:
            here = self.parents[here]
        if here == ino or self.volume.find(directory, name) is not None:
            return False
        self.add(directory, name, ino, self.modes[ino])
        self.names[ino] += 1
        if stat.S_ISDIR(self.modes[ino]):
            self.parents[ino] = above
        self.said.done.append(f"directory {above}: entry {shown(name)} leads to inode {ino} again, as it did before")
        return True

    def is_empty(self, inode: Inode) -> bool:
        """Whether nothing is lost with it but its own content."""
        return not inode.is_dir or all(entry.name in DOTS for entry in self.volume.dentries(inode))

    def lost_and_found(self) -> Inode:
        """The directory of that name in the root, made where there is none."""
        root = self.volume.inode(ROOT_INO)
        found = self.volume.find(root, LOST_AND_FOUND)
        if found is not None and stat.S_ISDIR(self.modes.get(found.ino, 0)):
            return self.volume.inode(found.ino)
        name = free_name({entry.name for entry in self.volume.dentries(root)}, LOST_AND_FOUND)
        ino = next(ino for ino in range(ROOT_INO + 1, self.geo.max_ino + 1) if self.is_free(ino))
        made = Inode(
            ino, self.geo.own_chunk(ino), stat.S_IFDIR | 0o700, 2, size=BLOCK, atime=self.now, mtime=self.now,
            ctime=self.now, crtime=self.now,
        )  # fmt: skip
        self.layer.write_vblocks(made.base, first_block(ino, ROOT_INO, stat.S_IFDIR >> 12))
        self.put(made)
        self.add(root, name, ino, made.mode)
        self.modes[ino], self.parents[ino], self.names[ino] = made.mode, ROOT_INO, 1
        self.said.done.append(f"directory /{shown(name)} made")
        return made

    def is_free(self, ino: int) -> bool:
        """Whether nothing is where that inode and its content would be."""
        geo = self.geo
        places = (
            (geo.inode_block(ino), 1), (geo.slot(ino), geo.slot_blocks), (geo.own_chunk(ino), geo.chunk_blocks),
        )  # fmt: skip
        return ino not in self.modes and not any(self.layer.extents(start, count) for start, count in places)

    def links(self) -> None:
        """Every inode has as many links as lead to it, and each `..` says where its directory stands."""
        for above in self.parents.values():
            self.below[above] += 1
        for ino, mode in self.modes.items():
            inode = self.volume.inode(ino)
            wanted = 2 + self.below[ino] if stat.S_ISDIR(mode) else self.names[ino]
            if inode.links != min(wanted, LINK_MAX + 2):
                self.said.done.append(f"inode {ino}: {wanted} links, instead of {inode.links}")
                inode.links = min(wanted, LINK_MAX + 2)
                self.put(inode)
            if not stat.S_ISDIR(mode):
                continue
            above = ROOT_INO if ino == ROOT_INO else self.parents[ino]
            entry = self.volume.find(inode, b"..")
            if entry is not None and entry.ino != above:
                self.lead_to(inode, entry, above, stat.S_IFDIR)

    def counts(self) -> None:
        """Every hashed directory has as many names as its size says."""
        for ino in sorted(ino for ino, mode in self.modes.items() if stat.S_ISDIR(mode)):
            inode = self.volume.inode(ino)
            counted = sum(entry.name not in DOTS for entry in self.volume.dentries(inode))
            if inode.blocks - 1 != counted:
                self.said.done.append(f"directory {ino}: {counted} names, instead of {inode.blocks - 1}")
                if inode.blocks - 1 > counted:
                    self.said.lost.append(f"names of directory {ino}: {inode.blocks - 1 - counted}, if it had them")
                inode.size = (1 + counted) * BLOCK
                self.put(inode)

    def space(self) -> None:
        """Give back what belongs to nothing."""
        found = [(item.start, item.count) for item in leftovers(self.volume)] + list(strays(self.volume))
        for start, count in found:
            self.layer.trim_vblocks(start, count)
        if found:
            count = sum(count for _, count in found)
            self.said.done.append(f"{count} blocks that no file has given back")
            if self.clean:
                self.said.lost.append(f"the content of {count} blocks that no file has")

    def finish(self) -> None:
        """Close the volume, with all of it safe."""
        sb = self.volume.sb
        if not sb.clean:
            sb.seq, sb.clean = sb.seq + 1, 1
            sb.crc = crc32(sb.build()[:-4])
            for place in SUPER_PLACES:
                self.layer.write_vblocks(place, sb.build().ljust(BLOCK, b"\0"))
        self.layer.flush()


def found_in(block: bytes, at: int) -> Iterator[Dentry]:
    """What looks like an entry in a block that is no chain of records, wherever one could begin."""
    place = 0
    while place + HEAD < BLOCK:
        ino, length, kind, name_len = _RECORD.unpack_from(block, place)
        name = block[place + HEAD : place + HEAD + name_len]
        whole = 0 < name_len == len(name) and HEAD + name_len <= length <= BLOCK - place and length % 4 == 0
        if whole and name not in DOTS:
            yield Dentry(at + place, name, ino, kind)
            place += HEAD + (name_len + 3 & ~3)
        else:
            place += 4


def block_of(entries: list[Dentry]) -> bytes:
    """A block with these entries, which were in one block before."""
    made, names = EMPTY, set[bytes]()
    for entry in entries:
        if entry.name not in names:
            names.add(entry.name)
            made = with_entry(made, entry.name, entry.ino, entry.type)[0]
    return made


def shown(name: bytes) -> str:
    """A name as text."""
    return printable(name.decode("utf-8", "surrogateescape"))
