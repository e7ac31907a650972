# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Strangers call at a listener of our plug-in's, in one process; then a peer does.

`python nccl_strangers.py PLUGIN VERSION`, with a device in the environment.  The address in the
handle is that of struct handle in meet.c: behind 8 bytes, IPv4 and port.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

from datapath.collectives.nccl.network import Handle, Network

STRANGERS = 120  # a third are sent away at once, and the others more than there are places for
HELLO_BYTES = 64


def ignore(_name: str) -> None:
    """No call of these tests can hang but for a fault, and the test has a time-out."""


def main(plugin: str, version: str) -> None:
    net = Network(plugin, int(version), ignore)
    net.init()
    handle, listener = net.listen()
    address, port = struct.unpack_from("!4sH", handle.data, 8)
    strangers = []
    for turn in range(STRANGERS):
        stranger = socket.create_connection((socket.inet_ntoa(address), port))
        # Silent ones, those that say too little, and those that say a wrong secret.
        stranger.sendall(os.urandom(turn % 3 * HELLO_BYTES // 2))
        strangers.append(stranger)
        assert net.accept(listener) is None
    handle = Handle(handle.data)
    # The peer comes, and another stranger right behind it, while all places are taken.
    sender = net.connect(handle)
    strangers.append(socket.create_connection((socket.inet_ntoa(address), port)))
    receiver = None
    while not sender or not receiver:
        sender = sender or net.connect(handle)
        receiver = receiver or net.accept(listener)
    net.close("listen", listener)
    net.close("send", sender)
    net.close("receive", receiver)
    for stranger in strangers:
        stranger.close()
    print("the peer was let in")


if __name__ == "__main__":
    main(*sys.argv[1:])
