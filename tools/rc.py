# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One reliable connection: what the programs here share.

Plain pyverbs, no part of the toolkit, so that it also runs where only
rdma-core is installed.  `connect()` opens the device, exchanges addresses with
the other side over a TCP socket, brings the QP to RTS (by itself, or through
RDMA-CM, which iWARP needs), and gives an `Endpoint`.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, WC, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MTU_4096,
    IBV_NODE_RNIC,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

if TYPE_CHECKING:
    from cm import Connection

PORT = 1
READS_AT_ONCE = 16
MIN_RNR_TIMER = 12  # 0.64 ms
ACK_TIMEOUT = 14  # 67 ms
ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
SHIFTS = 4093  # prime: messages repeat only after so many
START_S = 120.0
"""Until both sides run: Python in an emulated guest on a busy machine starts in half a minute."""


@functools.lru_cache(maxsize=8)
def _noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size + SHIFTS)


def pattern(size: int, number: int, seed: int) -> bytes:
    """Content of message `number`: no two neighbours, and no two places in one, are alike."""
    start = number % SHIFTS
    return _noise(size, seed)[start : start + size]


def to_rts(
    qp: QP,
    psn: int,
    peer: dict[str, int | str],
    *,
    mtu: int,
    gid_index: int,
    min_rnr_timer: int = MIN_RNR_TIMER,
    ack_timeout: int = ACK_TIMEOUT,
) -> None:
    """Connect a QP to the peer's `qpn`, which sends from `psn` at `gid`; mtu: an ibv_mtu."""
    route = GlobalRoute(dgid=GID(str(peer["gid"])), sgid_index=gid_index)
    attr = QPAttr(port_num=PORT)
    attr.dest_qp_num, attr.path_mtu = int(peer["qpn"]), mtu
    attr.rq_psn, attr.sq_psn = int(peer["psn"]), psn
    attr.max_rd_atomic = attr.max_dest_rd_atomic = READS_AT_ONCE
    attr.min_rnr_timer, attr.timeout = min_rnr_timer, ack_timeout
    attr.retry_cnt = attr.rnr_retry = 7
    attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
    qp.to_rts(attr)


class Endpoint:
    """Our end: `size` bytes to send from, then as many to receive into."""

    def __init__(self, context: Context, size: int, depth: int, args: argparse.Namespace) -> None:
        self.size, self.args, self.device = size, args, str(context.name)
        iwarp = speaks_iwarp(self.device)
        if iwarp and not args.cm:
            raise SystemExit(
                f"{self.device} speaks iWARP, which connects through RDMA-CM: add --cm"
            )
        # iWARP has no immediate data: a WRITE is announced by a SEND of nothing.
        self.immediate = not iwarp
        self.mtu = min(context.query_port(PORT).active_mtu, IBV_MTU_4096)
        self.cm: Connection | None = None
        if args.cm:
            from cm import Connection  # librdmacm is not needed otherwise

            self.cm = Connection(iwarp=iwarp, reads=READS_AT_ONCE, timeout_s=args.timeout)
            if not args.server:
                self.cm.listen(self.device, args.port + 1)
        self.pd = PD(context)
        self.mr = MR(self.pd, 2 * size, ACCESS)
        self.channels = [CompChannel(context) if args.events else None for _ in range(2)]
        self.send_cq, self.recv_cq = (CQ(context, depth + 1, None, c, 0) for c in self.channels)
        if args.events:
            self.send_cq.req_notify()
            self.recv_cq.req_notify()
        sends = depth + 1 if self.immediate else 2 * (depth + 1)
        cap = QPCap(max_send_wr=sends, max_recv_wr=depth + 1, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.send_cq, rcq=self.recv_cq, cap=cap)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = ACCESS
        self.qp = QP(self.pd, init, attr)  # with attributes: brought to INIT
        self.psn = random.getrandbits(24)
        self.peer: dict[str, int | str] = {}
        self.control: socket.socket | None = None

    # -- memory

    def write_out(self, offset: int, data: bytes) -> None:
        self.mr.write(data, len(data), offset)

    def clear_in(self, length: int) -> None:
        self.mr.write(bytes(length), length, self.size)

    def compare(self, length: int, wanted: bytes, number: int, offset: int = 0) -> None:
        """End the program if the receive buffer does not hold what was sent."""
        got = self.mr.read(length, self.size + offset)
        if got == wanted:
            return
        place = next(i for i in range(length) if got[i] != wanted[i])
        raise SystemExit(
            f"data error: message {number}, byte {place}: {got[place]:#04x} and not "
            f"{wanted[place]:#04x}"
        )

    # -- requests

    def _sge(self, length: int, offset: int) -> list[SGE]:
        return [SGE(self.mr.buf + offset, length, self.mr.lkey)]

    def _request(
        self,
        opcode: int,
        length: int,
        local: int,
        remote: int | None = None,
        *,
        imm: int | None = None,
        flags: int = IBV_SEND_SIGNALED,
    ) -> None:
        wr = SendWR(num_sge=1, sg=self._sge(length, local), opcode=opcode, send_flags=flags)
        if remote is not None:
            wr.set_wr_rdma(int(self.peer["rkey"]), int(self.peer["buf"]) + remote)
        if imm is not None:
            wr.imm_data = imm
        self.qp.post_send(wr, None)

    def post(
        self, *, write: bool = False, imm: int = 0, size: int | None = None, offset: int = 0
    ) -> None:
        """SEND, or WRITE into the peer's receive buffer; either takes one of its receives.

        One completion each; immediate data where the device has it.
        """
        length = self.args.size if size is None else size
        remote = self.size + offset
        if self.immediate and write:
            self._request(IBV_WR_RDMA_WRITE_WITH_IMM, length, offset, remote, imm=imm)
        elif self.immediate:
            self._request(IBV_WR_SEND_WITH_IMM, length, offset, imm=imm)
        elif write:
            self._request(IBV_WR_RDMA_WRITE, length, offset, remote, flags=0)
            self._request(IBV_WR_SEND, 0, offset)
        else:
            self._request(IBV_WR_SEND, length, offset)

    def post_write(self, length: int, offset: int = 0) -> None:
        self._request(IBV_WR_RDMA_WRITE, length, offset, self.size + offset)

    def post_read(self, length: int, offset: int = 0) -> None:
        """READ what the peer has to send into our receive buffer."""
        self._request(IBV_WR_RDMA_READ, length, self.size + offset, offset)

    def post_receive(self, length: int | None = None, offset: int = 0) -> None:
        length = self.args.size if length is None else length
        self.qp.post_recv(RecvWR(num_sge=1, sg=self._sge(length, self.size + offset)), None)

    # -- completions

    def _wait(self, cq: CQ, channel: CompChannel | None) -> WC:
        limit = time.monotonic() + self.args.timeout
        polls = 0
        while True:
            count, completions = cq.poll(1)
            if count:
                break
            if channel is not None:
                channel.get_cq_event(cq)
                cq.ack_events(1)
                cq.req_notify()
                continue
            polls += 1
            if polls % 1024 == 0 and time.monotonic() > limit:
                raise SystemExit(f"nothing completed for {self.args.timeout} s")
        if completions[0].status != IBV_WC_SUCCESS:
            raise SystemExit(f"a request failed with status {completions[0].status}")
        return completions[0]

    def wait_send(self) -> WC:
        return self._wait(self.send_cq, self.channels[0])

    def wait_receive(self) -> WC:
        return self._wait(self.recv_cq, self.channels[1])

    def expect(self, completion: WC, wanted: bytes, number: int, *, write: bool) -> None:
        """End the program if this is not message `number`, as a SEND or by a WRITE."""
        length = 0 if write and not self.immediate else len(wanted)
        if completion.byte_len != length:
            raise SystemExit(f"message {number} has {completion.byte_len} bytes, not {length}")
        if write and self.immediate and completion.imm_data != number:
            raise SystemExit(f"message {number} came with immediate {completion.imm_data}")
        self.compare(len(wanted), wanted, number)

    # -- connection

    def connect(self) -> None:
        """Bring the QP to RTS; the other side has told its numbers."""
        args = self.args
        if self.cm is None:
            mtu = min(self.mtu, int(self.peer["mtu"]))
            to_rts(
                self.qp,
                self.psn,
                self.peer,
                mtu=mtu,
                gid_index=args.gid_index,
                ack_timeout=args.ack_timeout,
            )
        elif args.server:
            self.cm.connect(self.qp, self.device, args.server, args.port + 1)
        else:
            self.cm.accept(self.qp)

    def barrier(self) -> None:
        """Wait until the other side is here, too."""
        assert self.control is not None
        try:
            self.control.sendall(b"b")
            present = self.control.recv(1) == b"b"
        except OSError:
            present = False
        if not present:
            raise SystemExit("the other side went away")

    def close(self) -> None:
        things = (self.qp, self.cm, self.send_cq, self.recv_cq, *self.channels, self.mr, self.pd)
        for thing in things:
            if thing is not None:
                thing.close()


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", nargs="?", help="host of the server; none: be the server")
    parser.add_argument("-d", "--device", help="verbs device (the first one)")
    parser.add_argument("-n", "--iterations", type=int, default=1000, help="messages (1000)")
    parser.add_argument("-g", "--gid-index", type=int, default=0, help="GID table index (0)")
    parser.add_argument("-p", "--port", type=int, default=18520, help="TCP port (18520)")
    parser.add_argument(
        "--cm", action="store_true", help="connect through RDMA-CM, on the next port (iWARP: must)"
    )
    parser.add_argument("-e", "--events", action="store_true", help="sleep for completion events")
    parser.add_argument("--timeout", type=float, default=30, help="seconds without progress (30)")
    parser.add_argument(
        "--ack-timeout",
        type=int,
        default=ACK_TIMEOUT,
        metavar="N",
        help=f"wait 4.096 us * 2^N for an answer, 8 times ({ACK_TIMEOUT}; slow peer: 19)",
    )
    parser.add_argument("--json", action="store_true", help="result as JSON; times in ns")


def open_device(name: str | None) -> Context:
    try:
        names = [device.name.decode() for device in get_device_list()]
    except PyverbsRDMAError:  # a kernel without RDMA, and no device of ours
        names = []
    if not names:
        raise SystemExit("no verbs device; run under dpctl exec --device dp0=afxdp:DEV --")
    if name is not None and name not in names:
        raise SystemExit(f"no verbs device {name}; there are {', '.join(names)}")
    try:
        return Context(name=name or names[0])
    except PyverbsRDMAError as error:
        raise SystemExit(f"cannot open {name or names[0]}: {error}") from None


def speaks_iwarp(device: str) -> bool:
    return any(
        found.name.decode() == device and found.node_type == IBV_NODE_RNIC
        for found in get_device_list()
    )


def control_socket(args: argparse.Namespace) -> socket.socket:
    """TCP to the other side, for which either side waits START_S; SystemExit when it is absent."""
    if not args.server:
        with socket.create_server(("", args.port)) as listener:
            listener.settimeout(START_S)
            try:
                connection = listener.accept()[0]
            except TimeoutError:
                raise SystemExit(f"no client came to port {args.port} in {START_S:g} s") from None
    else:
        limit = time.monotonic() + START_S
        tell = limit - START_S + 5
        while True:
            try:
                connection = socket.create_connection((args.server, args.port), args.timeout)
                break
            except ConnectionRefusedError:
                if time.monotonic() > limit:
                    raise SystemExit(f"nobody listens on {args.server}:{args.port}") from None
                if time.monotonic() > tell:
                    print(f"waiting for a server on {args.server}:{args.port}", file=sys.stderr)
                    tell = limit + 1
                time.sleep(0.05)
    connection.settimeout(args.timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(control: socket.socket, mine: dict[str, int | str]) -> dict[str, int | str]:
    control.sendall(json.dumps(mine).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        byte = control.recv(1)
        if not byte:
            raise SystemExit("the other side went away")
        line += byte
    peer = json.loads(line)
    assert isinstance(peer, dict)
    return peer


@contextmanager
def connect(
    args: argparse.Namespace, *, buffer_bytes: int, depth: int, receive_first: bool = False
) -> Iterator[Endpoint]:
    """Connect to the other side; both must want the same operation, size and count.

    receive_first: one receive is posted before the other side can send.
    """
    if args.size < 1 or args.iterations < 1:
        raise SystemExit("--size and --iterations are 1 or more")
    with open_device(args.device) as context:
        end = Endpoint(context, buffer_bytes, depth, args)
        mine: dict[str, int | str] = {
            "what": f"{args.op} {args.size} {args.iterations}",
            "gid": str(context.query_gid(PORT, args.gid_index)),
            "qpn": end.qp.qp_num,
            "psn": end.psn,
            "rkey": end.mr.rkey,
            "buf": end.mr.buf,
            "mtu": end.mtu,
        }
        with control_socket(args) as control:
            end.control = control
            end.peer = exchange(control, mine)
            if end.peer["what"] != mine["what"]:
                raise SystemExit(f"the other side wants {end.peer['what']}, not {mine['what']}")
            end.connect()
            if receive_first:
                end.post_receive()
            end.barrier()
            try:
                yield end
                end.barrier()
            finally:
                end.close()
