"""Plans: what would put a finding right.  A check names the plan; `repair/phases.py` says who carries it out, and when.

A plan's fields are all that a repair needs to know.  JSON shows `name`, where there is one, and the fields; several
plans may share a name: they set the same kind of thing, at another time or from other evidence.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, Literal, cast, dataclass_transform

TableName = Literal[
    "checkpoint-flags", "counts", "journal", "nat-bits", "next-free-nid", "orphans", "quota", "rewrite-checkpoint",
    "sit", "user-blocks",
]  # fmt: skip


@dataclass_transform(frozen_default=True)
class RepairPlan:
    """What would put a finding right: a frozen dataclass, but for how it is made.

    `dataclass` compiles the methods of every class by themselves, and for all of these at each start: that took as long
    as the check of 10,000 files.
    """

    name: ClassVar[str] = ""
    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = (key for key, kind in vars(cls).get("__annotations__", {}).items() if not kind.startswith("ClassVar"))
        cls._fields = tuple(dict.fromkeys((*cls._fields, *own)))

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self._fields, values, strict=False)) | named
        if len(given) != len(values) + len(named) or not given.keys() <= set(self._fields):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._fields)}")
        for field in self._fields:
            if field not in given and not hasattr(type(self), field):
                raise TypeError(f"{type(self).__name__} without {field}")
        vars(self).update(given)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == cast(RepairPlan, other)._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        said = zip(self._fields, self._values(), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{field}={value!r}' for field, value in said)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field) for field in self._fields)

    def as_dict(self) -> dict[str, Any] | None:
        """Plain values under stable names, for JSON; None where the plan has no name."""
        if not self.name:
            return None
        return {"name": self.name, **dict(zip(self._fields, self._values(), strict=True))}


# -- superblock -------------------------------------------------------------------------------------------------------


class CopySuperblock(RepairPlan):
    """Write both superblock copies from the one in use."""

    name: ClassVar[str] = "superblock"
    copy: int


class SetFeature(RepairPlan):
    """Switch these bits of the feature word on or off."""

    name: ClassVar[str] = "feature"
    bits: int
    on: bool


class SetEncoding(RepairPlan):
    """Set the encoding of casefolded names to the only one in use."""


class ClearQuotaIno(RepairPlan):
    """Clear the number of a quota file."""

    name: ClassVar[str] = "quota-ino"
    kind: str


class ClearRecords(RepairPlan):
    """Forget the errors that a kernel recorded."""

    name: ClassVar[str] = "clear-records"


class SetPayload(RepairPlan):
    """Set cp_payload in both superblocks to what the checkpoints have."""

    name: ClassVar[str] = "payload"


class Lengthen(RepairPlan):
    """Make a file as long as the volume again, with zeros at its end."""


# -- checkpoint and tables --------------------------------------------------------------------------------------------


class PutTogetherPack(RepairPlan):
    """Put together a checkpoint pack from what is left of both, or from a scan."""

    name: ClassVar[str] = "checkpoint"
    pack: int


class RewritePack(RepairPlan):
    """Write a checkpoint pack anew from the valid one."""

    name: ClassVar[str] = "checkpoint"
    pack: int


class ComputeAnew(RepairPlan):
    """Compute what follows from who owns which block: a table, a count, a list."""

    what: TableName

    def as_dict(self) -> dict[str, Any] | None:
        """What is computed is the name."""
        return {"name": self.what}


class CountNodes(ComputeAnew):
    """Look for as many nodes as the checkpoint counts and the table lacks; then count anew."""

    what: TableName = "counts"


class JudgeLeaked(ComputeAnew):
    """Give blocks without an owner to the reserved places that their summaries name; then count anew."""

    what: TableName = "sit"


class Unmix(ComputeAnew):
    """Move the few blocks of the other kind out of a segment; then compute its entry anew."""

    what: TableName = "sit"


class DropOrphan(RepairPlan):
    """Leave an entry out of the list of orphans."""

    name: ClassVar[str] = "drop-orphan"
    ino: int


class RewriteSummary(RepairPlan):
    """Write the summary of a segment anew from the owners of its blocks."""

    name: ClassVar[str] = "ssa"
    segno: int


class MoveLog(RepairPlan):
    """Let a log go on in another segment."""

    name: ClassVar[str] = "log"
    kind: int


class MoveLogs(RepairPlan):
    """Let all logs go on where their zones allow it."""


# -- node address table, nodes, pointers ------------------------------------------------------------------------------


class SetNatAddress(RepairPlan):
    """Set the address in an entry of the node address table."""

    name: ClassVar[str] = "nat-entry"
    nid: int
    block_addr: int


class SetNatIno(RepairPlan):
    """Set the inode number in an entry of the node address table."""

    name: ClassVar[str] = "nat-entry"
    nid: int
    ino: int


class TakeNewer(RepairPlan):
    """Let the node address table lead to the newest copy of a node."""

    name: ClassVar[str] = "newer-copy"
    nid: int
    ino: int
    block_addr: int


class FindNode(RepairPlan):
    """Look for a node's block by its footer; else clear its entry."""

    name: ClassVar[str] = "find-node"
    nid: int


class JudgeFooter(FindNode):
    """Correct the footer of a node whose summary still names it; else look for the node elsewhere."""


class FindNatBlock(RepairPlan):
    """Look for all nodes of a block of the node address table."""

    name: ClassVar[str] = "nat-block"
    number: int


class SetFooter(RepairPlan):
    """Set a field of a node's footer that follows from its place."""

    name: ClassVar[str] = "footer"
    nid: int
    field: str
    value: int


class SetFooterOwner(SetFooter):
    """Set a field of a node's footer that says whose the node is."""


class FindChild(RepairPlan):
    """Look for the node that a pointer should lead to; else make it anew from what it led to, or clear the pointer."""

    name: ClassVar[str] = "node-pointer"
    nid: int
    slot: int
    child: int


class ReattachNode(RepairPlan):
    """Put a node that nothing points to back in its place; else free it."""

    name: ClassVar[str] = "reattach-node"
    nid: int


class CutChain(RepairPlan):
    """Let the chain of fsync'ed nodes end with this block."""

    name: ClassVar[str] = "cut-chain"
    blkaddr: int


class LinkChain(RepairPlan):
    """Let the chain of fsync'ed nodes go on behind this block."""

    name: ClassVar[str] = "link-chain"
    blkaddr: int
    next_blkaddr: int


class PassGap(RepairPlan):
    """Let the chain of fsync'ed nodes go on behind a block that is not of it.

    A file comes back of which all that was fsync'ed is sure to lie behind; of the others that is given up.
    """

    name: ClassVar[str] = "pass-gap"
    last: int  # node before the gap; 0 where the chain begins with it
    blkaddr: int
    next_blkaddr: int
    unmarked: tuple[int, ...]  # nodes that lose the mark of an fsync
    given_up: tuple[LeaveOut, ...]


class LeaveOut(RepairPlan):
    """Bring back what was fsync'ed but for this file from this node on.

    A file that the checkpoint does not have says itself under which name it was fsync'ed, and in which directory.
    """

    name: ClassVar[str] = "leave-out"
    ino: int
    blkaddr: int
    pino: int = 0
    new: str = ""


# -- inodes -----------------------------------------------------------------------------------------------------------


class SetField(RepairPlan):
    """Set a field of an inode; without a value, to a possible one."""

    name: ClassVar[str] = "inode-field"
    ino: int
    field: str
    value: int | None


class SetFieldEarly(SetField):
    """Set a field of an inode that makes readers misread the others."""


class SetFieldLast(SetField):
    """Set a field of an inode that follows from what the volume holds once all else is right."""


class SetLinks(SetField):
    """Look for the names that a file lacks; then set the number of links."""


class SetBlocks(SetField):
    """Look for the blocks that a file lacks; then set i_blocks."""


class ClearFirstAddress(SetField):
    """Clear the address that is reserved in an inode with content of its own."""


class ClearExtent(SetField):
    """Clear the extent that an inode remembers."""


class ClearNodePointers(SetField):
    """Clear the pointers of an inode to nodes that it can't have."""


class FindAlgorithm(SetField):
    """Find the algorithm with which the compressed clusters of a file can be read."""


class SetLevel(FindAlgorithm):
    """Find another algorithm, where only that reads the clusters; else set the compression level to the default."""


class ClearClusters(SetField):
    """Clear the addresses of impossible clusters."""


class SetMarks(RepairPlan):
    """Let compressed clusters begin at places of nodes: (nid, ofs_in_node).  `sure`: a count of the inode agrees."""

    name: ClassVar[str] = "cluster-marks"
    places: tuple[tuple[int, int], ...]
    sure: bool


class SetParentName(SetField):
    """Let a file remember its name and directory."""

    name: ClassVar[str] = "inode-name"


class FindKind(RepairPlan):
    """Ask all witnesses of what an inode is."""

    name: ClassVar[str] = "inode-mode"
    ino: int


class SetKind(RepairPlan):
    """Let an inode have the type that most witnesses name."""

    name: ClassVar[str] = "inode-mode"
    ino: int
    kind: int


class ClearAdvise(RepairPlan):
    """Clear a mark of i_advise."""

    name: ClassVar[str] = "inode-advise"
    ino: int
    bit: int


class SetPolicy(RepairPlan):
    """Put a policy of encryption, in hexadecimal digits, into the context of an inode, and leave its nonce."""

    name: ClassVar[str] = "encryption-policy"
    ino: int
    policy: str


class Reseal(RepairPlan):
    """Look for the one wrong byte of an inode; else compute its checksum anew."""

    name: ClassVar[str] = "inode-checksum"
    ino: int


class ReplaceBlank(RepairPlan):
    """Look for an older copy of an inode that is blank; else make it anew from what is left of it, or free it."""


class KeepSoundXattrs(RepairPlan):
    """Keep the attributes that are sound, clear the rest."""

    name: ClassVar[str] = "xattrs"
    ino: int


# -- data -------------------------------------------------------------------------------------------------------------


class FindBlocks(RepairPlan):
    """Look for blocks through the summaries; else clear the addresses."""

    name: ClassVar[str] = "data-pointers"
    nid: int
    ofs: list[int]
    addr: list[int]


class CopyBlock(RepairPlan):
    """Give one of two owners of a block its own: the one that its summary names, or a copy."""

    name: ClassVar[str] = "copy-block"
    nid: int
    ofs: int
    blkaddr: int


class SetAliasExtent(RepairPlan):
    """Set the extent of a device alias."""

    name: ClassVar[str] = "alias-extent"
    ino: int
    blkaddr: int
    length: int


class RepairCluster(RepairPlan):
    """Find the length or the algorithm with which a compressed cluster can be read."""

    name: ClassVar[str] = "cluster"
    ino: int
    fofs: int


class RebuildMerkleTree(RepairPlan):
    """Compute the tree of a sealed file anew."""

    name: ClassVar[str] = "verity-tree"
    ino: int


class RewriteBlock(RepairPlan):
    """Write a block that can't be read."""

    name: ClassVar[str] = "rewrite-block"


# -- directories, and quota -------------------------------------------------------------------------------------------


class EntryPlan(RepairPlan):
    """What is about one entry of a directory: its inode number, the block and the slot of the entry."""

    dir: int
    blkaddr: int
    slot: int


class FindName(EntryPlan):
    """Look for the name that has the entry's hash; else remove the entry."""

    name: ClassVar[str] = "dentry"


class MendName(EntryPlan):
    """Look for the name that has the entry's hash; else change the bytes that a name can't have."""

    name: ClassVar[str] = "dentry-name"


class SetHash(EntryPlan):
    """Look for the name that has the entry's hash; else compute the hash anew."""

    name: ClassVar[str] = "dentry-hash"
    hash: int


class MarkSlots(EntryPlan):
    """Mark all slots of a name."""

    name: ClassVar[str] = "dentry-bits"


class RemoveEntry(EntryPlan):
    """Remove an entry."""

    name: ClassVar[str] = "remove-dentry"


class TakeOut(RemoveEntry):
    """Remove an entry of what can't be opened in its directory, and can in lost+found."""


class SetType(EntryPlan):
    """Set the type in an entry to that of its inode."""

    name: ClassVar[str] = "dentry-type"
    type: int


class FindTarget(EntryPlan):
    """Look for the inode of an entry; else make it anew from what is left of it, or remove the entry."""

    name: ClassVar[str] = "dentry-target"
    target: int


class SetDotTarget(EntryPlan):
    """Let `.` or `..` lead where it must."""

    name: ClassVar[str] = "dentry-target"
    target: int


class SetTarget(EntryPlan):
    """Let an entry lead to the inode that remembers it."""

    name: ClassVar[str] = "dentry-target"
    target: int
    type: int


class MoveEntry(EntryPlan):
    """Move an entry to the bucket that its hash leads to."""

    name: ClassVar[str] = "move-dentry"


class RenameTwin(EntryPlan):
    """Rename the second of two entries with one name, or remove it where both lead to one inode."""

    name: ClassVar[str] = "dentry-duplicate"


class AddDots(RepairPlan):
    """Put `.` and `..` into a directory."""

    name: ClassVar[str] = "add-dots"
    ino: int
    field: str = "dots"
    value: int | None = None


class DropDots(RepairPlan):
    """Keep the first `.` and the first `..` of a directory."""

    name: ClassVar[str] = "drop-dots"
    ino: int
    field: str = "dots"
    value: int = 1


class FillDirectory(RepairPlan):
    """Look for the blocks of a directory that has none; else give it one with `.` and `..`."""


class RebuildRoot(RepairPlan):
    """Look for an older copy of the root; else make one for all that remember it."""

    name: ClassVar[str] = "root"


class Reconnect(RepairPlan):
    """Give an inode the name that it remembers, in the directory that it remembers; else in lost+found."""

    name: ClassVar[str] = "reconnect"
    ino: int
    pino: int


class RewriteQuotaFile(RepairPlan):
    """Write a quota file anew, with the limits that can still be read."""

    name: ClassVar[str] = "quota"
    ino: int


class CountQuota(RepairPlan):
    """Count anew the use that a quota file states wrongly."""

    name: ClassVar[str] = "quota"
    kind: str
