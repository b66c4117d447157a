"""How a volume is written: which log a block goes to, when holes are filled, what an fsync waits for."""

from __future__ import annotations

from f2tools.f2fs.layout.constants import (
    CURSEG_COLD_DATA,
    CURSEG_COLD_NODE,
    CURSEG_HOT_DATA,
    CURSEG_HOT_NODE,
    CURSEG_WARM_DATA,
    CURSEG_WARM_NODE,
)
from f2tools.lazy import dataclass


@dataclass(frozen=True)
class Policy:
    """How a volume is written; the defaults are the kernel's for a card of some size."""

    active_logs: int = 6  # 2, 4 or 6
    adaptive: bool = True  # threaded logging for data when free sections run low
    min_free_percent: float = 5.0  # of all sections, beside the reserve; at or below it, threaded logging
    node_ssr: bool = False  # thread nodes too, which the kernel recovers when CP_CRC_RECOVERY is set
    ipu: str = "fsync"  # overwrite in place: "never", "fsync" (a few blocks before an fsync) or "always"
    fsync_mode: str = "strict"  # "strict": data is durable before a node that points to it is written; "posix": after
    victim: str = "greedy"  # which section is cleaned when room runs out: a name in gc.POLICIES
    old_names: frozenset[int] = frozenset()  # directories with names of an older state: there recovery removes no file
    kept_nids: frozenset[int] = frozenset()  # not handed out, as names or pointers still lead to what had them

    def __post_init__(self) -> None:
        if self.active_logs not in (2, 4, 6):
            raise ValueError(f"active_logs is {self.active_logs}; it must be 2, 4 or 6")
        if self.ipu not in ("never", "fsync", "always"):
            raise ValueError(f"ipu is {self.ipu!r}; it must be never, fsync or always")
        if self.fsync_mode not in ("strict", "posix"):
            raise ValueError(f"fsync_mode is {self.fsync_mode!r}; it must be strict or posix")

    def data_log(self, directory: bool, cold: bool = False, hot: bool = False) -> int:
        """The log of a data block by table 1 of the paper; see __get_segment_type() in fs/f2fs/segment.c."""
        if self.active_logs == 2:
            return CURSEG_HOT_DATA
        if self.active_logs == 4:
            return CURSEG_HOT_DATA if directory else CURSEG_COLD_DATA
        if cold:
            return CURSEG_COLD_DATA
        return CURSEG_HOT_DATA if directory or hot else CURSEG_WARM_DATA

    def node_log(self, direct: bool, directory: bool) -> int:
        """The log of a node block."""
        if self.active_logs == 2:
            return CURSEG_HOT_NODE
        if self.active_logs == 4:
            return CURSEG_WARM_NODE if direct and not directory else CURSEG_COLD_NODE
        if not direct:
            return CURSEG_COLD_NODE
        return CURSEG_HOT_NODE if directory else CURSEG_WARM_NODE
