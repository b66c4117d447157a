"""The content of files as it changes: pages in memory that wait to be written, and those that are given back.

Content up to a size lies in the inode's page; what grows beyond it moves into pages of its own and stays there.
"""

from __future__ import annotations

import errno

from f2tools.dffs.engine import Engine
from f2tools.dffs.layout import index_range
from f2tools.dffs.nodes import File, new_slots
from f2tools.dffs.volume import fail

PAGES_AT_ONCE = 64  # of content in one operation


class Content(Engine):
    """A volume whose files can be written and cut; see the module's docstring."""

    # -- content

    def write(self, ino: int, offset: int, data: bytes | bytearray | memoryview, stamp: bool = True) -> int:
        """Write bytes: how many, fewer than all where there is room for no more; ENOSPC, EFBIG where for none."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        if offset < 0:
            raise fail(errno.EINVAL)
        if len(view) and offset >= self.shape.max_size:
            raise fail(errno.EFBIG)
        view = view[: self.shape.max_size - offset]
        size, done = self.shape.page_size, 0
        while done < len(view):
            at = offset + done
            part = view[done : done + PAGES_AT_ONCE * size - at % size]
            try:
                self._write_part(ino, at, part, stamp)
            except OSError as error:
                if error.errno == errno.ENOSPC and len(part) > size:
                    part = part[: size - at % size]
                    try:
                        self._write_part(ino, at, part, stamp)
                    except OSError:
                        if done:
                            return done
                        raise
                elif done and error.errno == errno.ENOSPC:
                    return done
                else:
                    raise
            done += len(part)
        return done

    def _write_part(self, ino: int, offset: int, part: memoryview, stamp: bool) -> None:
        pages = -(-(offset + len(part)) // self.shape.page_size) - offset // self.shape.page_size
        with self._operation(pages + 6):
            file = self._content(ino)
            self.midway = True
            self.touch(file)
            self._put_content(file, offset, part)
            if stamp:
                file.mtime = file.ctime = self.clock()

    def truncate(self, ino: int, size: int) -> None:
        """Set the size of a file; EFBIG, EISDIR, EINVAL."""
        if not 0 <= size <= self.shape.max_size:
            raise fail(errno.EINVAL if size < 0 else errno.EFBIG)
        with self._operation(2 if size else 0):
            file = self._content(ino)
            self.midway = True
            self.touch(file)
            if file.inline is not None and size > self.shape.body:
                self._move_out(file)
            if file.inline is not None:
                file.inline = file.inline[:size].ljust(size, b"\0")
            elif size < file.size:
                self._shorten(file, size)
            file.size = size
            file.mtime = file.ctime = self.clock()

    # -- inside: content

    def _content(self, ino: int) -> File:
        inode = self.file(ino)
        if not isinstance(inode, File):
            raise fail(errno.EISDIR)
        if not inode.is_file:
            raise fail(errno.EINVAL)
        return inode

    def _put_content(self, file: File, offset: int, data: bytes | memoryview) -> None:
        end = offset + len(data)
        if file.inline is not None and end <= self.shape.body:
            old = file.inline.ljust(offset, b"\0")
            file.inline = old[:offset] + bytes(data) + old[end:]
        else:
            if file.inline is not None:
                self._move_out(file)
            size, at = self.shape.page_size, 0
            while at < len(data):
                number, start = divmod(offset + at, size)
                piece = data[at : at + size - start]
                page = self._fresh_page(file, number, whole=len(piece) == size)
                page[start : start + len(piece)] = piece
                at += len(piece)
        file.size = max(file.size, end)

    def _fresh_page(self, file: File, number: int, whole: bool) -> bytearray:
        page = file.fresh.get(number)
        if page is None:
            page = bytearray(self.shape.page_size) if whole else bytearray(self.content_page(file, number))
            file.fresh[number] = page
            self._fresh += 1
            if number >= self.shape.direct:
                self._indexed.add(file.ino)
        return page

    def _move_out(self, file: File) -> None:
        """Content that lies in the inode gets pages."""
        content, file.inline = file.inline or b"", None
        file.slots = new_slots(self.shape)
        if content.strip(b"\0"):
            self._fresh_page(file, 0, whole=True)[: len(content)] = content

    def _shorten(self, file: File, size: int) -> None:
        keep, rest = divmod(size, self.shape.page_size)
        self.free_content(file, keep + (rest > 0))
        if rest and (keep in file.fresh or self.data_page(file, keep)):
            page = self._fresh_page(file, keep, whole=False)
            page[rest:] = bytes(len(page) - rest)
        if not size:
            file.inline, file.slots = b"", file.slots[:0]

    def free_content(self, file: File, keep: int) -> None:
        """Give back the pages of a file from page `keep` on, and the index pages that lead to nothing then."""
        if file.inline is not None:
            return
        for number in [number for number in file.fresh if number >= keep]:
            del file.fresh[number]
            self._fresh -= 1
        direct = self.shape.direct
        for place in range(min(keep, direct), direct):
            if file.slots[place]:
                self.space.give(file.slots[place])
                file.slots[place] = 0
                file.pages -= 1
        for level in range(3):
            self._free_below(file, level, 0, keep)

    def _free_below(self, file: File, level: int, number: int, keep: int) -> bool:
        """Give back what an index page leads to from page `keep` of the file on; whether nothing is left below it."""
        per, first = self.shape.pointers, index_range(self.shape, level, number)
        there = self.index_page(file, level, number)
        if there is None:
            return True
        if first + per ** (level + 1) <= keep:
            return False
        left = False
        for place in range(per):
            if level:
                below = number * per + 1 + place
                if there[place] or (level - 1, below) in file.index:
                    left |= not self._free_below(file, level - 1, below, keep)
            elif there[place]:
                if first + place < keep:
                    left = True
                else:
                    self.space.give(there[place])
                    file.pages -= 1
                    there = self._changing_index(file, 0, number)
                    there[place] = 0
        if not left:
            self._drop_index(file, level, number)
        return not left

    def _drop_index(self, file: File, level: int, number: int) -> None:
        page = self.index_address(file, level, number)
        file.index.pop((level, number), None)
        if page:
            self.space.give(page)
            file.pages -= 1
            self._point(file, level, number, 0)
