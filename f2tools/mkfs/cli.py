"""`f2tools mkfs`: options in the letters of mkfs.f2fs, one call, a summary of one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import BLOCK_SIZES, FEATURES, flag_names
from f2tools.mkfs.fill_options import fill_of, fill_options, said_of_saving, saving_json, words_of
from f2tools.mkfs.plan import VolumePlan
from f2tools.mkfs.populate import Fill
from f2tools.mkfs.request import SETTABLE_FEATURES, Options, parse_encoding, parse_features
from f2tools.mkfs.sizing import parse_free
from f2tools.options import (
    FileName,
    Size,
    at_offset,
    human_size,
    json_option,
    offset_option,
    print_json,
    source_date_epoch,
    undo_option,
)
from f2tools.text import counted, printable
from f2tools.version import __version__

if TYPE_CHECKING:  # numpy comes with it; help must not wait for that
    from f2tools.mkfs import make as maker

AUTO = -1
CURSEG_ORDER = ("hot_data", "warm_data", "cold_data", "hot_node", "warm_node", "cold_node")


class SizeOrAuto(Size):
    """A number of bytes, or `auto`, which is -1."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return AUTO if value == "auto" else super().convert(value, param, ctx)


class BlockSize(Size):
    """A block size in bytes."""

    name = "bytes"


def _features(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names for the last word of a list of features."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [before + comma + name for name in SETTABLE_FEATURES if name.startswith(last) and name not in given]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("image", type=FileName(), required=False)
@click.argument("sectors", type=click.IntRange(min=1), required=False)
@click.option(
    "--size",
    "sizes",
    type=SizeOrAuto(),
    multiple=True,
    metavar="SIZE|auto",
    help="Create IMAGE with this size, like 512M; a second one creates the first -c image, and so on. "
    "auto: the smallest that the files of --from fit in.",
)
@click.option(
    "--from",
    "source",
    type=FileName(),
    metavar="DIR|TAR|-",
    help="Fill the volume with the files of a directory or a tar archive (.gz, .zst, .xz, .bz2, .lz4 too; -: stdin). "
    "Their times must lie between 1678 and 2262.",
)
@click.option("--free", metavar="N%|SIZE", help="With --size auto: leave so much of the room for files free.")
@fill_options
@click.option("-l", "--label", default="", metavar="LABEL", help="Volume label.")
@click.option("-U", "--uuid", metavar="UUID", help="UUID of the volume.  [default: random; with --from by its files]")
@click.option(
    "-O",
    "--features",
    "features",
    multiple=True,
    metavar="NAME,...",
    help=f"Features: {', '.join(SETTABLE_FEATURES)} (repeatable).",
    shell_complete=_features,
)
@click.option(
    "-C",
    "--encoding",
    metavar="ENCODING[:FLAG,...]",
    help="Casefolding with this encoding: utf8; flags [no]strict, [no]hashonly.",
)
@click.option(
    "-b",
    "--block-size",
    type=BlockSize(),
    default=4096,
    show_default=True,
    metavar="BYTES",
    help=f"Block size, one of {', '.join(map(str, BLOCK_SIZES))}; a kernel mounts that of its own pages.",
)
@click.option(
    "-o",
    "--overprovision",
    type=float,
    default=0.0,
    metavar="PERCENT",
    help="Space kept for cleaning.  [default: what leaves files the most]",
)
@click.option("-s", "--segs-per-sec", type=int, default=1, show_default=True, metavar="N", help="Segments per section.")
@click.option("-z", "--secs-per-zone", type=int, default=1, show_default=True, metavar="N", help="Sections per zone.")
@click.option(
    "-Z",
    "--reserved-sections",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Sections reserved for cleaning on a zoned volume, 8 or more.  [default: by overprovision]",
)
@click.option("-i", "--large-nat-bitmap", is_flag=True, help="Extended node bitmap: more inodes on large volumes.")
@click.option(
    "-R",
    "--root-owner",
    metavar="UID:GID",
    help="Owner of the root directory.  [default: the caller; 0:0 where reproducible; with --from that of DIR]",
)
@click.option(
    "-T",
    "--timestamp",
    type=int,
    metavar="SECONDS",
    help="Time of the first files.  [default: $SOURCE_DATE_EPOCH, else now; with --from of the newest file]",
)
@click.option(
    "-e", "--cold-extensions", multiple=True, metavar="EXT,...", help="More file name extensions of cold data."
)
@click.option("-E", "--hot-extensions", multiple=True, metavar="EXT,...", help="More file name extensions of hot data.")
@click.option(
    "-c",
    "--device",
    "extra",
    multiple=True,
    type=FileName(),
    metavar="DEVICE[@NAME]",
    help="A further device; with @NAME its content becomes the file NAME (repeatable).",
)
@click.option(
    "--device-path",
    "device_paths",
    multiple=True,
    type=FileName(),
    metavar="PATH",
    help="What the device table shall call IMAGE, then each -c device (repeatable).",
)
@click.option("-m", "--zoned", is_flag=True, help="Zoned volume: sections are zones and are only appended to.")
@click.option(
    "--zone-size", type=Size(), metavar="SIZE", help="With -m: lay an image out for a zoned device with such zones."
)
@click.option(
    "--conventional-zones",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --zone-size: how many leading zones may be written anywhere.",
)
@click.option(
    "-S",
    "--sparse",
    "sparse_size",
    type=SizeOrAuto(),
    metavar="SIZE|auto",
    help="Write an Android sparse image of a volume of this size.",
)
@click.option(
    "-w",
    "--sector-size",
    "wanted_sector_size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Unit of SECTORS.  [default: the device's sectors]",
)
@click.option(
    "-t",
    "--discard",
    type=click.IntRange(0, 1),
    default=1,
    show_default=True,
    help="1 gives all space back before formatting, 0 does not.",
)
@click.option(
    "-r",
    "--reproducible",
    is_flag=True,
    help="Fixed UUID and checkpoint version, by the options; $SOURCE_DATE_EPOCH fixes the times too.",
)
@click.option("-g", "--defaults", type=click.Choice(["android"]), help="Features and defaults of Android.")
@click.option(
    "--erase-block",
    type=Size(),
    metavar="SIZE",
    help="Align sections, zones and the main area to erase blocks of this size.",
)
@click.option("--align", type=click.Choice(["auto"]), help="The same with the erase block that the card states.")
@click.option(
    "--partition-start",
    type=Size(),
    metavar="SIZE",
    help="Where on its medium the volume will start, for alignment.  [default: 0 for images]",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite what is there.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@offset_option
@click.option("-n", "--dry-run", is_flag=True, help="Print the plan and write nothing.")
@undo_option
@click.option("-V", "--version", "show_version", is_flag=True, help="Print the version and stop.")
@click.option("-a", type=int, hidden=True)
@click.option("-d", type=int, hidden=True)
@click.option("-H", is_flag=True, hidden=True)
@json_option
def mkfs(**given: Any) -> None:
    """Format an image or a device as F2FS, and fill it.

    With --from the same files give the same bytes everywhere; of their times only the mtime counts.  A file that can't
    be read, or changes meanwhile, is an error that leaves no image.

    SECTORS limits the volume to that many sectors of the device.  What is there already is overwritten only with -f: in
    an image file any byte but zeros, on a device what is recognised, such as file systems, RAID and partition tables.
    The letters are those of mkfs.f2fs.

    \b
    Examples:
      f2tools mkfs card.img --size 512M -l CARD
      f2tools mkfs /dev/mmcblk0p2 --align auto -O extra_attr,inode_checksum,sb_checksum
      f2tools mkfs root.img --size auto --free 10% --from rootfs/ --map-owner me:0
      zcat rootfs.tar.gz | f2tools mkfs root.img --size 2G --from - --compress zstd:9
      SOURCE_DATE_EPOCH=0 f2tools mkfs root.img --size 1G -O extra_attr,quota -C utf8
    """
    from f2tools.mkfs import make as maker

    if given["show_version"]:
        click.echo(f"f2tools mkfs {__version__}")
        return
    if not given["image"]:
        raise Usage("which image or device? f2tools mkfs IMAGE --size 1G creates one")
    if given["sizes"] and at_offset(given["image"]) != given["image"]:
        raise Usage("--size makes a new image, and --offset is for one that is there")
    report = maker.make(_request(given))
    for note in report.filling.notes if report.filling else ():  # also for -q: an archive may be cut off
        click.echo(f"f2tools: note: {printable(note)}", err=True)
    if given["as_json"]:
        print_json(as_json(report))
    elif not given["quiet"]:
        click.echo(summary(report))


def _request(given: dict[str, Any]) -> maker.MkfsRequest:
    """The command line as a request."""
    from f2tools.mkfs import make as maker

    encoding, on, _ = parse_encoding(given["encoding"]) if given["encoding"] else (0, 0, 0)
    options = Options(
        label=given["label"],
        features=parse_features(given["features"]),
        encoding=encoding,
        encoding_flags=on,
        overprovision=given["overprovision"],
        segs_per_sec=given["segs_per_sec"],
        secs_per_zone=given["secs_per_zone"],
        reserved_sections=given["reserved_sections"],
        large_nat_bitmap=given["large_nat_bitmap"],
        cold_extensions=words_of(given["cold_extensions"]),
        hot_extensions=words_of(given["hot_extensions"]),
        zoned=given["zoned"],
        discard=bool(given["discard"]) and given["sparse_size"] is None,
        block_size=given["block_size"],
    )
    owner = maker.parse_owner(given["root_owner"]) if given["root_owner"] else None
    fill = _fill(given, owner)
    wanted = given["wanted_sector_size"]
    if given["defaults"] == "android":
        options = maker.android(options, ":" in (given["encoding"] or ""))
        owner, wanted = owner or (0, 0), wanted or given["block_size"]
    return maker.MkfsRequest(
        image=at_offset(given["image"]),
        options=options,
        extra=maker.parse_extra(given["extra"]),
        uuid=maker.parse_uuid(given["uuid"]) if given["uuid"] else None,
        timestamp=None if given["timestamp"] == -1 else given["timestamp"],
        root_owner=owner,
        reproducible=given["reproducible"],
        source_date_epoch=source_date_epoch(),
        sizes=() if AUTO in given["sizes"] else given["sizes"],
        sectors=given["sectors"],
        wanted_sector_size=wanted,
        sparse_size=given["sparse_size"],
        zone_size=given["zone_size"],
        conventional_zones=given["conventional_zones"],
        device_paths=given["device_paths"],
        erase_block=given["erase_block"],
        align=given["align"] == "auto",
        partition_start=given["partition_start"],
        force=given["force"],
        dry_run=given["dry_run"],
        undo=given["undo"],
        fill=fill,
        auto_size=AUTO in (*given["sizes"], given["sparse_size"]),
        free=parse_free(given["free"]) if given["free"] is not None else None,
    )


def _fill(given: dict[str, Any], owner: tuple[int, int] | None) -> Fill | None:
    """What the volume is filled with; Usage where options need it and it is not given."""
    automatic = AUTO in (*given["sizes"], given["sparse_size"])
    if given["free"] is not None and not automatic:
        raise Usage("--free goes with --size auto")
    if automatic and len(given["sizes"]) > 1:
        raise Usage("--size auto is for a volume on one image")
    return fill_of(given, owner)


def uuid_text(uuid: bytes) -> str:
    """The usual form of a UUID."""
    text = uuid.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def as_json(report: maker.MkfsReport) -> dict[str, Any]:
    """What was made, for programs; addresses and counts in blocks and segments, sizes in bytes."""
    plan = report.plan
    geo = plan.geometry
    return {
        "written": report.written,
        "created": list(report.created),
        "overwritten": dict(report.overwritten),
        "devices": [
            {
                "path": device.spec.path,
                "size_bytes": device.spec.size_bytes,
                "total_segments": device.total_segments,
                "start_blkaddr": device.start_blkaddr,
                "end_blkaddr": device.end_blkaddr,
                "alias": device.spec.alias,
            }
            for device in plan.devices
        ],
        "label": plan.options.label,
        "uuid": uuid_text(plan.options.uuid),
        "features": flag_names(plan.feature, FEATURES),
        "block_size": geo.block_size,
        "sector_size": plan.sector_size,
        "block_count": geo.block_count,
        "segs_per_sec": geo.segs_per_sec,
        "secs_per_zone": geo.secs_per_zone,
        "section_count": geo.section_count,
        "segment_count": geo.segment_count,
        "segment_count_ckpt": 2,
        "segment_count_sit": geo.segment_count_sit,
        "segment_count_nat": geo.segment_count_nat,
        "segment_count_ssa": geo.segment_count_ssa,
        "segment_count_main": geo.segment_count_main,
        "segment0_blkaddr": geo.segment0_blkaddr,
        "cp_blkaddr": geo.cp_blkaddr,
        "sit_blkaddr": geo.sit_blkaddr,
        "nat_blkaddr": geo.nat_blkaddr,
        "ssa_blkaddr": geo.ssa_blkaddr,
        "main_blkaddr": geo.main_blkaddr,
        "cp_payload": geo.cp_payload,
        "cursegs": dict(zip(CURSEG_ORDER, plan.cursegs, strict=True)),
        "overprovision_percent": round(plan.overprovision, 3),
        "overprov_segment_count": plan.overprov_segment_count,
        "rsvd_segment_count": plan.rsvd_segment_count,
        "user_block_count": plan.user_block_count,
        "filled": _filled_json(report),
        "alignment": list(report.reasons),
        "notes": list(plan.notes),
    }


def _filled_json(report: maker.MkfsReport) -> dict[str, Any] | None:
    filling = report.filling
    if filling is None:
        return None
    return {
        "source": filling.source,
        "files": filling.files,
        "names": filling.names,
        "bytes": filling.bytes,
        "notes": list(filling.notes),
        **saving_json(filling.compress, report.plan.geometry.block_size),
    }


def summary(report: maker.MkfsReport) -> str:
    """What was made, on one screen."""
    plan = report.plan
    geo, size = plan.geometry, plan.geometry.block_size
    names = ", ".join(device.spec.path for device in plan.devices)
    lines = [f"{names}: {'formatted' if report.written else 'would be formatted (dry run, nothing written)'}"]
    lines += [f"  {path} held {what}" for path, what in report.overwritten]
    rows = [
        ("size", f"{human_size(plan.size_bytes)}, {geo.block_count} blocks of {size} bytes"),
        ("for files", f"{human_size(plan.user_block_count * size)} of {human_size(_main_bytes(plan))}"),
        ("label", plan.options.label or "none"),
        ("uuid", uuid_text(plan.options.uuid)),
        ("features", ", ".join(flag_names(plan.feature, FEATURES)) or "none"),
        ("section", f"{_counted(geo.segs_per_sec, 'segment')}, {human_size(geo.segs_per_sec * 512 * size)}"),
        ("zone", f"{_counted(geo.secs_per_zone, 'section')}, {human_size(geo.segs_per_zone * 512 * size)}"),
        ("overprovision", f"{counted(plan.overprov_segment_count, 'segment')} ({plan.overprovision:.2f} %), "
                          f"{plan.rsvd_segment_count} of them for cleaning"),
    ]  # fmt: skip
    filling = report.filling
    if filling is not None:
        counts = f"{counted(filling.files, 'file')} of {human_size(filling.bytes)} from {filling.source}"
        rows.insert(0, ("filled with" if report.written else "to be filled", counts))
        for said in said_of_saving(filling.compress, size):
            name, _, text = said.partition(": ")
            rows.insert(1, (name, text))
    lines += [f"  {name:<14}{text}" for name, text in rows]
    lines.append("")
    lines.append("  area       first block     segments        size")
    for name, (start, count) in list(geo.areas().items())[1:]:
        lines.append(f"  {name:<5}{start:>#17x}{count // 512:>13}{human_size(count * size):>12}")
    for title, said in (("alignment", report.reasons), ("note", plan.notes)):
        lines += ["", *(f"  {title}: {text}" for text in said)] if said else []
    return "\n".join(printable(line) for line in lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _main_bytes(plan: VolumePlan) -> int:
    return plan.geometry.segment_count_main * 512 * plan.geometry.block_size
