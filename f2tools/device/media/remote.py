"""Names of remote images and traces: URLs that fsspec knows, and how they are shown."""

from __future__ import annotations

import re
from typing import Any

from f2tools.errors import DeviceError, Usage

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:://|::)")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY = re.compile(r"\?[^\s:]*")


def is_url(name: str) -> bool:
    """Whether a name is a URL (`s3://bucket/card.img`, `zip://card.img::https://host/cards.zip`), not a path."""
    return URL.match(name) is not None


def without_credentials(text: str) -> str:
    """A name or a message as it may be shown: users, passwords and the queries of signed URLs are left out."""
    return _QUERY.sub("?...", _USER.sub("", text)) if "://" in text else text


def needed() -> Any:
    """fsspec; Usage that says what to install where it is missing."""
    try:
        import fsspec
    except ImportError as error:
        raise Usage("a URL needs fsspec: pip install 'f2tools[remote]'") from error
    return fsspec


def expand(pattern: str) -> list[str]:
    """The URLs that a pattern fits, sorted."""
    fsspec = needed()
    try:
        return sorted(file.full_name for file in fsspec.open_files(pattern))
    except (OSError, ValueError, ImportError) as error:
        raise DeviceError(f"{without_credentials(pattern)}: {without_credentials(str(error))}") from None
