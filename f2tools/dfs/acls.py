"""POSIX ACLs of a file: kept as extended attributes, in the form in which getxattr returns them."""

from __future__ import annotations

import stat

from f2tools.acl import build_xattr, chmod_acl, inherit, kept_acl, parse_xattr
from f2tools.dfs.inode import Inode

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
ACLS = (ACCESS, DEFAULT)


def with_acl(inode: Inode, name: str, value: bytes | None) -> tuple[int, dict[str, bytes]]:
    """(mode, extended attributes) of a file once it has this ACL; OSError for what Linux refuses."""
    mode, entries = kept_acl(value, inode.mode, default=name == DEFAULT)
    others = {key: kept for key, kept in inode.xattrs.items() if key != name}
    return mode, others if entries is None else {**others, name: build_xattr(entries)}


def inherited(directory: Inode, mode: int, umask: int) -> tuple[int, dict[str, bytes]]:
    """(mode, ACLs) of a new file in a directory."""
    default = directory.xattrs.get(DEFAULT)
    if default is None or stat.S_ISLNK(mode):
        return mode & ~umask, {}
    mode, access, for_new = inherit(parse_xattr(default), mode)
    found = ((DEFAULT, for_new), (ACCESS, access))
    return mode, {name: build_xattr(entries) for name, entries in found if entries is not None}


def after_chmod(inode: Inode, mode: int) -> dict[str, bytes]:
    """The extended attributes once this is the mode."""
    access = inode.xattrs.get(ACCESS)
    if access is None:
        return inode.xattrs
    return {**inode.xattrs, ACCESS: build_xattr(chmod_acl(parse_xattr(access), mode))}
