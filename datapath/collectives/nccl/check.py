# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts the two processes of a check, gives them cases, and collects verdicts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from datapath.collectives.nccl import departures
from datapath.collectives.nccl.abi import VERSIONS, abi
from datapath.collectives.nccl.cases import CASES
from datapath.collectives.nccl.side import PEER_ENDED, RECEIVER, SENDER, Case
from datapath.errors import LocalError, RunFailed
from datapath.spelling import did_you_mean

__all__ = ["PATIENCE_S", "Sides", "Verdict", "check", "departures", "local", "versions_of"]

PATIENCE_S = 30.0
_START_S = 120.0


class Program(Protocol):
    """A process that was started: a part of subprocess.Popen."""

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[int, Sequence[str]], Program]
"""Starts a command for side SENDER or RECEIVER, where that side has its devices."""


@dataclass(frozen=True)
class Verdict:
    """wrong: what the plug-in does wrong; "": nothing."""

    case: str
    version: int
    wrong: str


def local(environments: Sequence[Mapping[str, str]]) -> Start:
    """Both sides on this host; environments: what each gets beside this process's."""

    def start(rank: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(argv), env={**os.environ, **environments[rank]})

    return start


class Sides:
    """The two processes, from `with` to its end.  start: see Start."""

    def __init__(self, plugin: Path, start: Start, patience_s: float = PATIENCE_S) -> None:
        self._plugin, self._start, self._patience_s = plugin, start, patience_s

    def __enter__(self) -> Sides:
        self._exit = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dpctl-nccl-"))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            path = f"{folder}/sides"
            listener.bind(path)
            listener.listen()
            listener.settimeout(_START_S)
            for rank in (SENDER, RECEIVER):
                argv = [sys.executable, "-P", "-m", "datapath.collectives.nccl.process"]
                program = self._start(rank, [*argv, str(rank), path])
                stack.callback(_end, program)
            self._side = dict(stack.enter_context(_meet(listener)) for _ in range(2))
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    def run(self, case: Case, version: int) -> Verdict:
        """One case in one version."""
        order = json.dumps(
            {
                "plugin": str(self._plugin.absolute()),
                "version": version,
                "case": case.name,
                "patience_s": self._patience_s,
            }
        )
        for rank, end in enumerate(socket.socketpair()):
            with end:
                socket.send_fds(self._side[rank], [order.encode()], [end.fileno()])
        said = {rank: _answer(self._side[rank]) for rank in (SENDER, RECEIVER)}
        if case.dies is not None:
            del said[case.dies]
        return Verdict(case.name, version, _together(said))


def _end(program: Program) -> None:
    program.kill()
    program.wait()


@contextlib.contextmanager
def _meet(listener: socket.socket) -> Iterator[tuple[int, socket.socket]]:
    try:
        side = listener.accept()[0]
    except TimeoutError:
        raise RunFailed(
            "a side of the check did not start", hint="see what it said above"
        ) from None
    with side:
        yield int(str(_line(side)["rank"])), side


def _line(side: socket.socket) -> dict[str, object]:
    text = b""
    while not text.endswith(b"\n"):
        got = side.recv(65536)
        if not got:
            raise RunFailed("a side of the check has ended", hint="see what it said above")
        text += got
    found: dict[str, object] = json.loads(text)
    return found


def _answer(side: socket.socket) -> str:
    return str(_line(side)["said"])


def _together(said: Mapping[int, str]) -> str:
    """The errors of both sides.  "My peer has ended" counts only if there is no other error."""
    names = {SENDER: "sender", RECEIVER: "receiver"}
    wrong = {rank: text for rank, text in said.items() if text}
    told = {rank: text for rank, text in wrong.items() if text != PEER_ENDED} or wrong
    return "; ".join(f"{names[rank]}: {text}" for rank, text in told.items())


def versions_of(plugin: Path) -> list[int]:
    """The versions whose symbol a plug-in exports; LocalError when it is no plug-in."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        with plugin.open("rb") as file:
            dynamic = ELFFile(file).get_section_by_name(".dynsym")
            known = dynamic.iter_symbols() if isinstance(dynamic, SymbolTableSection) else ()
            names = {symbol.name for symbol in known}
    except (OSError, ELFError) as error:
        raise LocalError(
            f"{plugin}: {error}", hint="give the path of a libnccl-net-*.so"
        ) from error
    found = [version for version in VERSIONS if abi(version).symbol in names]
    if not found:
        raise LocalError(
            f"{plugin} exports none of ncclNetPlugin_v{VERSIONS[0]} to v{VERSIONS[-1]}",
            hint="is it a network plug-in of NCCL or RCCL?",
        )
    return found


def cases_named(names: Sequence[str]) -> list[Case]:
    """The cases of these names, or all; LocalError for a name that is none."""
    for name in names:
        if name not in CASES:
            raise LocalError(
                f"there is no case {name!r}", hint=did_you_mean(name, list(CASES), "cases are")
            )
    return [case for case in CASES.values() if not names or case.name in names]


def check(
    plugin: Path,
    start: Start,
    *,
    versions: Sequence[int] = (),
    names: Sequence[str] = (),
    patience_s: float = PATIENCE_S,
) -> Iterator[Verdict]:
    """Runs cases, and yields each verdict as it comes.

    versions: of those that the plug-in exports; names: of CASES; all unless given.
    patience_s: how long a call, or what has to come of calls, may take.
    """
    exported = versions_of(plugin)
    for version in versions:
        if version not in exported:
            raise LocalError(
                f"{plugin} exports no ncclNetPlugin_v{version}",
                hint=f"it exports {', '.join(f'v{known}' for known in exported)}",
            )
    chosen = cases_named(names)
    with Sides(plugin, start, patience_s) as sides:
        for version in versions or exported:
            for case in chosen:
                yield sides.run(case, version)
