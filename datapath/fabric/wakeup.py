# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How late simulated programs run after they have slept (fabric/sim/wakeup.c)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_ALL = 2**32 - 1
MAX_NS = 10**9
"""The longest delay that is meant: an engine believes no time of arrival that is older."""


@dataclass(frozen=True)
class Lateness:
    """A distribution of delays.

    points: (share of delays that are not longer, ns), both growing from share 0 to share 1, and
    linear in between.
    """

    points: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        shares, delays = zip(*self.points, strict=True)
        if shares[0] != 0 or shares[-1] != 1 or sorted(shares) != list(shares):
            raise ValueError("the shares of a distribution grow from 0 to 1")
        if sorted(delays) != list(delays) or delays[0] < 0 or delays[-1] > MAX_NS:
            raise ValueError("the delays of a distribution grow, up to 1 s")

    @classmethod
    def constant(cls, ns: int) -> Lateness:
        return cls(((0.0, ns), (1.0, ns)))

    def fill(self, ffi: Any) -> Any:
        """struct dp_sim_quantile[]."""
        return ffi.new("struct dp_sim_quantile[]", [(round(s * _ALL), ns) for s, ns in self.points])


@dataclass(frozen=True)
class Wakeup:
    """Delays of all programs.

    packet: of a host's, after a packet has come.  timer: of a host's, after the time at which it
    wanted to wake.  emulator: of the program that emulates the links between switches, None:
    these are exact.  A host's program is awake, and late for nothing, for awake_ns after it woke
    and for spin_ns after a completion, while it polls.
    """

    packet: Lateness
    timer: Lateness
    emulator: Lateness | None = None
    spin_ns: int = 20_000
    awake_ns: int = 0
