# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl collective`: algorithms and their plans, which to take, what slows a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli.output import (
    Format,
    FormatOption,
    print_record,
    print_rows,
    print_told,
    print_wrapped,
)
from datapath.spelling import counted
from datapath.units import parse_bytes

if TYPE_CHECKING:
    from datapath.collectives import Algorithm, Plan

app = typer.Typer(
    no_args_is_help=True, help="Algorithms of collectives: list, check, show their plans."
)

ITEM_BYTES = 4
_STEPS_MAX = 2**19
_RANKS = (*range(1, 10), 16, 32)
_COLUMNS = (
    *("rank", "step", "channel", "op", "peer", "match", "buffer", "offset", "bytes", "waits_for"),
)
_Name = Annotated[str, typer.Argument(metavar="NAME|./FILE.py:FUNCTION", show_default=False)]
_Ranks = Annotated[int, typer.Option(min=1, max=65536, help="Number of ranks.")]
_SomeRanks = Annotated[
    int | None, typer.Option(min=1, max=65536, help="Number of ranks; unset: several.")
]
_Size = Annotated[str, typer.Option(help="Bytes of each rank's data, as nccl-tests counts them.")]
_Channels = Annotated[int, typer.Option(min=1, max=64, help="Transfers beside each other.")]
_Transfer = Annotated[str, typer.Option("--transfer", help="The largest transfer, bytes.")]
_Item = Annotated[
    int, typer.Option("--item", min=1, max=8, help="Bytes of an item of the data type.")
]
_Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="Set a parameter; repeatable."),
]


@app.command("list")
def list_algorithms(fmt: FormatOption = Format.table) -> None:
    """List the algorithms.

    \b
    dpctl collective list
    """
    from datapath.collectives import registry

    rows = [
        {
            "name": item.name,
            "collective": item.collective,
            "summary": item.doc.partition("\n")[0],
            "parameters": ", ".join(f"{name}={value}" for name, value in item.params.items()),
        }
        for item in registry().values()
    ]
    print_wrapped(rows, fmt)


@app.command()
def check(
    name: _Name,
    ranks: _SomeRanks = None,
    size: _Size = "1MiB",
    channels: _Channels = 1,
    transfer: _Transfer = "256KiB",
    param: _Params = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Prove an algorithm's plans: all inputs reduced once, no deadlock, no race.

    Without --ranks, for 1 to 9, 16 and 32 ranks.

    \b
    dpctl collective check ring
    dpctl collective check ./mine.py --ranks 12 --size 64MiB -p per_node=4
    """
    from datapath.collectives import check as prove
    from datapath.collectives import load
    from datapath.collectives.trace import Crashed
    from datapath.errors import LocalError

    algorithm = load(name)
    _check_options(algorithm, size, param)
    proved: list[dict[str, int]] = []
    refused = hint = ""
    for count in [ranks] if ranks else _RANKS:
        try:
            made = _made(algorithm, count, size, channels, transfer, param)
        except Crashed as error:
            error.hint = f'raise plan.wrong("why") if it is not for {counted(count, "rank")}'
            raise
        except LocalError as error:
            if ranks:
                raise
            refused, hint = f"not for all numbers of ranks, such as {count}: {error}", error.hint
            continue
        proved.append({"ranks": count, "steps": len(prove(made).steps)})
    but = f"; {refused}" if refused else ""
    if not proved:
        raise LocalError(f"{algorithm.name}: no plan was made{but}", hint=hint)
    counts = ", ".join(f"{each['ranks']} ({each['steps']} steps)" for each in proved)
    record = {"algorithm": algorithm.name, "plans": proved, "refused": refused}
    print_told(f"{algorithm.name}: right for {counts} ranks{but}", record, fmt)


@app.command()
def plan(
    name: _Name,
    ranks: _Ranks = 4,
    size: _Size = "1MiB",
    channels: _Channels = 1,
    transfer: _Transfer = "256KiB",
    item: _Item = ITEM_BYTES,
    param: _Params = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Show this rank's steps alone.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the plan to a file, for libdpcoll.so.")
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Show the table of steps that an algorithm becomes.

    \b
    dpctl collective plan ring --ranks 4 --size 4KiB --rank 0
    dpctl collective plan double_tree --ranks 8 --out tree.plan
    """
    from datapath import disk
    from datapath.collectives import check as prove
    from datapath.collectives import load
    from datapath.errors import LocalError

    algorithm = load(name)
    _check_options(algorithm, size, param, item)
    if rank is not None and rank >= ranks:
        raise LocalError(f"--rank {rank}: there are ranks 0 to {ranks - 1}")
    made = prove(_made(algorithm, ranks, size, channels, transfer, param, item))
    if out is not None:
        disk.write_atomic(out, made.to_bytes())
        print_record(_summary(made), Format.ndjson)
        return
    frame = made.frame()
    if rank is not None:
        frame = frame[frame["rank"] == rank]
    rows = frame.to_dict("records")
    print_rows([{str(key): value for key, value in row.items()} for row in rows], _COLUMNS, fmt)


@app.command()
def choose(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.yaml", show_default=False, help="An experiment.")
    ],
    collective: Annotated[
        str | None,
        typer.Option(help="Such as broadcast; unset: that of the experiment.", show_default=False),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="A size to choose for; repeatable. Unset: 1KiB to 64MiB."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the file; repeatable."),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Choose an algorithm for each size, by a measurement on an experiment's network, simulated.

    The network is that of the first point whose workload is collective. Live runs choose for
    themselves with workload: {algorithm: auto}.

    \b
    dpctl collective choose experiments/allreduce.yaml
    dpctl collective choose experiments/allreduce.yaml --collective broadcast
    """
    from datapath.collectives.choose import SIZES
    from datapath.experiment.collectives import choose as measured

    sizes = [_bytes(text) for text in size or []] or [1 << k for k in range(10, 27, 2)]
    chooser = measured(file, set_ or [], collective, SIZES)
    print_rows(
        [
            {
                "size": number,
                "algorithm": chooser.best(number).algorithm,
                **{f"{fit.algorithm}_ms": _ms(fit.time_ns(number)) for fit in chooser.fits},
            }
            for number in sizes
        ],
        ["size", "algorithm", *(f"{fit.algorithm}_ms" for fit in chooser.fits)],
        fmt,
    )


@app.command()
def doctor(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", show_default=False, help="A result folder.")
    ],
    run: Annotated[
        str | None,
        typer.Option(help="One run, POINT-REPETITION; unset: all.", show_default=False),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Name the link or the rank that held up a live collective.

    Times of transfers are held against those of the same plan on the same network, simulated.

    \b
    dpctl collective doctor results/allreduce-20260301T120000
    """
    from datapath.errors import LocalError
    from datapath.experiment.collectives import examine, has_plan, run_name
    from datapath.report.folder import read

    records = [record for record in read(folder).records if record.get("status") == "ok"]
    found = [record for record in records if has_plan(folder, record)]
    found = [record for record in found if run in (None, run_name(record))]
    if not found:
        raise LocalError(
            f"{folder}: {'no such run' if run else 'no live collectives that ended well'}",
            hint="name a folder of workload collective; dpctl show tells its runs",
        )
    rows = []
    for record in found:
        diagnosis = examine(folder, record)
        if fmt is Format.table:
            print(f"{run_name(record)}: {'; '.join(diagnosis.verdicts())}")
        rows += [
            {
                "run": run_name(record),
                "from": link.sender,
                "to": link.receiver,
                "transfers": link.transfers,
                "live_ms": _ms(link.live_ns),
                "simulated_ms": _ms(link.simulated_ns),
                "factor": round(link.factor, 2),
                "verdict": "; ".join(diagnosis.verdicts()),
            }
            for link in diagnosis.links
        ]
    print_rows(rows, ["run", "from", "to", "transfers", "live_ms", "simulated_ms", "factor"], fmt)


def _ms(time_ns: float) -> float:
    return float(f"{time_ns / 1e6:.4g}")


def _summary(made: Plan) -> dict[str, Any]:
    return {
        "algorithm": made.algorithm,
        "collective": made.collective,
        "ranks": made.ranks,
        "channels": made.channels,
        "data_bytes": made.data_bytes,
        "steps": len(made.steps),
        "largest_transfer": made.slot_bytes,
    }


def _check_options(
    algorithm: Algorithm, size: str, params: list[str] | None, item: int = ITEM_BYTES
) -> None:
    """LocalError for what is wrong whatever the number of ranks."""
    from datapath.collectives.trace import typed
    from datapath.errors import LocalError

    data = _bytes(size)
    if data <= 0 or data % item:
        raise LocalError(f"--size {size}: it is a positive multiple of {item} bytes")
    typed(algorithm, _values(params or []))


def _made(
    algorithm: Algorithm,
    ranks: int,
    size: str,
    channels: int,
    transfer: str,
    params: list[str] | None,
    item: int = ITEM_BYTES,
) -> Plan:
    """A plan of the options; the size is rounded up to what the collective can divide."""
    from datapath.collectives import make
    from datapath.collectives.trace import by_parts

    data = _bytes(size)
    unit = item * ranks if by_parts(algorithm.collective) else item
    return make(
        algorithm,
        ranks,
        -(-data // unit) * unit,
        item_bytes=item,
        channels=channels,
        transfer_bytes=_bytes(transfer),
        params=_values(params or []),
        steps_max=_STEPS_MAX,
    )


def _values(params: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in params:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE")
        try:
            found[key] = float(value) if "." in value else int(value)
        except ValueError:
            found[key] = value
    return found


def _bytes(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
