# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The keys of a device, behind its port: `dp0=afxdp:eth1;mode=standard;window=512`.

One row for each.  The build makes device_keys.h of it, which config.c reads; launch.py checks by
it what programs are given, spec.py takes ranges and texts from it, and `dpctl exec --help` and
docs/verbs.md list it.  This file stands alone: the build runs it with any Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_U32_MAX = 2**32 - 1


@dataclass(frozen=True)
class DeviceKey:
    """A key, and which values it may have.

    text: what it is, for people.  expected: what a value is, in words.  member: of
    struct dp_device_config.  words: (off, on) of a switch, whose member is a bool.  low, high: of
    a number, from and to; multiple: what it is a multiple of; power_of_two: whether it is one.
    limits: names in C that low and high agree with.  Neither words nor high: an absolute path.
    """

    name: str
    text: str
    expected: str
    member: str
    words: tuple[str, str] | None = None
    low: int = 0
    high: int = 0
    multiple: int = 1
    power_of_two: bool = False
    limits: tuple[str | None, str | None] = (None, None)

    def allows(self, value: str) -> bool:
        if self.words is not None:
            return value in self.words
        if not self.high:
            return value.startswith("/")
        if not (value.isascii() and value.isdecimal()):
            return False
        number = int(value)
        power = number & (number - 1) == 0 or not self.power_of_two
        return self.low <= number <= self.high and number % self.multiple == 0 and power

    @property
    def numbers(self) -> tuple[int, ...]:
        """All values that a power of two may have."""
        return tuple(2**bit for bit in range(32) if self.low <= 2**bit <= self.high)


_ROWS = (
    DeviceKey(
        "mode",
        "auto: offer the extended protocol (selective repeat) to the peer, use standard RoCEv2 "
        "if it does not answer. standard: never offer it.",
        "auto or standard",
        "standard",
        words=("auto", "standard"),
    ),
    DeviceKey(
        "cc",
        "Compiled congestion control; unset: a constant window.",
        "the absolute path of a compiled algorithm",
        "cc",
    ),
    DeviceKey("ecn", "Send packets as ECN-capable, ECT(0).", "0 or 1", "ecn", words=("0", "1")),
    DeviceKey(
        "min_rto_us",
        "Lowest retransmission time-out (RFC 6298); unset: the engine's.",
        "microseconds, 1 or more",
        "min_rto_us",
        low=1,
        high=_U32_MAX,
    ),
    DeviceKey(
        "cnp_us",
        "Send congestion notification packets (CNP) for requests that arrive with CE, at most one "
        "of a QP in this time (DCQCN: 50); unset: none.",
        "microseconds, 1 or more",
        "cnp_us",
        low=1,
        high=_U32_MAX,
    ),
    DeviceKey(
        "window",
        "Most packets in flight per QP; unset: the engine's.",
        "a power of two, 64 to 131072",
        "window",
        low=64,
        high=131072,
        power_of_two=True,
        limits=("DP_WINDOW_MIN", "DP_WINDOW_MAX"),
    ),
    DeviceKey(
        "path_mtu",
        "Largest RoCE path MTU, bytes; lowered to what the device carries.",
        "256, 512, 1024, 2048 or 4096",
        "path_mtu",
        low=256,
        high=4096,
        power_of_two=True,
    ),
    DeviceKey(
        "segment",
        "Payload of a full packet of the extended protocol, where the path carries it; unset: "
        "what suits the port.  What it has beyond a multiple of 8 is not used.",
        "a multiple of 4, 256 to 8960",
        "segment",
        low=256,
        high=8960,
        multiple=4,
        limits=(None, "DP_SEGMENT_MAX"),
    ),
    DeviceKey(
        "bundle",
        "Short WRITEs and SENDs that wait together share packets of the extended protocol.",
        "0 or 1",
        "alone",
        words=("1", "0"),
    ),
    DeviceKey(
        "telemetry",
        "Room in requests of the extended protocol for what switches know (HPCC).",
        "0 or 1",
        "telemetry",
        words=("0", "1"),
    ),
    DeviceKey(
        "paths",
        "UDP source ports over which the extended protocol spreads the packets of a QP; more "
        "than one needs port afxdp.",
        "1 to 64",
        "paths",
        low=1,
        high=64,
        limits=(None, "DP_PATHS_MAX"),
    ),
)

DEVICE_KEYS: Mapping[str, DeviceKey] = {key.name: key for key in _ROWS}


def _row(key: DeviceKey) -> str:
    """In the order of struct key (config.c)."""
    kind = "SWITCH" if key.words else "NUMBER" if key.high else "PATH"
    member = f"offsetof(struct dp_device_config, {key.member})"
    spelt = [f'"{word}"' for word in key.words or ()] or ["NULL", "NULL"]
    numbers = [f"{number}u" for number in (key.low, key.high, key.multiple)]
    power = str(key.power_of_two).lower()
    values = [f'"{key.name}"', f'"{key.expected}"', member, f"DP_KEY_{kind}"]
    return "\t{ " + ", ".join([*values, *spelt, *numbers, power]) + " },"


def header() -> str:
    """device_keys.h: rows of the array in config.c, and the names."""
    asserts = [
        f'_Static_assert({number} == {name}, "{key.name} in device_keys.py");'
        for key in _ROWS
        for number, name in zip((key.low, key.high), key.limits, strict=True)
        if name is not None
    ]
    rows = " \\\n".join(map(_row, _ROWS))
    names = ", ".join(DEVICE_KEYS)
    lines = ["/* Made by device_keys.py. */", f"#define DP_DEVICE_KEYS \\\n{rows}", ""]
    return "\n".join([*lines, f'#define DP_DEVICE_KEY_NAMES "{names}"', "", *asserts, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--header", type=Path, required=True)
    parser.parse_args().header.write_text(header(), encoding="utf-8")
