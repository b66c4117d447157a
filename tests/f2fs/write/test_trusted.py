"""Tables that contradict the checkpoint or the log are not written by: what they call free may be in use.

The kernel refuses such a volume too, but where a block of the node address table is lost, or one of the segment table
that has only data: that it does not notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from f2tools.dump.manifest import manifest
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import (
    CURSEG_COLD_DATA,
    CURSEG_NAMES,
    CURSEG_WARM_DATA,
    F2FS_ROOT_INO,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.write.volume import open_for_writing
from tests.dump.craft import f2
from tests.f2fs.write.volumes import reading
from tests.fsck.craft import Patient
from tests.kernel.guest import Guest
from tests.mount.mounted import mounted

BASE = "base"
Damage = Callable[[Patient], str]  # the damage, and what is said of it


def _log(kind: int, part: int) -> Damage:
    def change(patient: Patient) -> str:
        _, blkoff, _ = patient.vol.pack.curseg(kind)
        name, index = ("cur_data_blkoff", kind) if kind < NR_CURSEG_DATA_TYPE else ("cur_node_blkoff", kind - 3)
        patient.checkpoint_item(name, index, blkoff // part if part else 0)
        return f"the {CURSEG_NAMES[kind]} log goes on in a block that is in use"

    return change


def _segment_table(patient: Patient) -> str:
    block = int(patient.vol.sit.blkaddrs[0])
    patient.write(block * patient.size, bytes(patient.size))
    return "the segment table has"


def _node_table(patient: Patient) -> str:
    """The second block, with the nodes of some files and directories; all else is as it was."""
    assert np.count_nonzero(patient.vol.nat.used() // patient.geo.nat_entries_per_block == 1) > 1
    block = int(patient.vol.nat.blkaddrs[1])
    patient.write(block * patient.size, bytes(patient.size))
    return "the node address table has"


DAMAGES: dict[str, Damage] = {
    **{f"{CURSEG_NAMES[kind]}-{part}": _log(kind, part) for kind in range(NR_CURSEG_TYPE) for part in (0, 2)},
    "sit": _segment_table,
    "nat": _node_table,
}


def damaged(name: str, directory: Path) -> tuple[Path, str]:
    patient = Patient(BASE, directory)
    said = DAMAGES[name](patient)
    patient.close()
    return patient.path, said


@pytest.mark.parametrize("name", DAMAGES)
def test_tables_that_call_free_what_is_in_use_are_not_written_by(name: str, tmp_path: Path) -> None:
    image, said = damaged(name, tmp_path)
    before = image.read_bytes()
    with pytest.raises(Corrupt, match=said):
        open_for_writing(image)
    for words in (
        ["touch", f"{image}:/new"], ["clean", image], ["clean", "--discard", image], ["defrag", image],
        ["resize", "--no-check", image, "1G"], ["resize", "--no-check", image, "minimum"],
    ):  # fmt: skip
        refused = f2(*words)
        assert refused.code == 1, words
        assert said in refused.err, words
        assert "run f2tools fsck" in refused.err, words
    assert image.read_bytes() == before


CONTENT = random.Random(1).randbytes(1 << 20) * 140


def without_segments_of_data(image: Path) -> Path:
    """A volume with a large file, and without the block of the segment table that has nothing but segments of it."""
    assert f2("mkfs", "--size", "400M", image).code == 0
    with open_for_writing(image) as volume:
        volume.write(volume.create(F2FS_ROOT_INO, b"file", 0o644), 0, CONTENT)
    with reading(image) as volume:
        second = int(volume.sit.blkaddrs[1]) * volume.geo.block_size
        types = volume.sit.types[volume.geo.sit_entries_per_block :][: volume.geo.sit_entries_per_block]
        assert np.isin(types, (0, CURSEG_WARM_DATA)).all()
    with image.open("r+b") as file:
        file.seek(second)
        assert any(file.read(4096))
        file.seek(second)
        file.write(bytes(4096))
    return image


def test_a_lost_block_of_the_segment_table_is_told_by_the_free_segments(tmp_path: Path) -> None:
    image = without_segments_of_data(tmp_path / "image")
    with pytest.raises(Corrupt, match="the segment table has 131 free segments, the checkpoint 116"):
        open_for_writing(image)
    assert f2("fsck", "-y", image).code == 1
    assert f2("touch", f"{image}:/new").code == 0
    assert f2("dump", "cat", image, "/file").out == CONTENT


def test_where_a_log_goes_on_in_blocks_in_use_what_was_fsynced_waits_for_a_repair(tmp_path: Path) -> None:
    """Nothing sends to what is refused, and a mount that shows the checkpoint says so."""
    patient = Patient("crash-sqlite-wal", tmp_path)
    segno, blkoff, _ = patient.vol.pack.curseg(CURSEG_COLD_DATA)
    _, entry = patient.sit_at(segno)
    count = int(patient.vol.sit.vblocks[segno])
    patient.put(entry, 1, (count + 1) & 0xFF)
    patient.write(entry + 2 + blkoff // 8, bytes([0x80 >> blkoff % 8]))
    patient.close()
    said = f2("info", patient.path).err
    assert "f2tools fsck -y --undo before.undo" in said
    assert "recover" not in said
    assert f2("recover", "--apply", patient.path).code == 1
    with mounted(patient.path, tmp_path / "m", "-o", "ro", may_say="is not shown: main") as mount:
        assert list(mount.directory.iterdir())
    assert "what was fsync'ed after the last checkpoint is not shown" in (tmp_path / "m.log").read_text()


@pytest.mark.parametrize("name", DAMAGES)
def test_once_repaired_they_are_and_no_file_is_another(name: str, tmp_path: Path) -> None:
    image, _ = damaged(name, tmp_path)
    with reading(Patient(BASE, tmp_path / "whole").path) as volume:
        wanted = manifest(volume)["entries"]
    assert f2("fsck", "-y", image).code == 1
    with reading(image) as volume:
        assert manifest(volume)["entries"] == wanted
    assert f2("touch", f"{image}:/new").code == 0
    assert f2("fsck", image).code == 0


def test_the_kernel_mounts_none_of_them_but_where_nodes_or_segments_of_data_are_lost(
    guest: Guest, tmp_path: Path
) -> None:
    disks = [damaged(name, tmp_path / name)[0] for name in DAMAGES]
    disks.append(without_segments_of_data(tmp_path / "data"))
    script = """
        for disk in "${IMAGES[@]}"; do
            if mount -t f2fs -o ro $disk /mnt; then echo mounted; umount /mnt; else echo refused; fi
        done
    """
    result = guest.run(script, disks).must_succeed()
    how = dict(zip([*DAMAGES, "data"], result.stdout.split(), strict=True))
    assert how == dict.fromkeys(DAMAGES, "refused") | {"nat": "mounted", "data": "mounted"}
