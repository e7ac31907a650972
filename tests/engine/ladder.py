# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The vocabulary of protocol tests: two engines, a clock, and a wire in between.

A test reads like a ladder diagram:

    a, b = world.pair(a_psn=100)
    b.recv(4096)
    a.send(bytes(3000))
    world.says(a, "SEND_FIRST 100", "SEND_MIDDLE 101 lost", "SEND_LAST 102 ack")
    world.says(b, "NAK_SEQ 101")
    world.says(a, "SEND_MIDDLE 101", "SEND_LAST 102 ack")
    world.says(b, "ACK 102 msn=1")
    assert a.poll() == [ok("SEND")]

says(x, ...) takes all that x's engine sends now, compares it with the lines,
and gives it to the other engine.  A line is a set of words that the packet
must have: its name, its PSN, `ack` (AckReq), `se` (solicited), `becn`,
`msn=N`, `len=N` (payload), `carries=N` or `carries=no` (the cumulative
acknowledgement in an extended request).  `lost` at the end of a line loses the packet,
`twice` gives it twice, `corrupt` flips a bit of it, `marked` sets CE.

Time stands still unless advance(), expire() or run() moves it.
"""

from __future__ import annotations

import dataclasses
import heapq
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from datapath.native import ffi, lib
from tests.clib import in_c, testlib

US = 1_000
MS = 1_000_000
S = 1_000_000_000
GUARD = 64
FRAME = 9216
BATCH = 64
ALL_ACCESS = (
    lib.DP_ACCESS_LOCAL_WRITE
    | lib.DP_ACCESS_REMOTE_WRITE
    | lib.DP_ACCESS_REMOTE_READ
    | lib.DP_ACCESS_REMOTE_ATOMIC
)
V4 = (bytes(10) + b"\xff\xff\x0a\x00\x00\x01", bytes(10) + b"\xff\xff\x0a\x00\x00\x02")
V6 = (b"\xfd" + bytes(14) + b"\x01", b"\xfd" + bytes(14) + b"\x02")

SYNDROMES = {
    0x60: "NAK_SEQ",
    0x61: "NAK_INVALID",
    0x62: "NAK_ACCESS",
    0x63: "NAK_OPERATION",
    0x64: "NAK_RD",
}
COUNTS = {"n_trimmed": 24, "n_hops": 16, "n_marked": 8}
FATES = {"lost", "twice", "corrupt", "marked"}


def check(status: int) -> int:
    assert status >= 0, f"errno {-status}"
    return status


class Packet(NamedTuple):
    """One datagram on the wire; data runs from the BTH to the ICRC."""

    data: bytes
    src: bytes
    dst: bytes
    sport: int
    tos: int
    pay_len: int = 0  # of an engine that moves lengths only

    @property
    def opcode(self) -> int:
        return self.data[0]

    @property
    def psn(self) -> int:
        return int.from_bytes(self.data[9:12], "big")

    @property
    def dest_qpn(self) -> int:
        return int.from_bytes(self.data[5:8], "big")

    @property
    def mask(self) -> int:
        return int(lib.dp_opcodes[self.opcode].mask)

    @property
    def aeth(self) -> tuple[int, int]:
        """(syndrome, MSN); only on packets that carry an AETH."""
        at = 32 if self.mask & lib.DP_HAS_XDH else 12
        word = int.from_bytes(self.data[at : at + 4], "big")
        return word >> 24, word & 0xFFFFFF

    @property
    def name(self) -> str:
        info = lib.dp_opcodes[self.opcode]
        if info.name == ffi.NULL:
            return f"{self.opcode:02x}"
        name = ffi.string(info.name).decode()
        if name in ("ACK", "EXT_ACK") and self.aeth[0] >= 0x20:
            syndrome = self.aeth[0]
            return SYNDROMES.get(syndrome, "RNR" if syndrome < 0x40 else f"AETH_{syndrome:02x}")
        return name

    @property
    def header_len(self) -> int:
        length = int(lib.dp_opcodes[self.opcode].hdr_len)
        if self.mask & lib.DP_HAS_XAH:
            xah = self.xah()
            lists = xah["words"] + xah["n_trimmed"] + xah["n_marked"]
            length += 4 * lists + 16 * xah["n_hops"]
        if self.mask & lib.DP_HAS_XDH and self.mask & lib.DP_IS_REQUEST:
            length += self.room
        return length

    @property
    def room(self) -> int:
        """Bytes for telemetry in an extended request."""
        records = self.data[27] >> 4
        return 4 + 16 * records if records else 0

    @property
    def payload(self) -> bytes:
        pad = self.data[1] >> 4 & 3
        return self.data[self.header_len : len(self.data) - 4 - pad]

    def words(self) -> set[str]:
        words = {self.name, str(self.psn), f"len={len(self.payload)}"}
        if self.data[8] & 0x80:
            words.add("ack")
        if self.data[1] & 0x80:
            words.add("se")
        if self.data[4] & 0x40:
            words.add("becn")
        if self.mask & lib.DP_HAS_AETH:
            words.add(f"msn={self.aeth[1]}")
            words.add(f"syndrome={self.aeth[0]:02x}")
        if self.mask & lib.DP_HAS_XDH and self.mask & lib.DP_IS_REQUEST:
            xdh = self.xdh()
            words.add(f"carries={xdh['ack_psn'] if xdh['ack'] else 'no'}")
            words.add(f"room={self.room}")
        return words

    def __str__(self) -> str:
        words = self.words() - {self.name, str(self.psn)}
        return " ".join([self.name, str(self.psn), *sorted(words)])

    def corrupted(self, bit: int = 100) -> Packet:
        data = bytearray(self.data)
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        return self._replace(data=bytes(data))

    def marked(self) -> Packet:
        return self._replace(tos=self.tos | lib.DP_ECN_CE)

    def xdh(self) -> dict[str, int]:
        """Fields of the header of extended requests and READ responses."""
        assert self.mask & lib.DP_HAS_XDH
        ts_ns, word, offset, ack, ack_ts_ns = struct.unpack("!5I", self.data[12:32])
        name = "segment" if self.mask & lib.DP_IS_READ else "rq_seq"
        return {
            "ts_ns": ts_ns,
            "held_ns" if self.mask & lib.DP_IS_READ_RESP else name: word,
            "offset": offset,
            "ack": ack & 1,
            "thin": ack >> 1 & 7,
            "ack_psn": ack >> 8,
            "ack_ts_ns": ack_ts_ns,
        }

    def xah(self) -> dict[str, int]:
        """Fields of an extended acknowledgement."""
        assert self.mask & lib.DP_HAS_XAH
        names = ("ts_echo_ns", "ack_delay_ns", "marked", "duplicates", "last", "more", "arrived_ns")
        fields = dict(zip(names, struct.unpack("!7I", self.data[16:44]), strict=True))
        last, more = fields.pop("last"), fields.pop("more")
        counts = {name: more >> shift & 0xFF for name, shift in COUNTS.items()}
        return fields | {"sack_base": last >> 8, "words": last & 0xFF} | counts

    def listed(self, name: str) -> list[int]:
        """PSNs that an extended acknowledgement lists as `trimmed` or `marked`."""
        xah = self.xah()
        at = 44 + 4 * xah["words"] + (4 * xah["n_trimmed"] if name == "marked" else 0)
        return list(struct.unpack(f"!{xah['n_' + name]}I", self.data[at:][: 4 * xah["n_" + name]]))

    def sacked(self) -> set[int]:
        """PSNs that the bitmap of an extended acknowledgement names."""
        xah = self.xah()
        words = struct.unpack(f"!{xah['words']}I", self.data[44 : 44 + 4 * xah["words"]])
        return {
            (xah["sack_base"] + 32 * w + i) & 0xFFFFFF
            for w, word in enumerate(words)
            for i in range(32)
            if word >> i & 1
        }


class Completion(NamedTuple):
    """A work completion in words; fields that do not apply are None or ''."""

    opcode: str
    status: str = "SUCCESS"
    wr_id: int | None = None
    byte_len: int | None = None
    imm: int | None = None
    inv: int | None = None

    def __eq__(self, other: object) -> bool:
        """None on either side matches anything."""
        if not isinstance(other, Completion):
            return NotImplemented
        pairs = zip(self, other, strict=True)
        return all(x == y or x is None or y is None for x, y in pairs)

    __hash__ = None  # type: ignore[assignment]


def ok(opcode: str, **fields: int) -> Completion:
    return Completion(opcode, **fields)


def failed(status: str, **fields: int) -> Completion:
    return Completion(None, status, **fields)  # type: ignore[arg-type]


def _names(enum: str, prefix: str) -> dict[int, str]:
    return {v: n.removeprefix(prefix) for v, n in ffi.typeof(enum).elements.items()}


WC_STATUS = _names("enum dp_wc_status", "DP_WC_")
WC_OPCODE = _names("enum dp_wc_opcode", "DP_WC_")
QP_STATE = _names("enum dp_qp_state", "DP_QPS_")
EVENTS = _names("enum dp_event_type", "DP_EVENT_")


class Memory:
    """Registered memory between two guards; addr and key are what a peer is told."""

    def __init__(
        self,
        host: Host,
        content: bytes | int,
        *,
        access: int = ALL_ACCESS,
        pd: Any = None,
        iova: int | None = None,
        register: bool = True,
    ) -> None:
        size = content if isinstance(content, int) else len(content)
        self.size = size
        self._whole = ffi.new("uint8_t[]", b"\xa5" * (size + 2 * GUARD))
        self._start = self._whole + GUARD
        self.fill(bytes(size) if isinstance(content, int) else content)
        self.address = int(ffi.cast("uintptr_t", self._start))
        self.addr = self.address if iova is None else iova
        self.mr = ffi.NULL
        if register:
            out = ffi.new("struct dp_mr **")
            check(lib.dp_mr_create(pd or host.pd, self._start, size, self.addr, access, out))
            self.mr = out[0]
            self.key = int(lib.dp_mr_key(self.mr))
            host.memories.append(self)

    def fill(self, content: bytes) -> None:
        assert len(content) == self.size
        ffi.memmove(self._start, content, self.size)

    def __bytes__(self) -> bytes:
        return bytes(ffi.buffer(self._start, self.size))

    def guards_intact(self) -> bool:
        whole = bytes(ffi.buffer(self._whole, self.size + 2 * GUARD))
        return whole[:GUARD] == whole[-GUARD:] == b"\xa5" * GUARD

    def sge(self, offset: int = 0, length: int | None = None) -> tuple[int, int, int]:
        return self.addr + offset, self.size - offset if length is None else length, self.key

    def deregister(self) -> int:
        status = int(lib.dp_mr_destroy(self.mr))
        if status == 0:
            self.mr = ffi.NULL
        return status


class Host:
    """An engine with a PD, and what was made in it."""

    def __init__(self, world: World, name: str, addr: bytes, **config: Any) -> None:
        self.world = world
        self.name = name
        self.addr = addr
        self.memories: list[Memory] = []
        self.qps: list[QP] = []
        self.cqs: list[Any] = []
        self.pds: list[Any] = []
        settings = ffi.new("struct dp_engine_config *", {"path_mtu_max": 4096, "seed": 1} | config)
        settings.addr.b = addr
        self.config = settings
        out = ffi.new("struct dp_engine **")
        check(lib.dp_engine_create(settings, out))
        self.engine = out[0]
        self.pd = self.make_pd()
        # Whether a packet reaches another port of this host, which hands it on.
        self.goes_astray: Callable[[Packet], bool] = lambda packet: False
        self._unsaid: list[Packet] = []
        self._buffers = [ffi.new("uint8_t[]", FRAME) for _ in range(BATCH)]
        self._batch = ffi.new(f"struct dp_packet[{BATCH}]")

    def make_pd(self) -> Any:
        out = ffi.new("struct dp_pd **")
        check(lib.dp_pd_create(self.engine, out))
        self.pds.append(out[0])
        return out[0]

    def make_cq(self, entries: int = 1024) -> Any:
        out = ffi.new("struct dp_cq **")
        check(lib.dp_cq_create(self.engine, entries, ffi.NULL, out))
        self.cqs.append(out[0])
        return out[0]

    def memory(self, content: bytes | int, **options: Any) -> Memory:
        return Memory(self, content, **options)

    def send(self, most: int = BATCH) -> list[Packet]:
        """One dp_engine_tx() of up to `most` packets."""
        for i in range(most):
            self._batch[i].data, self._batch[i].cap = self._buffers[i], FRAME
        count = lib.dp_engine_tx(self.engine, self._batch, most, self.world.now)
        self.verify()
        return [self._taken(self._batch[i]) for i in range(count)]

    @staticmethod
    def _taken(p: Any) -> Packet:
        assert p.len <= FRAME
        data = bytes(ffi.buffer(p.data, p.len))
        return Packet(data, bytes(p.src.b), bytes(p.dst.b), p.sport, p.tos, p.pay_len)

    def has_something_to_say(self) -> bool:
        """A deadline of 0 alone may be about a queue pair that turns out to be silent."""
        self._unsaid = self.send_all()
        return bool(self._unsaid)

    def send_all(self) -> list[Packet]:
        packets, self._unsaid = self._unsaid, []
        while more := self.send():
            packets += more
            assert len(packets) < 100_000, f"{self.name} sends without end"
        return packets

    def as_c(self, packet: Packet) -> tuple[Any, Any]:
        """A struct dp_packet of it, and the bytes that live as long as it is used."""
        p = ffi.new("struct dp_packet *")
        buffer = in_c(packet.data)
        p.data, p.len = buffer, len(packet.data)
        p.src.b, p.dst.b = packet.src, packet.dst
        p.sport, p.tos, p.pay_len = packet.sport, packet.tos, packet.pay_len
        p.flags = lib.DP_PKT_NO_PAYLOAD if self.config.no_payload else 0
        p.flags |= lib.DP_PKT_HANDED_ON if self.goes_astray(packet) else 0
        return p, buffer

    def receive(self, packet: Packet, arrived_ns: int = 0, late_ns: int = 0) -> int:
        p, _buffer = self.as_c(packet)
        p.arrived_ns, p.late_ns = arrived_ns, late_ns
        status = int(lib.dp_engine_rx(self.engine, p, self.world.now))
        self.verify()
        return status

    @property
    def deadline(self) -> int:
        return int(lib.dp_engine_deadline(self.engine))

    def tick(self) -> None:
        lib.dp_engine_tick(self.engine, self.world.now)
        self.verify()

    def verify(self) -> None:
        """Every invariant of the engine's state holds."""
        why = lib.dp_engine_check(self.engine)
        assert why == ffi.NULL, f"{self.name}: {ffi.string(why).decode()}"

    def events(self) -> list[str]:
        out = ffi.new("struct dp_event *")
        found = []
        while lib.dp_engine_event(self.engine, out):
            found.append(EVENTS[out.type])
        return found

    def stats(self) -> dict[str, int]:
        return _counters("struct dp_engine_stats", lib.dp_engine_stats, self.engine)

    def close(self) -> None:
        """Takes everything apart, innermost first; nothing may refuse."""
        for qp in self.qps:
            qp.destroy()
        for memory in self.memories:
            if memory.mr != ffi.NULL:
                assert memory.deregister() == 0
        for cq in self.cqs:
            assert lib.dp_cq_destroy(cq) == 0
        for pd in self.pds:
            assert lib.dp_pd_destroy(pd) == 0
        lib.dp_engine_destroy(self.engine)


def _counters(struct_name: str, function: Any, of: Any) -> dict[str, int]:
    out = ffi.new(f"{struct_name} *")
    function(of, out)
    return {name: int(getattr(out, name)) for name, _ in ffi.typeof(struct_name).fields}


@dataclasses.dataclass
class Options:
    """How pair() makes and connects two queue pairs."""

    mtu: int = 1024
    a_psn: int = 100
    b_psn: int = 5000
    timeout: int = 14
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12
    rd_atomic: int = 16
    dscp: int = 0
    access: int = ALL_ACCESS
    max_send_wr: int = 256
    max_recv_wr: int = 256
    max_sge: int = 8
    max_inline: int = 256
    type: int = lib.DP_QPT_RC
    sq_sig_all: bool = False
    cq_entries: int = 1024
    pd: Any = None
    srq: Any = None
    cq: Any = None  # of both queues, instead of one for each


RESET_TO_INIT = lib.DP_QP_STATE | lib.DP_QP_PKEY_INDEX | lib.DP_QP_PORT | lib.DP_QP_ACCESS_FLAGS
INIT_TO_RTR = (
    lib.DP_QP_STATE
    | lib.DP_QP_AV
    | lib.DP_QP_PATH_MTU
    | lib.DP_QP_DEST_QPN
    | lib.DP_QP_RQ_PSN
    | lib.DP_QP_MAX_DEST_RD_ATOMIC
    | lib.DP_QP_MIN_RNR_TIMER
)
RTR_TO_RTS = (
    lib.DP_QP_STATE
    | lib.DP_QP_TIMEOUT
    | lib.DP_QP_RETRY_CNT
    | lib.DP_QP_RNR_RETRY
    | lib.DP_QP_SQ_PSN
    | lib.DP_QP_MAX_QP_RD_ATOMIC
)


class QP:
    """A queue pair and its verbs; memory that a verb needs is made for it."""

    def __init__(self, host: Host, options: Options) -> None:
        self.host = host
        self.world = host.world
        self.options = options
        self.send_cq = options.cq or host.make_cq(options.cq_entries)
        self.recv_cq = options.cq or host.make_cq(options.cq_entries)
        config = ffi.new("struct dp_qp_config *")
        config.type = options.type
        config.pd = options.pd or host.pd
        config.send_cq, config.recv_cq = self.send_cq, self.recv_cq
        config.srq = options.srq or ffi.NULL
        config.max_send_wr, config.max_recv_wr = options.max_send_wr, options.max_recv_wr
        config.max_send_sge = config.max_recv_sge = options.max_sge
        config.max_inline, config.sq_sig_all = options.max_inline, options.sq_sig_all
        out = ffi.new("struct dp_qp **")
        check(lib.dp_qp_create(host.engine, config, out))
        self.qp = out[0]
        self.qpn = int(lib.dp_qp_qpn(self.qp))
        self._made = ffi.new("uint8_t[]", testlib.X_qp_bytes(self.qp))
        testlib.X_qp_copy(self.qp, self._made)
        self.peer: QP = self
        self.algorithm: object = None  # lives as long as the QP uses it
        self._next_id = 0
        host.qps.append(self)

    # ---- life --------------------------------------------------------------

    def modify(self, mask: int, **fields: Any) -> int:
        attr = ffi.new("struct dp_qp_attr *")
        for name, value in fields.items():
            if name == "raddr":
                attr.raddr.b = value
            else:
                setattr(attr, name, value)
        status = self._verified(lib.dp_qp_modify(self.qp, attr, mask, self.world.now))
        if status == 0 and mask & lib.DP_QP_STATE and attr.state == lib.DP_QPS_RESET:
            self._is_as_made()
        return status

    def _is_as_made(self) -> None:
        at = testlib.X_qp_remains(self.qp, self._made)
        assert at == -1, f"byte {at} of the QP's struct outlives a reset (tests/engine/remains.c)"

    def _verified(self, status: int) -> int:
        self.host.verify()
        return int(status)

    def to(self, state: int) -> int:
        return self.modify(lib.DP_QP_STATE, state=state)

    def to_init(self) -> int:
        return self.modify(RESET_TO_INIT, state=lib.DP_QPS_INIT, access=self.options.access)

    def to_rtr(self, peer: QP, rq_psn: int) -> int:
        self.peer = peer
        return self.modify(
            INIT_TO_RTR,
            state=lib.DP_QPS_RTR,
            raddr=peer.host.addr,
            path_mtu=self.options.mtu,
            tos=self.options.dscp << 2,
            dest_qpn=peer.qpn,
            rq_psn=rq_psn,
            max_dest_rd_atomic=self.options.rd_atomic,
            min_rnr_timer=self.options.min_rnr_timer,
        )

    def to_rts(self, sq_psn: int) -> int:
        return self.modify(
            RTR_TO_RTS,
            state=lib.DP_QPS_RTS,
            timeout=self.options.timeout,
            retry_cnt=self.options.retry_cnt,
            rnr_retry=self.options.rnr_retry,
            sq_psn=sq_psn,
            max_rd_atomic=self.options.rd_atomic,
        )

    @property
    def attr(self) -> Any:
        attr = ffi.new("struct dp_qp_attr *")
        lib.dp_qp_query(self.qp, attr)
        return attr

    @property
    def state(self) -> str:
        return QP_STATE[self.attr.state]

    @property
    def extended(self) -> bool:
        return bool(lib.dp_qp_extended(self.qp))

    def stats(self) -> dict[str, int]:
        return _counters("struct dp_qp_stats", lib.dp_qp_stats, self.qp)

    def destroy(self) -> None:
        if self.qp != ffi.NULL:
            assert lib.dp_qp_destroy(self.qp) == 0
            self.qp = ffi.NULL

    # ---- work requests -------------------------------------------------------

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def post_send(
        self,
        opcode: int,
        sges: list[tuple[int, int, int]],
        *,
        wr_id: int | None = None,
        signaled: bool = True,
        solicited: bool = False,
        inline: bool = False,
        fence: bool = False,
        imm: int = 0,
        remote: tuple[int, int] = (0, 0),
        compare_add: int = 0,
        swap: int = 0,
        flush: tuple[int, int, int] | None = None,
        to: tuple[Any, int, int] = (ffi.NULL, 0, 0),
    ) -> int:
        """dp_qp_post_send(); returns its status."""
        list_ = ffi.new("struct dp_sge[]", [dict(zip(SGE, s, strict=True)) for s in sges])
        wr = ffi.new("struct dp_send_wr *")
        wr.wr_id = self.next_id() if wr_id is None else wr_id
        wr.opcode, wr.num_sge, wr.sge = opcode, len(sges), list_
        wr.flags = (
            (lib.DP_SEND_SIGNALED if signaled else 0)
            | (lib.DP_SEND_SOLICITED if solicited else 0)
            | (lib.DP_SEND_INLINE if inline else 0)
            | (lib.DP_SEND_FENCE if fence else 0)
        )
        wr.imm = imm
        wr.remote_addr, wr.rkey = remote
        wr.compare_add, wr.swap = compare_add, swap
        if flush is not None:
            wr.placement, wr.selectivity, wr.flush_len = flush
        wr.ah, wr.remote_qpn, wr.remote_qkey = to
        return self._verified(lib.dp_qp_post_send(self.qp, wr))

    def post_recv(self, sges: list[tuple[int, int, int]], wr_id: int | None = None) -> int:
        list_ = ffi.new("struct dp_sge[]", [dict(zip(SGE, s, strict=True)) for s in sges])
        wr = ffi.new("struct dp_recv_wr *")
        wr.wr_id = self.next_id() if wr_id is None else wr_id
        wr.num_sge, wr.sge = len(sges), list_
        return self._verified(lib.dp_qp_post_recv(self.qp, wr))

    def recv(self, size: int, **options: Any) -> Memory:
        memory = self.host.memory(size)
        check(self.post_recv([memory.sge()] if size else [], **options))
        return memory

    def send(self, data: bytes, **options: Any) -> None:
        opcode = lib.DP_WR_SEND_WITH_IMM if "imm" in options else lib.DP_WR_SEND
        if (inv := options.pop("inv", None)) is not None:
            opcode, options["imm"] = lib.DP_WR_SEND_WITH_INV, inv
        check(self.post_send(opcode, self._source(data), **options))

    def write(self, data: bytes, target: Memory | tuple[int, int], **options: Any) -> None:
        opcode = lib.DP_WR_RDMA_WRITE_WITH_IMM if "imm" in options else lib.DP_WR_RDMA_WRITE
        check(self.post_send(opcode, self._source(data), remote=where(target), **options))

    def read(self, size: int, source: Memory | tuple[int, int], **options: Any) -> Memory:
        into = self.host.memory(size)
        sges = [into.sge()] if size else []
        check(self.post_send(lib.DP_WR_RDMA_READ, sges, remote=where(source), **options))
        return into

    def cas(
        self, target: Memory | tuple[int, int], compare: int, swap: int, **options: Any
    ) -> Memory:
        return self._atomic(
            lib.DP_WR_ATOMIC_CMP_AND_SWP, target, compare_add=compare, swap=swap, **options
        )

    def faa(self, target: Memory | tuple[int, int], add: int, **options: Any) -> Memory:
        return self._atomic(lib.DP_WR_ATOMIC_FETCH_AND_ADD, target, compare_add=add, **options)

    def _atomic(self, opcode: int, target: Memory | tuple[int, int], **options: Any) -> Memory:
        into = self.host.memory(8)
        check(self.post_send(opcode, [into.sge()], remote=where(target), **options))
        return into

    def atomic_write(self, data: bytes, target: Memory | tuple[int, int], **options: Any) -> None:
        sges = self._source(data)
        check(self.post_send(lib.DP_WR_ATOMIC_WRITE, sges, remote=where(target), **options))

    def flush(
        self,
        target: Memory | tuple[int, int],
        length: int,
        *,
        placement: int = lib.DP_FETH_GLOBAL,
        selectivity: int = lib.DP_FETH_RANGE,
        **options: Any,
    ) -> None:
        asked = (placement, selectivity, length)
        check(self.post_send(lib.DP_WR_FLUSH, [], remote=where(target), flush=asked, **options))

    def _source(self, data: bytes) -> list[tuple[int, int, int]]:
        return [self.host.memory(data).sge()] if data else []

    # ---- completions -----------------------------------------------------------

    def poll(self, *, cq: Any = None, most: int = 1024) -> list[Completion]:
        """Completions of the send queue (or of `cq`), oldest first."""
        out = ffi.new(f"struct dp_wc[{most}]")
        count = check(lib.dp_cq_poll(cq or self.send_cq, most, out))
        return [self._completion(out[i]) for i in range(count)]

    def poll_recv(self) -> list[Completion]:
        return self.poll(cq=self.recv_cq)

    def _completion(self, wc: Any) -> Completion:
        assert wc.qpn == self.qpn
        succeeded = wc.status == lib.DP_WC_SUCCESS
        received = succeeded and wc.opcode >= lib.DP_WC_RECV
        imm = wc.imm if wc.flags & lib.DP_WC_WITH_IMM else None
        inv = wc.invalidated_rkey if wc.flags & lib.DP_WC_WITH_INV else None
        return Completion(
            WC_OPCODE[wc.opcode] if succeeded else None,  # type: ignore[arg-type]
            WC_STATUS[wc.status],
            wc.wr_id,
            wc.byte_len if received or wc.opcode == lib.DP_WC_RDMA_READ else None,
            imm if succeeded else None,
            inv if succeeded else None,
        )


SGE = ("addr", "length", "lkey")


def where(target: Memory | tuple[int, int]) -> tuple[int, int]:
    return (target.addr, target.key) if isinstance(target, Memory) else target


@dataclasses.dataclass
class Channel:
    """What run() does to packets; the shares are probabilities per packet."""

    latency_ns: int = 10 * US
    jitter_ns: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    mark: float = 0.0
    rate_bps: float = 0.0
    seed: int = 0
    # called for each packet: True loses it
    lose: Callable[[Host, Packet], bool] | None = None


class World:
    """Two hosts, their clock and the wire between them.

    config: fields of struct dp_engine_config, for both; b_... for B alone.
    """

    def __init__(self, *, v6: bool = False, extended: bool = False, **config: Any) -> None:
        self.now = 1 * S
        addresses = V6 if v6 else V4
        config = {"extended": int(extended)} | config
        mine = {k: v for k, v in config.items() if not k.startswith("b_")}
        b_only = {k[2:]: v for k, v in config.items() if k.startswith("b_")}
        self.a_host = Host(self, "a", addresses[0], **mine)
        self.b_host = Host(self, "b", addresses[1], **mine | {"seed": 2} | b_only)
        self.hosts = (self.a_host, self.b_host)
        self.lost: list[Packet] = []
        self.log: list[tuple[int, str, Packet]] = []

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for host in self.hosts:
            assert all(m.guards_intact() for m in host.memories), f"{host.name}: guard overwritten"
            host.close()

    def other(self, host: Host) -> Host:
        return self.b_host if host is self.a_host else self.a_host

    # ---- connection ----------------------------------------------------------

    def pair(self, **options: Any) -> tuple[QP, QP]:
        """Two connected queue pairs in RTS; options: class Options, b_... for B alone."""
        mine = {k: v for k, v in options.items() if not k.startswith("b_") or k == "b_psn"}
        b_only = {k[2:]: v for k, v in options.items() if k.startswith("b_") and k != "b_psn"}
        settings = Options(**mine)
        a = QP(self.a_host, settings)
        b = QP(self.b_host, dataclasses.replace(settings, **b_only))
        for qp, peer, rq_psn in ((a, b, settings.b_psn), (b, a, settings.a_psn)):
            check(qp.to_init())
            check(qp.to_rtr(peer, rq_psn))
        check(a.to_rts(settings.a_psn))
        check(b.to_rts(settings.b_psn))
        return a, b

    def extended_pair(self, **options: Any) -> tuple[QP, QP]:
        """A pair that has agreed on extended mode."""
        a, b = self.pair(**options)
        self.run(until=lambda: a.extended and b.extended, limit_ns=1 * S)
        assert a.extended
        assert b.extended
        self.settle()
        return a, b

    def settle(self) -> None:
        """Exchanges what is to be said now, until both are silent."""
        for _ in range(1000):
            packets = [(h, p) for h in self.hosts for p in h.send_all()]
            if not packets:
                return
            for host, packet in packets:
                self.give(self.other(host), packet)
        raise AssertionError("the two never fall silent")

    # ---- the ladder -----------------------------------------------------------

    def says(self, who: QP | Host, *lines: str) -> list[Packet]:
        """What `who` sends now is exactly this, and is given to the other."""
        host = who.host if isinstance(who, QP) else who
        packets = host.send_all()
        told = [p.words() for p in packets]
        meant = [set(line.split()) - FATES for line in lines]
        agree = len(told) == len(meant) and all(m <= t for m, t in zip(meant, told, strict=True))
        if not agree:
            wanted = "\n  ".join(lines) or "nothing"
            sent = "\n  ".join(str(p) for p in packets) or "nothing"
            raise AssertionError(f"{host.name} was to say\n  {wanted}\nand said\n  {sent}")
        for packet, line in zip(packets, lines, strict=True):
            self._deliver(host, packet, set(line.split()) & FATES)
        return packets

    def _deliver(self, host: Host, packet: Packet, fates: set[str]) -> None:
        if "lost" in fates:
            self.lost.append(packet)
            return
        if "corrupt" in fates:
            packet = packet.corrupted()
        if "marked" in fates:
            packet = packet.marked()
        for _ in range(2 if "twice" in fates else 1):
            self.give(self.other(host), packet)

    def silent(self, *who: QP | Host) -> None:
        for one in who or self.hosts:
            self.says(one)

    def give(self, host: Host, packet: Packet, *, arrived_ns: int = 0, late_ns: int = 0) -> int:
        """The host reads the packet now; arrived_ns: when it arrived, 0: not known."""
        self.log.append((self.now, host.name, packet))
        return host.receive(packet, arrived_ns, late_ns)

    def advance(self, ns: int) -> None:
        """Time passes, and both engines hear of it at each of their deadlines."""
        end = self.now + ns
        while True:
            due = [h.deadline for h in self.hosts if self.now < h.deadline <= end]
            self.now = min(due, default=end)
            for host in self.hosts:
                host.tick()
            if self.now == end:
                return

    def expire(self, who: QP | Host, limit_ns: int = 100 * S) -> int:
        """Time passes until `who` has something to say or waits for nothing; returns how much."""
        host = who.host if isinstance(who, QP) else who
        start = self.now
        while not host.has_something_to_say() and (deadline := host.deadline) != lib.DP_NEVER:
            assert deadline - start <= limit_ns, f"{host.name} says nothing for too long"
            self.advance(max(0, deadline - self.now))
        return self.now - start

    # ---- long runs --------------------------------------------------------------

    def run(
        self,
        channel: Channel | None = None,
        *,
        until: Callable[[], bool] | None = None,
        limit_ns: int = 10 * S,
        each: Callable[[], None] | None = None,
    ) -> bool:
        """Moves packets and time until `until` holds, or all is quiet, or the limit.

        `each` is called after every packet that was delivered.  Returns whether
        `until` held (without `until`: whether all fell quiet).
        """
        link = Link(self, channel or Channel())
        end = self.now + limit_ns
        while self.now <= end:
            link.collect()
            if until is not None and until():
                return True
            due = link.next_event()
            if due == lib.DP_NEVER:
                return until is None
            self.now = max(self.now, due)
            link.deliver(each)
            for host in self.hosts:
                host.tick()
        return False


class Link:
    """The packets in flight of one run()."""

    def __init__(self, world: World, channel: Channel) -> None:
        self.world = world
        self.channel = channel
        self.random = random.Random(channel.seed)
        self.flight: list[tuple[int, int, Host, Packet]] = []
        self.count = 0
        self.free_at = dict.fromkeys(world.hosts, 0)

    def collect(self) -> None:
        for host in self.world.hosts:
            for packet in host.send_all():
                self._depart(host, packet)

    def _depart(self, host: Host, packet: Packet) -> None:
        channel, rng = self.channel, self.random
        at = max(self.world.now, self.free_at[host])
        if channel.rate_bps:
            at += int((len(packet.data) + 66) * 8e9 / channel.rate_bps)
            self.free_at[host] = at
        if (channel.lose and channel.lose(host, packet)) or rng.random() < channel.loss:
            self.world.lost.append(packet)
            return
        if rng.random() < channel.corrupt:
            packet = packet.corrupted(rng.randrange(8 * len(packet.data)))
        if rng.random() < channel.mark:
            packet = packet.marked()
        for _ in range(2 if rng.random() < channel.duplicate else 1):
            delay = channel.latency_ns + (
                rng.randrange(channel.jitter_ns) if channel.jitter_ns else 0
            )
            self.count += 1
            entry = (at + delay, self.count, self.world.other(host), packet)
            heapq.heappush(self.flight, entry)

    def next_event(self) -> int:
        deadlines = [h.deadline for h in self.world.hosts]
        return min(deadlines + [entry[0] for entry in self.flight[:1]])

    def deliver(self, each: Callable[[], None] | None) -> None:
        while self.flight and self.flight[0][0] <= self.world.now:
            _, _, host, packet = heapq.heappop(self.flight)
            self.world.give(host, packet)
            if each:
                each()


def lose_probably(world: World, a: QP, latency_ns: int) -> None:
    """Single messages of `a` are lost until it takes losses for likely, and copies for worth it."""
    target = a.peer.host.memory(1)
    for _ in range(2):
        a.write(b"x", target)
        a.host.send_all()
        assert world.run(Channel(latency_ns))


def pattern(length: int, seed: int = 0) -> bytes:
    """Bytes in which any misplaced piece shows."""
    return random.Random(seed).randbytes(length)


def packets_of(length: int, mtu: int) -> int:
    return max(1, -(-length // mtu))


def psns(start: int, count: int) -> Iterator[int]:
    return ((start + i) & 0xFFFFFF for i in range(count))
