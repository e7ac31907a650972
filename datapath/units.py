# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Quantities as people write them (`64KiB`, `1gbit`, `50us`, `0.1%`) and as programs count them.

Four kinds, each with a parser, an exact formatter and a pydantic type:

    Bytes       int, bytes                 64KiB  1MiB  9kB  1500B   or a plain number of bytes
    BitRate     int, bit/s                 1gbit  2.5Gbit/s  100mbit
    DurationNs  int, nanoseconds           50us  1.5ms  2s  3min
    Fraction    float, share of one (0-1)  0.1%  0.001  1/4096

Probability is a Fraction that a link compares with draws of 32 bits: 0, or 2^-32 and more.
The pydantic types take a string with a unit, or a number that is already in the base unit.
A file written by hand is held to more: with the validation context `HAND_WRITTEN`, a bare
number is refused where its unit would be a guess (`5` for a duration or a rate).
Serialised to JSON, a quantity becomes the shortest string that parses back to the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

HAND_WRITTEN: Mapping[str, bool] = {"units_required": True}
"""Validation context for files that people write: bare rates and durations are errors."""

_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_]*)?(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S*)\s*$")

_DIGITS_MAX = 30
"""Before the point.  Python refuses to write an int of thousands of digits into a message."""

# Decimal prefixes are the tc(8) and iperf3 habit for rates; binary ones must say so (KiB), as
# "K" alone means 1000 to some programs and 1024 to others.
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
# "Mb" is refused: it is megabits to many.  Binary units cannot be mistaken in any case.
_BYTE_SPELLINGS = (
    _BYTES
    | {"KB": 10**3}
    | {name.lower(): factor for name, factor in _BYTES.items() if "i" in name}
)
_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_RATE_SPELLINGS = _RATES | {f"{name}/s": factor for name, factor in _RATES.items()}
_DURATIONS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_SPELLINGS = _DURATIONS | {"µs": 10**3, "μs": 10**3, "sec": 10**9}


def _split(text: str, kind: str, example: str) -> tuple[Decimal, str]:
    """`"64 KiB"` -> (64, "KiB"); ValueError when there is no number in front."""
    match = _NUMBER.match(text)
    if not match or not match.group(1):
        raise ValueError(f"{text!r} is not {kind}; write for example {example}")
    try:
        number = Decimal(match.group(1).replace("_", ""))
    except InvalidOperation:
        raise ValueError(f"{text!r} is not {kind}; write for example {example}") from None
    if number.adjusted() >= _DIGITS_MAX:
        raise ValueError(f"{text[:_DIGITS_MAX]!r}... is too large for {kind}")
    return number, match.group(2)


def _scaled(text: str, kind: str, example: str, units: Mapping[str, int]) -> int:
    number, unit = _split(text, kind, example)
    factor = units.get(unit, units.get(unit.lower()))
    if factor is None:
        raise ValueError(_unknown_unit(text, unit, kind, example, units))
    value = number * factor
    if value != value.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of the smallest unit of {kind}")
    if value < 0:
        raise ValueError(f"{text!r} is negative")
    return int(value)


def _unknown_unit(text: str, unit: str, kind: str, example: str, units: Mapping[str, int]) -> str:
    if not unit:
        return f"{text.strip()!r} has no unit; {kind} is written like {example}"
    ambiguous = _AMBIGUOUS.get((kind, unit.lower()))
    if ambiguous:
        return f"{text!r}: {unit!r} is ambiguous; {ambiguous}"
    known = ", ".join(_PROPER[kind])
    return f"{text!r}: unknown unit {unit!r} for {kind}; units are {known} (e.g. {example})"


_KIND_BYTES = "a size in bytes"
_KIND_RATE = "a bit rate"
_KIND_DURATION = "a duration"
_KIND_FRACTION = "a share"
_PROBABILITY_MIN = 2.0**-32
_RATIO = re.compile(rf"(\d{{1,{_DIGITS_MAX}}})\s*/\s*(\d{{1,{_DIGITS_MAX}}})")

_PROPER = {_KIND_BYTES: _BYTES, _KIND_RATE: _RATES, _KIND_DURATION: _DURATIONS}
_AMBIGUOUS = {
    **{
        (_KIND_BYTES, letter.lower()): f"write {letter}iB (binary) or {dec}B (decimal)"
        for letter, dec in (("K", "k"), ("M", "M"), ("G", "G"), ("T", "T"))
    },
    **{
        (_KIND_RATE, f"{p}bps"): f"write {p}bit for {p}bit/s (to tc, bps is bytes per second)"
        for p in ("", "k", "m", "g", "t")
    },
}


def parse_bytes(text: str) -> int:
    """`"64KiB"` -> 65536.  A bare number is bytes.  ValueError says what is wrong."""
    number, unit = _split(text, _KIND_BYTES, "64KiB")
    return _scaled(text if unit else f"{number}B", _KIND_BYTES, "64KiB", _BYTE_SPELLINGS)


def parse_bit_rate(text: str) -> int:
    """`"1gbit"` -> 1_000_000_000 (bit/s)."""
    return _scaled(text, _KIND_RATE, "1gbit", _RATE_SPELLINGS)


def parse_duration_ns(text: str) -> int:
    """`"50us"` -> 50_000 (ns)."""
    return _scaled(text, _KIND_DURATION, "50us", _DURATION_SPELLINGS)


def parse_fraction(text: str) -> float:
    """`"0.1%"` -> 0.001; `"0.001"` and `"1/1000"` too.  Outside 0-100 % is a ValueError."""
    if match := _RATIO.fullmatch(text.strip()):
        part, whole = int(match[1]), int(match[2])
        if whole == 0:
            raise ValueError(f"{text!r}: no share of nothing; write 1/4096")
        return _share(part / whole, text)
    number, unit = _split(text, _KIND_FRACTION, "0.1%")
    if unit not in ("", "%"):
        raise ValueError(f"{text!r}: unknown unit {unit!r} for {_KIND_FRACTION}; write 0.1%")
    return _share(float(number / 100 if unit else number), text)


def _share(value: float, written: object) -> float:
    if not 0 <= value <= 1:
        bare = 1 < value <= 100 and "%" not in str(written)
        meant = f"; for {written} percent write {written}%" if bare else ""
        raise ValueError(f"{written} is not between 0% and 100%{meant}")
    return value


def _shortest(value: int, units: Mapping[str, int], base: str) -> str:
    """The largest unit that divides `value` exactly, so that nothing is rounded."""
    if value == 0:
        return f"0{base}"
    exact = [(factor, name) for name, factor in units.items() if value % factor == 0]
    factor, name = min(exact, key=lambda pair: (len(str(value // pair[0])), pair[0]))
    return f"{value // factor}{name}"


def format_bytes(value: int) -> str:
    """65536 -> `"64KiB"`; exact, so 1500 -> `"1500B"`."""
    binary = {name: factor for name, factor in _BYTES.items() if name == "B" or "i" in name}
    return _shortest(value, binary, "B")


def format_bit_rate(value: int) -> str:
    """1_000_000_000 -> `"1gbit"`; exact."""
    return _shortest(value, _RATES, "bit")


def format_duration_ns(value: int) -> str:
    """50_000 -> `"50us"`; exact."""
    below_minute = {name: factor for name, factor in _DURATIONS.items() if name not in ("min", "h")}
    return _shortest(value, below_minute, "ns")


def format_fraction(value: float) -> str:
    """0.001 -> `"0.1%"`; the digits of the float's own shortest form, moved by two places."""
    percent = Decimal(repr(float(value))) * 100
    return f"{percent.normalize():f}%"


def alike(value: float, written: object) -> str:
    """The value in units of the kind that somebody has written: 10**9 and "5s" give "1s"."""
    match = _NUMBER.match(written) if isinstance(written, str) else None
    unit = match[2] if match else ""
    if unit == "%":
        return format_fraction(value)
    for units, format_ in (
        (_DURATION_SPELLINGS, format_duration_ns),
        (_BYTE_SPELLINGS, format_bytes),
        (_RATE_SPELLINGS, format_bit_rate),
    ):
        if unit in units:
            return format_(int(value))
    return str(value)


def _quantity(
    parse: Callable[[str], int], kind: str, example: str, *, bare_number: bool
) -> Callable[[Any, ValidationInfo], int]:
    """A pydantic before-validator for a whole quantity in its base unit."""

    def validate(value: Any, info: ValidationInfo) -> int:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{value!r} is not {kind}; write for example {example}")
        strict = bool(info.context and info.context.get("units_required"))
        if strict and not bare_number and value != 0:
            raise ValueError(f"{value} has no unit; {kind} is written like {example}")
        if value < 0 or value != int(value):
            raise ValueError(f"{value} is not {kind}; write for example {example}")
        return int(value)

    return validate


def _validate_fraction(value: Any) -> float:
    if isinstance(value, str):
        return parse_fraction(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not {_KIND_FRACTION}; write for example 0.1%")
    return _share(float(value), value)


def _validate_probability(value: float) -> float:
    if 0 < value < _PROBABILITY_MIN:
        raise ValueError(
            f"{value:g} is below {_PROBABILITY_MIN:.3g} (1/2^32), the smallest probability of "
            "links; write 0, or more"
        )
    return value


def _json_schema(description: str, pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": pattern}, {"type": "number", "minimum": 0}],
            "description": description,
            "examples": [example],
        }
    )


_DIGITS = r"^\s*[0-9][0-9_]*(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*"

Bytes = Annotated[
    int,
    BeforeValidator(_quantity(parse_bytes, _KIND_BYTES, "64KiB", bare_number=True)),
    PlainSerializer(format_bytes, return_type=str, when_used="json"),
    _json_schema("Size: 64KiB, 1MiB, 9kB, or a number of bytes.", _DIGITS + "[A-Za-z]*$", "64KiB"),
]
BitRate = Annotated[
    int,
    BeforeValidator(_quantity(parse_bit_rate, _KIND_RATE, "1gbit", bare_number=False)),
    PlainSerializer(format_bit_rate, return_type=str, when_used="json"),
    _json_schema("Rate: 1gbit, 2.5gbit, 100mbit.", _DIGITS + "[A-Za-z/]*$", "1gbit"),
]
DurationNs = Annotated[
    int,
    BeforeValidator(_quantity(parse_duration_ns, _KIND_DURATION, "50us", bare_number=False)),
    PlainSerializer(format_duration_ns, return_type=str, when_used="json"),
    _json_schema("Duration: 50us, 1.5ms, 2s, 3min.", _DIGITS + "[A-Za-zµμ]*$", "50us"),
]
Fraction = Annotated[
    float,
    BeforeValidator(_validate_fraction),
    PlainSerializer(format_fraction, return_type=str, when_used="json"),
    _json_schema("Share: 0.1% or 0.001.", _DIGITS + "%?$", "0.1%"),
]
Probability = Annotated[Fraction, AfterValidator(_validate_probability)]
