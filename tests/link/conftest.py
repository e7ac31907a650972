# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Links that are taken apart when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.link.links import Link, MakeLink


@pytest.fixture
def make_link() -> Iterator[MakeLink]:
    """make_link(any field of struct dp_link_config)."""
    links: list[Link] = []

    def make(**config: Any) -> Link:
        links.append(Link(**config))
        return links[-1]

    yield make
    for link in links:
        link.close()
