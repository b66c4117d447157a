"""Opening for writing: where the log goes on, and how what a power cut left is put in order."""

from __future__ import annotations

from f2tools.dffs.checkpoints import Checkpoints
from f2tools.dffs.derive import Walk
from f2tools.dffs.layout import SPACE
from f2tools.dffs.state import SEQ_STEP, behind_the_end
from f2tools.errors import Corrupt, DeviceError, Where


def go_on(engine: Checkpoints) -> None:
    """Let the log go on, but not on a page that a cut may have begun to write."""
    log, chip = engine.log, engine.log.chip
    if chip.next_page(log.block) != log.next:
        log.next = engine.shape.pages_per_block
    if chip.next_page(log.cp_block) != log.cp_page + 1:
        log.cp_page = engine.shape.pages_per_block


def recover(engine: Checkpoints) -> None:
    """After a power cut: count what can be reached as in use, go on elsewhere with the log, and write a checkpoint."""

    def tell(code: str, detail: str, ino: int | None, page: int | None) -> None:
        raise Corrupt(Where(ino=ino), f"{code}: {detail}; `f2tools dffs fsck` says more")

    lost = behind_the_end(engine.pages, engine.state, engine.rolled)
    if lost is not None:
        tell("DFF005", f"the log can't be followed to page {lost}, which was committed", None, lost)
    reached = Walk(engine, tell).run()
    rolled, log, space = engine.rolled, engine.log, engine.space
    named = [page for page in (*engine.state.table, *engine.state.space) if 0 < page < engine.shape.pages]
    try:
        space.load([engine.pages.read(page, (SPACE,))[0] for page in engine.state.space if page], [])
    except (Corrupt, DeviceError, ValueError):
        space.erases[:] = 0
    space.live[:] = reached.live
    space.live[named] = True
    space.count_anew()
    for block in rolled.blocks:
        space.wear(block)
    engine.forget_log(reached.ids, max(rolled.last_ino, reached.last_ino) + 1)
    log.seq = rolled.seq + SEQ_STEP
    # what the log went through since the checkpoint has to stay until there is a new one
    log.chain = space.chain(space.free([log.block, *rolled.blocks]))
    log.next = log.cp_page = engine.shape.pages_per_block
    engine.checkpoint()
