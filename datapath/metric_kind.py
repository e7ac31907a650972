# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The facts of a metric: one row, wherever its numbers are made."""

from __future__ import annotations

from typing import Literal, NamedTuple


class MetricKind(NamedTuple):
    """A number that a run may have.

    unit: of its values in runs.parquet.  title: for people.  better: which way is better, "" where
    neither is.  plot: how a report draws it by default ("log": on a logarithmic axis), "": not at
    all.  share: whether no value lies outside 0 to 1.
    """

    name: str
    unit: str
    title: str
    better: Literal["higher", "lower", ""] = ""
    plot: Literal["", "bar", "log"] = ""
    share: bool = False
