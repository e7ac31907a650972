# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets that no engine of ours would send, with a right ICRC."""

from __future__ import annotations

import struct

from datapath.native import ffi, lib
from tests.clib import in_c
from tests.engine.ladder import QP, Memory, Packet, S


def sealed(like: Packet, body: bytes) -> Packet:
    """`body` (BTH to payload and pad) with its ICRC, from and to where `like` went."""
    p = ffi.new("struct dp_packet *")
    buffer = in_c(body + bytes(4))
    p.data, p.len, p.cap = buffer, len(body), len(body) + 4
    p.src.b, p.dst.b, p.sport, p.tos = like.src, like.dst, like.sport, like.tos
    lib.dp_icrc_append(p)
    return like._replace(data=bytes(ffi.buffer(buffer, len(body) + 4)))


def bth(opcode: int, qpn: int, psn: int, *, pad: int = 0, ack: bool = False) -> bytes:
    word = (0x80 if ack else 0) << 24 | psn
    return struct.pack("!BBHII", opcode, 0x40 | pad << 4, 0xFFFF, qpn, word)


def packet(
    sender: QP,
    opcode: int,
    psn: int,
    headers: bytes = b"",
    payload: bytes = b"",
    *,
    ack: bool = True,
) -> Packet:
    """A packet as if `sender` had sent it to its peer."""
    pad = -len(payload) % 4
    body = bth(opcode, sender.peer.qpn, psn, pad=pad, ack=ack) + headers + payload + bytes(pad)
    return sealed(Packet(b"", sender.host.addr, sender.peer.host.addr, 0xC000, 0), body)


def reth(memory: Memory, length: int, *, offset: int = 0, rkey: int | None = None) -> bytes:
    key = memory.key if rkey is None else rkey
    return struct.pack("!QII", (memory.addr + offset) % 2**64, key, length)


def xdh(rq_seq: int = 0, offset: int = 0, *, segment: int = 0, ts_ns: int = 2 * S) -> bytes:
    """The header of an extended request that carries no acknowledgement.

    segment: of a READ, in the place of rq_seq.  ts_ns: a World's clock begins at 1 s.
    """
    return struct.pack("!5I", ts_ns, rq_seq or segment, offset, 0, 0)


def atomic_eth(va: int, rkey: int, swap_add: int = 1, compare: int = 0) -> bytes:
    return struct.pack("!QIQQ", va, rkey, swap_add, compare)


def feth(placement: int, selectivity: int) -> bytes:
    return struct.pack("!I", selectivity << 4 | placement)


def aeth(syndrome: int, msn: int) -> bytes:
    return struct.pack("!I", syndrome << 24 | msn)
