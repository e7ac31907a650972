# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Impairments of a link whose setting is one number: `path: {slot: 1ms, blackhole: 10%}`.

One row for each; its rule is the file impair/NAME.c.  The build compiles the files that the rows
name, and makes impairments.h of the rows, from which link model and emulator know them;
lanes/link_spec.py makes the keys of `path` of them.  They act in the order of the rows.  This file
stands alone: the build runs it with any Python.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Impairment:
    """An impairment, and which values its setting may have.

    name: the key of `path`, and the C file.  unit: of the setting.  low, high: from and to.  text:
    what it does, for people.
    """

    name: str
    unit: Literal["ns", "bytes", "share"]
    low: int
    high: int
    text: str

    @property
    def stream(self) -> int:
        """The number of its random stream, which no other row changes."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big")


_ROWS = (
    Impairment(
        "max_packet",
        "bytes",
        256,
        65535,
        "Longer IP packets are lost, and nobody is told: as on a path whose MTU is smaller than "
        "its ends believe.",
    ),
    Impairment(
        "blackhole",
        "share",
        0,
        1,
        "Share of flows (addresses and UDP or TCP ports) that lose every packet: as where a "
        "switch has damaged entries in a table, or one of several equal paths is dead.",
    ),
    Impairment(
        "slot",
        "ns",
        1_000,
        10**9,
        "Packets arrive at multiples of this time only, in bursts, as where a medium is shared in "
        "slots (Wi-Fi, cellular).",
    ),
)

IMPAIRMENTS: Mapping[str, Impairment] = {row.name: row for row in _ROWS}


def header() -> str:
    """impairments.h: X(name, low, high, stream) for each row."""
    rows = [f"\tX({r.name}, {r.low}, {r.high}, {r.stream:#x}ull)" for r in _ROWS]
    table = " \\\n".join(["#define DP_IMPAIRMENTS(X)", *rows])
    return f"/* Made by impairments.py. */\n{table}\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--header", type=Path, help="write impairments.h there")
    parser.add_argument("--files", action="store_true", help="print the names of the C files")
    wanted = parser.parse_args()
    if wanted.header:
        wanted.header.write_text(header(), encoding="utf-8")
    if wanted.files:
        print("\n".join(f"impair/{name}.c" for name in IMPAIRMENTS))


if __name__ == "__main__":
    main()
