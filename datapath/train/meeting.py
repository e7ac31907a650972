# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the ranks of a group find each other: rank 0 leaves its address in torch's store.

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
from datetime import timedelta

import torch.distributed as dist

from datapath.collectives import Plan
from datapath.collectives.communicator import Communicator
from datapath.errors import LocalError

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


def appeared(store: dist.Store, key: str, timeout: timedelta) -> bytes:
    """The value of a key as soon as it is there.

    torch's own wait() would keep the store from the other threads of this process until then: two
    ranks that wait for each other's address, and leave their own by another thread, would wait
    for ever.
    """
    end = time.monotonic() + timeout.total_seconds()
    while not store.check([key]):
        if time.monotonic() > end:
            waited = f"{timeout.total_seconds():g} s"
            raise LocalError(
                f"backend dp: nobody left {key!r} in torch's store for {waited}",
                hint="see whether all ranks run; init_process_group(timeout=...) is for how long",
            )
        time.sleep(_LOOK_S)
    return bytes(store.get(key))


def meet(
    store: dist.Store, key: str, rank: int, ranks: int, plans: list[Plan], timeout: timedelta
) -> Communicator:
    """A communicator of those that call this with the same key; rank 0 leads.

    Raises what Communicator raises, and LocalError when rank 0 does not come in time.
    """
    device, silence = device_name(), silence_ms()
    with contextlib.ExitStack() as opened:
        listener = None
        if rank == 0:
            listener = opened.enter_context(socket.create_server((own_address(), 0), backlog=ranks))
            address, port = listener.getsockname()
            where = {"address": address, "port": port, "token": secrets.token_hex(16)}
            store.set(key, json.dumps(where))
        else:
            where = json.loads(appeared(store, key, timeout))
        return Communicator(
            rank,
            ranks,
            device=device,
            plans=plans,
            listener=listener,
            meet_ms=max(1, int(timeout.total_seconds() * 1000)),
            silence_ms=silence,
            **where,
        )
