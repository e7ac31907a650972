# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl ps | shell | capture`: what runs on this machine, and how to get into it."""

from __future__ import annotations

import functools
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli.output import Format, FormatOption, print_record, print_table
from datapath.errors import CapabilityError, LocalError

if TYPE_CHECKING:
    from datapath.lanes.visiting import OpenRun
    from datapath.verbs.control import Device

_RUN_COLUMNS = ("pid", "experiment", "lane", "run", "done", "hosts", "folder")
_PROGRAM_COLUMNS = ("pid", "program", "devices")
_FILTER = "udp port 4791"
_KEPT_BYTES, _HEADER_BYTES = 256, 64  # of each packet in a file, and at least
_MIDDLE = "middle"
_STDOUT = Path("-")
_HOST = re.compile(rf"host\d+|{_MIDDLE}")
_Run = Annotated[
    int | None,
    typer.Option("--run", metavar="PID", help="Which run, if several go on.", show_default=False),
]
_Host = Annotated[
    str,
    typer.Argument(
        metavar="HOST|PROGRAM",
        help="host0, host1 ..., or middle; or a program with a device of ours, by name or PID.",
        autocompletion=lambda: ["host0", "host1", _MIDDLE],
    ),
]


def register(app: typer.Typer) -> None:
    app.command(short_help="List the runs and the verbs programs that go on.")(ps)
    app.command(
        context_settings={"allow_interspersed_args": False},
        short_help="Run a command, or a shell, on a host of a run, or beside a program.",
    )(shell)
    app.command(short_help="Capture the packets of a host of a run, or of a program.")(capture)


def ps(fmt: FormatOption = Format.table) -> None:
    """List the runs of this machine with their hosts, and the programs with a device of ours.

    \b
    dpctl ps
    dpctl ps --format json
    """
    from datapath.lanes import visiting
    from datapath.verbs import control

    runs = [_row(run) for run in visiting.runs()]
    programs = _programs(control.devices())
    if fmt is not Format.table:
        print_record({"runs": runs, "programs": programs}, fmt)
        return
    if not runs and not programs:
        print("nothing runs", file=sys.stderr)
    if runs:
        print_table([{**row, "hosts": _names(row["hosts"])} for row in runs], _RUN_COLUMNS)
    if runs and programs:
        print()
    if programs:
        print_table(
            [{**row, "devices": " ".join(row["devices"])} for row in programs], _PROGRAM_COLUMNS
        )


def shell(
    host: _Host,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND [ARGUMENT]...", help="Default: a shell.", show_default=False
        ),
    ] = None,
    run: _Run = None,
) -> int:
    """Run a command on a host of a run that goes on; without a command, a shell.

    The command sees the network, /sys and the processes of the host, and this machine's files.
    It ends with the run. On a guest or a machine reached by ssh a command has no input, and
    there is no shell. Beside a program, such as one of `dpctl exec`, the command sees the network
    of the program.

    \b
    dpctl shell host0
    dpctl shell host1 ss -s
    dpctl shell middle -- tc -s filter show dev port0 ingress
    dpctl shell --run 4711 host0 cat /proc/net/dev
    dpctl shell ib_write_bw ip addr

    Exit code: that of the command; 128 + N if signal N ended it.
    """
    from datapath.lanes import visiting

    argv = list(command or [])
    argv = argv[1:] if argv[:1] == ["--"] else argv
    own = os.environ.get("SHELL") or "/bin/sh"
    prompt = {"DATAPATH_HOST": host} if argv else {"DATAPATH_HOST": host, "PS1": f"{host}# "}
    if (pid := _program(host, run)) is not None:
        return visiting.run_beside(pid, argv or [own], env=prompt)
    found = visiting.chosen(run, host)
    if not argv and _is_remote(found, host):
        raise LocalError(
            f"{host} is reached by ssh, where a command has no terminal",
            hint=f"name a command: dpctl shell {host} COMMAND",
        )
    return visiting.run_on(found, host, argv or [own], env=prompt)


def capture(
    host: _Host,
    write: Annotated[
        Path | None,
        typer.Option(
            "-w", metavar="FILE", help="Write a capture file; - is stdout.", show_default=False
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("-c", metavar="N", min=1, help="End after N packets.", show_default=False),
    ] = None,
    snaplen: Annotated[
        int | None,
        typer.Option(
            "-s",
            metavar="BYTES",
            min=0,
            help="Keep so much of each packet; 0 is all. Default: 256 in a file, all otherwise.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str, typer.Option("--filter", metavar="FILTER", help="As tcpdump has it; '' is all.")
    ] = _FILTER,
    run: _Run = None,
) -> int:
    """Capture the packets of a host of a run: to a file, or decoded on the terminal.

    Decoding takes tshark, with tools/extended.lua for extended mode; a file takes tcpdump alone,
    and Wireshark shows it by: wireshark -X lua_script:tools/extended.lua FILE. Where a BPF program
    makes the path, the capture is made in the middle: before the impairments of what the host
    sends, and after those of what it receives. Elsewhere it is made on the host, where the kernel
    does not see the packets of an AF_XDP port; of a program, on all devices of its network. ^C
    ends it.

    \b
    dpctl capture host0
    dpctl capture host0 -w host0.pcap -s 0
    dpctl capture host1 -c 100 --filter tcp
    dpctl capture ib_write_bw
    """
    run_there, netdev, sees_all = _place(host, run)
    if not sees_all:
        print(
            f"note: {host} does not see the packets of an AF_XDP port; those of a UDP port it does",
            file=sys.stderr,
        )
    kept = _kept_bytes(snaplen, write is not None)
    tcpdump, wanted = ["tcpdump", "-Z", "root", "-i", netdev], [only] if only else []
    if write is not None and write != _STDOUT:
        # What it cannot capture costs no file: -d opens the device and compiles the filter.
        with Path(os.devnull).open("wb") as nowhere:
            if status := run_there([*tcpdump, "-d", *wanted], stdout=nowhere):
                return status
    tcpdump += ["-n", "-U", "-s", str(kept), "-w", "-", *(["-c", str(count)] if count else [])]
    status = _captured(functools.partial(run_there, [*tcpdump, *wanted]), write)
    if write in (None, _STDOUT) and _is_unread():  # which tcpdump takes for an end like others
        raise BrokenPipeError
    return status


def _captured(run: Callable[..., int], write: Path | None) -> int:
    """The status of a capture, to a file or to a decoder, or of the decoder if that has failed."""
    with ExitStack() as stack:
        if write is not None:
            return run(stdout=None if write == _STDOUT else stack.enter_context(_file(write)))
        reader = stack.enter_context(_decoder())
        assert reader.stdin is not None
        with reader.stdin as pipe:
            status = run(stdout=pipe)
        return status or reader.wait()


def _is_unread() -> bool:
    """Whether standard output is a pipe whose reader has gone."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _kept_bytes(asked: int | None, in_file: bool) -> int:
    """Of each packet, 0: all.  What is decoded at once and not kept has no need to be short."""
    if asked is not None and 0 < asked < _HEADER_BYTES:
        raise LocalError(f"-s {asked} leaves no headers", hint=f"-s {_HEADER_BYTES} or more, or 0")
    return asked if asked is not None else _KEPT_BYTES if in_file else 0


def _row(run: OpenRun) -> dict[str, Any]:
    about = run.about
    facts = {key: about.get(key) for key in ("experiment", "lane", "run", "point", "done")}
    return {"pid": run.pid, **facts, "hosts": run.hosts(), "folder": about.get("folder")}


def _names(hosts: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(str(host["name"]) for host in hosts)


def _programs(devices: Sequence[Device]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for device in devices:
        row = found.setdefault(
            device.pid, {"pid": device.pid, "program": device.program, "devices": []}
        )
        row["devices"].append(device.name)
    return list(found.values())


def _is_remote(run: OpenRun, host: str) -> bool:
    return host != _MIDDLE and run.host(host).get("kind") == "ssh"


def _program(name: str, run: int | None) -> int | None:
    """The process of the program, by name or PID; None when a host is meant."""
    from datapath import processes
    from datapath.lanes import visiting
    from datapath.verbs import control

    if run is not None or _HOST.fullmatch(name):
        return None
    if any(host["name"] == name for each in visiting.runs() for host in each.hosts()):
        return None
    found = {device.pid for device in control.devices(name, several=True)}
    # Client and server on one machine: beside which of them does not matter in one network.
    if len({processes.network(pid) for pid in found}) > 1:
        control.devices(name)  # tells that the name does not suffice
    return min(found)


def _place(host: str, run: int | None) -> tuple[Callable[..., int], str, bool]:
    """Where packets are captured: what runs a command there, device, whether it sees them all."""
    from datapath.lanes import visiting

    if (pid := _program(host, run)) is not None:
        return functools.partial(visiting.run_beside, pid), "any", False
    found = visiting.chosen(run, host)
    where, netdev = (host, "any") if host == _MIDDLE else map(str, found.host(host)["capture"])
    sees_all = where != host or host == _MIDDLE or not found.about.get("afxdp", True)
    return functools.partial(visiting.run_on, found, where), netdev, sees_all


def _file(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise LocalError(f"cannot write {path}: {error.strerror}") from None


def _decoder() -> subprocess.Popen[bytes]:
    """tshark, which prints the packets of a capture that is written to it."""
    from datapath.debian import install_hint
    from datapath.native import paths

    script = paths.ROOT / "tools" / "extended.lua"
    known = ["-X", f"lua_script:{script}"] if script.exists() else []
    try:
        # A group of its own: ^C ends the capture, and tshark reads what is left of it.
        return subprocess.Popen(
            ["tshark", "-l", "-n", *known, "-r", "-"], stdin=subprocess.PIPE, process_group=0
        )
    except FileNotFoundError:
        raise CapabilityError(
            "program tshark is not installed",
            hint=f"{install_hint('tshark')}; or write a file: -w FILE",
        ) from None
