"""Which rights an image's files keep when they are copied out: by default none, as with tar.

The maker of the image chose which files belong to root, run with its rights, or are disks.  The user who copies them
out says whether to trust that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from f2tools.lazy import dataclass

ACL_NAMES = "system.posix_acl_"


@dataclass(frozen=True)
class Keep:
    """What is kept.  `owners`: owners, groups and ACLs; `special_bits`: set-user-ID, set-group-ID, capabilities and all
    other security.* and trusted.* attributes; `modes`: permissions that the umask would take; `directories`: all that,
    and times, also for directories that are there, as with `cp -a`."""

    owners: bool = False
    devices: bool = False
    special_bits: bool = False
    modes: bool = False
    directories: bool = False

    def allows(self, attribute: str) -> bool:
        """Whether an extended attribute of this name is to be set."""
        space = attribute.partition(".")[0]
        return space == "user" or (self.owners if attribute.startswith(ACL_NAMES) else self.special_bits)


NOTHING = Keep()
ALL = Keep(owners=True, devices=True, special_bits=True, modes=True)


def keep_options(command: Callable[..., Any], only_with: str = "") -> Callable[..., Any]:
    """--same-owner, --devices, --special-bits and --all, as `keep`; `only_with` begins their help."""

    @wraps(command)
    def run(*, same_owner: bool, devices_too: bool, special_bits: bool, faithful: bool, **others: Any) -> Any:
        return command(keep=ALL if faithful else Keep(same_owner, devices_too, special_bits), **others)

    for option in (
        click.option("--all", "faithful", is_flag=True,
                     help=f"{only_with}All three, and modes whatever the umask: a copy of an image that is trusted."),
        click.option("--special-bits", is_flag=True,
                     help=f"{only_with}Keep set-user-ID, set-group-ID, capabilities, security.* and trusted.*."),
        click.option("--devices", "devices_too", is_flag=True, help=f"{only_with}Make device nodes; only root can."),
        click.option("--same-owner", is_flag=True, help=f"{only_with}Set owners, groups and ACLs; only root can."),
    ):  # fmt: skip
        run = option(run)
    return run
