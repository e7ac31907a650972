# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Real sshds on the hosts of a namespace network, for tests of what is reached by ssh."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datapath.lanes.local import NetnsHost
from datapath.lanes.remote import ClientKey, SshHost
from tests.waiting import wait_for_words

USER = "researcher"

# The accounts are the test's own: this machine's root may be locked, and what its login shell
# does at start is not under test.  The mounts end with sshd.
_START = """
etc=$1
shift
for file in passwd group shadow sudoers; do
    [ ! -e "/etc/$file" ] || mount --bind "$etc/$file" "/etc/$file"
done
exec "$@"
"""
_SETTINGS = (
    "PasswordAuthentication=no",
    "PermitRootLogin=prohibit-password",
    "PidFile=none",
    "StrictModes=no",
    "UseDNS=no",
    "UsePAM=no",
)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that users other than root can look into, as pytest's cannot be."""
    with tempfile.TemporaryDirectory(prefix="dp-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@dataclass
class Sshd:
    """An sshd with a host key of its own on a host; `key` lets root and USER in.

    may_sudo: USER may use sudo without a password.  temporary_name: of the folder that is TMPDIR.
    """

    host: NetnsHost
    folder: Path
    options: Sequence[str] = ("Subsystem=sftp internal-sftp",)
    may_sudo: bool = True
    temporary_name: str = "tmp"
    key: ClientKey = field(default_factory=ClientKey.generate)

    def start(self) -> Sshd:
        self.folder.mkdir(parents=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        self.temporary = self.folder / self.temporary_name
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)
        self._write_accounts()
        host_key, keys = self.folder / "host_key", self.folder / "authorized_keys"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key)], check=True
        )
        keys.write_text(self.key.public + "\n")
        keys.chmod(0o644)
        words = ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null"]
        for setting in (
            f"HostKey={host_key}",
            f"AuthorizedKeysFile={keys}",
            f'SetEnv="TMPDIR={self.temporary}"',
            *_SETTINGS,
            *self.options,
        ):
            words += ["-o", setting]
        argv = ["unshare", "--mount", "sh", "-ec", _START, "sh", str(self.folder), *words]
        self.log = self.folder / "sshd.log"
        self.process = self.host.popen(argv, stdout=self.log, stderr=self.log)
        self._wait()
        return self

    def _write_accounts(self) -> None:
        for account in ("root", USER):
            (self.folder / account).mkdir()
        (self.folder / USER).chmod(0o755)
        files = {
            "passwd": f"root:x:0:0:root:{self.folder}/root:/bin/bash\n"
            f"sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
            f"{USER}:x:1000:1000::{self.folder}/{USER}:/bin/bash\n",
            "group": f"root:x:0:\nsudo:x:27:\nnogroup:x:65534:\n{USER}:x:1000:\n",
            "shadow": f"root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n",
            "sudoers": f"{USER} ALL=(ALL) NOPASSWD: ALL\n" if self.may_sudo else "root ALL=ALL\n",
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)
        (self.folder / "sudoers").chmod(0o440)

    @property
    def host_key(self) -> str:
        """As a file of known hosts has it, behind the name."""
        return (self.folder / "host_key.pub").read_text()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _wait(self) -> None:
        wait_for_words(self.log, "Server listening", self.process)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def socket(self) -> socket.socket:
        """A connection to it, made inside its own namespace."""
        where = (self.host.endpoint.mgmt_ipv4, 22)
        return self.host.namespace.in_network(lambda: socket.create_connection(where, timeout=5))

    def log_in(self, key: ClientKey | None = None, *, shared_files: bool = False) -> SshHost:
        host = self.host
        return SshHost.over_socket(
            host.name, host.endpoint, self.socket(), key or self.key, shared_files=shared_files
        )
