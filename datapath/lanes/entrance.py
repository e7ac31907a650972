# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The entrance of a run: tells other processes what runs, and lets them into its hosts.

The process that owns the networks listens on an abstract Unix socket, "datapath-run:<pid>:<n>",
which ends with it.  Visitors are its own user and root, as the kernel tells them.  A visitor
sends one JSON object and gets one back (visiting.py is the other end):

    {"ask": "about"}                    what runs, and which hosts it has
    {"ask": "links"}                    counters of each link, and the bytes that wait
    {"ask": "enter", "host": NAME}      descriptors of the host's namespaces [net, mnt, pid]
    {"ask": "start", "host": NAME, "argv": [...]} with descriptors [stdout, stderr]
                                        {"status": N} when the program has ended; it is killed
                                        when the visitor leaves

An error is {"error": why}.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import os
import select
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from datapath import processes
from datapath.errors import CapabilityError, DatapathError, LocalError
from datapath.lanes.base import Host, Network
from datapath.lanes.local import NetnsHost
from datapath.lanes.middle import WithMiddle
from datapath.lanes.namespace import Namespace
from datapath.lanes.spec import MIDDLE

VERSION = 1
REQUEST_BYTES = 64 << 10
_VISITORS = 16
_POLL_S = 0.2
_numbers = itertools.count()


class Entrance:
    """Open from construction to close().  about: what is told of the run, as JSON."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about = dict(about)
        self._network: Network | None = None
        self._lock = threading.Lock()  # of the two above: a network is not closed under a visitor
        self._places = threading.BoundedSemaphore(_VISITORS)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(f"\0datapath-run:{os.getpid()}:{next(_numbers)}")
        self._socket.listen(_VISITORS)
        self._thread = threading.Thread(target=self._serve, name="dp-entrance", daemon=True)
        self._thread.start()

    def now(self, network: Network, **facts: object) -> None:
        """Visitors enter this network from now on; `facts` are added to what they are told."""
        with self._lock:
            self._network = network
            self._about |= facts

    def leave(self, network: Network) -> None:
        """To be called before the network is closed."""
        with self._lock:
            if self._network is network:
                self._network = None

    def close(self) -> None:
        """Let nobody in any more; safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    # --- in threads ---

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return  # closed
            if not self._places.acquire(blocking=False):
                visitor.close()
                continue
            threading.Thread(target=self._receive, args=(visitor,), daemon=True).start()

    def _receive(self, visitor: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            with visitor, contextlib.suppress(OSError):
                visitor.settimeout(5)
                text, descriptors, _, _ = socket.recv_fds(visitor, REQUEST_BYTES, 2)
                visitor.settimeout(None)
                answer, fds = self._answered(visitor, text, descriptors)
                with contextlib.ExitStack() as stack:
                    for fd in fds:
                        stack.callback(os.close, fd)
                    _send(visitor, answer, fds)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            self._places.release()

    def _answered(
        self, visitor: socket.socket, text: bytes, descriptors: Sequence[int]
    ) -> tuple[Mapping[str, Any], list[int]]:
        """The answer, and descriptors that go with it and are closed then."""
        if not _may_visit(visitor):
            return {"error": "the run belongs to another user"}, []
        try:
            request = json.loads(text)
            if request["ask"] == "about":
                return self._told(), []
            if request["ask"] == "links":
                return self._links(), []
            if request["ask"] == "enter":
                return {"entered": request["host"]}, self._namespaces(str(request["host"]))
            if request["ask"] == "start" and len(descriptors) == 2:
                argv = [str(word) for word in request["argv"]]
                return self._start(visitor, str(request["host"]), argv, descriptors), []
        except (KeyError, TypeError, ValueError, RecursionError):
            pass
        except (DatapathError, OSError) as error:
            return {"error": str(error)}, []
        return {"error": "the request is not known"}, []

    def _told(self) -> Mapping[str, Any]:
        with self._lock:
            hosts = [] if self._network is None else list(_hosts(self._network))
            return {"version": VERSION, **self._about, "hosts": hosts}

    def _links(self) -> Mapping[str, Any]:
        with self._lock:
            return {"version": VERSION, "links": self._here().link_counters()}

    def _namespaces(self, name: str) -> list[int]:
        with self._lock:
            space = _namespace(self._here(), name)
            return [os.dup(fd) for fd in (space.net_fd, space.mnt_fd, space.pid_fd)]

    def _start(
        self, visitor: socket.socket, name: str, argv: Sequence[str], descriptors: Sequence[int]
    ) -> Mapping[str, Any]:
        from datapath.lanes.remote import SshHost
        from datapath.lanes.remote.process import start_to

        with self._lock:
            host = _host(self._here(), name)
            if not isinstance(host, SshHost):
                raise LocalError(f"{name} is a namespace, which is entered")
            if not host.has_program(argv[0]):
                raise CapabilityError(f"program {argv[0]} is not installed on {name}")
            process = start_to(host.connection, argv, *descriptors)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return {"status": process.wait(_POLL_S)}
                if select.select([visitor], [], [], 0)[0]:
                    return {"error": "the visitor has left"}
        finally:
            process.kill()

    def _here(self) -> Network:
        if self._network is None:
            raise LocalError("the run has no network at the moment", hint="try again")
        return self._network


def _hosts(network: Network) -> list[dict[str, Any]]:
    """The description of the hosts for visitors."""
    told = []
    for index, host in enumerate(network.hosts):
        entry = {
            "name": host.name,
            "kind": "namespace" if isinstance(host, NetnsHost) else "ssh",
            **asdict(host.endpoint),
            "capture": [host.name, host.endpoint.netdev],
        }
        if _forwards_alone(network):
            # There all packets are seen; a host does not see those of its AF_XDP sockets.
            entry["capture"] = [MIDDLE, f"port{index}"]
        told.append(entry)
    return told


def _forwards_alone(network: Network) -> bool:
    """Whether port N of the middle carries the packets of host N, and the kernel sees them."""
    if not isinstance(network, WithMiddle) or network.middle.topology.vnic:
        return False
    return network.middle.backend == "bpf"


def _host(network: Network, name: str) -> Host:
    for host in network.hosts:
        if host.name == name:
            return host
    names = ", ".join(host.name for host in network.hosts)
    raise LocalError(f"the run has no host {name}; it has {names}")


def _namespace(network: Network, name: str) -> Namespace:
    if name == MIDDLE and isinstance(network, WithMiddle):
        return network.middle.namespace
    host = _host(network, name)
    if not isinstance(host, NetnsHost):
        raise LocalError(f"{name} is no namespace")
    return host.namespace


def _may_visit(visitor: socket.socket) -> bool:
    return processes.is_ours_or_roots(visitor)


def _send(visitor: socket.socket, answer: Mapping[str, Any], fds: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    visitor.sendmsg([json.dumps(answer).encode()], rights)
