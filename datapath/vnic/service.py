# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A card of a file, for as long as it runs.

A card that ends (somebody killed it) is made anew, and its tunnels with it; guests lose what was
under way.  When this process ends, by kill -9 too, the card's standard input ends, and so does the
card: XDP programs and sockets are its descriptors, and nothing else was made.

The counters, or why there is no card now, are to be had on an abstract Unix socket; the kernel
frees its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datapath import processes
from datapath.errors import DatapathError, LocalError
from datapath.vnic.devices import GuestDevices
from datapath.vnic.peering import Peering
from datapath.vnic.program import CardEnded, Program, Settings
from datapath.vnic.spec import CardFile

SOCKET_PREFIX = "datapath-vnic/"
NO_CARD = "no card"
"""The state that is told in place of a card's counters."""
_AGAIN_S = (0.1, 2.0)
_ENDED_QUICKLY_S = 5.0
_DEVICES_S = 0.25


@dataclass
class Now:
    """What watchers are told of.  why_none: why there is no card, if there is none."""

    host: str
    devices: GuestDevices
    peering: Peering | None = None
    why_none: str = "it is being started"


def host_here(file: CardFile) -> str:
    """The one host of the file whose address this machine has; LocalError when it is not one."""
    here = [name for name, host in file.hosts.items() if _is_local(str(host.address))]
    if len(here) == 1:
        return here[0]
    what = f"hosts {' and '.join(here)} are all this machine" if here else "no host is this machine"
    raise LocalError(f"{what}, by the addresses of the file", hint="name it: --host NAME")


def _is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial, contextlib.suppress(OSError):
        trial.bind((address, 0))
        return True
    return False


def serve(file: CardFile, me: str, folder: Path, tell: Callable[[str], None]) -> None:
    """Run the card of host `me` until interrupted.

    folder: of the file.  tell: is given lines for the user.  LocalError, CapabilityError: the
    card cannot be made.
    """
    try:
        settings = file.settings(me, file.compiled_cc(folder))
    except ValueError as error:
        raise LocalError(str(error), hint="correct the file; docs/vnic.md has the format") from None
    asyncio.run(_serve(file, settings, tell))


def _first(error: BaseException) -> BaseException:
    """The first error of a group of groups: the others are those of tasks that ended with it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve(file: CardFile, settings: Settings, tell: Callable[[str], None]) -> None:
    """The first card has to start.  What keeps another one from starting later may pass.

    Such as the queues of a card that was killed, which the kernel has not released yet.
    """
    loop, told, pause_s = asyncio.get_running_loop(), "", _AGAIN_S[0]
    now = Now(settings.hosts[0].name, GuestDevices(settings, tell))
    async with await _answer_watchers(now):
        now.peering = await _begin(file, settings, tell)
        while True:
            began = loop.time()
            try:
                now.peering = now.peering or await _begin(file, now.devices.available(), tell)
                told = ""
                await _serve_one(now, now.peering, tell)
            except* (DatapathError, OSError) as group:
                now.why_none = str(_first(group))
                if now.why_none != told:
                    tell(f"{now.why_none}; it is tried again until it succeeds")
                told = now.why_none
            now.peering = None
            if loop.time() - began > _ENDED_QUICKLY_S:
                pause_s = _AGAIN_S[0]
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S[1])


async def _begin(file: CardFile, settings: Settings, tell: Callable[[str], None]) -> Peering:
    """A card that its peers can call."""
    names = list(file.hosts)
    me = names.index(settings.hosts[0].name)
    program = Program(_start, settings)
    peering = Peering(program, bytes.fromhex(file.key), file.control_port, names[me + 1 :], tell)
    try:
        await peering.listen()
        tell(f"card of {names[me]} on {settings.port}, as process {program.pid}")
    except BaseException:
        program.close()
        raise
    return peering


async def _serve_one(now: Now, peering: Peering, tell: Callable[[str], None]) -> None:
    """Until the card has ended, or another one would have more of the guests."""
    program = peering.program
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(peering.run())
            tasks.create_task(_watch_devices(program, now.devices))
    except* CardEnded as group:
        now.why_none = str(_first(group))
        tell(f"{now.why_none}; another one takes its place")
    finally:
        program.close()


async def _watch_devices(program: Program, devices: GuestDevices) -> None:
    """CardEnded as soon as a guest has another device, which needs another card."""
    while True:
        await asyncio.sleep(_DEVICES_S)
        if name := devices.better(program):
            raise CardEnded(f"the card is without the present {name}")


def _start(program: Path) -> subprocess.Popen[bytes]:
    # In a session of its own: a ^C is for this process, which ends the card.
    pipe = subprocess.PIPE
    return subprocess.Popen([str(program)], stdin=pipe, stdout=pipe, start_new_session=True)


# ---- who asks for counters ---------------------------------------------------------------


async def _answer_watchers(now: Now) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            if processes.is_ours_or_roots(writer.get_extra_info("socket")):
                writer.write(json.dumps(_report(now)).encode())
                await writer.drain()

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{SOCKET_PREFIX}{now.host}/{secrets.token_hex(8)}")
    listener.listen()
    return await asyncio.start_unix_server(answer, sock=listener)


def _report(now: Now) -> dict[str, object]:
    if now.peering is None:
        return {"host": now.host, "state": NO_CARD, "reason": now.why_none}
    program = now.peering.program
    try:
        return {
            "host": now.host,
            "port": program.settings.port,
            "pid": program.pid,
            "tunnels": program.state(),
            "handshakes": dict(now.peering.counts),
            "reasons": now.peering.reasons(),
            "waiting": now.devices.waiting,
            **program.counters(),
        }
    except DatapathError as error:
        return {"host": now.host, "state": NO_CARD, "reason": str(error)}


def check_private(path: Path) -> None:
    """LocalError when others can read the file: the key in it would be no secret."""
    mode = path.stat().st_mode
    if mode & 0o077:
        raise LocalError(
            f"{path} has the key in it, and others can read it", hint=f"chmod 600 {path}"
        )
