"""fls, icat, istat, blkcat and fsstat under their own names: a wrong command line ends with 1, as it does there."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from f2tools.errors import F2fsError
from f2tools.options import said_by_system, said_of, say_bug, usage_message


def main(name: str, arguments: Sequence[str]) -> int:
    """Do what a program of The Sleuth Kit does; the exit code."""
    from f2tools.forensics.tsk import cli

    command: click.Command = getattr(cli, name)
    try:
        command.main(list(arguments), prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        print(usage_message(error), file=sys.stderr)
        print(command.get_usage(click.Context(command, info_name=name)), file=sys.stderr)
        return 1
    except F2fsError as error:
        print(f"{name}: {said_of(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"{name}: {said_by_system(error)}", file=sys.stderr)
        return 1
    except click.Abort:
        return 130
    except Exception as error:
        say_bug(error)
        return 1
    return 0
