"""f2fslabel: print the label, or set it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from f2tools.compat.common import Program, done_line, volume_lines
from f2tools.device import open_for_change
from f2tools.device.media.mounted import mounted_by_the_kernel
from f2tools.errors import DeviceError
from f2tools.text import printable

HELP = """[options] device [volume-label]
[options]:
  -V print the version number and exit"""


def main(name: str, arguments: Sequence[str]) -> int:
    """Print or set the label as f2fslabel does; the exit code."""
    program = Program(name, "V", HELP)
    return program.run(lambda: _main(program, arguments))


def _main(program: Program, arguments: Sequence[str]) -> int:
    from f2tools.f2fs.volume.volume import Volume, open_volume
    from f2tools.tune.tune import TuneRequest, apply, described, plan

    began = time.monotonic()
    words = program.parse(arguments, most=2)
    path, *rest = words.rest
    with open_volume(path) as volume:
        print("\n".join(volume_lines(volume.sb, volume.cp)))
        now = described(volume.sb)["label"]
    if not rest:
        print(f"Info: volume label = {printable(now)}")
    else:
        if mounted_by_the_kernel(path):
            raise DeviceError("Not available on mounted device!")
        device = open_for_change(path)
        try:
            apply(device, plan(Volume(device), TuneRequest(label=rest[0])))
        finally:
            device.close()
        print(f"Info: volume label is changed to {printable(rest[0])}")
    print(done_line(time.monotonic() - began))
    return 0
