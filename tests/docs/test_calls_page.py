# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/calls.md names each call that the installed libibverbs and librdmacm have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.native.paths import ROOT

INCLUDE = Path("/usr/include")
DECLARED = re.compile(r"^(?:(?:static inline )?(?:const )?[\w ]+[ *]+)?(\w+)\(", re.MULTILINE)
FROM_PROVIDERS = re.compile(r"ibv_(cmd|copy)_")


def exported() -> Iterator[str]:
    """Of libibverbs, as the front knows it."""
    for line in (ROOT / "datapath" / "verbs" / "symbols.txt").read_text().splitlines():
        name = line.split("#")[0].split()[:1]
        if name and name[0].startswith("ibv_") and not FROM_PROVIDERS.match(name[0]):
            yield name[0]


def declared(header: str) -> Iterator[str]:
    for name in DECLARED.findall((INCLUDE / header).read_text()):
        if not name.startswith(("_", "verbs_get")):
            yield name


def missing(names: Iterator[str]) -> list[str]:
    said = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "calls.md").read_text()))
    return sorted(set(names) - said)


def test_all_that_libibverbs_exports() -> None:
    assert missing(exported()) == []


@pytest.mark.parametrize(
    "header", ["infiniband/verbs.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h"]
)
def test_all_that_headers_declare(header: str) -> None:
    assert missing(declared(header)) == []
