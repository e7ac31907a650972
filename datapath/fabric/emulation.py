# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The emulator: links between network devices of this machine, in real time.

    with Emulator([Port("port0", "left"), Port("port1", "right")], PAIR, start) as emulator:
        emulator.configure("forward", Link(rate_bps=10**9, delay_ns=100_000), seed=1)
        emulator.counters()["forward"]["delivered"]

The program is fabric/emulator/; control.c there has the other end of the pipe.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datapath.dialogue import Dialogue
from datapath.errors import CapabilityError, DatapathError
from datapath.fabric.links import Link, SharedBuffer, class_of_credits, classes_by_dscp
from datapath.native import paths

Start = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]
"""Starts a program where the devices are, with pipes as standard input and output."""

_LATE_NS = 100_000
_LATE_SHARE = 0.2
_JITTER = {"normal": 1, "pareto": 2, "trace": 3}
_MARKING = {"step": 1, "red": 2}
_NO_CLASS = 8  # DP_LINK_CLASSES


PORTS_MAX, NODES_MAX, WIRES_MAX = 34, 128, 1024
"""As fabric/emulator/emulator.h has them."""


@dataclass(frozen=True)
class Port:
    """A device of the emulator: its name, the node that it is at, the link address behind it.

    Two ports without an address are joined; with addresses there may be many.  dated: RoCEv2
    frames that leave by it end with the time at which their last link let them go; for a host on
    this machine, whose clock is the same.
    """

    netdev: str
    node: str
    mac: str = ""
    dated: bool = False

    def argument(self) -> str:
        kind = "dated" if self.dated else "port"
        return ":".join(filter(None, (kind, self.node, self.netdev, self.mac)))


@dataclass(frozen=True)
class Wire:
    """A link, which is one direction of a cable between two nodes."""

    name: str
    start: str
    end: str

    def argument(self) -> str:
        return f"link:{self.name}:{self.start}:{self.end}"


PAIR = (Wire("forward", "left", "right"), Wire("backward", "right", "left"))
"""The links of one cable."""


def allowed_lateness_ns(delay_ns: int) -> int:
    """By how much a frame in a hundred may leave late in a run that counts as emulated."""
    return max(_LATE_NS, int(_LATE_SHARE * delay_ns))


def words(link: Link, *, ecn_mark: float, seed: int) -> Iterator[str]:
    """key=value of a `configure` command."""
    for name, number in link.numbers().items():
        yield f"{name}={+number!r}"  # a bool becomes 0 or 1
    for name, setting in link.impairments:
        yield f"{name}={setting!r}"
    if link.trace_ms:
        yield "trace_ms=" + ",".join(map(str, link.trace_ms))
    if link.loss is not None:
        for name in ("p", "r", "good", "bad", "good_ns", "bad_ns"):
            yield f"loss_{name}={getattr(link.loss, name)!r}"
    if link.policer is not None:
        yield f"policer_rate_bps={link.policer.rate_bps}"
        yield f"policer_burst_bytes={link.policer.burst_bytes}"
    if link.aqm is not None:
        yield f"aqm_kind={link.aqm.kind}"
        for name, value in asdict(link.aqm).items():
            yield f"aqm_{name}={+value!r}"  # a bool becomes 0 or 1
    if link.marking is not None:
        yield f"mark_kind={_MARKING[link.marking.kind]}"
        for name in ("kmin_bytes", "kmax_bytes", "pmax"):
            yield f"mark_{name}={getattr(link.marking, name)!r}"
    if link.jitter is not None:
        yield f"jitter_kind={_JITTER[link.jitter.kind]}"
        yield f"jitter_reorders={int(link.jitter.reorders)}"
        yield f"jitter_scale_ns={link.jitter.scale_ns!r}"
        yield f"jitter_shape={link.jitter.shape!r}"
        if link.jitter.samples_ns:
            yield "jitter_samples_ns=" + ",".join(map(repr, link.jitter.samples_ns))
    if by_dscp := classes_by_dscp(link.classes):
        shaped = [
            f"{one.weight}:{one.limit_bytes}:{link.shaped_bps(one)}:{one.jitter!r}"
            for one in link.classes
        ]
        of_credits = class_of_credits(link.classes)
        last = _NO_CLASS if of_credits is None else of_credits
        yield "classes=" + ",".join(shaped)
        yield "class_of_dscp=" + ",".join(map(str, (*by_dscp, last)))
    yield f"ecn_mark={ecn_mark!r}"
    yield f"seed={seed}"


class Emulator:
    """The running program, from construction to close().

    wires: 2i and 2i + 1 are the two directions of a cable.  Frames take a shortest path.
    """

    def __init__(self, ports: Sequence[Port], wires: Sequence[Wire], start: Start) -> None:
        joined = [*(port.argument() for port in ports), *(wire.argument() for wire in wires)]
        arguments = [str(paths.emulator_program()), *joined]
        self._program = Dialogue(start(arguments), "the emulator")
        try:
            answer = self._program.hear()
            if not answer.startswith("ready "):
                raise CapabilityError(
                    f"the emulator cannot work here: {answer.removeprefix('error ')}",
                    hint="it needs AF_XDP on the devices of the middle: path: {backend: bpf} "
                    "does without",
                )
            self.priority = str(json.loads(answer.removeprefix("ready "))["priority"])
        except BaseException:
            self.close()
            raise

    def configure(
        self,
        name: str,
        link: Link,
        *,
        ecn_mark: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Make a link anew: frames in it are gone, its counters begin at 0.

        ecn_mark: share of ECN-capable frames that are marked at random.  seed: 64 bits.
        DatapathError when the link model refuses the settings.
        """
        answer = self._ask("configure", name, *words(link, ecn_mark=ecn_mark, seed=seed))
        if answer != "ok":
            raise DatapathError(f"the emulator refuses the path: {answer.removeprefix('error ')}")

    def change(
        self,
        at_ns: int,
        name: str,
        link: Link,
        *,
        ecn_mark: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Give a link other settings at a time (CLOCK_MONOTONIC); its frames stay in it.

        seed: as configure() had it, so that the random streams go on.  DatapathError when the
        link model refuses the settings, or could not take them while frames wait.
        """
        settings = words(link, ecn_mark=ecn_mark, seed=seed)
        answer = self._ask("change", name, str(at_ns), *settings)
        if answer != "ok":
            raise DatapathError(f"the emulator refuses a change: {answer.removeprefix('error ')}")

    def share(self, node: str, buffer: SharedBuffer | None) -> None:
        """Have the links that leave a node share a buffer, with PFC; configure its links next."""
        made = buffer or SharedBuffer(0)
        words = [made.total_bytes, made.alpha, made.pfc_classes]
        words += [made.xoff_bytes, made.xon_bytes, made.headroom_bytes]
        if (answer := self._ask("buffer", node, *map(repr, words))) != "ok":
            raise DatapathError(f"the emulator refuses a buffer: {answer.removeprefix('error ')}")

    def hand_over_early(self, early_ns: int) -> None:
        """Dated frames to dated ports may leave so long before they reach their last link's end.

        At most by that link's delay, and not where it has jitter.
        """
        if (answer := self._ask("early", str(early_ns))) != "ok":
            raise DatapathError(f"the emulator refuses a time: {answer.removeprefix('error ')}")

    def reset_routes(self, seed: int) -> None:
        """Let routes lead along all links; of equal ones, flows choose by the seed (64 bits)."""
        if (answer := self._ask("routes", str(seed))) != "ok":
            raise DatapathError(f"the emulator finds no routes: {answer.removeprefix('error ')}")

    def route(self, at_ns: int, name: str, *, used: bool) -> None:
        """At a time (CLOCK_MONOTONIC), let routes lead along a link or around it.

        Where there is no other path they lead along it nevertheless.
        """
        if (answer := self._ask("route", name, str(at_ns), str(int(used)))) != "ok":
            raise DatapathError(f"the emulator refuses a route: {answer.removeprefix('error ')}")

    def forget_changes(self) -> None:
        """Make none of the changes and routes whose time has not come."""
        if (answer := self._ask("forget")) != "ok":
            raise DatapathError(f"the emulator keeps its changes: {answer.removeprefix('error ')}")

    def counters(self) -> Mapping[str, Any]:
        """Name of a link -> counter -> number since configure(), and elapsed_ns, busy_ns."""
        counters: Mapping[str, Any] = json.loads(self._ask("counters"))
        return counters

    @contextlib.contextmanager
    def sampled(
        self, prefix: Path, interval_ns: int, max_bytes: int, names: Sequence[str]
    ) -> Iterator[None]:
        """Sample the queues of links while the body runs, into `<prefix>.<name>.series`.

        Files of datapath.series, of at most max_bytes each, that must not be there.
        """
        numbers = (str(interval_ns), str(max_bytes))
        answer = self._ask("sample", *numbers, str(prefix.resolve()), *names)
        if answer != "ok":
            raise DatapathError(
                f"the emulator cannot sample into {prefix}: {answer.removeprefix('error ')}"
            )
        try:
            yield
        finally:
            self._ask("sample")

    def check_alive(self) -> None:
        """RunFailed when the program has ended, or did not answer once."""
        self._program.check_alive()

    def close(self) -> None:
        """End the program; safe to call twice."""
        self._program.close()

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask(self, *line: str) -> str:
        return self._program.ask("\t".join(line))
