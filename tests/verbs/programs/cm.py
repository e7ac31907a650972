# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two QPs of one process connected through RDMA-CM, both ends in turn.

The QPs stay the program's own: the connection manager gives the attributes of
RoCE's transitions, and iWARP's kernel driver makes them itself.
"""

from __future__ import annotations

import errno
import os

from pyverbs import cm_enums as ce
from pyverbs import enums as e
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.pyverbs_error import PyverbsRDMAError

READS = 16
_next_port = 20000 + os.getpid() * 37 % 20000


class Refused(Exception):
    """The connection manager told something else than what was waited for."""


class Link:
    """What the connection manager holds of one connection."""

    def __init__(self, address: str) -> None:
        self.server_events, self.client_events = CMEventChannel(), CMEventChannel()
        self.listener, self.service = self._listen(address)
        self.client = CMID(creator=self.client_events, port_space=ce.RDMA_PS_TCP)
        self.server: CMID | None = None
        to = AddrInfo(dst=address, dst_service=self.service, port_space=ce.RDMA_PS_TCP)
        self.client.resolve_addr(to)
        self._expect(self.client_events, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        self.client.resolve_route()
        self._expect(self.client_events, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)

    def _listen(self, address: str) -> tuple[CMID, str]:
        global _next_port
        for _ in range(100):
            _next_port += 1
            service = str(_next_port)
            listener = CMID(creator=self.server_events, port_space=ce.RDMA_PS_TCP)
            at = AddrInfo(
                src=address, src_service=service, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE
            )
            try:
                listener.bind_addr(at)
                listener.listen(8)
            except PyverbsRDMAError as error:
                if error.error_code != errno.EADDRINUSE:
                    raise
                continue
            return listener, service
        raise Refused("no free port")

    def ended(self, *, client: bool) -> None:
        """Wait until one end is told that the connection is over."""
        self._expect(
            self.client_events if client else self.server_events, ce.RDMA_CM_EVENT_DISCONNECTED
        )

    @staticmethod
    def _expect(events: CMEventChannel, wanted: int) -> CMEvent:
        event = CMEvent(events)
        if event.event_type != wanted:
            raise Refused(f"{event.event_str()} in place of event {wanted}")
        return event

    def connect(self, a, b, *, iwarp: bool, retry: int = 7, rnr: int = 7) -> None:
        """a is the active side; both QPs are in INIT before and in RTS afterwards."""

        def parameters(qp):
            return ConnParam(
                resources=READS, depth=READS, retry=retry, rnr_retry=rnr, qp_num=qp.qp_num
            )

        def ready(cmid: CMID, qp) -> None:
            for state in (e.IBV_QPS_RTR, e.IBV_QPS_RTS):
                qp.modify(*cmid.init_qp_attr(state))

        self.client.connect(parameters(a))
        request = self._expect(self.server_events, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        self.server = CMID(creator=request, listen_id=self.listener)
        request.close()
        if not iwarp:
            ready(self.server, b)
        self.server.accept(parameters(b))
        if not iwarp:
            self._expect(self.client_events, ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
            ready(self.client, a)
            self.client.establish()
        else:
            self._expect(self.client_events, ce.RDMA_CM_EVENT_ESTABLISHED)
        self._expect(self.server_events, ce.RDMA_CM_EVENT_ESTABLISHED)
