# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The vocabulary of tests of unreliable datagrams, on top of ladder.py.

a, b = datagram_pair(world)
b.recv(100)
a.send_to(b, b"hello")
world.says(a, "UD_SEND_ONLY 100 len=5")
assert b.poll_recv() == [ok("RECV", byte_len=45)]
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from datapath.native import ffi, lib
from tests.engine import forge
from tests.engine.ladder import QP, Host, Memory, Options, Packet, World, check

GRH_LEN = 40
QKEY = 0x11223344
UD_OPTIONS = Options(type=lib.DP_QPT_UD)
RESET_TO_INIT = lib.DP_QP_STATE | lib.DP_QP_PKEY_INDEX | lib.DP_QP_PORT | lib.DP_QP_QKEY


class DatagramQP(QP):
    """A UD queue pair in RTS, and the address handles that it has used."""

    def __init__(self, host: Host, *, qkey: int = QKEY, psn: int = 100, **options: Any) -> None:
        super().__init__(host, dataclasses.replace(UD_OPTIONS, **options))
        self.qkey = qkey
        self.ahs: dict[bytes, Any] = {}
        check(self.modify(RESET_TO_INIT, state=lib.DP_QPS_INIT, qkey=qkey))
        check(self.to(lib.DP_QPS_RTR))
        check(self.modify(lib.DP_QP_STATE | lib.DP_QP_SQ_PSN, state=lib.DP_QPS_RTS, sq_psn=psn))

    def ah(self, to: Host) -> Any:
        if to.addr not in self.ahs:
            self.ahs[to.addr] = make_ah(self.host, to.addr)
        return self.ahs[to.addr]

    def send_to(self, peer: QP, data: bytes, *, qkey: int = QKEY, **options: Any) -> None:
        self.send(data, to=(self.ah(peer.host), peer.qpn, qkey), **options)

    def destroy(self) -> None:
        super().destroy()
        for ah in self.ahs.values():
            assert lib.dp_ah_destroy(ah) == 0
        self.ahs.clear()


def make_ah(host: Host, address: bytes, *, pd: Any = None, tos: int = 0) -> Any:
    to, out = ffi.new("struct dp_addr *"), ffi.new("struct dp_ah **")
    to.b = address
    check(lib.dp_ah_create(pd or host.pd, to, 0, tos, out))
    return out[0]


def datagram_pair(world: World, **options: Any) -> tuple[DatagramQP, DatagramQP]:
    return DatagramQP(world.a_host, **options), DatagramQP(world.b_host, psn=5000, **options)


def deth(qkey: int = QKEY, src_qpn: int = 7) -> bytes:
    return struct.pack("!II", qkey, src_qpn)


def forged(
    sender: QP,
    to: QP,
    payload: bytes = b"",
    *,
    opcode: int = 0x64,
    headers: bytes | None = None,
    psn: int = 0,
) -> Packet:
    """A datagram, or another packet of any opcode, that `sender` did not send."""
    pad = -len(payload) % 4
    body = forge.bth(opcode, to.qpn, psn, pad=pad) + (deth() if headers is None else headers)
    like = Packet(b"", sender.host.addr, to.host.addr, 0xC000, 0)
    return forge.sealed(like, body + payload + bytes(pad))


def ip_header(memory: Memory) -> bytes:
    """What stands in front of the datagram: 20 bytes of IPv4, or 40 of IPv6."""
    grh = bytes(memory)[:GRH_LEN]
    return grh if grh[0] >> 4 == 6 else grh[20:]
