"""A disk for the guest with this Python and the packages that f2tools needs, so that f2tools itself runs in there.

The interpreter is the one that runs the tests, with its libraries; f2tools and the tests, which change all the time,
are handed over with every boot instead (`pack`).  The disk lies in .cache/guest-tools under a key of the versions.
"""

# ruff: noqa: SIM905 - lists of words read better as words

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from f2tools.guest.build import STDLIB_LEFT_OUT, lock, which
from tests.kernel.build_guest import CACHE

PROJECT = Path(__file__).resolve().parent.parent.parent
DISKS = CACHE.parent / "guest-tools"
MOUNTED = "/run/tools"  # where the guest has the disk
UNPACKED = "/run/project"  # and what `pack` packed
PACKAGES = ("pytest", "pyfuse3")  # beside what f2tools needs
HANDED_OVER = ("f2tools", "tests", "pyproject.toml")
LEFT_OUT = re.compile(r"/(reference|data|hostile|suites)/|/(tests|test)/|\.(a|pyi|h|md|html)$")

PYTHON = f"""#!/bin/sh
PYTHONPATH={UNPACKED}:{MOUNTED}/packages LD_LIBRARY_PATH={MOUNTED}/libs exec {MOUNTED}/bin/{{name}} "$@"
"""
F2TOOLS = """#!/bin/sh
exec python -c 'from f2tools.cli import run; run()' "$@"
"""
PRELUDE = f"""
mkdir -p {MOUNTED} {UNPACKED}
for disk in /sys/block/vd*; do
    if [ "$(cat $disk/serial)" = guest-tools ]; then mount -t ext4 -o ro /dev/${{disk##*/}} {MOUNTED} || exit; fi
done
tar -xf /share/project.tar -C {UNPACKED} || exit
export PATH={MOUNTED}/commands:$PATH
"""


def build_tools() -> Path:
    """The disk, made if it is not there yet."""
    DISKS.mkdir(parents=True, exist_ok=True)
    wanted = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    packages = list(_needed([*wanted, *PACKAGES]))
    disk = DISKS / f"{_key(packages)}.img"
    with lock(DISKS / "lock"):
        if not disk.exists():
            for old in DISKS.glob("*.img"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=DISKS, prefix="new-") as name:
                _make(packages, Path(name) / "root", Path(name) / "disk")
                (Path(name) / "disk").rename(disk)
    return disk


def pack(target: Path) -> None:
    """f2tools and the Python of the tests, compiled modules and all, as a tar file."""

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (entry.isdir() or entry.name.endswith((".py", ".pyc", ".toml"))):
            return None
        return entry if "/reference" not in entry.name else None

    with tarfile.open(target, "w") as archive:
        for name in HANDED_OVER:
            archive.add(PROJECT / name, name, filter=wanted)


def _key(packages: list[Distribution]) -> str:
    h = hashlib.sha256(sys.version.encode() + Path(__file__).read_bytes())
    for one in sorted(packages, key=lambda d: d.name):
        h.update(f"{one.name} {one.version}".encode())
    return h.hexdigest()[:16]


def _needed(wanted: list[str]) -> Iterator[Distribution]:
    """The distributions that meet these requirements and, again and again, those of what they need."""
    seen: set[str] = set()
    todo = list(wanted)
    while todo:
        name = re.split(r"[^A-Za-z0-9_.-]", todo.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another system
            continue
        yield found
        todo += [need for need in found.requires or () if "extra ==" not in need]


def _make(packages: list[Distribution], root: Path, disk: Path) -> None:
    interpreter = Path(sys.executable).resolve()
    for directory in "bin commands lib libs packages".split():
        (root / directory).mkdir(parents=True)
    shutil.copy(interpreter, root / "bin" / interpreter.name)
    stdlib = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, root / "lib" / stdlib.name, ignore=STDLIB_LEFT_OUT)
    for one in packages:
        for file in one.files or ():
            source = Path(str(one.locate_file(file)))
            if ".." in file.parts or "__pycache__" in file.parts or not source.is_file() or LEFT_OUT.search(f"/{file}"):
                continue
            target = root / "packages" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    _copy_libraries(root, interpreter)
    for name, text in (("python", PYTHON.format(name=interpreter.name)), ("f2tools", F2TOOLS)):
        (root / "commands" / name).write_text(text)
        (root / "commands" / name).chmod(0o755)
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", root]
    subprocess.run(compiling, check=False, stdout=subprocess.DEVNULL)
    size = sum(p.lstat().st_size + 4096 for p in root.rglob("*"))
    with disk.open("wb") as f:
        f.truncate((size * 5 // 4 + (24 << 20)) >> 20 << 20)
    command = [str(which("mkfs.ext4")), "-q", "-m", "0", "-O", "^has_journal", "-d", str(root), str(disk)]
    subprocess.run(command, check=True, capture_output=True)


def _copy_libraries(root: Path, interpreter: Path) -> None:
    """What the interpreter and the compiled modules are linked with, but for what packages bring along."""
    for file in [interpreter, *root.rglob("*.so*")]:
        said = subprocess.run(["/usr/bin/ldd", file], capture_output=True, text=True, check=False).stdout
        for name in re.findall(r"=> (/\S+) \(0x", said):
            library = Path(name)
            if root not in library.parents and not (root / "libs" / library.name).exists():
                shutil.copy(library, root / "libs" / library.name)


__all__ = ["MOUNTED", "PRELUDE", "UNPACKED", "build_tools", "pack"]
