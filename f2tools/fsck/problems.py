"""The catalogue: every problem that fsck knows, with its permanent code, severity, meaning, and what repairs it.

The letter of a code tells the area: S superblock, C checkpoint, J journals, N node address table, G segment information
table, A summaries, L open logs, F nodes, I inodes, B data blocks, D directories, X extended attributes, Z compression,
V verity, Q quota, O orphans, R fsync'ed after the checkpoint, W zones, U what can't be reached, H the device.
docs/problems.md is made from this list.  A code that is no longer used stays reserved.
"""

from __future__ import annotations

from f2tools.fsck.findings import Problem, Severity
from f2tools.fsck.plans import (
    AddDots,
    ClearAdvise,
    ClearClusters,
    ClearExtent,
    ClearFirstAddress,
    ClearNodePointers,
    ClearQuotaIno,
    ClearRecords,
    ComputeAnew,
    CopyBlock,
    CopySuperblock,
    CountNodes,
    CountQuota,
    CutChain,
    DropDots,
    DropOrphan,
    FillDirectory,
    FindAlgorithm,
    FindBlocks,
    FindChild,
    FindKind,
    FindName,
    FindNatBlock,
    FindNode,
    FindTarget,
    JudgeFooter,
    JudgeLeaked,
    KeepSoundXattrs,
    LeaveOut,
    Lengthen,
    LinkChain,
    MarkSlots,
    MendName,
    MoveEntry,
    MoveLog,
    MoveLogs,
    PassGap,
    PutTogetherPack,
    ReattachNode,
    RebuildMerkleTree,
    RebuildRoot,
    Reconnect,
    RemoveEntry,
    RenameTwin,
    RepairCluster,
    RepairPlan,
    ReplaceBlank,
    Reseal,
    RewriteBlock,
    RewritePack,
    RewriteQuotaFile,
    RewriteSummary,
    SetAliasExtent,
    SetBlocks,
    SetDotTarget,
    SetEncoding,
    SetFeature,
    SetField,
    SetFieldEarly,
    SetFieldLast,
    SetFooter,
    SetFooterOwner,
    SetHash,
    SetKind,
    SetLevel,
    SetLinks,
    SetMarks,
    SetNatAddress,
    SetNatIno,
    SetParentName,
    SetPayload,
    SetPolicy,
    SetTarget,
    SetType,
    TakeNewer,
    TakeOut,
    Unmix,
)

CATALOGUE: dict[str, Problem] = {}
INFO, WARNING, ERROR, FATAL = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL


def _problem(
    code: str, name: str, severity: Severity, text: str, meaning: str, repair: str = "none",
    plans: tuple[type[RepairPlan], ...] = (),
) -> Problem:  # fmt: skip
    assert code not in CATALOGUE, code
    CATALOGUE[code] = Problem(code, name, severity, text, " ".join(meaning.split()), repair, plans)
    return CATALOGUE[code]


# -- superblock -------------------------------------------------------------------------------------------------------

SB_MAGIC = _problem(
    "S001", "superblock-magic", ERROR, "not a superblock",
    "One of the two copies does not start with 0xf2f52010. With the other copy the volume still mounts.",
    "written anew from the other copy, or, when its other fields hold together, the magic is put back",
    plans=(CopySuperblock,),
)  # fmt: skip
SB_CHECKSUM = _problem(
    "S002", "superblock-checksum", ERROR, "superblock checksum is wrong",
    "With the feature sb_checksum each copy ends with a CRC-32 of itself. The kernel refuses one whose CRC is wrong.",
    "written anew from the other copy",
    plans=(CopySuperblock,),
)  # fmt: skip
SB_GEOMETRY = _problem(
    "S003", "superblock-geometry", ERROR, "superblock contradicts itself",
    "Sizes, counts or area bounds of a copy can't all be true. The kernel refuses such a copy.",
    "written anew from the other copy",
    plans=(CopySuperblock,),
)  # fmt: skip
SB_DIFFERS = _problem(
    "S004", "superblock-copies-differ", WARNING, "the two superblock copies differ",
    "Both are valid on their own. The kernel takes the first; should that be lost, the volume changes.",
    "the first copy is written over the second, or the second over the first where the volume has fewer errors with it",
    plans=(CopySuperblock,),
)  # fmt: skip
SB_LOST = _problem(
    "S005", "superblock-lost", ERROR, "no superblock is left",
    "Nothing of either copy can be used. The geometry was derived from the checkpoint and the tables; label, identity "
    "and features that leave no trace in inodes can't be had again.",
    "both copies written from the geometry that the areas imply",
    plans=(CopySuperblock,),
)  # fmt: skip
SB_FEATURE_UNKNOWN = _problem(
    "S006", "unknown-feature", WARNING, "unknown feature bits",
    "A bit of the feature word that no released kernel defines. Nothing that writes should touch such a volume. Where "
    "the other copy lacks the bit, that copy counts. Where both have it there is no repair: what a newer kernel means "
    "by it is not known here, and without it the volume might be misread.",
    "none where both copies have the bit; else written from the copy without it",
)  # fmt: skip
SB_FEATURE_CLASH = _problem(
    "S007", "feature-needs-another", WARNING, "a feature is set without one that it needs",
    "For instance inode_checksum needs extra_attr; without it there is no room for the field. Where most inodes have "
    "extra attributes it is the bit of extra_attr that was lost. With flexible_inline_xattr every inode must have "
    "them, or kernels up to 6.4 refuse it. With ro there is nothing reserved for cleaning.",
    "extra_attr is set again where the inodes have it; else the features that need it are taken away",
    plans=(SetFeature,),
)  # fmt: skip
SB_STOPPED = _problem(
    "S008", "recorded-errors", INFO, "the kernel has recorded errors",
    "s_stop_reason or s_errors count what a kernel met on this volume, for instance a failed write.",
    "none needed: they are a record",
    plans=(ClearRecords,),
)  # fmt: skip
SB_CUT_OFF = _problem(
    "S009", "image-cut-off", ERROR, "the image is shorter than the volume",
    "The end of the volume, or of one of its devices, is missing; what lay there reads as zeros here.",
    "a file is made as long again, with zeros at its end, and repaired; a device can't be; -p leaves it alone; with "
    "--undo only the last of several is made longer",
    plans=(Lengthen,),
)  # fmt: skip
SB_QUOTA_INO = _problem(
    "S010", "quota-inode-number", ERROR, "the number of a quota file is not one",
    "With the feature quota the superblock names hidden files for users, groups and projects.",
    "the number is cleared, the quota file rebuilt",
    plans=(ClearQuotaIno,),
)  # fmt: skip
SB_ENCODING = _problem(
    "S011", "unknown-encoding", WARNING, "unknown encoding of casefolded names",
    "With the feature casefold the only encoding in use is UTF-8 12.1 (1). A kernel refuses to mount with another.",
    "set to 1",
    plans=(SetEncoding,),
)  # fmt: skip
SB_FEATURE_LOST = _problem(
    "S012", "feature-lost", ERROR, "inodes use a feature that is not set",
    "Without its bit a kernel refuses these files, or reads them as something else. More than a flag says that they "
    "use it: clusters, attributes, an encoding, a project of several.",
    "the feature is set again",
    plans=(SetFeature,),
)  # fmt: skip
SB_PAYLOAD = _problem(
    "S014", "payload", ERROR, "cp_payload is not that of the checkpoints",
    "With it no checkpoint is valid, and the volume can't be mounted; with the number of blocks that their bitmaps "
    "need one is. The check goes on with that.",
    "set in both superblocks",
    plans=(SetPayload,),
)  # fmt: skip
SB_TOO_LONG = _problem(
    "S013", "too-long", ERROR, "the volume ends where no block address leads",
    "Block addresses have 32 bits, and a kernel compares them with that of the end, which is 2^32 and becomes 0: it "
    "refuses every block. mkfs.f2fs makes such a volume on a device of exactly 16 TiB, as earlier versions of f2tools "
    "did. Everything in it can be read here.",
    "none: `f2tools resize IMAGE SIZE` makes the volume smaller, with the present size by a segment",
)  # fmt: skip

# -- checkpoint -------------------------------------------------------------------------------------------------------

CP_PACK = _problem(
    "C001", "checkpoint-pack", WARNING, "a checkpoint pack is not valid",
    "Head and tail of a pack must agree in version and pass their checksums. The kernel falls back to the other pack. "
    "One that a power cut left unfinished is C017 where it can be told from one that was hit later.",
    "written anew from the valid pack, also where it was the newer one: the kernel may have gone on without it (C018)",
    plans=(RewritePack,),
)  # fmt: skip
CP_LOST = _problem(
    "C002", "checkpoint-lost", ERROR, "neither checkpoint pack is valid",
    "The volume can't be mounted. Where head or tail of a pack is still whole, the check goes on with that.",
    "a pack rebuilt from its own tail or head, or from a scan",
    plans=(PutTogetherPack,),
)  # fmt: skip
CP_UNUSABLE = _problem(
    "C003", "checkpoint-unusable", FATAL, "nothing of the checkpoint can be used",
    "Neither head nor tail of a pack can be used, and there are no nodes from which another could be made.",
    "none: without any node nothing says what was in the volume",
)  # fmt: skip
CP_BLOCKS = _problem(
    "C004", "valid-block-count", ERROR, "count of valid blocks is wrong",
    "valid_block_count must be what the files and nodes have; free space is computed from it.",
    "counted anew",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_NODES = _problem(
    "C005", "valid-node-count", ERROR, "count of valid nodes is wrong",
    "valid_node_count must be the number of used entries of the node address table.",
    "counted anew",
    plans=(CountNodes,),
)  # fmt: skip
CP_INODES = _problem(
    "C006", "valid-inode-count", ERROR, "count of valid inodes is wrong",
    "valid_inode_count must be the number of inodes.",
    "counted anew",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_FREE_SEGMENTS = _problem(
    "C007", "free-segment-count", ERROR, "count of free segments is wrong",
    "free_segment_count must be the number of segments without valid blocks, open logs left out.",
    "counted anew",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_USER_BLOCKS = _problem(
    "C008", "user-block-count", ERROR, "user_block_count or overprovision can't be",
    "user_block_count must be less than the main area, and at least what is in use. Reserved and overprovisioned "
    "segments must be there, or cleaning can't work.",
    "computed anew",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_FLAGS_UNKNOWN = _problem(
    "C009", "unknown-checkpoint-flags", INFO, "unknown checkpoint flags",
    "Bits of ckpt_flags that no released kernel defines.",
)  # fmt: skip
CP_WANTS_CHECK = _problem(
    "C010", "check-wanted", WARNING, "the volume is marked as in need of a check",
    "CP_ERROR or CP_FSCK is set: a kernel met corruption, or a tool did not end.",
    "the mark is removed after a repair",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_QUOTA_STALE = _problem(
    "C011", "quota-stale", WARNING, "quota is marked as out of date",
    "CP_QUOTA_NEED_FSCK: what was counted could not be written. Linux mounts without quota, neither counting nor "
    "limiting, until a check removes the mark.",
    "the mark is removed, and what quota files count wrongly is counted anew",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_NEXT_NID = _problem(
    "C012", "next-free-nid", WARNING, "next_free_nid is out of range",
    "Where the search for a free node number goes on. A kernel of 2023 and later falls back to the start.",
    "set to the first free node number",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_NAT_BITS = _problem(
    "C013", "nat-bits", WARNING, "nat_bits contradict the node address table",
    "The pack's bitmaps of full and empty NAT blocks make mounting faster; a wrong bit hides free node numbers, or "
    "lets used ones be given out again.",
    "computed anew",
    plans=(ComputeAnew,),
)  # fmt: skip
CP_NOT_CLEAN = _problem(
    "C014", "not-unmounted", INFO, "the volume was not unmounted",
    "The checkpoint lacks CP_UMOUNT. The next mount recovers what was fsync'ed after it.",
)  # fmt: skip
CP_GONE = _problem(
    "C016", "checkpoint-gone", ERROR, "nothing of either checkpoint is left",
    "Which copies of the tables count was found out from the nodes that they lead to. What was in the journals only, "
    "and the list of orphans, is lost.",
    "written anew from tables and nodes",
    plans=(PutTogetherPack,),
)  # fmt: skip
CP_UNFINISHED = _problem(
    "C017", "checkpoint-unfinished", INFO, "a checkpoint was not written to its end",
    "The power was cut, or the device was full. Of a newer pack the head is there, and in the place of its tail, which "
    "is written last, what the pack before left there. That is no damage: the other pack counts, and the next "
    "checkpoint is written over this one.",
)  # fmt: skip
ONLY_NODES = "of that checkpoint nothing is left, only nodes are"
CP_NEWER = _problem(
    "C018", "newer-state", ERROR, "a newer state lies behind a checkpoint pack that is not valid",
    "That checkpoint had been written to its end, and was hit later. The kernel falls back to the older one, and shows "
    "nothing of what was written since, even if it was fsync'ed: so many blocks of nodes, of so many files. "
    "`fsck --salvage` copies both states out, the newer one into `newer`; `undelete` finds files of it, too. Files "
    "are not written to such a volume, and a mount is read-only.",
    "none by default, as the kernel may have gone on from the older checkpoint: -y makes that one safe and gives the "
    "newer state up, -p leaves the volume alone, `-y --rescue` goes on from the newer state where "
    "enough of its checkpoint is left",
)  # fmt: skip
CP_PERHAPS_NEWER = _problem(
    "C019", "perhaps-newer-state", WARNING, "nodes that no checkpoint has lie behind a pack that is not valid",
    "Nothing of that pack says which it was. Either the next checkpoint is gone, and with it what it had of these "
    "nodes, or the power was cut before there was one: then they were written back, never fsync'ed, and no mount shows "
    "them. `fsck --salvage` copies what is found of them into `newer`. Where the pack is all zeros, which no power cut "
    "leaves, whoever writes to the volume is told.",
    "none: it goes with the pack, which is written anew (C001), as a mount does",
)  # fmt: skip
CP_TURN = _problem(
    "C020", "checkpoint-turn", ERROR, "the older checkpoint has the higher version",
    "Packs take turns, and each has the version after the other's. These are far apart, and the nodes that only "
    "one of them leads to say that the kernel takes the older one: its next checkpoint is written over the newer one. "
    "The check goes on with the newer one.",
    "the version becomes the one that was that pack's turn; -p leaves the volume alone",
    plans=(PutTogetherPack,),
)  # fmt: skip
CP_LATER = _problem(
    "C021", "later-nodes", INFO, "nodes were written behind a checkpoint that is not there",
    "They have the version of a later checkpoint than both packs: the disk lost it though it had said that it was "
    "written, and the volume is as it was before. What was written since is not shown, and the next writes go over it. "
    "`undelete` finds files of it.",
    "none: neither pack is damaged, and what the later one held is gone",
)  # fmt: skip
CP_GIVEN_UP = _problem(
    "C022", "checkpoint-given-up", INFO, "the older checkpoint was given up",
    "Its head is zeros, and its tail says that it is from before the checkpoint in use. So `resize.f2fs` leaves it. "
    "That is no damage: the other pack counts, and the next checkpoint is written over this one.",
)  # fmt: skip
CP_LAYOUT = _problem(
    "C015", "pack-layout", ERROR, "the parts of the checkpoint pack don't fit",
    "Where the summaries start, how long the pack is and which parts it must have contradict each other.",
    "flags and start are set to what the blocks say; else the pack is written anew",
    plans=(ComputeAnew,),
)  # fmt: skip

# -- journals ---------------------------------------------------------------------------------------------------------

NAT_JOURNAL = _problem(
    "J001", "nat-journal", ERROR, "NAT journal is not sound",
    "The journal in the checkpoint overrides the table. It holds at most 38 entries, each for another nid below the "
    "end of the table.",
    "bad entries are dropped",
    plans=(ComputeAnew,),
)  # fmt: skip
SIT_JOURNAL = _problem(
    "J002", "sit-journal", ERROR, "SIT journal is not sound",
    "The journal in the checkpoint overrides the table. It holds at most 6 entries, each for another segment of the "
    "main area.",
    "bad entries are dropped, the table is rebuilt",
    plans=(ComputeAnew,),
)  # fmt: skip

# -- node address table -----------------------------------------------------------------------------------------------

NAT_RESERVED = _problem(
    "N001", "nat-reserved-entry", ERROR, "a reserved entry of the node address table is wrong",
    "Entry 0 is empty; entries 1 and 2 stand for the kernel's own inodes and have the placeholder address 1.",
    "written as mkfs does",
    plans=(SetNatAddress,),
)  # fmt: skip
NAT_INO = _problem(
    "N002", "nat-ino", ERROR, "the node address table names another inode than the node",
    "A NAT entry repeats the inode that its node belongs to. The kernel compares it with the node's footer.",
    "taken from the node's footer",
    plans=(SetNatIno,),
)  # fmt: skip
NAT_OUTSIDE = _problem(
    "N003", "nat-outside", ERROR, "the node address table points outside the main area",
    "The node can't be read: its inode, or a part of its inode's content, is lost until its block is found.",
    "the node's block is searched by its footer; else the entry is cleared",
    plans=(FindNode,),
)  # fmt: skip
NAT_SHARED = _problem(
    "N004", "nat-shared-block", ERROR, "two nodes lie in one block",
    "Two NAT entries have the same address; the block's footer says whose it is.",
    "the entry that the footer contradicts is searched for or cleared",
    plans=(FindNode,),
)  # fmt: skip
NAT_NEVER_WRITTEN = _problem(
    "N005", "nat-never-written", ERROR, "a node was never written",
    "NEW_ADDR stands for a node that is in memory only. A checkpoint never leaves it on the disk.",
    "the node's block is searched by its footer; else the entry is cleared",
    plans=(FindNode,),
)  # fmt: skip
NAT_BLOCK_LOST = _problem(
    "N006", "nat-block-lost", ERROR, "a block of the node address table was lost",
    "Many node numbers of one NAT block are in use by inodes or directories, and the block has none of them.",
    "rebuilt from the footers of the nodes and the table's other copy",
    plans=(FindNatBlock,),
)  # fmt: skip
NAT_BEHIND = _problem(
    "N007", "nat-behind-log", ERROR, "the node address table leads to an older copy of a node",
    "The journals of the checkpoint, which override the tables, were lost or never written, and the log has a newer "
    "copy, from before the checkpoint. Without them a file or directory is as an earlier checkpoint left it, and the "
    "tables call free what was written since: no file of such a volume is changed before it is repaired, and a mount "
    "is read-only.",
    "the entry leads to the newest copy",
    plans=(TakeNewer,),
)  # fmt: skip

# -- segment information table ----------------------------------------------------------------------------------------

SIT_COUNT = _problem(
    "G001", "sit-count", ERROR, "a segment's count of valid blocks is not that of its bitmap",
    "The kernel refuses to mount with it.",
    "counted anew",
    plans=(ComputeAnew,),
)  # fmt: skip
SIT_TYPE = _problem(
    "G002", "sit-type", ERROR, "a segment has a type that does not exist",
    "Types are 0 to 2 for data (hot, warm, cold), 3 to 5 for nodes.",
    "taken from what lies in the segment",
    plans=(ComputeAnew,),
)  # fmt: skip
SIT_LEAKED = _problem(
    "G003", "sit-leaked", ERROR, "blocks are marked valid that nothing points to",
    "Space is lost; or what pointed to them was.",
    "the bitmap is rebuilt from what is in use",
    plans=(JudgeLeaked,),
)  # fmt: skip
SIT_MISSING = _problem(
    "G004", "sit-missing", ERROR, "blocks in use are marked free",
    "They would be overwritten.",
    "the bitmap is rebuilt from what is in use",
    plans=(ComputeAnew,),
)  # fmt: skip
SIT_MIXED = _problem(
    "G005", "sit-mixed", ERROR, "a segment's type contradicts what lies in it",
    "A segment holds data or nodes, never both.",
    "taken from what lies in the segment",
    plans=(Unmix,),
)  # fmt: skip
SIT_MTIME = _problem(
    "G006", "sit-mtime", INFO, "a segment's age lies in the future",
    "mtime is counted in seconds of elapsed_time. The cleaner only chooses worse.",
    "none needed",
    plans=(ComputeAnew,),
)  # fmt: skip

# -- summaries --------------------------------------------------------------------------------------------------------

SSA_TYPE = _problem(
    "A001", "ssa-type", ERROR, "a segment's summary is of the other kind",
    "The footer says data where the segment holds nodes, or the other way round. The kernel stops cleaning there.",
    "written anew from the owners of the blocks",
    plans=(RewriteSummary,),
)  # fmt: skip
SSA_DATA = _problem(
    "A002", "ssa-data", ERROR, "a summary names another owner of a data block",
    "Cleaning would look for the block's pointer in the wrong place. nid, version and ofs_in_node must be those of the "
    "node that points to the block.",
    "written anew from the owners of the blocks",
    plans=(RewriteSummary,),
)  # fmt: skip
SSA_NODE = _problem(
    "A003", "ssa-node", ERROR, "a summary names another node than lies there",
    "Cleaning would skip or move the wrong node.",
    "written anew from the owners of the blocks",
    plans=(RewriteSummary,),
)  # fmt: skip
SSA_VERSION = _problem(
    "A004", "ssa-version", WARNING, "a summary has another version than its node",
    "The version tells uses of a node number apart; the kernel then takes the block for stale.",
    "written anew from the owners of the blocks",
    plans=(RewriteSummary,),
)  # fmt: skip

# -- open logs --------------------------------------------------------------------------------------------------------

LOG_TYPE = _problem(
    "L001", "log-type", ERROR, "an open log's segment has another type in the SIT",
    "The kernel refuses to mount where a log's segment holds the other kind of blocks; of an empty one it would take"
    " what it writes there for that kind.",
    "the SIT entry takes the log's type, or a new segment is opened",
    plans=(MoveLog,),
)  # fmt: skip
LOG_NEXT_USED = _problem(
    "L002", "log-next-used", ERROR, "the next free block of an open log is in use",
    "The next write would overwrite it.",
    "a new segment is opened",
    plans=(MoveLog,),
)  # fmt: skip
LOG_BEYOND = _problem(
    "L003", "log-beyond", ERROR, "an appending log has valid blocks ahead of it",
    "A log that appends only writes behind its last block; blocks ahead would be overwritten.",
    "a new segment is opened",
    plans=(MoveLog,),
)  # fmt: skip
LOG_SHARED = _problem(
    "L004", "log-shared", ERROR, "two open logs write to one segment",
    "They would overwrite each other.",
    "a new segment is opened for one of them",
    plans=(MoveLog,),
)  # fmt: skip
LOG_SUMMARY = _problem(
    "L005", "log-summary", ERROR, "the summary of an open log names other owners",
    "Summaries of open logs lie in the checkpoint until the segment is full.",
    "written anew from the owners of the blocks",
    plans=(MoveLog, RewriteSummary),
)  # fmt: skip
LOG_ALLOC = _problem(
    "L006", "log-alloc-type", ERROR, "an open log allocates in a way that can't be",
    "0 is appending, 1 is filling holes; on zoned devices only appending works.",
    "a new segment is opened",
    plans=(MoveLog,),
)  # fmt: skip
LOG_END = _problem(
    "L007", "log-end", ERROR, "an open log goes on behind its segment",
    "The kernel refuses to mount.",
    "a new segment is opened",
    plans=(MoveLog,),
)  # fmt: skip

# -- nodes ------------------------------------------------------------------------------------------------------------

NODE_NID = _problem(
    "F001", "footer-nid", ERROR, "a node's footer names another nid",
    "The kernel refuses the node, and with it the file or a part of it.",
    "the footer is corrected where all else says so",
    plans=(SetFooterOwner,),
)  # fmt: skip
NODE_INO = _problem(
    "F002", "footer-ino", ERROR, "a node's footer names another inode",
    "The kernel refuses the node, and with it the file or a part of it.",
    "the footer is corrected where all else says so",
    plans=(SetFooterOwner,),
)  # fmt: skip
NODE_OFFSET = _problem(
    "F003", "footer-offset", ERROR, "a node's footer has another offset than its place in the file",
    "Cleaning and recovery after a crash find the place of a node by this offset.",
    "taken from the node's place",
    plans=(SetFooter,),
)  # fmt: skip
NODE_FUTURE = _problem(
    "F004", "footer-future", WARNING, "a node's footer is newer than the checkpoint",
    "cp_ver of a node that the checkpoint knows can't be later than the checkpoint's own version.",
    "set to the checkpoint's version",
    plans=(SetFooter,),
)  # fmt: skip
NODE_MISSING = _problem(
    "F005", "node-missing", ERROR, "a pointer leads to a node that is not there",
    "The part of the file below it is lost unless the node is found.",
    "the node is searched by its footer; else the pointer is cleared",
    plans=(FindChild,),
)  # fmt: skip
NODE_RANGE = _problem(
    "F006", "node-out-of-range", ERROR, "a pointer to a node is no node number",
    "The node number lies beyond the node address table.",
    "the node is searched by its footer; else the pointer is cleared",
    plans=(FindChild,),
)  # fmt: skip
NODE_TWICE = _problem(
    "F007", "node-twice", ERROR, "a node is pointed to twice",
    "Each node has one place in one file. Where a node is its own ancestor, reading would never end.",
    "the pointer that the footer contradicts is cleared",
    plans=(FindChild,),
)  # fmt: skip
NODE_FOREIGN = _problem(
    "F008", "node-foreign", ERROR, "a file points to a node of another file",
    "The node's footer and its NAT entry name another inode.",
    "the right node is searched by its footer; else the pointer is cleared",
    plans=(FindChild,),
)  # fmt: skip
NODE_KIND = _problem(
    "F009", "node-kind", ERROR, "a block is not the kind of node that it should be",
    "An inode stands where a direct or indirect node belongs, or the other way round, or a node that belongs elsewhere "
    "in the file.",
    "the node is searched by its footer; else the pointer is cleared",
    plans=(FindChild,),
)  # fmt: skip
NODE_STRAY = _problem(
    "F010", "node-stray-block", ERROR, "the block is not the node that the table says",
    "The NAT leads to a block whose footer names another nid of another inode, or nothing.",
    "the node is searched by its footer; an older copy keeps nothing that the tables have free, where these have all "
    "that the checkpoint counts; else the entry is cleared",
    plans=(JudgeFooter,),
)  # fmt: skip

# -- inodes -----------------------------------------------------------------------------------------------------------

INODE_MODE = _problem(
    "I001", "inode-mode", ERROR, "an inode has no file type",
    "i_mode must say file, directory, symlink, device, fifo or socket.",
    "taken from the directory entry",
    plans=(FindKind,),
)  # fmt: skip
INODE_LINKS = _problem(
    "I002", "inode-links", ERROR, "link count is not the number of names",
    "Too low and the file is freed while a name is left; too high and it is never freed. An orphan has none.",
    "a name too many that is only in an older copy of a directory is removed; else counted anew",
    plans=(SetLinks, SetFieldLast),
)  # fmt: skip
DIR_LINKS = _problem(
    "I003", "dir-links", ERROR, "link count of a directory is not 2 and its subdirectories",
    "The kernel compares it when subdirectories are removed.",
    "counted anew",
    plans=(SetFieldLast,),
)  # fmt: skip
INODE_BLOCKS = _problem(
    "I004", "inode-blocks", ERROR, "i_blocks is not the number of blocks",
    "Data blocks, reserved ones included, node blocks, and the inode itself.",
    "where just as many addresses lead to others' blocks, or are lost, as the summaries say, these are corrected; else "
    "counted anew",
    plans=(SetBlocks,),
)  # fmt: skip
INLINE_SIZE = _problem(
    "I005", "inline-size", ERROR, "a file inside its inode is larger than fits",
    "The kernel refuses the inode. Where the file has blocks too, it is the inline flag that is wrong.",
    "i_size is limited, or the flag is taken away",
    plans=(SetField,),
)  # fmt: skip
SIZE_BEFORE_BLOCKS = _problem(
    "I006", "size-before-blocks", WARNING, "a file has written blocks, or bytes inside its inode, beyond its size",
    "Cutting a file clears what lies behind the end in its inode, in the node and in the block where it ends. One of "
    "these has content there, so the size is what is wrong; that content can't be read.",
    "i_size is raised to cover them",
    plans=(SetField,),
)  # fmt: skip
DIR_SIZE = _problem(
    "I007", "dir-size", ERROR, "size of a directory does not cover its blocks",
    "Entries in blocks beyond i_size are not found.",
    "set to the end of the last block",
    plans=(SetField,),
)  # fmt: skip
INLINE_RESERVED = _problem(
    "I008", "inline-reserved", ERROR, "the reserved address of an inode with inline content is in use",
    "The first address stays 0 in an inode that holds its content itself. The kernel reads it as a block.",
    "cleared, or the inline flag is taken away",
    plans=(ClearFirstAddress,),
)  # fmt: skip
DATA_EXIST = _problem(
    "I009", "data-exist", WARNING, "inline content without the flag that says so",
    "Without F2FS_DATA_EXIST an inline file reads as empty.",
    "the flag is set",
    plans=(SetField,),
)  # fmt: skip
INLINE_FLAGS = _problem(
    "I010", "inline-flags", ERROR, "inline flags contradict the inode",
    "Inline data is for files and symlinks, inline entries for directories, and never both; an inode with one of them "
    "has no nodes.",
    "the wrong flag is taken away; that of attributes inside is set where they begin there",
    plans=(SetFieldEarly, SetField, ClearNodePointers),
)  # fmt: skip
EXTRA_SIZE = _problem(
    "I011", "extra-isize", ERROR, "i_extra_isize can't be",
    "It says where the addresses start; a wrong one shifts all of them. It is a multiple of 4 and at least 4, and the "
    "inodes of a volume agree.",
    "set to what the volume's other inodes have, when the addresses then fit their summaries",
    plans=(SetFieldEarly,),
)  # fmt: skip
INLINE_XATTR_SIZE = _problem(
    "I012", "inline-xattr-size", ERROR, "the room for inline attributes can't be",
    "i_inline_xattr_size is between 6 words, which the header of attributes takes, and what the inode can spare; "
    "smaller only where none are inside. The kernel refuses the inode.",
    "taken from where the attributes begin, or from most other inodes; where something else lies there, the flag of "
    "attributes goes",
    plans=(SetFieldEarly,),
)  # fmt: skip
EXTRA_FLAG = _problem(
    "I013", "extra-attr-flag", ERROR, "the flag of extra attributes is wrong",
    "An inode has it on a volume without the feature, and the kernel refuses the inode; or one lost it that has the "
    "attributes, and all its addresses are shifted.",
    "the flag is taken away, or set where i_extra_isize and the other inodes speak for it",
    plans=(SetFieldEarly,),
)  # fmt: skip
INODE_CHECKSUM = _problem(
    "I014", "inode-checksum", ERROR, "inode checksum is wrong",
    "The inode was changed behind the file system's back: some field of it is not what was written. What other checks "
    "say of this inode shows where.",
    "other fields are repaired first, then the checksum is computed anew",
    plans=(Reseal,),
)  # fmt: skip
INODE_EXTENT = _problem(
    "I015", "inode-extent", ERROR, "the cached extent of a file is not how its blocks lie",
    "Reads go by the extent and would return other blocks.",
    "the extent is cleared; it is only a cache",
    plans=(ClearExtent,),
)  # fmt: skip
DIR_DEPTH = _problem(
    "I016", "dir-depth", ERROR, "a directory has entries below its depth",
    "i_current_depth says how many hash levels are searched; entries in deeper ones are not found.",
    "set to the deepest level in use",
    plans=(SetField,),
)  # fmt: skip
DIR_LEVEL = _problem(
    "I017", "dir-level", ERROR, "i_dir_level does not fit the places of the entries",
    "One wrong byte moves every hash bucket, so that no entry is found; with the level given here all of them fit.",
    "set to the level that fits",
    plans=(SetField,),
)  # fmt: skip
NAME_LENGTH = _problem(
    "I018", "name-length", ERROR, "the inode's own name is longer than names can be",
    "The kernel refuses such an inode in recovery.",
    "taken from the directory entry",
    plans=(SetField,),
)  # fmt: skip
DIR_PARENT = _problem(
    "I019", "dir-parent", WARNING, "a directory remembers another parent",
    "i_pino of a directory is the directory that its entry is in; '..' of a remount goes there.",
    "set to the parent",
    plans=(SetFieldLast,),
)  # fmt: skip
FILE_PARENT = _problem(
    "I020", "file-parent", INFO, "a file remembers another name or parent",
    "i_pino and i_name are for recovery. They go stale by hard links and some renames.",
    "none needed",
    plans=(SetParentName,),
)  # fmt: skip
INODE_NSEC = _problem(
    "I021", "inode-nanoseconds", WARNING, "a time has more nanoseconds than a second",
    "Programs that check what stat() says stumble over it.",
    "limited to 999999999",
    plans=(SetField,),
)  # fmt: skip
INODE_TIME = _problem(
    "I022", "inode-time", INFO, "a time lies outside the years 1 to 9999",
    "Damage can make one, and so can a program: any time can be set.",
    "none needed",
)  # fmt: skip
INODE_FLAG = _problem(
    "I023", "inode-flag", WARNING, "an inode has a flag that does not go with its kind or the volume",
    "For instance casefold on a file, or compression on a volume without that feature. The kernel refuses some.",
    "the flag is taken away; that of compression is set where clusters are compressed",
    plans=(SetFieldEarly, SetField),
)  # fmt: skip
INODE_FLAG_UNKNOWN = _problem(
    "I024", "unknown-inode-flag", WARNING, "unknown inode flags",
    "Bits of i_flags that f2fs does not keep.",
    "the bits are taken away",
    plans=(SetField,),
)  # fmt: skip
ENCRYPT_CONTEXT = _problem(
    "I025", "encryption-context", ERROR, "marked as encrypted, without an encryption context",
    "Without its context nobody can read the file with any key; a plain file with this mark reads as an error.",
    "the mark is taken away where the feature or the context is missing, and set where only the mark is; what lost its "
    "context in an encrypted directory goes to lost+found by its number first, as there nothing opens what is plain; "
    "but not with -p",
    plans=(SetFieldEarly, SetFieldLast, ClearAdvise, TakeOut),
)  # fmt: skip
INODE_PROJECT = _problem(
    "I027", "inode-project", WARNING, "a project number on a volume without projects",
    "i_projid must be 0 without the feature project_quota.",
    "cleared",
    plans=(SetField,),
)  # fmt: skip
COMPRESS_PARAMETERS = _problem(
    "I028", "compress-parameters", ERROR, "compression parameters can't be",
    "Algorithms are 0 to 3, clusters have 2^2 to 2^8 blocks, levels are 3 to 16 of lz4 and 1 to 22 of zstd, and 0. The "
    "kernel refuses the inode; for its level Linux 7.3 does.",
    "size from how the clusters lie, algorithm from what they hold, with -p only where that is certain; the level is "
    "the default one, or the flag is taken away",
    plans=(SetFieldEarly, SetField, FindAlgorithm, SetLevel),
)  # fmt: skip
COMPRESS_BLOCKS = _problem(
    "I029", "compress-blocks", WARNING, "i_compr_blocks is not what compression saved",
    "It is given back when a file's saved blocks are released or reserved.",
    "counted anew",
    plans=(SetFieldLast,),
)  # fmt: skip
INODE_OWNER = _problem(
    "I030", "inode-owner", WARNING, "the owner is no user or group number",
    "4294967295 stands for nobody at all; chown can't set it.",
    "set to 0",
    plans=(SetField,),
)  # fmt: skip
SYMLINK_SIZE = _problem(
    "I031", "symlink-size", ERROR, "a symbolic link has an impossible length",
    "A target is 1 to a block's size less one byte long. The kernel answers ENOENT to an empty one.",
    "set to the length of the text",
    plans=(SetField,),
)  # fmt: skip
GC_FAILURES = _problem(
    "I032", "gc-failures", INFO, "a file keeps a count of failed moves",
    "i_gc_failures of a file that is not pinned; the kernel clears it by and by.",
    "none needed",
    plans=(SetField,),
)  # fmt: skip
SIZE_TOO_LARGE = _problem(
    "I034", "size-too-large", ERROR, "size is more than an inode can map",
    "The node tree of an inode reaches some 4 TiB.",
    "set to the end of the last block",
    plans=(SetField,),
)  # fmt: skip
SIZE_HUGE = _problem(
    "I035", "size-huge", INFO, "a file is larger than its volume",
    "Fine for a file with holes; also what a damaged i_size looks like.",
)  # fmt: skip
ALIAS = _problem(
    "I036", "device-alias", ERROR, "a file that stands for a device does not fit it",
    "Its extent and its size must be the whole of that device in the device table, or nothing where the device is "
    "released (Linux 7.3), and it has nothing else. It is pinned.",
    "extent taken from the device table, where one device comes into question by place, size or name; size and flag "
    "from the extent; a released one has neither extent nor size",
    plans=(SetAliasExtent, SetField, SetFieldEarly, ClearExtent),
)  # fmt: skip
INLINE_LOST = _problem(
    "I037", "inline-flag-lost", ERROR, "a file's content is taken for addresses",
    "Its addresses lead nowhere, and its size fits in the inode: the inline flag was lost.",
    "the flag is set again",
    plans=(SetField,),
)  # fmt: skip
INODE_EMPTY = _problem(
    "I038", "inode-free-or-blank", ERROR, "an inode is blank",
    "The block has the right footer and no content.",
    "an older copy is searched; else its entry is removed",
    plans=(ReplaceBlank,),
)  # fmt: skip
SPECIAL_BLOCKS = _problem(
    "I039", "special-with-blocks", WARNING, "a device, fifo or socket has data blocks",
    "Special files have a size of 0 and no node but their inode and attributes.",
    "the pointers are cleared",
    plans=(SetField, ClearNodePointers),
)  # fmt: skip
INODE_KIND = _problem(
    "I040", "inode-kind", ERROR, "all else speaks of another type than the inode",
    "Names, inline flags, size, blocks, '.' and the children that remember it say together what an inode is. Were its "
    "i_mode believed against them, a file's content would be dropped with a fifo's.",
    "i_mode takes the type that most of them allow",
    plans=(SetKind,),
)  # fmt: skip
BLOCKS_BEHIND_END = _problem(
    "I041", "blocks-behind-end", INFO,
    "a file keeps written blocks, or a bit, behind its end, and its size may well be right",
    "A kernel leaves blocks where a file was cut and made safe by fsync before a crash; a single bit between zeros, "
    "inside an inode, was hit, and is no content. No program reads them, but they take room, and come back should the "
    "file grow. Cutting the file to the size that it has (`truncate`) frees them. A file that ends too early has a "
    "damaged size instead: growing it shows the rest.",
)  # fmt: skip

ENCRYPT_POLICY = _problem(
    "I042", "encryption-policy", ERROR, "the encryption policy is not that of the directory or of what is in it",
    "In an encrypted directory the kernel opens nothing that is plain or has another policy, and nowhere what has a "
    "context of another length than its version.",
    "what is plain goes to lost+found, by its number, as its name there is ciphertext; but not with -p, nor where "
    "nothing but its directory is encrypted, whose mark may be what is wrong. The policy that all others above and in "
    "it have is put back where no other inode has this one, or two and more in a directory speak against it; what else "
    "differs goes to lost+found, unless several do and nothing speaks for the directory. The nonce stays: where it is "
    "wrong, too, no key decrypts the names or the content",
    plans=(SetPolicy, TakeOut),
)  # fmt: skip

# -- data blocks ------------------------------------------------------------------------------------------------------

BLOCK_OUTSIDE = _problem(
    "B001", "block-outside", ERROR, "a file's address lies outside the main area",
    "The block can't be read. An address inside the metadata would let writing to the file destroy the volume.",
    "the block is searched through the summaries; else the pointer is cleared, but not with -p",
    plans=(FindBlocks,),
)  # fmt: skip
BLOCK_TWICE = _problem(
    "B002", "block-twice", ERROR, "a block belongs to two files, or to a file twice",
    "Writing to one changes the other, and deleting one frees the block of the other.",
    "the one that summary, version and checksum speak for keeps it; the other gets a copy",
    plans=(CopyBlock,),
)  # fmt: skip
CLUSTER_PLACE = _problem(
    "B003", "cluster-place", ERROR, "the mark of a compressed cluster stands where it can't",
    "COMPRESS_ADDR is the first address of a cluster of a compressed file, and nowhere else.",
    "the block whose summary names this place comes back; else the address is cleared",
    plans=(ClearClusters,),
)  # fmt: skip
FILE_CUT_OFF = _problem(
    "B004", "file-cut-off", ERROR, "data of a file lies beyond the end of the image",
    "The image is shorter than the volume (S009). What is told here was in the part that is missing.",
    "none: the bytes are not there; with S009 repaired they read as zeros",
)  # fmt: skip

# -- directories ------------------------------------------------------------------------------------------------------

DENTRY_INODE = _problem(
    "D001", "dentry-inode", ERROR, "a directory entry leads to no inode",
    "The name can be listed, and whatever is done with it fails.",
    "the inode is searched by its footer, but not where the directory is an older copy and all inodes are there: then "
    "the file was deleted since; else the entry is removed",
    plans=(FindTarget,),
)  # fmt: skip
DENTRY_TYPE = _problem(
    "D002", "dentry-type", ERROR, "a directory entry has another type than its inode",
    "Programs that trust readdir() treat the file wrongly.",
    "taken from the inode",
    plans=(SetType,),
)  # fmt: skip
DENTRY_LENGTH = _problem(
    "D003", "dentry-length", ERROR, "a directory entry has no name, or one that is too long",
    "Names have 1 to 255 bytes.",
    "the name is taken from the inode; else the entry is removed",
    plans=(FindName,),
)  # fmt: skip
DENTRY_OVERRUN = _problem(
    "D004", "dentry-overrun", ERROR, "a directory entry runs past its block",
    "Its slots do not fit behind where it starts.",
    "the name is taken from the inode; else the entry is removed",
    plans=(FindName,),
)  # fmt: skip
DENTRY_HASH = _problem(
    "D005", "dentry-hash", ERROR, "the hash of a directory entry is not that of its name",
    "The entry can be listed but not looked up.",
    "computed anew, or the name taken from the inode where that has this hash",
    plans=(SetHash,),
)  # fmt: skip
DENTRY_PLACE = _problem(
    "D006", "dentry-place", ERROR, "a directory entry stands in the wrong bucket",
    "It is not found where its hash leads.",
    "the entry is moved",
    plans=(MoveEntry,),
)  # fmt: skip
DENTRY_NAME = _problem(
    "D007", "dentry-name", ERROR, "a name has a character that no name can have",
    "'/' or NUL: the file can't be reached, and careless tools write outside their directory.",
    "the name is taken from the inode, or changed",
    plans=(MendName,),
)  # fmt: skip
DENTRY_DUPLICATE = _problem(
    "D008", "dentry-duplicate", ERROR, "a name stands twice in a directory",
    "Only the first can be reached.",
    "the second is renamed, or removed where both lead to one inode",
    plans=(RenameTwin, DropDots),
)  # fmt: skip
DOTS_MISSING = _problem(
    "D009", "dots-missing", ERROR, "a directory lacks '.' or '..'",
    "The kernel refuses to remove it, and walks by it go astray.",
    "added",
    plans=(AddDots,),
)  # fmt: skip
DOTS_WRONG = _problem(
    "D010", "dots-wrong", ERROR, "'.' or '..' of a directory leads elsewhere",
    "'.' is the directory itself, '..' the one that its entry is in.",
    "set to where they must lead",
    plans=(SetDotTarget,),
)  # fmt: skip
DENTRY_SLOTS = _problem(
    "D011", "dentry-slots", ERROR, "slots of a name are not marked as used",
    "The next entry would overwrite the end of the name.",
    "the bits are set",
    plans=(MarkSlots,),
)  # fmt: skip
DIR_TWICE = _problem(
    "D012", "dir-twice", ERROR, "a directory has two names",
    "A directory has one parent. Two make cycles possible.",
    "the entry that the directory's own '..' contradicts is removed",
    plans=(RemoveEntry,),
)  # fmt: skip
DENTRY_HIDDEN = _problem(
    "D013", "dentry-hidden-file", ERROR, "a directory entry leads to a file of the file system itself",
    "The root, or a quota file, must have no name.",
    "the entry is removed",
    plans=(RemoveEntry,),
)  # fmt: skip
DIR_EMPTY_BLOCKS = _problem(
    "D014", "dir-without-blocks", ERROR, "a directory has no block",
    "Not even '.' and '..' are left: its entries were lost.",
    "rebuilt from the parent and name that its children remember",
    plans=(FillDirectory,),
)  # fmt: skip
DENTRY_OTHER = _problem(
    "D015", "dentry-other-inode", ERROR, "a directory entry leads to another inode than the one whose name it is",
    "An inode without a name remembers just this one in this directory, or has one link more than names; the entry "
    "leads to no inode, or to one that has more names than links.",
    "the entry leads to that inode again",
    plans=(SetTarget,),
)  # fmt: skip
DENTRY_NAME_LENGTH = _problem(
    "D016", "dentry-name-length", ERROR, "a name has not the length that its inode remembers",
    "The directory is encrypted and casefolded: the hash of a name is made with a key. With the key the name can't be "
    "decrypted, or is another.",
    "the name is that of its inode, which begins or goes on as the entry does",
    plans=(FindName,),
)  # fmt: skip

# -- extended attributes ----------------------------------------------------------------------------------------------

XATTR_MAGIC = _problem(
    "X001", "xattr-magic", ERROR, "the attribute area has a wrong magic",
    "The kernel takes the area for empty and writes over it.",
    "put back where entries follow",
    plans=(KeepSoundXattrs,),
)  # fmt: skip
XATTR_OVERRUN = _problem(
    "X002", "xattr-overrun", ERROR, "an attribute runs past its area",
    "The kernel refuses to list the attributes of the file.",
    "the attributes before it are kept",
    plans=(KeepSoundXattrs,),
)  # fmt: skip
XATTR_JUNK = _problem(
    "X003", "xattr-junk", WARNING, "bytes that are not zero follow the last attribute",
    "The next attribute that is set would be joined to them.",
    "cleared",
    plans=(KeepSoundXattrs,),
)  # fmt: skip
XATTR_INDEX = _problem(
    "X004", "xattr-index", WARNING, "an attribute of an unknown name space",
    "No program can read it.",
    "removed",
    plans=(KeepSoundXattrs,),
)  # fmt: skip
XATTR_NAME = _problem(
    "X005", "xattr-name", WARNING, "an attribute has no name, or has one where none belongs",
    "ACLs have no name of their own, all others have one.",
    "removed",
    plans=(KeepSoundXattrs,),
)  # fmt: skip
XATTR_ACL = _problem(
    "X006", "xattr-acl", ERROR, "an access control list is not one",
    "The kernel answers EINVAL, so that permission to use the file is refused.",
    "removed",
    plans=(KeepSoundXattrs,),
)  # fmt: skip
XATTR_DUPLICATE = _problem(
    "X007", "xattr-duplicate", WARNING, "an attribute stands twice",
    "Only the first is found.",
    "the second is removed",
    plans=(KeepSoundXattrs,),
)  # fmt: skip

# -- compression, verity ----------------------------------------------------------------------------------------------

CLUSTER = _problem(
    "Z001", "cluster-layout", ERROR, "a compressed cluster has no blocks, or as many as without compression",
    "A compressed cluster saves at least one block and needs at least one.",
    "blocks whose summaries name a place in it come back; else the cluster is cleared",
    plans=(ClearClusters,),
)  # fmt: skip
CLUSTER_CONTENT = _problem(
    "Z002", "cluster-content", ERROR, "a compressed cluster can't be decompressed",
    "Reading it fails. Looked at only with --data.",
    "with --data, where the length in its header or the algorithm of its file is to blame; what is gone of the content "
    "itself is nowhere else, and the other clusters can be read",
    plans=(RepairCluster,),
)  # fmt: skip
CLUSTER_MARK = _problem(
    "Z003", "cluster-mark", ERROR, "the mark of a compressed cluster is lost",
    "The kernel would read its blocks as they are, compressed, as content of the file.",
    "the mark is put back: what lies behind it can be decompressed; with -p only where a count of the inode agrees",
    plans=(SetMarks,),
)  # fmt: skip
VERITY = _problem(
    "V001", "verity-descriptor", ERROR, "a sealed file has no sound verity descriptor",
    "The kernel refuses to open the file.",
    "size or mark are set to what the descriptor says, where the content is what it sealed; else the mark is taken "
    "away where feature or descriptor are missing",
    plans=(SetFieldEarly, SetFieldLast, ClearAdvise),
)  # fmt: skip
VERITY_CONTENT = _problem(
    "V002", "verity-content", ERROR, "a sealed file is not what was sealed",
    "Reading it fails. Looked at only with --data.",
    "with --data the Merkle tree is computed anew, where the content leads to the sealed root hash; changed content is "
    "what the seal is there to tell, and taking that away would hide it",
    plans=(RebuildMerkleTree,),
)  # fmt: skip

# -- quota, orphans, recovery, zones, reachability, device ------------------------------------------------------------

QUOTA_FILE = _problem(
    "Q001", "quota-file", ERROR, "a quota file is not sound",
    "The kernel mounts without quota.",
    "the quota file is written anew",
    plans=(RewriteQuotaFile,),
)  # fmt: skip
QUOTA_USE = _problem(
    "Q002", "quota-use", WARNING, "a quota file counts another use than there is",
    "Space or number of files of a user, group or project. A mount, and what recovers files after a crash, only adds "
    "what it does itself: the difference stays.",
    "counted anew",
    plans=(CountQuota,),
)  # fmt: skip
ORPHAN_LIST = _problem(
    "O001", "orphan-list", ERROR, "the list of orphans is not sound",
    "Files that were open without a name at the checkpoint. Counts that do not fit make readers run past the block.",
    "the list is written anew",
    plans=(ComputeAnew,),
)  # fmt: skip
ORPHAN_INODE = _problem(
    "O002", "orphan-inode", ERROR, "an orphan is no inode",
    "The next mount would fail on it.",
    "the entry is dropped",
    plans=(DropOrphan,),
)  # fmt: skip
ORPHAN_LINKED = _problem(
    "O003", "orphan-with-name", ERROR, "an orphan has a name",
    "The next mount would delete a file that is still in a directory.",
    "the entry is dropped",
    plans=(DropOrphan,),
)  # fmt: skip
FSYNC_DATA = _problem(
    "R001", "fsync-data", INFO, "files were fsync'ed after the checkpoint",
    "The next mount by the kernel brings them back.",
    "none needed; a repair brings them back before anything else",
)  # fmt: skip
FSYNC_CHAIN = _problem(
    "R002", "fsync-chain", WARNING, "the chain of fsync'ed nodes can't be followed to its end",
    "It leads back into itself, out of the main area, or past the node behind; recovery would not end, fail, or miss"
    " what comes behind.",
    "it goes on with the block behind, where that was written after it; else it is cut there",
    plans=(CutChain, LinkChain),
)  # fmt: skip
FSYNC_REFUSED = _problem(
    "R003", "fsync-refused", ERROR, "what was fsync'ed after the checkpoint can't be brought back",
    "One of the nodes can't be right; the next mount would fail on it, and nothing would come back.  It is looked for"
    " where all else is sound.",
    "all else that was fsync'ed comes back; this file as it was at the fsync before, or at the checkpoint; not with -p",
    plans=(LeaveOut,),
)  # fmt: skip
FSYNC_BEHIND = _problem(
    "R004", "fsync-behind", WARNING, "files were fsync'ed behind the end of the chain, where no mount comes",
    "The chain ends at a block that was not written after the checkpoint, and nodes lie behind it that were.  That"
    " block was hit; or the power was cut while several were on their way to a device that does not keep to their"
    " order, and then no fsync that had returned lies behind.",
    "the chain goes on behind it with files of which no node can have been in that block; of the others, which are"
    " named, nothing of what lies behind comes back; -p leaves the volume alone where there are such",
    plans=(PassGap,),
)  # fmt: skip
FSYNC_DEFECT = _problem(
    "R005", "fsync-defect", WARNING, "what was fsync'ed after the checkpoint comes back with a defect",
    "The next mount brings it back, and then this is wrong.  It is looked for where all else is sound.",
    "none of its own: it comes back, and is repaired as if it had been there before",
)  # fmt: skip
FSYNC_CONTESTED = _problem(
    "R006", "fsync-contested", INFO, "a block was fsync'ed in two files",
    "The later one has it once both come back, and the other a hole there, as the kernel does it.  A range was moved"
    " from one to the other between the two; or an address was hit, and then it may be the wrong one that has it.",
    "none: which of the two is right is not to be known",
)  # fmt: skip
ZONE_POINTER = _problem(
    "W001", "zone-write-pointer", ERROR, "a zone's write pointer is not where the log is",
    "On a zoned device the next write must go to the write pointer.",
    "a new zone is opened for the log; valid blocks beyond a pointer can't be put back in place",
    plans=(MoveLog, MoveLogs),
)  # fmt: skip
UNREACHABLE = _problem(
    "U001", "unreachable-inode", ERROR, "an inode has no name",
    "No directory entry leads to it, and it is no orphan: an entry was lost.",
    "reconnected under the name and parent that it remembers, else in lost+found",
    plans=(Reconnect,),
)  # fmt: skip
UNREACHABLE_DIR = _problem(
    "U002", "unreachable-directory", ERROR, "a directory has no name",
    "No directory entry leads to it; all that is below it is cut off.",
    "reconnected under the name and parent that it remembers, else in lost+found",
    plans=(Reconnect,),
)  # fmt: skip
UNREFERENCED_NODE = _problem(
    "U003", "unreferenced-node", ERROR, "a node is pointed to by nothing",
    "A piece of a file whose pointer was lost.",
    "put back in its place by its footer; else freed",
    plans=(ReattachNode,),
)  # fmt: skip
ROOT_LOST = _problem(
    "U004", "root-lost", FATAL, "the root directory is lost",
    "Inode 3 is missing or is no directory.",
    "an older copy is searched; else rebuilt from the inodes that name it as their parent",
    plans=(RebuildRoot,),
)  # fmt: skip
CUT_OFF_BELOW = _problem(
    "U005", "below-unreachable", INFO, "below a directory that has no name",
    "It comes back together with that directory.",
    plans=(Reconnect,),
)  # fmt: skip
UNREADABLE = _problem(
    "H001", "unreadable-block", ERROR, "a block can't be read",
    "The device answered with an error; here the block counts as zeros.",
    "what it held is rebuilt from elsewhere as if it were zeros, and the block is written, so that the device can put "
    "it in another place; not with -p, and with -y only beside --force",
    plans=(RewriteBlock,),
)  # fmt: skip
