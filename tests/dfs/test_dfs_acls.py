"""POSIX ACLs: kept, inherited, in step with the mode, and refused where Linux refuses them."""

from __future__ import annotations

import errno
import stat
import struct

import pytest

from f2tools.acl import ACL_GROUP, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, AclEntry, build_xattr, parse_xattr
from f2tools.dfs.acls import ACCESS, DEFAULT
from f2tools.dfs.layout import ROOT_INO
from f2tools.dfs.write import WritableVolume
from tests.dfs.volumes import codes, content, reading, volume


def acl(mask: int, *named: tuple[int, int, int]) -> bytes:
    plain = [
        AclEntry(1, 7),
        *(AclEntry(*one) for one in named),
        AclEntry(4, 5),
        AclEntry(ACL_MASK, mask),
        AclEntry(32, 1),
    ]
    return build_xattr(sorted(plain, key=lambda entry: entry.tag))


ALICE = acl(6, (ACL_USER, 6, 1000))


def made() -> tuple[WritableVolume, int]:
    of = volume()
    return of, of.mkdir(ROOT_INO, b"folder", 0o755)


def test_an_access_acl_sets_the_mode_and_chmod_sets_the_acl() -> None:
    of, directory = made()
    file = of.create(directory, b"file", 0o600)
    of.setxattr(file, ACCESS, ALICE)
    assert stat.S_IMODE(of.inode(file).mode) == 0o761
    of.setattr(file, mode=0o640)
    perms = {entry.tag: entry.perm for entry in parse_xattr(of.getxattr(file, ACCESS))}
    assert (perms[ACL_USER_OBJ], perms[ACL_MASK], perms[ACL_OTHER], perms[ACL_USER]) == (6, 4, 0, 6)
    of.setxattr(file, ACCESS, build_xattr([AclEntry(1, 6), AclEntry(4, 4), AclEntry(32, 4)]))
    assert (of.listxattr(file), stat.S_IMODE(of.inode(file).mode)) == ([], 0o644)


def test_a_default_acl_is_inherited_and_takes_the_place_of_the_umask() -> None:
    of, directory = made()
    of.setxattr(directory, DEFAULT, ALICE)
    file = of.create(directory, b"file", 0o666, umask=0o077)
    inner = of.mkdir(directory, b"inner", 0o777, umask=0o077)
    link = of.symlink(directory, b"link", b"file")
    assert (of.inode(file).mode & 0o777, of.listxattr(file)) == (0o660, [ACCESS])
    assert set(of.listxattr(inner)) == {ACCESS, DEFAULT}
    assert of.getxattr(inner, DEFAULT) == ALICE
    assert of.listxattr(link) == []
    of.close()
    assert codes(content(of)) == set()
    assert reading(content(of)).at_path(b"/folder/inner").xattrs[DEFAULT] == ALICE


def test_what_linux_refuses_is_refused() -> None:
    of, directory = made()
    file, link = of.create(directory, b"file", 0o600), of.symlink(directory, b"link", b"file")
    pipe = of.create(directory, b"pipe", stat.S_IFIFO | 0o600)
    no_mask = build_xattr([AclEntry(1, 7), AclEntry(ACL_USER, 7, 5), AclEntry(4, 5), AclEntry(32, 1)])
    for ino, name, value, number in (
        (file, DEFAULT, ALICE, errno.EACCES), (link, ACCESS, ALICE, errno.EOPNOTSUPP),
        (file, ACCESS, no_mask, errno.EINVAL),
        (file, ACCESS, b"", errno.EINVAL), (file, ACCESS, struct.pack("<I", 3), errno.EOPNOTSUPP),
        (pipe, "user.name", b"", errno.EPERM), (file, "system.other", b"", errno.EOPNOTSUPP),
    ):  # fmt: skip
        with pytest.raises(OSError) as caught:
            of.setxattr(ino, name, value)
        assert caught.value.errno == number
    many = acl(7, *((ACL_GROUP, 7, number) for number in range(60)))
    with pytest.raises(OSError) as caught:
        of.setxattr(directory, DEFAULT, many)
    assert caught.value.errno == errno.ENOSPC
    assert of.listxattr(directory) == []
