# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A function over many items in processes that somebody may kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from datapath.experiment import pools
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def square(number: int) -> int:
    """Of a number; a negative one ends its process."""
    if number < 0:
        os._exit(1)
    return number * number


@pytest.mark.parametrize("count", [1, 2])
def test_results_keep_the_order_of_their_items(count: int) -> None:
    with pools.Workers(count) as workers:
        assert list(workers.in_order(square, [3, 2, 1])) == [9, 4, 1]
        assert list(workers.in_order(square, range(20))) == [n * n for n in range(20)]
        assert list(workers.in_order(square, [])) == []


def test_an_item_whose_process_dies_has_no_result_and_the_others_have() -> None:
    with pools.Workers(2) as workers:
        assert list(workers.in_order(square, [1, 2, -1, 3, -1, 4])) == [1, 4, None, 9, None, 16]
        assert list(workers.in_order(square, [5])) == [25]


def test_results_that_nobody_waits_for_cost_the_next_ones_nothing() -> None:
    with pools.Workers(2) as workers:
        first = workers.in_order(square, range(100))
        assert next(first) == 0
        first.close()  # type: ignore[attr-defined]
        assert list(workers.in_order(square, [7])) == [49]


def test_an_item_that_a_pool_gets_while_it_breaks_is_lost_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """submit() saw the pool whole, and added the item when those that it had were told."""
    with pools._alone() as pool:
        with pytest.raises(BrokenProcessPool):
            pool.submit(os._exit, 1).result()
        wait_until(lambda: pool._broken, "the pool is broken")
        submit = pool.submit

        def late(*words: Any) -> Any:
            broken, pool._broken, pool._shutdown_thread = pool._broken, False, False
            try:
                return submit(*words)
            finally:
                pool._broken = broken

        monkeypatch.setattr(pool, "submit", late)
        made = pools._made(pool, square, deque([(0, 3)]), 1)
        with pytest.raises(StopIteration) as ended:
            next(made)
    assert ended.value.value == [(0, 3)]


def test_a_worker_whose_parent_has_ended_ends() -> None:
    code = "import os; from datapath.experiment.pools import _begin_worker as begin; begin(1)"
    begun = f"{code[:-2]}os.getppid()); print('begun')"
    for words, status, out in ((code, 1, b""), (begun, 0, b"begun\n")):
        done = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True)
        assert (done.returncode, done.stdout) == (status, out), done.stderr
