# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One event loop in a background thread, and calls into it from everywhere else."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop of all connections of this process; started by the first call."""
    fresh = asyncio.new_event_loop()
    threading.Thread(target=fresh.run_forever, name="dp-ssh", daemon=True).start()
    return fresh


def call(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine in the loop and wait for its result; an interrupt cancels it."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
