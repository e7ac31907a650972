# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The accelerator of guests: KVM where it works, else QEMU's translator, TCG.

KVM is tried, not assumed: /dev/kvm may exist and still not run an ordinary
kernel (nested virtualisation that is only partly emulated), so a kernel without
a root file system is started with it: it works when the kernel's first words
appear on its console.  The answer holds for one kernel and one boot of the
machine; that of a try which failed for what may pass, for this process.

TCG has a thread for each of the guest's CPUs.  Before QEMU 8.1 it may execute
what it translated while another CPU was writing there.  Kernels patch their
own code under way (static keys: `ping` switches one), with a breakpoint first,
and a CPU that meets the old breakpoint afterwards panics ("Oops: int3").  So
an older QEMU gets one thread for all CPUs.

TCG speculates about nothing, so the kernel's mitigations only cost time.  It
executes string instructions byte by byte, so guests are not told that these
are fast: the kernel and libc would copy with them.

A kernel that patches its code interrupts its other CPUs, and spins until they have answered.
If all guests together have more virtual CPUs than the machine has CPUs, one that is to answer
often does not run.  So they have no more by default, and boot on one: the others start at the
end of the boot (guest_init.sh).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from datapath import disk
from datapath.debian import install_hint
from datapath.errors import CapabilityError
from datapath.lanes.kernels import Kernel, cache

QEMU = "qemu-system-x86_64"
_TRIAL_S = 8.0
_FIRST_WORDS = b"Linux version"
_STOPPED = b"KVM internal error"  # QEMU says so and stays
_PASSING = ("Could not access KVM", "Device or resource busy", "Cannot allocate memory")
"""What QEMU says of failures that may be over in a moment: another program had the processor."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SAFE_THREADS = (8, 1)  # QEMU's version
_TCG = ("--disable-kvm", "--append", "mitigations=off")
_CPUS = 2
_ONE_AT_BOOT = ("--append", "maxcpus=1")
_TCG_CPU = ("-cpu", "max,erms=off,fsrm=off")


@dataclass(frozen=True)
class Accelerator:
    """cpus: of each guest.  vng, qemu: options for these.  words: the choice, and its reason.

    emulated: no KVM.
    """

    cpus: int
    vng: tuple[str, ...]
    qemu: tuple[str, ...]
    words: str
    emulated: bool


def accelerator(kernel: Kernel, cpus: int | None, guests: int) -> Accelerator:
    """The accelerator for `guests` guests with this kernel.

    cpus: of each; None: two, but under TCG not more than the machine has for each guest.
    """
    works, reason = _kvm_works(kernel)
    if works:
        return Accelerator(cpus or _CPUS, (), (), f"KVM: {reason}", emulated=False)
    cpus = cpus or max(1, min(_CPUS, len(os.sched_getaffinity(0)) // guests))
    version = _qemu_version()
    if cpus == 1:
        return Accelerator(cpus, _TCG, _TCG_CPU, f"TCG: {reason}", emulated=True)
    vng = (*_TCG, *_ONE_AT_BOOT)
    if version >= _SAFE_THREADS:
        return Accelerator(cpus, vng, _TCG_CPU, f"TCG: {reason}", emulated=True)
    why = f"QEMU {'.'.join(map(str, version))} with more crashes kernels, 8.1 does not"
    return Accelerator(
        cpus,
        vng,
        (*_TCG_CPU, "-accel", "tcg,thread=single"),
        f"TCG, one thread for all CPUs ({why}): {reason}",
        emulated=True,
    )


def _qemu_version() -> tuple[int, ...]:
    """QEMU's version; (0,) when it says none."""
    try:
        done = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CapabilityError(f"{QEMU} is not installed", hint=install_hint(QEMU)) from None
    found = re.search(r"version (\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else (0,)


def tried(kernel: Kernel) -> tuple[bool, str] | None:
    """As a guest with this kernel found it since the machine's boot; None: there was none."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False, "there is no /dev/kvm that can be opened"
    with contextlib.suppress(OSError):
        works, _, reason = _note(kernel).read_text().partition(" ")
        if works in ("yes", "no") and reason:
            return works == "yes", reason
    return None


def _note(kernel: Kernel) -> Path:
    return cache.folder() / f"kvm-{kernel.release}-{_BOOT_ID.read_text().strip()}"


@functools.cache
def _kvm_works(kernel: Kernel) -> tuple[bool, str]:
    """(whether guests with this kernel can use KVM, the reason in words)."""
    known = tried(kernel)
    if known is not None:
        return known
    works, reason, lasts = _try(kernel)
    note = _note(kernel)
    for old in note.parent.glob(f"kvm-{kernel.release}-*"):
        old.unlink(missing_ok=True)
    if lasts:
        with contextlib.suppress(OSError):
            disk.replace(note, f"{'yes' if works else 'no'} {reason}".encode())
    return works, reason


def _try(kernel: Kernel) -> tuple[bool, str, bool]:
    """As _kvm_works(), and whether another try would end in the same way."""
    argv = [QEMU, "-machine", "q35,accel=kvm", "-cpu", "host", "-m", "512", "-nodefaults"]
    argv += ["-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", str(kernel.vmlinuz)]
    argv += ["-append", "console=ttyS0 earlyprintk=serial panic=-1"]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as qemu:
        try:
            return _judge(qemu)
        finally:
            qemu.kill()


def _judge(qemu: subprocess.Popen[bytes]) -> tuple[bool, str, bool]:
    assert qemu.stdout is not None
    said = b""
    deadline = time.monotonic() + _TRIAL_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([qemu.stdout], [], [], left)[0]:
            break
        data = os.read(qemu.stdout.fileno(), 4096)
        said += data
        if _FIRST_WORDS in said:
            return True, "a kernel was started with KVM", True
        if _STOPPED in said:
            return False, f"/dev/kvm does not run this kernel: {_STOPPED.decode()}", True
        if not data:
            text = said.decode(errors="replace")
            lasts = bool(text.strip()) and not any(words in text for words in _PASSING)
            return False, f"QEMU with KVM ended: {' '.join(text[-200:].split())}", lasts
    return False, f"with KVM the kernel said nothing for {_TRIAL_S:g} s", False
