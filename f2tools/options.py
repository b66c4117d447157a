"""Click decorators and small helpers that every tool shares, so that one option means one thing everywhere."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import UNFORESEEN, Corrupt, DeviceError, F2fsError, Taken, Usage
from f2tools.filename import FileName
from f2tools.process import Stopped
from f2tools.sizes import parse_size
from f2tools.text import copies_failing, printable, printable_lines

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


FINE, REPAIRED, FINDINGS_LEFT, FAILED, WRONG_USAGE, CANCELLED = 0, 1, 4, 8, 16, 32  # fsck(8)
INTERRUPTED = 130  # as in a shell
COPY_FIRST = "`{}` copies what can be read, and tries the rest again; go on with COPY"
PIECES_AT_ONCE = 50_000  # of JSON text, some bytes each


class WrongUsage(click.UsageError):
    """Wrong usage, with fsck(8)'s exit code for it."""

    exit_code = WRONG_USAGE


class CheckCommand(click.Command):
    """A command that checks, with the exit codes of fsck(8), where 1 and 2 mean something else than elsewhere."""

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*args, **settings)
        except click.UsageError as error:
            raise WrongUsage(error.format_message(), error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise WrongUsage(error.format_message(), error.ctx) from None
        except F2fsError as error:
            if isinstance(error, Corrupt):  # so damaged that it can't be checked to its end
                error.exit_code = FINDINGS_LEFT
            else:
                error.exit_code = WRONG_USAGE if error.exit_code == 2 else FAILED
            raise
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise F2fsError(said_by_system(error)) from None
        except Stopped:
            raise
        except (KeyboardInterrupt, click.Abort):
            _say_interrupted()
            ctx.exit(CANCELLED)
        except click.exceptions.Exit:
            raise
        except Exception as error:  # which would end with 1: all errors corrected
            say_bug(error)
            ctx.exit(FAILED)


class Share(click.ParamType):
    """A share of 100: `10%` or `10`."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            share = float(str(value).removesuffix("%"))
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1000:
            self.fail(f"{value!r} is no percentage; write it like 10%", param, ctx)
        return share / 100


class Size(click.ParamType):
    """A number of bytes: `4096`, `512K`, `64MiB`, `1G`, `0x1000`, or `2048s` in sectors of 512."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Address(click.ParamType):
    """A block address or a number of blocks: `0x4000` or `16384`."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = value if isinstance(value, int) else int(value, 16 if value.lower().startswith("0x") else 10)
        except ValueError:
            number = -1
        if number < 0:
            self.fail(f"{value!r} is no number; write it like 0x4000 or 16384", param, ctx)
        return number


def source_date_epoch() -> int | None:
    """$SOURCE_DATE_EPOCH in seconds, or None where it is not set; Usage if it is no number."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not text.isdecimal():
        raise Usage(f"SOURCE_DATE_EPOCH is {text!r}; seconds since 1970 are needed")
    return int(text)


def human_size(count: float) -> str:
    """`count` bytes for people: 1.5 MiB."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while abs(count) >= 1024 and power < len(units) - 1:
        count /= 1024
        power += 1
    return f"{count:.0f} B" if power == 0 else f"{count:.4g} {units[power]}"


REHEARSE = "Go through with it in memory, and write nothing."
OFFSET = "f2tools.offset"  # in the context: where in the image the volume begins


def image_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The image or device that a command works on; `--offset` makes it IMAGE@+BYTES, as `open_device` takes it."""
    argument = click.argument(
        "image",
        type=FileName(),
        callback=_at_offset,
        shell_complete=_image_or_path,
    )
    backing = click.option(
        "--backing",
        multiple=True,
        type=FileName(),
        is_eager=True,
        expose_value=False,
        callback=_keep_backing,
        metavar="PATH",
        help="A file that IMAGE builds on and that lies outside of its directory (repeatable).",
    )
    return argument(backing(cache_option(offset_option(command))))


def offset_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where in its image the volume begins, for `at_offset`."""
    return click.option(
        "--offset",
        type=Size(),
        is_eager=True,
        expose_value=False,
        callback=_keep_offset,
        metavar="BYTES",
        help="Where in IMAGE the volume begins.  IMAGE@2 and IMAGE@NAME are partitions.",
    )(command)


def at_offset(image: str) -> str:
    """The image as `open_device` takes it, with the `--offset` of the command that runs."""
    return _at_offset(click.get_current_context(), None, image)


def _image_or_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from f2tools.completion import image_or_path

    return image_or_path(ctx, param, incomplete)


def path_in_image(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`shell_complete` of an argument that is a path in the image."""
    from f2tools.completion import path_in_image

    return path_in_image(ctx, param, incomplete)


def cache_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where to keep what is read of URLs."""
    return click.option(
        "--cache",
        type=FileName(file_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_keep_cache,
        metavar="DIR",
        help="Of a URL: keep what is read in DIR, for this command and later ones.  [default: 64 MiB of memory]",
    )(command)


def _keep_cache(ctx: click.Context, _param: click.Parameter, directory: str | None) -> None:
    if directory is not None:
        from f2tools.device.media.remote import cached_in
        from f2tools.newfile import create_directory

        create_directory(directory)
        ctx.with_resource(cached_in(directory))


def _keep_offset(ctx: click.Context, _param: click.Parameter, offset: int | None) -> None:
    ctx.meta[OFFSET] = offset


def _keep_backing(ctx: click.Context, _param: click.Parameter, paths: tuple[str, ...]) -> None:
    if paths:
        from f2tools.device.containers.beside import backing

        ctx.with_resource(backing(paths))


def _at_offset(ctx: click.Context, _param: click.Parameter | None, image: str) -> str:
    offset = ctx.meta.get(OFFSET)
    if offset is None:
        return image
    from f2tools.device.open import file_and_part

    if file_and_part(image)[1]:
        raise Usage(f"{image} says where the volume begins, and --offset says it twice; leave one of them out")
    return f"{image}@+{offset}"


def device_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The further devices of a volume on several."""
    return click.option(
        "--device",
        "devices",
        multiple=True,
        type=FileName(),
        metavar="IMAGE2",
        help="A further device of a volume on several, in the order of its device table (repeatable).",
    )(command)


class LayoutText(click.ParamType):
    """Where the areas of a volume lie: `size=512M,s=1,z=1`, after the options of mkfs."""

    name = "layout"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from f2tools.f2fs.layout.constants import FEATURES
        from f2tools.f2fs.volume.layouts import Layout

        if isinstance(value, Layout):
            return value
        fields = {"size": "size_bytes", "b": "block_size", "s": "segs_per_sec", "z": "secs_per_zone"}
        fields |= {"start": "start_bytes", "i": "large_nat_bitmap"}
        found: dict[str, Any] = {}
        for word in value.split(","):
            key, _, text = word.strip().partition("=")
            if key == "O" and all(name in FEATURES for name in text.split("+")):
                found["feature"] = sum({FEATURES[name] for name in text.split("+")})
                continue
            try:
                number = parse_size(text or "1" if key == "i" else text)
            except ValueError:
                number = -1
            least = 0 if key in ("i", "start") else 1
            if key not in fields or number < least or (key == "b" and number not in (4096, 8192, 16384)):
                self.fail(
                    f"{word!r}: of size=BYTES, b=BLOCK, s=SEGMENTS, z=SECTIONS, i=1, start=BYTES, O=FEATURE+FEATURE",
                    param, ctx,
                )  # fmt: skip
            found[fields[key]] = bool(number) if key == "i" else number
        return Layout(**found)


def layout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """How the volume was laid out, where no superblock says so any more."""
    return click.option(
        "--layout",
        type=LayoutText(),
        metavar="LAYOUT",
        help="Where no superblock is left: how mkfs was asked to lay the volume out, as size=512M,s=1,z=1; also b=4096,"
        " i=1, start=BYTES of its partition, O=ro or packed_ssa.  [default: found by the nodes]",
    )(command)


def checkpoint_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which of the two checkpoints to look at."""
    return click.option(
        "--checkpoint",
        type=click.Choice(["newest", "older"]),
        default="newest",
        show_default=True,
        help="Which checkpoint pack to read the volume through.",
    )(command)


def recovered_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Look at the volume as a mount would recover it after a crash."""
    return click.option(
        "--recovered",
        is_flag=True,
        help="Show what recovery after a crash brings back, as a mount would; in memory, nothing is written.",
    )(command)


def as_of_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Look at the volume as it was."""
    return click.option(
        "--as-of",
        metavar="CP_VER|TIME",
        help="Show the tree as of a checkpoint version or a time (UTC), rebuilt from the log as far as it goes.",
    )(command)


def key_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Master keys of encrypted files, as `keys`."""
    return click.option(
        "--key",
        "keys",
        multiple=True,
        type=FileName(),
        metavar="FILE",
        help="A file with a master key of fscrypt, raw or in hex; what it opens is found out (repeatable).",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with stable field names.")(command)


def force_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Write over what is there."""
    return click.option(
        "-f", "--force", is_flag=True, help="Write over a file, or into a directory that holds something."
    )(command)


def must_be_free(path: str | None, force: bool) -> None:
    """Raise Taken where a file has this name, or a directory of this name is not empty, unless `force`; and always
    where the command that runs reads that file."""
    if path is None or path == "-":
        return
    if os.path.isfile(path) and any(_is_file(word, path) for word in _words_read()):
        raise Taken(f"{path}: is what this command reads; give another name")
    if force:
        return
    if os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path)):
        what = "is there already" if os.path.isfile(path) else "holds files already"
        raise Taken(f"{path}: {what}; --force writes all the same")


def _words_read() -> Iterator[str]:
    """The words of the command line that may name what is read: all but those for outputs."""
    context = click.get_current_context(silent=True)
    for name, value in (context.params if context else {}).items():
        if name not in ("output", "target"):
            yield from (word for word in (value if isinstance(value, tuple) else (value,)) if isinstance(word, str))


def _is_file(word: str, path: str) -> bool:
    """Whether a word, which may end in `@PART`, names a file that has this path too."""
    from f2tools.device.open import file_and_part

    name = file_and_part(word)[0]
    return os.path.isfile(name) and os.path.samefile(name, path)


def dry_run_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Rehearse: go through with it in memory."""
    return click.option("-n", "--dry-run", is_flag=True, help=REHEARSE)(command)


def undo_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what is overwritten."""
    return click.option(
        "--undo",
        type=FileName(),
        metavar="FILE",
        help="Keep what is overwritten in FILE, for `f2tools undo FILE IMAGE`.",
    )(command)


def emit(lines: Iterable[str]) -> None:
    """Write text as it comes; much of it is quicker than by `click.echo`, which flushes each line."""
    for text in lines:
        sys.stdout.write(text)
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Print one JSON document; undecodable name bytes stay lone surrogates, as in `os.fsdecode`.

    No more of it is held as text than some hundred kilobytes.
    """
    for some in _json_text(value):
        click.echo(some, nl=False)
    click.echo()


def _json_text(value: Any) -> Iterator[str]:
    import json

    pieces = json.JSONEncoder(indent=1, default=_json_default).iterencode(value)
    while some := "".join(islice(pieces, PIECES_AT_ONCE)):
        yield some


class MadeForJson(list[Any]):
    """A list in a document for `print_json` whose items are made as they are printed, and not held."""

    def __init__(self, items: Iterator[Any]) -> None:
        super().__init__(islice(items, 1))  # an empty list is printed in another way
        self._further = items

    def __iter__(self) -> Iterator[Any]:
        return chain(super().__iter__(), self._further)


class JsonArray:
    """A JSON array that is printed item by item, in the form of `print_json`."""

    def __init__(self) -> None:
        self._begun = False

    def add(self, item: Any) -> None:
        """Print an item, of which no more is held as text than some hundred kilobytes."""
        click.echo(",\n " if self._begun else "[\n ", nl=False)
        self._begun = True
        for some in _json_text(item):
            click.echo(some.replace("\n", "\n "), nl=False)

    def end(self) -> None:
        """Print its end."""
        click.echo("\n]" if self._begun else "[]")


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def usage_message(error: click.ClickException) -> str:
    """What is wrong with a command line, for a terminal: on one line, whatever its words hold."""
    message = error.format_message()
    if isinstance(error, click.MissingParameter):  # may have choices below it, a line each
        message = " ".join(message.split())
    return printable(message)


def said_of(error: F2fsError) -> str:
    """What an error of ours says, for a terminal: on one line, whatever the names in it hold, unless it has several."""
    return printable_lines(str(error)) if error.several_lines else printable(str(error))


def said_by_system(error: OSError) -> str:
    """What the system said about a call, and about which file, for a terminal."""
    said = printable(error.strerror or str(error))
    name = error.filename
    if isinstance(name, str | bytes) and name:
        return f"{printable(os.fsdecode(name))}: {said}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF):  # the last: a closed standard output
        return f"{said}: what this command was writing is not whole"
    return said


def say_unknown(problems: Iterable[str]) -> None:
    """Say on stderr what could not be read of the tables, and is left out of what a command concludes."""
    for text in problems:
        click.echo(f"f2tools: warning: {printable(text)}; what depends on it is not known", err=True)


def _say_interrupted() -> None:
    """That a command was, and how its changes are taken back where they were kept."""
    print("f2tools: interrupted", file=sys.stderr)
    logs = sys.modules.get("f2tools.device.changes.undo")  # not imported for this
    for way in logs.LEFT.values() if logs is not None else ():
        print(f"f2tools: the image may be changed, all of it or in part; {printable_lines(way)}", file=sys.stderr)


def say_error(error: BaseException) -> int:
    """Print what ended a command; the exit code for it.  docs/cli.md begins with what each of them means."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        _say_interrupted()
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        said, message = io.StringIO(), error.format_message()
        error.show(said)
        sys.stderr.write(printable_lines(said.getvalue().replace(message, usage_message(error))))
        return error.exit_code
    if isinstance(error, F2fsError):
        print(f"f2tools: {said_of(error)}", file=sys.stderr)
        if isinstance(error, DeviceError) and error.failing:
            print(f"f2tools: {COPY_FIRST.format(copies_failing(error.failing))}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, OSError):
        print(f"f2tools: {said_by_system(error)}", file=sys.stderr)
        return 1
    say_bug(error)
    return UNFORESEEN


def say_bug(error: BaseException) -> None:
    """Print an error that nobody foresaw with its traceback, which a report of it needs."""
    import traceback

    traceback.print_exception(error)
    print(
        f"f2tools: {type(error).__name__}: this is a mistake in f2tools, not yours; please report what is above",
        file=sys.stderr,
    )


def progress(description: str, total: int | None) -> Any:
    """A progress bar on stderr as a context manager with `.advance(n)`; silent when stderr is not a terminal."""
    return _Progress(description, total) if sys.stderr.isatty() else _Silent()


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def advance(self, amount: int = 1) -> None:
        return None


class _Progress:
    def __init__(self, description: str, total: int | None) -> None:
        import shutil

        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        width, height = shutil.get_terminal_size()  # rich takes any $COLUMNS for a width
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
            console=Console(stderr=True, width=width, height=height), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(description, total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, amount: int = 1) -> None:
        self._bar.advance(self._task, amount)


def require(condition: bool, message: str) -> None:
    """Refuse a request that contradicts itself."""
    if not condition:
        raise Usage(message)
