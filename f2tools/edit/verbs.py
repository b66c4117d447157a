"""The verbs: what each takes on its command line, and what it does to an open image.

A verb is declared once.  `cli` makes a command of it that opens the image, `script` one for a line of a script.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from f2tools.edit.modes import change_flags, change_mode, now_ns, parse_owner, parse_time, parse_value
from f2tools.edit.paths import AnyPath, Inside, InsidePath, Outside
from f2tools.edit.session import EditError, Session
from f2tools.errors import Usage
from f2tools.options import Size, progress

Body = Callable[..., None]


@dataclass(frozen=True)
class Verb:
    """A verb: its parameters, and its body, which is given the session and the parameters."""

    name: str
    body: Body
    params: tuple[click.Parameter, ...]
    text: str

    def paths(self, given: dict[str, Any]) -> list[Inside]:
        """The paths in an image among its parameters."""
        found: list[Inside] = []
        for value in given.values():
            values = value if isinstance(value, list | tuple) else [value]
            found += [item for item in values if isinstance(item, Inside)]
        return found


VERBS: dict[str, Verb] = {}


def verb(name: str, *params: click.Parameter) -> Callable[[Body], Body]:
    """Declare a verb; the docstring of its body is its help."""

    def declare(body: Body) -> Body:
        VERBS[name] = Verb(name, body, params, body.__doc__ or "")
        return body

    return declare


def argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **{"type": InsidePath(), "required": True, **settings})


def flag(*names: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, help=help)


PATHS = argument("paths", nargs=-1, metavar="IMAGE:/PATH...")


# -- copying and moving -----------------------------------------------------------------------------------------------


@verb(
    "cp",
    argument("sources", type=AnyPath(), nargs=-1, metavar="SOURCE..."),
    argument("target", metavar="IMAGE:/PATH"),
    flag("-r", "-R", "--recursive", help="Directories with all that is in them; links stay links."),
    flag("-a", "--archive", help="As -r, and keep owners, modes, times, attributes, ACLs, hard links, devices."),
    click.Option(["--owner"], metavar="UID:GID", help="Owner of what is made.  [default: 0:0]"),
)
def cp(
    session: Session, sources: tuple[Any, ...], target: Inside, recursive: bool, archive: bool, owner: str | None
) -> None:
    """Copy files from the host, from the standard input (-), or from elsewhere in the image, into the image.

    A source is in the image when it is written IMAGE:/PATH.  Holes stay holes.  A file that is there is emptied and
    filled again.

    \b
    Examples:
      f2tools cp hosts resolv.conf card.img:/etc/
      f2tools cp -a rootfs/. card.img:/
      date | f2tools cp - card.img:/etc/build-date
    """
    from f2tools.edit.copy import Copier, bytes_in

    if owner is not None:
        uid, gid = parse_owner(owner)
        session.owner = (uid or 0, gid or 0)
    listed: list[Inside | Outside] = list(sources)
    with progress("copying", bytes_in(listed) or None) as bar:
        copier = Copier(session, recursive or archive, archive, bar.advance)
        contents = [s for s in listed if isinstance(s, Outside) and s.path.rstrip("/").endswith("/.")]
        for source in contents:  # `cp -a folder/. there`: what is in the folder
            inner = [Outside(os.path.join(source.path, name)) for name in sorted(os.listdir(source.path))]
            copier.into(list(inner), target)
        rest = [s for s in listed if s not in contents]
        if rest:
            copier.into(rest, target)


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
        raise EditError(f"{target}: several files can only be moved into a directory, which this is not")
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
    click.Argument(["target"], required=True, metavar="TARGET"),
    argument("name", metavar="IMAGE:/NAME"),
    flag("-s", "--symbolic", help="A symbolic link; TARGET is any text."),
    flag("-f", "--force", help="Replace a file that is there."),
)
def ln(session: Session, target: str, name: Inside, symbolic: bool, force: bool) -> None:
    """Make a further name for a file, or a symbolic link.

    \b
    Examples:
      f2tools ln -s ../bin/busybox card.img:/sbin/init
      f2tools ln card.img:/bin/busybox card.img:/bin/sh
    """
    from f2tools.edit.paths import parse_path

    with session.doing(name):
        parent, last = session.parent(name)
        there = session.find_or_none(name, follow=False)
        if there is not None and there.is_dir:
            parent, last = there.ino, os.fsencode(target).rstrip(b"/").rpartition(b"/")[2]
        elif there is not None and force:
            session.volume.unlink(parent, last)
        if symbolic:
            session.volume.symlink(parent, last, os.fsencode(target), *session.owner)
        else:
            source = parse_path(target, only_inside=True)
            assert isinstance(source, Inside)
            if source.image not in ("", session.image):
                raise EditError(f"{source}: a link can't lead to another image")
            with session.doing(source):
                ino = session.find(source, follow=False).ino
            session.volume.link(ino, parent, last)
        session.note("link", name, to=target)


# -- making and removing ----------------------------------------------------------------------------------------------


@verb(
    "mkdir",
    PATHS,
    flag("-p", "--parents", help="Make parents too; no error where the directory is there."),
    click.Option(["-m", "--mode"], metavar="MODE", help="Permissions.  [default: 755]"),
)
def mkdir(session: Session, paths: tuple[Inside, ...], parents: bool, mode: str | None) -> None:
    """Make directories.

    \b
    Example:
      f2tools mkdir -p card.img:/var/log/journal
    """
    wanted = change_mode(mode, 0o777, True, session.umask) if mode else 0o777 & ~session.umask
    for path in paths:
        with session.doing(path):
            if parents:
                _make_parents(session, path)
                there = session.find_or_none(path)
                if there is not None and there.is_dir:
                    continue
            parent, name = session.parent(path)
            session.volume.mkdir(parent, name, wanted, *session.owner)
            session.note("mkdir", path)


def _make_parents(session: Session, path: Inside) -> None:
    parts = [part for part in path.path.split(b"/") if part]
    for count in range(1, len(parts)):
        above = Inside(path.image, b"/" + b"/".join(parts[:count]))
        if session.find_or_none(above) is None:
            parent, name = session.parent(above)
            session.volume.mkdir(parent, name, 0o777 & ~session.umask, *session.owner)
            session.note("mkdir", above)


@verb(
    "rm",
    PATHS,
    flag("-r", "-R", "--recursive", help="Directories with all that is in them."),
    flag("-f", "--force", help="No error for what is not there."),
)
def rm(session: Session, paths: tuple[Inside, ...], recursive: bool, force: bool) -> None:
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
                session.volume.unlink(parent, name)
                session.note("remove", path)
                continue
            if not recursive:
                raise IsADirectoryError(errno.EISDIR, "is a directory; -r removes it with all that is in it")
            _remove_tree(session, parent, name, found.ino, path.path)


def _remove_tree(session: Session, parent: int, name: bytes, ino: int, shown: bytes) -> None:
    """Remove a directory and what is in it, deepest first, without recursion."""
    stack = [(parent, name, ino, shown, False)]
    while stack:
        above, last, number, path, emptied = stack.pop()
        if emptied:
            session.volume.rmdir(above, last)
            session.note("remove", path)
            continue
        stack.append((above, last, number, path, True))
        for child, below in session.names_in(session.live(number)):
            if session.live(below).is_dir:
                stack.append((number, child, below, path.rstrip(b"/") + b"/" + child, False))
            else:
                session.volume.unlink(number, child)
                session.note("remove", path.rstrip(b"/") + b"/" + child)


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
    click.Option(["-m", "--mode"], metavar="MODE", help="Permissions.  [default: 644]"),
)
def mknod(session: Session, path: Inside, kind: str, major: int | None, minor: int | None, mode: str | None) -> None:
    """Make a device node (b, c), a fifo (p) or a socket (s).

    \b
    Example:
      f2tools mknod card.img:/dev/null c 1 3 -m 666
    """
    if (kind in "bc") != (minor is not None):
        raise Usage("b and c take a major and a minor number; p and s take none")
    wanted = change_mode(mode, 0o666, False, session.umask) if mode else 0o666 & ~session.umask
    types = {"b": stat.S_IFBLK, "c": stat.S_IFCHR, "p": stat.S_IFIFO, "s": stat.S_IFSOCK}
    with session.doing(path):
        parent, name = session.parent(path)
        session.volume.create(parent, name, types[kind] | wanted, *session.owner, (major or 0, minor or 0))
        session.note("mknod", path)


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

    \b
    Example:
      f2tools chmod -R go-w card.img:/etc
    """
    change_mode(mode, 0, False)
    for path, ino in _each(session, paths, recursive):
        inode = session.live(ino)
        if inode.kind == "symlink":
            continue
        with session.doing(os.fsdecode(path)):
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
        with session.doing(os.fsdecode(path)):
            session.volume.setattr(ino, uid=uid, gid=gid)
            session.note("chown", path)


@verb(
    "touch",
    PATHS,
    click.Option(["-d", "--date"], metavar="TIME", help="2024-03-01T12:00:00 (UTC) or @1709294400.  [default: now]"),
    flag("-c", "--no-create", help="Make no file that is not there."),
)
def touch(session: Session, paths: tuple[Inside, ...], date: str | None, no_create: bool) -> None:
    """Set times, and make files that are not there.

    \b
    Example:
      f2tools touch -d 2024-03-01T12:00:00 card.img:/etc/stamp
    """
    when = parse_time(date) if date else now_ns()
    for path in paths:
        with session.doing(path):
            found = session.find_or_none(path)
            if found is None and no_create:
                continue
            if found is None:
                mode = stat.S_IFREG | 0o666 & ~session.umask
                ino = session.volume.create(*session.parent(path), mode, *session.owner)
            else:
                ino = found.ino
            session.volume.setattr(ino, atime_ns=when, mtime_ns=when)
            session.note("touch", path)


@verb(
    "truncate", PATHS, click.Option(["-s", "--size"], type=Size(), required=True, metavar="SIZE", help="The new size.")
)
def truncate(session: Session, paths: tuple[Inside, ...], size: int) -> None:
    """Set the size of files; what they gain is a hole.

    \b
    Example:
      f2tools truncate -s 64M card.img:/var/swap
    """
    for path in paths:
        with session.doing(path):
            found = session.find_or_none(path)
            if found is None:
                mode = stat.S_IFREG | 0o666 & ~session.umask
                ino = session.volume.create(*session.parent(path), mode, *session.owner)
            else:
                ino = found.ino
            session.volume.truncate(ino, size)
            session.note("truncate", path, size=size)


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
    """Set or remove an extended attribute; ACLs too, as system.posix_acl_access.

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
            if name is not None:
                session.volume.setxattr(ino, name, raw)
            else:
                assert remove is not None
                session.volume.removexattr(ino, remove)
            session.note("setfattr", path, name=name or remove)


@verb(
    "chattr",
    click.Argument(["flags"], required=True, metavar="+-=FLAGS"),
    PATHS,
    flag("-R", "--recursive", help="Also everything below."),
    click.Option(["-p", "--project"], type=click.IntRange(0, (1 << 32) - 1), metavar="N", help="Set the project too."),
)
def chattr(session: Session, flags: str, paths: tuple[Inside, ...], recursive: bool, project: int | None) -> None:
    """Change flags: a append only, i immutable, A no atime, d no dump, c compress, m don't compress, S sync, D sync
    directory, F casefold, P inherit project.

    \b
    Example:
      f2tools chattr +i card.img:/etc/machine-id
    """
    change_flags(flags, 0)
    for path, ino in _each(session, paths, recursive):
        inode = session.live(ino)
        if recursive and not (inode.is_dir or inode.is_file):
            continue
        with session.doing(os.fsdecode(path)):
            if project is not None:
                session.volume.set_projid(ino, project)
            settable = sum(change_flags(f"+{letter}", 0) for letter in "aiAdcmSDFP")
            session.volume.set_flags(ino, change_flags(flags, inode.i_flags & settable))
            session.note("chattr", path, flags=flags)
