"""defrag.f2fs: a range of blocks is moved to free ones left or right of a target."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from f2tools.compat.common import Program, done_line, volume_lines
from f2tools.device.media.mounted import mounted_by_the_kernel
from f2tools.errors import DeviceError

LETTERS = "d:Hs:Sl:t:iV"
HELP = """[options] device
[options]:
  -s start block address [default: main_blkaddr]
  -l length [default:512 (2MB)]
  -t target block address [default: main_blkaddr + 2MB]
  -i set direction as shrink [default: expand]
  -d, -H, -S are taken and change nothing
  -V print the version number and exit"""


def main(name: str, arguments: Sequence[str]) -> int:
    """Move blocks as defrag.f2fs does; the exit code."""
    program = Program(name, LETTERS, HELP)
    return program.run(lambda: _main(program, arguments))


def _main(program: Program, arguments: Sequence[str]) -> int:
    from f2tools.defrag.cli import defrag
    from f2tools.f2fs.volume.volume import open_volume

    began = time.monotonic()
    words = program.parse(arguments)
    path = words.rest[0]
    if mounted_by_the_kernel(path):
        raise DeviceError("Not available on mounted device!")
    with open_volume(path) as volume:
        print("\n".join(volume_lines(volume.sb, volume.cp)))
        main_blkaddr, blocks = volume.geo.main_blkaddr, volume.geo.end_blkaddr
    start = max(program.number(words, "-s", 0) or 0, main_blkaddr)
    length = min(program.number(words, "-l", 0) or 512, blocks - start)
    target = program.number(words, "-t", 0) or (start - 1 if words.has("-i") else start + length)
    outside = not main_blkaddr <= target <= blocks or start > blocks or length < 1
    if outside or start <= target < start + length:
        last = start + length - 1
        raise DeviceError(f"Out-of-range [0x{start:x} ~ 0x{last:x}] to 0x{target:x}")
    if start > target:
        print(f"Info: Move 0x{target:x} <- [0x{start:x}-0x{start + length - 1:x}]")
    else:
        print(f"Info: Move [0x{start:x}-0x{start + length - 1:x}] -> 0x{target:x}")
    sys.stdout.flush()
    places = [word for name, value in (("-s", start), ("-l", length), ("-t", target)) for word in (name, str(value))]
    given = [*places, *(["-i"] if words.has("-i") else []), "--force", "--", path]
    defrag.main(given, prog_name=program.name, standalone_mode=False)
    print(done_line(time.monotonic() - began))
    return 0
