# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Our engine against others on the RoCEv2 wire, and an independent judge of the packets.

files.py, frames.py      pcap and pcapng files, and the IP packets in their frames
opcodes.py, capture.py   RoCEv2 packets, and the mistakes in each by itself
pairs.py                 which QPs of a capture are connected
stream.py, request.py    the rules for one direction of a reliable connection, for one request
manager.py               the rules for messages of the connection manager
flows.py                 the flows of a capture as a traffic table
trace.py                 a whole capture: connections, violations, coverage
ground.py                a namespace with our device and a guest with rxe, joined by a tap
matrix.py                tools/conform.py over that in every combination; the table

The judge shares no code with datapath/wire or datapath/engine, so that a mistake
there is not repeated here.
"""
