"""What flags and projects of chattr need of a volume and of a file, and how that is to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from f2tools.edit.errors import EditFailed
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_NOCOMP_FL,
    F2FS_PROJINHERIT_FL,
    FEATURES,
)
from f2tools.text import command_line

if TYPE_CHECKING:
    from f2tools.edit.session import Session
    from f2tools.f2fs.write.node import LiveInode

FIELD_OF = {"compression": "i_compress_flag", "project_quota": "i_projid"}  # among the extra attributes of an inode


def demand_features(session: Session, flags: int, project: bool) -> None:
    """EditFailed where flags that are to be set, or a project, need a feature that the volume lacks."""
    wanted = {
        "casefold": flags & F2FS_CASEFOLD_FL,
        "compression": flags & (F2FS_COMPR_FL | F2FS_NOCOMP_FL),
        "project_quota": project or flags & F2FS_PROJINHERIT_FL,
    }
    on = session.volume.geo.feature
    for name, needed in wanted.items():
        if needed and not on & FEATURES[name]:
            both = name in FIELD_OF and not on & FEATURES["extra_attr"]
            command = f"{command_line('f2tools tune', session.image)} -O {'extra_attr,' if both else ''}{name}"
            raise EditFailed(f"the volume lacks the feature {name}; {command} adds it")


def demand_room(session: Session, path: bytes, inode: LiveInode, flags: int, project: bool) -> None:
    """EditFailed where a file has no field for what is to be set: it is from before the volume had extra_attr."""
    wanted = {"compression": flags & F2FS_COMPR_FL, "project_quota": project}
    for name, needed in wanted.items():
        if needed and FIELD_OF[name] not in inode.extra:
            raise EditFailed(
                f"{session.shown(path)}: made before the volume had extra_attr, it has no room for this; a copy of it"
                " (f2tools cp -a) has"
            )
