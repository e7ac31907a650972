# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Changes while a simulation runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from datapath.fabric.links import Link
from datapath.fabric.members import U32_MAX, WholeNumbers, check_whole

if TYPE_CHECKING:
    from datapath.cc import CompiledAlgorithm


Algorithm: TypeAlias = "CompiledAlgorithm | None"
"""None: a constant window."""

_LATEST_NS = 2**63 - 1


@dataclass(frozen=True)
class SetAlgorithm(WholeNumbers):
    """At a time, the QPs of some flows get another algorithm.  flows: rows; None: all."""

    at_ns: int
    algorithm: Algorithm
    flows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for row in () if self.flows is None else self.flows:
            check_whole(self, "flows", row)


@dataclass(frozen=True)
class SetLink(WholeNumbers):
    """At a time, a link (its number) gets other settings."""

    at_most: ClassVar[Mapping[str, int]] = {"link": U32_MAX}

    at_ns: int
    link: int
    settings: Link


@dataclass(frozen=True)
class PauseLink(WholeNumbers):
    """At a time, classes (a mask) of a link stop, or go on.

    If nothing else moves for 100 ms meanwhile, this is a deadlock, whatever change comes later.
    """

    at_most: ClassVar[Mapping[str, int]] = {"link": U32_MAX, "classes": U32_MAX}

    at_ns: int
    link: int
    classes: int = 0xFF
    paused: bool = True


@dataclass(frozen=True)
class SetRoute(WholeNumbers):
    """At a time, switches begin or cease to send along a link between two of them.

    A switch that has no other path goes on to send along it.
    """

    at_most: ClassVar[Mapping[str, int]] = {"link": U32_MAX}

    at_ns: int
    link: int
    used: bool


@dataclass(frozen=True)
class StallHost(WholeNumbers):
    """At a time, the program of a host (its number) stands still for a while."""

    at_most: ClassVar[Mapping[str, int]] = {
        "at_ns": _LATEST_NS,
        "host": U32_MAX,
        "lasts_ns": _LATEST_NS,
    }

    at_ns: int
    host: int
    lasts_ns: int


@dataclass(frozen=True)
class OrderFlow(WholeNumbers):
    """At a time, something becomes of a row of the traffic table.

    what: one of datapath.fabric.flows.WHATS.  cc: with CC, as in the table.
    """

    at_most: ClassVar[Mapping[str, int]] = {"what": U32_MAX}

    at_ns: int
    flow: int
    what: int
    cc: int = 0


Change: TypeAlias = SetAlgorithm | SetLink | SetRoute | PauseLink | StallHost | OrderFlow


class Watcher(Protocol):
    """Changes that wait for something to happen.

    look_ns: time between two looks; 0: there is nothing to look for.  changes(): all that have a
    time.
    """

    @property
    def look_ns(self) -> int: ...

    def changes(self) -> Sequence[Change]: ...

    def look(self, now_ns: int, results: Any, queue_peak: Callable[[str], int]) -> bool:
        """Whether changes() has more now.

        results: RESULT_DTYPE.  queue_peak: name of a link -> the most bytes that have waited.
        """
        ...
