"""What the tests of sources share: a directory with everything in it, and trees as plain facts."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from f2tools.copyin.source import Tree
from f2tools.f2fs.write.bulk.tree import SourceEntry

ROOT = os.geteuid() == 0
SECOND = 1_000_000_000
WHEN = 1_600_000_000 * SECOND
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 7, 2**32 - 1), (2, 5, 1234), (4, 5, 2**32 - 1), (16, 5, 2**32 - 1), (32, 0, 2**32 - 1))
)


def content_of(entry: SourceEntry) -> bytes:
    """All bytes of a file, as the loader asks for them: whole blocks around every extent."""
    data = bytearray(entry.size)
    if entry.content is None:
        return bytes(data)
    end = 0
    for offset, length in entry.content.extents():
        assert offset >= end
        assert length > 0
        assert offset + length <= entry.size
        end = offset + length
        first, last = offset // 4096 * 4096, min(entry.size, -(-end // 4096) * 4096)
        entry.content.read_into(first, memoryview(data)[first:last])
    entry.content.close()
    return bytes(data)


def facts(tree: Tree, *, whole_seconds: bool = False, xattrs: bool = True) -> dict[bytes, dict[str, Any]]:
    """Entries by path, with their content."""
    found: dict[bytes, dict[str, Any]] = {}
    for entry in tree.entries:
        assert entry.path not in found
        if entry.link_to is not None:
            assert entry.link_to in found
            found[entry.path] = {"link_to": entry.link_to}
            continue
        time = entry.mtime_ns // SECOND * SECOND if whole_seconds else entry.mtime_ns
        found[entry.path] = {
            "mode": entry.mode, "owner": (entry.uid, entry.gid), "mtime": time, "rdev": entry.rdev,
            "size": entry.size, "target": entry.target, "content": content_of(entry),
            "xattrs": dict(entry.xattrs) if xattrs else {},
        }  # fmt: skip
    return found


def populate(top: Path) -> Path:
    """A directory with files of every kind: holes, hard links, attributes, ACLs, odd names; devices if root."""
    top.mkdir(parents=True)
    (top / "empty").write_bytes(b"")
    (top / "small.txt").write_bytes(b"a little\n")
    (top / "dir").mkdir(mode=0o750)
    (top / "dir" / "blocks").write_bytes(os.urandom(10_000))
    (top / "dir-").write_bytes(b"sorts after what is in dir\n")
    (top / "dir" / "sub").mkdir()
    (top / "dir" / "sub" / "further").hardlink_to(top / "small.txt")
    (top / "z-first").hardlink_to(top / "small.txt")
    os.symlink("dir/blocks", top / "link")
    os.symlink("x" * 200, top / "long-link")
    os.mkfifo(top / "fifo")
    with (top / "holes").open("wb") as file:
        for at in (0, 300_000, 301_000, 5_000_000):
            file.seek(at)
            file.write(b"data at %d" % at * 50)
        file.truncate(9_000_000)
    with (top / "only-hole").open("wb") as file:
        file.truncate(1_000_000)
    odd = os.fsencode(top) + b"/odd \xff\xfe\n\\name"
    with open(odd, "wb") as file:
        file.write(b"odd")
    deep = top / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    (deep / ("f" * 200)).write_bytes(b"a long path")
    (top / "umlaut-äöü").write_bytes(b"utf-8")
    (top / "suid").write_bytes(b"")
    with suppress(OSError):
        os.setxattr(top / "small.txt", "user.comment", b"binary \x00\xff=\n value")
        os.setxattr(top / "dir", "user.k=ey%", b"equals sign")
        os.setxattr(top / "dir", "user.empty", b"")
        os.setxattr(top / "dir" / "blocks", "system.posix_acl_access", ACL)
        os.setxattr(top / "dir", "system.posix_acl_default", ACL)
    if ROOT:
        os.mknod(top / "char", stat.S_IFCHR | 0o620, os.makedev(5, 1))
        os.mknod(top / "block", stat.S_IFBLK | 0o600, os.makedev(259, 70_000))
        os.chown(top / "small.txt", 1000, 1001)
        os.chown(top / "link", 3_000_000, 3_000_001, follow_symlinks=False)
    os.chmod(top / "suid", 0o4711)
    for number, (directory, directories, files) in enumerate(os.walk(top, topdown=False)):
        for name in (*files, *directories):
            stamp = WHEN + number * SECOND + len(name) * 1001
            os.utime(os.path.join(directory, name), ns=(stamp, stamp), follow_symlinks=False)
    os.utime(top, ns=(WHEN, WHEN))
    return top


def run(*command: str | Path, cwd: Path | None = None, stdin: bytes | None = None) -> bytes:
    """A program that must succeed: what it printed."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
