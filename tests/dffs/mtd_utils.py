"""Linux's own tools for raw NAND, for the guest: from the host if they are there, else out of Debian's package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.kernel.guest import NoGuest

TOOLS = ("nandwrite", "nanddump", "flash_erase")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "mtd-utils"


def mtd_utils() -> dict[str, bytes]:
    """The programs by name; NoGuest where they can't be had."""
    found = {name: shutil.which(name, path="/usr/sbin:/sbin:/usr/bin") for name in TOOLS}
    if not all(found.values()):
        found = {name: str(CACHE / "usr/sbin" / name) for name in TOOLS}
        if not all(Path(path or "").exists() for path in found.values()):
            _download()
    return {name: Path(path or "").read_bytes() for name, path in found.items()}


def _download() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", "mtd-utils"], cwd=CACHE, check=True, capture_output=True)
        for package in CACHE.glob("mtd-utils*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, CACHE], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoGuest(f"no mtd-utils here, and they can't be downloaded: {error}") from None
