# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the ranks of a group find each other: rank 0 leaves its address in torch's store.

The store may outlive a group, and a meeting that failed: what lies there can be of another time.
So each rank leaves a fresh token; rank 0 answers with its address and the tokens that it saw, anew
when they change; a rank takes the answer that has its token, and leaves rank 0's token to say so.

Settings are taken from the environment, which torchrun hands to all ranks:

    DATAPATH_TRAIN_DEVICE      names of verbs devices, between commas, which channels take in turn;
                               the first of DATAPATH_DEVICES unless set
    DATAPATH_TRAIN_SILENCE_MS  a peer without a sign of life for so long is gone; 2500 unless set
    MASTER_ADDR                torch's own: rank 0 listens at its address that leads there; unset:
                               to the host of torch's store
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from datapath.collectives import Plan
from datapath.collectives.communicator import Communicator, in_ms
from datapath.errors import DatapathError, LocalError, RemoteError

_SILENCE_MS = 2500
_LOOK_S = 0.005  # time between two looks into torch's store
_ELSEWHERE = " elsewhere"  # behind rank 0's token: a rank of another machine has read it


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


def own_address(store: dist.Store) -> str:
    """The IPv4 address of this host towards torch's master."""
    master = master_of(store)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))  # a datagram socket sends nothing for it
            return str(probe.getsockname()[0])
    except OSError as error:
        raise LocalError(
            f"backend dp: no IPv4 address of this host leads to torch's master {master}: {error}",
            hint="set MASTER_ADDR to the IPv4 address of rank 0's host, or to its name",
        ) from None


def master_of(store: dist.Store) -> str:
    """The host of torch's store, unless the environment names one."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    host = store.host if isinstance(store, dist.TCPStore) else "127.0.0.1"
    return os.environ.get("MASTER_ADDR", "") or host


def meet(
    store: dist.Store,
    key: str,
    rank: int,
    ranks: int,
    plans: list[Plan],
    timeout: timedelta,
    left: threading.Event | None = None,
) -> Communicator:
    """A communicator of those that call this with the same key; rank 0 leads.

    left: once it is set, this rank waits for nobody.  Raises what Communicator raises, and
    RemoteError when ranks do not come in time.
    """
    device, silence, left = device_name(), silence_ms(), left or threading.Event()
    with contextlib.ExitStack() as opened:
        listener = None
        if rank == 0:
            own = own_address(store)
            listener = opened.enter_context(socket.create_server((own, 0), backlog=ranks))
            address, port = listener.getsockname()
            where = {"address": address, "port": port, "token": secrets.token_hex(16)}
            lead(store, key, ranks, where, timeout, left)
        else:
            where = follow(store, key, rank, timeout, left)
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
    store: dist.Store,
    key: str,
    ranks: int,
    where: dict[str, Any],
    timeout: timedelta,
    left: threading.Event,
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
        if where["token"] + _ELSEWHERE in came.values():
            raise _only_here(where["address"])
        if missing and came != told:
            store.set(key, json.dumps({"where": where, "came": came, "machine": _machine()}))
            told = came
        return not missing

    if not _comes_true(all_know, timeout, left):
        who = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise _nobody_came(f"{who} did not meet rank 0", timeout, left)


def follow(
    store: dist.Store, key: str, rank: int, timeout: timedelta, left: threading.Event
) -> dict[str, Any]:
    """Where rank 0 is, in its answer to what this rank has just left in the store."""
    mark, own = f"{key} rank {rank}", secrets.token_hex(16)
    answer: dict[str, Any] = {}

    def answered() -> bool:
        if text := _look(store, key):
            found = json.loads(text)
            if found["came"].get(str(rank)) == own:
                answer.update(found)
        return bool(answer)

    store.set(mark, own)
    if not _comes_true(answered, timeout, left):
        raise _nobody_came(f"rank 0 did not answer rank {rank}", timeout, left)
    where: dict[str, Any] = answer["where"]
    if answer["machine"] != _machine() and ipaddress.ip_address(where["address"]).is_loopback:
        store.set(mark, where["token"] + _ELSEWHERE)
        raise _only_here(where["address"])
    store.set(mark, where["token"])
    return where


def _machine() -> str:
    """Alike for those whom a loopback address leads to each other."""
    network = Path("/proc/self/ns/net").stat()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {network.st_dev} {network.st_ino}"


def _only_here(address: str) -> LocalError:
    return LocalError(
        f"backend dp: rank 0 listens at {address}, where other machines cannot reach it",
        hint="set MASTER_ADDR to an address of rank 0's host that leads there from all ranks",
    )


def _look(store: dist.Store, key: str) -> bytes:
    """What is there; nothing when the key is not.

    torch's own wait() would keep the store from the other threads of this process: two ranks that
    wait for each other's address, and leave their own by another thread, would wait for ever.
    """
    return bytes(store.get(key)) if store.check([key]) else b""


def _comes_true(looked: Callable[[], bool], timeout: timedelta, left: threading.Event) -> bool:
    """Look until it is so; whether it was in time, and before this rank left."""
    end = time.monotonic() + timeout.total_seconds()
    while not looked():
        if time.monotonic() > end or left.wait(_LOOK_S):
            return False
    return True


def _nobody_came(what: str, timeout: timedelta, left: threading.Event) -> DatapathError:
    if left.is_set():
        return LocalError(f"backend dp: {what}, and this rank has left the group")
    return RemoteError(
        f"backend dp: {what} in torch's store for {timeout.total_seconds():g} s",
        hint="see whether all ranks run; init_process_group(timeout=...) is for how long",
    )
