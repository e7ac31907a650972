#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every operation of a reliable connection between two verbs devices, each byte checked.

    tools/conform.py -d rxe0                          # server
    tools/conform.py -d dp0 --requester client HOST   # client

One side requests: SEND, RDMA WRITE (both also with immediate), SEND with
invalidate, READ, compare-and-swap and fetch-and-add, in sizes that need every
form of packet, several at a time, mixed, toward a receiver that is late, in
both directions at once, and at last with a key that was invalidated; with
--atomic-write, ATOMIC WRITE as well.  The other side responds.  Memory around
every message is checked as well.

Prints one JSON document: what was done and verified, or which operation, size,
message and byte went wrong; exit status 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from pyverbs.cq import CQ, WC
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MW_TYPE_2,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WC_REM_ACCESS_ERR,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WITH_IMM,
    IBV_WC_WITH_INV,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_ATOMIC_WRITE,
    IBV_WR_BIND_MW,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV,
)
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
from rc import PORT, control_socket, exchange, open_device, pattern, to_rts

DEPTH = 256
AREA = 1 << 20
OUT, IN, SOURCE, RESULT = (i * AREA for i in range(4))
"""Parts of a side's memory: sent from, received into, read by the peer, results of own READs."""
GUARD = 0xA5
GUARD_BYTES = 64
KEY_BYTES = 64  # memory behind each key that is to be invalidated
LATE_S = 0.03
MIN_RNR_TIMER = 20  # 10.24 ms
MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC

OPCODES = {
    "send": IBV_WR_SEND,
    "send_imm": IBV_WR_SEND_WITH_IMM,
    "send_inv": IBV_WR_SEND_WITH_INV,
    "write": IBV_WR_RDMA_WRITE,
    "write_imm": IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": IBV_WR_RDMA_READ,
    "cas": IBV_WR_ATOMIC_CMP_AND_SWP,
    "faa": IBV_WR_ATOMIC_FETCH_AND_ADD,
    "atomic_write": IBV_WR_ATOMIC_WRITE,
}
RXE_WITH_INV = 1 << 2
"""rxe sets this in place of IBV_WC_WITH_INV, 1 << 3: the kernel's own number of the flag."""

SENDS = ("send", "send_imm", "send_inv")
RECEIVED = (*SENDS, "write_imm")
WRITES = ("write", "write_imm", "atomic_write")
ATOMICS = ("cas", "faa")
WORDS = (*ATOMICS, "atomic_write")
"""Requests of eight bytes."""


class Failure(Exception):
    """A mismatch, or a request that failed: `text`, and where it was."""

    def __init__(self, text: str, **where: int | str) -> None:
        super().__init__(text)
        self.where = where


@dataclass(frozen=True)
class Message:
    """One request.  `slot` numbers its place in every area, `at` is the place's offset."""

    op: str
    size: int
    slot: int
    at: int

    @property
    def stride(self) -> int:
        """Bytes that belong to it, with the guard behind its data."""
        return stride(self.size)

    def where(self) -> dict[str, int | str]:
        """For a Failure."""
        return {"op": self.op, "size": self.size, "message": self.slot}

    @property
    def solicited(self) -> bool:
        return self.slot % 2 == 1


@dataclass(frozen=True)
class Case:
    """Messages that are outstanding together; `late`: the receiver posts too late at first."""

    name: str
    messages: tuple[Message, ...]
    late: bool = False
    duplex: bool = False


def stride(size: int) -> int:
    """Atomics need slots of whole words."""
    return (size + 7 & ~7) + GUARD_BYTES


def messages(plan: list[tuple[str, int]]) -> tuple[Message, ...]:
    at = 0
    result = []
    for slot, (op, size) in enumerate(plan):
        result.append(Message(op, size, slot, at))
        at += stride(size)
    if at > AREA:
        raise ValueError(f"a case of {at} bytes")
    return tuple(result)


def mixed(
    mtu: int, seed: int, count: int, empty: bool, *, atomic_writes: bool = False
) -> tuple[Message, ...]:
    """Operations of all kinds in any order; those that invalidate have cases of their own.

    empty: READs and WRITEs of no bytes are among them.
    """
    pick = random.Random(seed)
    left_out = ("send_inv",) if atomic_writes else ("send_inv", "atomic_write")
    kinds = [op for op in OPCODES if op not in left_out]
    sizes = (0, 1, 7, 64, mtu - 1, mtu, mtu + 1, 3 * mtu + 2)
    plan = []
    for _ in range(count):
        op = pick.choice(kinds)
        fitting = sizes if empty or op in SENDS else sizes[1:]
        plan.append((op, 8 if op in WORDS else pick.choice(fitting)))
    return messages(plan)


def cases(
    mtu: int,
    *,
    empty_reads: bool = True,
    empty_duplex: bool = True,
    windows: bool = True,
    atomic_writes: bool = False,
) -> Iterator[Case]:
    """The operations in order; both sides make the same list.

    empty_reads: READs of no bytes, and WRITEs of no bytes beside READs, in one
    direction.  empty_duplex: the same in both.  windows: the responder has memory windows,
    so that it has keys that may be invalidated.
    """
    small = (0, 1, 2, 3, 4, mtu - 1, mtu)
    sizes = (*small, mtu + 1, 2 * mtu, 2 * mtu + 2, 3 * mtu, 4 * mtu + 3)
    for op in OPCODES:
        if op not in WORDS and (windows or op != "send_inv"):
            for size in sizes:
                if size or op != "read" or empty_reads:
                    yield Case(op, messages([(op, size)] * 4))
    for op in ("send", "write", "read"):
        yield Case(op, messages([(op, 65537)] * 4))
    for op in ATOMICS:
        yield Case(op, messages([(op, 8)] * 32))
    for op in RECEIVED:
        if op != "send_inv":
            for size in (0, 5, mtu + 1):
                yield Case(f"late {op}", messages([(op, size)] * 3), late=True)
    for seed in range(3):
        yield Case("mixed", mixed(mtu, seed, 64, empty_reads))
    for seed in range(2):
        yield Case("duplex", mixed(mtu, 100 + seed, 64, empty_duplex), duplex=True)
    if atomic_writes:
        yield Case("atomic_write", messages([("atomic_write", 8)] * 32))
        yield Case("mixed", mixed(mtu, 3, 64, empty_reads, atomic_writes=True))


# Atomics of a slot all go to one word of its own: what is there before, the operands, after.
def initial(message: Message, seed: int) -> int:
    return int.from_bytes(pattern(8, message.slot, seed), "little")


def compare_of(message: Message, seed: int) -> int:
    """Every second compare-and-swap finds another value than it compares with."""
    return initial(message, seed) ^ (message.slot & 1)


def operand(message: Message, seed: int) -> int:
    return int.from_bytes(pattern(8, message.slot + 1000, seed), "little")


def final(message: Message, seed: int) -> int:
    before = initial(message, seed)
    if message.op == "faa":
        return (before + operand(message, seed)) % 2**64
    return operand(message, seed) if compare_of(message, seed) == before else before


class Side:
    """This end of the connection: memory, queues, and the control channel to the other end."""

    def __init__(self, context: Context, control: socket.socket, args: argparse.Namespace) -> None:
        self.control, self.timeout_s = control, float(args.timeout)
        self.stream = control.makefile("rb")
        self.device = str(context.name)
        self.with_inv = RXE_WITH_INV if self.device.startswith("rxe") else IBV_WC_WITH_INV
        self.pd = PD(context)
        self.windows = self._has_windows()
        access = IBV_ACCESS_LOCAL_WRITE | REMOTE
        self.mr = MR(self.pd, 4 * AREA, access | (IBV_ACCESS_MW_BIND if self.windows else 0))
        self.keys: list[MW] = []
        self.send_cq, self.recv_cq = (CQ(context, DEPTH, None, None, 0) for _ in range(2))
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = access
        init = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.send_cq, rcq=self.recv_cq, cap=cap)
        self.qp = QP(self.pd, init, attr)
        self.psn = args.psn if args.psn is not None else random.getrandbits(24)
        self.peer: dict[str, int | str] = {}

    def _has_windows(self) -> bool:
        """Whether the device has memory windows of type 2."""
        try:
            MW(self.pd, IBV_MW_TYPE_2).close()
        except PyverbsRDMAError:
            return False
        return True

    def connect(self, mtu: int, gid_index: int) -> None:
        to_rts(
            self.qp,
            self.psn,
            self.peer,
            mtu=MTUS[mtu],
            gid_index=gid_index,
            min_rnr_timer=MIN_RNR_TIMER,
        )

    def close(self) -> None:
        for key in self.keys:
            key.close()
        for thing in (self.qp, self.send_cq, self.recv_cq, self.mr, self.pd):
            thing.close()

    # -- control channel

    def tell(self, **facts: object) -> None:
        self.control.sendall(json.dumps(facts).encode() + b"\n")

    def hear(self) -> dict[str, object]:
        """The next line of the other side; Failure with its words when it failed."""
        try:
            line = self.stream.readline()
        except TimeoutError:
            raise Failure(f"the other side said nothing for {self.timeout_s:g} s") from None
        if not line:
            raise Failure("the other side went away")
        facts = json.loads(line)
        assert isinstance(facts, dict)
        if "error" in facts:
            raise Failure(f"the other side: {facts['error']}", **facts["where"])
        return facts

    # -- memory

    def put(self, area: int, message: Message, data: bytes) -> None:
        self.mr.write(data, len(data), area + message.at)

    def clear(self, area: int, message: Message) -> None:
        """Guard bytes in all of the place."""
        self.put(area, message, bytes([GUARD]) * message.stride)

    def check(self, area: int, message: Message, wanted: bytes) -> int:
        """Compare data and the guard behind it; the number of bytes that were right."""
        whole = wanted + bytes([GUARD]) * (message.stride - len(wanted))
        got = self.mr.read(len(whole), area + message.at)
        if got != whole:
            byte = next(i for i in range(len(whole)) if got[i] != whole[i])
            what = "data" if byte < len(wanted) else "memory behind the data"
            raise Failure(
                f"{what}: {got[byte]:#04x} and not {whole[byte]:#04x}",
                **message.where(),
                byte=byte,
            )
        return len(wanted)

    # -- requests and completions

    def wait(self, cq: CQ, what: str) -> WC:
        limit = time.monotonic() + self.timeout_s
        while True:
            count, completions = cq.poll(1)
            if count:
                return completions[0]
            if time.monotonic() > limit:
                raise Failure(f"no completion of {what} for {self.timeout_s:g} s")
            time.sleep(0)

    def post(self, message: Message, seed: int, key: int | None = None) -> None:
        """Request `message` of the peer; `key` is what a SEND invalidates or a WRITE uses."""
        local = RESULT if message.op in (*ATOMICS, "read") else OUT
        remote = SOURCE if message.op in (*ATOMICS, "read") else IN
        flags = IBV_SEND_SIGNALED | (IBV_SEND_SOLICITED if message.solicited else 0)
        sge = SGE(self.mr.buf + local + message.at, message.size, self.mr.lkey)
        wr = SendWR(
            wr_id=message.slot, num_sge=1, sg=[sge], opcode=OPCODES[message.op], send_flags=flags
        )
        address = int(self.peer["buf"]) + remote + message.at
        rkey = int(self.peer["rkey"])
        if message.op in ATOMICS:
            add = message.op == "faa"
            first = operand(message, seed) if add else compare_of(message, seed)
            wr.set_wr_atomic(rkey, address, first, 0 if add else operand(message, seed))
        elif message.op not in SENDS:
            wr.set_wr_rdma(rkey, address)
        # The immediate and the key to invalidate share a field.
        wr.imm_data = key if key is not None else immediate(message, seed)
        self.qp.post_send(wr, None)

    def post_receive(self, message: Message) -> None:
        size = message.size if message.op in SENDS else 0
        sge = SGE(self.mr.buf + IN + message.at, size, self.mr.lkey)
        self.qp.post_recv(RecvWR(wr_id=message.slot, num_sge=1, sg=[sge]), None)

    # -- keys that the peer invalidates

    def make_keys(self, count: int) -> list[int]:
        """Fresh remote keys: bound windows, since no peer may invalidate ordinary memory."""
        for key in self.keys:
            key.close()
        self.keys = []
        access = IBV_ACCESS_REMOTE_WRITE
        rkeys = []
        for i in range(count):
            window = MW(self.pd, IBV_MW_TYPE_2)
            self.keys.append(window)
            start = self.mr.buf + RESULT + i * KEY_BYTES
            wr = SendWR(opcode=IBV_WR_BIND_MW, num_sge=0, sg=[])
            wr.set_bind_wr(window, MWBindInfo(self.mr, start, KEY_BYTES, access))
            rkeys.append(wr.rkey)
            self.qp.post_send(wr, None)
            if self.wait(self.send_cq, "a bind").status != IBV_WC_SUCCESS:
                raise Failure("a memory window could not be bound")
        return rkeys


def immediate(message: Message, seed: int) -> int:
    return (seed << 16 | message.slot) & 0xFFFFFFFF


# -- one case, seen from the requester and from the responder; `seed` differs between directions


def prepare_requester(side: Side, case: Case, seed: int) -> None:
    for message in case.messages:
        side.put(OUT, message, pattern(message.size, message.slot, seed))
        side.clear(RESULT, message)


def prepare_responder(side: Side, case: Case, seed: int) -> None:
    for message in case.messages:
        side.clear(IN, message)
        side.clear(SOURCE, message)
        if message.op in ATOMICS:
            side.put(SOURCE, message, initial(message, seed).to_bytes(8, sys.byteorder))
        elif message.op == "read":
            side.put(SOURCE, message, pattern(message.size, message.slot, seed))


def post_receives(side: Side, case: Case) -> None:
    for message in case.messages:
        if message.op in RECEIVED:
            side.post_receive(message)


def collect_sends(side: Side, case: Case) -> None:
    for message in case.messages:
        completion = side.wait(side.send_cq, f"{message.op} {message.slot}")
        where = message.where()
        if completion.status != IBV_WC_SUCCESS:
            raise Failure(f"a request failed with status {completion.status}", **where)
        if completion.wr_id != message.slot:
            raise Failure(f"request {completion.wr_id} completed instead", **where)


def collect_receives(side: Side, case: Case, seed: int, rkeys: list[int]) -> None:
    for message in case.messages:
        if message.op not in RECEIVED:
            continue
        where = message.where()
        got = side.wait(side.recv_cq, f"the receive of {message.op} {message.slot}")
        if got.status != IBV_WC_SUCCESS:
            raise Failure(f"a receive failed with status {got.status}", **where)
        if got.wr_id != message.slot or got.byte_len != message.size:
            raise Failure(f"receive {got.wr_id} of {got.byte_len} bytes completed", **where)
        with_imm, with_inv = got.wc_flags & IBV_WC_WITH_IMM, got.wc_flags & side.with_inv
        if bool(with_imm) != message.op.endswith("imm") or bool(with_inv) != (
            message.op == "send_inv"
        ):
            raise Failure(f"completion flags {got.wc_flags:#x}", **where)
        if with_imm and got.imm_data != immediate(message, seed):
            raise Failure(f"immediate {got.imm_data:#x}", **where)
        if with_inv and got.imm_data != rkeys[message.slot]:
            raise Failure(f"invalidated key {got.imm_data:#x}", **where)


def check_requester(side: Side, case: Case, seed: int) -> int:
    """Results of READs and atomics; the number of bytes that were right."""
    checked = 0
    for message in case.messages:
        if message.op in ATOMICS:
            wanted = initial(message, seed).to_bytes(8, sys.byteorder)
            checked += side.check(RESULT, message, wanted)
        elif message.op == "read":
            wanted = pattern(message.size, message.slot, seed)
            checked += side.check(RESULT, message, wanted)
        else:
            side.check(RESULT, message, b"")
    return checked


def check_responder(side: Side, case: Case, seed: int) -> int:
    """Checks what was sent, written, swapped and added; the number of bytes that were right."""
    checked = 0
    for message in case.messages:
        if message.op in (*SENDS, *WRITES):
            checked += side.check(IN, message, pattern(message.size, message.slot, seed))
        else:
            side.check(IN, message, b"")
        if message.op in ATOMICS:
            checked += side.check(SOURCE, message, final(message, seed).to_bytes(8, sys.byteorder))
    return checked


def request(side: Side, case: Case, seed: int) -> int:
    """Play the requester; the number of bytes verified on both sides."""
    prepare_requester(side, case, seed)
    ready = side.hear()
    rkeys = ready["rkeys"]
    assert isinstance(rkeys, list)
    for message in case.messages:
        side.post(message, seed, rkeys[message.slot] if message.op == "send_inv" else None)
    if case.late:
        side.tell(posted=True)
    collect_sends(side, case)
    checked = check_requester(side, case, seed)
    side.tell(done=True)
    return checked + int(str(side.hear()["verified"]))


def respond(side: Side, case: Case, seed: int) -> int:
    """Play the responder; the number of bytes verified on this side."""
    invalidates = case.messages[0].op == "send_inv"
    rkeys = side.make_keys(len(case.messages)) if invalidates else []
    prepare_responder(side, case, seed)
    if not case.late:
        post_receives(side, case)
    side.tell(rkeys=rkeys)
    if case.late:
        side.hear()  # all is requested, however long the requester stood still before
        time.sleep(LATE_S)
        post_receives(side, case)
    side.hear()
    collect_receives(side, case, seed, rkeys)
    checked = check_responder(side, case, seed)
    side.tell(verified=checked)
    return checked


def duplex(side: Side, case: Case, seed: int, peer_seed: int) -> int:
    """Both sides request the same operations of each other at the same time."""
    prepare_requester(side, case, seed)
    prepare_responder(side, case, peer_seed)
    post_receives(side, case)
    side.tell(ready=True)
    side.hear()
    for message in case.messages:
        side.post(message, seed)
    collect_sends(side, case)
    checked = check_requester(side, case, seed)
    side.tell(done=True)
    side.hear()
    collect_receives(side, case, peer_seed, [])
    checked += check_responder(side, case, peer_seed)
    side.tell(verified=checked)
    return checked + int(str(side.hear()["verified"]))


def refuse(side: Side, requests: bool, lossy: bool) -> int:
    """A WRITE with a key that was taken away: it must be refused.

    A SEND with invalidate takes it where the responder has memory windows; else the memory is
    deregistered.  It ends the connection.  On a path that loses packets the refusal may be
    lost, too.
    """
    message = messages([("write", 8)])[0]
    if not requests:
        key = _take_key_away(side)
        before = side.mr.read(KEY_BYTES, RESULT)
        side.tell(taken=True)
        status = int(str(side.hear()["status"]))
        if side.mr.read(KEY_BYTES, RESULT) != before:
            raise Failure(f"key {key:#x}, taken away, let a WRITE through", op="refused", size=8)
        return status
    facts = side.hear()
    key, address = int(str(facts["key"])), int(str(facts["address"]))
    if facts["invalidate"]:
        side.post(messages([("send_inv", 1)])[0], 1, key)
        side.wait(side.send_cq, "send_inv")
        side.tell(sent=True)
    side.hear()
    side.put(OUT, message, bytes(8))
    sge = SGE(side.mr.buf + OUT, 8, side.mr.lkey)
    wr = SendWR(num_sge=1, sg=[sge], opcode=IBV_WR_RDMA_WRITE, send_flags=IBV_SEND_SIGNALED)
    wr.set_wr_rdma(key, address)
    side.qp.post_send(wr, None)
    status = int(side.wait(side.send_cq, "a WRITE with a key that was taken away").status)
    side.tell(status=status)
    if status not in (IBV_WC_REM_ACCESS_ERR, *((IBV_WC_RETRY_EXC_ERR,) if lossy else ())):
        raise Failure(f"completion status {status}", op="refused", size=8)
    return status


def _take_key_away(side: Side) -> int:
    """A remote key over the start of the results, which the requester learns and cannot use."""
    address = side.mr.buf + RESULT
    if not side.windows:
        access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
        with MR(side.pd, KEY_BYTES, access, address=address) as region:
            key = int(region.rkey)
        side.tell(key=key, address=address, invalidate=False)
        return key
    key = side.make_keys(1)[0]
    case = Case("send_inv", messages([("send_inv", 1)]))
    prepare_responder(side, case, 1)
    post_receives(side, case)
    side.tell(key=key, address=address, invalidate=True)
    side.hear()
    collect_receives(side, case, 1, [key])
    return key


# -- the whole


@dataclass
class Result:
    """One case, in the JSON that is printed."""

    name: str
    size: int
    messages: int
    verified_bytes: int
    seconds: float


def play(side: Side, args: argparse.Namespace, mtu: int, client: bool) -> tuple[list[Result], int]:
    """All cases; the status with which the last request ended, which is refused."""
    requests = client == (args.requester == "client")
    mine, theirs = (forgets(name) and args.lossy for name in (side.device, side.peer["device"]))
    plan = cases(
        mtu,
        empty_reads=not (theirs if requests else mine),
        empty_duplex=not (mine or theirs),
        windows=responder_has_windows(side, requests),
        atomic_writes=args.atomic_write,
    )
    results = []
    for number, case in enumerate(plan, start=1):
        started = time.monotonic()
        if case.duplex:
            seeds = (number, number + 500) if client else (number + 500, number)
            verified = duplex(side, case, *seeds)
        else:
            act: Callable[[Side, Case, int], int] = request if requests else respond
            try:
                verified = act(side, case, number)
            except Failure as failure:
                failure.where = {"case": case.name, "size": case.messages[0].size, **failure.where}
                raise
        results.append(
            Result(
                case.name,
                case.messages[0].size if case.name not in ("mixed", "duplex") else 0,
                len(case.messages),
                verified,
                round(time.monotonic() - started, 3),
            )
        )
    refusal = refuse(side, requests, args.lossy)
    results.append(Result("refused", 8, 1, 8, 0.0))
    return results, refusal


def responder_has_windows(side: Side, requests: bool) -> bool:
    return bool(side.peer["windows"] if requests else side.windows)


def forgets(device: object) -> bool:
    """rxe cannot repeat the answer to a READ of no bytes: it drops the repeated request.

    It refuses a READ that is asked for again after a request of no bytes (both in Linux 6.12,
    rxe_resp.c, qp_resp_from_reth and read_reply).  So on a path that loses packets neither is
    asked of it.
    """
    return str(device).startswith("rxe")


def gid_of(context: Context, wanted: int | None) -> int:
    """Index of the GID to use: the first that maps an IPv4 address, or the first one."""
    if wanted is not None:
        return wanted
    for index in range(16):
        try:
            if str(context.query_gid(PORT, index)).startswith("0000:0000:0000:0000:0000:ffff:"):
                return index
        except PyverbsError:
            break
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("server", nargs="?", help="host of the server; none: be the server")
    parser.add_argument("-d", "--device", help="verbs device (the first one)")
    parser.add_argument("-g", "--gid-index", type=int, help="GID table index (the IPv4 one)")
    parser.add_argument("-p", "--port", type=int, default=18521, help="TCP port (18521)")
    parser.add_argument("-m", "--mtu", type=int, choices=MTUS, default=1024, help="path MTU (1024)")
    parser.add_argument("--requester", choices=("client", "server"), default="client")
    parser.add_argument("--psn", type=lambda text: int(text, 0), help="first PSN (random)")
    parser.add_argument("--timeout", type=float, default=20, help="seconds without progress (20)")
    parser.add_argument("--lossy", action="store_true", help="the path loses packets")
    parser.add_argument("--atomic-write", action="store_true", help="ATOMIC WRITE as well")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    client = bool(args.server)
    with open_device(args.device) as context, control_socket(args) as control:
        side = Side(context, control, args)
        gid_index = gid_of(context, args.gid_index)
        mine: dict[str, int | str] = {
            "what": f"{args.requester} {args.mtu}"
            + (" lossy" if args.lossy else "")
            + (" atomic-write" if args.atomic_write else ""),
            "device": side.device,
            "gid": str(context.query_gid(PORT, gid_index)),
            "qpn": side.qp.qp_num,
            "psn": side.psn,
            "rkey": side.mr.rkey,
            "buf": side.mr.buf,
            "windows": int(side.windows),
        }
        side.peer = exchange(control, mine)
        report: dict[str, object] = {
            "device": context.name,
            "role": "requester" if client == (args.requester == "client") else "responder",
            "path_mtu": args.mtu,
            "local": {key: mine[key] for key in ("qpn", "psn", "gid")},
            "remote": {key: side.peer[key] for key in ("qpn", "psn", "gid")},
            "ok": True,
        }
        try:
            if side.peer["what"] != mine["what"]:
                raise Failure(f"the other side wants {side.peer['what']}, not {mine['what']}")
            requests = client == (args.requester == "client")
            report["invalidates"] = responder_has_windows(side, requests)
            side.connect(args.mtu, gid_index)
            side.tell(connected=True)
            side.hear()
            results, report["refusal"] = play(side, args, args.mtu, client)
            report["cases"] = [asdict(result) for result in results]
        except (Failure, PyverbsError) as failure:
            where = getattr(failure, "where", {})
            report.update(ok=False, error=str(failure), where=where)
            with contextlib.suppress(OSError):
                side.tell(error=str(failure), where=where)
        side.close()
        print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
