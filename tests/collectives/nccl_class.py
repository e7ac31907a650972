# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two ends of a communicator with a traffic class, in one process: data goes from one to the other.

`python nccl_class.py PLUGIN VERSION CLASS`, with a device in the environment.
"""

from __future__ import annotations

import sys

from datapath.collectives.nccl.network import Handle, Memory, Network, Receive

SIZE = 100_000


def main(plugin: str, version: str, traffic_class: str) -> None:
    net = Network(plugin, int(version), lambda _name: None, int(traffic_class))
    net.init()
    handle, listener = net.listen()
    handle = Handle(handle.data)
    sender = receiver = None
    while not sender or not receiver:
        sender = sender or net.connect(handle)
        receiver = receiver or net.accept(listener)
    memory = [Memory(SIZE), Memory(SIZE)]
    ends = [net.register(comm, one) for comm, one in zip((sender, receiver), memory, strict=True)]
    memory[0].write(b"x" * SIZE)
    received = net.irecv(receiver, [Receive(memory[1], ends[1], SIZE)])
    assert received
    sent = None
    while not sent:
        sent = net.isend(sender, memory[0], SIZE, ends[0])
    left = [received, sent]
    while left:
        left = [request for request in left if net.test(request) is None]
    assert memory[1].read(SIZE) == b"x" * SIZE
    print("the data came")


if __name__ == "__main__":
    main(*sys.argv[1:])
