"""What must be there after a power cut: the tree of the checkpoint, and of every file what was fsync'ed since."""

from __future__ import annotations

from dataclasses import dataclass, replace

from f2tools.f2fs.volume.volume import Volume
from tests.f2fs.write.model import BLOCK, Model, Node
from tests.f2fs.write.volumes import differences, model_of


@dataclass(frozen=True)
class Step:
    """What one call left: the model, how many events were recorded then, the engine's checkpoint version."""

    kind: str
    model: Model
    events: int
    version: int
    fsynced: int | None = None
    datasync: bool = False  # by fdatasync, which may leave times as they were


def assert_promises_kept(volume: Volume, steps: list[Step], version: int, count: int, context: str) -> Model:
    """What a recovered volume holds, which is what it may hold after a power cut at event `count`."""
    found = model_of(volume)
    said = [
        differences(found, one.model, lambda ino, number, since=one.since: versions(steps[since(ino) :], ino, number))
        for one in expectations(steps, version, count)
    ]
    assert any(not one for one in said), f"{context}, checkpoint {version}:\n" + "\n".join(min(said, key=len)[:30])
    return found


def versions(steps: list[Step], ino: int, number: int) -> list[bytes]:
    """All that a block of a file held in these steps: an update in place may come before its fsync is done."""
    models = [step.model for step in steps]
    return [model.nodes[ino].blocks.get(number, bytes(BLOCK)) for model in models if ino in model.nodes]


@dataclass
class Expectation:
    """A tree that may be found, and which step last made each file safe; what was overwritten before is gone."""

    model: Model
    base: int  # the step of the checkpoint, or the one before where it was made in the midst of one
    synced: dict[int, int]

    def since(self, ino: int) -> int:
        """The step that made a file safe as it is in the model."""
        return self.synced.get(ino, self.base)


def expectations(steps: list[Step], version: int, count: int) -> list[Expectation]:
    """The trees that may be found after a power cut: that of the checkpoint, and every fsync done since."""
    made = next(i for i, step in enumerate(steps) if step.version >= version)
    bases = [made] if made == 0 or steps[made].kind in ("sync", "fsync") else [made - 1, made]
    found: list[Expectation] = []
    for base in bases:
        later = [index for index in range(base + 1, len(steps)) if steps[index].fsynced]
        must = [index for index in later if steps[index].events <= count]
        for more in ([], [index for index in later if steps[index].events > count][:1]):
            one = Expectation(named_only(steps[base].model), bases[0], {})
            for index in must + more:
                recovered(one.model, steps[index])
                one.synced[steps[index].fsynced or 0] = index
            found.append(one)
    return found


def named_only(model: Model) -> Model:
    """Without what has no name: nobody holds it any more."""
    result = model.copy()
    result.held = set()
    result.nodes = {ino: node for ino, node in model.nodes.items() if node.links}
    return result


def recovered(model: Model, step: Step) -> None:
    """Let a model have what roll-forward recovery makes of an fsync."""
    ino = step.fsynced
    assert ino is not None
    node = step.model.nodes.get(ino)
    if node is not None and node.is_dir and ino in model.nodes:
        names_are_safe(model, ino, node)
    if node is None or not node.is_file or not node.links:
        return
    if step.datasync:
        node = replace(node, atime_ns=None, mtime_ns=None)
    if ino in model.nodes:
        model.nodes[ino] = replace(node, links=model.nodes[ino].links)
        return
    model.nodes[ino] = node
    for parent, name in step.model.names_of(ino):
        if parent not in model.nodes:
            continue
        taken = model.key(model.nodes[parent], name)
        if taken is not None:
            model.unlink(parent, taken)
        children = dict(model.nodes[parent].children)
        children[name] = ino
        model.change(parent, children=children, mtime_ns=None)


def names_are_safe(model: Model, directory: int, node: Node) -> None:
    """Let a directory have the names that it had when it was synced, as far as what they lead to is there."""
    for name in set(model.nodes[directory].children) - set(node.children):
        if model.nodes[model.nodes[directory].children[name]].is_file:
            model.unlink(directory, name)
    there = {name: child for name, child in node.children.items() if child in model.nodes}
    model.change(directory, children={**model.nodes[directory].children, **there}, mtime_ns=None)
