# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The cards of this network namespace, and their counters (service.py has the other end).

Any process may give its sockets such names, so a card is believed only if it is this user's or
root's.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datapath import processes
from datapath.vnic.service import SOCKET_PREFIX

_ANSWER_S = 5.0
_ANSWER_MAX = 32 * 2**20
_LISTENS = 0x10000
"""Of the flags in /proc/net/unix: connections that nobody has accepted have the name as well."""


def running(host: str = "") -> list[dict[str, Any]]:
    """The answers of all cards, or of one host's; cards of other users are left out.

    An answer with a "reason" has no counters: the card does not run now, or does not answer.
    """
    found = []
    for name in _sockets():
        of = name.removeprefix(SOCKET_PREFIX).split("/")[0]
        if host and of != host:
            continue
        try:
            found.append(_ask(name))
        except (TimeoutError, BlockingIOError):  # the latter: its backlog is full
            why = f"the card does not answer within {_ANSWER_S:g} s"
            found.append({"host": of, "state": "no answer", "reason": why})
        except (OSError, ValueError):
            continue
    return found


def _sockets() -> Iterator[str]:
    for line in Path("/proc/thread-self/net/unix").read_text(errors="replace").splitlines()[1:]:
        name = line.partition("@")[2]
        if name.startswith(SOCKET_PREFIX) and int(line.split()[3], 16) & _LISTENS:
            yield name


def _ask(name: str) -> dict[str, Any]:
    """OSError, ValueError: nobody answers in time, or nobody that is believed."""
    deadline = time.monotonic() + _ANSWER_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(f"\0{name}")
        if not processes.is_ours_or_roots(connection):
            raise PermissionError(f"{name} is another user's")
        parts, size = [], 0
        while size <= _ANSWER_MAX and (part := _receive(connection, deadline)):
            parts.append(part)
            size += len(part)
    report = json.loads(b"".join(parts))
    if not isinstance(report, dict):
        raise ValueError("not a report of a card")
    return report


def _receive(connection: socket.socket, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)
    return connection.recv(65536)
