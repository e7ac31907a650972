# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An sftp subsystem that lists one name as another of equal length: `renaming_sftp.py OLD NEW`.

OpenSSH's own server does the work.  What it says has NEW in place of OLD, and what the client
asks for by NEW is looked up as OLD.
"""

import os
import subprocess
import sys
import threading

OLD, NEW = (word.encode() for word in sys.argv[1:3])
assert len(OLD) == len(NEW)


def copy(source, target, this, that):
    while data := os.read(source, 1 << 18):
        data = data.replace(this, that)
        while data:
            data = data[os.write(target, data) :]
    os.close(target)


server = subprocess.Popen(
    ["/usr/lib/openssh/sftp-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
)
requests = (0, os.dup(server.stdin.fileno()), NEW, OLD)
server.stdin.close()
threading.Thread(target=copy, args=requests, daemon=True).start()
copy(server.stdout.fileno(), 1, OLD, NEW)
