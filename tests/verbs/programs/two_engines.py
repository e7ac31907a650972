# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two devices of one process at one address, each connected to itself and to the other."""

from __future__ import annotations

import json

from pair import MEMORY_BYTES, Side, connect
from pyverbs.device import Context

ROUNDS = 20


def exchange(a: Side, b: Side, seed: int) -> None:
    """A message each way: a WRITE, and a READ of what the other end has."""
    data = bytes((seed + i) % 251 for i in range(MEMORY_BYTES // 2))
    a.put(data)
    a.write([a.sge(len(data))], b.target())
    a.done()
    assert b.get(len(data)) == data
    b.put(bytes(len(data)))
    b.read([b.sge(len(data))], a.target())
    b.done()
    assert b.get(len(data)) == data


def main() -> None:
    contexts = [Context(name=name) for name in ("dp0", "dp1")]
    prefixes = set()
    for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
        a, b = Side(contexts[first]), Side(contexts[second])
        for side in (a, b):
            side.make_qp()
        connect(a, b)
        prefixes |= {(first, a.qp.qp_num >> 16), (second, b.qp.qp_num >> 16)}
        for number in range(ROUNDS):
            exchange(a, b, number)
    print(json.dumps(sorted(prefixes)))


main()
