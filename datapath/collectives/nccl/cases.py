# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a plug-in has to do, case by case.  Both sides run the same function.

Source: plugins/net/README.md of NCCL, and what src/transport/net.cc there relies on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from datapath.collectives.nccl.abi import POINTER_HOST, REQUESTS
from datapath.collectives.nccl.network import Handle, Memory, Receive
from datapath.collectives.nccl.side import Broken, Case, Side

CASES: dict[str, Case] = {}
"""By name, in their order."""

_COMMUNICATORS = 256
_MESSAGES = 1000
_BULK = 64 * 1024
_SPARE_DESCRIPTORS = 8  # libraries open some for good, such as that of random numbers


def case(*, dies: int | None = None) -> Callable[[Callable[[Side], None]], Callable[[Side], None]]:
    """Registers a case, named by its function."""

    def register(function: Callable[[Side], None]) -> Callable[[Side], None]:
        name = function.__name__
        CASES[name] = Case(name, (function.__doc__ or "").partition("\n")[0], function, dies)
        return function

    return register


def pattern(size: int, seed: int) -> bytes:
    return Random(seed).randbytes(size)


def message(side: Side, comm: int, size: int, room: int, seed: int = 1) -> None:
    """One message of `size` bytes into a receive of `room`, with all that can be compared."""
    memory = Memory(max(size, room) + 64)
    handle = side.net.register(comm, memory)
    data = pattern(size, seed)
    if side.sends:
        memory.write(data)
        sizes = side.done(side.sent(comm, memory, size, handle))
    else:
        memory.write(b"\xee" * memory.size)
        sizes = side.done(side.received(comm, Receive(memory, handle, room)))
        side.expect(memory.read(size), data, f"data of {size} bytes")
        rest = memory.size - size
        side.expect(memory.read(rest, size), b"\xee" * rest, f"memory behind {size} bytes")
    side.expect(sizes, [size], f"size that test() tells ({size} bytes sent, room for {room})")
    side.net.deregister(comm, handle)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.contextmanager
def descriptors_given_back(side: Side) -> Iterator[None]:
    """Broken when more file descriptors are open behind the block than before it."""
    side.close(side.pair())  # what the plug-in opens for good, it opens now
    before = _descriptors()
    yield
    left = _descriptors() - before
    if left > _SPARE_DESCRIPTORS:
        raise Broken(f"close leaves {left} file descriptors open")


# ---- devices and connections -------------------------------------------------------------


@case()
def properties(side: Side) -> None:
    """devices and getProperties tell what NCCL can work with"""
    count = side.net.devices()
    if count == 0:
        raise Broken("devices() tells 0 devices; init() has to fail when there are none")
    side.plausible(count, "devices()", "devices")
    if not side.net.name:
        raise Broken("the plug-in has no name")
    for device in range(count):
        told = side.net.properties(device)
        for key in ("speed_mbps", "max_comms", "max_receives", "parts", "max_p2p_bytes"):
            if told.get(key, 1) < 1:
                unset = " (unset?)" if told[key] == 0 else ""
                raise Broken(f"getProperties() of device {device}: {key} is {told[key]}{unset}")
        if not told["name"] or not told["pointers"] & POINTER_HOST:
            raise Broken(f"getProperties() of device {device}: no name, or no host memory")
        if told.get("parts", 1) == 1 and "part" in told:
            side.expect(told["part"][0], device, f"the one part of device {device}")


@case()
def several_communicators_of_nccl(side: Side) -> None:
    """init, once for each communicator since version 11, and finalize"""
    if side.net.version >= 11:
        side.net.init()
        message(side, side.pair(), 100, 100)
        side.meet()
        side.net.finalize()
    comm = side.pair()
    message(side, comm, 100, 100)
    side.close(comm)


@case()
def accept_and_connect_do_not_block(side: Side) -> None:
    """accept and connect return at once, and are called again until they have a communicator"""
    if side.sends:
        handle = Handle(bytes.fromhex(side.channel.hear()))
        comm = side.net.connect(handle)
        side.channel.tell("connect has returned, accept may be called")
        comm = comm or side.connected(handle)
    else:
        handle, listener = side.net.listen()
        if not handle.is_whole:
            raise Broken("listen() writes behind the handle's 128 bytes")
        if side.net.accept(listener):
            raise Broken("accept() gave a communicator, though nobody connects")
        side.channel.tell(handle.data.hex())
        side.channel.hear()
        comm = side.accepted(listener)
        side.net.close("listen", listener)
    message(side, comm, 1000, 1000)
    side.close(comm)


@case()
def listen_again(side: Side) -> None:
    """a listener is closed, unused or not, and another one listens"""
    with descriptors_given_back(side):
        for turn in range(16):
            if not side.sends:
                _, unused = side.net.listen()
                side.net.close("listen", unused)
            comm = side.pair()
            message(side, comm, 10 + turn, 4096, seed=turn)
            side.close(comm)


@case()
def both_directions(side: Side) -> None:
    """a process sends on one communicator and receives on another"""
    comms = {True: side.pair(forward=True), False: side.pair(forward=False)}
    out, in_ = comms[side.sends], comms[not side.sends]
    source, target = Memory(_BULK), Memory(_BULK)
    handles = side.net.register(out, source), side.net.register(in_, target)
    source.write(pattern(_BULK, side.rank))
    for _ in range(20):
        receive = side.received(in_, Receive(target, handles[1], _BULK))
        side.done(side.sent(out, source, _BULK, handles[0]))
        side.expect(side.done(receive), [_BULK], "size received")
        side.expect(target.read(_BULK), pattern(_BULK, 1 - side.rank), "data")
    side.net.deregister(out, handles[0])
    side.net.deregister(in_, handles[1])
    side.meet()
    side.net.close("send", out)
    side.net.close("receive", in_)


@case()
def many_communicators(side: Side) -> None:
    """256 communicators at a time; close gives back what they took"""
    with descriptors_given_back(side):
        comms = [side.pair() for _ in range(_COMMUNICATORS)]
        for index, comm in enumerate(comms):
            message(side, comm, 1 + index, 4096, seed=index)
        side.meet()
        for comm in comms:
            side.close(comm)


# ---- data -----------------------------------------------------------------------------------


@case()
def sizes(side: Side) -> None:
    """messages of 0 bytes, 1 byte and more arrive with their sizes"""
    comm = side.pair()
    for size in (0, 1, 2, 255, 4095, 4096, 4097, 65536, 2**20 + 1):
        message(side, comm, size, size, seed=size)
    side.close(comm)


@case()
def short_sends(side: Side) -> None:
    """a send may be shorter than its receive, and test tells what was received"""
    comm = side.pair()
    for size in (0, 1, 1000, 70000):
        message(side, comm, size, 2**20, seed=size)
    side.close(comm)


@case()
def no_size_asked(side: Side) -> None:
    """test without a place for sizes"""
    comm = side.pair()
    memory = Memory(100)
    handle = side.net.register(comm, memory)
    request = (
        side.sent(comm, memory, 100, handle)
        if side.sends
        else side.received(comm, Receive(memory, handle, 100))
    )
    side.done(request, sizes=False)
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def send_before_receive(side: Side) -> None:
    """isend returns, with or without a request, while no receive is posted"""
    comm = side.pair()
    memory = Memory(5000)
    handle = side.net.register(comm, memory)
    if side.sends:
        memory.write(pattern(5000, 7))
        request = side.net.isend(comm, memory, 5000, handle)
        side.channel.tell("isend has returned, the receive may be posted")
        side.done(request or side.sent(comm, memory, 5000, handle))
    else:
        side.channel.hear()
        side.done(side.received(comm, Receive(memory, handle, 5000)))
        side.expect(memory.read(5000), pattern(5000, 7), "data")
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def requests_in_flight(side: Side) -> None:
    """32 requests at a time, which match in the order in which they were posted"""
    comm = side.pair()
    size = 3000
    memory = Memory(REQUESTS * size)
    handle = side.net.register(comm, memory)
    data = pattern(memory.size, 3)
    for _ in range(3):
        if side.sends:
            memory.write(data)
            side.channel.hear()
            open_ = [
                side.sent(comm, memory, size - i, handle, at=i * size) for i in range(REQUESTS)
            ]
        else:
            memory.write(bytes(memory.size))
            open_ = [
                side.received(comm, Receive(memory, handle, size, offset=i * size))
                for i in range(REQUESTS)
            ]
            side.channel.tell("all are posted")
        for i, request in enumerate(open_):
            side.expect(side.done(request), [size - i], f"size of message {i}")
            if not side.sends:
                part = data[i * size : (i + 1) * size - i]
                side.expect(memory.read(size - i, i * size), part, f"data of message {i}")
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def groups(side: Side) -> None:
    """grouped receives: each takes the send with its tag, and has its own size"""
    comm = side.pair()
    room = 8192
    memory = Memory(side.group * room)
    handle = side.net.register(comm, memory)
    for n in range(1, side.group + 1):
        lengths = [0 if i == 2 else 1 + 700 * i for i in range(n)]
        if side.sends:
            order = list(reversed(range(n)))
            open_ = []
            for i in order:
                memory.write(pattern(lengths[i], i), i * room)
                open_.append(side.sent(comm, memory, lengths[i], handle, 100 + i, i * room))
            told = [side.done(request)[0] for request in open_]
            side.expect(told, [lengths[i] for i in order], f"sizes sent to a group of {n}")
        else:
            group = [Receive(memory, handle, room, 100 + i, i * room) for i in range(n)]
            told = side.done(side.received(comm, *group), n)
            side.expect(told, lengths, f"sizes of a group of {n}")
            for i, length in enumerate(lengths):
                found = memory.read(length, i * room)
                side.expect(found, pattern(length, i), f"data of receive {i} of a group of {n}")
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def full_groups_in_flight(side: Side) -> None:
    """32 groups of receives at a time, with as many sends as they take"""
    comm, n, size = side.pair(), side.group, 512
    memory = Memory(REQUESTS * n * size)
    handle = side.net.register(comm, memory)
    data = pattern(memory.size, 9)
    if side.sends:
        memory.write(data)
        side.channel.hear()
        for request in [
            side.sent(comm, memory, size, handle, i % n, i * size) for i in range(REQUESTS * n)
        ]:
            side.expect(side.done(request), [size], "size sent")
    else:
        open_ = []
        for g in range(REQUESTS):
            parts = [Receive(memory, handle, size, i, (g * n + i) * size) for i in range(n)]
            open_.append(side.received(comm, *parts))
        side.channel.tell("all are posted")
        for request in open_:
            side.expect(side.done(request, n), [size] * n, "sizes received")
        side.expect(memory.read(memory.size), data, "data")
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def flush(side: Side) -> None:
    """iflush after a receive returns no request, or one that ends"""
    comm = side.pair()
    memory = Memory(4096)
    handle = side.net.register(comm, memory)
    if side.sends:
        side.done(side.sent(comm, memory, 4096, handle))
    else:
        receive = Receive(memory, handle, 4096)
        side.done(side.received(comm, receive))
        request = side.net.iflush(comm, receive)
        if request:
            side.done(request, sizes=False)
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def many_messages(side: Side) -> None:
    """requests are used again and again; none is lost"""
    comm, depth = side.pair(), 8
    memory = Memory(depth * 4096)
    handle = side.net.register(comm, memory)
    open_: list[int] = []
    for turn in range(_MESSAGES):
        at = turn % depth * 4096
        if len(open_) == depth:
            side.expect(side.done(open_.pop(0)), [1 + (turn - depth) % 4096], "size")
        size = 1 + turn % 4096
        open_.append(
            side.sent(comm, memory, size, handle, at=at)
            if side.sends
            else side.received(comm, Receive(memory, handle, 4096, offset=at))
        )
    for request in open_:
        side.done(request)
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def bulk(side: Side) -> None:
    """a hundred messages of 64 KiB, each compared"""
    comm = side.pair()
    memory = Memory(_BULK)
    handle = side.net.register(comm, memory)
    for turn in range(100):
        if side.sends:
            memory.write(pattern(_BULK, turn))
            side.done(side.sent(comm, memory, _BULK, handle))
        else:
            side.done(side.received(comm, Receive(memory, handle, _BULK)))
            side.expect(memory.read(_BULK), pattern(_BULK, turn), f"data of message {turn}")
    side.net.deregister(comm, handle)
    side.close(comm)


@case()
def memory_by_parts(side: Side) -> None:
    """memory is registered again and again; any part of it may be used"""
    comm = side.pair()
    memory = Memory(2**20)
    for turn in range(100):
        handle = side.net.register(comm, memory)
        if turn % 10 == 0:
            at = 12345 + turn
            if side.sends:
                memory.write(pattern(2000, turn), at)
                side.done(side.sent(comm, memory, 2000, handle, at=at))
            else:
                receive = Receive(memory, handle, 3000, offset=at)
                side.expect(side.done(side.received(comm, receive)), [2000], "size")
                side.expect(memory.read(2000, at), pattern(2000, turn), "data")
        side.net.deregister(comm, handle)
    side.close(comm)


@case()
def threads(side: Side) -> None:
    """four threads, each with communicators of its own"""
    troubles: list[BaseException] = []
    comms = [side.pair() for _ in range(4)]

    def work(comm: int, seed: int) -> None:
        try:
            for turn in range(40):
                message(side, comm, 100 * turn, 4096, seed)
        except BaseException as error:
            troubles.append(error)

    running = [threading.Thread(target=work, args=(c, i)) for i, c in enumerate(comms)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if troubles:
        raise troubles[0]
    for comm in comms:
        side.close(comm)
