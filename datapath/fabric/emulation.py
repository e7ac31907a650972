# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The emulator: two links between network devices of this machine, in real time.

    with Emulator([Port("port0", "left"), Port("port1", "right")], start) as emulator:
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
from typing import Any, Literal

from datapath.dialogue import Dialogue
from datapath.errors import CapabilityError, DatapathError
from datapath.fabric.links import Link
from datapath.native import paths

Start = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]
"""Starts a program where the devices are, with pipes as standard input and output."""

_LATE_NS = 100_000
_LATE_SHARE = 0.2
_JITTER = {"normal": 1, "pareto": 2, "trace": 3}
_MARKING = {"step": 1, "red": 2}


@dataclass(frozen=True)
class Port:
    """A device of the emulator: its name, the side it is on, the link address behind it.

    Two ports without an address are joined; with addresses there may be many on each side.
    """

    netdev: str
    side: Literal["left", "right"]
    mac: str = ""

    def argument(self) -> str:
        return ":".join(filter(None, (self.side, self.netdev, self.mac)))


def allowed_lateness_ns(delay_ns: int) -> int:
    """By how much a frame in a hundred may leave late in a run that counts as emulated."""
    return max(_LATE_NS, int(_LATE_SHARE * delay_ns))


def words(link: Link, *, ecn_mark: float, seed: int) -> Iterator[str]:
    """key=value of a `configure` command; classes are for the simulator alone."""
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
    yield f"ecn_mark={ecn_mark!r}"
    yield f"seed={seed}"


class Emulator:
    """The running program, from construction to close()."""

    def __init__(self, ports: Sequence[Port], start: Start) -> None:
        arguments = [str(paths.emulator_program()), *(port.argument() for port in ports)]
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
        direction: Literal["forward", "backward"],
        link: Link,
        *,
        ecn_mark: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Make a direction anew: frames in it are gone, its counters begin at 0.

        ecn_mark: share of ECN-capable frames that are marked at random.  seed: 64 bits.
        DatapathError when the link model refuses the settings.
        """
        answer = self._ask("configure", direction, *words(link, ecn_mark=ecn_mark, seed=seed))
        if answer != "ok":
            raise DatapathError(f"the emulator refuses the path: {answer.removeprefix('error ')}")

    def counters(self) -> Mapping[str, Any]:
        """Direction -> counter -> number since configure(), and elapsed_ns, busy_ns."""
        counters: Mapping[str, Any] = json.loads(self._ask("counters"))
        return counters

    @contextlib.contextmanager
    def sampled(self, prefix: Path, interval_ns: int, max_bytes: int) -> Iterator[None]:
        """Sample the queues while the body runs, into `<prefix>.<direction>.series`.

        Files of datapath.series, of at most max_bytes each, that must not be there.
        """
        answer = self._ask("sample", str(interval_ns), str(max_bytes), str(prefix.resolve()))
        if answer != "ok":
            raise DatapathError(
                f"the emulator cannot sample into {prefix}: {answer.removeprefix('error ')}"
            )
        try:
            yield
        finally:
            self._ask("sample")

    def close(self) -> None:
        """End the program; safe to call twice."""
        self._program.close()

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask(self, *line: str) -> str:
        return self._program.ask("\t".join(line))
