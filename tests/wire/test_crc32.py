# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Both implementations of CRC-32 against zlib, and the choice between them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.native import ffi, lib
from tests.clib import in_c, testlib

pytestmark = pytest.mark.san


def choose(*trials_ns: int) -> str:
    """The choice by a clock for which the trials take so long: those of shifts come first."""
    durations = iter([*trials_ns, *[trials_ns[-1]] * 64])
    now, running = 0, False

    def clock() -> int:
        nonlocal now, running
        now += next(durations) if running else 0
        running = not running
        return now

    return str(ffi.string(lib.dp_crc32_choose(ffi.callback("uint64_t(void)", clock))).decode())


@pytest.fixture(scope="module", params=["shifts", "ISA-L"])
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    trials = [1] * 4 + [9] * 4
    assert choose(*(trials if request.param == "shifts" else reversed(trials))) == request.param
    yield request.param
    choose(*reversed(trials))


def test_the_shortest_trial_counts() -> None:
    assert choose(50, 50, 2, 50, 3, 3, 3, 3) == "shifts"
    assert choose(50, 50, 5, 50, 90, 90, 90, 3) == "ISA-L"


def crc_of(crc: int, data: bytes) -> int:
    return int(lib.dp_crc32(crc, in_c(data), len(data)))


@given(data=st.binary(max_size=600), crc=st.integers(0, 2**32 - 1), cut=st.integers(0, 600))
def test_is_zlibs(implementation: str, data: bytes, crc: int, cut: int) -> None:
    assert crc_of(crc, data) == zlib.crc32(data, crc)
    first, second = data[:cut], data[cut:]
    assert crc_of(crc_of(crc, first), second) == zlib.crc32(data, crc)


@pytest.mark.parametrize("length", [1, 64, 100, 256, 300, 1024, 4096, 9000])
def test_leaves_no_wide_registers_in_use(implementation: str, length: int) -> None:
    """Code with SSE is slow while the upper halves are in use, and so is each switch."""
    state = testlib.X_state_after_crc(in_c(bytes(length)), length)
    if state < 0:
        pytest.skip("the CPU does not tell which vector registers are in use (XGETBV 1)")
    assert state == 0
