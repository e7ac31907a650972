# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The quantile of samples that all metrics use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Number = TypeVar("_Number", int, float)


_ROUNDING = 1e-12
"""0.07 * 100 is a little above 7 for a computer, and means 7."""


def rank(share: float, count: int) -> int:
    """Nearest rank, from 0: of `count` samples in order, the first that a share is not above.

    share: from 0 to 1.  ceil(share * count), counted from 1: the median of 100 samples is the 50th.
    """
    return max(math.ceil(share * count * (1 - _ROUNDING)), 1) - 1


def nearest_rank(ordered: Sequence[_Number], share: float) -> _Number:
    """The sample at the nearest rank; at least one, in order."""
    return ordered[rank(share, len(ordered))]


def quantile(values: NDArray[Any], share: float) -> float:
    """The same of an array in any order; at least one value, all of them numbers."""
    import numpy as np

    place = rank(share, values.size)
    return float(np.partition(values, place)[place])
