"""Write amplification in closed form, for writes that reach every page alike, and for two temperatures.

`op` is (T-U)/U and alpha T/U, with T the pages of the blocks that hold data, without the reserve that is kept empty,
and U the logical pages.  FIFO and greedy: Desnoyers, "Analytic models of SSD write performance" (2014); discards:
Frankie and others, "Analysis of trim commands on overprovisioning and write amplification" (2012).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import expm1

STEPS = 200  # of bisection; doubles have 53 bits, and the bounds lie a factor of 1e6 apart


def fifo(op: float) -> float:
    """FIFO cleaning; also the limit of greedy for very large erase blocks."""
    alpha = 1 + op
    return _root(lambda a: a * -expm1(-alpha / a) - 1, 1.0, 1e6)


def greedy(op: float, pages_per_block: int) -> float:
    """Greedy cleaning on a device of many blocks.

    Blocks have between j and b valid pages, and how many have how many follows from their rates of change; j and the
    share q are where the pages of all blocks add up to the logical ones.
    """
    b, load = pages_per_block, 1 / (1 + op)
    sums = [0.0]
    for k in range(1, b + 1):
        sums.append(sums[-1] + 1 / k)

    def excess(j: int, q: float) -> float:
        return sums[b] - sums[j + 1] + (1 - q) / (j + 1) - (b - j - q) / (load * b)

    # for q from 0 to 1 the excess goes on where it ends for j+1; it falls to zero once
    for j in range(b - 1, -1, -1):
        low, high = excess(j, 0.0), excess(j, 1.0)
        if min(low, high) <= 0 <= max(low, high) and b - j - 1 > 0:
            q = low / (low - high) if low != high else 0.0
            return b / (b - j - q)
    return 1.0


def random(op: float) -> float:
    """A victim by chance."""
    return (1 + op) / op


def discards(op: float, share: float, cleaning: Callable[[float], float] = fifo) -> float:
    """With a share of the operations discards of pages that are in use: what is not in use is over-provisioning too."""
    if share >= 0.5:  # in the end next to nothing is in use, so that nothing has to be moved
        return 1.0
    in_use = (1 - 2 * share) / (1 - share)
    return cleaning((1 + op) / in_use - 1)


def mixed(op: float, writes: Sequence[float], pages: Sequence[float]) -> float:
    """FIFO with classes of pages that are written together: shares of the writes, and of the pages."""
    alpha = 1 + op

    def excess(a: float) -> float:
        moved = sum(w / expm1(min(w * alpha / (p * a), 700.0)) for w, p in zip(writes, pages, strict=True))
        return a - 1 - moved

    return _root(excess, 1.0, 1e6)


def apart(op: float, writes: Sequence[float], pages: Sequence[float]) -> float:
    """FIFO with a log for each of two classes, and the over-provisioning divided as it is best."""

    def waf(first: float) -> float:
        ops = (op * first / pages[0], op * (1 - first) / pages[1])
        return sum(w * fifo(each) for w, each in zip(writes, ops, strict=True))

    low, high = 1e-6, 1 - 1e-6
    for _ in range(STEPS):  # the function has one minimum
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if waf(left) < waf(right):
            high = right
        else:
            low = left
    return waf(low)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function is zero."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return low


def expected(policy: str, op: float, pages_per_block: int, share: float = 0.0) -> float | None:
    """The theory's value for uniform writes under this policy; None where it has none."""
    known: dict[str, Callable[[float], float]] = {
        "greedy": lambda o: greedy(o, pages_per_block), "fifo": fifo, "random": random,
    }  # fmt: skip
    if policy not in known or op <= 0:
        return None
    return discards(op, share, known[policy]) if share else known[policy](op)
