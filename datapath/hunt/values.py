# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Values that a dimension may have: how they are drawn, mutated and made milder.

A value is a number, a text, or a tuple of these (Both).  All randomness comes from the
generator that is passed in.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""float, int, str, or a tuple of these."""

_DIGITS = 2
_STEP = 0.7
"""Standard deviation of a mutation, of the logarithm of a number."""
_REDRAW = 0.2
"""Share of mutations that draw a number anew."""


@dataclass(frozen=True)
class Log:
    """A number from low to high, evenly drawn by its logarithm, with two digits.

    mild: the harmless end, or a harmless number in between; None: low.
    """

    low: float
    high: float
    mild: float | None = None

    @property
    def mildest(self) -> float:
        return self.low if self.mild is None else self.mild

    def draw(self, rng: random.Random) -> float:
        return self._rounded(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))

    def mutate(self, value: Any, rng: random.Random) -> float:
        if rng.random() < _REDRAW:
            return self.draw(rng)
        return self._rounded(value * math.exp(rng.gauss(0, _STEP)))

    def between(self, one: Any, other: Any) -> float | None:
        """The geometric mean; None when there is nothing between the two."""
        middle = self._rounded(math.sqrt(one * other))
        return None if middle in (one, other) else middle

    def _rounded(self, value: float) -> float:
        return float(f"{min(max(value, self.low), self.high):.{_DIGITS}g}")


@dataclass(frozen=True)
class Whole(Log):
    """The same, a whole number."""

    def _rounded(self, value: float) -> int:
        return int(min(max(round(value), self.low), self.high))


@dataclass(frozen=True)
class Choice:
    """One of several, none milder than another."""

    options: tuple[Any, ...]

    def draw(self, rng: random.Random) -> Any:
        return rng.choice(self.options)

    def mutate(self, value: Any, rng: random.Random) -> Any:
        return rng.choice(self.options)


@dataclass(frozen=True)
class Both:
    """A tuple, with a value of each part."""

    parts: tuple[Log | Choice, ...]

    def draw(self, rng: random.Random) -> tuple[Any, ...]:
        return tuple(part.draw(rng) for part in self.parts)

    def mutate(self, value: Any, rng: random.Random) -> tuple[Any, ...]:
        at = rng.randrange(len(self.parts))
        return (*value[:at], self.parts[at].mutate(value[at], rng), *value[at + 1 :])


Values: TypeAlias = Log | Choice | Both


def parts_of(values: Values) -> tuple[Log | Choice, ...]:
    """The parts of a tuple; another value is its only part."""
    return values.parts if isinstance(values, Both) else (values,)


def part(value: Value, at: int) -> Any:
    """Part number `at` of a value."""
    return value[at] if isinstance(value, tuple) else value


def replaced(value: Value, at: int, new: Any) -> Any:
    """The value with another part number `at`."""
    if not isinstance(value, tuple):
        return new
    return (*value[:at], new, *value[at + 1 :])
