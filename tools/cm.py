# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One end of an RDMA-CM connection for a QP that the program has made itself.

iWARP knows no other way to connect.  RoCE may use it: then the connection
manager gives the attributes of the QP's transitions, which the program makes;
iWARP's driver makes them in the kernel.
"""

from __future__ import annotations

import fcntl
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyverbs.cm_enums import (
    RAI_PASSIVE,
    RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_PS_TCP,
)
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.enums import IBV_QPS_RTR, IBV_QPS_RTS
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP

_SIOCGIFADDR = 0x8915  # linux/sockios.h


class Connection:
    """Our end; keep it as long as the QP is in use.

    iwarp: what the device speaks.  reads: READs outstanding at a time, each way.
    """

    def __init__(self, *, iwarp: bool, reads: int, timeout_s: float) -> None:
        self._iwarp, self._reads, self._timeout_s = iwarp, reads, timeout_s
        self._events = CMEventChannel()
        self._listener: CMID | None = None
        self._id: CMID | None = None

    def listen(self, device: str, port: int) -> None:
        """Before the other side is told that it may connect."""
        self._listener = self._new_id()
        try:
            self._listener.bind_addr(
                AddrInfo(
                    src=_address(device),  # pyverbs crashes with one that is no device's
                    src_service=str(port),
                    port_space=RDMA_PS_TCP,
                    flags=RAI_PASSIVE,
                )
            )
            self._listener.listen(1)
        except PyverbsRDMAError as error:
            raise SystemExit(f"RDMA-CM cannot listen on port {port}: {error}") from None

    def accept(self, qp: QP) -> None:
        with self._deadline():
            request = self._expect(RDMA_CM_EVENT_CONNECT_REQUEST)
            self._id = CMID(creator=request, listen_id=self._listener)
            request.close()
            if not self._iwarp:
                self._to_rts(qp)
            self._id.accept(self._parameters(qp))
            self._expect(RDMA_CM_EVENT_ESTABLISHED)

    def connect(self, qp: QP, device: str, host: str, port: int) -> None:
        """device: the QP's; told when the route to the host leads through another one."""
        with self._deadline():
            self._id = self._new_id()
            try:
                to = AddrInfo(dst=host, dst_service=str(port), port_space=RDMA_PS_TCP)
                self._id.resolve_addr(to)
            except PyverbsRDMAError as error:
                raise SystemExit(f"RDMA-CM has no route to {host}: {error}") from None
            self._expect(RDMA_CM_EVENT_ADDR_RESOLVED)
            if self._id.dev_name != device:
                raise SystemExit(f"the route to {host} leads through {self._id.dev_name}")
            self._id.resolve_route()
            self._expect(RDMA_CM_EVENT_ROUTE_RESOLVED)
            self._id.connect(self._parameters(qp))
            if not self._iwarp:
                self._expect(RDMA_CM_EVENT_CONNECT_RESPONSE)
                self._to_rts(qp)
                self._id.establish()
            else:
                self._expect(RDMA_CM_EVENT_ESTABLISHED)

    def close(self) -> None:
        """After the QP."""
        for thing in (self._id, self._listener, self._events):
            if thing is not None:
                thing.close()

    def _new_id(self) -> CMID:
        return CMID(creator=self._events, port_space=RDMA_PS_TCP)

    def _parameters(self, qp: QP) -> ConnParam:
        return ConnParam(
            resources=self._reads, depth=self._reads, retry=7, rnr_retry=7, qp_num=qp.qp_num
        )

    def _to_rts(self, qp: QP) -> None:
        assert self._id is not None
        for state in (IBV_QPS_RTR, IBV_QPS_RTS):
            attributes, mask = self._id.init_qp_attr(state)
            qp.modify(attributes, mask)

    def _expect(self, wanted: int) -> CMEvent:
        event = CMEvent(self._events)
        if event.event_type != wanted:
            raise SystemExit(f"RDMA-CM does not connect: {event.event_str()}")
        return event

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """An event that does not come ends the program, in words."""

        def late(_signal: int, _frame: FrameType | None) -> None:
            raise SystemExit(f"RDMA-CM: no answer for {self._timeout_s:g} s")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, self._timeout_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _address(device: str) -> str:
    """The IPv4 address of the network device that an RDMA device is on."""
    of = Path("/sys/class/infiniband") / device / "ports/1/gid_attrs/ndevs/0"
    try:
        netdev = of.read_text().strip()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("256s", netdev.encode())
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
    except OSError as error:
        raise SystemExit(f"{device} has no IPv4 address for RDMA-CM: {error}") from None
    return socket.inet_ntoa(answer[20:24])
