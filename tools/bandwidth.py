#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Goodput of a reliable connection, on any verbs device, with the data checked.

    tools/bandwidth.py -d dp0                                # server
    tools/bandwidth.py -d dp0 --op write -s 1048576 10.0.0.2 # client

The client moves `-n` messages, `--depth` of them at a time, each into a slot
of its own: SEND, RDMA WRITE, or RDMA READ; with --cm, which iWARP needs, over
a connection that RDMA-CM makes.  A SEND of nothing follows the WRITEs: when it
has come they are there, which their own completion does not say with iWARP
(RFC 5040, section 5.5).  The slots are compared, byte for byte, before their
next use.  What the check costs is not in the figure: the clock stands still
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time

from rc import Endpoint, add_connection_arguments, connect, pattern


def run_client(end: Endpoint, args: argparse.Namespace) -> int:
    """Move the messages in rounds of `depth`; the time they took, in ns."""
    spent = 0
    for first in range(0, args.iterations, args.depth):
        count = min(args.depth, args.iterations - first)
        if args.op != "read":
            for slot in range(count):
                end.write_out(slot * args.size, pattern(args.size, first + slot, 1))
        else:
            end.clear_in(count * args.size)
        end.barrier()  # both ready
        started = time.perf_counter_ns()
        for slot in range(count):
            offset = slot * args.size
            if args.op == "read":
                end.post_read(args.size, offset)
            elif args.op == "write":
                end.post_write(args.size, offset)
            else:
                end.post(size=args.size, offset=offset)
        if args.op == "write":
            end.post(size=0)
            end.wait_send()
        for _ in range(count):
            end.wait_send()
        spent += time.perf_counter_ns() - started
        if args.op == "read":
            for slot in range(count):
                end.compare(
                    args.size, pattern(args.size, first + slot, 1), first + slot, slot * args.size
                )
        end.barrier()  # checked
    return spent


def run_server(end: Endpoint, args: argparse.Namespace) -> None:
    """Give or take each round's messages, and compare what arrived."""
    for first in range(0, args.iterations, args.depth):
        count = min(args.depth, args.iterations - first)
        for slot in range(count):
            offset = slot * args.size
            if args.op == "read":
                end.write_out(offset, pattern(args.size, first + slot, 1))
            elif args.op == "send":
                end.post_receive(args.size, offset)
        if args.op == "write":
            end.post_receive(1)
        end.barrier()
        if args.op != "read":
            for _ in range(count if args.op == "send" else 1):
                end.wait_receive()
        end.barrier()
        if args.op != "read":
            for slot in range(count):
                end.compare(
                    args.size, pattern(args.size, first + slot, 1), first + slot, slot * args.size
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_connection_arguments(parser)
    parser.add_argument("--op", choices=("send", "write", "read"), default="write")
    parser.add_argument(
        "-s", "--size", type=int, default=1 << 20, help="bytes in a message (1 MiB)"
    )
    parser.add_argument("--depth", type=int, default=16, help="messages at a time (16)")
    args = parser.parse_args()
    if args.depth < 1:
        parser.error("--depth is 1 or more")

    with connect(args, buffer_bytes=args.size * args.depth, depth=args.depth) as end:
        if not args.server:
            run_server(end, args)
            return
        spent_ns = run_client(end, args)
    total = args.size * args.iterations
    result = {
        "op": args.op,
        "size": args.size,
        "iterations": args.iterations,
        "verified": True,
        "goodput": total * 8e9 / spent_ns,
        "message_rate": args.iterations * 1e9 / spent_ns,
    }
    if args.json:
        print(json.dumps(result))
        return
    print(
        f"{args.op} of {args.size} bytes, {args.iterations} times, data verified: "
        f"{total * 8 / spent_ns:.3f} Gbit/s, {result['message_rate']:.0f} messages/s"
    )


if __name__ == "__main__":
    main()
