#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Latency of a reliable connection, on any verbs device, with the data checked.

One side waits, the other names its host, as with ibv_rc_pingpong:

    tools/pingpong.py -d dp0                      # server
    tools/pingpong.py -d dp0 10.0.0.2             # client

--op send   each side answers a SEND with a SEND: half a round trip is reported
--op write  the same with RDMA WRITE and immediate, which also lands in memory
            (iWARP: WRITE, and an empty SEND behind it)
--op read   the client READs from the server's memory: a whole round trip

With --cm, which iWARP needs, RDMA-CM connects the two.

Every message differs from the one before, and every byte received is compared.
Run it under `dpctl exec --device dp0=afxdp:DEV --`, or as it is on rxe, siw or
hardware.  Output: microseconds; --json prints nanoseconds.
"""

from __future__ import annotations

import argparse
import json
import time

from rc import Endpoint, add_connection_arguments, connect, pattern


def send_loop(end: Endpoint, args: argparse.Namespace) -> list[int]:
    """SEND or WRITE with immediate back and forth; RTTs in ns (client)."""
    client = bool(args.server)
    write = args.op == "write"
    seed_out, seed_in = (1, 2) if client else (2, 1)
    times = []
    for i in range(args.iterations):
        started = time.perf_counter_ns()
        if client:
            end.write_out(0, pattern(args.size, i, seed_out))
            started = time.perf_counter_ns()
            end.post(write=write, imm=i)
        completion = end.wait_receive()
        if client:
            times.append(time.perf_counter_ns() - started)
        end.expect(completion, pattern(args.size, i, seed_in), i, write=write)
        end.post_receive()
        if not client:
            end.write_out(0, pattern(args.size, i, seed_out))
            end.post(write=write, imm=i)
        end.wait_send()
    return times


def read_loop(end: Endpoint, args: argparse.Namespace) -> list[int]:
    """The client READs what the server holds; the server only stays alive."""
    data = pattern(args.size, 0, 7)
    times: list[int] = []
    if not args.server:
        end.write_out(0, data)
        end.barrier()  # the data is there
        end.barrier()  # the client has read it
        return times
    end.barrier()
    for i in range(args.iterations):
        end.clear_in(args.size)
        started = time.perf_counter_ns()
        end.post_read(args.size)
        end.wait_send()
        times.append(time.perf_counter_ns() - started)
        end.compare(args.size, data, i)
    end.barrier()
    return times


def summary(args: argparse.Namespace, times: list[int]) -> dict[str, object]:
    """Percentiles of what was measured, in ns."""
    divide = 1 if args.op == "read" else 2
    ordered = sorted(t / divide for t in times)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {
        "op": args.op,
        "size": args.size,
        "iterations": len(ordered),
        "events": args.events,
        "verified": True,
        "what": "round trip" if divide == 1 else "half a round trip",
        "latency_min": ordered[0],
        "latency_mean": sum(ordered) / len(ordered),
        "latency_p50": at(0.5),
        "latency_p99": at(0.99),
        "latency_p999": at(0.999),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_connection_arguments(parser)
    parser.add_argument("--op", choices=("send", "write", "read"), default="send")
    parser.add_argument("-s", "--size", type=int, default=64, help="bytes in a message (64)")
    args = parser.parse_args()

    read = args.op == "read"
    with connect(args, buffer_bytes=args.size, depth=2, receive_first=not read) as end:
        times = read_loop(end, args) if read else send_loop(end, args)
    if not times:
        return
    result = summary(args, times)
    if args.json:
        print(json.dumps(result))
        return
    print(f"{args.op} of {args.size} bytes, {len(times)} times, {result['what']}, data verified:")
    for key in ("min", "mean", "p50", "p99", "p999"):
        value = result[f"latency_{key}"]
        assert isinstance(value, float)
        print(f"  {key:<5} {value / 1000:10.2f} us")


if __name__ == "__main__":
    main()
