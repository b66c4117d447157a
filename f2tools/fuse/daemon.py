"""Going into the background: the command ends when the mount is usable, or with the error that kept it from that."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from f2tools.errors import UNFORESEEN, F2fsError

log = logging.getLogger("f2tools.fuse")


class Waiting:
    """The way from the process in the background to the one that waits for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def told(self) -> bool:
        """Whether nobody waits any more."""
        return self._fd < 0

    def tell(self, warnings: list[str], error: str | None = None, code: int = 0) -> None:
        """End the wait; only the first time counts."""
        if self._fd >= 0:
            text = json.dumps({"warnings": warnings, "error": error, "code": code})
            os.write(self._fd, text.encode())
            os.close(self._fd)
            self._fd = -1


def in_background(
    work: Callable[[Callable[[], None]], None], warnings: list[str], program: str
) -> tuple[str | None, int]:
    """Run `work` in a process of its own, in its own session: (error, exit code) once it has called `ready`, or failed.

    `warnings` are to be shown to the user by then; `program` is the name in the system's log afterwards.
    """
    read_fd, write_fd = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() == 0:
        os.close(read_fd)
        _become_daemon(work, warnings, Waiting(write_fd), program)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as reader:
        said = reader.read()
    if not said:
        return "the process in the background ended without a word", 8
    answer = json.loads(said)
    warnings[:] = answer["warnings"]
    return answer["error"], answer["code"]


def _become_daemon(
    work: Callable[[Callable[[], None]], None], warnings: list[str], waiting: Waiting, program: str
) -> NoReturn:
    os.setsid()
    if os.fork():  # so that it never gets a terminal
        os._exit(0)
    code = 0
    try:

        def ready() -> None:
            os.chdir("/")
            _log_to_system(program)
            _let_go_of_streams()
            waiting.tell(warnings)

        work(ready)
    except F2fsError as error:
        code = _ended(waiting, warnings, str(error), error.exit_code)
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        code = _ended(waiting, warnings, f"{where}{error.strerror or error}", 1)
    except BaseException as error:
        log.critical("ended by an error", exc_info=error)
        code = _ended(waiting, warnings, f"{type(error).__name__}: {error}", UNFORESEEN)
    finally:
        logging.shutdown()
    os._exit(code)


def _ended(waiting: Waiting, warnings: list[str], text: str, code: int) -> int:
    if waiting.told:
        log.error("%s", text)
    waiting.tell(warnings, text, code)  # who waits says it
    return code


def _let_go_of_streams() -> None:
    """Close the standard output, so that its reader sees the end."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _log_to_system(program: str) -> None:
    """From now on nobody reads standard error."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    try:
        handler = logging.handlers.SysLogHandler("/dev/log", logging.handlers.SysLogHandler.LOG_DAEMON)
    except OSError:
        try:
            handler = logging.FileHandler(log_file(), delay=True)
        except OSError:  # no place that is ours
            handler = logging.NullHandler()
        handler.setFormatter(logging.Formatter(f"%(asctime)s {program}[%(process)d]: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter(f"{program}[%(process)d]: %(message)s"))
    root.addHandler(handler)


def log_file() -> str:
    """Where a mount in the background writes to on a machine without syslog; OSError where there is no place."""
    from f2tools.fuse.status import make_private, runtime_directory

    directory = runtime_directory()
    make_private(directory)
    return os.fspath(directory / "mount.log")
