# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether KVM can run a guest's kernel here: tried, not assumed.

/dev/kvm may exist and still not run an ordinary kernel (nested
virtualisation that is only partly emulated), so a kernel without a root file
system is started with it: it works when the kernel's first words appear on
its console.  The answer holds for one kernel and one boot of the machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from pathlib import Path

from datapath.lanes.kernels import Kernel, cache

QEMU = "qemu-system-x86_64"
_TRIAL_S = 8.0
_FIRST_WORDS = b"Linux version"
_FAILURES = (b"KVM internal error", b"failed to initialize", b"Could not access KVM")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def kvm_works(kernel: Kernel) -> tuple[bool, str]:
    """(whether guests with this kernel can use KVM, the reason in words)."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False, "there is no /dev/kvm that can be opened"
    note = cache.folder() / f"kvm-{kernel.release}-{_BOOT_ID.read_text().strip()}"
    with contextlib.suppress(OSError):
        works, _, reason = note.read_text().partition(" ")
        return works == "yes", reason
    answer = _try(kernel)
    for old in note.parent.glob(f"kvm-{kernel.release}-*"):
        old.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        note.write_text(f"{'yes' if answer[0] else 'no'} {answer[1]}")
    return answer


def _try(kernel: Kernel) -> tuple[bool, str]:
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


def _judge(qemu: subprocess.Popen[bytes]) -> tuple[bool, str]:
    assert qemu.stdout is not None
    said = b""
    deadline = time.monotonic() + _TRIAL_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([qemu.stdout], [], [], left)[0]:
            break
        data = os.read(qemu.stdout.fileno(), 4096)
        said += data
        if _FIRST_WORDS in said:
            return True, "a kernel was started with KVM"
        failure = next((words for words in _FAILURES if words in said), None)
        if failure:
            return False, f"/dev/kvm does not run this kernel: {failure.decode()}"
        if not data:
            return False, f"QEMU with KVM ended: {said[-200:].decode(errors='replace').strip()}"
    return False, f"with KVM the kernel said nothing for {_TRIAL_S:g} s"
