"""What f2tools uses of fsspec, which brings no types; it is handed on as `Any`."""

from typing import Any

def __getattr__(name: str) -> Any: ...
