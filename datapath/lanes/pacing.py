# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion control for the kernel's soft-RoCE: an algorithm of datapath.cc paces rxe's packets.

On each host runs dp-rxe-pacer (lanes/pacer/), whose BPF program gives each request the time at
which it may leave, and the device has the qdisc fq, which keeps packets until their time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from datapath.errors import CapabilityError, DatapathError
from datapath.lanes.base import Host
from datapath.lanes.beside import Beside
from datapath.native import paths

_FQ = ("fq", "limit", "200000", "flow_limit", "1000", "orphan_mask", str(2**32 - 1))
"""Packets in all, packets of a flow, and how fq tells flows apart.

rxe has at most 128 packets of a QP unacknowledged; when it goes back too early they are in the
qdisc twice.  The pacer takes 512 QPs, of which two may be one flow for it.  rxe's packets belong to
no connected socket: fq knows their flow by these bits of their hash.  By default there are 1024
such flows: acknowledgements would then wait for requests, and the requests of one QP for another's.
"""


@contextlib.contextmanager
def pacing(
    hosts: Sequence[Host], algorithm: Path, logs: Path, *, ecn: bool
) -> Iterator[dict[str, str]]:
    """Pace rxe on the hosts while the body runs.

    algorithm: a compiled one.  After the body the dictionary has a line of text for each host
    that began connections.

    Raises:
        CapabilityError: the kernel of a host lacks something, which the text names.
    """
    found: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        programs = []
        for host in hosts:
            stack.enter_context(_fair_queue(host))
            argv = [host.provide(paths.rxe_pacer()), host.endpoint.netdev]
            argv += [host.provide(algorithm), *(["--ecn"] if ecn else [])]
            programs.append(Beside(host, argv, logs, "pacer"))
            stack.callback(programs[-1].close)
        for program in programs:
            program.ready(partial(_refused, program.host.name))
        yield found
        for program in programs:
            told = program.finish()
            if told["connections"]:
                found[program.host.name] = _summary(told)


@contextlib.contextmanager
def _fair_queue(host: Host) -> Iterator[None]:
    """The qdisc fq at the device under test; then that which it had by itself."""
    device = ("dev", host.endpoint.netdev, "root")
    done = host.run(["tc", "qdisc", "replace", *device, *_FQ])
    if done.returncode:
        raise CapabilityError(
            f"{host.name} cannot pace: the kernel has no qdisc fq (CONFIG_NET_SCH_FQ), which obeys "
            f"times of departure: {' '.join(done.stderr.split())}",
            hint="boot another kernel (topology.kernel), or take cc.algo away",
        )
    try:
        yield
    finally:
        with contextlib.suppress(DatapathError):
            host.run(["tc", "qdisc", "delete", *device])
            # Of a pacer that was killed.
            host.run(["tc", "qdisc", "delete", "dev", host.endpoint.netdev, "clsact"])


def _refused(host: str, words: str) -> CapabilityError:
    return CapabilityError(
        f"{host} cannot pace rxe: {words.removeprefix('dp-rxe-pacer: ')}",
        hint="boot another kernel (topology.kernel), or take cc.algo away",
    )


def _summary(told: dict[str, int]) -> str:
    text = (
        f"{told['connections']} connections, {told['acks']} acknowledgements "
        f"({told['marked_acks']} with marks), {told['losses']} losses, {told['timeouts']} "
        f"time-outs, lowest RTT {told['min_rtt_ns'] / 1e6:.2f} ms"
    )
    wrong = {
        "no_room_packets": "packets of connections beyond those that it can pace",
        "unknown_acks": "acknowledgements of no connection that it has seen",
        "lost_events": "events that it was too slow for",
    }
    return "; ".join([text, *(f"{told[key]} {what}" for key, what in wrong.items() if told[key])])
