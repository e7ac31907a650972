# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""JSON that every reader takes.

RFC 8259 has no NaN and no infinity (section 6), which Python's json writes all the same.  They
become null here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def text(data: Any, *, indent: int | None = None) -> str:
    """The data as JSON, in one line or indented; what JSON has no type for is its str()."""
    return json.dumps(_finite(data), indent=indent, default=str, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
