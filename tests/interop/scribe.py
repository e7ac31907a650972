# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Captures written by hand: two hosts that talk RoCEv2, made by scapy.

    talk = Scribe()
    talk.a("SEND FIRST", 100, 1024)
    talk.a("SEND LAST", 101, 5, ack=True)
    talk.b("ACK", 101, msn=1)
    report = talk.judge()

a() and b() write one packet and return its number in the capture.  The third
argument is the payload, or its length; lost=N: so many bytes more were on the
wire.  A asks from PSN 100 on and B from 500.
ICRC, IP and UDP come from scapy, so the checker's own are tested against it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datapath.interop import capture, trace
from datapath.interop.opcodes import DATAGRAMS, OPCODES

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)


from scapy.contrib.roce import BTH  # noqa: E402
from scapy.layers.inet import IP, UDP, IPOption_NOP  # noqa: E402
from scapy.layers.l2 import Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402
from scapy.utils import wrpcap  # noqa: E402

__all__ = ["ADDRESSES", "A_PSN", "B_PSN", "IP", "UDP", "IPOption_NOP", "Scribe"]

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}
QPNS = {"a": 0x11, "b": 0x22}
MTU = 1024
A_PSN, B_PSN = 100, 500
CODES = {row.name: code for code, row in (OPCODES | DATAGRAMS).items()}
CODES |= {"CNP": 0x81, "HELLO": 0xE0}
STEP_S = 10e-6


class Scribe:
    """One capture in the making."""

    def __init__(self) -> None:
        self.frames: list[Ether] = []
        self.time_s = 1000.0

    def wait(self, seconds: float) -> None:
        self.time_s += seconds

    def a(self, name: str | int, psn: int, payload: bytes | int = b"", **fields: Any) -> int:
        return self._say("a", name, psn, payload, fields)

    def b(self, name: str | int, psn: int, payload: bytes | int = b"", **fields: Any) -> int:
        return self._say("b", name, psn, payload, fields)

    def _say(
        self,
        who: str,
        name: str | int,
        psn: int,
        payload: bytes | int,
        fields: dict[str, Any],
    ) -> int:
        data = bytes(i % 251 for i in range(payload)) if isinstance(payload, int) else payload
        code = CODES[name] if isinstance(name, str) else name
        other = "b" if who == "a" else "a"
        pad = fields.get("pad", -len(data) % 4)
        bth = BTH(
            opcode=code,
            solicited=int(bool(fields.get("se"))),
            ackreq=int(bool(fields.get("ack"))),
            padcount=pad,
            dqpn=fields.get("qpn", QPNS[other]),
            psn=psn % (1 << 24),
        )
        headers = _headers(code, fields)
        body = headers + data + bytes(-len(data) % 4) + bytes(fields.get("more", b""))
        frame = (
            Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
            / IP(src=ADDRESSES[who], dst=ADDRESSES[other], id=0, flags="DF")
            / UDP(sport=0xC000 + QPNS[who], dport=4791, chksum=0)
            / bth
            / Raw(body)
        )
        edit = fields.get("edit")
        if edit is not None:
            frame = edit(frame)
        raw = bytes(frame)
        spoil = fields.get("spoil")
        if spoil is not None:
            raw = spoil(raw)
        whole = Raw(raw)
        whole.time = self.time_s
        whole.wirelen = len(raw) + int(fields.get("lost", 0))
        self.time_s += STEP_S
        self.frames.append(whole)
        return len(self.frames)

    def write(self, path: Path) -> Path:
        wrpcap(str(path), self.frames, linktype=1)
        return path

    def judge(self, folder: Path, lost_refusal: str | None = None, **options: Any) -> trace.Report:
        """Write the capture, read it again and judge it; both ends are known beforehand."""
        path = self.write(folder / "capture.pcap")
        ends = (
            trace.End(ADDRESSES["a"], QPNS["a"], A_PSN),
            trace.End(ADDRESSES["b"], QPNS["b"], B_PSN),
        )
        connection = trace.Connection(ends, MTU, lost_refusal)
        return trace.check(capture.read(path), [connection], **options)


def _headers(code: int, fields: dict[str, Any]) -> bytes:
    row = OPCODES.get(code) or DATAGRAMS.get(code)
    parts: dict[str, Callable[[], bytes]] = {
        "reth": lambda: struct.pack(
            "!QII", fields.get("va", 0x10000), fields.get("rkey", 7), fields["length"]
        ),
        "atomic": lambda: struct.pack(
            "!QIQQ", fields.get("va", 0x10000), fields.get("rkey", 7), 5, fields.get("compare", 0)
        ),
        "feth": lambda: struct.pack("!I", fields.get("feth", 1)),
        "aeth": lambda: struct.pack(
            "!I", fields.get("syndrome", 0x1F) << 24 | fields.get("msn", 0)
        ),
        "value": lambda: struct.pack("!Q", fields.get("value", 0)),
        "imm": lambda: b"\1\2\3\4",
        "deth": lambda: struct.pack(
            "!II", fields.get("qkey", 0x11111111), fields.get("src_qpn", 0x33)
        ),
        "ieth": lambda: struct.pack("!I", 9),
    }
    return b"".join(parts[header]() for header in row.headers) if row else b""
