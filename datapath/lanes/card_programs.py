# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The running cards of a network, each with a tunnel to every other one.

Where they run, and who their guests are, is the business of the lane: cards.py has the cards of
this machine's own hosts, machine_cards.py those of machines reached by ssh.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

from datapath.fabric.topology import Graph
from datapath.lanes.spec import Topology
from datapath.vnic.program import CardEnded, GuestRow, HostRow, Program, Settings, ShareRow, Start
from datapath.vnic.spec import NetworkCards

_EMULATED_COALESCE_NS = 1_000_000


class CardPrograms:
    """A card for each address, from start() to close().

    folder: with an algorithm of the user's own.  A lane says by starter() and settings() what
    is its own.
    """

    def __init__(self, card: NetworkCards, addresses: Sequence[str], folder: Path | None) -> None:
        self.card = card
        self.addresses = list(addresses)
        self._folder = folder or Path()
        self._emulated = False
        self._programs: list[Program] = []

    # --- of the lane ---

    def starter(self, index: int) -> Start:
        """Words before a command that start it where a card's devices are."""
        raise NotImplementedError

    def settings(self, me: int, cc: Path) -> Settings:
        """The settings of a card; cc: the compiled algorithm, on this machine."""
        raise NotImplementedError

    def prefix(self, index: int, logs: Path) -> str:
        """With which the names of a card's samples begin, where it runs."""
        return str(logs.resolve() / self.series_name(index))

    # --- of all ---

    def start(self, *, emulated: bool = False) -> None:
        """Start the programs.  emulated: the guests' CPUs are, so that each wake-up is dear."""
        self._emulated = emulated
        cc = self.card.compiled_cc(self._folder)
        for index in range(len(self.addresses)):
            self._programs.append(Program(self.starter(index), self.settings(index, cc)))

    def settle(self, card: NetworkCards) -> None:
        """Have these settings from now on; other programs take the place of those that run."""
        if card != self.card:
            self.card = card
            self._restart()

    def meet(self) -> None:
        """Make new tunnels, which know nothing of the path before.  Counters begin anew.

        Programs that have ended are started again.
        """
        if len(self._programs) < len(self.addresses):  # they could not be started again
            self._restart()
        try:
            self._join()
        except CardEnded:
            self._restart()
            self._join()
        for program in self._programs:
            program.clear()

    def _join(self) -> None:
        for left, right in combinations(range(len(self._programs)), 2):
            a, b = self._programs[left], self._programs[right]
            # Each card names itself first.
            at_a, at_b = self.order(left).index(right), self.order(right).index(left)
            ends_a, ends_b = a.offer(at_a), b.offer(at_b)
            a.connect(at_a, ends_b)
            b.connect(at_b, ends_a)

    def check_alive(self) -> None:
        """RunFailed, with the name of a card that has ended."""
        for index, program in enumerate(self._programs):
            program.check_alive(f"the virtual card {_name(index)}")

    def counters(self) -> list[Mapping[str, Any]]:
        """Of each card, as Program.counters()."""
        return [program.counters() for program in self._programs]

    @contextlib.contextmanager
    def sampled(self, logs: Path, interval_ns: int, max_bytes: int, most: int) -> Iterator[None]:
        """As lanes.base.Network.sampled_cards()."""
        with contextlib.ExitStack() as stack:
            for index, program in enumerate(self._programs):
                prefix = self.prefix(index, logs)
                stack.enter_context(program.sampled(prefix, interval_ns, max_bytes, most))
            yield

    def describe(self) -> dict[str, object]:
        """For the manifest."""
        return {
            **self.card.model_dump(mode="json"),
            "coalesce_ns": self._coalesce_ns,
            "priority": [program.priority for program in self._programs],
        }

    def close(self) -> None:
        """End the programs; safe to call twice."""
        for program in self._programs:
            program.close()
        self._programs.clear()

    def order(self, me: int) -> list[int]:
        """The cards as card `me` counts them: itself first."""
        return [me, *(index for index in range(len(self.addresses)) if index != me)]

    def series_name(self, index: int) -> str:
        """With which the names of a card's samples begin."""
        return f"series-{_name(index)}"

    def common_settings(
        self,
        me: int,
        port: str,
        cc: Path,
        *,
        mtu: int,
        guests: Sequence[GuestRow],
        tenants: Mapping[int, ShareRow],
    ) -> Settings:
        """The settings of a card, with what follows from the experiment's."""
        return Settings(
            port=port,
            ecn=self.card.ecn,
            cc=cc,
            mtu=mtu,
            pipes=self.card.pipes,
            coalesce_ns=self._coalesce_ns,
            hosts=[HostRow(_name(index), self.addresses[index]) for index in self.order(me)],
            guests=guests,
            recover={"udp": self.card.recover.udp, "tcp": self.card.recover.tcp},
            rate_bps=self.card.rate or 0,
            classes=self.card.class_rows(),
            assigned=self.card.assigned(),
            tenants=tenants,
        )

    @property
    def _coalesce_ns(self) -> int:
        unset = _EMULATED_COALESCE_NS if self._emulated else 0
        return unset if self.card.coalesce is None else self.card.coalesce

    def _restart(self) -> None:
        self.close()
        self.start(emulated=self._emulated)


def _name(index: int) -> str:
    return f"card{index}"


class WithCards:
    """What networks that may have cards have in common, of datapath.lanes.base.Network."""

    _cards: CardPrograms | None = None

    @property
    def link_rates_bps(self) -> Sequence[float]:
        """Nothing is known of links: the `path` section alone limits."""
        return ()

    @property
    def graph(self) -> Graph | None:
        """Likewise."""
        return None

    def check_alive(self) -> None:
        """As lanes.base.Network; hosts of this machine do not end by themselves, but cards may."""
        if self._cards is not None:
            self._cards.check_alive()

    def set_cards(self, topology: Topology) -> None:
        """As lanes.base.Network."""
        if self._cards is not None and topology.card is not None:
            self._cards.settle(topology.card)

    def card_counters(self) -> Sequence[Mapping[str, Any]]:
        """As lanes.base.Network."""
        return [] if self._cards is None else self._cards.counters()

    def sampled_cards(
        self, logs: Path, interval_ns: int, max_bytes: int, most: int
    ) -> AbstractContextManager[None]:
        """As lanes.base.Network."""
        if self._cards is None:
            return nullcontext()
        return self._cards.sampled(logs, interval_ns, max_bytes, most)
