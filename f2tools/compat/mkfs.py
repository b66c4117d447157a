"""mkfs.f2fs and make_f2fs: the C tool's options as a request to f2tools' own mkfs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from f2tools.compat.common import VERSION, Program, Words
from f2tools.device.media.mounted import mounted_by_the_kernel
from f2tools.errors import DeviceError, F2fsError, SeveralLines, Taken, Usage
from f2tools.options import source_date_epoch
from f2tools.text import printable
from f2tools.version import __version__

if TYPE_CHECKING:
    from f2tools.mkfs import make as maker
    from f2tools.mkfs.request import Options

LETTERS = "qa:b:c:C:d:e:E:g:hHil:mo:O:rR:s:S:z:t:T:U:Vfw:Z:"
HELP = """[options] device [sectors]
[options]:
  -b filesystem block size [default:4096]
  -c [device_name[@alias_filename]] up to 7 additional devices
  -C [encoding[:flag1,...]] casefolding
  -e, -E [file ext list] more extensions of cold and of hot files
  -f overwrite what is there
  -g android: its features and defaults
  -i extended node bitmap
  -l label
  -m zoned block device
  -o overprovision percentage [default:auto]
  -O feature1[,feature2,...]
  -q quiet
  -r set checkpointing seed to 0
  -R root_owner [default: the caller]
  -s segments per section, -z sections per zone [default:1]
  -S write an Android sparse image of this many bytes
  -t 0: nodiscard, 1: discard [default:1]
  -T timestamps
  -U uuid
  -w wanted sector size
  -Z reserved sections [default:auto]
  -a, -d, -H are taken and change nothing
  -V print the version number and exit"""
SPARSE_MAGIC = b"\x3a\xff\x26\xed"


def main(name: str, arguments: Sequence[str]) -> int:
    """Format as mkfs.f2fs does; the exit code."""
    program = Program(name, LETTERS, HELP, ("help",))
    return program.run(lambda: _main(program, arguments))


def _main(program: Program, arguments: Sequence[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        program.wrong("help was asked for")
    words = program.parse(arguments, most=len(arguments))
    quiet = words.has("-q")
    if not quiet:
        print("\n".join(_head(words)))
    try:
        request = _request(program, words)
    except Usage as error:
        program.wrong(str(error))
    from f2tools.mkfs import make as maker

    try:
        report = maker.make(request)
    except Taken as error:
        raise SeveralLines(f"{printable(str(error))}\nUse the -f option to force overwrite.") from None
    if not quiet:
        print("\n".join(_tail(report)))
    return 0


def _request(program: Program, words: Words) -> maker.MkfsRequest:
    """The request, its options first: what is wrong with them is so whatever the device is."""
    from f2tools.mkfs import make as maker

    image = words.rest[0]
    android = "android" in words.all("-g")
    options = _options(program, words)
    owner = maker.parse_owner(words.last("-R") or "") if words.has("-R") else None
    wanted = program.number(words, "-w")
    if android:
        options = maker.android(options, ":" in (words.last("-C") or ""))
        owner, wanted = (0, 0), options.block_size
    _must_go_together(program, options)
    extra, sectors, sparse = maker.parse_extra(words.all("-c")), _sectors(program, words), program.number(words, "-S")
    force = words.has("-f") or android
    where = mounted_by_the_kernel(image)
    if where:
        raise DeviceError(f"{image} is mounted on {where}: Not available on mounted device!")
    if sparse is None and not os.path.exists(image):
        raise DeviceError(f"{image}: Failed to get the device stat!")
    if sparse is not None:
        sparse = sparse // 4096 * 4096
        force = force or _is_sparse_or_empty(image)
    when = program.number(words, "-T")
    return maker.MkfsRequest(
        image=image,
        options=options,
        extra=extra,
        uuid=_uuid(words.last("-U")),
        timestamp=None if when == -1 else when,
        root_owner=owner,
        reproducible=words.has("-r"),
        source_date_epoch=source_date_epoch(),
        sectors=sectors,
        no_more_sectors=True,
        wanted_sector_size=wanted,
        sparse_size=sparse,
        force=force,
        only_known_is_kept=True,
    )


def _options(program: Program, words: Words) -> Options:
    from f2tools.mkfs.request import Options, parse_encoding, parse_features

    encoding, on, _ = parse_encoding(words.last("-C") or "") if words.has("-C") else (0, 0, 0)
    return Options(
        label=words.last("-l") or "",
        features=parse_features(words.all("-O")),
        encoding=encoding,
        encoding_flags=on,
        overprovision=_percent(program, words),
        segs_per_sec=program.number(words, "-s", 1) or 1,
        secs_per_zone=program.number(words, "-z", 1) or 1,
        reserved_sections=program.number(words, "-Z", 0) or 0,
        large_nat_bitmap=words.has("-i"),
        cold_extensions=_extensions(words, "-e"),
        hot_extensions=_extensions(words, "-E"),
        zoned=words.has("-m"),
        discard=bool(program.leading_number(words, "-t", 1)) and not words.has("-S"),
        block_size=program.number(words, "-b", 4096) or 4096,
    )


def _must_go_together(program: Program, options: Options) -> None:
    """End the program where mkfs.f2fs calls options wrong before it looks at the device."""
    from f2tools.f2fs.layout.constants import FEATURES, MAX_VOLUME_NAME
    from f2tools.mkfs.request import NEED_EXTRA_ATTR, encoded_label

    if options.block_size & (options.block_size - 1):
        program.wrong("Block size must be power of 2")
    if len(encoded_label(options.label)) > 2 * MAX_VOLUME_NAME:
        program.wrong(f"Volume Label should be less than {MAX_VOLUME_NAME} characters")
    if options.features & FEATURES["device_alias"]:
        program.wrong("Wrong features device_alias; -c device_name@alias_filename turns it on")
    for name in NEED_EXTRA_ATTR if not options.features & FEATURES["extra_attr"] else ():
        if options.features & FEATURES[name]:
            program.wrong(f"{name} feature should always be enabled with extra attr feature")


def _uuid(text: str | None) -> bytes | None:
    from f2tools.mkfs import make as maker

    try:
        return None if text is None else maker.parse_uuid(text)
    except Usage as error:  # for mkfs.f2fs no wrong option, but a volume that can't be made
        raise F2fsError(str(error)) from None


def _is_sparse_or_empty(path: str) -> bool:
    """Whether a file holds what mkfs.f2fs -S overwrites without being asked: nothing, or a sparse image."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(SPARSE_MAGIC))
    except FileNotFoundError:
        return True
    return not head or head == SPARSE_MAGIC


def _sectors(program: Program, words: Words) -> int | None:
    """The second word, as atoll(3) takes it, which for a word is 0, and too small; further words count for nothing."""
    if len(words.rest) < 2:
        return None
    if words.has("-c"):
        program.wrong("Not support custom size on multi-devs.")
    match = re.match(r"\s*[+-]?[0-9]+", words.rest[1])
    count = int(match[0]) if match else 0
    return None if count < 0 else count  # which is more than any device has, as the C tool sees it


def _percent(program: Program, words: Words) -> float:
    text = words.last("-o") or "0"
    try:
        return float(text)
    except ValueError:
        program.wrong(f"Wrong option -o {text}")


def _extensions(words: Words, option: str) -> tuple[str, ...]:
    """The last list, as in the C tool."""
    return tuple(word for word in re.split(r"[,\s]+", words.last(option) or "") if word)


def _head(words: Words) -> Iterator[str]:
    yield f"\n    F2FS-tools: mkfs.f2fs Ver: {VERSION} (f2tools {__version__})\n"
    yield f"Info: Debug level = {words.last('-d') or 0}"
    if words.has("-e"):
        yield "Info: Add new cold file extension list"
    if words.has("-E"):
        yield "Info: Add new hot file extension list"
    if words.last("-l"):
        yield f"Info: Label = {words.last('-l')}"
    yield f"Info: Trim is {'disabled' if words.last('-t') == '0' or words.has('-S') else 'enabled'}"
    if "android" in words.all("-g"):
        yield "Info: Set conf for android"


def _tail(report: maker.MkfsReport) -> Iterator[str]:
    plan = report.plan
    geo, sector = plan.geometry, plan.sector_size
    for path, what in report.overwritten:
        yield f"Info: {path} held {what}"
    yield f"Info: Segments per section = {geo.segs_per_sec}"
    yield f"Info: Sections per zone = {geo.secs_per_zone}"
    yield f"Info: sector size = {sector}"
    yield f"Info: total sectors = {plan.size_bytes // sector} ({plan.size_bytes >> 20} MB)"
    yield f"Info: zone aligned segment0 blkaddr: {geo.segment0_blkaddr}"
    yield from (f"Info: {note}" for note in plan.notes)
    yield f"Info: Overprovision ratio = {plan.overprovision:.3f}%"
    yield f"Info: Overprovision segments = {plan.overprov_segment_count} (GC reserved = {plan.rsvd_segment_count})"
    yield "Info: format successful"
