"""The verbs: what each takes on its command line, and what it does to an open image.

A verb is declared once.  `cli` makes a command of it that opens the image, `script` one for a line of a script.
"""

from __future__ import annotations

import errno
import inspect
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from f2tools.edit.errors import EditFailed
from f2tools.edit.modes import (
    SETTABLE_FLAGS,
    change_flags,
    change_mode,
    parse_new_owner,
    parse_owner,
    parse_time,
    parse_value,
)
from f2tools.edit.needs import demand_features, demand_room
from f2tools.edit.paths import AnyPath, CopyTarget, FlagsOrPath, Inside, InsidePath, parse_path
from f2tools.errors import Corrupt, Usage, Where
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.filename import PathAsGiven
from f2tools.options import Size
from f2tools.text import join

if TYPE_CHECKING:  # numpy comes with it; help must not wait for that
    from f2tools.edit.session import Session
    from f2tools.f2fs.write.node import LiveInode

Body = Callable[..., None]


@dataclass(frozen=True)
class Verb:
    """A verb: its parameters, and its body, which is given the session and the parameters."""

    name: str
    body: Body
    params: tuple[click.Parameter, ...]
    text: str

    def paths(self, given: dict[str, Any]) -> list[Inside]:
        """The paths in the image that is changed, among its parameters; `cp` reads others too."""
        found: list[Inside] = []
        target = given.get("target")
        if self.name == "cp" and isinstance(target, Inside) and target.image:
            return [target]
        for value in given.values():
            values = value if isinstance(value, list | tuple) else [value]
            found += [item for item in values if isinstance(item, Inside)]
        return found


VERBS: dict[str, Verb] = {}


def verb(name: str, *params: click.Parameter, makes: bool = False) -> Callable[[Body], Body]:
    """Declare a verb; the docstring of its body is its help.  One that makes files has --owner."""

    def declare(body: Body) -> Body:
        def matched(session: Session, **given: Any) -> None:
            for name in ("paths", "sources", "words"):
                if name in given:
                    given[name] = session.matching(given[name])
            body(session, **given)

        def owned(session: Session, new_owner: str | None, **given: Any) -> None:
            before = session.owner
            session.owner = before if new_owner is None else parse_new_owner(new_owner)
            matched(session, **given)
            session.owner = before

        chosen = owned if makes else matched
        VERBS[name] = Verb(name, chosen, (*params, OWNER) if makes else params, inspect.cleandoc(body.__doc__ or ""))
        return body

    return declare


def argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **{"type": InsidePath(), "required": True, **settings})


def flag(*names: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, help=help)


OWNER = click.Option(
    ["--owner", "new_owner"], metavar="UID:GID", help="Owner of what is made.  [default: 0:0; where kept, as it was]"
)
PATHS = argument("paths", nargs=-1, metavar="IMAGE:/PATH...")


# -- copying and moving -----------------------------------------------------------------------------------------------


@verb(
    "cp",
    argument("sources", type=AnyPath(), nargs=-1, metavar="SOURCE..."),
    argument("target", type=CopyTarget(), metavar="TARGET"),
    flag("-r", "-R", "--recursive", help="Directories with all that is in them; links stay links."),
    flag("-a", "--archive", help="As -r, and keep owners, modes, times, attributes, ACLs, hard links, devices."),
    makes=True,
)
def cp(session: Session, sources: tuple[Any, ...], target: Inside, recursive: bool, archive: bool) -> None:
    """Copy files into an image, inside it, from another one, or out of it.

    IMAGE:/PATH is in an image; :/PATH is in the one that is copied to, anything else is on the host, and - is the
    standard input, as TARGET the standard output.  Holes stay holes.  A file that is there is emptied and filled
    again.  Modes lose the bits of the umask, unless -a keeps them.  In an image, *, ? and [...]
    match as in a shell, unless a file has just that name.  For whole trees, with a report on what can't be read, use
    f2tools dump extract.

    \b
    Examples:
      f2tools cp hosts resolv.conf card.img:/etc/
      f2tools cp -a rootfs/. card.img:/
      date | f2tools cp - card.img:/etc/build-date
      f2tools cp -a old.img:/home card.img:/
      f2tools cp 'card.img:/DCIM/*.jpg' pictures/
    """
    from f2tools.edit.copy import Copier

    Copier(session, recursive or archive, archive).run(list(sources), target)


@verb(
    "mv",
    argument("sources", nargs=-1, metavar="IMAGE:/SOURCE..."),
    argument("target", metavar="IMAGE:/TARGET"),
    flag("-n", "--no-clobber", help="Refuse to replace what is there."),
    flag("--exchange", help="Let the two change places."),
)
def mv(session: Session, sources: tuple[Inside, ...], target: Inside, no_clobber: bool, exchange: bool) -> None:
    """Rename or move files inside an image.

    \b
    Example:
      f2tools mv card.img:/etc/fstab card.img:/etc/fstab.old
    """
    with session.doing(target):
        there = session.find_or_none(target)
    inside = there is not None and there.is_dir and not exchange
    if len(sources) > 1 and not inside:
        raise EditFailed(
            f"{session.shown(target)}: several files can only be moved into a directory, which this is not"
        )
    for source in sources:
        with session.doing(source):
            parent, name = session.parent(source)
            if inside:
                assert there is not None
                new_parent, new_name = there.ino, name
            else:
                new_parent, new_name = session.parent(target)
            session.volume.rename(parent, name, new_parent, new_name, (1 if no_clobber else 0) | (2 if exchange else 0))
            session.note("move", source, to=os.fsdecode(target.path))


@verb(
    "ln",
    click.Argument(["target"], type=PathAsGiven(), required=True, metavar="TARGET"),
    argument("name", metavar="IMAGE:/NAME"),
    flag("-s", "--symbolic", help="A symbolic link; TARGET is any text."),
    flag("-f", "--force", help="Replace a file that is there."),
    makes=True,
)
def ln(session: Session, target: str, name: Inside, symbolic: bool, force: bool) -> None:
    """Make a further name for a file, or a symbolic link.

    \b
    Examples:
      f2tools ln -s ../bin/busybox card.img:/sbin/init
      f2tools ln card.img:/bin/busybox card.img:/bin/sh
    """
    with session.doing(name):
        parent, last = session.parent(name)
        there = session.find_or_none(name, follow=False)
        if there is not None and there.is_dir:
            parent, last = there.ino, os.fsencode(target).rstrip(b"/").rpartition(b"/")[2]
        elif there is not None and force:
            if not symbolic and session.same(target, there.ino):
                return
            session.volume.unlink(parent, last)
        if symbolic:
            session.volume.symlink(parent, last, os.fsencode(target), *session.owner)
        else:
            source = parse_path(target, only_inside=True)
            assert isinstance(source, Inside)
            if source.image not in ("", session.image):
                raise EditFailed(f"{source}: a link can't lead to another image")
            with session.doing(source):
                ino = session.find(source, follow=False).ino
            session.volume.link(ino, parent, last)
        session.note("link", name, to=target)


# -- making and removing ----------------------------------------------------------------------------------------------


@verb(
    "mkdir",
    PATHS,
    flag("-p", "--parents", help="Make parents too; no error where the directory is there."),
    click.Option(["-m", "--mode"], metavar="MODE", help="Permissions.  [default: 777 without the umask]"),
    makes=True,
)
def mkdir(session: Session, paths: tuple[Inside, ...], parents: bool, mode: str | None) -> None:
    """Make directories.

    \b
    Example:
      f2tools mkdir -p card.img:/var/log/journal
    """
    if mode is not None:
        change_mode(mode, 0, True)
    for path in paths:
        with session.doing(path):
            if parents:
                _make_parents(session, path)
                there = session.find_or_none(path)
                if there is not None and there.is_dir:
                    continue
            session.mkdir(path, mode)


def _make_parents(session: Session, path: Inside) -> None:
    parts = [part for part in path.path.split(b"/") if part]
    ino = F2FS_ROOT_INO
    for count in range(1, len(parts)):
        above = Inside(path.image, b"/" + b"/".join(parts[:count]))
        entry = session.volume.names.find(session.live(ino), parts[count - 1])
        if entry is None:
            ino = session.mkdir_in(ino, parts[count - 1], above)
        elif parts[count - 1] in (b".", b"..") or session.live(entry.ino).kind == "symlink":
            ino = session.find(above).ino
        else:
            ino = entry.ino


@verb(
    "rm",
    PATHS,
    flag("-r", "-R", "--recursive", help="Directories with all that is in them."),
    flag("-f", "--force", help="No error for what is not there."),
    flag("--device-alias", help="A file that stands for a device too: the device becomes the volume's."),
)
def rm(session: Session, paths: tuple[Inside, ...], recursive: bool, force: bool, device_alias: bool) -> None:
    """Remove files.

    \b
    Example:
      f2tools rm -r card.img:/var/cache
    """
    for path in paths:
        with session.doing(path):
            try:
                found = session.find(path, follow=False)
            except (FileNotFoundError, NotADirectoryError):
                if force:
                    continue
                raise
            parent, name = session.parent(path)
            if not found.is_dir:
                _remove(session, found, parent, name, device_alias)
                session.note("remove", path)
                continue
            if not recursive:
                raise IsADirectoryError(errno.EISDIR, "is a directory; -r removes it with all that is in it")
            _remove_tree(session, parent, name, found.ino, path.path, device_alias)


def _remove(session: Session, inode: LiveInode, parent: int, name: bytes, device_alias: bool) -> None:
    if inode.aliases_device and not device_alias:
        raise PermissionError(errno.EPERM, "stands for a device; with --device-alias that is the volume's")
    session.volume.unlink(parent, name, alias=device_alias)


def _remove_tree(session: Session, parent: int, name: bytes, ino: int, shown: bytes, device_alias: bool) -> None:
    """Remove a directory and what is in it, deepest first, without recursion."""
    stack = [(parent, name, ino, shown, False)]
    met = {ino, F2FS_ROOT_INO}
    while stack:
        above, last, number, path, emptied = stack.pop()
        if emptied:
            session.volume.rmdir(above, last)
            session.note("remove", path)
            continue
        stack.append((above, last, number, path, True))
        for child, below in session.names_in(session.live(number)):
            inside = session.live(below)
            if inside.is_dir:
                if below in met:
                    where = Where(ino=below, path=session.shown(path))
                    raise Corrupt(where, "a directory with two names; run f2tools fsck")
                met.add(below)
                stack.append((number, child, below, join(path, child), False))
            else:
                _remove(session, inside, number, child, device_alias)
                session.note("remove", join(path, child))


@verb("rmdir", PATHS)
def rmdir(session: Session, paths: tuple[Inside, ...]) -> None:
    """Remove empty directories.

    \b
    Example:
      f2tools rmdir card.img:/mnt
    """
    for path in paths:
        with session.doing(path):
            session.volume.rmdir(*session.parent(path))
            session.note("remove", path)


@verb(
    "mknod",
    argument("path", metavar="IMAGE:/PATH"),
    click.Argument(["kind"], type=click.Choice(["b", "c", "p", "s"])),
    click.Argument(["major"], type=click.IntRange(0, 0xFFF), required=False),
    click.Argument(["minor"], type=click.IntRange(0, 0xFFFFF), required=False),
    click.Option(["-m", "--mode"], metavar="MODE", help="Permissions.  [default: 666 without the umask]"),
    makes=True,
)
def mknod(session: Session, path: Inside, kind: str, major: int | None, minor: int | None, mode: str | None) -> None:
    """Make a device node (b, c), a fifo (p) or a socket (s).

    \b
    Example:
      f2tools mknod card.img:/dev/null c 1 3 -m 666
    """
    if (kind in "bc") != (minor is not None):
        raise Usage("b and c take a major and a minor number; p and s take none")
    wanted = None if mode is None else change_mode(mode, 0o666, False, session.umask)
    types = {"b": stat.S_IFBLK, "c": stat.S_IFCHR, "p": stat.S_IFIFO, "s": stat.S_IFSOCK}
    with session.doing(path):
        session.create(path, types[kind], (major or 0, minor or 0), wanted)


# -- attributes -------------------------------------------------------------------------------------------------------


def _each(session: Session, paths: tuple[Inside, ...], recursive: bool, follow: bool = True) -> list[tuple[bytes, int]]:
    """(path, inode number) of the files that are named, and with `recursive` of those below."""
    found: list[tuple[bytes, int]] = []
    for path in paths:
        with session.doing(path):
            ino = session.find(path, follow=follow and not recursive).ino
            found += list(session.below(ino, path.path)) if recursive else [(path.path, ino)]
    return found


@verb(
    "chmod",
    click.Argument(["mode"], required=True),
    PATHS,
    flag("-R", "--recursive", help="Also everything below."),
)
def chmod(session: Session, mode: str, paths: tuple[Inside, ...], recursive: bool) -> None:
    """Change permissions: 644, u+rwX,go-w.

    A directory keeps its set-ID bits unless they are named, as in g-s or 00755.

    \b
    Example:
      f2tools chmod -R go-w card.img:/etc
    """
    change_mode(mode, 0, False)
    for path, ino in _each(session, paths, recursive):
        inode = session.live(ino)
        if inode.kind == "symlink":
            continue
        with session.doing(path):
            wanted = change_mode(mode, stat.S_IMODE(inode.i_mode), inode.is_dir, session.umask)
            session.volume.setattr(ino, mode=wanted)
            session.note("chmod", path, mode=f"{wanted:04o}")


@verb(
    "chown",
    click.Argument(["owner"], required=True, metavar="UID:GID"),
    PATHS,
    flag("-R", "--recursive", help="Also everything below; links themselves."),
    flag("-h", "--no-dereference", help="Links themselves, not what they lead to."),
)
def chown(session: Session, owner: str, paths: tuple[Inside, ...], recursive: bool, no_dereference: bool) -> None:
    """Change owner and group, in numbers.

    \b
    Example:
      f2tools chown -R 1000:1000 card.img:/home/pi
    """
    uid, gid = parse_owner(owner)
    for path, ino in _each(session, paths, recursive, follow=not no_dereference):
        with session.doing(path):
            session.volume.setattr(ino, mode=_without_set_id(session.live(ino).i_mode), uid=uid, gid=gid)
            session.note("chown", path, uid=uid, gid=gid)


def _without_set_id(mode: int) -> int | None:
    """The permissions of a program after chown(2); None where they stay."""
    if not stat.S_ISREG(mode):
        return None
    gone = stat.S_ISUID | (stat.S_ISGID if mode & stat.S_IXGRP else 0)
    return stat.S_IMODE(mode) & ~gone if mode & gone else None


@verb(
    "touch",
    PATHS,
    click.Option(["-d", "--date"], metavar="TIME", help="2024-03-01T12:00:00 (UTC) or @1709294400.  [default: now]"),
    flag("-c", "--no-create", help="Make no file that is not there."),
    flag("-a", "access", help="The access time only."),
    flag("-m", "modification", help="The modification time only."),
    makes=True,
)
def touch(
    session: Session, paths: tuple[Inside, ...], date: str | None, no_create: bool, access: bool, modification: bool
) -> None:
    """Set times, and make files that are not there.

    \b
    Example:
      f2tools touch -d 2024-03-01T12:00:00 card.img:/etc/stamp
    """
    when = parse_time(date) if date is not None else session.volume.clock()
    both = access == modification
    for path in paths:
        with session.doing(path):
            found = session.find_or_none(path)
            if found is None and no_create:
                continue
            ino = found.ino if found is not None else session.create(path, stat.S_IFREG)
            session.volume.setattr(
                ino, atime_ns=when if both or access else None, mtime_ns=when if both or modification else None
            )
            session.note("touch", path)


class _NewSize(Size):
    """(sign, bytes) of a size, or of + or - and a size."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        sign = value[:1] if value[:1] in ("+", "-") else ""
        return sign, super().convert(value[len(sign) :], param, ctx)


@verb(
    "truncate",
    PATHS,
    click.Option(
        ["-s", "--size"],
        type=_NewSize(),
        required=True,
        metavar="[+|-]SIZE",
        help="The new size, or how much longer or shorter.",
    ),
    flag("-c", "--no-create", help="Make no file that is not there."),
    makes=True,
)
def truncate(session: Session, paths: tuple[Inside, ...], size: tuple[str, int], no_create: bool) -> None:
    """Set the size of files; what they gain is a hole.

    \b
    Example:
      f2tools truncate -s 64M card.img:/var/swap
    """
    for path in paths:
        with session.doing(path):
            found = session.find_or_none(path)
            if found is None and no_create:
                continue
            ino = found.ino if found is not None else session.create(path, stat.S_IFREG)
            old = session.live(ino).i_size
            new = {"": size[1], "+": old + size[1], "-": max(0, old - size[1])}[size[0]]
            session.volume.truncate(ino, new)
            session.note("truncate", path, size=new)


@verb(
    "setfattr",
    PATHS,
    click.Option(["-n", "--name"], metavar="NAME", help="Set this attribute."),
    click.Option(["-v", "--value"], default="", metavar="VALUE", help="To this value: text, 0x... or 0s... (base64)."),
    click.Option(["-x", "--remove"], metavar="NAME", help="Remove this attribute."),
    flag("-h", "--no-dereference", help="Links themselves, not what they lead to."),
)
def setfattr(
    session: Session, paths: tuple[Inside, ...], name: str | None, value: str, remove: str | None, no_dereference: bool
) -> None:
    """Set or remove an extended attribute.

    \b
    Example:
      f2tools setfattr -n security.selinux -v u:object_r:system_file:s0 card.img:/bin/sh
    """
    if (name is None) == (remove is None):
        raise Usage("give either -n NAME or -x NAME")
    raw = parse_value(value)
    for path in paths:
        with session.doing(path):
            ino = session.find(path, follow=not no_dereference).ino
            with session.about(f"attribute {name or remove}"):
                if name is not None:
                    session.volume.setxattr(ino, name, raw)
                else:
                    assert remove is not None
                    session.volume.removexattr(ino, remove)
            session.note("setfattr", path, name=name or remove)


@verb(
    "setfacl",
    PATHS,
    click.Option(["-m", "--modify"], multiple=True, metavar="ENTRY,...", help="Set entries: u:1000:rw (repeatable)."),
    click.Option(["-x", "--remove"], multiple=True, metavar="ENTRY,...", help="Remove entries: u:1000 (repeatable)."),
    flag("-b", "--remove-all", help="First remove all that the permissions don't say."),
    flag("-k", "--remove-default", help="First remove the default ACL."),
    flag("-d", "--default", "of_default", help="Entries are of the default ACL; d:u:1000:rw says so too."),
    flag("-R", "--recursive", help="Also everything below; default ACLs of directories only."),
)
def setfacl(
    session: Session, paths: tuple[Inside, ...], modify: tuple[str, ...], remove: tuple[str, ...], remove_all: bool,
    remove_default: bool, of_default: bool, recursive: bool,
) -> None:  # fmt: skip
    """Change ACLs; ids are numbers, and the mask follows unless it is given.

    \b
    Examples:
      f2tools setfacl -m u:1000:rw,g:100:r card.img:/srv/data
      f2tools setfacl -R -m d:g:100:rx card.img:/srv
    """
    from f2tools.edit.acls import change_acls, parse_rules

    rules = [rule for text in remove for rule in parse_rules(text, of_default, removing=True)]
    rules += [rule for text in modify for rule in parse_rules(text, of_default)]
    if not (rules or remove_all or remove_default):
        raise Usage("say what to change: -m, -x, -b or -k")
    for path, ino in _each(session, paths, recursive):
        inode = session.live(ino)
        if inode.kind == "symlink":
            continue
        fitting = [rule for rule in rules if not (rule.default and recursive and not inode.is_dir)]
        with session.doing(path):
            change_acls(session.volume, inode, fitting, remove_all, remove_all or remove_default)
            session.note("setfacl", path)


@verb(
    "chattr",
    argument("words", type=FlagsOrPath(), nargs=-1, metavar="[+-=FLAGS] IMAGE:/PATH..."),
    flag("-R", "--recursive", help="Also everything below."),
    click.Option(["-p", "--project"], type=click.IntRange(0, (1 << 32) - 2), metavar="N", help="Set the project."),
)
def chattr(session: Session, words: tuple[Any, ...], recursive: bool, project: int | None) -> None:
    """Change flags, or the project that quotas count for.

    FLAGS are letters of chattr(1): a append only, i immutable, A no atime, d no dump, c compress, m don't compress, S
    sync, D sync directory, F casefold, P inherit project.  D, F and P are for directories: with -R, files do without
    them.  Write -- before flags to be removed.

    \b
    Examples:
      f2tools chattr +i card.img:/etc/machine-id
      f2tools chattr -R -p 42 card.img:/home/pi
    """
    from f2tools.f2fs.write.inode import fitting_flags

    flags = None if isinstance(words[0], Inside) else str(words[0])
    paths = tuple(word for word in words if isinstance(word, Inside))
    if not paths or len(paths) + (flags is not None) != len(words) or (flags is None and project is None):
        raise Usage("say +FLAGS, -FLAGS, =FLAGS or -p PROJECT, and then paths as IMAGE:/PATH")
    new_flags = 0 if flags is None else change_flags(flags, 0)
    demand_features(session, new_flags, project is not None)
    for path, ino in _each(session, paths, recursive):
        inode = session.live(ino)
        if recursive and not (inode.is_dir or inode.is_file):
            continue
        demand_room(session, path, inode, new_flags, project is not None)
        with session.doing(path):
            if project is not None:
                session.volume.set_projid(ino, project)
            if flags is not None:
                wanted = change_flags(flags, inode.i_flags & SETTABLE_FLAGS)
                session.volume.set_flags(ino, fitting_flags(inode.i_mode, wanted) if recursive else wanted)
            session.note("chattr", path, flags=flags, project=project)
