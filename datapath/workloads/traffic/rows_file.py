# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A traffic table of the user's own: CSV or Parquet, one row for each flow.

Columns are those of fabric/flows.py: src, dst and bytes (or stop_ns) are needed, the others may be
left out.  Hosts are numbers, or names of the network.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from datapath import foreign
from datapath.errors import LocalError
from datapath.spelling import or_rather
from datapath.workloads.traffic.base import FLOWS_MAX

if TYPE_CHECKING:
    import pandas as pd

    from datapath.fabric.flows import Flows

COLUMNS = (
    *("start_ns", "stop_ns", "src", "dst", "bytes", "message_bytes", "depth", "qp", "tag"),
    *("dscp", "after"),
)
_SELDOM = ("dscp", "after")
"""Columns that a table has when a row has a value for them."""
_HINT = "src,dst,bytes,start_ns is the first line of a table of four columns"


def read(path: Path, hosts: Sequence[str]) -> Flows:
    """The table of a file, ordered by start; LocalError says what is wrong with it first.

    hosts: names, in the order of their numbers.
    """
    flows, wrong = _read(path, hosts)
    if wrong:
        raise LocalError(f"{path}: {wrong[0]}", hint=_HINT)
    return flows


def mistakes(path: Path, hosts: Sequence[str]) -> list[str]:
    """What is wrong with a file: of each kind of mistake the first row, counted from 1."""
    try:
        return [f"{path}: {text}" for text in _read(path, hosts)[1]]
    except LocalError as error:
        return [str(error)]


def _read(path: Path, hosts: Sequence[str]) -> tuple[Flows, list[str]]:
    import numpy as np

    from datapath.fabric import flows as table

    frame = _frame(path)
    unknown = [str(name) for name in frame.columns if name not in COLUMNS]
    wrong = [f"no column {name!r}{or_rather(name, COLUMNS, 'columns')}" for name in unknown]
    wrong += [f"it has no column {name}" for name in ("src", "dst") if name not in frame]
    if not {"bytes", "stop_ns"} & set(frame.columns):
        wrong.append("it has no column bytes")
    flows = table.empty(len(frame))
    if wrong:
        return flows, wrong
    strange = np.zeros(len(frame), bool)  # rows of which more is not told
    for name in frame.columns:
        of_hosts = name in ("src", "dst")
        most = np.iinfo(flows.dtype[name]).max
        read = _numbered(frame[name], hosts) if of_hosts else _whole(name, frame[name], most)
        flows[name], bad, why = read
        wrong += _told(np.flatnonzero(bad), why)
        strange |= bad
    no_end = (flows["bytes"] == 0) & (flows["stop_ns"] == 0) & ~strange
    wrong += _told(np.flatnonzero(no_end), "bytes is 0, so it needs stop_ns")
    strange |= no_end
    _complete(flows, set(frame.columns))
    if wrong:
        flows["after"] = 0  # of rows of which some are not known
    order, waits_wrong = _order(flows)
    wrong += waits_wrong
    known = order[~strange[order]]
    for bad, what in table.faults(flows[known], len(hosts)):
        wrong += _told(known[bad], what)
    return flows[order], wrong


def _told(rows: Any, why: str | Callable[[int], str]) -> list[str]:
    """The first of the rows that are wrong, and how many there are."""
    if not len(rows):
        return []
    first = int(rows.min())
    many = f" ({len(rows)} such rows)" if len(rows) > 1 else ""
    return [f"row {first + 1}: {why if isinstance(why, str) else why(first)}{many}"]


def write(path: Path, flows: Flows) -> None:
    """A table as CSV, or Parquet by the name's ending."""
    import pandas as pd

    names = [name for name in COLUMNS if name not in _SELDOM or flows[name].any()]
    frame = pd.DataFrame({name: flows[name] for name in names})
    try:
        if path.suffix == ".parquet":
            frame.to_parquet(path, index=False)
        else:
            frame.to_csv(path, index=False)
    except OSError as error:
        raise LocalError(f"cannot write {path}: {error}") from None


def _order(flows: Flows) -> tuple[Any, list[str]]:
    """The rows by start, those that wait behind those that they wait for; what is wrong.

    `start_ns` and `after` of the flows become those of that order.
    """
    import numpy as np

    after = flows["after"].astype(np.int64) - 1
    depth = np.zeros(len(flows), np.int64)
    waits, wrong = np.flatnonzero(after >= 0), []
    if after.max(initial=-1) >= len(flows):
        row = int(np.argmax(after))
        wrong = [f"row {row + 1}: after is {after[row] + 1}, of {len(flows)} rows"]
        waits = waits[:0]
    # Each pass looks twice as far up the chains as the one before it.
    depth[waits], before, left = 1, after.copy(), waits
    while left.size:
        far = before[left]
        flows["start_ns"][left] = np.maximum(flows["start_ns"][left], flows["start_ns"][far])
        depth[left] += depth[far]
        before[left] = before[far]
        left = left[before[left] >= 0]
        if depth.max() > len(flows):
            wrong = [f"row {int(before[left[0]]) + 1} waits for rows that wait for it"]
            waits = left = waits[:0]
    order = np.lexsort((depth, flows["start_ns"]))
    place = np.empty(len(flows), np.int64)
    place[order] = np.arange(len(flows))
    if wrong:
        flows["after"] = 0
    else:
        flows["after"][waits] = place[after[waits]] + 1
    return order, wrong


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            frame = foreign.read_table(path)
        else:
            frame = pd.read_csv(io.StringIO(foreign.read_text(path)), comment="#")
    except (OSError, ValueError) as error:
        raise LocalError(f"traffic table {path}: {error}") from None
    if not 0 < len(frame) <= FLOWS_MAX:
        raise LocalError(f"traffic table {path}: {len(frame)} rows; it has 1 to {FLOWS_MAX}")
    return frame


_Read: TypeAlias = "tuple[Any, Any, Callable[[int], str]]"
"""Values of a column, 0 where one is wrong; which are; and the reason of a row."""


def _numbered(values: pd.Series[Any], hosts: Sequence[str]) -> _Read:
    """Numbers in place of hosts' names."""
    import pandas as pd

    name = values.name
    if pd.api.types.is_numeric_dtype(values) and values.notna().all():
        return _whole(str(name), values, 2**32 - 1)
    numbers = {host: number for number, host in enumerate(hosts)}
    numbers |= {str(number): number for number in range(len(hosts))}
    texts = values.map(_text)
    found = texts.map(numbers)

    def why(row: int) -> str:
        if pd.isna(values.iloc[row]):
            return f"{name} is empty"
        near = or_rather(texts.iloc[row], hosts[:64], "hosts")
        return f"{name}: there is no host {texts.iloc[row]}{near}"

    return found.fillna(0).to_numpy(), found.isna().to_numpy(), why


def _text(value: Any) -> str:
    """As the file has it: whole numbers beside others, or an empty place, have become floats."""
    return f"{value:.15g}" if isinstance(value, float) else str(value).strip()


def _whole(name: str, values: pd.Series[Any], most: int) -> _Read:
    """Whole numbers of a column; an empty place is 0."""
    import pandas as pd

    found = pd.to_numeric(values, errors="coerce")
    strange = found.isna() & values.notna()
    found = found.fillna(0)
    # Below 2^53 a float holds each whole number.
    bad = strange | (found < 0) | (found > min(most, 2**53)) | (found % 1 != 0)
    return (
        found.where(~bad, 0).to_numpy(),
        bad.to_numpy(),
        lambda row: f"{name} is {_text(values.iloc[row])}, not a whole number in range",
    )


def _complete(flows: Flows, given: set[str]) -> None:
    """The defaults of columns that are left out."""
    import numpy as np

    from datapath.fabric.flows import MESSAGE_MAX, UNTIL_STOP

    if "depth" in given:
        flows["depth"][flows["depth"] == 0] = 1
    endless = (flows["bytes"] == 0) & (flows["stop_ns"] > 0)
    flows["bytes"][endless] = UNTIL_STOP
    flows["message_bytes"][endless & (flows["message_bytes"] == 0)] = 65536
    long = ~endless & (flows["message_bytes"] == 0) & (flows["bytes"] > MESSAGE_MAX)
    flows["message_bytes"][long] = np.uint64(2**20)
