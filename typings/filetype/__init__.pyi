"""What f2tools uses of filetype, which brings no types."""

class Type:
    extension: str
    mime: str

TYPES: list[Type]

def guess(obj: bytes) -> Type | None: ...
def guess_mime(obj: bytes) -> str | None: ...
