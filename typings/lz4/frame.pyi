from io import RawIOBase
from typing import Any

class LZ4FrameFile(RawIOBase):
    def __init__(self, filename: Any) -> None: ...
