# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""To wait for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

LIMIT_S = 100
"""Far above what is ever needed, also where many others want the CPUs."""


class Ends(Protocol):
    """A program that was started: one of subprocess, or of a host."""

    def poll(self) -> int | None: ...


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Returns when the condition holds; fails, and says `what` did not happen, if it never does."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            pytest.fail(f"after {LIMIT_S} s: {what}")
        time.sleep(0.005)


def wait_for_words(log: Path, words: str, process: Ends | None = None) -> None:
    """Returns when `words` are in the file; fails when its process has ended without them."""

    def are_there() -> bool:
        ended = process is not None and process.poll() is not None
        text = log.read_text() if log.exists() else ""
        if ended and words not in text:
            pytest.fail(f"the program has ended without {words!r}: {text}")
        return words in text

    wait_until(are_there, f"{words!r} is in {log}")
