"""resize.f2fs: a volume takes the size of its device, or as many sectors as are asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from f2tools.compat.common import Program, done_line, volume_lines
from f2tools.device import open_device
from f2tools.device.media.mounted import mounted_by_the_kernel
from f2tools.errors import DeviceError, Unsupported

LETTERS = "d:fFg:Hsit:o:V"
HELP = """[options] device
[options]:
  -F do not ask before resizing
  -g android: its defaults, among them -F
  -s safe resize (does not resize metadata)
  -t target sectors [default: device size]
  -d, -H, -i are taken and change nothing: what the areas are made of stays as it is
  -f is taken: a damaged volume is refused all the same
  -V print the version number and exit"""


def main(name: str, arguments: Sequence[str]) -> int:
    """Resize as resize.f2fs does; the exit code."""
    program = Program(name, LETTERS, HELP)
    return program.run(lambda: _main(program, arguments))


def _main(program: Program, arguments: Sequence[str]) -> int:
    from f2tools.device.media.block import BlockDevice
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.resize.cli import resize

    began = time.monotonic()
    words = program.parse(arguments)
    path = words.rest[0]
    if words.has("-o"):
        raise Unsupported("overprovision is computed anew, as mkfs does it; -o can't choose it")
    if mounted_by_the_kernel(path):
        raise DeviceError("Not available on mounted device!")
    with open_device(path) as device:
        sector = device.sector_size if isinstance(device, BlockDevice) else 512
        size = device.size_bytes
        volume = Volume(device)
        print("\n".join(volume_lines(volume.sb, volume.cp)))
    sectors = program.number(words, "-t") or size // sector
    if sectors * sector > size:
        raise DeviceError(f"Out-of-range Target=0x{sectors:x} / 0x{size // sector:x}")
    if not (words.has("-F") or "android" in words.all("-g") or _agreed()):
        return 0
    sys.stdout.flush()
    given = ["--keep-file-size", *(["--areas", "keep"] if words.has("-s") else []), "--", path, str(sectors * sector)]
    resize.main(given, prog_name=program.name, standalone_mode=False)
    print(done_line(time.monotonic() - began))
    return 0


def _agreed() -> bool:
    """Whether to go on: asked at a terminal or where input has an answer; released versions do not ask."""
    if sys.stdin.isatty():
        print("\nDo you want to continue? [y/n]", end="", flush=True)
    for line in sys.stdin:
        if line.strip().lower() in ("y", "n"):
            return line.strip().lower() == "y"
    return not sys.stdin.isatty()
