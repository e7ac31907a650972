# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A file in which one value has another type is told as wrong, wherever the value stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from datapath.experiment.document import InvalidFile
from datapath.experiment.load import load_text

pytestmark = pytest.mark.compute

WHOLE = """
version: 1
name: whole
topology: {lane: sim, preset: dumbbell, hosts: 4}
path:
  rate: 1gbit
  loss: {model: gilbert-elliott, p: 1%, r: 30%}
  forward: {ecn: {model: step, threshold: 64KiB}}
cc: {algo: vpc, params: {}}
workload: {kind: stream, size: 4KiB, duration: 1ms}
collect: {series: [rtt], interval: 1ms}
sweep:
  matrix:
    path.rate: [1gbit, 2gbit]
    stack: [{label: one, set: {cc.algo: vpc}}, {label: two, set: {cc.algo: cubic}}]
  adjust: [{where: {stack: two}, set: {workload.depth: 2}}]
  include: [{stack: one, path.rate: 3gbit}]
  exclude: [{stack: two, path.rate: 2gbit}]
  only: {stack: [one, two]}
  baseline: {stack: one}
report:
  plots: [{kind: bar, metric: [goodput], x: stack, where: {path.rate: 1gbit}}]
  expect: [{title: more, metric: goodput, where: {stack: two}, ratio_to: {stack: one}, min: 1}]
"""

WRONG = [None, "x", -1, True, [], {}, [None], {"a": None}]


def places(part: Any) -> Iterator[tuple[Any, Any]]:
    """Each mapping or list of a file with each key or index in it."""
    if isinstance(part, dict | list):
        for key in list(part) if isinstance(part, dict) else range(len(part)):
            yield part, key
            yield from places(part[key])


def test_the_file_itself_is_right() -> None:
    assert load_text(WHOLE, Path("whole.yaml")).points


@pytest.mark.parametrize("wrong", WRONG, ids=json.dumps)
def test_a_value_of_another_type(wrong: object) -> None:
    """It is refused, if it is not right by chance: no other exception."""
    whole = YAML(typ="safe").load(WHOLE)
    refused = 0
    for part, key in list(places(whole)):
        right, part[key] = part[key], wrong
        try:
            load_text(json.dumps(whole), Path("whole.yaml"))  # JSON is YAML
        except InvalidFile:
            refused += 1
        part[key] = right
    assert refused > 30
