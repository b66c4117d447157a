"""ACLs: on the disk and as xattr."""

from __future__ import annotations

import contextlib
import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.acl import ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, AclEntry, parse_xattr
from f2tools.errors import Corrupt
from f2tools.f2fs.volume.acl import acl_from_xattr, acl_to_xattr, build_disk, parse_disk

VECTORS = json.loads((Path(__file__).parent / "data/acls.json").read_text())

perms = st.integers(0, 7)
ids = st.integers(0, 0xFFFFFFFE)


@st.composite
def acls(draw: st.DrawFn) -> list[AclEntry]:
    users = [AclEntry(ACL_USER, draw(perms), uid) for uid in draw(st.lists(ids, max_size=5))]
    groups = [AclEntry(ACL_GROUP, draw(perms), gid) for gid in draw(st.lists(ids, max_size=5))]
    mask = [AclEntry(ACL_MASK, draw(perms))] if users or groups or draw(st.booleans()) else []
    owner, group, other = (AclEntry(tag, draw(perms)) for tag in (ACL_USER_OBJ, ACL_GROUP_OBJ, ACL_OTHER))
    return [owner, *users, group, *groups, *mask, other]


@pytest.mark.parametrize(("disk", "xattr"), VECTORS)
def test_both_forms_are_the_kernels(disk: str, xattr: str) -> None:
    assert acl_to_xattr(bytes.fromhex(disk)) == bytes.fromhex(xattr)
    assert acl_from_xattr(bytes.fromhex(xattr)) == bytes.fromhex(disk)


@given(acls())
def test_every_valid_acl_survives_both_ways(entries: list[AclEntry]) -> None:
    disk = build_disk(entries)
    assert parse_disk(disk) == entries
    xattr = acl_to_xattr(disk)
    assert xattr is not None
    assert parse_xattr(xattr) == entries
    assert acl_from_xattr(xattr) == disk


@given(acls(), st.data())
def test_a_truncated_acl_is_corrupt(entries: list[AclEntry], data: st.DataObject) -> None:
    disk = build_disk(entries)
    cut = data.draw(st.integers(5, len(disk) - 1))
    with contextlib.suppress(Corrupt):
        assert len(parse_disk(disk[:cut])) < len(entries)  # short entries may end where an ACL can


@pytest.mark.parametrize(
    "value", [b"", b"\1\0", b"\2\0\0\0", b"\1\0\0\0\x01", b"\1\0\0\0\x03\0\7\0", b"\1\0\0\0\2\0\7\0"]
)
def test_a_broken_acl_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt):
        acl_to_xattr(value)


def test_an_acl_whose_size_does_not_fit_its_entries_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="must be"):
        parse_disk(build_disk([AclEntry(ACL_USER, 7, 1000)]))


@given(st.binary(max_size=120))
def test_any_bytes_are_an_acl_or_corrupt(value: bytes) -> None:
    for candidate in (value, b"\1\0\0\0" + value):
        with contextlib.suppress(Corrupt):
            acl_to_xattr(candidate)


@given(st.binary(max_size=120))
def test_any_bytes_given_to_setxattr_are_taken_or_refused(value: bytes) -> None:
    for candidate in (value, b"\2\0\0\0" + value):
        with contextlib.suppress(OSError):
            acl_from_xattr(candidate)


def test_an_acl_without_entries_is_no_acl() -> None:
    assert acl_to_xattr(b"\1\0\0\0") is None
    assert acl_from_xattr(b"\2\0\0\0") is None


def test_what_the_kernel_refuses_is_refused() -> None:
    def xattr(*entries: tuple[int, int, int]) -> bytes:
        return b"\2\0\0\0" + b"".join(
            tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + ident.to_bytes(4, "little")
            for tag, perm, ident in entries
        )

    none = 0xFFFFFFFF
    owner, group, other, mask = (1, 7, none), (4, 5, none), (32, 5, none), (16, 7, none)
    named = (2, 7, 1000)
    assert acl_from_xattr(xattr(owner, named, group, mask, other))
    for wrong in (
        [owner, named, group, other],  # no mask
        [owner, group],
        [owner, group, named, mask, other],  # order
        [owner, owner, group, other],
        [(1, 8, none), group, other],
        [owner, (2, 7, none), group, mask, other],
        [owner, (3, 7, 1), group, mask, other],
    ):
        with pytest.raises(OSError, match="Invalid argument"):
            acl_from_xattr(xattr(*wrong))
    with pytest.raises(OSError, match="Invalid argument"):
        acl_from_xattr(b"")
    with pytest.raises(OSError) as info:
        acl_from_xattr(b"\1\0\0\0")
    assert info.value.errno == errno.EOPNOTSUPP
