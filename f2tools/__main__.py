"""The command `f2tools`, and `python -m f2tools`: the process is settled before anything large is imported.

Nothing is imported before `run`, so that Ctrl-C while a command starts is met by as little as can be.
"""

from __future__ import annotations


def run() -> None:
    """Run the command line: `cli.run`."""
    _end_at_once()
    from f2tools.process import settle

    settle()
    from f2tools.cli import run

    run()


def mount_helper() -> None:
    """Run as mount(8) does for a line of fstab: `cli.mount_helper`."""
    _end_at_once()
    from f2tools.process import settle

    settle()
    from f2tools.cli import mount_helper

    mount_helper()


def _end_at_once() -> None:
    """Let Ctrl-C end the process, without a traceback, as long as it has made nothing: until `process.told_to_end`."""
    import _signal as signal  # pyright: ignore[reportMissingImports] - built in; what `signal` adds takes longer than all the rest of this

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    run()
