# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts a shell script on a host by ssh and waits for it.

Arguments: ADDRESS KEY LOG SCRIPT [KEEPALIVE_S PATIENCE_S].  Prints the
connection's folder; exits with 3 when the host is gone, after saying so.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import asyncssh

from datapath.errors import RunFailed
from datapath.lanes.base import Endpoint
from datapath.lanes.remote import ClientKey, SshHost, connection

address, key, log, script, *times = sys.argv[1:]
if times:
    connection.KEEPALIVE_S, connection.WARDEN_PATIENCE_S = map(int, times)
    connection.HEARTBEAT_S = 1
host = SshHost.over_socket(
    "there",
    Endpoint("eth1", "", "", 1500),
    socket.create_connection((address, 22)),
    ClientKey(asyncssh.read_private_key(key)),
)
print(host.connection.folder, flush=True)
try:
    host.popen(["sh", "-c", script], stdout=Path(log)).wait()
except RunFailed as error:
    print(error)
    sys.exit(3)
