# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the engine meets rxe: a namespace with our device, a guest with theirs.

    dp    namespace, whose eth1 is the tap of --- eth1    rxe    guest

Packets are captured at the guest's eth1, and lost between there and its
network stack, both ways: what the guest sends by netem at the device, before
the capture sees it; what it receives by netem behind the capture.  So the
capture is what our side sent and could receive, and only the guest's packets
can be missing in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from datapath.errors import CapabilityError, RunFailed
from datapath.interop.capture import ROCE_PORT
from datapath.lanes.base import Endpoint, Host, Network
from datapath.lanes.spec import Path as PathSection
from datapath.lanes.spec import Topology

if TYPE_CHECKING:
    from datapath.lanes.base import Process

_MTU = 9000
_FRAME = _MTU + 100
_IFB = "ifb0"
_SHORT_S = 30.0
_MODULES = ("sch_netem", "ifb", "act_mirred", "cls_matchall")
_PID = "/run/interop-tcpdump.pid"
_BUFFER_KIB = 32 * 1024


@dataclass(frozen=True)
class Facts:
    """Facts that a table of results has to name."""

    kernel: str
    guest_kernel: str


class Ground:
    """Both hosts, as a context manager; booting the guest takes half a minute without KVM.

    kernel: of the guest, as `dpctl kernel install` names it.  logs: folder for its console.
    """

    def __init__(self, kernel: str, logs: Path) -> None:
        from datapath.lanes import open_network

        topology = Topology.model_validate(
            {"lane": "vm", "kernel": kernel, "namespaces": 1, "mtu": _MTU}
        )
        self._network: Network = open_network(topology, PathSection(backend="none"), logs)

    def __enter__(self) -> Ground:
        self._network.__enter__()
        try:
            self._network.prepare("rxe")
            self._prepare_loss()
        except BaseException as error:
            self._network.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._network.__exit__(kind, error, traceback)

    @property
    def dp(self) -> Host:
        """The host of our device."""
        return self._network.hosts[0]

    @property
    def rxe(self) -> Host:
        """The guest; its device is rxe0."""
        return self._network.hosts[1]

    def port(self, kind: str) -> str:
        """Our device's port, of kind afxdp or udp."""
        where: Endpoint = self.dp.endpoint
        return f"afxdp:{where.netdev}" if kind == "afxdp" else f"udp:{where.ipv4}"

    def facts(self) -> Facts:
        import os

        return Facts(os.uname().release, self._output(["uname", "-r"]).strip())

    def recover(self) -> bool:
        """After a failed run; False when the guest is of no more use."""
        return self._network.recover()

    # -- loss

    def _prepare_loss(self) -> None:
        for program in ("tcpdump", "tc"):
            if not self.rxe.has_program(program):
                raise CapabilityError(
                    f"program {program} is not installed",
                    hint="call ./dpctl of a source tree, which installs it",
                )
        netdev = self.rxe.endpoint.netdev
        for module in _MODULES:
            self._output(["modprobe", module])
        self._script(
            f"ip link show {_IFB} >/dev/null 2>&1 || ip link add {_IFB} type ifb",
            f"ip link set {_IFB} up mtu {_MTU}",
            f"tc qdisc add dev {netdev} clsact",
            f"tc filter add dev {netdev} ingress matchall action mirred egress redirect dev {_IFB}",
        )

    def set_loss(self, share: float) -> None:
        """Lose this share of the packets, in each direction by itself."""
        percent = f"{share * 100:.6f}%"
        self._script(
            *(
                f"tc qdisc replace dev {netdev} root netem loss {percent} limit 10000"
                for netdev in (self.rxe.endpoint.netdev, _IFB)
            )
        )

    # -- capture

    @contextmanager
    def capture(self, folder: Path) -> Iterator[Path]:
        """Capture RoCE packets meanwhile; the file is there at the end.

        RunFailed when the kernel had to leave some out.
        """
        remote = self.rxe.outputs(folder)
        messages = folder / "tcpdump.log"
        netdev = self.rxe.endpoint.netdev
        # In immediate mode each packet takes a whole frame of the buffer, whatever its length.
        words = ["tcpdump", "-i", netdev, "-n", "-s", str(_FRAME), "-B", str(_BUFFER_KIB)]
        words += ["--immediate-mode", "-U", "-w", f"{remote}/capture.pcap"]
        words += ["udp", "port", str(ROCE_PORT)]
        script = f"echo $$ >{_PID}; exec {shlex.join(words)}"
        process = self.rxe.popen(["sh", "-c", script], stdout=messages, stderr=messages)
        try:
            self._wait_for(process, messages, "listening on")
            yield folder / "capture.pcap"
            # tcpdump gets its last packets after the programs have ended.
            self._script("sleep 0.3", f"kill -INT $(cat {_PID})")
            process.wait(_SHORT_S)
        finally:
            process.kill()
        self.rxe.fetch(folder)
        self._wait_for(process, messages, "dropped by kernel")
        words = messages.read_text().split()
        if words[words.index("dropped") - 2] != "0":
            raise RunFailed("the capture is not complete", hint=f"see {messages}")

    def _wait_for(self, process: Process, log: Path, words: str) -> None:
        import time

        deadline = time.monotonic() + _SHORT_S
        while words not in (log.read_text() if log.exists() else ""):
            if time.monotonic() > deadline:
                raise RunFailed(f"tcpdump in the guest did not say {words!r}", hint=f"see {log}")
            time.sleep(0.05)

    # -- commands in the guest

    def _output(self, argv: list[str]) -> str:
        done = self.rxe.run(argv, timeout_s=_SHORT_S)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            raise CapabilityError(
                f"the guest cannot {shlex.join(argv)}: {said}",
                hint="it needs a kernel with rxe, netem and ifb, such as Debian's 6.12",
            )
        return str(done.stdout)

    def _script(self, *lines: str) -> str:
        return self._output(["sh", "-ec", "\n".join(lines)])
