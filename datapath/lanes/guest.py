# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One virtual machine: QEMU through virtme-ng, over this machine's root file system.

The guest runs a chosen kernel and sees this machine's files, read-only, with
its own temporary layers over /etc, /usr, /var, /tmp and so on.  Its first
program (guest_init.sh) starts sshd on the management network, over which it
is driven from then on; its console goes to a log.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from datapath.errors import CapabilityError, RunFailed
from datapath.lanes.accel import Accelerator
from datapath.lanes.kernels import Kernel
from datapath.lanes.namespace import Namespace, spawn
from datapath.native import paths

_INIT = Path(__file__).with_name("guest_init.sh")
_UDEV = Path(__file__).with_name("guest_udev.sh")

# Of this machine's programs, those that virtme-ng starts in a guest and that cost most of the boot,
# and what a guest finds in their place.  systemd-udevd is a link to udevadm.
_REPLACED = (("udevadm", str(_UDEV)), ("systemd-tmpfiles", shutil.which("true") or "/bin/true"))

# Where virtme-ng mounts file systems of the guest's own.
_UNSEEN = (
    *("/dev", "/proc", "/run", "/sys", "/var/cache", "/var/log", "/var/spool/rsyslog", "/var/tmp"),
    *(f"/var/lib/{name}" for name in ("apt", "machines", "portables", "private", "sudo")),
)
_TAIL = 16384  # bytes of the console that an error looks through
_DEATH = re.compile(r"(?:Oops|BUG|Kernel panic)\b.*")
_MIB = 2**20

# Packets must pass the tap as they pass a wire: whole, with their checksums.
_WIRE = ",".join(
    f"{feature}=off"
    for feature in (
        *("csum", "guest_csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
        *("guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
    )
)
# virtio-net binds AF_XDP sockets zero-copy only if it uses the kernel's DMA interface.
_DMA = "iommu_platform=on,disable-legacy=on"

# virtme-ng's six serial devices have 64 queues each, and the descriptor of every one would be
# polled whenever QEMU looks for packets.
_FEW_EVENTS = "-global virtio-serial-pci.ioeventfd=off"

# The machine's files once more, for a mount that caches: over 9p without one, a guest that is
# emulated needs seconds for each start of Python.
_MACHINE = (
    "-fsdev local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap "
    "-device virtio-9p-pci,fsdev=machine,mount_tag=machine"
)

# Devices that QEMU's standard machine has and a host of an experiment does not need.
_NOT_LOADED = (
    *("kvm_amd", "kvm_intel", "kvm", "ccp", "powernow_k8", "psmouse", "bochs", "sr_mod"),
    *("iTCO_wdt", "i2c_i801", "snd_hda_intel", "ahci", "lpc_ich"),
)


@dataclass(frozen=True)
class Nic:
    """A network device of a guest: `tap` outside, `netdev` inside."""

    tap: str
    netdev: str
    mac: str
    mtu: int
    under_test: bool = False

    def qemu_options(self) -> str:
        device = f"virtio-net-pci,netdev={self.netdev},mac={self.mac},host_mtu={self.mtu}"
        if self.under_test:
            device += f",{_WIRE},{_DMA}"
        return (
            f"-netdev tap,id={self.netdev},ifname={self.tap},script=no,downscript=no,vhost=off "
            f"-device {device}"
        )


@dataclass(frozen=True)
class GuestConfig:
    """name: host name.  memory: bytes.  mgmt: management address with prefix."""

    name: str
    kernel: Kernel
    cpus: int
    memory: int
    accelerator: Accelerator
    nics: tuple[Nic, ...]
    mgmt: str

    def argv(self, public_key: str) -> list[str]:
        """Command line of QEMU, which shows the guest this machine's root, but for some files."""
        script = 'while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done; shift; exec "$@"'
        mounts = [
            path
            for name, replacement in _REPLACED
            if (there := shutil.which(name)) is not None
            for path in (replacement, os.path.realpath(there))
        ]
        own_mounts = ["unshare", "--mount", "sh", "-ec", script, "sh", *mounts, "--"]
        return [*own_mounts, *self.virtme_ng(public_key)]

    def virtme_ng(self, public_key: str) -> list[str]:
        """Command line of virtme-ng; `public_key` is let in as root."""
        names = [f"{nic.netdev}={nic.mac}" for nic in self.nics]
        cached = ":".join(_cached_folders())
        init = shlex.join(["sh", str(_INIT), self.mgmt, public_key, cached, *names])
        argv = [virtme_ng(), "--run", str(self.kernel.vmlinuz), "--user", "root", "--cwd", "/"]
        argv += ["--name", self.name, "--cpus", str(self.cpus)]
        argv += ["--memory", f"{self.memory // _MIB}M", "--force-9p", "--disable-monitor"]
        argv += self.accelerator.vng
        for option in ("net.ifnames=0", f"modprobe.blacklist={','.join(_NOT_LOADED)}"):
            argv += ["--append", option]
        qemu = [
            *self.accelerator.qemu,
            _FEW_EVENTS,
            _MACHINE,
            *(nic.qemu_options() for nic in self.nics),
        ]
        argv += [f"--qemu-opts={' '.join(qemu)}"]
        return [*argv, "--verbose", "--exec", init]


def _cached_folders() -> list[str]:
    """Folders that programs start from and that do not change while a guest runs, none in another.

    Those of Python, of the toolkit, and of the system's programs and libraries.
    """
    multiarch = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    of_python = (sysconfig.get_path("stdlib"), sys.prefix, paths.PACKAGE.parent)
    wanted = (*of_python, multiarch, "/usr/bin", "/usr/sbin")
    folders = {Path(folder).resolve() for folder in wanted if Path(folder).is_dir()}
    return sorted(str(folder) for folder in folders if not folders & {*folder.parents})


def check_seen(what: str, folder: Path, hint: str) -> None:
    """CapabilityError for a folder of this machine that guests do not see."""
    for path in (folder.absolute(), folder.resolve()):
        for unseen in _UNSEEN:
            if path.is_relative_to(unseen):
                raise CapabilityError(
                    f"guests do not see {what} {folder}: they have their own {unseen}", hint=hint
                )


class Guest:
    """A started guest; ends with its namespace's holder, or by kill().

    temporary: folder for files of virtme-ng and QEMU, which are killed before they remove them.
    """

    def __init__(
        self,
        config: GuestConfig,
        namespace: Namespace,
        public_key: str,
        logs: Path | None,
        temporary: Path,
    ) -> None:
        self.config = config
        self.console = self._open_console(logs)
        self._namespace = namespace
        self._temporary = temporary
        self._argv = config.argv(public_key)
        self._start()

    def _start(self) -> None:
        environment = {
            **os.environ,
            "PATH": f"{Path(virtme_ng()).parent}:{os.environ['PATH']}",
            "TMPDIR": str(self._temporary),
        }
        # A pipe: QEMU opens its output anew for each console, and would overwrite a file.
        self._writer = spawn(
            self._namespace,
            ["cat"],
            stdin=subprocess.PIPE,
            stdout=self.console,
            stderr=self.console,
        )
        # What is there already is of another boot, or of another dpctl.
        self._begin = self._size = os.fstat(self.console.fileno()).st_size
        self._spoke = time.monotonic()
        assert self._writer.stdin is not None
        with self._writer.stdin as pipe:
            self._process = spawn(
                self._namespace,
                self._argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
            )

    def restart(self, trouble: str) -> None:
        """End this boot and begin another; `trouble` stands between the two in the console."""
        # virtme-ng and the QEMU below it are a session of their own, hence a process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._writer.wait()
        os.write(self.console.fileno(), f"\ndpctl: {trouble}; started again\n".encode())
        self._start()

    def ended(self) -> str:
        """That the guest has ended, with its last words; "" while it runs."""
        return "" if self._process.poll() is None else f"it has ended: {self.last_words()}"

    def stuck(self, silent_s: float) -> str:
        """That its console has been silent for longer than `silent_s` seconds; otherwise "".

        As the calls of this see it, since the clock that files are dated by may be set meanwhile.
        """
        size = os.fstat(self.console.fileno()).st_size
        if size != self._size:
            self._size, self._spoke = size, time.monotonic()
        silent = time.monotonic() - self._spoke > silent_s
        return f"it said nothing for {silent_s:g} s" if silent else ""

    def when_ended(self, call: Callable[[str], None]) -> None:
        """Call, with the console's last line, in a thread, when the guest ends."""

        def wait() -> None:
            self._process.wait()
            call(self.last_words())

        threading.Thread(target=wait, name=f"dp-{self.config.name}", daemon=True).start()

    def _open_console(self, logs: Path | None) -> IO[bytes]:
        if logs is None:
            return tempfile.TemporaryFile()
        logs.mkdir(parents=True, exist_ok=True)
        return (logs / f"{self.config.name}.console").open("ab+")

    def check_alive(self) -> None:
        """RunFailed, with the console's last line, when the guest has ended."""
        if ended := self.ended():
            raise RunFailed(
                f"guest {self.config.name}: {ended}",
                hint=self.where,
            )

    @property
    def where(self) -> str:
        """Where its console is, as a hint; "" without a folder for it."""
        name = self.console.name
        return f"its console is {name}" if isinstance(name, str) else ""

    def last_words(self) -> str:
        """Why this boot's kernel died, if the console ends with that; else its last line."""
        try:
            descriptor = self.console.fileno()
            begin = max(self._begin, os.fstat(descriptor).st_size - _TAIL)
            text = os.pread(descriptor, _TAIL, begin).decode(errors="replace")
        except (OSError, ValueError):  # closed meanwhile: the network is being taken down
            return "its network was taken down"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if trouble := _DEATH.findall(text):
            return "; ".join(line.strip() for line in trouble)
        return lines[-1] if lines else "its console is empty"

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """After kill() and after the holder of its namespace has closed."""
        self._process.wait()
        self._writer.wait()
        self.console.close()


def virtme_ng() -> str:
    """The program vng; CapabilityError when it is not there."""
    path = Path(sys.executable).parent / "vng"
    found = str(path) if path.exists() else shutil.which("vng")
    if found is None:
        raise CapabilityError(
            "virtme-ng is not installed", hint="call ./dpctl of a source tree, which installs it"
        )
    return found
