"""What a copy out of an image says at its end: what was made, what was not, and which rights were left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from f2tools.copyout.keep import NOTHING, Keep
from f2tools.copyout.walk import Lost, is_of_image, placed
from f2tools.device.media.remote import without_credentials
from f2tools.text import command_line


@dataclass
class CopyReport:
    """What was copied and what was not."""

    target: str
    keep: Keep = NOTHING  # what was asked for
    files: int = 0
    directories: int = 0
    hard_links: int = 0
    symlinks: int = 0
    specials: int = 0
    bytes: int = 0
    excluded: int = 0
    lost: list[Lost] = field(default_factory=list)
    partial: list[Lost] = field(default_factory=list)
    owners_not_set: int = 0
    devices_not_made: int = 0
    set_ids_dropped: int = 0
    xattrs_not_set: Counter[str] = field(default_factory=Counter)
    xattrs_left_out: Counter[str] = field(default_factory=Counter)
    times_not_set: int = 0  # files whose times the target can't hold

    @property
    def left_out(self) -> str | None:
        """One line on the rights that the copy does not have; None where it has all."""
        counts = (
            (self.owners_not_set, "owner"),
            (self.devices_not_made, "device"),
            (self.set_ids_dropped, "set-user-ID or set-group-ID bit"),
            *((count, f"{space} attribute") for space, count in sorted(self.xattrs_left_out.items())),
        )
        words = ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count)
        if not words:
            return None
        if self.keep == NOTHING:
            return f"left out: {words}; --all keeps what root may set"
        options = " ".join(self._unasked())
        if options:
            return f"left out: {words}; {options} keeps what root may set"
        why = "the target does not take that" if os.geteuid() == 0 else "only root may set that"
        return f"left out: {words}; {why}"

    def _unasked(self) -> Iterable[str]:
        """The options that would keep more of what was left out."""
        left, keep = self.xattrs_left_out, self.keep
        if not keep.owners and (self.owners_not_set or left["ACL"]):
            yield "--same-owner"
        if not keep.devices and self.devices_not_made:
            yield "--devices"
        if not keep.special_bits and (self.set_ids_dropped or any(left[space] for space in left if space != "ACL")):
            yield "--special-bits"

    @property
    def complete(self) -> bool:
        """Whether everything could be read and made."""
        return not self.lost and not self.partial

    def place(self, item: Lost) -> str:
        """The path on the host of something that was not copied whole."""
        return placed(self.target, item.path)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = {name: value for name, value in vars(self).items() if not isinstance(value, list | Counter | Keep)}
        return {
            **plain,
            "xattrs_not_set": dict(self.xattrs_not_set),
            "xattrs_left_out": dict(self.xattrs_left_out),
            "lost": [item.as_dict() for item in self.lost],
            "partial": [item.as_dict() for item in self.partial],
        }


def said_of_losses(image: str, devices: Sequence[str], reasons: Iterable[str]) -> str:
    """How what could not be read may be had yet, by the reasons why it was lost; empty where none is the image's."""
    if not any(map(is_of_image, reasons)):
        return ""
    image = without_credentials(image)
    salvage = command_line("f2tools fsck --salvage DIR", image, devices=devices)
    doctor = command_line("f2tools doctor", image, devices=devices)
    return (
        f"what is lost here may still be in the image: `{salvage}` looks for it everywhere, and writes nothing to the"
        f" image; `{doctor}` says what is wrong"
    )
