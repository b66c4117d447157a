"""Change the files of an image without mounting it; see `transaction` for when and how the image itself is written.

from f2tools.edit.transaction import Edit
from f2tools.edit.verbs import Editor

with Edit("card.img", undo="before.undo") as edit:
    editor = Editor(edit)
    editor.mkdir([b"/etc/conf.d"], parents=True)
    editor.copy(["site.conf"], b"/etc/conf.d")
"""

from __future__ import annotations
