"""Directories whose flag of casefolding contradicts the hashes of all their names.

A hash is that of the name as it is written, or of the folded one; in an encrypted directory that is casefolded, it is
made with a key.  Nothing but the flag can be wrong where all hashes are of the other kind.  Kernels do not agree on how
names beyond ASCII fold ("unicode: Don't special case ignorable code points", and its revert), so these say nothing; nor
does what can't be a name.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL, F2FS_FEATURE_CASEFOLD, FADVISE_ENCRYPT_BIT
from f2tools.fsck import problems
from f2tools.fsck.facts.dentries import folded_hash
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import SetFieldEarly

FEW = 3  # names with hashes that nothing explains: as many wrong ones in one directory are no accident


def check_folding(tree: Tree) -> Iterator[Finding]:
    """A directory is casefolded if the hashes of its names say so."""
    scan, table = tree.scan, tree.entries
    if not scan.geo.feature & F2FS_FEATURE_CASEFOLD:
        return
    rows = np.flatnonzero(tree.named & (table["dots"] == 0))
    dirs, count = table["dir"][rows], len(scan.inodes)
    odd = table["hash"][rows] != table["true_hash"][rows]
    many, odds = np.bincount(dirs, minlength=count), np.bincount(dirs[odd], minlength=count)
    flagged = scan.inodes["flags"] & np.uint32(F2FS_CASEFOLD_FL) != 0
    secret = scan.inodes["advise"] & FADVISE_ENCRYPT_BIT != 0
    wrong = secret & np.where(flagged, (odds == 0) & (many > 0), (odds == many) & (many >= FEW))
    doubted = ~secret & tree.is_dir & np.where(flagged, (odds == 0) & (many > 0), odds > 0)
    some = rows[doubted[dirs]]
    names = list(tree.names_of(some.tolist()))
    said = table["hash"][some].tolist()
    fits = np.array([folded_hash(name) == code for name, code in zip(names, said, strict=True)], np.bool_)
    plain = np.array([name.isascii() and not set(name) & set(b"\0/") for name in names], np.bool_)

    def of_each(some_of_them: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(table["dir"][some][some_of_them], minlength=count)

    folded = (of_each(~fits) == 0) & (of_each(odd[doubted[dirs]] & fits & plain) > 0)
    wrong |= doubted & np.where(flagged, of_each(~fits & plain) > 0, folded)
    for row in np.flatnonzero(wrong & tree.is_dir & ~_sharing(scan)).tolist():
        node = scan.inodes["node"][row]
        found = int(scan.inodes["flags"][row])
        expected = found ^ F2FS_CASEFOLD_FL
        yield Finding(
            problems.INODE_FLAG, area="main", blkaddr=int(scan.addr[node]), ino=int(scan.nid[node]), found=found,
            expected=expected, note="the hashes of its names say so",
            repair=SetFieldEarly(int(scan.nid[node]), "i_flags", expected),
        )  # fmt: skip


def _sharing(scan: Scan) -> NDArray[np.bool_]:
    """Which inodes have a block that another has, too: what is in it may be the other's."""
    sharing = np.zeros(len(scan.inodes), np.bool_)
    for clash in scan.clashes:
        nodes = scan.rows_of(np.concatenate([clash.nid, clash.first_nid]))
        owners = scan.inode_of[nodes[nodes >= 0]]
        sharing[owners[owners >= 0]] = True
    return sharing


CHECKS = (check_folding,)
