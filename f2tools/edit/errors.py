"""The error of a change that can't be made."""

from __future__ import annotations

from f2tools.errors import F2fsError


class EditFailed(F2fsError):
    """A change can't be made: what a system call would say, with the path; the image is as it was."""

    exit_code = 1
