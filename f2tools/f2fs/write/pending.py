"""Names that have changed since the last checkpoint, and that roll-forward recovery would not bring back as they are.

An fsync of a new file asks recovery to add its name, in the place of another file's, so a directory with no other
changes is safe, its times aside, as soon as its new files are: SQLite syncs its journal and then the directory for this
very name, both by fdatasync.
"""

from __future__ import annotations

NOBODY = 0  # no fsync makes this change safe


class PendingNames:
    """What a directory would lose in a power cut; one for a volume."""

    def __init__(self) -> None:
        self._names: dict[int, dict[bytes, int]] = {}  # directory -> name -> the new file whose fsync makes it safe
        self._changed: set[int] = set()  # directories that have changed in other ways

    def added(self, directory: int, name: bytes, ino: int) -> None:
        """A name leads to this inode now."""
        self._names.setdefault(directory, {})[name] = ino

    def removed(self, directory: int, name: bytes, of_gone_file: bool) -> None:
        """A name is gone, and the regular file whose only name it was, or else what is to be found under another name.

        Recovery lets a new file take the place of the old one, which must not be another name's by then.
        """
        if of_gone_file:
            self._names.setdefault(directory, {})[name] = NOBODY
        else:
            self._changed.add(directory)

    def changed(self, directory: int) -> None:
        """Something other than its names has changed in a directory."""
        self._changed.add(directory)

    def fsynced(self, directory: int, name: bytes, ino: int) -> None:
        """A new regular file is in the log, with the mark that asks recovery to add its name."""
        names = self._names.get(directory)
        if names is not None and names.get(name) == ino:
            del names[name]

    def of(self, directory: int) -> bool:
        """Whether a directory would lose anything."""
        return directory in self._changed or bool(self._names.get(directory))

    def clear(self) -> None:
        """A checkpoint holds everything."""
        self._names.clear()
        self._changed.clear()
