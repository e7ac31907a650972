# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Networks that cannot be are mistakes of the file, with their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.experiment.document import InvalidFile
from datapath.experiment.load import load
from tests.cli.server import dpctl

FILE = """\
version: 1
name: wrong
topology: {{lane: sim, preset: star, hosts: 8, mtu: 1500, buffer: {buffer}, pfc: true}}
path: {{rate: 10gbit, delay: 1us{path}}}
workload: {{kind: flows, sizes: {sizes}, load: 10%}}
events: [{{at: 1ms, path: {{delay: {delay}}}}}]
"""


def text(buffer: str = "4MiB", path: str = "", sizes: str = "websearch", delay: str = "2us") -> str:
    return FILE.format(buffer=buffer, path=path, sizes=sizes, delay=delay)


def test_what_can_be_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "right.yaml"
    file.write_text(text(path=", policer: {rate: 1gbit, burst: 1538B}"))
    assert len(load(file).points) == 1


@pytest.mark.parametrize(
    ("wrong", "line", "said"),
    [
        ({"buffer": "20kB"}, 3, "too few for PFC on 8 ports"),
        (
            {"path": ", policer: {rate: 1gbit, burst: 1537B}"},
            4,
            "a burst of 1537 bytes passes no forward packet of topology.mtu 1500, which takes 1538",
        ),
        (
            {"path": ", backward: {policer: {rate: 1gbit, burst: 1537B}}"},
            4,
            "a burst of 1537 bytes passes no backward packet",
        ),
        ({"sizes": "./bad.cdf"}, 5, "bad.cdf:2: shares have to grow"),
        ({"delay": "10ms"}, 6, "too few for PFC on 8 ports"),
    ],
)
def test_a_network_that_cannot_be(
    tmp_path: Path, wrong: dict[str, str], line: int, said: str
) -> None:
    (tmp_path / "bad.cdf").write_text("1000 0\n500 100\n")
    file = tmp_path / "wrong.yaml"
    file.write_text(text(**wrong))
    with pytest.raises(InvalidFile) as caught:
        load(file)
    found = {problem.message: problem.place.line for problem in caught.value.problems}
    assert any(said in message and line == at for message, at in found.items()), found


LIVE = """\
version: 1
name: wrong
topology: {mtu: 1500NETWORK}
path: {PATH}
transport: {device: dp, port: PORT}
workload: {kind: stream, duration: 1s}
MORE
"""
GRAPH = ", preset: graph, graph: {links: [{ends: a--s}, {ends: s--b, LINK}]}"
POLICER = "policer: {rate: 10mbit, burst: 1537B}"


@pytest.mark.parametrize(
    ("keys", "line", "said"),
    [
        ({"NETWORK": GRAPH, "LINK": POLICER, "PATH": "rate: 1gbit"}, 3, "passes no packet"),
        ({"PATH": "delay: 1us", "MORE": f"events: [{{at: 1s, path: {{{POLICER}}}}}]"}, 7, "1537"),
        (
            {"PATH": "rate: 1gbit", "MORE": "xdp: {source: x.c}"},
            7,
            "path backend fabric has no XDP hook middle-forward",
        ),
        (
            {"PATH": "backend: none", "MORE": "xdp: {source: x.c, hook: middle-backward}"},
            7,
            "path backend none has no XDP hook middle-backward",
        ),
        (
            {"NETWORK": GRAPH, "PATH": "rate: 1gbit", "MORE": "xdp: {source: x.c, hook: host0}"},
            7,
            "there is no host host0",
        ),
        (
            {"PORT": "afxdp", "MORE": "xdp: {source: x.c, hook: host1}"},
            7,
            "a port of kind afxdp has an XDP program of its own at host1",
        ),
        ({"MORE": "xdp: {source: x.c, hook: host1}"}, 0, ""),
        ({"PORT": "afxdp", "MORE": "xdp: {source: x.c}"}, 0, ""),
    ],
)
def test_a_live_network_that_cannot_be(
    tmp_path: Path, keys: dict[str, str], line: int, said: str
) -> None:
    (tmp_path / "x.c").write_text("int x(struct xdp_md *ctx) { return XDP_PASS; }\n")
    text = LIVE
    for key, value in {"NETWORK": "", "PATH": "", "PORT": "udp", "MORE": "", **keys}.items():
        text = text.replace(key, value)
    file = tmp_path / "wrong.yaml"
    file.write_text(text.replace(", LINK", ""))
    if not said:
        assert len(load(file).points) == 1
        return
    with pytest.raises(InvalidFile) as caught:
        load(file)
    ((message, at),) = {(one.message, one.place.line) for one in caught.value.problems}
    assert said in message
    assert at == line


@pytest.mark.parametrize(("headroom", "told"), [("5kB", True), ("5660B", False), ("", False)])
def test_a_headroom_that_loses_packets_is_told(tmp_path: Path, headroom: str, told: bool) -> None:
    """10 Gbit/s bring 2500 bytes in 2 us, two packets of 1538 and a pause frame of 84."""
    file = tmp_path / "headroom.yaml"
    pfc = f"{{headroom: {headroom}, xoff: 50kB}}" if headroom else "true"
    file.write_text(text().replace("pfc: true", f"pfc: {pfc}"))
    words = "note: topology.pfc: a headroom of 5000 bytes is less than the 5660 that can arrive"
    done = dpctl("validate", file)
    assert (words in done.stderr) == told, done.stderr
    assert ("headroom" in done.stderr) == told
    if told:
        done = dpctl("run", file, "--no-report", "--out", tmp_path / "out")
        assert words in done.stderr


def test_a_headroom_beside_jitter_without_a_limit_is_told(tmp_path: Path) -> None:
    file = tmp_path / "jitter.yaml"
    shaken = text(path=", jitter: 1us").replace("preset: star, hosts: 8", "preset: leaf-spine")
    file.write_text(shaken.replace("pfc: true", "pfc: {headroom: 50kB}"))
    done = dpctl("validate", file)
    assert done.returncode == 0
    assert "a jitter of model normal or pareto has no longest delay" in done.stderr
