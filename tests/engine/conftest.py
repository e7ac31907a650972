# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Worlds of two engines that are taken apart when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.ladder import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    """make_world(v6=..., extended=..., any field of struct dp_engine_config)."""
    worlds: list[World] = []

    def make(**options: Any) -> World:
        worlds.append(World(**options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Standard mode over IPv4."""
    return make_world()


@pytest.fixture
def ext(make_world: MakeWorld) -> World:
    """Extended mode over IPv4."""
    return make_world(extended=True)
