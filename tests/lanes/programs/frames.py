# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""frames.py DEVICE send HEX... | receive COUNT: Ethernet frames as they stand.

frames.py DEVICE mark NUMBER HEX...: sends frames that have this mark.
"""

import socket
import sys
import time

device, what, *words = sys.argv[1:]
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
link.bind((device, 0))
link.settimeout(20)
if what == "mark":
    link.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, int(words.pop(0)))
if what in ("send", "mark"):
    for word in words:
        link.send(bytes.fromhex(word))
        time.sleep(0.02)
else:
    print("ready", flush=True)
    left = int(words[0])
    while left:
        data, (_, _, kind, _, _) = link.recvfrom(65536)
        if kind == socket.PACKET_HOST and data[23:24] == b"\x11":
            print(data.hex(), flush=True)
            left -= 1
