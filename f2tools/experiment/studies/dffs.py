"""DFFS on raw flash: pages that mounting, opening, changing and two workloads read and write, on a chip in memory.

The figures are those of `f2tools dffs report`, on the paper's chip: it is small as it is, and not scaled.  What the
other file systems of the paper would read stands beside them as a model.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from f2tools.dffs import report
from f2tools.dffs.layout import Shape
from f2tools.dffs.mkfs import shape_for
from f2tools.experiment.loads import MIB
from f2tools.experiment.model import (
    Claim,
    Experiment,
    Numbers,
    Outcome,
    Part,
    Row,
    Setting,
    Work,
    cant_tell,
    verdict,
)
from f2tools.pictures.svg import Line, Picture

CHIP = 256 * MIB
USUAL = 64  # scales down to 1/64 leave the workloads as the paper has them
READ_US, PROGRAM_US, ERASE_US = 25, 200, 2000  # of a NAND's data sheet
PAPER_POSTMARK = {"create": (38, 47, 45), "mixed": (76, 83, 68), "delete": (1052, 350, 350)}  # JFFS2, YAFFS2, DFFS
MODEL = "a model, not measured: "
NO_SPEED = "the chip is in memory and has no speed; pages stand in the table"
COLOURS = {"written": "#d55e00", "read": "#0072b2"}
WHY_OPEN = "a name whose bucket is taken is looked up in a virtual inode, a page of its own"


def chip() -> Shape:
    """The paper's: 2,048 erase blocks of 64 pages of 2 KiB."""
    return shape_for(CHIP)


def part(work: Work, figure: str, **given: int) -> Numbers:
    """One figure of the report."""
    found: Any = getattr(report, figure)(chip(), **given)
    work.advance(1.0)
    return {"found": found}


def parts(setting: Setting) -> list[Part]:
    """Each figure by itself."""
    less = max(1, ceil(1 / (setting.scale * USUAL)))
    load = {"scale": less, "seed": setting.seed}
    mounts = [Part(f"mount-{n}", part, {"figure": "mount_with", "files": n // less}, 0.3) for n in report.FILES]
    return [
        Part("mount", part, {"figure": "mounts"}, 0.1),
        *mounts,
        Part("lookup", part, {"figure": "lookups", "seed": setting.seed}, 0.1),
        Part("change", part, {"figure": "changes"}, 0.1),
        Part("postmark", part, {"figure": "postmark", **load}, 3.0),
        Part("compile", part, {"figure": "compilation", **load}),
        Part("models", part, {"figure": "models"}, 0.1),
    ]  # fmt: skip


def judge(_setting: Setting, numbers: dict[str, Numbers]) -> Outcome:
    """Mounts that don't grow, a look-up of little more than a page, one or two pages for a change."""
    found = {name: one["found"] for name, one in numbers.items()}
    mounted = [found[f"mount-{files}"] for files in report.FILES]
    pages = [one["pages_read"] + one["spares_read"] for one in mounted]
    held = [one["bytes"] for one in mounted]
    files = ", ".join(f"{one['files']:,}" for one in mounted)
    opened, change, models = found["lookup"], found["change"], found["models"]
    each = opened["read_each"]
    jffs2 = report.measured()["jffs2"]
    together = change["create_many_then_fsync"]["written_each"]
    create, delete = change["create"]["written_each"], change["delete"]["written_each"]
    claims = [
        Claim("mounting takes as long with many files as with few", "flat; JFFS2 and YAFFS2 grow",
              f"{', '.join(map(str, pages))} pages and spare areas read with {files} files",
              verdict(max(pages) <= 1.05 * min(pages), pages[-1] < 2 * pages[0])),
        Claim("memory after mounting is the same with many files as with few", "flat; JFFS2 and YAFFS2 grow",
              f"{', '.join(f'{one / 1024:.0f}' for one in held)} KiB with {files} files",
              verdict(max(held) <= 1.1 * min(held), held[-1] < 2 * held[0]), "of this program, which is in Python"),
        Claim("opening a file by its name reads little more than the pages of directory and file, for collisions",
              "a little more than YAFFS2's one", f"{each:.2f} pages with nothing in memory: the directory's, the "
              f"file's, and {each - 2:.2f} for collisions; in directories of 50 to 200 files",
              verdict(2 <= each <= 2.4, each < 3), WHY_OPEN),
        Claim("creating a file writes one or two pages", "1 or 2",
              f"{create:.2f} if each is made safe by itself, {together:.2f} of many",
              verdict(together >= 1 and create <= 2.2, create < 4), "what is above 2 are virtual inodes"),
        Claim("deleting a file writes one or two pages", "1 or 2", f"{delete:.2f} if each is made safe by itself",
              verdict(1 <= delete <= 2.2, delete < 4)),
        Claim("opening reads far more on JFFS2", "far more", f"{jffs2['lookup']['read_each']:.0f} pages on Linux's, in "
              "the same directories with nothing in memory", verdict(jffs2["lookup"]["read_each"] > 5 * each,
              jffs2["lookup"]["read_each"] > each), "measured once, on nandsim: f2tools/dffs/jffs2.json"),
        cant_tell("opening reads one page on YAFFS2", "1", "it was not run here"),
        cant_tell("Postmark, operations a second of JFFS2, YAFFS2, DFFS: create 38, 47, 45; mixed 76, 83, 68; "
                  "delete 1052, 350, 350", "create 45, mixed 68, delete 350", NO_SPEED),
        cant_tell("compiling a kernel is 5.1 % faster on YAFFS2", "5.1 %", NO_SPEED),
    ]  # fmt: skip
    return Outcome(claims, _rows(found, models), _pictures(found, mounted, models))


def by_model(spent: Numbers) -> str:
    """Operations a second by a data sheet's times: of reading and programming alone."""
    each = (spent["pages_read"] * READ_US + spent["pages_written"] * PROGRAM_US) / max(1, spent["times"])
    return f"{1e6 / each:,.0f} a second by {READ_US} us for a page read and {PROGRAM_US} us for one written"


def _rows(found: dict[str, Any], models: Numbers) -> list[Row]:
    cut = found["mount"]["after_a_cut"]
    rows = [
        Row("mount after a power cut that left 100 creates", "-",
            f"{cut['pages_read']} pages and {cut['spares_read']} spare areas read", "the log since the checkpoint"),
        Row("mount of YAFFS2", "-", f"{models['yaffs2']['mount']['spares_read']} spare areas",
            MODEL + models["yaffs2"]["why"]),
        Row("mount of JFFS2, 200 small files", "-", "{pages_read} pages and {spares_read} spare areas".format(
            **report.measured()["jffs2"]["mount"]["closed"]["mount"]), "Linux's, measured on nandsim"),
        Row("mount of JFFS2 that is full", "-", f"{models['jffs2']['mount']['pages_read']} pages, with summaries "
            f"{models['jffs2']['mount_with_summaries']['pages_read']}", MODEL + models["jffs2"]["why"]),
    ]  # fmt: skip
    for name, one in found["change"].items():
        rows.append(Row(name.replace("_", " "), "1 or 2" if name in ("create", "delete") else "-",
                        f"{one['written_each']:.2f} pages written, {one['read_each']:.2f} read"))  # fmt: skip
    for name, spent in found["postmark"]["phases"].items():
        paper = "{} a second, JFFS2 {}, YAFFS2 {}".format(*(PAPER_POSTMARK[name][n] for n in (2, 0, 1)))
        rows.append(Row(
            f"Postmark, {name}", paper,
            f"{spent['pages_written']} pages written, {spent['pages_read']} read by {spent['times']}"
            f"; {by_model(spent)}",
            "the model has no processor and no bus, and what is deleted is made safe at the end",
        ))  # fmt: skip
    one = found["compile"]
    rows.append(Row("like a compilation", "-", f"{one['pages_written']} pages written, {one['pages_read']} read by "
                    f"{one['times']} sources", "the calls of one, without a compiler"))  # fmt: skip
    return rows


def _pictures(found: dict[str, Any], mounted: list[Numbers], models: Numbers) -> list[Picture]:
    directories = found["lookup"]["directories"]
    opened = [row["read_each"] for row in directories]
    changes = {name: one for name, one in found["change"].items() if name != "create_many_then_fsync"}
    written = [one["written_each"] for one in changes.values()]
    reads = [float(one["pages_read"] + one["spares_read"]) for one in mounted]
    memory = [one["bytes"] / 1024 for one in mounted]
    names = [f"{one['files']:,} files" for one in mounted]
    return [
        _bars("dffs-mount", "Mount: pages and spare areas read", "files on the volume", "read", reads, names),
        _bars("dffs-memory", "Memory after mounting", "files on the volume", "KiB", memory, names),
        _bars("dffs-open", "Open by name: pages read, the inode with them", "files in the directory", "pages", opened,
              [str(row["files"]) for row in directories]),
        _bars("dffs-change", "Changes, each made safe by itself: pages written", "change", "pages", written,
              [name.replace("_", " ") for name in changes], "written"),
    ]  # fmt: skip


def _bars(
    name: str, title: str, x_label: str, y_label: str, values: list[float], names: list[str], what: str = "read"
) -> Picture:
    return Picture(name, title, "bars", x_label, y_label, y_range=(0, max(values)), names=names,
                   lines=[Line("DFFS", COLOURS[what], [], values)])  # fmt: skip


EXPERIMENT = Experiment(
    "dffs", "DFFS on raw flash: pages read and written", "DFFS paper (ISORC 2008), 4",
    "256 MiB of SLC flash, 2,048 erase blocks of pages of 2 KiB; JFFS2 and YAFFS2 beside it", ("engine",), parts, judge,
)  # fmt: skip
