# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: I001, the front comes before pyverbs
"""Two connections of one device on different algorithms, changed while they send.

With the argument `wait`: says its QP numbers, and ends with its input.
"""

from __future__ import annotations

import sys

import datapath.verbs
from datapath.errors import LocalError
from datapath.verbs import cc_of, set_cc
from pair import MEMORY_BYTES, TARGET, Side, pair
from pyverbs import enums as e

ROUNDS = 40
DEPTH = 16


def refused(part: str, *arguments: object, **options: object) -> None:
    try:
        set_cc(*arguments, **options)
    except LocalError as error:
        told = f"{error} {error.hint}"
    else:
        told = "it was not refused"
    assert part in told, told


def post(a: Side, b: Side, seed: int) -> bytes:
    data = bytes((seed + i) % 251 for i in range(MEMORY_BYTES))
    a.put(data)
    for i in range(DEPTH):
        a.write([a.sge(MEMORY_BYTES)], b.target(), flags=e.IBV_SEND_SIGNALED, wr_id=i)
    return data


def main() -> None:
    assert datapath.verbs.load_front()
    a, b = pair()
    c, d = pair()
    if sys.argv[1:] == ["wait"]:
        print(*(side.qp.qp_num for side in (a, b, c, d)), flush=True)
        sys.stdin.read()
        return
    first = set_cc(a.qp, "fixed", {"window_bytes": 8192})
    assert (first.name, first.params["window_bytes"], first.changes) == ("fixed", 8192, 1)
    second = set_cc(c.qp.qp_num, "swift", {"ai": 2}, device=TARGET.device)
    assert (second.name, second.params["ai"]) == ("swift", 2)
    assert cc_of(b.qp).name == "constant window"
    refused("no parameter 'speed'", a.qp, "fixed", {"speed": 1})
    refused("has no RC QP", a.qp, "fixed", device="dp7")
    refused("no device of ours has an RC QP 1", 1, "fixed")
    refused("no parameters", a.qp, None, {"ai": 1})
    assert cc_of(a.qp) == first
    for round_ in range(ROUNDS):
        expected = [post(a, b, round_), post(c, d, 7 * round_)]
        set_cc(a.qp, ("swift", "fixed")[round_ % 2])
        set_cc(c.qp, ("dctcp", None)[round_ % 2])
        for side, peer, data in zip((a, c), (b, d), expected, strict=True):
            assert [side.done().wr_id for _ in range(DEPTH)] == list(range(DEPTH))
            assert peer.get(MEMORY_BYTES) == data
    assert [cc_of(side.qp).changes for side in (a, b, c, d)] == [ROUNDS + 1, 0, ROUNDS + 1, 0]


main()
