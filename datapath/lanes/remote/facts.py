# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Facts of a host reached by ssh, and the offset of its clock."""

from __future__ import annotations

import importlib.resources
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datapath.debian import measured_with
from datapath.errors import RunFailed
from datapath.lanes.remote.connection import Connection

if TYPE_CHECKING:
    from datapath.lanes.remote.host import SshHost

_EXCHANGES = 8
_TIMEOUT_S = 60.0
_NUMBERS = ("cores", "cores_usable", "memory_kib", "mtu", "queues", "speed")


@dataclass(frozen=True)
class ClockOffset:
    """The host's clock minus this machine's, in ns, with an error of at most uncertainty_ns."""

    offset_ns: int
    uncertainty_ns: int


def gather(host: SshHost) -> dict[str, Any]:
    """For the manifest: kernel, distribution, CPU, packages, device, RDMA, AF_XDP, clock.

    Keys with a dot in facts.sh become nested; RunFailed when the script does not run.
    """
    script = importlib.resources.files(__package__).joinpath("facts.sh").read_text()
    arguments = ["sh", "-c", script, "facts", host.endpoint.netdev, *measured_with()]
    done = host.run(
        arguments,
        timeout_s=_TIMEOUT_S,
    )
    facts = parse(done.stdout)
    if "kernel" not in facts:
        raise RunFailed(f"{host.name} does not tell what it is: {done.stderr.strip()}")
    clock = clock_offset(host.connection)
    facts["clock"] = {
        "offset_ns": clock.offset_ns,
        "uncertainty_ns": clock.uncertainty_ns,
    }
    return {"name": host.name, "user": host.connection.user, **facts}


def parse(text: str) -> dict[str, Any]:
    """Lines KEY=VALUE as plain data; KEY.NAME=VALUE is an entry of a mapping KEY."""
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if not equals:
            continue
        group, dot, name = key.partition(".")
        target = facts.setdefault(group, {}) if dot else facts
        entry = name if dot else group
        is_number = entry in _NUMBERS and value.lstrip("-").isdecimal()
        target[entry] = int(value) if is_number else value
    return facts


def clock_offset(connection: Connection, exchanges: int = _EXCHANGES) -> ClockOffset:
    """From the exchange with the shortest round trip, as NTP does (RFC 5905, section 10).

    The host's answer was read between sending and receiving; how the round
    trip divides is not known, so half of it, and the microsecond in which the
    host tells the time, is the uncertainty.
    """

    async def exchange() -> tuple[int, int]:
        sent_ns = time.time_ns()
        answer = await connection.answer("now")
        received_ns = time.time_ns()
        middle_ns = (sent_ns + received_ns) // 2
        return received_ns - sent_ns, int(answer) * 1000 - middle_ns

    async def exchanges_in_turn() -> list[tuple[int, int]]:
        return [await exchange() for _ in range(exchanges)]

    round_trip_ns, offset_ns = min(connection.call(exchanges_in_turn()))
    return ClockOffset(offset_ns, round_trip_ns // 2 + 1000)
