# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hosts reached by ssh: one connection each, on which many programs run.

openssh.py     host keys and keys to log in with, of the user's ssh configuration
loop.py        the thread in which asyncssh lives
connection.py  logging in, and the warden that cleans up on the far side
warden.sh      the warden itself
session.py     the output of programs over ssh
process.py     a program on the far side, looking like subprocess.Popen
piped.py       one that answers in lines
files.py       files brought there and fetched from there
facts.py       kernel, devices and so on of the host, and the offset of its clock
host.py        SshHost, which is all of it behind datapath.lanes.base.Host
"""

from datapath.lanes.remote.connection import ClientKey, Connection
from datapath.lanes.remote.host import SshHost

__all__ = ["ClientKey", "Connection", "SshHost"]
