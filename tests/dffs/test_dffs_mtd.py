"""A volume on flash as Linux knows it: nandsim's chip of 256 MiB, the kernel's error correction and bad blocks."""

from __future__ import annotations

from pathlib import Path

from f2tools.device.open import open_device
from f2tools.dffs.check import check
from f2tools.dffs.volume import Volume
from f2tools.dffs.write import open_for_writing
from tests.device.memory import Memory
from tests.dffs.mtd_utils import mtd_utils
from tests.dump.craft import f2
from tests.kernel.guest import Guest

RAW, PER_BLOCK, BLOCKS, BAD = 2048 + 64, 64, 2048, 9
SCRIPT = """
chmod +x /share/nand*
modprobe nandsim id_bytes=0x20,0xaa,0x00,0x15 badblocks=$BAD
cat /sys/class/mtd/mtd0/size /sys/class/mtd/mtd0/writesize /sys/class/mtd/mtd0/oobsize > $OUT/chip
head -c $LENGTH $IMAGES > /tmp/dump
set -e
# the kernel computes the code itself, and the dump's is written over
/share/nandwrite --noskipbad --oob /dev/mtd0 /tmp/dump > $OUT/written 2>&1
/share/nanddump --bb=dumpbad --oob --noecc -l $DATA -f $OUT/back /dev/mtd0 2> /dev/null
/share/nanddump --bb=dumpbad -l $DATA -f /tmp/right /dev/mtd0 > $OUT/corrected 2>&1
"""


def used(image: Path) -> int:
    """Bytes of a dump up to the last erase block that is not erased."""
    raw, last = image.read_bytes(), 0
    size = PER_BLOCK * RAW
    for block in range(BLOCKS):
        if raw[block * size : (block + 1) * size].strip(b"\xff"):
            last = block + 1
    return last * size


def test_linux_reads_and_writes_a_volume_with_its_code_and_its_bad_blocks(guest: Guest, tmp_path: Path) -> None:
    image = tmp_path / "card.nand"
    assert f2("dffs", "mkfs", image, "--size", "256M", "--bad", BAD).code == 0
    with open_for_writing(open_device(image, write=True, whole=True)) as made:
        directory = made.mkdir(1, b"folder", 0o755)
        for number in range(300):
            made.write(made.create(directory, b"%d" % number, 0o644), 0, b"%d" % number * 700)
        made.sync()
        made.write(made.create(1, b"large", 0o644), 0, bytes(range(256)) * 6000)
    length = used(image)
    env = {"LENGTH": str(length), "DATA": str(length // RAW * 2048), "BAD": str(BAD)}
    done = guest.run(SCRIPT, [image], files=mtd_utils(), env=env, timeout=400)
    assert done.rc == 0, done.stderr[-2000:] + (done.out / "written").read_text()[-2000:]
    assert (done.out / "chip").read_text().split() == [str(256 << 20), "2048", "64"]
    back = (done.out / "back").read_bytes()
    before = image.read_bytes()
    differ = [at // RAW for at in range(0, length, RAW) if back[at : at + RAW] != before[at : at + RAW]]
    assert differ == []
    assert "ECC failed: 0" in (done.out / "corrected").read_text()
    seen = Volume(Memory(back + before[length:]))
    report = check(seen)
    assert (report.sound, report.clean, report.bits_put_right, report.files) == (True, True, 0, 301)
    assert seen.pages.is_bad(BAD)
