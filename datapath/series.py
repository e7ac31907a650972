# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collected series: the state of flows and links over time, as one tidy table.

A row is one moment of one QP (or TCP flow, link, or tunnel of a virtual card); a column is one
quantity, NaN where whoever sampled cannot know it.  Live hosts write their samples into files
whose layout is that of datapath/io/series.h; `read_file` reads them, also when the writer was
killed.  A simulation hands its arrays to `table`.  Both become series/*.parquet of the result
folder.

This module lies below all Python and is cheap to import: numpy and pandas are loaded on use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from datapath.errors import RunFailed

if TYPE_CHECKING:
    import pandas as pd

SUFFIX = ".series"
"""End of the name of a file that samples were written into."""


Name = Literal[
    "cwnd", "pacing_rate", "rtt", "inflight", "delivered", "queue", "marks", "retransmits"
]
NAMES: tuple[Name, ...] = get_args(Name)
"""The series by the names under which an experiment asks for them."""


class Column(NamedTuple):
    """A column of the table: its series, its unit, and its meaning."""

    series: Name
    unit: str
    meaning: str


COLUMNS: Mapping[str, Column] = {
    "cwnd_bytes": Column("cwnd", "B", "congestion window"),
    "pacing_rate_bps": Column("pacing_rate", "bit/s", "pacing rate; 0: not paced"),
    "rtt_ns": Column("rtt", "ns", "smoothed RTT (RFC 6298)"),
    "min_rtt_ns": Column("rtt", "ns", "lowest RTT that the sender knows of"),
    "host_ns": Column("rtt", "ns", "what the two hosts add to the RTT, smoothed as the RTT"),
    "inflight_bytes": Column("inflight", "B", "sent and neither delivered nor known to be lost"),
    "delivered_bytes": Column("delivered", "B", "payload delivered since the flow began"),
    "queue_bytes": Column("queue", "B", "waiting in the queue of a link or card"),
    "wait_ns": Column("queue", "ns", "how long frames wait in a card for their turn, smoothed"),
    "marked_packets": Column("marks", "packets", "packets that arrived with CE, so far"),
    "retransmitted_packets": Column("retransmits", "packets", "packets sent again, so far"),
    "sent_packets": Column("retransmits", "packets", "data packets sent, those again included"),
}
"""The quantities, in the order of the table's columns."""

KEYS = ("host", "qp", "link", "tunnel", "time_ns")
"""Columns in front: whose row it is, and when."""


@dataclass(frozen=True)
class Request:
    """Request of an experiment: series, ns between samples, most QPs of each process."""

    names: tuple[Name, ...]
    interval_ns: int
    qps: int


def table(
    *,
    time_ns: Any,
    host: Any = None,
    qp: Any = None,
    link: Any = None,
    tunnel: Any = None,
    **columns: Any,
) -> pd.DataFrame:
    """The tidy table of n samples; arrays of length n, or one value for all of them.

    time_ns: since the start of the run.  host: its name, of a tunnel that of its card; None for
    a link.  qp: QPN, of a TCP flow its local port; None for what is no flow.  link: its name;
    None for what is no link.  tunnel: "PEER" or "PEER/VNI/CLASS"; None for what is none of a
    virtual card.  columns: by the names of COLUMNS, those left out become NaN.  ValueError for
    another name.
    """
    import numpy as np
    import pandas as pd

    unknown = sorted(set(columns) - set(COLUMNS))
    if unknown:
        raise ValueError(f"no series column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    index = pd.RangeIndex(len(time_ns))
    values: dict[str, Any] = {
        "host": pd.Series(host, index=index, dtype="string"),
        "qp": pd.Series(qp, index=index, dtype="Int64"),
        "link": pd.Series(link, index=index, dtype="string"),
        "tunnel": pd.Series(tunnel, index=index, dtype="string"),
        "time_ns": pd.Series(time_ns, index=index, dtype="int64"),
    }
    for name in COLUMNS:
        values[name] = pd.Series(columns.get(name, np.nan), index=index, dtype="float64")
    return pd.DataFrame(values)


def checked(frame: pd.DataFrame) -> pd.DataFrame:
    """A table that was read from a file, with the columns and types of `table`.

    A quantity that the file does not have is NaN.  ValueError when it is no such table.
    """
    try:
        keys = {name: frame[name] for name in KEYS if name in frame or name != "tunnel"}
        return table(**keys, **{name: frame[name] for name in COLUMNS if name in frame})
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"it is no table of series: {error}") from None


def stack(
    time_ns: Any,
    columns: Mapping[str, Any],
    *,
    host: Sequence[str] | None = None,
    qp: Sequence[int] | None = None,
    link: Sequence[str] | None = None,
) -> pd.DataFrame:
    """The table of arrays of shape (samples, sources), as a simulation has them.

    host and qp, or link: one for each source.  Rows of which nothing is known (a flow that
    has not begun) are left out.
    """
    import numpy as np

    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    samples = len(time_ns)
    sources = len(link if link is not None else qp or ())
    known = np.zeros(samples * sources, dtype=bool)
    for values in arrays.values():
        known |= np.isfinite(values).ravel()

    def each(names: Sequence[Any] | None) -> Any:
        return None if names is None else np.tile(np.asarray(names, dtype=object), samples)[known]

    return table(
        time_ns=np.repeat(np.asarray(time_ns, dtype=np.int64), sources)[known],
        host=each(host),
        qp=each(qp),
        link=each(link),
        **{name: values.ravel()[known] for name, values in arrays.items()},
    )


def keep(frame: pd.DataFrame, names: Iterable[Name]) -> pd.DataFrame:
    """The table with NaN in all columns of series that are not among `names`.

    delivered_bytes stays, since it tells which rows are of flows that sent, and when they did.
    """
    wanted = {*names, COLUMNS["delivered_bytes"].series}
    dropped = [name for name, column in COLUMNS.items() if column.series not in wanted]
    return frame.assign(**dict.fromkeys(dropped, float("nan")))


def present(frame: pd.DataFrame) -> set[Name]:
    """Names of the series of which the table has any value."""
    return {column.series for name, column in COLUMNS.items() if frame[name].notna().any()}


def join(parts: Sequence[pd.DataFrame], *, from_zero: bool = False) -> pd.DataFrame:
    """Tables one below the other, by host, QP, link and time.

    from_zero: times are of a clock, and shall count from the first sample of them all.
    """
    import pandas as pd

    parts = [part for part in parts if len(part)]
    if not parts:
        return table(time_ns=[])
    frame = pd.concat(parts, ignore_index=True)
    if from_zero:
        frame["time_ns"] -= frame["time_ns"].min()
    return frame.sort_values(list(KEYS), kind="stable", ignore_index=True)


# --- files of live hosts ---------------------------------------------------------------------

_MAGIC = b"dpseries"
_HEADER = struct.Struct("<8s6I4Q64s")
_NAME_BYTES = 24
_VERSION = 1
KIND_FLOW, KIND_LINK, KIND_TUNNEL = 0, 1, 2
"""The kind of the rows of a file; enum dp_series_kind."""


@dataclass(frozen=True)
class SeriesFile:
    """A file of samples.

    frame: times are CLOCK_REALTIME, ns.  rows_left_out: samples for which the file, or
    its writer, had no room.  flows_left_out: QPs that were never sampled, being more than
    had been asked for.
    """

    frame: pd.DataFrame
    rows_left_out: int
    flows_left_out: int


def read_file(path: Path, host: str | None) -> SeriesFile:
    """Read the file of a live host; a last row that is cut off does not count.

    RunFailed when it is not such a file.  A writer that was killed in its first moment
    leaves an empty file, which has no rows.
    """
    import numpy as np

    content = path.read_bytes()
    if not content:
        return SeriesFile(table(time_ns=[]), 0, 0)
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise RunFailed(f"{path.name} is not a file of series")
    (_, version, header_bytes, row_bytes, kind, n_columns, flows_left_out,
     rows_left_out, _interval, mono_ns, real_ns, name) = _HEADER.unpack_from(content)  # fmt: skip
    whole = _HEADER.size + n_columns * _NAME_BYTES
    if version != _VERSION or header_bytes != whole or row_bytes != 16 + 8 * n_columns:
        raise RunFailed(f"{path.name} was written by another version (its format is {version})")
    names = [
        content[at : at + _NAME_BYTES].rstrip(b"\0").decode("ascii", "replace")
        for at in range(_HEADER.size, header_bytes, _NAME_BYTES)
    ]
    fields = [("time_ns", "<u8"), ("id", "<u8"), *((name, "<f8") for name in names)]
    count = max(0, len(content) - header_bytes) // row_bytes
    said = name.rstrip(b"\0").decode("utf-8", "replace")
    try:
        rows = np.frombuffer(content, np.dtype(fields), count, header_bytes)
        frame = table(
            host=None if kind == KIND_LINK else host,
            time_ns=rows["time_ns"].astype(np.int64) + (real_ns - mono_ns),
            qp=rows["id"].astype(np.int64) if kind == KIND_FLOW else None,
            link=said if kind == KIND_LINK else None,
            tunnel=said if kind == KIND_TUNNEL else None,
            **{name: rows[name] for name in names},
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise RunFailed(f"{path.name} is damaged: {error}") from None
    return SeriesFile(frame, rows_left_out, flows_left_out)


# --- metrics of series -----------------------------------------------------------------------

Flows: TypeAlias = "Sequence[tuple[str, int, pd.DataFrame]]"
"""(host, QPN, rows by time) of flows."""


class Sampled(NamedTuple):
    """The series of one run.

    sending: the flows that sent anything, delivered or not.  events_ns: when something changed,
    on the same clock.  interval_ns: that was asked for between samples, 0: not known.
    """

    frame: pd.DataFrame
    sending: Flows
    events_ns: Sequence[int] = ()
    interval_ns: int = 0


def sampling_interval_ns(times: Iterable[Any], asked_ns: int = 0) -> float:
    """Time between the samples of flows, that of the shortest; 0: no flow has two.

    times: of the samples of each flow, ns.  asked_ns: the least, 0: not known.  A flow that ends
    soon after a sample has a last one then, so its own gap says nothing.
    """
    import numpy as np

    gaps = [float(np.median(np.diff(at))) for at in times if len(at) > 1]
    return max(min(gaps), asked_ns) if gaps else 0.0


def senders(frame: pd.DataFrame) -> list[tuple[str, int, pd.DataFrame]]:
    """(host, QPN, rows by time) of every flow that sent anything, in the order of the table.

    Its packets do not tell: a QP that answers READs sends some too.
    """
    found = []
    rows = frame[frame["qp"].notna()]
    for _, group in rows.groupby(["host", "qp"], sort=False):
        if group["delivered_bytes"].max() > 0 or group["inflight_bytes"].max() > 0:
            found.append((str(group["host"].iloc[0]), int(group["qp"].iloc[0]), group))
    return found


def delivering(sending: Flows) -> list[tuple[str, int, pd.DataFrame]]:
    """Those of the flows of which anything was delivered."""
    return [flow for flow in sending if flow[2]["delivered_bytes"].max() > 0]


def flows(frame: pd.DataFrame) -> list[tuple[str, int, pd.DataFrame]]:
    """(host, QPN, rows by time) of every flow of which anything was delivered, likewise."""
    return delivering(senders(frame))


def tunnels(frame: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """(card, peer, rows by time) of every tunnel of virtual cards that carried anything."""
    rows = frame[frame["tunnel"].notna() & ~frame["tunnel"].str.contains("/", na=False)]
    return [
        (str(card), str(peer), group)
        for (card, peer), group in rows.groupby(["host", "tunnel"], sort=False)
        if group["delivered_bytes"].max() > 0
    ]


def classes(frame: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """(card, "PEER/VNI/CLASS", rows by time) of every class of a tenant that sent by a card."""
    rows = frame[frame["tunnel"].str.contains("/", na=False)]
    return [
        (str(card), str(name), group)
        for (card, name), group in rows.groupby(["host", "tunnel"], sort=False)
    ]
