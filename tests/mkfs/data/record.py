"""Record what a newer mkfs.f2fs makes, for systems that have an older one: `record.py MKFS_F2FS > mkfs-1.16.json`.

mkfs-1.16.json was made with mkfs.f2fs built from f2fs-tools 1.16 (branch g-dev-test).  For each combination of options
it has the CRC-32 of every page of 4096 bytes that is not zero; version strings and their checksum are zeroed before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.mkfs.tools import GIB, MIB, TIB, UUID, blank, fingerprint  # noqa: E402

ALL = "encrypt,extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,verity,sb_checksum"
CASES = [
    (64 * MIB, ""), (100 * MIB, ""), (128 * MIB, "-t 0"), (1 * GIB, ""), (7 * GIB, ""), (64 * GIB, ""),
    (1 * TIB, ""), (3 * TIB, ""), (16 * TIB - 4096, ""), (1 * GIB, "-s 4 -z 2"), (8 * GIB, "-s 3"), (2 * GIB, "-z 5"),
    (1 * TIB, "-s 16"), (1 * GIB, "-o 7.5"), (256 * MIB, "-o 25"), (1 * GIB, "-i"), (1 * TIB, "-i"),
    (16 * TIB - 4096, "-i"), (256 * MIB, "-l LABEL"), (256 * MIB, "-e abc,def -E hot,vm"), (256 * MIB, f"-O {ALL}"),
    (256 * MIB, "-O extra_attr,project_quota"), (256 * MIB, "-O quota"), (256 * MIB, "-O extra_attr,compression"),
    (256 * MIB, "-O ro"), (1 * GIB, "-O ro -s 2 -z 2"), (256 * MIB, "-C utf8:strict"), (256 * MIB, "-C utf8:hashonly"),
    (256 * MIB, "-g android"), (256 * MIB, "-g android -C utf8"), (256 * MIB, "-g android -O ro"),
    (256 * MIB, "-R 1000:100"), (256 * MIB, "-T 1234567890"), (1 * GIB, "-b 16384"), (16 * GIB, "-b 8192"),
    (1 * GIB, "-b 16384 -O packed_ssa,extra_attr,quota"), (1 * TIB, "-b 16384 -O packed_ssa"),
    (256 * MIB, "-c second.img"), (256 * MIB, "-s 2 -c second.img -O sb_checksum"),
    (256 * MIB, "-c second.img@alias -O quota"), (256 * MIB, "-O lost_found,extra_attr,inode_checksum,quota"),
]  # fmt: skip
SECOND = 300 * MIB


def main() -> None:
    """Print the recorded cases."""
    mkfs = Path(sys.argv[1]).resolve()
    os.environ["PATH"] += ":/usr/sbin"
    found = []
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for size, options in CASES:
            image = blank(Path("image"), size)
            blank(Path("second.img"), SECOND)
            words = [str(mkfs), "-f", "-r", "-U", UUID, *(() if "-T" in options else ("-T", "0"))]
            done = subprocess.run([*words, *options.split(), "image"], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(f"{options}: {done.stdout}")
            found.append({"size": size, "options": options, "pages": fingerprint(image)})
    print(json.dumps(found).replace('{"size"', '\n{"size"'))


if __name__ == "__main__":
    main()
