"""Tools for F2FS volumes: read, check and write them without a kernel driver.

import f2tools

with f2tools.open("card.img") as vol:
    print(vol.path("/etc/hostname").read())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from f2tools.volume.volume import File, Volume
    from f2tools.volume.volume import open_volume as open

__all__ = ["File", "Volume", "__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # the engine takes numpy with it; a command that doesn't need it must start without
    if name in ("open", "File", "Volume"):
        from f2tools.volume import volume

        return volume.open_volume if name == "open" else getattr(volume, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
