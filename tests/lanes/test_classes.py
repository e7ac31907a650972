# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Classes of links in the file: what is refused, and what the simulator makes of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pydantic
import pytest

from datapath.cc.spec import Cc
from datapath.errors import LocalError
from datapath.experiment.counters import path_metrics
from datapath.fabric import flows as traffic
from datapath.fabric.links import QueueClass, classes_by_dscp
from datapath.lanes.shape import shape
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import RunContext
from tests.workloads.test_perftest import values

MS = 1_000_000
STRICT = [{"dscp": 46}, {}]
WEIGHTED = [{"dscp": [10, 12], "weight": 3}, {"weight": 1}]


def topology(**section: Any) -> Topology:
    return Topology.model_validate({"lane": "sim", "preset": "dumbbell", "hosts": 4, **section})


def path(**section: Any) -> Path:
    return Path.model_validate({"rate": "1gbit", "delay": "10us", **section})


def two_flows(dscp: int, stop_ns: int = 50 * MS) -> traffic.Flows:
    """Both without end over the shared link; the first has a DSCP."""
    rows = traffic.empty(2)
    rows["src"], rows["dst"], rows["dscp"] = [0, 1], [2, 3], [dscp, 0]
    rows["bytes"], rows["stop_ns"] = traffic.UNTIL_STOP, stop_ns
    rows["message_bytes"], rows["depth"] = 65536, 16
    return rows


def shares(classes: Any, dscp: int, **more: Any) -> list[float]:
    network = SimNetwork(topology(), path(classes=classes, **more))
    done = network.simulate(two_flows(dscp), transport=Transport(), cc=Cc(algo="newreno"), seed=1)
    delivered = done.flows.rows["delivered_bytes"].astype(float)
    return [float(share) for share in delivered / delivered.sum()]


def test_weights_are_shares_of_the_link() -> None:
    assert shares(WEIGHTED, 12)[0] == pytest.approx(0.75, abs=0.03)
    assert shares(WEIGHTED, 13)[0] == pytest.approx(0.5, abs=0.1), "no class names it"


def test_what_a_shaped_class_drops_is_counted() -> None:
    network = SimNetwork(
        topology(), path(classes=[{"dscp": 8, "share": "10%", "queue": "20kB"}, {}])
    )
    done = network.simulate(two_flows(8), transport=Transport(), cc=Cc(algo="newreno"), seed=1)
    counters = network.path_counters()
    assert counters.shaped == {"forward": done.result.totals["shaped"], "backward": 0}
    assert counters.shaped["forward"] > 0
    found = {metric.name: metric.value for metric in path_metrics(asdict(counters))}
    assert found["path_shaped"] == counters.shaped["forward"]


def test_a_share_of_a_trace_is_one_of_its_mean_rate() -> None:
    """1538 bytes of the wire each 2 ms are 6.152 Mbit/s."""
    classes = [{"dscp": 46, "share": "10%"}, {}]
    link = shape(topology(), Path(trace=[1, 4], classes=classes)).graph().cables[0].forward
    assert [link.shaped_bps(one) for one in link.classes] == [615_200, 0]


def test_a_strict_class_goes_first() -> None:
    assert shares(STRICT, 46)[0] > 0.97


def test_a_class_may_be_shaped_to_a_share_of_the_link() -> None:
    """20 % of what the other one has, which gets all the rest."""
    classes = [{"dscp": 8, "share": "20%"}, {}]
    first, second = shares(classes, 8, queue="64KiB")
    assert first / second == pytest.approx(0.25, rel=0.1)


def test_links_of_a_graph_have_weights_of_their_own() -> None:
    links: list[dict[str, Any]] = [{"ends": f"{host}--s"} for host in "ab"]
    links += [{"ends": "s--t", "classes": [{"dscp": [10, 12], "weight": 9}, {"weight": 1}]}]
    links += [{"ends": f"t--{host}"} for host in "cd"]
    section = topology(preset="graph", graph={"links": links})
    network = SimNetwork(section, path(classes=WEIGHTED))
    done = network.simulate(two_flows(10), transport=Transport(), cc=Cc(algo="newreno"), seed=1)
    delivered = done.flows.rows["delivered_bytes"].astype(float)
    assert delivered[0] / delivered.sum() == pytest.approx(0.9, abs=0.03)


def test_pfc_is_of_the_lossless_classes() -> None:
    """Eleven hosts send to one: what is lossless is paused, all else is dropped."""
    classes = [{"dscp": 3, "weight": 1, "lossless": True}, {"weight": 1}]
    section = topology(preset="star", hosts=12, buffer="600kB", pfc=True)
    outcome = {}
    for dscp in (3, 0):
        network = SimNetwork(section, path(rate="10gbit", classes=classes))
        rows = traffic.empty(11)
        rows["src"], rows["dst"], rows["bytes"] = np.arange(11), 11, 500_000
        rows["dscp"] = dscp
        network.simulate(
            rows, transport=Transport(), cc=Cc(algo="fixed", window_bytes=2_000_000), seed=1
        )
        counters = network.path_counters()
        outcome[dscp] = sum(counters.overflowed.values()), sum(counters.paused_ns.values())
    assert outcome[3][0] == 0
    assert outcome[3][1] > 0
    assert outcome[0][0] > 0
    assert outcome[0][1] == 0


def test_equal_files_give_equal_runs() -> None:
    digests = set()
    for _ in range(2):
        network = SimNetwork(topology(), path(classes=WEIGHTED))
        done = network.simulate(
            two_flows(10, 5 * MS), transport=Transport(), cc=Cc(algo="newreno"), seed=3
        )
        digests.add(done.result.digest)
    assert len(digests) == 1


def test_small_flows_go_first(tmp_path: FilePath) -> None:
    """At 90 % load their p99 is a fraction of what it is in one queue; the table is the same."""
    slowdown = []
    for small in (None, {"bytes": "10kB", "dscp": 46}):
        section = path(rate="10gbit", classes=STRICT if small else None)
        params = {"sizes": "fb_hadoop", "load": "90%", "duration": "10ms", "small": small}
        with SimNetwork(topology(preset="star", hosts=6, mtu=4400), section, tmp_path) as network:
            context = RunContext(
                network=network,
                transport=Transport(),
                cc=Cc(algo="newreno"),
                device_env=[],
                logs=tmp_path,
                seed=1,
                timeout_s=60,
                path=section,
                folder=tmp_path,
            )
            kind = REGISTRY["flows"]
            found = values(kind(kind.Params.model_validate(params)).run(context))
        slowdown.append(found["slowdown_p99_small"])
    assert slowdown[1] < slowdown[0] / 3


def test_each_dscp_has_its_class() -> None:
    made = shape(topology(), path(classes=[{"credits": True, "share": "2%"}, *WEIGHTED]))
    classes = made.graph().cables[0].forward.classes
    assert classes[0] == QueueClass(share=0.02, credits=True)
    by_dscp = classes_by_dscp(classes)
    assert [by_dscp[dscp] for dscp in (0, 10, 11, 12, 63)] == [2, 1, 2, 1, 2]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"classes": [{"dscp": 3}, {"dscp": 4}]}, "exactly one has neither"),
        ({"classes": [{}, {}]}, "exactly one has neither"),
        ({"classes": [{"dscp": [3, 4]}, {"dscp": 4}, {}]}, "dscp 4 stands there twice"),
        ({"classes": [{"dscp": 64}, {}]}, "less than or equal to 63"),
        ({"classes": [{"dscp": 43}, {}]}, "that of trimmed packets"),
        ({"classes": [{"dscp": 1, "credits": True}, {}]}, "not both"),
        ({"classes": [{"credits": True}, {"credits": True}, {}]}, "not several"),
        ({"classes": [{"dscp": 1, "jitter": "10%"}, {}]}, "jitter goes with share"),
        ({"classes": [{"dscp": 1, "lossless": True, "queue": "1kB"}, {}]}, "drops nothing"),
        ({"classes": STRICT, "aqm": "codel"}, "aqm and classes exclude"),
        ({"classes": STRICT, "trim": True}, "trim and classes exclude"),
    ],
)
def test_classes_that_make_no_sense(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        path(**section)


@pytest.mark.parametrize(
    ("section", "more", "words"),
    [
        ({"classes": STRICT, "backward": {"classes": WEIGHTED}}, {}, "same class on all links"),
        ({"classes": [{"dscp": 3, "lossless": True}, {}]}, {}, "needs topology.pfc"),
        (
            {"classes": STRICT},
            {"preset": "star", "buffer": "1MB", "pfc": True},
            "no class of path.classes is lossless",
        ),
    ],
)
def test_networks_that_make_no_sense(
    section: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(LocalError, match=words):
        SimNetwork(topology(**more), path(**section))
