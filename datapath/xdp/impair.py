# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Configures impair.bpf.c: which device forwards where, with which impairments.

The struct formats below are those of impair_common.h, field by field.  Call
everything that takes device names in the network namespace of those devices.
"""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from datapath.errors import LocalError
from datapath.native import paths
from datapath.xdp.loader import BpfObject

Direction = Literal["forward", "backward"]
"""forward: from host 0 to host 1, or from the left side of a dumbbell to its right side."""

DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")
MAX_FAULTS = 16
"""Faults of one direction; DP_IMPAIR_FAULTS."""

_PROGRAM = "dp_impair"
_CERTAIN = 1 << 32
_GROUPS = ("left", "right")
_STREAMS = ("loss", "mark", "corrupt")
_GE_TIME_STREAM = "ge-time"
_NO_DIRECTION = len(DIRECTIONS)
_ACTIONS = {"drop": 1, "mark": 2, "corrupt": 3}
_MATCH_QPN, _MATCH_PSN = 1, 2
_BERNOULLI, _GILBERT_ELLIOTT, _GE_TIME = 0, 1, 2

_INDEX = struct.Struct("=I")
_PORT = struct.Struct("=IHH")
_ADDRESS = struct.Struct("=6sH")
_CONFIG = struct.Struct("=10Q")
_FAULT = struct.Struct("=IIIIQQ")
_FAULT_STATE = struct.Struct(f"={MAX_FAULTS}Q")
_STATE = struct.Struct(f"=8x{len(_STREAMS) + 1}Q2Q2I{_FAULT_STATE.size}x{_FAULT_STATE.size}s6Q")
"""dp_impair_state: lock and pad, random streams, bad, ge_state, seen[], hits[], six counters."""


@dataclass(frozen=True)
class Port:
    """A device of the middle.

    netdev: its name.  group: "left" or "right", the forwarding table it uses.
    default: device to which unknown link addresses go, "" for none.
    direction: impairments of packets received here; None: none.
    macs: link addresses reached through this device.
    """

    netdev: str
    group: str
    default: str = ""
    direction: Direction | None = None
    macs: tuple[str, ...] = ()


@dataclass(frozen=True)
class AimedFault:
    """Hits matching packets number nth .. nth + count - 1.

    qpn, psn: of the BTH; with neither, every IP packet matches.
    action: "drop", "mark" or "corrupt".
    """

    action: str
    qpn: int | None = None
    psn: int | None = None
    nth: int = 1
    count: int = 1

    def pack(self) -> bytes:
        """struct dp_impair_fault."""
        match = (_MATCH_QPN if self.qpn is not None else 0) | (
            _MATCH_PSN if self.psn is not None else 0
        )
        return _FAULT.pack(
            _ACTIONS[self.action], match, self.qpn or 0, self.psn or 0, self.nth, self.count
        )


@dataclass(frozen=True)
class Impairment:
    """Impairments of IP packets in one direction; all rates are probabilities.

    Loss is `loss_good` for every packet while to_bad and good_ns are 0
    (Bernoulli), else that of the state (Gilbert-Elliott).  The state changes
    after each packet with probability to_bad or to_good; or, where good_ns
    and bad_ns are given, after times with these means, whatever is sent.
    """

    loss_good: float = 0.0
    loss_bad: float = 0.0
    to_bad: float = 0.0
    to_good: float = 0.0
    good_ns: int = 0
    bad_ns: int = 0
    mark: float = 0.0
    corrupt: float = 0.0
    faults: tuple[AimedFault, ...] = ()

    @property
    def touches(self) -> bool:
        """Whether any packet could be hit."""
        bursts = self.to_bad > 0 or self.good_ns > 0
        lossy = self.loss_good > 0 or (bursts and self.loss_bad > 0)
        return lossy or self.mark > 0 or self.corrupt > 0 or bool(self.faults)

    def pack(self) -> bytes:
        """struct dp_impair_config."""
        if len(self.faults) > MAX_FAULTS:
            raise LocalError(f"{len(self.faults)} faults in one direction; {MAX_FAULTS} fit")
        model = _GILBERT_ELLIOTT if self.to_bad else _GE_TIME if self.good_ns else _BERNOULLI
        loss = (self.loss_good, self.loss_bad, self.to_bad, self.to_good)
        faults = b"".join(fault.pack() for fault in self.faults)
        head = _CONFIG.pack(
            model,
            *map(fixed_point, loss),
            self.good_ns,
            self.bad_ns,
            fixed_point(self.mark),
            fixed_point(self.corrupt),
            len(self.faults),
        )
        return head + faults.ljust(MAX_FAULTS * _FAULT.size, b"\0")


@dataclass(frozen=True)
class Counts:
    """Packets of one direction since configure(); see struct dp_impair_state.

    fault_hits: for each of the aimed faults, in order.
    """

    passed: int
    dropped: int
    marked: int
    corrupted: int
    exempt: int
    unsegmented: int
    fault_hits: tuple[int, ...]


def fixed_point(probability: float) -> int:
    """A probability as the program compares it with a 32-bit draw."""
    return round(probability * _CERTAIN)


def stream_seed(seed: int, place: str, stream: str) -> int:
    """Start of one random stream (64 bits), unrelated between places and purposes.

    place: a direction, or the name of a link.
    """
    text = f"datapath-impair/{seed}/{place}/{stream}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _initial_state(seed: int, direction: Direction) -> bytes:
    streams = [stream_seed(seed, direction, stream) for stream in _STREAMS]
    ge_time = stream_seed(seed, direction, _GE_TIME_STREAM)
    return _STATE.pack(*streams, 0, ge_time, 0, 0, 0, b"", 0, 0, 0, 0, 0, 0)


class Impairments:
    """The program at the ingress of every port of a middle, until close()."""

    def __init__(self, ports: Sequence[Port]) -> None:
        self._bpf = BpfObject(paths.bpf_object("impair"))
        self._faults = dict.fromkeys(DIRECTIONS, 0)
        try:
            self.configure({}, seed=0)
            for port in ports:
                self._add(port)
        except BaseException:
            self.close()
            raise

    def _add(self, port: Port) -> None:
        ifindex = socket.if_nametoindex(port.netdev)
        group = _GROUPS.index(port.group)
        out = socket.if_nametoindex(port.default) if port.default else 0
        direction = DIRECTIONS.index(port.direction) if port.direction else _NO_DIRECTION
        self._bpf.map("ports").update(_INDEX.pack(ifindex), _PORT.pack(out, group, direction))
        for mac in port.macs:
            key = _ADDRESS.pack(bytes.fromhex(mac.replace(":", "")), group)
            self._bpf.map("addresses").update(key, _INDEX.pack(ifindex))
        self._bpf.attach_tc_ingress(_PROGRAM, ifindex)

    def configure(self, impairments: Mapping[Direction, Impairment], seed: int) -> None:
        """Apply, and restart random streams, fault counts and counters.

        A direction that is not named only forwards.
        """
        for index, direction in enumerate(DIRECTIONS):
            impairment = impairments.get(direction, Impairment())
            self._faults[direction] = len(impairment.faults)
            self._bpf.map("configs").update(_INDEX.pack(index), impairment.pack())
            self._bpf.map("states").update(_INDEX.pack(index), _initial_state(seed, direction))

    def counts(self, direction: Direction) -> Counts:
        """Counters of one direction since configure()."""
        value = self._bpf.map("states").lookup(_INDEX.pack(DIRECTIONS.index(direction)))
        assert value is not None, "array maps have every entry"
        *_, hits, passed, dropped, marked, corrupted, exempt, unsegmented = _STATE.unpack(value)
        return Counts(
            passed,
            dropped,
            marked,
            corrupted,
            exempt,
            unsegmented,
            _FAULT_STATE.unpack(hits)[: self._faults[direction]],
        )

    def close(self) -> None:
        """Let go of the program; its filters go with their devices."""
        self._bpf.close()
