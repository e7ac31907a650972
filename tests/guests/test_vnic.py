# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Soft-RoCE and soft-iWARP as guests of virtual cards, on a path that loses packets."""

from __future__ import annotations

from pathlib import Path as FilePath

import pytest

from datapath.lanes.cards import guest_device
from datapath.lanes.spec import Path
from datapath.lanes.vm import VmNetwork
from tests.guests.conftest import Troubled
from tests.guests.test_traffic import OPERATIONS, run
from tests.workloads.test_perftest import values

LOSS = Path.model_validate({"loss": "1%"})
DEVICE = "several"


@pytest.fixture
def on_cards(troubled: Troubled) -> VmNetwork:
    """Guests of their own: the taps of the others are on a bridge."""
    return troubled.network


@pytest.mark.parametrize("device", ["rxe", "siw"])
def test_a_kernel_device_on_a_card_sees_no_loss(
    on_cards: VmNetwork, tmp_path: FilePath, device: str
) -> None:
    before = recovered(on_cards)
    section = {"duration": "1s", "size": "16KiB", "depth": 4, "operation": OPERATIONS[device]}
    outcome = run(on_cards, tmp_path, device, "stream", section | {"verify": True}, LOSS)
    assert values(outcome)["goodput"] > 0
    assert sum(on_cards.path_counters().dropped.values()) > 0, "the path lost none"
    for was, now in zip(before, recovered(on_cards), strict=True):
        assert now > was + 50  # data one way, acknowledgements the other
    assert on_cards._cards is not None
    for index, card in enumerate(on_cards._cards.counters()):
        guest = card["guests"][guest_device(index)]
        assert guest["overrun"] == guest["no_tunnel"] == 0


def recovered(network: VmNetwork) -> list[int]:
    """Frames that each card has put into its tunnel."""
    assert network._cards is not None
    cards = enumerate(network._cards.counters())
    return [card["guests"][guest_device(index)]["recovered"] for index, card in cards]
