#!/usr/bin/env python3
"""What the demo needs besides f2tools itself: unpack an image, find an address, compare trees."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

HOLE = 4096


def unpack(packed: str, image: str) -> int:
    """A zstd-packed image as a sparse file."""
    import zstandard

    size = 0
    with open(packed, "rb") as source, open(image, "wb") as out:
        reader = zstandard.ZstdDecompressor().stream_reader(source)
        while chunk := reader.read(1 << 20):
            for at in range(0, len(chunk), HOLE):
                piece = chunk[at : at + HOLE]
                if piece.count(0) != len(piece):
                    out.seek(size + at)
                    out.write(piece)
            size += len(chunk)
        out.truncate(size)
    print(f"\nunpacked {packed} to {image}, {size >> 20} MiB")
    return 0


def address(image: str, path: str) -> int:
    """Where the first block of a file's content lies."""
    import f2tools

    with f2tools.open(image) as volume:
        print(f"{next(iter(volume.data.extents(volume.path(path).inode))).blkaddr:#x}")
    return 0


def compare(theirs: str, ours: str, directory: str) -> int:
    """Our manifest, and the extracted files, against the manifest that the kernel made of the mounted volume."""
    kernel = json.loads(gzip.decompress(Path(theirs).read_bytes()))
    found = json.loads(Path(ours).read_text())
    wrong = [path for path in kernel["entries"] if found["entries"].get(path) != kernel["entries"][path]]
    extra = [path for path in found["entries"] if path not in kernel["entries"]]
    files = sum(entry["type"] == "file" for entry in kernel["entries"].values())
    count = len(kernel["entries"])
    print(f"  {count - len(wrong)} of {count} names ({files} files) equal what the kernel said of them: mode, owner,")
    print("    size, links, times, targets, devices, attributes, extents, holes and the hash of the content")
    print(f"  statfs {'equals' if found['statfs'] == kernel['statfs'] else 'differs from'} the kernel's")
    checked, bad = 0, []
    for path, entry in kernel["entries"].items():
        if entry["type"] == "file" and entry.get("sha256"):
            checked += 1
            if not _as_it_was(Path(directory) / path, entry):
                bad.append(path)
    print(f"  {checked - len(bad)} of {checked} extracted files have that content, size, mode and time")
    for path in wrong + extra + bad:
        print(f"  differs: {path}")
    return 1 if wrong or extra or bad or found["statfs"] != kernel["statfs"] else 0


def _as_it_was(path: Path, entry: dict[str, Any]) -> bool:
    status = os.lstat(path)
    permissions = 0o777 if os.geteuid() else 0o7777  # without its owner a file loses set-user-ID
    if status.st_size != entry["size"] or status.st_mtime_ns != entry["mtime_ns"]:
        return False
    if (status.st_mode ^ int(entry["mode"], 8)) & permissions:
        return False
    if os.access(path, os.R_OK):
        file = path.open("rb")
    else:  # it is ours, but says that not even we may read it: for the moment of opening it says otherwise
        path.chmod(0o400)
        try:
            file = path.open("rb")
        finally:
            path.chmod(stat.S_IMODE(status.st_mode))
    with file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"]


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    sys.exit({"unpack": unpack, "address": address, "compare": compare}[name](*arguments))
