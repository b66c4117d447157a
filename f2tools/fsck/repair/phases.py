"""Which repair serves which plan, and when: the table that `rounds` works by, and that docs/problems.md shows.

The order of the phases is the order of trust: first what misleads everything after it; then what was lost is looked
for; then fields are corrected; only what can't be found by then is given up, and counts come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar

from f2tools.fsck import plans, problems
from f2tools.fsck.findings import Finding, Severity
from f2tools.fsck.plans import RepairPlan
from f2tools.fsck.repair import algorithms, chain, contents, correct, dentries, find, give_up, quota, strays, superblock
from f2tools.fsck.repair.work import Work

P = TypeVar("P", bound=RepairPlan)
Handler = Callable[[Work, Finding, P], bool]


class Phase(Enum):
    """When a repair is done.  `group` is what a user is asked about; phases of one group are one question."""

    SETTLE = ("", "what the check had to assume of superblock and checkpoint becomes so, before anything else")
    FORMAT = ("find", "features that its inodes show are those of the volume, before they are read by it")
    END_CHAIN = ("find", "the way to what was fsync'ed ends before it goes astray; then what was fsync'ed comes back")
    UNSEAL = ("correct", "a wrong byte is told by a checksum, unless many are wrong at once; in the first round only")
    EARLY = ("correct", "what misleads all that comes after is set by the majority of its witnesses")
    FIND = ("find", "what was lost is looked for")
    PART = ("correct", "what two have is one's alone, before anything in it is corrected by the rules of the other")
    CORRECT = ("correct", "fields are set to what the rest of the volume says")
    GIVE_UP = ("give up", "what is not to be found is made anew, or what leads there goes; not with -p")
    TABLES = (
        "tables",
        "SIT, summaries, open logs and checkpoint are computed from who owns which block; this and what comes after"
        " wait as long as something that was found may not be done",
    )
    NAMES = ("names", "names are put where they belong, through the engine, on a volume that is consistent by then")
    COUNT = ("count", "counts, and checksums of inodes")
    QUOTA = ("quota", "quota files are written anew")
    LEAVE_OUT = ("give up", "what was fsync'ed comes back without the nodes that can't be right; not with -p")

    def __init__(self, group: str, text: str) -> None:
        self.group = group
        self.text = text


LEFT_BY_P = {  # code -> why a careful repair does nothing at all
    problems.SB_CUT_OFF.code: "what is missing may still be found; zeros would hide that it is",
    problems.CP_NEWER.code: "to write to the volume gives the newer state up",
    problems.CP_TURN.code: "which of two states is the newer one, -y decides",
}
REPAIRS: dict[type[RepairPlan], dict[Phase, Handler[Any] | None]] = {}


def _serve(plan: type[P], *together: Phase, **each: Handler[P]) -> None:
    """Enter a plan: what is done `together` with others in a phase, and by which function in `each` other phase."""
    assert plan not in REPAIRS, plan
    REPAIRS[plan] = {**{Phase[name.upper()]: do for name, do in each.items()}, **dict.fromkeys(together)}


_serve(plans.Lengthen, Phase.SETTLE)
_serve(plans.SetPayload, Phase.SETTLE)
_serve(plans.PutTogetherPack, Phase.SETTLE)
_serve(plans.CutChain, end_chain=chain.cut_chain)
_serve(plans.LinkChain, end_chain=chain.link_chain)
_serve(plans.PassGap, end_chain=chain.pass_gap)
_serve(plans.Reseal, unseal=correct.restore_byte, count=correct.reseal)
_serve(plans.SetFieldEarly, early=correct.set_inode_field)
_serve(plans.SetKind, early=correct.inode_mode)
_serve(plans.SetMarks, early=correct.cluster_marks)
_serve(plans.SetTarget, early=dentries.own_target)
_serve(plans.TakeNewer, early=find.newer_node)

_serve(plans.CopySuperblock, find=superblock.copy_superblock)
_serve(plans.SetFeature, format=superblock.set_feature)
_serve(plans.SetEncoding, find=superblock.set_encoding)
_serve(plans.ClearQuotaIno, find=superblock.clear_quota_ino)
_serve(plans.SetNatAddress, find=find.nat_entry)
_serve(plans.SetNatIno, find=find.nat_entry)
_serve(plans.SetFooterOwner, find=find.footer)
_serve(plans.FindNatBlock, find=find.find_nat_block)
_serve(plans.FindNode, find=find.find_node, give_up=give_up.clear_nat)
_serve(plans.JudgeFooter, find=find.stray_node, give_up=give_up.clear_nat)
_serve(plans.FindChild, find=find.find_child, give_up=give_up.clear_pointer)
_serve(plans.FindTarget, find=find.find_node, give_up=give_up.missing_inode)
_serve(plans.CountNodes, Phase.TABLES, find=find.lost_nodes)
_serve(plans.JudgeLeaked, Phase.TABLES, find=find.blocks_of_places)

_serve(plans.SetFooter, correct=find.footer)
_serve(plans.SetField, correct=correct.set_inode_field)
_serve(plans.ClearFirstAddress, correct=correct.clear_first_address)
_serve(plans.ClearExtent, correct=correct.clear_extent)
_serve(plans.ClearNodePointers, correct=correct.clear_node_pointers)
_serve(plans.FindKind, correct=correct.inode_mode)
_serve(plans.SetBlocks, early=strays.clear_strays, correct=correct.lost_pointers, count=correct.set_inode_field)
_serve(plans.KeepSoundXattrs, correct=correct.xattrs)
_serve(plans.SetPolicy, correct=correct.encryption_policy)
_serve(plans.FindBlocks, correct=correct.data_pointers)
_serve(plans.CopyBlock, part=correct.shared_block)
_serve(plans.SetAliasExtent, correct=contents.alias_extent)
_serve(plans.FindAlgorithm, correct=algorithms.find_algorithm)
_serve(plans.SetLevel, correct=algorithms.set_level)
_serve(plans.RepairCluster, correct=contents.cluster)
_serve(plans.RebuildMerkleTree, correct=contents.seal)
_serve(plans.FindName, correct=dentries.dentry_name, give_up=dentries.remove_dentry)
_serve(plans.MendName, correct=dentries.dentry_name)
_serve(plans.SetHash, correct=dentries.dentry_name)
_serve(plans.MarkSlots, correct=dentries.dentry_bits)
_serve(plans.SetType, correct=dentries.dentry_type)
_serve(plans.SetDotTarget, correct=dentries.dentry_target)
_serve(plans.AddDots, correct=dentries.add_dots)
_serve(plans.DropDots, correct=dentries.drop_dots)
_serve(plans.FillDirectory, correct=dentries.add_dots)

_serve(plans.RebuildRoot, give_up=give_up.root)
_serve(plans.ReplaceBlank, give_up=give_up.blank_inode)
_serve(plans.ReattachNode, give_up=give_up.reattach)
_serve(plans.ClearClusters, give_up=give_up.clear_clusters)
_serve(plans.RemoveEntry, give_up=dentries.remove_dentry)
_serve(plans.TakeOut, give_up=dentries.take_out)
_serve(plans.Unmix, Phase.TABLES, give_up=give_up.unmix)
_serve(plans.RewriteBlock, give_up=contents.rewrite)
_serve(plans.RewriteQuotaFile, Phase.QUOTA, give_up=quota.lost_quota)

_serve(plans.ComputeAnew, Phase.TABLES)
_serve(plans.DropOrphan, Phase.TABLES)
_serve(plans.MoveLog, Phase.TABLES)
_serve(plans.MoveLogs, Phase.TABLES)
_serve(plans.RewritePack, Phase.TABLES)
_serve(plans.RewriteSummary, Phase.TABLES)
_serve(plans.Reconnect, Phase.NAMES)
_serve(plans.MoveEntry, Phase.NAMES)
_serve(plans.RenameTwin, Phase.NAMES)
_serve(plans.SetLinks, Phase.NAMES, give_up=dentries.drop_older_names, count=correct.set_inode_field)
_serve(plans.SetFieldLast, count=correct.set_inode_field)
_serve(plans.ClearAdvise, count=correct.inode_advise)
_serve(plans.CountQuota, Phase.QUOTA)
_serve(plans.LeaveOut, Phase.LEAVE_OUT)


def serves(phase: Phase, finding: Finding) -> bool:
    """Whether a phase does anything about a finding; what is only noted (`info`) stays as it is."""
    return finding.repair is not None and phase in phases_of(type(finding.repair), finding.severity)


def phases_of(plan: type[RepairPlan], severity: Severity) -> Iterator[Phase]:
    """The phases that serve a plan of a finding of this severity, in their order."""
    if severity >= Severity.WARNING:
        served = REPAIRS.get(plan, {})
        yield from (phase for phase in Phase if phase in served)


def repair(phase: Phase, work: Work, finding: Finding) -> bool:
    """Do what a phase does about one finding that it serves; whether that changed anything."""
    plan = finding.repair
    do = None if plan is None else REPAIRS[type(plan)][phase]
    return do is not None and do(work, finding, plan)
