# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cases about ends that are closed early, and peers that die."""

from __future__ import annotations

import os
import signal

from datapath.collectives.nccl.cases import case, message
from datapath.collectives.nccl.network import CallFailed, Handle, Memory, Receive
from datapath.collectives.nccl.side import RECEIVER, SENDER, Broken, Side


@case()
def receiver_closes_first(side: Side) -> None:
    """the receiver closes when its data is there; the sender's request is done all the same"""
    for _ in range(20):
        comm = side.pair()
        memory = Memory(20000)
        handle = side.net.register(comm, memory)
        if side.sends:
            side.done(side.sent(comm, memory, 20000, handle))
            side.channel.hear()
        else:
            side.done(side.received(comm, Receive(memory, handle, 20000)))
        side.net.deregister(comm, handle)
        side.close(comm)
        if not side.sends:
            side.channel.tell("closed")


@case()
def closed_in_flight(side: Side) -> None:
    """communicators are closed while requests are open; new ones work"""
    for turn in range(5):
        comm = side.pair()
        memory = Memory(2**20)
        handle = side.net.register(comm, memory)
        if side.sends:
            side.channel.hear()
            for _ in range(turn):
                side.net.isend(comm, memory, 2**20, handle)
        else:
            for _ in range(8):
                side.net.irecv(comm, [Receive(memory, handle, 2**20)])
            side.channel.tell("receives are posted")
        side.meet()
        # As NCCL does when it gives up: communicators first, then memory would be too late.
        side.net.deregister(comm, handle)
        side.close(comm)
    comm = side.pair()
    message(side, comm, 1000, 1000)
    side.close(comm)


@case()
def connect_given_up(side: Side) -> None:
    """a listener is closed before it accepts; the end that connects learns of it, or waits on"""
    if side.sends:
        handle = Handle(bytes.fromhex(side.channel.hear()))
        comm = side.net.connect(handle)
        side.channel.tell("connect has returned, the listener may be closed")
        side.channel.hear()
        try:
            for _ in range(100):
                comm = comm or side.net.connect(handle)
        except CallFailed:
            comm = None
        if comm:
            side.close(comm)
    else:
        handle, listener = side.net.listen()
        side.channel.tell(handle.data.hex())
        side.channel.hear()
        side.net.close("listen", listener)
        side.channel.tell("closed")
    comm = side.pair()
    message(side, comm, 1000, 1000)
    side.close(comm)


def _until_error(side: Side, comm: int, request: int | None) -> None:
    """A call has to fail before long: of test(), or of what posts further requests."""
    memory = Memory(4096)

    def look() -> bool | None:
        nonlocal request
        try:
            if request is None:
                request = (
                    side.net.isend(comm, memory, 4096, handle)
                    if side.sends
                    else side.net.irecv(comm, [Receive(memory, handle, 4096)])
                )
            elif side.net.test(request):
                request = None
        except CallFailed:
            return True
        return None

    handle = side.net.register(comm, memory)
    side.until(look, "no call failed, though the peer has died,")
    side.net.deregister(comm, handle)


def _survives(side: Side, dies: int) -> None:
    comm = side.pair()
    message(side, comm, 1000, 1000)
    memory = Memory(4096)
    handle = side.net.register(comm, memory)
    request = None if side.sends else side.net.irecv(comm, [Receive(memory, handle, 4096)])
    side.meet()
    if side.rank == dies:
        os.kill(os.getpid(), signal.SIGKILL)
    _until_error(side, comm, request)
    side.net.deregister(comm, handle)
    side.close(comm)
    listener = side.net.listen()[1]
    if side.net.accept(listener):
        raise Broken("accept() gave a communicator, though nobody connects")
    side.net.close("listen", listener)


@case(dies=SENDER)
def sender_killed(side: Side) -> None:
    """the sender's process is killed: the receiver's calls fail, and do not hang"""
    _survives(side, SENDER)


@case(dies=RECEIVER)
def receiver_killed(side: Side) -> None:
    """the receiver's process is killed: the sender's calls fail, and do not hang"""
    _survives(side, RECEIVER)
