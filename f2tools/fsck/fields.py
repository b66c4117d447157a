"""Every field of an inode, a node footer and a directory entry: what else tells its value, and what only it knows.

Where one is wrong, a repair asks the others.  docs/problems.md shows this table, and the tests that make one field
wrong after the other accept the loss of what stands in the last column, and of nothing else.
"""

from __future__ import annotations

from typing import NamedTuple


class Witnesses(NamedTuple):
    """What else knows a field; `alone` names the attributes of a file that nothing else does."""

    structure: str
    field: str
    others: str
    alone: tuple[str, ...] = ()


NOBODY = "nobody"
WITNESSES = (
    Witnesses("inode", "i_mode", "types of entries, inline flags, i_size, i_blocks, `.`, children", ("permissions",)),
    Witnesses("inode", "i_advise", "features, contexts and descriptors that bits need"),
    Witnesses("inode", "i_inline", "i_mode, i_size, i_blocks, the first address, i_extra_isize, room for attributes"),
    Witnesses("inode", "i_uid", NOBODY, ("owner",)),
    Witnesses("inode", "i_gid", NOBODY, ("group",)),
    Witnesses("inode", "i_links", "entries that lead there"),
    Witnesses(
        "inode",
        "i_size",
        "blocks, but for the end in the last one, or in a hole; bytes inside an inode; a link's text",
        ("size",),
    ),
    Witnesses("inode", "i_blocks", "nodes and addresses"),
    Witnesses("inode", "i_atime", NOBODY),
    Witnesses("inode", "i_ctime", NOBODY),
    Witnesses("inode", "i_mtime", NOBODY, ("mtime",)),
    Witnesses("inode", "i_atime_nsec", "its range"),
    Witnesses("inode", "i_ctime_nsec", "its range"),
    Witnesses("inode", "i_mtime_nsec", "its range", ("mtime",)),
    Witnesses("inode", "i_generation", NOBODY),
    Witnesses("inode", "i_current_depth", "levels that a directory's entries and size reach"),
    Witnesses("inode", "i_xattr_nid", "the node's footer, the NAT"),
    Witnesses("inode", "i_flags", "features and i_mode; clusters with i_compr_blocks"),
    Witnesses("inode", "i_pino", "the directory of the entry, `..`"),
    Witnesses("inode", "i_namelen", "the entry's name"),
    Witnesses("inode", "i_name", "the entry's name"),
    Witnesses("inode", "i_dir_level", "where entries stand"),
    Witnesses("inode", "i_ext", "addresses"),
    Witnesses("inode", "i_addr", "summaries, the SIT, i_blocks"),
    Witnesses("inode", "i_nid", "footers of nodes, the NAT"),
    Witnesses("inode", "i_extra_isize", "sizes that kernels wrote, other inodes"),
    Witnesses("inode", "i_inline_xattr_size", "the header of the attributes"),
    Witnesses("inode", "i_projid", "the feature", ("project",)),
    Witnesses("inode", "i_inode_checksum", "all of the inode"),
    Witnesses("inode", "i_crtime", NOBODY, ("crtime",)),
    Witnesses("inode", "i_crtime_nsec", "its range", ("crtime",)),
    Witnesses("inode", "i_compr_blocks", "clusters"),
    Witnesses("inode", "i_compress_algorithm", "its range; what the clusters hold, with --data or for a wrong level"),
    Witnesses(
        "inode", "i_log_cluster_size", "its range, where clusters lie with i_compr_blocks, with --data what they hold"
    ),
    Witnesses("inode", "i_compress_flag", "levels that the algorithm has"),
    Witnesses("direct", "addr", "summaries, the SIT, i_blocks"),
    Witnesses("indirect", "nid", "footers of nodes, the NAT"),
    Witnesses("footer", "nid", "the NAT, the summary, who points there"),
    Witnesses("footer", "ino", "the NAT, who points there"),
    Witnesses("footer", "flag", "the place of who points there"),
    Witnesses("footer", "cp_ver", "the checkpoint's version"),
    Witnesses("footer", "next_blkaddr", "the log that it stands in"),
    Witnesses("entry", "hash_code", "the name"),
    Witnesses("entry", "ino", "names and links of inodes, the name that an inode remembers"),
    Witnesses("entry", "name_len", "the hash, the name that the inode remembers"),
    Witnesses("entry", "file_type", "i_mode and what speaks for it"),
    Witnesses("entry", "bitmap", "further slots of the name, the name that the inode remembers"),
    Witnesses("entry", "name", "the hash, the name that the inode remembers"),
)
ALONE = {(item.structure, item.field): item.alone for item in WITNESSES}
