"""The structures of the FUSE protocol, held against the compiler and this machine's linux/fuse.h."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from f2tools.fuse.direct import protocol
from f2tools.fuse.direct.protocol import STRUCTURES, Init, Opcode, Structure
from tests.judges import missing_judge

HEADER = Path("/usr/include/linux/fuse.h")
PARTS = {"fuse_entry_out": ("attr", "fuse_attr"), "fuse_attr_out": ("attr", "fuse_attr"),
         "fuse_statx_out": ("stat", "fuse_statx"), "fuse_statfs_out": ("st", "fuse_kstatfs")}  # fmt: skip
SX_TIMES = {f"{name}_{part}": f"{name}.tv_{part}" for name in ("atime", "btime", "ctime", "mtime") for part in
            ("sec", "nsec")}  # fmt: skip


def member(structure: Structure, field: str) -> str:
    """How C names a field: those of a structure within stand in it."""
    within = PARTS.get(structure.name)
    if within is None:
        return field
    own = {"fuse_entry_out": structure.fields[:6], "fuse_attr_out": structure.fields[:3],
           "fuse_statx_out": structure.fields[:4], "fuse_statfs_out": ()}[structure.name]  # fmt: skip
    return field if field in own else f"{within[0]}.{SX_TIMES.get(field, field)}"


def test_every_structure_lies_as_the_kernels_header_has_it(tmp_path: Path) -> None:
    if shutil.which("gcc") is None or not HEADER.exists():
        missing_judge("gcc and linux/fuse.h are not there", "how the structures of FUSE lie")
    header = HEADER.read_text()
    there = [s for s in STRUCTURES.values() if f"struct {s.name} {{" in header]
    lines = []
    for structure in there:
        size = f"sizeof(struct {structure.name})"
        lines.append(f'printf("{structure.name} sizeof %zu\\n", {size});')
        for field, kind in zip(structure.fields, structure.kinds, strict=True):
            if not kind.endswith("x"):
                place = f"offsetof(struct {structure.name}, {member(structure, field)})"
                lines.append(f'printf("{structure.name} {field} %zu\\n", {place});')
    fields = {name: value for name, value in vars(protocol).items() if name.startswith("FATTR_")}
    numbers = {f"FUSE_{o.name}": o for o in Opcode} | fields
    names = {f"FUSE_{i.name}": i for i in Init}
    known = {name: value for name, value in (numbers | names).items() if name in header}
    lines += [f'printf("{name} is %llu\\n", (unsigned long long){name});' for name in known if name != "FUSE_ATTR"]
    source = tmp_path / "layout.c"
    includes = "#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <linux/fuse.h>\n"
    source.write_text(includes + "int main(void){\n" + "\n".join(lines) + "\nreturn 0;}\n")
    subprocess.run(["gcc", "-o", tmp_path / "layout", source], check=True, timeout=60)
    said = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.split("\n")
    found = {tuple(line.split()[:2]): int(line.split()[2]) for line in said if line}
    assert len(there) >= 30
    for structure in there:
        assert found[structure.name, "sizeof"] == structure.size, structure.name
        for field, kind in zip(structure.fields, structure.kinds, strict=True):
            if not kind.endswith("x"):
                assert found[structure.name, field] == structure.offset_of(field), (structure.name, field)
    for name, value in known.items():
        assert found[name, "is"] == value, name


@pytest.mark.parametrize(("name", "size"), [("fuse_statx_out", 288), ("fuse_statx_in", 24), ("fuse_init_out", 64)])
def test_structures_that_an_older_header_lacks_have_their_size(name: str, size: int) -> None:
    assert STRUCTURES[name].size == size
