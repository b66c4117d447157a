"""What the tests of resize look at: the tree of a volume on any device, and whether the volume is sound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.dump.manifest import manifest
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Severity
from f2tools.resize.cli import resize
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import Above, writable
from tests.f2fs.write.workload import noise

ROOT_INO = 3
MIB = 1 << 20


class Kept(Wrapper):
    """A device that stays open when what is on it is closed."""

    def close(self) -> None:
        pass


def run(*args: object, code: int = 0) -> str:
    """Run the command; what it printed."""
    result = CliRunner().invoke(resize, [str(arg) for arg in args], help_option_names=["-h", "--help"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def named(devices: Sequence[Path]) -> list[object]:
    """The options that name further devices."""
    return [word for device in devices for word in ("--device", device)]


def tree_on(device: Device) -> dict[str, Any]:
    """All that is in a volume but where on the device it lies; recovered, as a mount would."""
    from f2tools.f2fs.write.volume import WritableVolume

    top = Above(device)
    WritableVolume(top).sync()
    with Volume(top) as volume:
        return entries_of(volume)


def entries_of(volume: Volume) -> dict[str, Any]:
    """The manifest's entries without addresses."""
    return {
        name: {key: value for key, value in entry.items() if key != "extents"}
        for name, entry in manifest(volume)["entries"].items()
    }


def tree(path: Path, extra: Sequence[Path] = ()) -> dict[str, Any]:
    """`tree_on` an image."""
    with open_device(path, extra=list(extra)) as device:
        return tree_on(device)


def codes_on(device: Device) -> set[str]:
    """Codes of what f2tools fsck finds of warnings and worse."""
    report = check(Image(Kept(device)))
    return {finding.code for finding in report.findings if finding.severity >= Severity.WARNING}


def sound_on(device: Device, context: str = "", allowed: Iterable[str] = ()) -> None:
    """f2tools fsck has nothing to say, and a cross-check on the reader alone has not either."""
    found = codes_on(device) - set(allowed)
    assert not found, f"{context}: {sorted(found)}"
    with Volume(Kept(device)) as volume:
        assert_consistent(volume, context)


def sound(path: Path, extra: Sequence[Path] = ()) -> None:
    """The same of an image, and fsck.f2fs agrees where it knows the block size."""
    from tests import judges

    with open_device(path, extra=list(extra)) as device:
        sound_on(device)
        with Volume(Kept(device)) as volume:
            known = volume.geo.block_size == 4096
    if known:
        judges.fsck_clean(path, *extra)


def fill(path: Path, files: int = 60, kept: float = 0.5, seed: int = 1) -> None:
    """Files of all sorts, of which some are removed again, so that segments have holes."""
    import random

    chance = random.Random(seed)
    with writable(path) as volume:
        for number in range(files):
            directory = volume.mkdir(ROOT_INO, b"d%d" % number, 0o755) if number % 10 == 0 else ROOT_INO
            ino = volume.create(directory, b"f%d" % number, 0o644)
            volume.write(ino, 0, noise(number, chance.randrange(1, 60000)))
            if number % 7 == 0:
                volume.write(ino, 40 * MIB, noise(number, 5000))
        volume.sync()
        for number in range(files):
            if number % 10 and chance.random() > kept:
                volume.unlink(ROOT_INO, b"f%d" % number)
