# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Waits for a server: clients give up when none listens."""

from __future__ import annotations

import time

from datapath.lanes.base import Host, Process

LISTENER = ["grep", "-q", " 0A ", "/proc/net/tcp", "/proc/net/tcp6"]
"""Whether a TCP socket listens (state 0A)."""


def await_listener(host: Host, server: Process, timeout_s: float = 60) -> None:
    """Until a program on `host` listens; fails at once when `server` has ended before."""
    end = time.monotonic() + timeout_s
    while host.run(LISTENER).returncode:
        assert server.poll() is None, "the server ended before it listened"
        assert time.monotonic() < end, "nothing listens"
        time.sleep(0.02)
