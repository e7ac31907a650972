# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which algorithm a collective takes, by what each one took on the network at hand.

measure() has every algorithm run at a few sizes.  Between two of them an algorithm takes
alpha + beta * size: the alpha of its steps, and the beta of its bytes on the links that it uses.
Both are of the algorithm as a whole, so they hold what one number for all links would not: a link
that several ranks share, say, or how many slices are under way beside each other.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datapath.collectives.loading import registry
from datapath.collectives.make import make
from datapath.collectives.plan import COLLECTIVES, Plan
from datapath.collectives.trace import Algorithm
from datapath.errors import LocalError
from datapath.spelling import did_you_mean

SIZES = (1 << 10, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 23)
"""Sizes that are measured, bytes."""


@dataclass(frozen=True)
class Fit:
    """The time that an algorithm takes, by size.

    sizes, times_ns: what was measured, by size; at least one.
    """

    algorithm: str
    sizes: tuple[int, ...]
    times_ns: tuple[float, ...]

    def piece(self, size: int) -> tuple[float, float]:
        """(alpha in ns, beta in ns per byte) at a size; beyond the ends, those of the end."""
        if len(self.sizes) == 1:
            return self.times_ns[0], 0.0
        low = min(max(bisect.bisect_right(self.sizes, size) - 1, 0), len(self.sizes) - 2)
        near, far = self.sizes[low : low + 2]
        beta = (self.times_ns[low + 1] - self.times_ns[low]) / (far - near)
        return self.times_ns[low] - beta * near, beta

    def time_ns(self, size: int) -> float:
        alpha, beta = self.piece(size)
        return alpha + beta * size


@dataclass(frozen=True)
class Chooser:
    """The algorithms of a collective among some ranks."""

    collective: str
    fits: tuple[Fit, ...]

    def best(self, size: int) -> Fit:
        """The one that takes least at `size` bytes of each rank's data; ties go by name."""
        return min(self.fits, key=lambda fit: (fit.time_ns(size), fit.algorithm))

    def words(self, size: int) -> str:
        """Such as "ring: 12.3 ms expected; halving_doubling 14.1 ms"; one alone has no times."""
        first, *others = sorted(self.fits, key=lambda fit: (fit.time_ns(size), fit.algorithm))
        if not others:
            return first.algorithm
        told = ", ".join(f"{fit.algorithm} {_ms(fit.time_ns(size))}" for fit in others)
        return f"{first.algorithm}: {_ms(first.time_ns(size))} expected; {told}"


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3g} ms"


def around(size: int) -> tuple[int, ...]:
    """The two of SIZES between which a size lies, or that are next to it."""
    low = min(max(bisect.bisect_right(SIZES, size) - 1, 0), len(SIZES) - 2)
    return SIZES[low : low + 2]


@dataclass(frozen=True)
class Terms:
    """Arguments of make() that all plans of a measurement share, and the root."""

    item_bytes: int = 4
    root: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, algorithm: Algorithm, ranks: int, size: int) -> Plan:
        """Not checked yet; the size is rounded up to what the ranks can divide."""
        unit = self.item_bytes * ranks
        rounded = -(-size // unit) * unit
        options = {"item_bytes": self.item_bytes, "root": self.root, **self.more}
        return make(algorithm, ranks, rounded, **options)


def candidates(collective: str, ranks: int, terms: Terms | None = None) -> list[Algorithm]:
    """The toolkit's algorithms that have a plan for so many ranks; LocalError: none has."""
    if collective not in COLLECTIVES:
        raise LocalError(
            f"there is no collective {collective!r}",
            hint=did_you_mean(collective, list(COLLECTIVES), "there are"),
        )
    found, refused = [], None
    for algorithm in registry().values():
        if algorithm.collective != collective:
            continue
        try:
            (terms or Terms()).plan(algorithm, ranks, SIZES[0])
        except LocalError as error:  # not for this number of ranks
            refused = error
            continue
        found.append(algorithm)
    if refused is not None and not found:
        raise refused
    return found


def measure(
    collective: str,
    ranks: int,
    time_of: Callable[[Plan], float],
    *,
    sizes: Sequence[int] = SIZES,
    terms: Terms | None = None,
    patience_ns: float = float("inf"),
) -> Chooser:
    """Have each algorithm run at each size.

    Args:
        time_of: runs a plan, which is not checked yet, and says how many ns one collective took.
            Live, all ranks have to get the same number, and so make the same choice.
        patience_ns: no larger size is tried once the algorithms together took so long at one.
    """
    terms = terms or Terms()
    algorithms = candidates(collective, ranks, terms)
    if len(algorithms) == 1 or ranks == 1:
        return Chooser(collective, (Fit(algorithms[0].name, (0,), (0.0,)),))
    times: dict[str, list[float]] = {algorithm.name: [] for algorithm in algorithms}
    tried = []
    for size in sorted(sizes):
        for algorithm in algorithms:
            times[algorithm.name].append(time_of(terms.plan(algorithm, ranks, size)))
        tried.append(size)
        if sum(took[-1] for took in times.values()) > patience_ns:
            break
    fits = [Fit(name, tuple(tried), tuple(took)) for name, took in times.items()]
    return Chooser(collective, tuple(fits))
