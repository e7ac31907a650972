# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Quantities: what is read, what is refused with which words, and that nothing is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from datapath import units


class Model(BaseModel):
    size: units.Bytes = 0
    rate: units.BitRate = 0
    time: units.DurationNs = 0
    share: units.Fraction = 0.0


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bytes, "64KiB", 65536),
        (units.parse_bytes, "1.5KiB", 1536),
        (units.parse_bytes, "9kB", 9000),
        (units.parse_bytes, "1500", 1500),
        (units.parse_bytes, "1 MiB", 2**20),
        (units.parse_bit_rate, "1gbit", 10**9),
        (units.parse_bit_rate, "2.5Gbit/s", 2_500_000_000),
        (units.parse_duration_ns, "50us", 50_000),
        (units.parse_duration_ns, "50µs", 50_000),
        (units.parse_duration_ns, "1.5ms", 1_500_000),
        (units.parse_duration_ns, "2min", 120 * 10**9),
        (units.parse_fraction, "0.1%", 0.001),
        (units.parse_fraction, "0.25", 0.25),
        (units.parse_fraction, "1/4096", 1 / 4096),
    ],
)
def test_reads(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("size", "64k", "'k' is ambiguous; write KiB (binary) or kB (decimal)"),
        ("size", "1Mb", "unknown unit 'Mb' for a size in bytes; units are B, kB, MB"),
        ("size", "0.3B", "not a whole number"),
        ("size", "-1B", "negative"),
        ("size", "9" * 5000 + "KiB", "is too large for a size in bytes"),
        ("rate", "1e5000gbit", "is too large for a bit rate"),
        ("time", "9" * 31 + "us", "is too large for a duration"),
        ("size", True, "True is not a size in bytes"),
        ("size", [], "[] is not a size in bytes"),
        ("rate", "1Gbps", "'Gbps' is ambiguous; write gbit"),
        ("rate", 5, "5 has no unit; a bit rate is written like 1gbit"),
        ("time", 5, "5 has no unit; a duration is written like 50us"),
        ("time", "5", "has no unit"),
        ("time", "5 fortnights", "unknown unit 'fortnights'"),
        ("time", "soon", "'soon' is not a duration"),
        ("share", 5, "for 5 percent write 5%"),
        ("share", "150%", "150% is not between 0% and 100%"),
        ("share", "1%%", "unknown unit '%%'"),
    ],
)
def test_refuses_in_words(key: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({key: value}, context=units.HAND_WRITTEN)
    assert words in caught.value.errors()[0]["msg"]


def test_programs_may_leave_units_out() -> None:
    assert Model(rate=5, time=7).time == 7


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1))
def test_json_reads_back_to_the_same_value(size: int, rate: int, time: int, share: float) -> None:
    model = Model(size=size, rate=rate, time=time, share=share)
    assert Model.model_validate_json(model.model_dump_json()).model_dump(exclude={"share"}) == (
        model.model_dump(exclude={"share"})
    )
    assert units.parse_fraction(units.format_fraction(share)) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_bytes(65536), "64KiB"),
        (units.format_bytes(1500), "1500B"),
        (units.format_bit_rate(10**9), "1gbit"),
        (units.format_duration_ns(50_000), "50us"),
        (units.format_fraction(0.001), "0.1%"),
    ],
)
def test_shows_as_people_write(shown: str, text: str) -> None:
    assert shown == text
