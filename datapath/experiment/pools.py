# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One function over many items, in processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from queue import Empty, SimpleQueue
from typing import TypeVar

from datapath import forked

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_HANDED_OUT = 2
"""Items for each process of a pool: none waits for its next one, and few are lost with a pool."""

_LOOK_S = 1.0
"""How often to look whether a pool that says nothing is lost."""


class Workers:
    """So many processes, or with 1 this one.  A context; they end with this process at the latest.

    When a process dies (somebody kills it, or memory is short), its pool is lost, and nothing says
    which item it had.  Each item that was handed out is then tried again with no other beside it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if self._pool is not None:
            _end(self._pool, at_once=kind is not None)

    def made(
        self, function: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> Generator[tuple[int, _Result | None], None, None]:
        """The position of each item with what `function` returns for it, as they come.

        None: the process that had the item died, also when it had no other.
        """
        left = deque(enumerate(items))
        if self._count <= 1:
            yield from ((at, function(item)) for at, item in left)
            return
        while left:
            again = deque((yield from self._made_beside_others(function, left)))
            while again:
                with _alone() as pool:
                    lost = yield from _made(pool, function, again, 1)
                yield from ((at, None) for at, _ in lost)

    def in_order(
        self, function: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> Iterator[_Result | None]:
        """As made(), in the order of the items."""
        early: dict[int, _Result | None] = {}
        next_at = 0
        with contextlib.closing(self.made(function, items)) as made:
            for at, result in made:
                early[at] = result
                while next_at in early:
                    yield early.pop(next_at)
                    next_at += 1

    def _made_beside_others(
        self, function: Callable[[_Item], _Result], left: deque[tuple[int, _Item]]
    ) -> Generator[tuple[int, _Result], None, list[tuple[int, _Item]]]:
        if self._pool is None:
            self._pool = _begin(self._count)
        lost = yield from _made(self._pool, function, left, _HANDED_OUT * self._count)
        if self._pool._broken:
            _end(self._pool)
            self._pool = None
        return lost


def _made(
    pool: ProcessPoolExecutor,
    function: Callable[[_Item], _Result],
    left: deque[tuple[int, _Item]],
    most: int,
) -> Generator[tuple[int, _Result], None, list[tuple[int, _Item]]]:
    """Make the items that are left, and hand out so many of them at once.

    Returns the items that a pool had when it was lost; those that it had not stay in `left`.
    """
    ended: SimpleQueue[Future[_Result]] = SimpleQueue()
    waiting: dict[Future[_Result], tuple[int, _Item]] = {}
    lost: list[tuple[int, _Item]] = []
    is_lost = False
    try:
        while waiting or (left and not is_lost):
            while left and not is_lost and len(waiting) < most:
                try:
                    future = pool.submit(function, left[0][1])
                except RuntimeError:
                    if not pool._broken:
                        raise
                    is_lost = True
                else:
                    waiting[future] = left.popleft()
                    future.add_done_callback(ended.put)
            if not waiting:
                break
            try:
                future = ended.get(timeout=_LOOK_S)
            except Empty:
                # A pool that breaks during submit() never tells what becomes of that item.
                if pool._broken:
                    return [*lost, *waiting.values()]
                continue
            item = waiting.pop(future)
            try:
                result = future.result()
            except BrokenProcessPool:
                is_lost = True
                lost.append(item)
            else:
                yield item[0], result
        return lost
    finally:
        for future in waiting:
            future.cancel()


@contextlib.contextmanager
def _alone() -> Iterator[ProcessPoolExecutor]:
    """A pool of one process."""
    pool = _begin(1)
    try:
        yield pool
    except BaseException:
        _end(pool, at_once=True)
        raise
    _end(pool)


def _begin(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(os.getpid(),),
    )


def _end(pool: ProcessPoolExecutor, *, at_once: bool = False) -> None:
    """End a pool when it has made what it has, or at once."""
    if at_once:
        pool.shutdown(wait=False, cancel_futures=True)
    if at_once or pool._broken:  # one that submit() began after the break does not end by itself
        workers = multiprocessing.active_children()
        for process in workers:
            process.kill()
        for process in workers:
            process.join()
    pool.shutdown()


def _begin_worker(parent: int) -> None:
    """Ignore interrupts, which the parent handles, and end when the parent ends, or has ended."""
    forked.end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
