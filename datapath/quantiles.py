# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The quantile of samples that all metrics use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def nearest_rank(ordered: Sequence[_Number], share: float) -> _Number:
    """The sample below which a share (0 to 1) of the samples lies; at least one, in order."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
