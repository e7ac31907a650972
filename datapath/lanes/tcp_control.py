# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The TCP congestion control of hosts' kernels during a run: for TCP programs, and for siw."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from datapath.cc import bpf
from datapath.cc.source import display
from datapath.errors import CapabilityError, DatapathError, LocalError
from datapath.lanes.base import Host
from datapath.lanes.beside import Beside
from datapath.lanes.local import NetnsHost
from datapath.native import paths

_SETTING = "/proc/sys/net/ipv4/tcp_congestion_control"
_AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_BTF = "/sys/kernel/btf/vmlinux"
_LINES_SHOWN = 8
_NAMES_TRIED = 99
_TRIES = 10  # runs end seldom at the same moment


@contextlib.contextmanager
def tcp_control(
    hosts: Sequence[Host], name: str, folder: Path, logs: Path, *, one_kernel: bool
) -> Iterator[None]:
    """Have the hosts' TCP use an algorithm while the body runs.

    name: as cc.tcp of an experiment.  folder: where relative file names begin.
    one_kernel: the hosts share it, so that an algorithm of C is registered once.  Otherwise it is
    registered for each, by a name that is free there.

    Raises:
        LocalError: the source is wrong; the text has file and line.
        CapabilityError: a kernel does not know the algorithm, or lacks what BPF needs.
    """
    source = bpf.source_of(name, folder)
    with contextlib.ExitStack() as stack:
        names = [name] * len(hosts)
        if source is not None:
            for index, host in enumerate(hosts):
                if index and one_kernel:
                    names[index] = names[0]
                else:
                    names[index] = stack.enter_context(_registered(host, source, logs))
        for host, each in zip(hosts, names, strict=True):
            with _allowed(each) if isinstance(host, NetnsHost) else contextlib.nullcontext():
                stack.enter_context(_set(host, each))
        yield


@contextlib.contextmanager
def _registered(host: Host, source: Path, logs: Path) -> Iterator[str]:
    """The name of the algorithm in `source`, which the host's kernel has meanwhile.

    Names are global to a kernel.  While another run has this one, it is the name with `.2` at its
    end, `.3` ...: an object of its own, with state of its own.
    """

    def fetch(folder: Path) -> Path:
        done = host.run(["cp", _BTF, f"{host.outputs(folder)}/btf"], timeout_s=60)
        if done.returncode:
            raise _no_types(host, done.stderr)
        host.fetch(folder)
        return folder / "btf"

    done = host.run(["sha256sum", _BTF])
    if done.returncode:
        raise _no_types(host, done.stderr)
    made = bpf.build(source, done.stdout.split()[0], fetch)
    with contextlib.ExitStack() as stack:
        for number in range(1, _NAMES_TRIED + 1):
            named = made if number == 1 else bpf.renamed(made, number)
            argv = [host.provide(paths.tcp_registrar()), host.provide(named)]
            program = stack.enter_context(
                contextlib.closing(Beside(host, argv, logs, "tcp-registrar"))
            )
            answer = program.ready(partial(_refusal, host, source, program.err))
            if "name" in answer:
                yield str(answer["name"])
                program.finish()
                return
        raise CapabilityError(
            f"{_NAMES_TRIED} runs have registered {answer['taken']} with {host.name}'s kernel",
            hint="`bpftool struct_ops list` shows them",
        )


@contextlib.contextmanager
def _allowed(name: str) -> Iterator[None]:
    """Let network namespaces take an algorithm for their default meanwhile.

    They may take only what all users may (tcp_set_default_congestion_control).  The list is the
    kernel's, and runs change it one after another, each about its own algorithm.  The body only
    sets them: the list is another one, and other runs wait, for a moment and not for a whole run.
    """
    with _ALLOWED.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _ALLOWED.read_text().split()
        if name in before:
            yield
            return
        try:
            _ALLOWED.write_text(" ".join([*before, name]))
        except OSError:  # no such algorithm, or the list is read-only: the hosts will tell
            yield
            return
        try:
            yield
        finally:
            _disallow(name)


def _disallow(name: str) -> None:
    """Take a name off the list, of which the kernel refuses all if one has gone meanwhile."""
    for _ in range(_TRIES):
        left = [other for other in _ALLOWED.read_text().split() if other != name]
        with contextlib.suppress(OSError):
            _ALLOWED.write_text(" ".join(left))
            return


@contextlib.contextmanager
def _set(host: Host, name: str) -> Iterator[None]:
    before = host.run(["cat", _SETTING]).stdout.strip()
    if not _write(host, name):
        has = host.run(["cat", _AVAILABLE]).stdout.split()
        if name in has:
            raise CapabilityError(
                f"the kernel of {host.name} does not let it use TCP congestion control {name}",
                hint=f"{_ALLOWED} is read-only in a network namespace other than the machine's "
                "first: a container has to share that one (docker run --network host)",
            )
        raise CapabilityError(
            f"the kernel of {host.name} has no TCP congestion control {name}",
            hint=f"it has {', '.join(has)}; more are modules of its package; "
            f"./NAME{bpf.SUFFIX} is one of your own",
        )
    try:
        yield
    finally:
        with contextlib.suppress(DatapathError):
            _write(host, before)


def _write(host: Host, name: str) -> bool:
    """Whether the kernel has taken it."""
    return host.run(["sh", "-c", f'echo "$1" >{_SETTING}', "sh", name]).returncode == 0


def _no_types(host: Host, words: str) -> CapabilityError:
    return CapabilityError(
        f"the kernel of {host.name} does not tell its types: {' '.join(words.split())}",
        hint="a TCP congestion control in C needs CONFIG_DEBUG_INFO_BTF, as Debian's kernels have",
    )


def _refusal(host: Host, source: Path, log: Path, words: str) -> LocalError:
    """The verifier names lines of the source by file name.  log: has all words."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    named = [line for line in lines if f"{source.name}:" in line]
    shown = [*named[-2:], *lines[-_LINES_SHOWN:]]
    text = "".join(f"\n  {line}" for line in dict.fromkeys(shown))
    return LocalError(
        f"the kernel of {host.name} refuses {display(str(source))}:{text}",
        hint=f"the last lines tell why; all of it is in {log}",
    )
