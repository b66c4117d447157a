"""Images that are only read: to change what is in one, a raw copy is made first, by the command that is named here."""

from __future__ import annotations

from f2tools.errors import Unsupported
from f2tools.text import pasted

# As the manuals of these programs have it; {} is the image, and COPY what it becomes.
RAW_BY = {
    "an Android sparse image": "simg2img {} COPY",
    "an image packed with zstd": "zstd -d {} -o COPY",
    "a qcow2 image": "qemu-img convert -O raw {} COPY",
    "a VMDK image": "qemu-img convert -O raw {} COPY",
    "a VHDX image": "qemu-img convert -O raw {} COPY",
    "a VHD image": "qemu-img convert -f vpc -O raw {} COPY",
    "an E01 image": "ewfexport -u -q -f raw -t COPY {} && mv -n COPY.raw COPY",
    "an Ex01 image": "ewfexport -u -q -f raw -t COPY {} && mv -n COPY.raw COPY",
}


class OnlyRead(Unsupported):
    """Nothing is written into `what` this is; `command` makes a raw copy of it, and is empty where none is known."""

    def __init__(self, name: str, what: str, command: str = "") -> None:
        first = f"make a raw copy: `{command}`" if command else "make a raw copy of it"
        super().__init__(f"{name}: {what} is only read; to change what is in it, {first}")
        self.what = what
        self.command = command


def refused(name: str, what: str) -> OnlyRead:
    """The error for an image of one of the kinds above, or of another."""
    return OnlyRead(name, what, RAW_BY.get(what, "").format(pasted(name)))
