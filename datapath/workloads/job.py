# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Jobs of ranks: dp-collective on the hosts of a live network, several on each if asked.

Ranks meet on the management network, so an impaired path spoils what is measured and not the
set-up before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from datapath.native import paths
from datapath.workloads import collective_times
from datapath.workloads.base import RunContext
from datapath.workloads.programs import TOLD, Programs
from datapath.workloads.traffic.live import DEVICE_NAMES, token_file

if TYPE_CHECKING:
    from datapath.collectives import Plan

_PORT = 29400


def run_job(
    ctx: RunContext, plan: Plan, per_host: int, words: Sequence[str], pin: bool, node: int | None
) -> list[list[float]]:
    """Run a plan; of each rank the times, ns, that its report has.

    words: further arguments of the program.  node: so many ranks that follow each other share
    memory; None: those of a host.  RunFailed with the words of the rank that knows most.
    """
    hosts = [host for host in ctx.network.hosts for _ in range(per_host)]
    file = (ctx.logs / "collective.plan").resolve()
    plan.write(file)
    common = ["--ranks", str(plan.ranks), "--store", hosts[0].endpoint.mgmt_ipv4]
    common += ["--store-port", str(_PORT), "--device", DEVICE_NAMES[ctx.transport.device]]
    for name, value in ctx.transport.qp_attributes().items():
        common += [f"--{name.replace('_', '-')}", str(value)]
    with token_file(ctx.logs, "collective") as token, Programs(ctx, (), pin) as programs:
        started = [
            programs.start(
                host,
                f"collective-{rank}",
                [
                    *(host.provide(paths.collective_program()), "--rank", str(rank)),
                    *("--plan", host.provide(file), "--token", host.provide(token)),
                    *("--report", f"{host.outputs(ctx.logs)}/{collective_times.report_name(rank)}"),
                    *("--record", f"{host.outputs(ctx.logs)}/collective-{rank}.record"),
                    *("--steps", f"{host.outputs(ctx.logs)}/collective-{rank}.steps"),
                    *("--node", _node_number(rank, node)),
                    *common,
                    *words,
                ],
                ctx.device_env[rank // per_host],
            )
            for rank, host in enumerate(hosts)
        ]
        programs.finish_all(started, hearsay=TOLD)
    return [collective_times.read_report(ctx.logs, host, rank) for rank, host in enumerate(hosts)]


def _node_number(rank: int, node: int | None) -> str:
    """As dp-collective takes it."""
    if node is None:
        return "0"
    return "alone" if node == 1 else str(1 + rank // node)
