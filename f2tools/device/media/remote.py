"""Images and traces that a URL names, through fsspec: s3://, gs://, https://, sftp://, zip://, and chains with `::`.

They are only read.  A read takes the ranges that are not in the cache yet: adjacent ones as one request, several at a
time where the server's file system can, longer ones as long as reading goes on in order.  What fails for a reason that
may pass is tried again.  A file of a web server that is another one now is not read on.  Credentials come from where
fsspec looks for them (the environment, its configuration files, the servers' own files); those in a URL are never
shown.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.only_read import OnlyRead
from f2tools.errors import DeviceError, Gone, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
# Patterns, compiled when a name may be a URL: every command comes by here.
URL = r"[A-Za-z][A-Za-z0-9+.-]*(?:://|::)"
_USER = r"(?<=://)[^/@\s]*@"
_QUERY = r"\?[^\s:]*"

BLOCK = 64 << 10  # what is read and kept at once
BLOCKS = 1024  # that are kept: 64 MiB
LONGEST = 4 << 20  # bytes of one request
TRIES = 4
GIVEN_UP = 3  # requests in a row that fail, each after its tries; then the server has gone away
PAUSE_SECONDS = 0.25  # before the second try; twice as long before each further one
MOST_REQUESTS = 16  # at the same time
REQUEST_SECONDS = 120  # that one may take, or as long as SLOWEST needs for all that are asked for at once
SLOWEST = 16 << 10  # bytes a second of a line that is waited for
WHOLE_SECONDS = 3600  # that one may take where a cache of fsspec takes the whole file
SILENT_SECONDS = 30  # that a web server may say nothing

_CACHE: ContextVar[str | None] = ContextVar("cache", default=None)


def is_url(name: str | os.PathLike[str]) -> bool:
    """Whether a name is a URL (`s3://bucket/card.img`, `zip://card.img::https://host/cards.zip`), not a path."""
    text = os.fspath(name)
    return ":" in text and re.match(URL, text) is not None


def without_credentials(text: str) -> str:
    """A name or a message as it may be shown: users, passwords and the queries of signed URLs are left out."""
    return re.sub(_QUERY, "?...", re.sub(_USER, "", text)) if "://" in text else text


@contextmanager
def cached_in(directory: str) -> Generator[None, None, None]:
    """Within this, what is read of URLs is kept in files below `directory`, also for later commands."""
    before = _CACHE.set(directory)
    try:
        yield
    finally:
        _CACHE.reset(before)


def needed() -> Any:
    """fsspec; Usage that says what to install where it is missing."""
    try:
        import fsspec
    except ImportError as error:
        raise Usage("a URL needs fsspec: pip install 'f2tools[remote]'") from error
    return fsspec


def expand(pattern: str) -> list[str]:
    """The URLs that a pattern fits, sorted; empty where there is none."""
    fsspec = needed()

    def found() -> list[str]:
        return sorted(_with_host(file.full_name, pattern) for file in fsspec.open_files(pattern))

    try:
        return _tried(pattern, found)
    except DeviceError as error:
        if isinstance(error.__cause__, FileNotFoundError) and _is_absent(error.__cause__):
            return []
        raise


def _with_host(name: str, pattern: str) -> str:
    """A name that a pattern fits, at the pattern's host, which systems such as SFTP's leave out of it."""
    scheme, _, path = name.partition("://")
    begun, _, rest = pattern.partition("://")
    host = rest.partition("/")[0]
    return f"{begun}://{host}{path}" if scheme == begun and path.startswith("/") and "::" not in pattern else name


def exists(url: str) -> bool:
    """Whether there is a file of this name."""
    try:
        open_remote(url).close()
    except DeviceError as error:
        if isinstance(error.__cause__, FileNotFoundError) and _is_absent(error.__cause__):
            return False
        raise
    return True


def open_remote(url: str) -> RemoteDevice:
    """A file that a URL names, for reading; DeviceError where it can't be read."""
    answers = _Unchanged()
    chain, settings = url, _patience(url, answers)
    directory = _CACHE.get()
    fsspec = needed()
    if directory is not None:
        chain = f"blockcache::{url}"
        if url.startswith(("http://", "https://")):  # of which fsspec thinks that they never change
            directory = os.path.join(directory, _tried(url, lambda: _state_of(fsspec, url)))
        settings["blockcache"] = {"cache_storage": directory, "check_files": True, "skip_instance_cache": True}
    opened = _tried(url, lambda: _open(fsspec, chain, settings))
    return RemoteDevice(url, *opened, answers)


def _patience(url: str, answers: _Unchanged | None = None) -> dict[str, Any]:
    """What fsspec is told of web servers, in a chain too: how long to wait for them, and who looks at each answer."""
    schemes = _web_schemes(url)
    if not schemes:
        return {}
    try:
        timeout = _timeout(WHOLE_SECONDS if "cache::" in url else REQUEST_SECONDS)
    except ImportError:  # which fsspec will say
        return {}
    told = {"timeout": timeout, "raise_for_status": answers or _Unchanged()}
    # an instance that fsspec kept would keep what is known of the file, too
    parts = {part.partition("://")[0] for part in url.split("::")} & set(needed().available_protocols())
    own: dict[str, Any] = {part: {"skip_instance_cache": True} for part in parts}
    return own | {scheme: {"client_kwargs": told, "skip_instance_cache": True} for scheme in schemes}


def _timeout(total: float) -> Any:
    from aiohttp import ClientTimeout

    return ClientTimeout(total=total, sock_connect=SILENT_SECONDS, sock_read=SILENT_SECONDS)


def _web_schemes(url: str) -> set[str]:
    """Those of http and https that a chain goes through; a path or a query may hold URLs too."""
    return {part.partition("://")[0] for part in url.split("::")} & {"http", "https"}


def _state_of(fsspec: Any, url: str) -> str:
    """A name for the state of a file, by what its server says of it."""
    system, path = fsspec.core.url_to_fs(url, **_patience(url))
    info = system.info(path)
    more = () if _is_strong(info.get("ETag") or "") else ("Last-Modified",)
    said = [str(info.get(name)) for name in ("size", "ETag", *more, "Content-MD5", "Digest")]
    from hashlib import sha256

    return sha256("\n".join(said).encode()).hexdigest()[:16]


def _open(fsspec: Any, url: str, settings: dict[str, Any]) -> tuple[Any, str, Any]:
    system, path = fsspec.core.url_to_fs(url, **settings)
    if "blockcache" in settings:
        return system, path, system.open(path, "rb", block_size=BLOCK)
    try:  # fsspec keeps nothing: it is kept here
        return system, path, system.open(path, "rb", cache_type="none")
    except TypeError:
        return system, path, system.open(path, "rb")


class _Unchanged:
    """Looks at the head of each answer of a web server: Gone where a file is not the one that was read before."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, str]] = {}  # by URL, without what is signed anew each time
        self._weak: set[str] = set()  # URLs with an answer that had another ETag than a strong one
        self.gone: Gone | None = None

    async def __call__(self, answer: Any) -> None:
        head = answer.headers
        if answer.status not in (200, 206) or head.get("Content-Encoding", "identity") != "identity":
            return
        size = head.get("Content-Range", "").rpartition("/")[2] if answer.status == 206 else head.get("Content-Length")
        tag = head.get("ETag", "")
        now = {"size": size, "ETag": tag.removeprefix("W/"), "Last-Modified": head.get("Last-Modified")}
        url = str(answer.url.with_query(None))
        before = self._said.setdefault(url, {})
        if not _is_strong(tag) and (tag or now["Last-Modified"]):
            self._weak.add(url)
        sure = _is_strong(tag) and url not in self._weak
        for name, value in now.items():
            if not value or value == "*" or before.setdefault(name, value) == value:
                continue
            if name != "Last-Modified" or not sure:  # copies on several servers may have other times
                others = ", or several servers behind one name differ in it" if name != "size" else ""
                self.gone = Gone(
                    f"{without_credentials(str(answer.url))}: it changed while it was read: its {name} was"
                    f" {before[name]} and is {value} now{others}; copy it, and open the copy"
                )
                raise self.gone


def _is_strong(tag: str) -> bool:
    """Whether an ETag is there, and is the same for the same bytes only (RFC 9110, 8.8.1)."""
    return bool(tag) and not tag.startswith("W/")


class RemoteDevice(Device):
    """A file behind a URL; its blocks are kept in bounded memory, those that were used last."""

    def __init__(self, url: str, system: Any, path: str, file: Any, answers: _Unchanged) -> None:
        self.url = url
        self.name = without_credentials(url)
        self.read_only = True
        self._system, self._path, self._file, self._answers = system, path, file, answers
        size = getattr(file, "size", None)
        if size is None:
            size = _tried(url, lambda: system.info(path)["size"])
        if size is None:
            file.close()
            raise DeviceError(f"{self.name}: the server doesn't say how long it is; copy it, and open the copy")
        self.size_bytes = int(size)
        self.requests = 0
        self.bytes_read = 0  # from the server
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next = -1  # the block after what was asked for last
        self._ahead = 1  # blocks that a request in order takes
        self._ranges_work = False
        self._failed = 0  # requests since the last one that was answered
        self._lock = threading.Lock()

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        with self._lock:
            while view:
                # no more at a time than can be kept
                count = min(len(view), BLOCKS * BLOCK // 2)
                self._read(offset, view[:count])
                offset, view = offset + count, view[count:]

    def read_blocks(self, blkaddrs: NDArray[Any], block_size: int, max_gap: int = 0) -> NDArray[np.uint8]:
        import numpy as np

        wanted = np.unique(np.asarray(blkaddrs, np.int64))
        if wanted.size:
            self.check_range(int(wanted[0]) * block_size, 0)
            self.check_range(int(wanted[-1]) * block_size, block_size)
            starts, ends = wanted * block_size // BLOCK, ((wanted + 1) * block_size - 1) // BLOCK
            numbers = np.unique(np.concatenate([starts, ends]))
            if len(numbers) <= BLOCKS // 2:  # all that is missing, several requests at a time
                with self._lock:
                    self._fetch([n for n in numbers.tolist() if n not in self._blocks])
        return super().read_blocks(blkaddrs, block_size, max_gap)

    def _read(self, offset: int, view: memoryview) -> None:
        first, last = offset // BLOCK, (offset + len(view) - 1) // BLOCK
        missing: list[int] = []
        for number in range(first, last + 1):
            if number in self._blocks:
                self._blocks.move_to_end(number)  # not to make room for those that are missing
            else:
                missing.append(number)
        if missing:
            in_order = first in (self._next, self._next - 1)
            self._ahead = min(self._ahead * 2, LONGEST // BLOCK) if in_order else 1
            ahead = min(self._ahead, BLOCKS - (last - first))  # all that is wanted is kept
            more = range(missing[-1] + 1, missing[-1] + ahead) if in_order else ()
            last_block = (self.size_bytes - 1) // BLOCK
            self._fetch(missing + [n for n in more if n <= last_block and n not in self._blocks])
        self._next = last + 1
        for number in range(first, last + 1):
            block = self._blocks[number]
            start = max(offset, number * BLOCK)
            part = block[start - number * BLOCK : offset + len(view) - number * BLOCK]
            view[start - offset : start - offset + len(part)] = part

    def _fetch(self, numbers: list[int]) -> None:
        """Read blocks, in rising order, as few ranges as they make."""
        if not numbers:
            return
        cuts = [n for n in range(1, len(numbers)) if numbers[n] != numbers[n - 1] + 1]
        spans: list[tuple[int, int]] = []
        for low, high in pairwise([0, *cuts, len(numbers)]):
            for at in range(numbers[low] * BLOCK, (numbers[high - 1] + 1) * BLOCK, LONGEST):
                spans.append((at, min(at + LONGEST, (numbers[high - 1] + 1) * BLOCK, self.size_bytes)))  # noqa: PERF401
        for part in range(0, len(spans), MOST_REQUESTS):
            for (start, _), data in zip(spans[part:], self._ranges(spans[part : part + MOST_REQUESTS]), strict=False):
                for at in range(0, len(data), BLOCK):
                    self._blocks[(start + at) // BLOCK] = data[at : at + BLOCK]
        while len(self._blocks) > BLOCKS:
            self._blocks.popitem(last=False)

    def _ranges(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several ranges; Gone where one request after the other fails, which no bad place explains."""
        try:
            found = self._answered(spans)
        except DeviceError as error:
            if self._answers.gone:  # of which a cache of fsspec may have made another error
                raise self._answers.gone from error
            self._failed += 1
            if self._failed >= GIVEN_UP:
                raise Gone(f"{error}; {self._failed} requests in a row failed, so it has gone away") from error
            raise
        self._failed = 0
        return found

    def _answered(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        found = self._at_once(spans) if len(spans) > 1 and self._ranges_work else [self._one(*span) for span in spans]
        self.requests += len(spans)
        for (start, end), data in zip(spans, found, strict=True):
            if len(data) != end - start:
                raise Gone(f"{self.name}: ends at offset {start + len(data):#x}; it changed while it was read")
            self.bytes_read += len(data)
        return found

    def _tried(self, do: Callable[[], T]) -> T:
        """Who reads on where nothing is answered any more waits for nothing."""
        return _tried(self.url, do, 1 if self._failed else TRIES, silences=1 if self.requests else 0)

    def _one(self, start: int, end: int) -> bytes:
        if patience := self._patience(end - start):
            self._file.kwargs.update(patience)

        def read() -> bytes:
            self._file.seek(start)
            with _nothing_of_a_failure(getattr(self._file, "cache", None), start, end):
                data = self._file.read(end - start)
                while data and len(data) < end - start and (more := self._file.read(end - start - len(data))):
                    data += more
            return bytes(data)

        data = self._tried(read)
        # a file refuses a server that sends all where a part is asked for; requests at a time would take it
        self._ranges_work = bool(getattr(self._system, "async_impl", False)) and start > 0
        return data

    def _at_once(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, ends = map(list, zip(*spans, strict=True))
        paths = [self._path] * len(spans)
        patience = self._patience(sum(ends) - sum(starts))
        # not the system's cat_ranges(), which would keep `timeout` for itself
        ask = partial(self._system._cat_ranges, paths, starts, ends, on_error="raise", **patience)
        return self._tried(lambda: needed().asyn.sync(self._system.loop, ask))

    def _patience(self, size: int) -> dict[str, Any]:
        """What a web server's system is told where this many bytes are asked for at once."""
        if type(self._system).__module__ != "fsspec.implementations.http":
            return {}
        return {"timeout": _timeout(max(REQUEST_SECONDS, size / SLOWEST))}

    def pwrite(self, offset: int, data: Data) -> None:
        raise DeviceError(f"{self.name}: opened read-only")

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self._blocks.clear()
        self._file.close()


@contextmanager
def _nothing_of_a_failure(cache: Any, start: int, end: int) -> Generator[None, None, None]:
    """A cache of fsspec in a file calls blocks there before they are; where they don't come they are not there."""
    there: set[int] | None = getattr(cache, "blocks", None)
    if there is None:
        yield
        return
    asked = range(start // cache.blocksize, end // cache.blocksize + 1)
    new = {number for number in asked if number not in there}
    try:
        yield
    except BaseException as error:
        there -= new
        if isinstance(error, IndexError):  # a piece that is not as long as its place
            raise OSError("the server sent more or less than was asked for") from error
        raise


class DeviceFile(io.RawIOBase):
    """A device as a file for reading, for libraries that want one; closing it closes the device, unless told not to."""

    def __init__(self, device: Device, closes: bool = True) -> None:
        self._device = device
        self._closes = closes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = max(0, (0, self._at, self._device.size_bytes)[whence] + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = byte_view(buffer)
        count = max(0, min(len(view), self._device.size_bytes - self._at))
        self._device.pread_into(self._at, view[:count])
        self._at += count
        return count

    def close(self) -> None:
        if self._closes:
            self._device.close()
        super().close()


def _tried(url: str, do: Callable[[], T], tries: int = TRIES, silences: int = 0) -> T:
    """What `do` returns, after several tries if need be; DeviceError where all fail.

    A web server that says nothing is asked again `silences` times, one that takes too long in all never.
    """
    name = without_credentials(url)
    web = bool(_web_schemes(url))
    for left in range(tries - 1, -1, -1):
        try:
            return do()
        except FileNotFoundError as error:
            if _is_absent(error) or not left or (web and isinstance(error.__cause__, TimeoutError)):
                text = "there is no such file" if _is_absent(error) else f"can't be read: {_said(error.__cause__)}"
                raise DeviceError(f"{name}: {text}") from error
            _pause(left)
        except (PermissionError, ImportError, ValueError, NotImplementedError, KeyError, TypeError) as error:
            raise _refusal(name, error) from error
        except _passing_errors() as error:
            if web and isinstance(error, TimeoutError):
                silences = silences - 1 if _is_silence(error) else -1
            if not left or silences < 0 or getattr(error, "status", 500) in (401, 403, 405, 416):
                raise _refusal(name, error) from error
            _pause(left)
    raise AssertionError("unreachable")


def _pause(left: int) -> None:
    time.sleep(PAUSE_SECONDS * 2 ** (TRIES - 1 - left))


def _is_silence(error: TimeoutError) -> bool:
    """Whether a web server said nothing for a while, as where a connection is dead."""
    from aiohttp import ServerTimeoutError

    return isinstance(error.__cause__ or error, ServerTimeoutError)  # fsspec wraps it


def _is_absent(error: FileNotFoundError) -> bool:
    """Whether a server said so; that it can't be reached is the same error with another cause."""
    cause = error.__cause__
    return not isinstance(cause, _passing_errors()) or getattr(cause, "status", None) in (404, 410)


def _said(error: BaseException | None) -> str:
    if isinstance(error, TimeoutError):
        return "there was no answer in time"
    return without_credentials(str(error)).strip().split("\n")[0] or type(error).__name__


def _refusal(name: str, error: BaseException) -> DeviceError | Gone:
    if isinstance(error, ImportError):
        return DeviceError(f"{name}: {error}; pip install 'f2tools[remote]' has what most URLs need")
    if "range requests" in str(error):
        return Gone(f"{name}: the server sends whole files only; copy it, or name it simplecache::{name}")
    return DeviceError(f"{name}: can't be read: {_said(error)}")


def _passing_errors() -> tuple[type[BaseException], ...]:
    """What the libraries that were loaded raise for a server or a network in trouble."""
    found: list[type[BaseException]] = [OSError, EOFError, TimeoutError]
    for module, names in {
        "aiohttp": ("ClientError",),
        "botocore.exceptions": ("BotoCoreError", "ClientError"),
        "paramiko": ("SSHException",),
        "fsspec.exceptions": ("FSTimeoutError",),
        "zipfile": ("BadZipFile",),
        "zlib": ("error",),
    }.items():
        if module in sys.modules:
            found += (getattr(sys.modules[module], name) for name in names)
    return tuple(found)


def refuse_writing(url: str) -> None:
    """OnlyRead: nothing is written to what a URL names."""
    raise OnlyRead(without_credentials(url), "a URL")
