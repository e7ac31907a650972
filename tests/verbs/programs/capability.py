# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each kind of verbs device can do, as far as devices differ.

A case that needs what a device has not is not made for that device.  The case
`capabilities` asks the device itself and fails where this table is wrong, so
nothing is left out that could run.
"""

from __future__ import annotations

MEANING = {
    "out of band": "ibv_modify_qp alone connects a QP; numbers come over any socket",
    "acknowledged": "the responder acknowledges or refuses every request, and may be not ready",
    "immediate": "SEND and RDMA WRITE carry immediate data",
    "datagrams": "UD QPs and address handles",
    "windows": "memory windows of both types, and LOCAL_INV",
    "registration anew": "ibv_rereg_mr changes rights, place and domain",
    "shared receives": "SRQ with limit event",
    "atomics": "compare-and-swap, fetch-and-add",
    "scattered READ": "a READ into several SGEs",
    "empty elements": "an SGE of no length beside others (siw of Linux 6.12 crashes the kernel)",
    "page crossing": "a READ of a few bytes across two pages (siw of Linux 6.12: wrong data)",
    "guarded READ": "a region without the right is not READ (siw of Linux 6.12 gives it away)",
    "refused invalidate": "SEND with invalidate of an ordinary memory region fails",
    "solicited": "a receive of a solicited message wakes who asked for such only",
    "posting calls": "ibv_wr_* of extended QPs",
    "posting lists": "ibv_wr_set_sge_list sends all of its elements (rdma-core 44: not on rxe)",
    "polling calls": "ibv_start_poll and its kin of extended CQs",
    "resize": "ibv_resize_cq",
    "spare entries": "a CQ for one completion holds two (rxe: the second one is lost)",
    "drain": "state SQD",
    "drain event": "IBV_EVENT_SQ_DRAINED, also when nothing was under way",
    "reset": "a QP that is in error goes back to RESET and is connected anew",
    "access events": "the responder's program gets IBV_EVENT_QP_ACCESS_ERR",
    "error events": "a completion in error wakes who asked for solicited ones only",
    "exact status": "a mistake of the program's own is named in its completion, not just flushed",
    "completion order": "no request completes before an earlier one (siw: WRITEs before READs)",
    "late sends": "a send posted to a QP that is in error is flushed",
    "late receives": "a receive posted to a QP that is in error is flushed",
}

KINDS: dict[str, frozenset[str]] = {
    "dp": frozenset(MEANING),
    "rxe": frozenset(MEANING)
    - {
        "refused invalidate",
        "drain event",
        "access events",
        "error events",
        "exact status",
        "late receives",
        "posting lists",
        "registration anew",
        "spare entries",
    },
    "siw": frozenset(),
}


def missing(kind: str, needs: tuple[str, ...]) -> list[str]:
    """What a case needs and a kind of device has not."""
    return [need for need in needs if need not in KINDS[kind]]
