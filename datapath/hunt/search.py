# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which cases are tried next: some at random, the others changes of the worst so far.

A case differs from the default in a few dimensions only, so that its score tells something of
them.  A case whose fault is known already (datapath.hunt.findings) counts less: the search goes
where there may be something new.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from datapath.hunt.space import Case, Dimension, by_name
from datapath.hunt.values import Value

GENERATION = 16
"""Cases that are tried together; the findings depend on it, not on the number of processes."""

_FRESH = 0.4
"""Share of a generation that is random."""
_ELITE = 24
_DIMENSIONS = 3
"""That a random case has on average."""
_CROSSED = 0.3
"""Share of children that take something of a second parent."""


class Search:
    """A genetic search; the same seed and the same scores give the same cases."""

    def __init__(self, space: Sequence[Dimension], seed: int) -> None:
        self.space = {dimension.name: dimension for dimension in space}
        self.rng = random.Random(seed)
        self.elite: list[tuple[float, dict[str, Value]]] = []
        self.tried: set[tuple[tuple[str, Value], ...]] = set()

    def propose(self) -> list[Case]:
        """The next generation: cases that were not tried before; the first one is the default."""
        found: list[Case] = []
        if not self.tried:
            found.append({})
            self.tried.add(())
        misses = 0
        while len(found) < GENERATION and misses < 10 * GENERATION:
            case = self._case()
            key = tuple(sorted(case.items()))
            if key in self.tried:
                misses += 1
                continue
            self.tried.add(key)
            found.append(case)
        return found

    def learn(self, case: Case, fitness: float) -> None:
        """Tell the score of a case; above 1 is bad, and known causes count less."""
        self.elite.append((fitness, dict(case)))
        self.elite.sort(key=lambda entry: -entry[0])
        del self.elite[_ELITE:]

    def _case(self) -> dict[str, Value]:
        if not self.elite or self.rng.random() < _FRESH:
            return self._random()
        child = dict(self._parent())
        if self.rng.random() < _CROSSED:
            other = self._parent()
            child |= {name: value for name, value in other.items() if self.rng.random() < 0.5}
        return self._mutated(child)

    def _random(self) -> dict[str, Value]:
        share = min(_DIMENSIONS / len(self.space), 0.5)
        drawn = {
            name: dimension.values.draw(self.rng)
            for name, dimension in self.space.items()
            if self.rng.random() < share
        }
        return _without_defaults(drawn)

    def _parent(self) -> dict[str, Value]:
        """The worse of two cases of the elite."""
        return max((self.rng.choice(self.elite) for _ in range(2)), key=lambda entry: entry[0])[1]

    def _mutated(self, case: dict[str, Value]) -> dict[str, Value]:
        """With one dimension changed, added or taken away."""
        name = self.rng.choice([*case, *self.space])
        values = self.space[name].values
        if name not in case:
            case[name] = values.draw(self.rng)
        elif self.rng.random() < 0.3:
            del case[name]
        else:
            case[name] = values.mutate(case[name], self.rng)
        return _without_defaults(case)


def _without_defaults(case: Case) -> dict[str, Value]:
    return {name: value for name, value in case.items() if value != by_name(name).default}
