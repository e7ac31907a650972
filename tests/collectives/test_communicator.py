# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The communicator for Python: ranks are threads of this process, which share memory."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath.collectives import Plan, Trace, algorithm, check, load, make
from datapath.collectives.communicator import Communicator
from datapath.collectives.plan import HEAD_DTYPE
from datapath.errors import LocalError, RemoteError

PATIENCE_S = 120
MONTH_MS = 30 * 24 * 3600 * 1000
TOKEN = "a secret of this test"

Opener = Callable[..., Communicator]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def opened(listener: socket.socket) -> Opener:
    """Opens the communicator of a rank."""

    def open_(rank: int, plan: Plan, **more: Any) -> Communicator:
        more = {"port": listener.getsockname()[1], "silence_ms": 60_000, **more}
        return Communicator(
            rank,
            plan.ranks,
            device="shm",
            address="127.0.0.1",
            token=TOKEN,
            plans=[plan],
            listener=None if rank else listener,
            **more,
        )

    return open_


def planned(name: str, ranks: int, size: int = 1024, *, root: int = 0) -> Plan:
    return check(make(load(name), ranks, size, root=root))


def ended(works: list[Future[Any]]) -> list[Any]:
    return [work.result(PATIENCE_S) for work in works]


@pytest.mark.parametrize(("name", "ranks"), [("ring", 1), ("chain", 2)])
def test_a_collective_that_waits_for_another_one_begins(
    opened: Opener, name: str, ranks: int
) -> None:
    """The thread hears of both at once, and the first ends before the thread looks again.

    It would sleep until the next sign of life, which is due far behind the end of this test.
    """
    plan, together = planned(name, ranks), threading.Barrier(ranks)

    def run(rank: int) -> bool:
        data = np.zeros(256, np.float32)
        with opened(rank, plan, silence_ms=2**32 - 1) as comm:
            taken = comm.take(plan)
            for _ in range(30):
                together.wait(PATIENCE_S)
                time.sleep(0.01)  # until the threads sleep
                works = [comm.start(taken, data.ctypes.data, items="float32") for _ in range(4)]
                if not all(work.wait(PATIENCE_S / 4) for work in works):
                    comm.abort("a collective does not begin")
                    return False
        return True

    with ThreadPoolExecutor(ranks) as pool:
        assert all(ended([pool.submit(run, rank) for rank in range(ranks)]))


def relay(listener: socket.socket, port: int, pause_s: float) -> None:
    """Between a rank and rank 0; what the rank says last before it is connected comes late.

    Ranks meet in four rounds, each of which ends with rank 0's answer.
    """
    near, _ = listener.accept()
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        answers = 0
        while True:
            [source, *_], _, _ = select.select([near, far], [], [])
            if not (said := source.recv(65536)):
                return
            if source is near and answers == 3:
                time.sleep(pause_s)
            answers += source is far
            (near if source is far else far).sendall(said)


def test_a_rank_that_is_late_to_connect_ends_nobody(
    opened: Opener, listener: socket.socket
) -> None:
    """Others are ready long before it: the time until it comes is no silence."""
    plan, silence_ms = planned("ring", 2), 2000

    def run(rank: int, port: int) -> bool:
        data = np.zeros(256, np.float32)
        with opened(rank, plan, port=port, silence_ms=silence_ms) as comm:
            return comm.start(comm.take(plan), data.ctypes.data, items="float32").wait(PATIENCE_S)

    port = listener.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as between, ThreadPoolExecutor(3) as pool:
        relayed = pool.submit(relay, between, port, 1.5 * silence_ms / 1000)
        ranks = [pool.submit(run, 0, port), pool.submit(run, 1, between.getsockname()[1])]
        assert ended(ranks) == [True, True]
        relayed.result(PATIENCE_S)


def test_a_closed_communicator_refuses_all_calls(opened: Opener) -> None:
    plan, data = planned("ring", 1), np.zeros(256, np.float32)
    comm = opened(0, plan)
    taken = comm.take(plan)
    done = comm.start(taken, data.ctypes.data)
    assert done.wait()
    with pytest.raises(LocalError, match="has been waited for"):
        done.wait()
    left = comm.start(taken, data.ctypes.data)
    comm.close()
    for call in (
        lambda: comm.take(plan),
        lambda: comm.start(taken, data.ctypes.data),
        lambda: comm.forget(taken),
        lambda: comm.abort("why"),
        left.wait,
    ):
        with pytest.raises(LocalError, match="rank 0: the communicator is closed"):
            call()
    comm.close()


def test_times_of_months_are_as_long_as_can_be(opened: Opener) -> None:
    """A rank that waits for so long still notices that its communicator has failed."""
    plan, over = planned("ring", 2), threading.Event()

    def run(rank: int) -> bool:
        data = np.zeros(256, np.float32)
        comm = opened(rank, plan, meet_ms=MONTH_MS)
        work = comm.start(comm.take(plan), data.ctypes.data, items="float32")
        assert work.wait(MONTH_MS / 1000)
        if rank == 0:
            comm.close()
            over.set()
            return True
        time.sleep(0.5)  # until rank 0 waits for this one
        comm.abort("it has had enough")
        in_time = over.wait(PATIENCE_S / 4)
        comm.close(MONTH_MS / 1000)
        return in_time

    with ThreadPoolExecutor(2) as pool:
        assert ended([pool.submit(run, rank) for rank in range(2)]) == [True, True]


def test_times_that_are_over_are_none(opened: Opener) -> None:
    """A wait that is over before it begins looks once; a close without patience closes."""
    plan, looked = planned("ring", 2), threading.Event()

    def run(rank: int) -> bool:
        data = np.zeros(256, np.float32)
        comm = opened(rank, plan)
        taken = comm.take(plan)
        if rank == 1:
            looked.wait(PATIENCE_S)
        work = comm.start(taken, data.ctypes.data, items="float32")
        ended_early = rank == 0 and (work.wait(-0.5) or work.wait(float("-inf")))
        looked.set()
        assert work.wait(PATIENCE_S)
        comm.close(-0.1)
        return not ended_early

    with ThreadPoolExecutor(2) as pool:
        assert ended([pool.submit(run, rank) for rank in range(2)]) == [True, True]


def test_what_was_sent_before_a_farewell_is_taken_first(opened: Opener) -> None:
    """Rank 1 is done when it has sent, and leaves while rank 0 still adds all of it up."""
    slots, items = 8, 4 << 20
    plan = check(
        make(load("reduce_chain"), 2, 2 * items, item_bytes=2, transfer_bytes=2 * items // slots)
    )

    def run(rank: int) -> bool:
        data = np.ones(items, np.float16)
        comm = opened(rank, plan)
        taken = comm.take(plan)
        assert comm.start(taken, data.ctypes.data, items="float16").wait(PATIENCE_S)
        comm.close(0)
        return bool(np.all(data == 2 - rank))

    for _ in range(10):
        with ThreadPoolExecutor(2) as pool:
            assert ended([pool.submit(run, rank) for rank in range(2)]) == [True, True]


def test_a_call_that_is_refused_harms_nobody(opened: Opener) -> None:
    """The communicators of both ranks are as good as before."""
    plan, wrong = planned("ring", 2), check(make(load("ring"), 2, 4096))

    def run(rank: int) -> list[str]:
        data, told = np.zeros(256, np.float32), []
        with opened(rank, plan) as comm:
            taken = comm.take(plan)
            for call in (
                lambda: comm.take(wrong),
                lambda: comm.take(planned("ring", 3)),
                lambda: comm.start(taken, data.ctypes.data, items="float64"),
            ):
                with pytest.raises(LocalError) as error:
                    call()
                told.append(str(error.value))
            assert comm.start(taken, data.ctypes.data, items="float32").wait(PATIENCE_S)
        return told

    with ThreadPoolExecutor(2) as pool:
        for told in ended([pool.submit(run, rank) for rank in range(2)]):
            assert "transfers of 2048 bytes" in told[0]
            assert "for 3 ranks" in told[1]
            assert "do not suit a plan with items of 4 bytes" in told[2]


def test_who_waits_while_another_thread_closes_is_told(opened: Opener) -> None:
    plan, waits, closed = planned("ring", 2), threading.Event(), threading.Event()

    def wait(comm: Communicator, taken: Any) -> str:
        data = np.zeros(256, np.float32)
        work = comm.start(taken, data.ctypes.data, items="float32")
        waits.set()
        with pytest.raises((LocalError, RemoteError)) as error:
            work.wait()
        return str(error.value)

    def run(rank: int) -> str:
        comm = opened(rank, plan)
        taken = comm.take(plan)
        if rank == 1:  # which starts nothing
            closed.wait(PATIENCE_S)
            comm.close(0)
            return ""
        with ThreadPoolExecutor(1) as other:
            told = other.submit(wait, comm, taken)
            waits.wait(PATIENCE_S)
            time.sleep(0.1)  # until it waits
            comm.close(0)
            closed.set()
            return str(told.result(PATIENCE_S))

    with ThreadPoolExecutor(2) as pool:
        told, _ = ended([pool.submit(run, rank) for rank in range(2)])
    assert re.search(r"communicator (is|was) closed", told)


def digest(plan: Plan) -> int:
    """What messages have of the digest of a plan's head (coll_digest())."""
    found = 14695981039346656037
    for byte in plan.to_bytes()[: HEAD_DTYPE.itemsize]:
        found = (found ^ byte) * 1099511628211 % 2**64
    return found >> 56


def like(plan: Plan) -> Plan:
    """One of another size with the same digest."""
    sizes = (size for size in range(4, 16384, 4) if size != plan.data_bytes)
    return next(
        one
        for one in (planned(plan.algorithm, plan.ranks, size) for size in sizes)
        if digest(one) == digest(plan)
    )


RING, CHAIN = planned("ring", 2), planned("chain", 2)
PAIRWISE = planned("pairwise", 2, 2048)


@pytest.mark.parametrize(
    ("plans", "more"),
    [
        ((RING, planned("ring", 2, 512)), {}),
        ((CHAIN, like(CHAIN)), {}),
        ((RING, RING), {"items": ("float32", "int32")}),
        ((RING, RING), {"op": ("sum", "max")}),
        ((CHAIN, planned("chain", 2, root=1)), {}),
        ((CHAIN, CHAIN), {"tag": (1, 2)}),
        ((RING, CHAIN), {}),
    ],
    ids=["size", "length alone", "type", "operation", "root", "tag", "collective"],
)
def test_ranks_that_start_different_collectives_are_told(
    opened: Opener, plans: tuple[Plan, Plan], more: dict[str, tuple[Any, Any]]
) -> None:
    """At the latest when they receive: the next collective is one of two ways."""

    def run(rank: int) -> str:
        data = np.zeros(256, np.float32)
        own = {name: values[rank] for name, values in {"items": ("float32",) * 2, **more}.items()}
        with opened(rank, PAIRWISE) as comm:
            try:
                comm.start(comm.take(plans[rank]), data.ctypes.data, **own).wait(PATIENCE_S)
                comm.start(comm.take(RING), data.ctypes.data, items="float32").wait(PATIENCE_S)
            except RemoteError as error:
                return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        told = ended([pool.submit(run, rank) for rank in range(2)])
    for one in told:
        assert "do all ranks start the same collectives, with the same sizes" in one, told


def test_data_of_an_earlier_collective_is_not_taken_for_that_of_this_one(opened: Opener) -> None:
    """Both are roots at first, so that nobody takes what the other one sends."""

    def run(rank: int) -> str:
        data = np.full(256, rank, np.float32)
        with opened(rank, PAIRWISE) as comm:
            own = comm.take(planned("chain", 2, root=rank))
            assert comm.start(own, data.ctypes.data).wait(PATIENCE_S)
            try:
                comm.start(comm.take(CHAIN), data.ctypes.data).wait(PATIENCE_S)
                comm.start(comm.take(planned("chain", 2, root=1)), data.ctypes.data).wait(
                    PATIENCE_S
                )
            except RemoteError as error:
                return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        told = ended([pool.submit(run, rank) for rank in range(2)])
    assert all("of another collective" in one for one in told), told


COPIES, CHUNK_BYTES = 6000, 4 * 2**20


@algorithm("busy", collective="broadcast")
def busy(plan: Trace) -> None:
    """The root has much to do by itself when the others are done."""
    data = plan.chunk(0, "data", 0)
    data.copy(1)
    copy = data
    for turn in range(COPIES):
        copy = copy.copy(0, "scratch", turn % 2)


def test_a_rank_that_works_by_itself_is_not_gone(opened: Opener) -> None:
    """Its peer has nothing to wait for but signs of life."""
    plan = check(make(busy, 2, CHUNK_BYTES, transfer_bytes=CHUNK_BYTES))

    def run(rank: int) -> bool:
        data = np.zeros(CHUNK_BYTES, np.int8)
        with opened(rank, plan, silence_ms=1500) as comm:
            return comm.start(comm.take(plan), data.ctypes.data).wait(PATIENCE_S)

    with ThreadPoolExecutor(2) as pool:
        assert ended([pool.submit(run, rank) for rank in range(2)]) == [True, True]


def test_a_child_does_not_hide_that_its_parent_is_dead() -> None:
    script = Path(__file__).with_name("forked_rank.py")
    words = [sys.executable, "-P", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "rank 1 is gone: " in done.stdout, done
    assert "which shared memory with this one, has ended" in done.stdout, done


def test_a_rank_0_without_a_free_descriptor_says_so() -> None:
    """The socket at which others wait for it stays readable."""
    script = Path(__file__).with_name("no_descriptors.py")
    words = [sys.executable, "-P", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S / 4)
    assert done.stdout == "rank 0: accepting a connection: Too many open files\n", done


def test_a_signal_is_no_connection(opened: Opener) -> None:
    """Rank 0's host drops what this one sends it; meanwhile a signal arrives."""
    with socket.socket() as full, contextlib.ExitStack() as callers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(RemoteError, match="rank 0 is not at"):
                opened(1, planned("ring", 2), port=full.getsockname()[1], meet_ms=1500)
        finally:
            signal.signal(signal.SIGALRM, before)
