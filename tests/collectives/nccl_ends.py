# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An end of a communicator is told of what its peer, or its own process, cannot do any more.

`python nccl_ends.py PLUGIN VERSION CASE`, with a device in the environment; prints what is told.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from datapath.collectives.nccl.network import CallFailed, Handle, Memory, Network

PATIENCE_S = 60
DESCRIPTORS = 256


def told(call: Callable[[], object]) -> str:
    """What a call fails with, sooner or later."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            call()
        except CallFailed as error:
            return str(error)
    return "nothing"


def ends(net: Network) -> tuple[int, int]:
    """A sender and a receiver of this process."""
    handle, listener = net.listen()
    handle = Handle(handle.data)
    sender = receiver = None
    while not sender or not receiver:
        sender = sender or net.connect(handle)
        receiver = receiver or net.accept(listener)
    net.close("listen", listener)
    return sender, receiver


def sending(net: Network, sender: int) -> Callable[[], object]:
    """A send that its peer has no receive for."""
    memory = Memory(4096)
    registered = net.register(sender, memory)
    return lambda: net.isend(sender, memory, 4096, registered)


def forked(net: Network) -> str:
    """The receiver's process has a child when it is killed."""
    (handles, say_handle), (over, say_over) = os.pipe(), os.pipe()
    victim = os.fork()
    if victim == 0:
        os.close(say_over)
        net.init()
        handle, listener = net.listen()
        os.write(say_handle, handle.data)
        while not net.accept(listener):
            pass
        if os.fork() == 0:
            os.write(say_handle, b"x")
        os.read(over, 1)  # until the program ends
        os._exit(0)
    os.close(over)
    net.init()
    handle, sender = Handle(os.read(handles, 128)), None
    while not sender:
        sender = net.connect(handle)
    os.read(handles, 1)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    return told(sending(net, sender))


def sockets() -> Iterator[int]:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                yield int(entry.name)


def held(net: Network) -> str:
    """The receiver is closed in order, and something still has its connection open."""
    net.init()
    sender, receiver = ends(net)
    copies = [os.dup(number) for number in list(sockets())]
    net.close("receive", receiver)
    said = told(sending(net, sender))
    for number in copies:
        os.close(number)
    return said


def full(net: Network) -> str:
    """The listener's process has no file descriptor left for a peer that connects."""
    net.init()
    handle, listener = net.listen()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as peer:
        peer.connect((socket.inet_ntoa(handle.data[8:12]), int.from_bytes(handle.data[12:14])))
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
        with contextlib.suppress(OSError):
            while True:
                os.dup(0)
        return told(lambda: net.accept(listener))


def main(plugin: str, version: str, case: str) -> None:
    net = Network(plugin, int(version), lambda _name: None)
    print({"forked": forked, "held": held, "full": full}[case](net))


if __name__ == "__main__":
    main(*sys.argv[1:])
