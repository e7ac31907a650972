# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which name was meant."""

from __future__ import annotations

import pytest

from datapath.spelling import close_match, did_you_mean, or_rather

pytestmark = pytest.mark.compute

KNOWN = ["cwnd_bytes", "rate_bps", "gilbert-elliott"]


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("cwnd_byte", "cwnd_bytes"),
        ("CWND-BYTES", "cwnd_bytes"),
        ("gilbert_eliott", "gilbert-elliott"),
        ("hops", ""),
        (7, ""),
    ],
)
def test_the_closest_name_is_found(wanted: object, meant: str) -> None:
    assert close_match(wanted, KNOWN) == meant


def test_a_hint_names_the_match_or_all_there_is() -> None:
    assert did_you_mean("rate_bp", KNOWN, "there are") == "did you mean rate_bps?"
    assert did_you_mean("hops", [1, 2], "there are") == "there are: 1, 2"
    assert did_you_mean("hops", KNOWN) == ""
    assert did_you_mean("hops", [], "there are") == ""
    assert or_rather("rate_bp", KNOWN, "known") == "; did you mean rate_bps?"
    assert or_rather("hops", [], "known") == ""
