"""What f2tools uses of pyarrow, which brings no types; it is handed on as `Any`."""

from typing import Any

def __getattr__(name: str) -> Any: ...
