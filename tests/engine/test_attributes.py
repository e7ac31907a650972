# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which attributes `dp_qp_modify` takes in which transition: what the kernel's devices take.

The tables are those of `ib_modify_qp_is_ok` in Linux (drivers/infiniband/core/verbs.c), which
are IBTA vol. 1, table 94.  Alternate paths, which we do not have, are left out.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from datapath.native import lib
from tests.engine.conftest import MakeWorld
from tests.engine.datagram import UD_OPTIONS
from tests.engine.ladder import ALL_ACCESS, QP, Channel, Options, World, ok, pattern
from tests.engine.test_errors import MODES, pair

pytestmark = pytest.mark.san

ATTRIBUTES = [
    "CUR_STATE",
    "EN_SQD_ASYNC_NOTIFY",
    "ACCESS_FLAGS",
    "PKEY_INDEX",
    "PORT",
    "QKEY",
    "AV",
    "PATH_MTU",
    "TIMEOUT",
    "RETRY_CNT",
    "RNR_RETRY",
    "RQ_PSN",
    "MAX_QP_RD_ATOMIC",
    "MIN_RNR_TIMER",
    "SQ_PSN",
    "MAX_DEST_RD_ATOMIC",
    "DEST_QPN",
]
STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "ERR"]
WAYS = {state: STATES[: STATES.index(state) + 1] for state in STATES}
ANSWERED = "MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC"
SETTLED = "CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER"
Table = dict[tuple[str, str], tuple[str, str]]
"""Of each transition between two states, the attributes that it needs, and those that it takes."""

RC: Table = {
    ("RESET", "INIT"): ("PKEY_INDEX PORT ACCESS_FLAGS", ""),
    ("INIT", "INIT"): ("", "PKEY_INDEX PORT ACCESS_FLAGS"),
    ("INIT", "RTR"): (
        "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
        "PKEY_INDEX ACCESS_FLAGS",
    ),
    ("RTR", "RTS"): ("TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC", SETTLED),
    ("RTS", "RTS"): ("", SETTLED),
    ("RTS", "SQD"): ("", "EN_SQD_ASYNC_NOTIFY"),
    ("SQD", "RTS"): ("", SETTLED),
    ("SQD", "SQD"): (
        "",
        f"{ANSWERED} ACCESS_FLAGS PKEY_INDEX PORT AV TIMEOUT RETRY_CNT RNR_RETRY MIN_RNR_TIMER",
    ),
}
UD: Table = {
    ("RESET", "INIT"): ("PKEY_INDEX PORT QKEY", ""),
    ("INIT", "INIT"): ("", "PKEY_INDEX PORT QKEY"),
    ("INIT", "RTR"): ("", "PKEY_INDEX QKEY"),
    ("RTR", "RTS"): ("SQ_PSN", "CUR_STATE QKEY"),
    ("RTS", "RTS"): ("", "CUR_STATE QKEY"),
    ("RTS", "SQD"): ("", "EN_SQD_ASYNC_NOTIFY"),
    ("SQD", "RTS"): ("", "CUR_STATE QKEY"),
    ("SQD", "SQD"): ("", "PKEY_INDEX QKEY"),
}
for table in (RC, UD):
    for state in STATES:
        table[state, "RESET"] = table[state, "ERR"] = ("", "")
"""From RESET to ERR the kernel does not lead, but IBTA has it (vol. 1, 10.3.1)."""


def mask_of(attributes: str) -> int:
    return sum(getattr(lib, f"DP_QP_{name}") for name in attributes.split())


def modify(qp: Any, peer: Any, before: str, after: str, mask: int) -> int:
    return int(
        qp.modify(
            mask | lib.DP_QP_STATE,
            state=getattr(lib, f"DP_QPS_{after}"),
            cur_state=getattr(lib, f"DP_QPS_{before}"),
            raddr=peer.host.addr,
            dest_qpn=peer.qpn,
            access=ALL_ACCESS,
            path_mtu=1024,
            timeout=14,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
        )
    )


@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("kind", ["RC", "UD"])
def test_attributes_of_each_transition(world: World, kind: str, before: str, after: str) -> None:
    """With one attribute more or less than it needs, each in turn."""
    table, options = {"RC": (RC, Options()), "UD": (UD, UD_OPTIONS)}[kind]
    needs, takes = (mask_of(names) for names in table.get((before, after), ("", "")))
    peer = QP(world.b_host, options)
    wrong = []
    for name in ["", *ATTRIBUTES]:
        qp = QP(world.a_host, options)
        for step in itertools.pairwise(WAYS[before]):
            assert modify(qp, peer, *step, mask_of(table[step][0])) == 0, step
        assert qp.state == before
        mask = needs ^ mask_of(name)
        legal = (before, after) in table and mask & needs == needs and not mask & ~(needs | takes)
        if (modify(qp, peer, before, after, mask) == 0) != legal:
            wrong.append(f"{name} is {'refused' if legal else 'taken'}")
        else:
            assert qp.state == (after if legal else before)
        qp.destroy()
    assert wrong == []


# ---- what a drained connection may change -----------------------------------------------------


def drained(qp: QP, mask: str = "", **attributes: Any) -> int:
    return qp.modify(lib.DP_QP_STATE | mask_of(mask), state=lib.DP_QPS_SQD, **attributes)


@MODES
def test_a_drained_connection_moves_to_another_address(
    make_world: MakeWorld, extended: bool
) -> None:
    """Its packets go there, and those from there are taken, once nothing is under way."""
    world, a, b = pair(make_world, extended=extended)
    old, new = b.host.addr, bytes([*b.host.addr[:-1], b.host.addr[-1] ^ 0x40])
    a.write(pattern(5000), b.host.memory(5000), wr_id=1)
    a.host.send(1)
    assert drained(a) == 0
    assert a.attr.sq_draining
    assert drained(a, "AV", raddr=new) < 0
    assert bytes(a.attr.raddr.b) == old
    assert world.run(limit_ns=100 * 10**9)
    assert drained(a, "AV", raddr=new) == 0
    assert a.to(lib.DP_QPS_RTS) == 0
    a.write(b"moved", b.host.memory(8), wr_id=2)
    (packet,) = a.host.send_all()
    assert packet.dst == new


@MODES
@pytest.mark.parametrize("other", [1, 16])
def test_the_number_of_reads_changes_in_a_drained_connection(
    make_world: MakeWorld, extended: bool, other: int
) -> None:
    """READs that are lost on their way are answered again, those from before the change, too."""
    world, a, b = pair(make_world, extended=extended, rd_atomic=4)
    source = b.host.memory(pattern(3000))
    for turn in range(3):
        into = [a.read(3000, source, wr_id=i) for i in range(20)]
        assert world.run(Channel(loss=0.2, seed=turn), limit_ns=1000 * 10**9)
        assert a.poll() == [ok("RDMA_READ", wr_id=i) for i in range(20)]
        assert all(bytes(memory) == pattern(3000) for memory in into)
        for qp in (b, a):
            assert drained(qp) == 0
            number = {"max_rd_atomic": other, "max_dest_rd_atomic": other}
            assert drained(qp, ANSWERED, **number) == 0
            assert (qp.attr.max_rd_atomic, qp.attr.max_dest_rd_atomic) == (other, other)
            assert qp.to(lib.DP_QPS_RTS) == 0
