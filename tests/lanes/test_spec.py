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
from datapath.fabric.links import Jitter, Loss, Marking
from datapath.lanes import open_network
from datapath.lanes.spec import Bernoulli, GilbertElliott, Path, Topology
from datapath.units import HAND_WRITTEN


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
        ({"latency": "10us"}, "latency"),
        ({"rate": "1gbit", "trace": [1, 2]}, "exclude each other"),
        ({"trace": [3, 2]}, "do not fall"),
        ({"trace": [0]}, "above 0"),
        ({"ecn": {"model": "red", "min": 2, "max": 1, "probability": 1}}, "min is larger"),
        ({"jitter": {"model": "pareto", "mean": "1us", "shape": 1}}, "greater than 1"),
        ({"backend": "bpf", "rate": "1gbit", "delay": "1us"}, "rate and delay: not for backend"),
        ({"rate": "1gbit", "faults": [{"action": "drop", "nth": 1}]}, "faults are for backend bpf"),
        ({"backend": "none", "forward": {"queue": "1KiB"}}, "backend none impairs nothing"),
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
        ({"preset": "ring"}, "'p2p', 'dumbbell'"),
        ({"preset": "star"}, "for lane sim"),
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


def test_backends_to_come_say_so() -> None:
    with pytest.raises(CapabilityError, match="not in this version"):
        open_network(Topology(), Path(backend="netem"))


@pytest.mark.parametrize(
    ("section", "backend"),
    [
        ({}, "bpf"),
        ({"loss": "1%", "ecn_mark": "1%", "corrupt": "1%"}, "bpf"),
        ({"delay": 0}, "fabric"),  # a sweep that begins at 0 keeps to one back end
        ({"forward": {"rate": "1gbit"}}, "fabric"),
        ({"backend": "fabric"}, "fabric"),
    ],
)
def test_auto_is_fabric_when_only_that_can_do_it(section: dict[str, Any], backend: str) -> None:
    assert Path.model_validate(section).carrier == backend


def test_short_forms_of_link_settings() -> None:
    path = Path.model_validate(
        {"rate": "1gbit", "delay": "100us", "jitter": "5us", "ecn": "64KiB", "reorder": "1%"}
    )
    link = path.link("forward")
    assert (link.rate_bps, link.delay_ns, link.limit_bytes) == (10**9, 100_000, 2**20)
    assert link.jitter == Jitter("normal", scale_ns=5000.0)
    assert link.marking == Marking("step", kmin_bytes=65536)
    assert (link.reorder, link.reorder_ns) == (0.01, 500_000)
    assert (link.loss, link.duplicate, link.trace_ms) == (None, 0.0, ())


def test_a_direction_overrides_link_settings_one_by_one() -> None:
    path = Path.model_validate(
        {
            "rate": "1gbit",
            "delay": "100us",
            "loss": "1%",
            "forward": {"delay": "1ms", "loss": 0},
            "backward": {
                "trace": [1, 2],
                "ecn": {"model": "red", "min": 1, "max": 2, "probability": "10%"},
            },
        }
    )
    forward, backward = path.link("forward"), path.link("backward")
    assert (forward.rate_bps, forward.delay_ns, forward.loss) == (10**9, 10**6, None)
    assert (backward.rate_bps, backward.trace_ms) == (0, (1, 2))
    assert backward.loss == Loss(good=0.01)
    assert backward.marking == Marking("red", 1, 2, 0.1)


def test_a_resolved_path_reads_back_as_itself() -> None:
    path = Path.model_validate({"rate": "1gbit", "jitter": "5us", "ecn": "64KiB"})
    assert Path.model_validate(path.model_dump(mode="json")) == path


def test_a_dumbbell_has_a_middle() -> None:
    with pytest.raises(LocalError, match="backend none"):
        open_network(Topology(preset="dumbbell", hosts=4), Path(backend="none"))


def test_traces_come_from_files_beside_the_experiment(tmp_path: FilePath) -> None:
    (tmp_path / "lte.up").write_text("1\n1\n5\n")
    (tmp_path / "wifi").write_text("0\n80000\n20000\n")
    section = {"trace": "lte.up", "jitter": {"model": "trace", "samples": "wifi"}}
    context = {**HAND_WRITTEN, "folder": str(tmp_path)}
    path = Path.model_validate(section, context=context)
    link = path.link("forward")
    assert link.trace_ms == (1, 1, 5)
    assert link.jitter == Jitter("trace", samples_ns=(0.0, 80_000.0, 20_000.0))
    # What a run keeps is whole without the files.
    assert Path.model_validate(path.model_dump(mode="json")) == path


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot read"), ("fast\n", "whole numbers"), ("", "at least 1")]
)
def test_files_that_are_no_traces_are_refused(
    content: str | None, words: str, tmp_path: FilePath
) -> None:
    if content is not None:
        (tmp_path / "t").write_text(content)
    with pytest.raises(pydantic.ValidationError, match=words):
        Path.model_validate({"trace": "t"}, context={"folder": str(tmp_path)})
