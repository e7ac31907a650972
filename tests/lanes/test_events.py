# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events: what a file may say, and what becomes of paths and links."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from datapath.errors import LocalError
from datapath.fabric import flows as traffic
from datapath.fabric.changes import SetLink, SetRoute
from datapath.fabric.links import Loss
from datapath.fabric.simulator import Simulation
from datapath.lanes.event_spec import Event, check_events, path_changes, stalls
from datapath.lanes.link_events import link_changes
from datapath.lanes.shape import shape
from datapath.lanes.spec import Path, Topology

MS = 1_000_000


def event(at: str = "1ms", **section: Any) -> Event:
    return Event.model_validate({"at": at, **section})


def test_an_event_may_happen_at_the_beginning() -> None:
    assert event("0s", stop="a").at == 0


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "an event has one of path, state, stop, start, cc, stall, not 0"),
        ({"state": "down", "stop": "a"}, "not 2 of them"),
        ({"stop": "a", "direction": "forward"}, "go with path or state"),
        ({"state": "up", "direction": "forward", "link": "a>b"}, "a link has its own"),
        ({"path": {"rate": "1mbit"}, "link": "a>b", "reroute": "1ms"}, "goes with state, and link"),
        ({"path": {"rate": "1mbit"}, "node": "spine0"}, "node goes with state"),
        ({"state": "down", "node": "spine0", "link": "a>b"}, "in place of link and direction"),
        ({"stop": "a", "flows": "a"}, "flows goes with cc"),
        ({"path": {"aqm": "codel"}}, "path.aqm cannot change"),
        ({"path": {"trim": True}}, "path.trim cannot change"),
        ({"state": "down", "link": "leaf0"}, "a link is written a>b"),
        ({"at": "-1ms", "stop": "a"}, "is negative"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        event(**section)


@pytest.mark.parametrize(
    ("preset", "section", "words"),
    [
        ("p2p", {"state": "down", "link": "a>b"}, "preset p2p has one path"),
        ("star", {"path": {"delay": "1ms"}, "direction": "forward"}, "star has no directions"),
        ("leaf-spine", {"state": "down"}, "name the link or node that is down"),
        ("dumbbell", {"state": "down", "node": "left"}, "give direction, and no link or node"),
    ],
)
def test_events_fit_the_preset(preset: str, section: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_events([event(**section)], Path(rate="1gbit"), preset)


def test_events_of_the_path_need_a_link_model() -> None:
    with pytest.raises(ValueError, match="events of the path need a link model"):
        check_events([event(path={"loss": "1%"})], Path(), "p2p")
    check_events([event(path={"loss": "1%"})], Path(backend="fabric"), "p2p")


def test_events_have_a_text() -> None:
    assert event(path={"rate": "500mbit"}).text == "rate 500mbit"
    assert event(path={"delay": "1ms"}, direction="forward").text == "forward delay 1ms"
    assert event(state="down").text == "path down"
    assert event(state="up", link="leaf0--spine1").text == "leaf0--spine1 up"
    assert event(state="down", node="spine1").text == "spine1 down"
    assert event(stop=["a", "b"]).text == "stop a, b"
    assert event(start="a").text == "start a"
    assert event(cc={"algo": "swift"}, flows="a").text == "a: swift"
    assert event(cc={"algo": "swift"}).text == "all: swift"
    assert event(state="down", label="the cut").text == "the cut"


def test_a_path_changes_key_by_key() -> None:
    path = Path.model_validate(
        {"rate": "1gbit", "delay": "1ms", "loss": "1%", "forward": {"delay": "2ms"}}
    )
    events = [
        event("3ms", state="up"),
        event("1ms", path={"rate": "100mbit"}, direction="forward"),
        event("2ms", state="down"),
        event("4ms", path={"delay": "5ms"}),
    ]
    made = list(path_changes(events, path))
    assert [at for at, _ in made] == [1 * MS, 2 * MS, 3 * MS, 4 * MS]
    forward = [changed.link("forward") for _, changed in made]
    backward = [changed.link("backward") for _, changed in made]
    assert [link.rate_bps for link in forward] == [10**8] * 4
    assert [link.rate_bps for link in backward] == [10**9] * 4
    assert [link.delay_ns for link in forward] == [2 * MS, 2 * MS, 2 * MS, 5 * MS]
    assert [link.delay_ns for link in backward] == [MS, MS, MS, 5 * MS]
    losses = [0.01, 1.0, 0.01, 0.01]
    assert [link.loss and link.loss.good for link in forward] == losses
    assert [link.loss and link.loss.good for link in backward] == losses


def test_a_rate_takes_the_place_of_a_trace() -> None:
    path = Path.model_validate({"trace": [1, 2], "forward": {"trace": [3]}})
    ((_, made),) = path_changes([event(path={"rate": "1gbit"})], path)
    assert made.link("forward").rate_bps == made.link("backward").rate_bps == 10**9
    assert made.link("forward").trace_ms == ()


def test_the_simulated_path_changes_as_the_emulated_one() -> None:
    topology = Topology(lane="sim", preset="dumbbell", hosts=4)
    path = Path(rate="1gbit", delay="1ms")
    events = [event("1ms", path={"rate": "2gbit"}, direction="backward"), event("2ms", stop="a")]
    assert link_changes(topology, path, events) == [
        SetLink(MS, 1, next(path_changes(events, path))[1].link("backward"))
    ]


CLOS = Topology(lane="sim", preset="leaf-spine", leaves=2, spines=2, hosts_per_leaf=1)


def test_one_link_of_many() -> None:
    path = Path(rate="1gbit", delay="1us")
    events = [
        event("1ms", state="down", link="leaf0--spine1", reroute="5ms"),
        event("2ms", path={"delay": "1ms"}, link="leaf1>spine0"),
        event("3ms", path={"delay": "7us"}),
        event("9ms", state="up", link="leaf0--spine1"),
    ]
    made = link_changes(CLOS, path, events)
    assert [change.at_ns for change in made] == sorted(change.at_ns for change in made)
    names = shape(CLOS, path).graph().link_names()
    told = [
        (c.at_ns // MS, names[c.link], c.settings.delay_ns, c.settings.loss)
        for c in made
        if isinstance(c, SetLink)
    ]
    dead = Loss(good=1.0)
    alive = path.link("forward").loss
    assert told[:3] == [
        (1, "leaf0>spine1", 1000, dead),
        (1, "spine1>leaf0", 1000, dead),
        (2, "leaf1>spine0", MS, alive),
    ]
    third = {name: (delay, loss) for at, name, delay, loss in told if at == 3}
    assert third["leaf0>spine1"] == (7000, dead)
    assert third["leaf0>spine0"] == (7000, alive)
    assert "leaf1>spine0" not in third, "an event of its own has set its delay"
    assert [name for at, name, _, loss in told if at == 9 and loss == alive] == [
        "leaf0>spine1",
        "spine1>leaf0",
    ]
    routes = [(c.at_ns // MS, names[c.link], c.used) for c in made if isinstance(c, SetRoute)]
    assert routes == [(6, "leaf0>spine1", False), (6, "spine1>leaf0", False)]


def test_routes_follow_the_state_that_a_link_has_by_then() -> None:
    """Not that of the event: it may have come up, or gone down, since."""
    one = {"leaf0>spine1", "spine1>leaf0"}
    spine = one | {"leaf1>spine1", "spine1>leaf1"}
    down, up = (
        {"state": state, "link": "leaf0--spine1", "reroute": after}
        for state, after in (("down", "50ms"), ("up", "10ms"))
    )
    flap = [event("100ms", **down), event("120ms", **up)]
    assert dead(CLOS, flap)[-1] == (150, set(), set())
    again = [*flap, event("125ms", state="down", link="leaf0--spine1")]
    assert dead(CLOS, again)[-1] == (150, one, one)
    node = [event("90ms", state="down", node="spine1", reroute="50ms"), *flap]
    assert dead(CLOS, node)[-1] == (150, spine, spine), "the switch is still down"


@pytest.mark.parametrize("name", ["leaf0", "host0", "host0--leaf0", "host0>leaf0"])
def test_a_host_has_no_other_way(name: str) -> None:
    """What goes down includes its link; routes follow where there is a choice."""
    kind = "link" if {*name} & {*">-"} else "node"
    path = Path(rate="10gbit", delay="1us")
    made = link_changes(CLOS, path, [event(state="down", reroute="1ms", **{kind: name})])
    simulation = Simulation(shape(CLOS, path))
    names = simulation.graph.link_names()
    lost = {names[one.link] for one in made if isinstance(one, SetLink)}
    unused = {names[one.link] for one in made if isinstance(one, SetRoute)}
    assert "host0>leaf0" in lost
    assert unused == {one for one in lost if "host" not in one}
    rows = traffic.empty(1)
    rows["src"], rows["dst"], rows["bytes"] = 1, 0, 10_000
    assert simulation.run(rows, changes=made).finished


def test_a_link_that_is_not_there() -> None:
    with pytest.raises(LocalError, match="no link from leaf0 to spine7"):
        link_changes(CLOS, Path(rate="1gbit"), [event(state="down", link="leaf0--spine7")])


def dead(topology: Topology, events: list[Event]) -> list[tuple[int, set[str], set[str]]]:
    """(ms, links that lose all, links that no route uses) after each time at which one changes."""
    path = Path(rate="1gbit", delay="1us")
    names = shape(topology, path).graph().link_names()
    lost, unused = set[str](), set[str]()
    found: dict[int, tuple[set[str], set[str]]] = {}
    for change in link_changes(topology, path, events):
        assert isinstance(change, SetLink | SetRoute)
        name = {names[change.link]}
        if isinstance(change, SetLink):
            lost = lost | name if change.settings.loss == Loss(good=1.0) else lost - name
        else:
            unused = unused - name if change.used else unused | name
        found[change.at_ns // MS] = (lost, unused)
    return [(at, *both) for at, both in found.items()]


def test_a_switch_goes_down_with_all_its_links_and_comes_up_without_those_that_are_down() -> None:
    spine = {"leaf0>spine1", "spine1>leaf0", "leaf1>spine1", "spine1>leaf1"}
    one = {"leaf0>spine1"}
    events = [
        event("1ms", state="down", link="leaf0>spine1", reroute="0ms"),
        event("2ms", state="down", node="spine1", reroute="1ms"),
        event("4ms", state="up", node="spine1", reroute="0ms"),
        event("5ms", state="up", link="leaf0--spine1", reroute="0ms"),
    ]
    assert dead(CLOS, events) == [
        (1, one, one),
        (2, spine, one),
        (3, spine, spine),
        (4, one, one),
        (5, set(), set()),
    ]


def test_a_link_that_comes_up_at_a_dead_switch_stays_dead() -> None:
    events = [
        event("1ms", state="down", link="leaf0>spine1"),
        event("2ms", state="down", node="spine1"),
        event("3ms", state="up", link="leaf0>spine1", reroute="0ms"),
    ]
    at, lost, unused = dead(CLOS, events)[-1]
    assert (at, unused) == (3, {"leaf0>spine1"})
    assert "leaf0>spine1" in lost


def test_a_server_is_all_of_its_nics() -> None:
    topology = Topology(lane="sim", preset="rail", servers=2, rails=2, spines=1)
    (made,) = dead(topology, [event("1ms", state="down", node="server1")])
    assert made[1] == {
        "server1-nic0>rail0",
        "rail0>server1-nic0",
        "server1-nic1>rail1",
        "rail1>server1-nic1",
    }
    stall = [event("1ms", stall="server1", lasts="2ms")]
    assert stalls(stall, topology.host_names) == [(MS, 2, 2 * MS), (MS, 3, 2 * MS)]
    for stranger in ("server2", 4, -1):
        with pytest.raises(ValueError, match=f"there is no host {stranger}"):
            stalls([event("1ms", stall=stranger, lasts="2ms")], topology.host_names)
