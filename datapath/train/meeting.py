# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the ranks of a group find each other: rank 0 leaves its address in torch's store.

The store may outlive a group, and a meeting that failed: what lies there can be of another time.
So each rank leaves a fresh token; rank 0 answers with its address and the tokens that it saw, anew
when they change; a rank takes the answer that has its token, and leaves rank 0's token to say so.

Settings are taken from the environment, which torchrun hands to all ranks:

    DATAPATH_TRAIN_DEVICE      names of verbs devices, between commas, which channels take in turn;
                               the first of DATAPATH_DEVICES unless set
    DATAPATH_TRAIN_SILENCE_MS  a peer without a sign of life for so long is gone; 2500 unless set
    MASTER_ADDR                torch's own: rank 0 listens at its address that leads there
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from datapath.collectives import Plan
from datapath.collectives.communicator import Communicator, in_ms
from datapath.errors import LocalError, RemoteError

_SILENCE_MS = 2500
_LOOK_S = 0.005  # time between two looks into torch's store


def device_name() -> str:
    """The verbs device of this process; LocalError when none is named."""
    name = os.environ.get("DATAPATH_TRAIN_DEVICE", "")
    configured = os.environ.get("DATAPATH_DEVICES", "").split()
    if not name and configured:
        name = configured[0].partition("=")[0]
    if not name:
        raise LocalError(
            "backend dp: no verbs device is named",
            hint="start the program by dpctl exec --device dp0=udp:ADDRESS, or set "
            "DATAPATH_TRAIN_DEVICE",
        )
    return name


def silence_ms() -> int:
    text = os.environ.get("DATAPATH_TRAIN_SILENCE_MS", "")
    if text and not (text.isdigit() and int(text) > 0):
        raise LocalError(f"DATAPATH_TRAIN_SILENCE_MS is {text!r}", hint="give milliseconds: 2500")
    return int(text) if text else _SILENCE_MS


def own_address() -> str:
    """The IPv4 address of this host towards torch's master."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # a datagram socket sends nothing for it
        return str(probe.getsockname()[0])


def meet(
    store: dist.Store, key: str, rank: int, ranks: int, plans: list[Plan], timeout: timedelta
) -> Communicator:
    """A communicator of those that call this with the same key; rank 0 leads.

    Raises what Communicator raises, and RemoteError when ranks do not come in time.
    """
    device, silence = device_name(), silence_ms()
    with contextlib.ExitStack() as opened:
        listener = None
        if rank == 0:
            listener = opened.enter_context(socket.create_server((own_address(), 0), backlog=ranks))
            address, port = listener.getsockname()
            where = {"address": address, "port": port, "token": secrets.token_hex(16)}
            lead(store, key, ranks, where, timeout)
        else:
            where = follow(store, key, rank, timeout)
        return Communicator(
            rank,
            ranks,
            device=device,
            plans=plans,
            listener=listener,
            meet_ms=max(1, in_ms(timeout.total_seconds())),
            silence_ms=silence,
            **where,
        )


def lead(
    store: dist.Store, key: str, ranks: int, where: dict[str, Any], timeout: timedelta
) -> None:
    """Tell the other ranks where rank 0 is; returns when all of them know it.

    where: with a token that no other meeting has.
    """
    marks = {str(rank): f"{key} rank {rank}" for rank in range(1, ranks)}
    told: dict[str, str] | None = None
    missing: list[str] = []

    def all_know() -> bool:
        nonlocal told, missing
        came = {rank: at.decode() for rank, mark in marks.items() if (at := _look(store, mark))}
        missing = [rank for rank in marks if came.get(rank) != where["token"]]
        if missing and came != told:
            store.set(key, json.dumps({"where": where, "came": came}))
            told = came
        return not missing

    if not _comes_true(all_know, timeout):
        who = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise _nobody_came(f"{who} did not meet rank 0", timeout)


def follow(store: dist.Store, key: str, rank: int, timeout: timedelta) -> dict[str, Any]:
    """Where rank 0 is, in its answer to what this rank has just left in the store."""
    mark, own = f"{key} rank {rank}", secrets.token_hex(16)
    where: dict[str, Any] = {}

    def answered() -> bool:
        if answer := _look(store, key):
            found = json.loads(answer)
            if found["came"].get(str(rank)) == own:
                where.update(found["where"])
        return bool(where)

    store.set(mark, own)
    if not _comes_true(answered, timeout):
        raise _nobody_came(f"rank 0 did not answer rank {rank}", timeout)
    store.set(mark, where["token"])
    return where


def _look(store: dist.Store, key: str) -> bytes:
    """What is there; nothing when the key is not.

    torch's own wait() would keep the store from the other threads of this process: two ranks that
    wait for each other's address, and leave their own by another thread, would wait for ever.
    """
    return bytes(store.get(key)) if store.check([key]) else b""


def _comes_true(looked: Callable[[], bool], timeout: timedelta) -> bool:
    """Look until it is so; whether it was in time."""
    end = time.monotonic() + timeout.total_seconds()
    while not looked():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_S)
    return True


def _nobody_came(what: str, timeout: timedelta) -> RemoteError:
    return RemoteError(
        f"backend dp: {what} in torch's store for {timeout.total_seconds():g} s",
        hint="see whether all ranks run; init_process_group(timeout=...) is for how long",
    )
