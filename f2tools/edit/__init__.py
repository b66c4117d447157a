"""Change the files of an image without mounting it; see `transaction` for when and how the image itself is written.

from f2tools.edit.cli import parse_line
from f2tools.edit.session import session

with session("card.img", undo="before.undo") as here:
    verb, given = parse_line("mkdir -p /etc/conf.d", 1)
    verb.body(here, **given)
    here.volume.setattr(here.volume.path("/etc").inode.ino, mode=0o755)
"""

from __future__ import annotations
