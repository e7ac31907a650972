# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Wireshark dissector of extended mode against the headers that the C code declares."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from datapath.interop.opcodes import OPCODES, Kind, Opcode
from datapath.native import paths

SCRIPT = paths.ROOT / "tools" / "extended.lua"
EXTENDED = 0xC0

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def packet(opcode: int, body: bytes, *, qpn: int = 0x123456, psn: int = 77) -> bytes:
    """A datagram of this opcode; its ICRC, which the dissector does not judge, is 0."""
    bth = struct.pack("!BBHII", opcode, 0x40, 0xFFFF, qpn, 1 << 31 | psn)
    return bth + body + bytes(4)


def decoded(folder: Path, *datagrams: bytes) -> list[dict[str, Any]]:
    """The fields of each packet as tshark has them, by name."""
    file = folder / "packets.pcap"
    frames = [
        Ether() / IP(src="198.18.0.1", dst="198.18.0.2") / UDP(sport=50000, dport=4791) / datagram
        for datagram in datagrams
    ]
    wrpcap(str(file), frames)
    argv = ["tshark", "-n", "-X", f"lua_script:{SCRIPT}", "-r", str(file), "-T", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    assert "Lua" not in done.stderr, done.stderr
    pairs = json.loads(done.stdout, object_pairs_hook=lambda found: found)
    return [_fields(pair) for pair in pairs]


def _fields(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(pairs, list):
        for item in pairs:
            if isinstance(item, tuple) and isinstance(item[1], str):
                found.setdefault(item[0], []).append(item[1])
            else:
                for name, values in _fields(item[1] if isinstance(item, tuple) else item).items():
                    found.setdefault(name, []).extend(values)
    return found


def numbers(fields: dict[str, Any], name: str) -> list[int]:
    return [int(text, 0) for text in fields.get(f"dpext.{name}", [])]


XDH = struct.pack("!IIIII", 0x11223344, 5, 4096, 99 << 8 | 3 << 1 | 1, 0x55667788)


def test_xdh_of_a_write(tmp_path: Path) -> None:
    reth = struct.pack("!QII", 0xABCDEF, 0x42, 65536)
    (fields,) = decoded(tmp_path, packet(0xC7, XDH + reth + b"p" * 64))
    assert numbers(fields, "opcode") == [0xC7]
    assert numbers(fields, "qpn") == [0x123456]
    assert numbers(fields, "psn") == [77]
    assert numbers(fields, "xdh.ts_ns") == [0x11223344]
    assert numbers(fields, "xdh.rq_seq") == [5]
    assert numbers(fields, "xdh.offset") == [4096]
    assert numbers(fields, "xdh.ack_psn") == [99]
    assert numbers(fields, "xdh.ack_ts_ns") == [0x55667788]
    assert numbers(fields, "xdh.thin") == [3]
    assert numbers(fields, "va") == [0xABCDEF]
    assert numbers(fields, "length") == [65536]
    assert fields["dpext.payload"] == [":".join(["70"] * 64)]
    assert "dpext.cut" not in fields


def test_telemetry_in_a_request(tmp_path: Path) -> None:
    xdh = struct.pack("!IIIII", 1, 2, 3, 2 << 4, 0)
    hop = struct.pack("!IIQ", 1500, 42, 10**9 << 24 | 25_000)
    body = xdh + struct.pack("!I", 1 << 24) + hop + bytes(16) + b"p" * 8
    (fields,) = decoded(tmp_path, packet(0xC4, body))
    assert numbers(fields, "xdh.records") == [2]
    assert numbers(fields, "hop.queue_bytes") == [1500]
    assert numbers(fields, "hop.tx_bytes") == [10**9]
    assert numbers(fields, "hop.rate_mbps") == [25_000]
    assert "dpext.xdh.ack_psn" not in fields
    assert fields["dpext.payload"] == [":".join(["70"] * 8)]


def test_lists_of_an_acknowledgement(tmp_path: Path) -> None:
    head = struct.pack("!IIIIIBBBBI", 1, 2, 3, 4, 64 << 8 | 2, 1, 1, 2, 0, 9)
    lists = struct.pack("!IIIII", 0xF0, 0x0F, 70, 71, 72)
    hop = struct.pack("!IIQ", 7, 8, 9 << 24 | 10)
    aeth = struct.pack("!I", 0x1F << 24 | 12)
    (fields,) = decoded(tmp_path, packet(0xD1, aeth + head + lists + hop))
    assert numbers(fields, "msn") == [12]
    assert numbers(fields, "xah.sack_base") == [64]
    assert numbers(fields, "xah.bitmap") == [0xF0, 0x0F]
    assert numbers(fields, "xah.trimmed_psn") == [70]
    assert numbers(fields, "xah.marked_psn") == [71, 72]
    assert numbers(fields, "xah.arrived_ns") == [9]
    assert numbers(fields, "hop.queue_bytes") == [7]
    assert numbers(fields, "icrc") == [0]


def test_bundles(tmp_path: Path) -> None:
    xdh = struct.pack("!IIIII", 1, 5, 2, 0, 0)
    reths = [struct.pack("!QII", 0xA0 + i, 0x42, 5 - 3 * i) for i in range(2)]
    writes = reths[0] + b"first" + bytes(3) + reths[1] + b"no" + bytes(2)
    sends = struct.pack("!I", 3) + b"one" + bytes(1) + struct.pack("!I", 0)
    wrote, sent, short = decoded(
        tmp_path,
        packet(0xE7, xdh + writes),
        packet(0xE8, xdh + sends),
        packet(0xE7, xdh + reths[0]),
    )
    assert numbers(wrote, "xdh.parts") == numbers(sent, "xdh.parts") == [2]
    assert numbers(wrote, "va") == [0xA0, 0xA1]
    assert numbers(wrote, "length") == [5, 2]
    assert numbers(sent, "length") == [3, 0]
    texts = [bytes.fromhex(p.replace(":", "")) for p in wrote["dpext.payload"]]
    assert texts == [b"first", b"no"]
    assert sent["dpext.payload"] == ["6f:6e:65"]
    assert numbers(wrote, "icrc") == numbers(sent, "icrc") == [0]
    assert "dpext.cut" not in {*wrote, *sent}
    assert "icrc" not in short


def test_hello(tmp_path: Path) -> None:
    body = struct.pack("!IIIHHI", 5 << 24 | 131072, 3, 0xABCDE, 1408, 0, 99)
    (fields,) = decoded(tmp_path, packet(0xE0, body, psn=0))
    assert numbers(fields, "hello.version") == [5]
    assert numbers(fields, "hello.window_psns") == [131072]
    assert numbers(fields, "hello.qpn") == [0xABCDE]
    assert numbers(fields, "hello.segment") == [1408]


def test_demand_grant_and_credit(tmp_path: Path) -> None:
    demand, grant = struct.pack("!5I", 7, 9000, 123, 12, 10), struct.pack("!II", 5000, 9000)
    asked, given, credit = decoded(
        tmp_path,
        packet(0xE4, demand, psn=0),
        packet(0xE5, grant, psn=0),
        packet(0xE6, struct.pack("!I", 13), psn=0),
    )
    assert numbers(asked, "demand.settled") == [7]
    assert numbers(asked, "wanted") == numbers(given, "wanted") == [9000]
    assert numbers(asked, "demand.rtt_ns") == [123]
    assert numbers(asked, "credit.number") == [12]
    assert numbers(asked, "demand.heard") == [10]
    assert numbers(credit, "credit.number") == [13]
    assert numbers(given, "grant.granted") == [5000]
    assert not {"dpext.payload", "dpext.cut"} & {*asked, *given, *credit}


def test_every_opcode_has_its_headers(tmp_path: Path) -> None:
    """Where the payload begins, of each extended opcode, is where the RC original's headers end."""
    datagrams, expected = [], []
    for opcode, row in OPCODES.items():
        extended = EXTENDED + opcode
        if opcode == 0x11:  # an acknowledgement has no payload
            continue
        head = b"" if opcode == 0x12 else XDH
        datagrams.append(packet(extended, head + bytes(own_bytes(row)) + b"payload!"))
        expected.append(extended)
    for fields, opcode in zip(decoded(tmp_path, *datagrams), expected, strict=True):
        assert numbers(fields, "opcode") == [opcode]
        assert fields.get("dpext.payload") == [":".join(f"{byte:02x}" for byte in b"payload!")], (
            hex(opcode)
        )


def own_bytes(row: Opcode) -> int:
    """Bytes of the headers of an extended packet behind XDH: every WRITE has a RETH, and no READ
    response an AETH."""
    extra = 16 if row.name.startswith("WRITE") and "reth" not in row.headers else 0
    less = 4 if row.kind is Kind.READ_RESPONSE and "aeth" in row.headers else 0
    return row.header_bytes + extra - less


@pytest.mark.parametrize("length", [12, 20, 31, 40, 47, 60])
def test_a_packet_that_is_cut_is_told(tmp_path: Path, length: int) -> None:
    """At any place; the next packet is decoded all the same."""
    whole = packet(0xC7, XDH + bytes(16) + b"p" * 64)
    first, second = decoded(tmp_path, whole[:length], whole)
    assert numbers(first, "opcode") == [0xC7]
    assert ("_ws.expert" in json.dumps(first)) == (length < 12 + 20 + 16)
    assert numbers(second, "length") == [0]


def test_standard_packets_stay_with_the_dissector_that_was_there(tmp_path: Path) -> None:
    reth = struct.pack("!QII", 0xABCDEF, 0x42, 64)
    (fields,) = decoded(tmp_path, packet(0x0A, reth + b"p" * 64))
    assert "dpext.opcode" not in fields
    assert fields["infiniband.bth.opcode"] == ["10"]


def test_constants_are_those_of_the_engine() -> None:
    """Lengths that the script repeats from wire/ext.h."""
    header = (paths.ROOT / "datapath" / "wire" / "ext.h").read_text()
    text = SCRIPT.read_text()
    names, values = re.findall(r"^local BTH, (.*) = 12, (.*)$", text, re.M)[0]
    told = dict(zip(names.split(", "), map(int, values.split(", ")), strict=True))
    for name in ("XDH", "XAH", "HELLO"):
        assert told[name] == int(re.findall(rf"DP_{name}_LEN = (\d+)", header)[0])
