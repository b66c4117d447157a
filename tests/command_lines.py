"""A line for every command of f2tools, to be run on one image in this order: changes first, then looks at the result.

In a line, {i} is the image, {d} a directory for what the command writes, {f} a file outside, {t} a text trace.
"""

from __future__ import annotations

CHANGING = (
    "mkdir {i}:/a",
    "cp {f} {i}:/a/b --undo {d}/cp.undo",
    "undo {d}/cp.undo {i} --dry-run",
    "cp {f} {i}:/",
    "load {i} --from {d} --undo {d}/load.undo",
    "ln {i}:/a/b {i}:/a/c",
    "mv {i}:/a/c {i}:/a/d",
    "rm {i}:/a/d",
    "mkdir {i}:/e",
    "rmdir {i}:/e",
    "mknod {i}:/null c 1 3",
    "chmod 600 {i}:/a/b",
    "chown 1:1 {i}:/a/b",
    "touch {i}:/a/t",
    "truncate -s 8K {i}:/a/t",
    "setfattr -n user.x -v y {i}:/a/b",
    "setfacl -m u:1:r {i}:/a/b",
    "chattr +d {i}:/a/b",
    "edit {i} -c mkdir\\ :/g",
    "label {i} NEW",
    "tune {i} --uuid random",
    "clean {i} --svg {d}/clean.svg",
    "defrag {i} /a",
    "resize {i} --minimum",
    "recover {i} --apply --undo {d}/recover.undo",
    "fsck -y --undo {d}/fsck.undo {i}",
    "fsck -y --rescue --undo {d}/rescue.undo {i}",
    "rm {i}:/a/t",
)
READING = (
    "dump info {i}",
    "dump superblock {i}",
    "dump checkpoint {i}",
    "dump nat {i}",
    "dump sit {i}",
    "dump ssa {i} 0",
    "dump segments {i}",
    "dump node {i} 3",
    "dump inode {i} /",
    "dump dentries {i} /",
    "dump block {i} 0",
    "dump map {i} /",
    "dump ls -lR {i}",
    "dump tree {i}",
    "dump stat {i} /",
    "dump cat {i} /a/b",
    "dump extract {i} -o {d}/files",
    "dump tar {i} -o {d}/files.tar",
    "dump manifest {i}",
    "dump verify {i}",
    "dump metadata {i} {d}/metadata",
    "fls -r {i}",
    "icat {i} 3",
    "istat {i} 3",
    "blkcat {i} 0",
    "fsstat {i}",
    "hashes {i}",
    "label {i}",
    "tune {i}",
    "fsck {i}",
    "doctor {i}",
    "info {i}",
    "shell {i} -c ls",
    "fsck --rescue {i}",
    "fsck --salvage {d}/salvaged {i}",
    "recover {i}",
    "scan {i} -o {d}/index",
    "history {i} / --index {d}/index",
    "timeline {i} -o {d}/timeline",
    "undelete {i} -o {d}/undeleted",
    "carve {i} -o {d}/carved",
    "slack {i} -o {d}/slack",
    "strings {i}",
    "report {i} -o {d}/report --no-hashes",
    "trace events {t} --image {i}",
    "trace analyze {t} --image {i} --html {d}/trace.html",
    "trace compare {t} {t}",
    "trace export {t} -o {d}/exchange",
)
FORMATTING = ("mkfs -q {d}/filled --from {d}/files --size 64M", "mkfs -f {i}")
NO_IMAGE = ("dump layout", "trace record", "links")  # these take none, or a device that is traced
SERVED = ("mount", "umount")
# groups of commands that are not about one F2FS image
OTHERS = ("experiment ", "ftl ", "vsl ", "dfs ", "dffs ", "fleet ", "explore")


def named(line: str) -> str:
    """The command of a line: `dump info`."""
    words = line.split()
    return " ".join(words[: 2 if words[0] in ("dump", "trace") else 1])


def filled(line: str, **places: str) -> list[str]:
    """The words of a line, with places put in; `\\ ` is a blank in a word."""
    words = line.replace("\\ ", "\0").split()
    return [word.replace("\0", " ").format(**places) for word in words]


def exit_codes(command: str) -> set[int]:
    """Those with which a command may end, as docs/cli.md has them."""
    return {"fsck": {0, 1, 4, 5, 8, 12}, "doctor": {0, 1, 8}, "recover": {0, 1, 2, 4, 8}}.get(command, {0, 1, 2, 8})
