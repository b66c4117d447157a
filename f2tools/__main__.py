"""The command `f2tools`, and `python -m f2tools`: the process is settled before anything large is imported."""

from __future__ import annotations

from f2tools.process import settle


def run() -> None:
    """Run the command line: `cli.run`."""
    settle()
    from f2tools.cli import run

    run()


def mount_helper() -> None:
    """Run as mount(8) does for a line of fstab: `cli.mount_helper`."""
    settle()
    from f2tools.cli import mount_helper

    mount_helper()


if __name__ == "__main__":
    run()
