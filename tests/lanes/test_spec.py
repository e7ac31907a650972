# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The topology and path sections: what they accept, and what they say when they do not."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest
from ruamel.yaml import YAML

from datapath.errors import CapabilityError, LocalError
from datapath.lanes import open_network
from datapath.lanes.spec import Bernoulli, GilbertElliott, Path, Topology


@pytest.mark.parametrize("written", [0.01, "1%", "0.01", {"rate": "1%"}])
def test_a_bare_share_is_bernoulli_loss(written: Any) -> None:
    assert Path(loss=written).loss == Bernoulli(rate=0.01)


def test_gilbert_elliott_defaults_to_losing_all_in_the_bad_state() -> None:
    path = Path.model_validate({"loss": {"model": "gilbert-elliott", "p": "1%", "r": "25%"}})
    assert path.loss == GilbertElliott(p=0.01, r=0.25, good=0.0, bad=1.0)


def test_directions_override_the_common_values() -> None:
    path = Path.model_validate(
        {"loss": "1%", "ecn_mark": "5%", "backward": {"loss": 0}, "forward": {"corrupt": "2%"}}
    )
    forward, backward = path.impairment("forward"), path.impairment("backward")
    assert (forward.loss_good, forward.mark, forward.corrupt) == (0.01, 0.05, 0.02)
    assert (backward.loss_good, backward.mark, backward.corrupt) == (0.0, 0.05, 0.0)


def test_faults_belong_to_their_direction() -> None:
    path = Path.model_validate(
        {
            "faults": [
                {"action": "drop", "nth": 3},
                {"action": "mark", "qpn": 0x11, "psn": 42, "direction": "backward"},
            ]
        }
    )
    assert [f.nth for f in path.impairment("forward").faults] == [3]
    assert [(f.qpn, f.psn) for f in path.impairment("backward").faults] == [(0x11, 42)]


def test_a_path_that_does_nothing_is_not_impaired() -> None:
    assert not Path().impaired
    assert not Path.model_validate(
        {"loss": {"model": "gilbert-elliott", "p": 0, "r": "10%", "bad": "100%"}}
    ).impaired
    assert Path(loss="1%").impaired
    assert Path.model_validate({"forward": {"ecn_mark": "1%"}}).impaired


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"loss": "101%"}, "not between 0% and 100%"),
        ({"loss": {"model": "gilbert", "p": 0.1, "r": 0.1}}, "gilbert-elliott"),
        ({"loss": {"model": "bernoulli", "p": 0.1}}, "rate"),
        ({"delay": "10us"}, "delay"),
        ({"faults": [{"action": "drop"}]}, "needs a target"),
        ({"faults": [{"action": "explode", "nth": 1}]}, "'drop', 'mark' or 'corrupt'"),
        ({"faults": [{"action": "drop", "nth": 0}]}, "greater than or equal to 1"),
        ({"faults": [{"action": "drop", "psn": 2**24}]}, "16777215"),
        ({"faults": [{"action": "drop", "nth": 1}] * 17}, "more than 16 forward faults"),
        ({"backend": "none", "loss": "1%"}, "backend none impairs nothing"),
    ],
)
def test_wrong_paths_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        Path.model_validate(section)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"hosts": 3}, "joins exactly 2 hosts"),
        ({"preset": "dumbbell", "hosts": 5}, "even number"),
        ({"mtu": 512}, "1280"),
        ({"mtu": "1MiB"}, "65521"),
        ({"mtu": "9000 bananas"}, "unknown unit"),
        ({"preset": "star"}, "'p2p' or 'dumbbell'"),
        ({"queues": 2}, "queues"),
    ],
)
def test_wrong_topologies_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        Topology.model_validate(section)


def test_the_example_in_the_documentation_is_valid() -> None:
    text = (FilePath(__file__).parents[2] / "docs/impairments.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(path:.*?)```", text, re.DOTALL)
    assert example is not None
    path = Path.model_validate(YAML(typ="safe").load(example.group(1))["path"])
    assert len(path.faults) == 3
    assert path.impairment("backward").loss_good == 0


@pytest.mark.parametrize("lane", ["sim"])
def test_lanes_to_come_say_so(lane: str) -> None:
    with pytest.raises(CapabilityError, match="not in this version") as caught:
        open_network(Topology.model_validate({"lane": lane}), Path())
    assert "netns" in caught.value.hint


@pytest.mark.parametrize("backend", ["fabric", "netem"])
def test_backends_to_come_say_so(backend: str) -> None:
    with pytest.raises(CapabilityError, match="not in this version"):
        open_network(Topology(), Path.model_validate({"backend": backend}))


def test_a_dumbbell_has_a_middle() -> None:
    with pytest.raises(LocalError, match="backend none"):
        open_network(Topology(preset="dumbbell", hosts=4), Path(backend="none"))
