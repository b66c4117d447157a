"""The dictionaries of this package as text for people, one function per command."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from f2tools.dump import render
from f2tools.dump.nodes import VALUE_SHOWN, shown_address
from f2tools.options import human_size
from f2tools.text import EMPTY, FULL, SHADES, counted, printable, printable_name, shade

if TYPE_CHECKING:
    from rich.console import Console

    from f2tools.dump.segments import Picture
    from f2tools.dump.tables import Columns

LABEL_WIDTH = 9  # segment numbers left of the picture
PICTURE_LINES = 16
TYPE_STYLES = ("red", "yellow", "blue", "magenta", "green", "cyan")
TYPE_LETTERS = "hwcHWC"
MAP_BYTES_PER_CELL = 2
LINES_AT_ONCE = 4096


# -- info -------------------------------------------------------------------------------------------------------


def info(console: Console, shown: dict[str, Any]) -> None:
    """One screen."""
    geo, space, state = shown["geometry"], shown["space"], shown["state"]
    label = f" {shown['label']!r}" if shown["label"] else ", no label"
    render.title(console, f"{shown['format']} volume{label}, {human_size(shown['size_bytes'])}")
    areas = ", ".join(f"{name} {area['blkaddr']:#x} ({area['segments']})" for name, area in geo["areas"].items())
    total = space["user_block_count"] * geo["block_size"]
    percent = 100 * space["valid_block_count"] / max(1, space["user_block_count"])
    rows: list[tuple[str, Any]] = [
        ("uuid", shown["uuid"]),
        ("size", f"{shown['size_bytes']} bytes; device or image {shown['device_bytes']}"),
        ("blocks", f"{geo['block_count']} of {geo['block_size']} bytes; sectors of {geo['sector_size']}"),
        ("segments", f"{geo['segment_count']} of {geo['blocks_per_seg']} blocks, {geo['segment_count_main']} in main; "
         f"{geo['section_count']} sections of {geo['segs_per_sec']}, {geo['secs_per_zone']} per zone"),
        ("areas", f"{areas}  (start, segments)"),
        ("features", shown["features"] or "none"),
    ]  # fmt: skip
    if len(shown["files"]) > 1:  # the first is the image that was named
        rows.insert(1, ("read from", [printable(name) for name in shown["files"]]))
    if shown["encoding"]:
        words = [shown["encoding"]["name"], shown["encoding"]["version"], *shown["encoding"]["flags"]]
        rows.append(("encoding", " ".join(word for word in words if word)))
    if shown["devices"]:
        rows.append(("devices", [f"{d['path']} ({d['total_segments']} segments)" for d in shown["devices"]]))
    if shown["policies"]:
        rows += [("" if i else "policies", _policy(policy)) for i, policy in enumerate(shown["policies"])]
    if shown["quota_inodes"]:
        rows.append(("quota inodes", shown["quota_inodes"]))
    rows += [
        ("extensions", f"cold: {' '.join(shown['extensions']['cold']) or '-'}; "
         f"hot: {' '.join(shown['extensions']['hot']) or '-'}"),
        ("used", f"{human_size(space['used_bytes'])} of {human_size(total)} ({percent:.1f} %), "
         f"{human_size(space['free_bytes'])} free"),
        ("in use", f"{space['valid_inode_count']} inodes, {space['valid_node_count']} nodes, "
         f"{space['valid_block_count']} blocks; {space['free_segment_count']} segments free, "
         f"{space['overprov_segment_count']} overprovision, {space['rsvd_segment_count']} reserved"),
        ("state", _state(state)),
        ("checkpoint", f"{state['checkpoint_ver']:#x}: {state['why']}"),
        ("flags", state["flags"]),
    ]  # fmt: skip
    if state["orphans"]:
        rows.append(("orphans", f"{state['orphans']} inodes without a name, to be freed at the next mount"))
    if state["errors"] or state["stop_reasons"]:
        rows.append(("errors noted", f"{render.value('', state['errors'])}; stops: "
                     f"{render.value('', state['stop_reasons'])}"))  # fmt: skip
    written = shown["kbytes_written"]
    rows += [
        ("lifetime", f"mounted {state['elapsed_time']} s, "
         + ("writes not known" if written is None else f"{human_size(written * 1024)} written")),
        ("version", _release(shown["version"])),
        ("init_version", _release(shown["init_version"])),
    ]  # fmt: skip
    render.pairs(console, rows)


def _policy(policy: dict[str, Any]) -> str:
    """One fscrypt policy in a line."""
    which = "identifier" if policy["version"] == 2 else "descriptor"
    more = "".join(f", {name}" for name in policy["flags"])
    key = "no key given" if policy["key"] is None else f"key {printable(policy['key'])}"
    return (
        f"v{policy['version']} {which} {policy[which]}: {policy['contents']}, names {policy['filenames']} "
        f"padded to {policy['padding']}{more}; {policy['inodes']} inodes; {key}"
    )


def _release(version: str) -> str:
    """The part of a kernel's version string that tells it apart; `superblock` has the whole."""
    return printable(version.partition(" (")[0])


def _state(state: dict[str, Any]) -> str:
    if state["clean"]:
        return "unmounted cleanly"
    nodes, files = state["fsynced_nodes"], state["fsynced_files"]
    wait = "waits" if nodes == 1 else "wait"
    what = f"{counted(nodes, 'fsynced node')} of {counted(files, 'file')} {wait} for roll-forward"
    return f"not unmounted: {what if nodes else 'nothing was fsynced after the checkpoint'}"


# -- superblock, checkpoint -------------------------------------------------------------------------------------


def superblock(console: Console, shown: dict[str, Any]) -> None:
    """The fields of the copy to believe, those of the other where they differ."""
    for copy in shown["copies"]:
        said = "sound" if copy["valid"] else "; ".join(copy["problems"])
        live = ", used" if copy["index"] == shown["live"] else ""
        render.title(console, f"copy {copy['index']} at offset {copy['offset']:#x}{live}: {said}")
    readable = [copy for copy in shown["copies"] if copy["fields"] is not None]
    main = next((copy for copy in readable if copy["index"] == shown["live"]), readable[0])
    other = next((copy for copy in readable if copy is not main), None)
    render.pairs(console, main["fields"].items())
    if not shown["differences"] or other is None:
        render.title(console, "the copies are equal" if other else "there is nothing to compare it with")
        return
    render.title(console, f"copy {other['index']} differs in {len(shown['differences'])} fields:")
    render.pairs(console, ((name, other["fields"][name]) for name in shown["differences"]))


def checkpoint(console: Console, shown: dict[str, Any]) -> None:
    """Both packs side by side."""
    live = "no pack is live" if shown["live"] is None else f"pack {shown['live'] + 1} is live"
    render.title(console, f"{live}: {shown['why']}")
    packs = shown["packs"]
    columns = ["field", *(f"pack {pack['index'] + 1}" for pack in packs)]
    rows = [[name, *(render.value(name, pack["fields"][name]) for pack in packs)] for name in packs[0]["fields"]]
    rows += [
        ["block", *(f"{pack['blkaddr']:#x}" for pack in packs)],
        ["sound", *(_sound(pack) for pack in packs)],
        ["crc", *(f"{pack['crc']:#x}" for pack in packs)],
        ["flags", *(", ".join(pack["flags"]) for pack in packs)],
        ["sit bitmap", *(_bitmap(pack["sit_bitmap"]) for pack in packs)],
        ["nat bitmap", *(_bitmap(pack["nat_bitmap"]) for pack in packs)],
        ["nat_bits", *(_nat_bits(pack["nat_bits"]) for pack in packs)],
        ["orphans", *(render.value("", pack["orphans"]) for pack in packs)],
    ]
    render.table(console, columns, rows, left=columns)
    for pack in packs:
        if not pack["valid"]:
            continue
        render.title(console, f"open logs of pack {pack['index'] + 1}")
        render.dicts(console, pack["cursegs"], left=("name", "alloc"))
        render.title(console, f"blocks of pack {pack['index'] + 1}")
        render.dicts(console, pack["contents"], left=("what",))


def _sound(pack: dict[str, Any]) -> str:
    problems = "; ".join(pack["problems"])
    if not pack["valid"]:
        return problems
    return f"yes, but {problems}" if problems else "yes"


def _bitmap(bits: dict[str, int]) -> str:
    return f"{bits['ones']} of {bits['bits']} blocks in their second place"


def _nat_bits(bits: dict[str, Any] | None) -> str:
    if bits is None:
        return "-"
    if not bits["matches"]:
        return f"at {bits['blkaddr']:#x}, of another checkpoint (ignored)"
    return f"at {bits['blkaddr']:#x}: {bits['full']} NAT blocks full, {bits['empty']} empty"


# -- tables -----------------------------------------------------------------------------------------------------


def nat_lines(pieces: Iterator[Columns]) -> Iterator[str]:
    """The NAT as lines of fixed columns."""
    yield f"{'nid':>10} {'version':>7} {'ino':>10} {'block_addr':>10}  place\n"
    for columns in pieces:
        rows = zip(
            *(columns[name].tolist() for name in ("nid", "version", "ino", "block_addr", "journal")), strict=True
        )
        yield "".join(
            f"{nid:>10} {version:>7} {ino:>10} {shown_address(addr):>10}  {'journal' if journal else 'table'}\n"
            for nid, version, ino, addr, journal in rows
        )


def sit_lines(pieces: Iterator[Columns]) -> Iterator[str]:
    """The SIT as lines: each character of the map stands for 16 blocks, `.` none valid, `#` all, `+` some."""
    yield f"{'segno':>8} {'type':<9} {'valid':>5} {'mtime':>10} {'place':<7} map (16 blocks a character)\n"
    names = ("segno", "type", "vblocks", "mtime", "journal", "valid_map")
    for columns in pieces:
        rows = zip(*(columns[name].tolist() for name in names), strict=True)
        yield "".join(
            f"{segno:>8} {kind:<9} {valid:>5} {mtime:>10} {'journal' if journal else 'table':<7} {_map_cells(bits)}\n"
            for segno, kind, valid, mtime, journal, bits in rows
        )


@functools.lru_cache(1 << 16)
def _map_cells(bits: str) -> str:
    step = 2 * MAP_BYTES_PER_CELL
    cells = (bits[i : i + step] for i in range(0, len(bits), step))
    return "".join("." if not cell.strip("0") else "#" if not cell.strip("f") else "+" for cell in cells)


def ssa_lines(pieces: Iterator[Columns]) -> Iterator[str]:
    """Summaries as lines of fixed columns."""
    head = f"{'blkaddr':>10} {'segno':>8} {'blkoff':>6} {'kind':<4} {'nid':>10}"
    yield f"{head} {'version':>7} {'ofs_in_node':>11}  valid\n"
    for columns in pieces:
        names = ("blkaddr", "segno", "blkoff", "kind", "nid", "version", "ofs_in_node", "valid")
        rows = zip(*(columns[name].tolist() for name in names), strict=True)
        yield "".join(
            f"{addr:>#10x} {segno:>8} {off:>6} {kind:<4} {nid:>10} {ver:>7} {ofs:>11}  {'yes' if valid else 'no'}\n"
            for addr, segno, off, kind, nid, ver, ofs, valid in rows
        )


# -- segments ---------------------------------------------------------------------------------------------------


def segments(console: Console, shown: dict[str, Any]) -> None:
    """Counts by type, open logs."""
    render.title(
        console,
        f"{shown['segments']} segments of {shown['blocks_per_seg']} blocks: {shown['used_segments']} in use, "
        f"{shown['full_segments']} of them full, {shown['free_segments']} free; {shown['valid_blocks']} valid blocks",
    )
    render.dicts(console, shown["by_type"], left=("type",))
    render.title(console, "open logs")
    render.dicts(console, shown["open_logs"], left=("name", "type", "alloc"))


def plain_picture(console: Console) -> bool:
    """Whether the picture can only use letters and digits."""
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    return not console.is_terminal or console.no_color or not encoding.startswith("utf8")


def cells_that_fit(console: Console) -> int:
    """How many cells the picture may have."""
    each = 3 if plain_picture(console) else 1
    return max(8, (min(console.width, 160) - LABEL_WIDTH - 1) // each) * PICTURE_LINES


def draw(console: Console, cells: Picture, names: list[str]) -> None:
    """The picture of the volume, the first segment's number before each line, and what the signs mean."""
    from rich.text import Text

    plain = plain_picture(console)
    per_line = max(8, (min(console.width, 160) - LABEL_WIDTH - 1) // (3 if plain else 1))
    each = f"{cells.segs_per_cell} segments" if cells.segs_per_cell > 1 else "a segment"
    render.title(console, f"main area, a cell is {each}")
    kinds, fills, opened = cells.types.tolist(), cells.fill.tolist(), cells.is_open.tolist()
    for start in range(0, len(kinds), per_line):
        line = Text(f"{start * cells.segs_per_cell:>{LABEL_WIDTH - 1}} ")
        for kind, fill, is_open in list(zip(kinds, fills, opened, strict=True))[start : start + per_line]:
            text, style = _plain_cell(kind, fill, is_open) if plain else _cell(kind, fill, is_open)
            line.append(text, style)
        line.rstrip()
        console.print(line, no_wrap=True, crop=False)
    legend = Text("  ")
    for kind, name in enumerate(names):
        legend.append(TYPE_LETTERS[kind] if plain else SHADES[-1], "" if plain else TYPE_STYLES[kind])
        legend.append(f" {name}  ")
    legend.rstrip()
    console.print(legend)
    console.print("  digit: tenths valid  . free  * open log" if plain else f"  {SHADES} how full  · free  ◆ open log")


def _plain_cell(kind: int, fill: float, is_open: bool) -> tuple[str, str]:
    mark = "*" if is_open else " "
    return (f". {mark}" if kind < 0 else f"{TYPE_LETTERS[kind]}{min(9, int(fill * 10))}{mark}"), ""


def _cell(kind: int, fill: float, is_open: bool) -> tuple[str, str]:
    if kind < 0:
        return ("◆", "white") if is_open else (EMPTY, "bright_black")
    return ("◆" if is_open else shade(fill)), TYPE_STYLES[kind]


def histogram(console: Console, counts: list[int]) -> None:
    """Segments in use by how full they are."""
    render.title(console, "segments in use by valid blocks")
    step, most = 100 // len(counts), max([*counts, 1])
    room = max(10, min(console.width, 100) - 26)
    bar = "#" if plain_picture(console) else FULL
    for i, count in enumerate(counts):
        length = -(-count * room // most)
        line = f"  {i * step:>3}-{(i + 1) * step:>3} % {count:>8} {bar * length}"
        console.print(line.rstrip(), no_wrap=True, crop=False)


# -- nodes, inodes, directories, maps ---------------------------------------------------------------------------


def node(console: Console, shown: dict[str, Any]) -> None:
    """A node of whatever kind."""
    if "nid" in shown:
        render.title(console, f"node {shown['nid']} ({shown['kind']}) at block {shown['blkaddr']:#x}")
        render.pairs(console, [("NAT entry", shown["nat"])])
    footer = shown["footer"]
    render.pairs(console, [(f"footer.{name}", item) for name, item in footer.items()])
    if "inode" in shown:
        inode_body(console, shown["inode"])
    if "addrs" in shown:
        first = "" if shown["fofs"] is None else f", file blocks from {shown['fofs']}"
        render.title(console, f"{shown['mapped']} addresses{first}")
        _runs(console, shown["addrs"], address=True)
    if "nids" in shown:
        render.title(console, f"{shown['children']} child nodes")
        _runs(console, shown["nids"], address=False)
    if "used_bytes" in shown:
        render.pairs(
            console, [("xattr bytes in use", shown["used_bytes"]), ("starts with magic", shown["xattr_magic"])]
        )


def inode(console: Console, shown: dict[str, Any]) -> None:
    """An inode with its names."""
    names = [printable_name(path) for path in shown["paths"]] or ["no name found"]
    doubt = "" if shown["paths_confirmed"] else " (by i_pino; no directory confirms it)"
    render.title(console, f"inode {shown['ino']} at block {shown['blkaddr']:#x}: {', '.join(names)}{doubt}")
    inode_body(console, shown)


def inode_body(console: Console, shown: dict[str, Any]) -> None:
    """The fields of an inode, addresses, nids, xattrs."""
    fields, times = shown["fields"], shown["times"]
    rows: list[tuple[str, Any]] = [("kind", shown["kind"]), ("name", printable_name(shown["name"]))]
    notes = {
        "i_mode": fields["i_mode_octal"],
        "i_advise": _flags(fields["i_advise"], shown["advise_flags"]),
        "i_inline": _flags(fields["i_inline"], shown["inline_flags"]),
        "i_flags": _flags(fields["i_flags"], shown["flags"]),
    }
    hidden = {"i_name", "i_mode_octal", "i_atime_nsec", "i_ctime_nsec", "i_mtime_nsec"}
    for name, item in fields.items():
        if name in hidden:
            continue
        if name in ("i_atime", "i_ctime", "i_mtime"):
            item = times[name.removeprefix("i_")]
        rows.append((name, notes.get(name, item)))
    rows += [("i_ext", shown["i_ext"])]
    extra = dict(shown["extra"])
    if times["crtime"] is not None:
        extra.pop("i_crtime_nsec", None)
        extra["i_crtime"] = times["crtime"]
    rows += list(extra.items())
    if shown["checksum"]:
        check = shown["checksum"]
        rows.append(("checksum", "right" if check["ok"] else f"WRONG, should be {check['computed']:#x}"))
    for part in ("compression", "inline"):
        if shown[part]:
            rows += [(f"{part}.{name}", item) for name, item in shown[part].items()]
    rows += [(name, nid) for name, nid in shown["i_nid"].items() if nid]
    render.pairs(console, rows)
    if shown["i_addr"]:
        render.title(console, "addresses in the inode")
        _runs(console, shown["i_addr"], address=True)
    if shown["xattrs"]:
        render.title(console, "extended attributes")
        render.pairs(console, [_xattr(item) for item in shown["xattrs"]])


def _xattr(item: dict[str, Any]) -> tuple[str, str]:
    raw = bytes.fromhex(item["value"])
    name = item["name"] or f"[{item['index']}] {bytes.fromhex(item['raw_name']).decode('latin-1')}"
    text = raw[:VALUE_SHOWN].decode("latin-1")
    shown = text if text.isascii() and text.isprintable() else raw[:VALUE_SHOWN].hex()
    return printable_name(name), f"{shown}{'...' if len(raw) > VALUE_SHOWN else ''}  ({len(raw)} bytes)"


def _flags(number: int, names: list[str]) -> str:
    return f"{number:#x} ({', '.join(names)})" if names else "0"


def _runs(console: Console, runs: list[dict[str, Any]], *, address: bool) -> None:
    def first(run: dict[str, Any]) -> str:
        return shown_address(run["first"]) if address else str(run["first"])

    rows = ((run["index"], first(run), run["count"]) for run in runs)
    render.table(console, ("index", "first", "count"), rows, left=("first",))


def dentries(console: Console, shown: dict[str, Any]) -> None:
    """The slots of a directory."""
    form = "inline" if shown["inline"] else f"{shown['blocks']} blocks, depth {shown['i_current_depth']}"
    more = "".join(f", {word}" for word in ("casefolded", "encrypted") if shown[word])
    render.title(
        console, f"directory inode {shown['ino']}: {counted(len(shown['entries']), 'entry', 'entries')}, {form}{more}"
    )
    dentry_table(console, shown["entries"])


def dentry_table(console: Console, entries: list[dict[str, Any]]) -> None:
    """Entries as lines: a big directory must not wait for a table to be measured."""
    unused = any(entry["state"] != "used" for entry in entries)
    lines = [f"  {'block':>6} {'slot':>5} {'hash':>10} {'ino':>10} {'type':<8} {'state  ' if unused else ''}name"]
    for entry in entries:
        state = f"{entry['state']:<6} " if unused else ""
        wrong = "" if entry["problem"] is None else f"   <- {entry['problem']}"
        lines.append(
            f"  {entry['block']:>6} {entry['slot']:>5} {entry['hash_code']:>#10x} {entry['ino']:>10} "
            f"{entry['type']:<8} {state}{printable_name(entry['name'])}{wrong}"
        )
    print("\n".join(lines), flush=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def file_map(console: Console, shown: dict[str, Any], extents: Iterable[dict[str, Any]]) -> None:
    """The extents of a file."""
    render.title(
        console,
        f"inode {shown['ino']}, {shown['kind']} of {shown['i_size']} bytes: {_count(shown['mapped_blocks'], 'block')} "
        f"of {shown['block_size']} in {_count(shown['fragments'], 'fragment')}",
    )
    head = f"  {'file block':>12} {'count':>10} {'blkaddr':>10} {'segment':>9} {'type':<9} kind"
    lines = chain([head], map(_extent, extents))
    while some := list(islice(lines, LINES_AT_ONCE)):
        print("\n".join(some), flush=True)


def _extent(part: dict[str, Any]) -> str:
    where = "-" if part["blkaddr"] is None else f"{part['blkaddr']:#x}"
    kind = part["kind"]
    if kind == "compressed":
        kind += f" into {sum(run['count'] for run in part['blocks'])} blocks"
    elif kind == "inline":
        kind = f"inline, {part['bytes']} bytes in the inode"
    past = ", past the end" if part.get("beyond_eof") else ""
    segno = "-" if part["segno"] is None else part["segno"]
    return f"  {part['fofs']:>12} {part['count']:>10} {where:>10} {segno:>9} {part['type'] or '-':<9} {kind}{past}"


# -- block ------------------------------------------------------------------------------------------------------


def block(console: Console, shown: dict[str, Any], *, with_hex: bool) -> None:
    """A block, whatever it is."""
    render.title(console, f"block {shown['blkaddr']:#x} ({shown['blkaddr']}), byte {shown['offset']:#x}")
    nested = (
        "owner",
        "node",
        "dentries",
        "entries",
        "fields",
        "data",
        "problems",
        "blkaddr",
        "offset",
        "area",
        "content",
    )
    rows = [("area", shown["area_name"])] + [
        (name, item) for name, item in shown.items() if name not in (*nested, "area_name")
    ]
    render.pairs(console, rows)
    if shown.get("owner"):
        owner = dict(shown["owner"])
        owner["paths"] = [printable_name(path) for path in owner["paths"]]
        render.title(console, "owner, by the summary")
        render.pairs(console, owner.items())
    if "node" in shown:
        render.title(console, f"node block ({shown['node']['kind']})")
        node(console, shown["node"])
    if shown.get("dentries"):
        render.title(console, "directory entries")
        dentry_table(console, shown["dentries"])
    if shown.get("entries"):
        render.title(console, counted(len(shown["entries"]), "entry", "entries"))
        render.dicts(console, shown["entries"])
    if shown.get("fields"):
        render.title(console, "fields")
        render.pairs(console, shown["fields"].items())
    if with_hex:
        print("\n".join(render.hex_dump(shown["data"])), flush=True)


# -- layout -----------------------------------------------------------------------------------------------------


def layout(console: Console, shown: dict[str, Any]) -> None:
    """One structure."""
    render.title(console, f"{shown['name']} ({shown['kernel_name']}), {shown['size']} bytes: {shown['meaning']}")
    fields = [field | {"offset": str(field["offset"])} for field in shown["fields"]]
    render.dicts(console, fields, left=("type", "name", "meaning"))


def layouts(console: Console, shown: list[dict[str, Any]]) -> None:
    """All structures."""
    render.dicts(console, shown, left=("name", "kernel_name", "meaning"), indent=0)
