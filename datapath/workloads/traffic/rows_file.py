# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A traffic table of the user's own: CSV or Parquet, one row for each flow.

Columns are those of fabric/flows.py: src, dst and bytes (or stop_ns) are needed, the others may be
left out.  Hosts are numbers, or names of the network.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath import foreign
from datapath.errors import LocalError
from datapath.spelling import or_rather

if TYPE_CHECKING:
    import pandas as pd

    from datapath.fabric.flows import Flows

COLUMNS = (
    *("start_ns", "stop_ns", "src", "dst", "bytes", "message_bytes", "depth", "qp", "tag"),
    *("dscp", "after"),
)
_SELDOM = ("dscp", "after")
"""Columns that a table has when a row has a value for them."""
ROWS_MAX = 10_000_000
_HINT = "src,dst,bytes,start_ns is the first line of a table of four columns"


def read(path: Path, hosts: Sequence[str]) -> Flows:
    """The table of a file, ordered by start; LocalError says what is wrong with it.

    hosts: names, in the order of their numbers.
    """
    import numpy as np

    from datapath.fabric import flows as table

    frame = _frame(path)
    unknown = [str(name) for name in frame.columns if name not in COLUMNS]
    if unknown:
        raise LocalError(
            f"{path}: no column {unknown[0]!r}{or_rather(unknown[0], COLUMNS, 'columns')}",
            hint=_HINT,
        )
    missing = [name for name in ("src", "dst") if name not in frame]
    if missing or not {"bytes", "stop_ns"} & set(frame.columns):
        raise LocalError(f"{path}: it has no column {(missing or ['bytes'])[0]}", hint=_HINT)
    flows = table.empty(len(frame))
    for name in frame.columns:
        of_hosts = name in ("src", "dst")
        values = _numbered(path, frame[name], hosts) if of_hosts else frame[name]
        flows[name] = _whole(path, name, values, np.iinfo(flows.dtype[name]).max)
    _complete(flows, set(frame.columns))
    return table.check(_in_order(path, flows), len(hosts))


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


def _in_order(path: Path, flows: Flows) -> Flows:
    """The rows by start, those that wait behind those that they wait for."""
    import numpy as np

    after = flows["after"].astype(np.int64) - 1
    if after.max(initial=-1) >= len(flows):
        row = int(np.argmax(after))
        raise LocalError(f"{path}: row {row + 1}: after is {after[row] + 1}, of {len(flows)} rows")
    depth = np.zeros(len(flows), np.int64)
    waits = np.flatnonzero(after >= 0)
    while waits.size:
        deeper = depth[after[waits]] + 1
        flows["start_ns"][waits] = np.maximum(
            flows["start_ns"][waits], flows["start_ns"][after[waits]]
        )
        grown = deeper > depth[waits]
        depth[waits] = np.maximum(depth[waits], deeper)
        if depth.max() > len(flows):
            row = int(np.argmax(depth))
            raise LocalError(f"{path}: row {row + 1} waits for rows that wait for it")
        if not grown.any():
            break
    order = np.lexsort((depth, flows["start_ns"]))
    place = np.empty(len(flows), np.int64)
    place[order] = np.arange(len(flows))
    flows["after"][waits] = place[after[waits]] + 1
    return flows[order]


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            frame = foreign.read_table(path)
        else:
            frame = pd.read_csv(io.StringIO(foreign.read_text(path)), comment="#")
    except (OSError, ValueError) as error:
        raise LocalError(f"traffic table {path}: {error}") from None
    if not 0 < len(frame) <= ROWS_MAX:
        raise LocalError(f"traffic table {path}: {len(frame)} rows; it has 1 to {ROWS_MAX}")
    return frame


def _numbered(path: Path, values: Any, hosts: Sequence[str]) -> Any:
    """Numbers in place of hosts' names."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        return values
    numbers = {name: number for number, name in enumerate(hosts)}
    numbers |= {str(number): number for number in range(len(hosts))}
    names = values.astype(str).str.strip()
    strange = [name for name in names.unique() if name not in numbers]
    if strange:
        near = or_rather(strange[0], hosts[:64], "hosts")
        raise LocalError(f"{path}: there is no host {strange[0]}{near}")
    return names.map(numbers)


def _whole(path: Path, name: str, values: Any, most: int) -> Any:
    """Whole numbers of a column; an empty place is 0."""
    import numpy as np
    import pandas as pd

    found = pd.to_numeric(values, errors="coerce")
    strange = found.isna() & values.notna()
    found = found.fillna(0)
    # Below 2^53 a float holds each whole number.
    wrong = strange | (found < 0) | (found > min(most, 2**53)) | (found % 1 != 0)
    if wrong.any():
        row = int(np.argmax(wrong.to_numpy()))
        raise LocalError(
            f"{path}: row {row + 1}: {name} is {values.iloc[row]}, not a whole number in range"
        )
    return found.to_numpy()


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
