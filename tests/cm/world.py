# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connection managers in virtual time, with a network between them that loses and repeats."""

from __future__ import annotations

import heapq
import ipaddress
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any

from datapath.interop.manager import NAMES
from datapath.native import ffi, lib
from tests.clib import in_c

MS = 1_000_000
S = 1_000_000_000
MTU_4096 = 5  # enum ibv_mtu
ACK_TIMEOUT = 14

EVENTS = {
    getattr(lib, f"DP_CM_{name}"): name
    for name in (
        "REQUESTED",
        "REPLIED",
        "ESTABLISHED",
        "REJECTED",
        "UNREACHABLE",
        "DISCONNECTED",
        "TIMEWAIT_OVER",
        "RESOLVED",
    )
}


def addr(text: str) -> Any:
    out = ffi.new("struct dp_addr *")
    address = ipaddress.ip_address(text)
    mapped = f"::ffff:{text}" if address.version == 4 else text
    ffi.memmove(out.b, ipaddress.ip_address(mapped).packed, 16)
    return out


@dataclass
class Event:
    type: str
    conn: Any
    status: int
    private: bytes
    param: dict[str, int]


@dataclass
class Mad:
    """A message under way."""

    data: bytes
    sender: str
    to: str

    @property
    def name(self) -> str:
        return NAMES.get(int.from_bytes(self.data[16:18], "big"), "?")

    def get(self, field: int) -> int:
        return int(lib.dp_cm_get(self.data, field))

    def changed(self, field: int, value: int) -> Mad:
        data = ffi.new("uint8_t[256]", self.data)
        lib.dp_cm_set(data, field, value)
        return Mad(bytes(ffi.buffer(data, 256)), self.sender, self.to)


class End:
    """One connection manager.  Programs answer its events; this one keeps them."""

    def __init__(self, world: World, address: str, **config: int) -> None:
        self.world = world
        self.address = address
        self.addr = addr(address)
        self.events: list[Event] = []
        self.services: list[Any] = []
        fields = {
            "guid": len(world.ends) + 1,
            "id_prefix": 0,
            "path_mtu": MTU_4096,
            "ack_timeout": ACK_TIMEOUT,
            "seed": len(world.ends) + 1,
            **config,
        }
        settings = ffi.new("struct dp_cm_config *", fields)
        settings.addr = self.addr[0]
        out = ffi.new("struct dp_cm **")
        assert lib.dp_cm_create(settings, out) == 0
        self.cm = out[0]

    def close(self) -> None:
        lib.dp_cm_destroy(self.cm)

    def check(self) -> None:
        broken = lib.dp_cm_check(self.cm)
        assert broken == ffi.NULL, ffi.string(broken).decode()

    # ---- calls of the program

    def listen(self, service: int = 7, backlog: int = 0) -> Any:
        out = ffi.new("struct dp_cm_service **")
        assert lib.dp_cm_listen(self.cm, service, backlog, ffi.NULL, out) == 0
        self.world.settle()
        return out[0]

    def connect(
        self,
        to: End,
        service: int = 7,
        *,
        qpn: int = 17,
        private: bytes = b"",
        datagram: bool = False,
        **param: int,
    ) -> Any:
        request = ffi.new("struct dp_cm_request *")
        request.to = to.addr[0]
        request.service_id = service
        request.datagram = datagram
        request.param = {
            "qpn": qpn,
            "path_mtu": MTU_4096,
            "ack_timeout": ACK_TIMEOUT,
            "retry_count": 7,
            "rnr_retry": 6,
            "responder_resources": 3,
            "initiator_depth": 2,
            **param,
        }
        data = in_c(private)
        request.private_data = data
        request.private_len = len(private)
        out = ffi.new("struct dp_cm_conn **")
        err = lib.dp_cm_connect(self.cm, request, ffi.NULL, self.world.now, out)
        assert err == 0, err
        self.world.settle()
        return out[0]

    def accept(self, conn: Any, *, qpn: int = 34, private: bytes = b"", **param: int) -> int:
        fields = ffi.new("struct dp_cm_param *", {"qpn": qpn, "rnr_retry": 5, **param})
        return self._call(lib.dp_cm_accept, conn, fields, in_c(private), len(private))

    def reject(self, conn: Any, reason: int = 28, private: bytes = b"") -> int:
        return self._call(lib.dp_cm_reject, conn, reason, in_c(private), len(private))

    def ready(self, conn: Any) -> int:
        return self._call(lib.dp_cm_ready, conn)

    def disconnect(self, conn: Any) -> int:
        return self._call(lib.dp_cm_disconnect, conn)

    def release(self, conn: Any) -> None:
        self._call(lib.dp_cm_release, conn)

    def unlisten(self, service: Any) -> None:
        self._call(lib.dp_cm_unlisten, service)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> int:
        result = function(*arguments, self.world.now)
        self.world.settle()
        return int(result or 0)

    # ---- what has come

    def take(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def told(self) -> list[str]:
        return [event.type for event in self.take()]

    def conns(self) -> int:
        return int(lib.dp_cm_conns(self.cm))

    def stats(self) -> dict[str, int]:
        out = ffi.new("struct dp_cm_stats *")
        lib.dp_cm_stats(self.cm, out)
        return {name: getattr(out, name) for name, _ in ffi.typeof(out[0]).fields}

    def info(self, conn: Any) -> Any:
        out = ffi.new("struct dp_cm_info *")
        lib.dp_cm_conn_info(conn, out)
        return out

    # ---- what the world does with it

    def give(self, data: bytes, sender: str) -> None:
        """A message arrives; it lies in memory of just its size."""
        event = ffi.new("struct dp_cm_event *")
        if lib.dp_cm_rx(self.cm, in_c(data), len(data), addr(sender), self.world.now, event):
            self._keep(event)
        self.check()

    def tick(self) -> None:
        event = ffi.new("struct dp_cm_event *")
        while lib.dp_cm_tick(self.cm, self.world.now, event):
            if event.type:
                self._keep(event)
            self.check()

    def sent(self) -> list[Mad]:
        mads = []
        mad = ffi.new("struct dp_cm_mad *")
        while lib.dp_cm_tx(self.cm, mad):
            to = ipaddress.IPv6Address(bytes(ffi.buffer(mad.to.b)))
            name = str(to.ipv4_mapped or to)
            mads.append(Mad(bytes(ffi.buffer(mad.data)), self.address, name))
        return mads

    def _keep(self, event: Any) -> None:
        param = {name: getattr(event.param, name) for name, _ in ffi.typeof(event.param).fields}
        private = bytes(ffi.buffer(event.private_data))[: event.private_len]
        self.events.append(Event(EVENTS[event.type], event.conn, event.status, private, param))


@dataclass
class World:
    """Ends by address, and the messages between them.

    loss, repeat: probabilities.  late_ns: a message takes up to so long, so that some
    overtake others.  drop: messages for which it is true are lost.
    """

    seed: int = 1
    loss: float = 0
    repeat: float = 0
    late_ns: int = 0
    drop: Callable[[Mad], bool] = lambda _mad: False
    now: int = 1
    ends: dict[str, End] = field(default_factory=dict)
    seen: list[Mad] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._under_way: list[tuple[int, int, Mad]] = []
        self._order = count()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        for end in self.ends.values():
            end.close()

    def end(self, address: str, **config: int) -> End:
        self.ends[address] = End(self, address, **config)
        return self.ends[address]

    def names(self) -> Counter[str]:
        """How many messages of each name were sent."""
        return Counter(mad.name for mad in self.seen)

    def settle(self) -> None:
        """All that happens without time passing."""
        while True:
            self._collect()
            if not self._under_way or self._under_way[0][0] > self.now:
                return
            _, _, mad = heapq.heappop(self._under_way)
            if mad.to in self.ends:
                self.ends[mad.to].give(mad.data, mad.sender)

    def pass_ns(self, time_ns: int) -> None:
        """Time passes, and with it all that comes due."""
        limit = self.now + time_ns
        while True:
            due = min(lib.dp_cm_deadline(end.cm) for end in self.ends.values())
            if self._under_way:
                due = min(due, self._under_way[0][0])
            if due > limit:
                break
            self.now = max(self.now, due)
            for end in self.ends.values():
                end.tick()
            self.settle()
        self.now = limit

    def _collect(self) -> None:
        for end in self.ends.values():
            for mad in end.sent():
                self.seen.append(mad)
                if self.drop(mad):
                    continue
                for _ in range(2 if self.random.random() < self.repeat else 1):
                    if self.random.random() >= self.loss:
                        due = self.now + self.random.randint(0, self.late_ns)
                        heapq.heappush(self._under_way, (due, next(self._order), mad))
