# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The TCP congestion control of hosts' kernels during a run: for TCP programs, and for siw."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from datapath.cc import bpf
from datapath.cc.source import display
from datapath.errors import CapabilityError, DatapathError, LocalError
from datapath.lanes.base import Host
from datapath.lanes.beside import Beside
from datapath.native import paths

_SETTING = "/proc/sys/net/ipv4/tcp_congestion_control"
_AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_BTF = "/sys/kernel/btf/vmlinux"
_LINES_SHOWN = 8


@contextlib.contextmanager
def tcp_control(
    hosts: Sequence[Host], name: str, folder: Path, logs: Path, *, one_kernel: bool
) -> Iterator[None]:
    """Have the hosts' TCP use an algorithm while the body runs.

    name: as cc.tcp of an experiment.  folder: where relative file names begin.
    one_kernel: the hosts share it, so that an algorithm of C is registered once.

    Raises:
        LocalError: the source is wrong; the text has file and line.
        CapabilityError: a kernel does not know the algorithm, or lacks what BPF needs.
    """
    source = bpf.source_of(name, folder)
    with contextlib.ExitStack() as stack:
        if source is not None:
            for host in hosts[:1] if one_kernel else hosts:
                name = stack.enter_context(_registered(host, source, logs))
        with _allowed(name) if one_kernel else contextlib.nullcontext():
            for host in hosts:
                stack.enter_context(_set(host, name))
        yield


@contextlib.contextmanager
def _registered(host: Host, source: Path, logs: Path) -> Iterator[str]:
    """The name of the algorithm in `source`, which the host's kernel has meanwhile."""

    def fetch(folder: Path) -> Path:
        done = host.run(["cp", _BTF, f"{host.outputs(folder)}/btf"], timeout_s=60)
        if done.returncode:
            raise _no_types(host, done.stderr)
        host.fetch(folder)
        return folder / "btf"

    def refused(words: str) -> DatapathError:
        return _refusal(host, source, words)

    done = host.run(["sha256sum", _BTF])
    if done.returncode:
        raise _no_types(host, done.stderr)
    made = bpf.build(source, done.stdout.split()[0], fetch)
    program = Beside(
        host, [host.provide(paths.tcp_registrar()), host.provide(made)], logs, "tcp-registrar"
    )
    try:
        yield str(program.ready(refused)["name"])
        program.finish()
    finally:
        program.close()


@contextlib.contextmanager
def _allowed(name: str) -> Iterator[None]:
    """Let network namespaces take an algorithm meanwhile.

    For their default they may take only what all users may (tcp_set_default_congestion_control).
    """
    before = _ALLOWED.read_text()
    if name in before.split():
        yield
        return
    with contextlib.suppress(OSError):  # not there: the hosts will tell
        _ALLOWED.write_text(f"{before.strip()} {name}")
    try:
        yield
    finally:
        _ALLOWED.write_text(before)


@contextlib.contextmanager
def _set(host: Host, name: str) -> Iterator[None]:
    before = host.run(["cat", _SETTING]).stdout.strip()
    done = _write(host, name)
    if done:
        raise CapabilityError(
            f"the kernel of {host.name} has no TCP congestion control {name}: {done}",
            hint=f"it has {host.run(['cat', _AVAILABLE]).stdout.strip()}; more are modules of its "
            f"package; ./NAME{bpf.SUFFIX} is one of your own",
        )
    try:
        yield
    finally:
        with contextlib.suppress(DatapathError):
            _write(host, before)


def _write(host: Host, name: str) -> str:
    """The shell's complaint, "" without one."""
    done = host.run(["sh", "-c", f'echo "$1" >{_SETTING}', "sh", name])
    return "" if done.returncode == 0 else " ".join(done.stderr.split()) or "refused"


def _no_types(host: Host, words: str) -> CapabilityError:
    return CapabilityError(
        f"the kernel of {host.name} does not tell its types: {' '.join(words.split())}",
        hint="a TCP congestion control in C needs CONFIG_DEBUG_INFO_BTF, as Debian's kernels have",
    )


def _refusal(host: Host, source: Path, words: str) -> LocalError:
    """The verifier names lines of the source by file name."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    named = [line for line in lines if f"{source.name}:" in line]
    shown = [*named[-2:], *lines[-_LINES_SHOWN:]]
    text = "".join(f"\n  {line}" for line in dict.fromkeys(shown))
    return LocalError(
        f"the kernel of {host.name} refuses {display(str(source))}:{text}",
        hint="the verifier's last lines tell why; its whole log is in the logs of the run",
    )
