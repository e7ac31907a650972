# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Retakes that do not help come to an end."""

from __future__ import annotations

from datapath.experiment.retakes import FUTILE, Retakes


def test_retakes_that_help_go_on() -> None:
    retakes = Retakes(5)
    for made in (0, 1, 5, 2, 5):
        assert not retakes.note(made, limited=False)
        assert retakes.most == 5


def test_retakes_that_never_help_become_one() -> None:
    retakes = Retakes(5)
    for _ in range(FUTILE - 1):
        assert not retakes.note(5, limited=True)
        assert retakes.most == 5
    assert retakes.note(5, limited=True)  # told once
    assert retakes.most == 1
    assert not retakes.note(1, limited=True)
    assert retakes.most == 1


def test_a_run_that_had_its_cpus_gives_all_back() -> None:
    retakes = Retakes(5)
    for _ in range(FUTILE):
        retakes.note(5, limited=True)
    assert not retakes.note(1, limited=False)
    assert retakes.most == 5


def test_without_retakes_there_is_nothing_to_end() -> None:
    retakes = Retakes(0)
    for _ in range(2 * FUTILE):
        assert not retakes.note(0, limited=True)
        assert retakes.most == 0
