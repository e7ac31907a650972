# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What this machine can do and what it lacks, for `dpctl doctor`: a finding for each question.

Nothing is changed.  A finding that is not as it should be names the command that mends it.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datapath import cachedir, debian, privileges
from datapath.errors import CapabilityError, DatapathError
from datapath.experiment import manifest, preflight
from datapath.experiment.load import load_text
from datapath.lanes import accel, kernels

State = Literal["good", "slow", "lacks", "told"]

_DISK_BYTES = 3 * 2**30
_EMULATED = "guests of lane vm are emulated, ten times slower"
_NESTED = "nested KVM on this machine's host, or a machine that is not virtual"
_STEAL_SECONDS = 0.5
_STEAL_MOST = 0.02
_FEATURES = {1: "native XDP", 2: "redirect", 8: "zero-copy", 32: "multi-buffer"}
_ZERO_COPY = 8
_LANES = {
    "netns": "topology: {lane: netns}",
    "vm": "topology: {lane: vm}",
    "sim": "topology: {lane: sim}\npath: {rate: 1gbit, delay: 10us, queue: 64KiB}",
}


@dataclass(frozen=True)
class Finding:
    """state: good; slow (works, but measures worse); lacks (something does not work); told: a
    fact without a judgement.  mend: the command, or in words what to do; "": nothing.
    """

    about: str
    state: State
    found: str
    mend: str = ""


def examine() -> Iterator[Finding]:
    """All findings, in the order in which they are to be read."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        *(_root, _kernel, _bpf, _devices, _virtual, _memory),
        *(_cpus, _realtime, _packages, _disk, _lanes),
    )
    for check in checks:
        yield from check()


def _root() -> Iterator[Finding]:
    without = "no namespaces and no AF_XDP; simulator, reports and UDP ports work"
    lacking = privileges.lack("this")
    if lacking is None:
        yield Finding("root", "good", "yes")
    elif os.geteuid() != 0:
        yield Finding("root", "lacks", f"no: {without}", "sudo dpctl ...")
    elif privileges.in_user_namespace():
        yield Finding("root", "lacks", f"of a user namespace alone: {without}", lacking.hint)
    else:
        missing = ", ".join(privileges.missing_capabilities())
        yield Finding("root", "lacks", f"without {missing}: {without}", lacking.hint)


def _kernel() -> Iterator[Finding]:
    release = platform.release()
    old = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit()) < (
        6,
        1,
    )
    yield Finding("kernel", "lacks" if old else "good", release, "6.1 or newer" if old else "")


def _bpf() -> Iterator[Finding]:
    if Path("/sys/kernel/btf/vmlinux").exists():
        yield Finding("BTF", "good", "yes")
    else:
        mend = "a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian's"
        yield Finding("BTF", "lacks", "the kernel has none: no XDP programs of your own", mend)
    jit = _read("/proc/sys/net/core/bpf_jit_enable")
    if jit == "0":
        mend = "sysctl -w net.core.bpf_jit_enable=1"
        yield Finding("BPF JIT", "slow", "off: XDP programs are interpreted", mend)
    else:
        yield Finding("BPF JIT", "good" if jit else "told", "on" if jit else "not known")


def _devices() -> Iterator[Finding]:
    """What each network device can do for AF_XDP, in the kernel's own words (Linux 6.3)."""
    features = _xdp_features()
    for index, name in _indices():
        if name == "lo":
            continue
        driver = Path(f"/sys/class/net/{name}/device/driver").resolve().name
        about, kind = f"AF_XDP on {name}", f" ({driver})" if driver != "driver" else ""
        if index not in features:
            yield Finding(about, "told", f"copy mode; more is not told by this kernel{kind}")
            continue
        bits = features[index]
        named = ", ".join(text for bit, text in _FEATURES.items() if bits & bit)
        zero = bits & _ZERO_COPY
        text = named or "generic XDP only: copy mode"
        yield Finding(about, "good" if zero else "told", f"{text}{kind}")


def _indices() -> list[tuple[int, str]]:
    return socket.if_nameindex()


def _xdp_features() -> dict[int, int]:
    """Index of a device -> its XDP features (linux/netdev.h); {} where the kernel is older."""
    from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    class Device(genlmsg):  # type: ignore[misc]
        prefix = "NETDEV_A_DEV_"
        nla_map = (
            ("NETDEV_A_DEV_UNSPEC", "none"),
            ("NETDEV_A_DEV_IFINDEX", "uint32"),
            ("NETDEV_A_DEV_PAD", "none"),
            ("NETDEV_A_DEV_XDP_FEATURES", "uint64"),
        )

    with GenericNetlinkSocket() as netlink:
        try:
            netlink.bind("netdev", Device)
        except (NetlinkError, OSError):
            return {}
        request = Device()
        request["cmd"], request["version"] = 1, 1  # NETDEV_CMD_DEV_GET
        flags = NLM_F_REQUEST | NLM_F_DUMP
        answers = netlink.nlm_request(request, msg_type=netlink.prid, msg_flags=flags)
        pairs = [
            (a.get_attr(Device.nla_map[1][0]), a.get_attr(Device.nla_map[3][0])) for a in answers
        ]
    return {
        int(index): int(bits) for index, bits in pairs if index is not None and bits is not None
    }


def _virtual() -> Iterator[Finding]:
    device = Path("/dev/kvm")
    if os.access(device, os.R_OK | os.W_OK):
        answers: dict[tuple[bool, str], list[str]] = {}
        for kernel in kernels.installed():
            if (answer := accel.tried(kernel)) is not None:
                answers.setdefault(answer, []).append(kernel.release)
        if not answers:
            text = "/dev/kvm can be opened; the first guest shows if it works"
            yield Finding("KVM", "told", text)
        for (works, reason), releases in answers.items():
            text = f"Linux {', '.join(releases)}: {reason}"
            if works:
                yield Finding("KVM", "good", text)
            else:
                yield Finding("KVM", "slow", f"{text}; {_EMULATED}", _NESTED)
    elif device.exists():
        yield Finding("KVM", "slow", "/dev/kvm is not for this user", "usermod -aG kvm $USER")
    else:
        mend = "switch virtualisation on in the firmware, or nested KVM on the host; modprobe kvm"
        yield Finding("KVM", "slow", f"none: {_EMULATED}", mend)


def _memory() -> Iterator[Finding]:
    facts = dict(
        line.split(":", 1) for line in (_read("/proc/meminfo") or "").splitlines() if ":" in line
    )
    pages = facts.get("HugePages_Total", "0").strip()
    mend = "" if pages != "0" else "sysctl -w vm.nr_hugepages=64, for programs that ask for them"
    yield Finding("huge pages", "told", f"{pages} reserved", mend)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"
    small = soft != resource.RLIM_INFINITY and soft < 64 * 2**20 and os.geteuid() != 0
    mend = "ulimit -l unlimited, or limits.conf(5)" if small else ""
    yield Finding("locked memory", "slow" if small else "good", text, mend)


def _cpus() -> Iterator[Finding]:
    facts = manifest.machine()
    count = facts["cores_usable"]
    state: State = "good" if count >= 2 else "slow"
    load = facts["load"][0]
    yield Finding("CPUs", state, f"{count} usable, {facts['cpu_model']}; load {load:.1f}")
    if load > count / 2:
        mend = "end what else runs: two hosts and the path between them need the CPUs"
        yield Finding("load", "slow", f"{load:.1f} on {count} CPUs", mend)
    governor = facts["governor"]
    if governor is None:
        yield Finding("CPU frequency", "told", "not to be seen here (a virtual machine, as a rule)")
    elif governor == "performance":
        yield Finding("CPU frequency", "good", "governor performance")
    else:
        mend = "cpupower frequency-set -g performance"
        yield Finding("CPU frequency", "slow", f"governor {governor}: latencies vary", mend)
    before = _cpu_times()
    time.sleep(_STEAL_SECONDS)
    spent = [now - then for then, now in zip(before, _cpu_times(), strict=True)]
    share = spent[7] / max(1, sum(spent[:8]))
    text = f"{share:.1%} of the last {_STEAL_SECONDS:g} s"
    mend = "measure when the neighbours are quiet, or on a machine of your own"
    much = share > _STEAL_MOST
    yield Finding("CPU stolen", "slow" if much else "good", text, mend if much else "")


def _cpu_times() -> list[int]:
    """The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal ..."""
    return list(
        map(int, (_read("/proc/stat") or "cpu 0 0 0 0 0 0 0 0").splitlines()[0].split()[1:])
    )


def _realtime() -> Iterator[Finding]:
    """Whether programs may have real-time priority, tried in a process of its own."""
    program = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    share = _read("/proc/sys/kernel/sched_rt_runtime_us")
    if done.returncode == 0:
        yield Finding("real-time priority", "good", f"yes ({share} us of each second)")
        return
    mend = "run as root, in a container with --cap-add SYS_NICE"
    yield Finding("real-time priority", "slow", "no: emulator and programs may wake late", mend)


def _packages() -> Iterator[Finding]:
    wanted = debian.of_this_machine()
    if shutil.which("dpkg-query") is None:
        yield Finding("packages", "told", "this is no Debian; names are in datapath/packages.txt")
        return
    form = "${Package} ${db:Status-Status}\n"
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", form, *wanted], capture_output=True, text=True, check=False
    )
    there = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    missing = [name for name in wanted if name not in there]
    if missing:
        text = f"{len(missing)} missing: {', '.join(missing)}"
        yield Finding("packages", "lacks", text, debian.install_command(missing))
    else:
        yield Finding("packages", "good", f"all {len(wanted)} are there")


def _disk() -> Iterator[Finding]:
    try:
        cachedir.check(cachedir.root())
        lacking = cachedir.unwritable(cachedir.root())
    except CapabilityError as error:
        lacking = error
    if lacking is not None:
        yield Finding("cache", "lacks", str(lacking), lacking.hint)
    for what, folder in (("results", Path.cwd()), ("cache", cachedir.root())):
        place = next(part for part in (folder, *folder.parents) if os.access(part, os.F_OK))
        free = shutil.disk_usage(place).free
        little = free < _DISK_BYTES
        mend = "dpctl clean --results; dpctl kernel list" if little else ""
        text = f"{free / 2**30:.1f} GiB free ({folder})"
        yield Finding(f"disk for {what}", "slow" if little else "good", text, mend)


def _lanes() -> Iterator[Finding]:
    """The lanes that would run: preflight judges a small experiment of each."""
    for lane, section in _LANES.items():
        text = (
            f"version: 1\nname: doctor\n{section}\ntransport: {{port: udp}}\n"
            "workload: {kind: stream, duration: 1ms}\n"
        )
        try:
            experiment = load_text(text, Path("doctor.yaml"))
            preflight.check(experiment)
        except preflight.Lacking as error:
            told = "; ".join(str(lack) for lack in error.lacks)
            mend = "; ".join(dict.fromkeys(lack.hint for lack in error.lacks if lack.hint))
            yield Finding(f"lane {lane}", "lacks", told, mend)
        except DatapathError as error:
            yield Finding(f"lane {lane}", "lacks", str(error), error.hint)
        else:
            topology = experiment.points[0].spec.topology
            answer = accel.tried(kernels.find(topology.kernel)) if topology.of_lane.boots else None
            if answer is None or answer[0]:
                yield Finding(f"lane {lane}", "good", "ready")
            else:
                yield Finding(f"lane {lane}", "slow", f"ready, but {_EMULATED}", _NESTED)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
