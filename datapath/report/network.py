# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network of an experiment as a drawing: hosts below, switches above by their distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from datapath.report.folder import sequence

_NODES_MAX, _CABLES_MAX = 96, 400
_WIDTH, _LEVEL, _MARGIN = 720.0, 84.0, 26.0
_RADIUS = 7.0
_HALO = {"stroke": "var(--page)", "stroke-width": "4", "paint-order": "stroke"}
"""Keeps a cable that passes behind a name from running through it."""

_LABEL_CHARS = 14
_CROWDED = 16
"""With more nodes in a level their names are left to the tooltips."""

Place = tuple[float, float]


def drawing(graph: Mapping[str, Any]) -> str:
    """SVG for the inside of a page, of a network in a manifest; "" when it is none, or too large.

    graph: {"hosts": count, "nodes": [name, ...], "cables": [[number, number, text], ...]}, hosts
    first, as lanes.shape.described() makes it.
    """
    names = [str(name) for name in sequence(graph.get("nodes"))]
    hosts, cables = graph.get("hosts"), _cables(graph, len(names))
    known = isinstance(hosts, int) and 0 < hosts < len(names) <= _NODES_MAX
    if not known or not cables or len(cables) > _CABLES_MAX:
        return ""
    levels = _levels(len(names), int(hosts or 0), cables)
    places = _places(levels)
    height = (len(levels) - 1) * _LEVEL + 2 * _MARGIN + 12
    root = ElementTree.Element(
        "svg",
        {
            "viewBox": f"0 0 {_WIDTH:.0f} {height:.0f}",
            "role": "img",
            "aria-label": f"{hosts} hosts, {len(names) - int(hosts or 0)} switches, "
            f"{len(cables)} cables",
            "style": f"max-width: {_WIDTH:.0f}px; font-size: 11px",
        },
    )
    for a, b, text in cables:
        _draw_cable(root, places[a], places[b], text)
    for number, name in enumerate(names):
        crowd = len(next(level for level in levels if number in level))
        _draw_node(root, places[number], name, host=number < int(hosts or 0), crowd=crowd)
    return ElementTree.tostring(root, encoding="unicode")


def _cables(graph: Mapping[str, Any], nodes: int) -> list[tuple[int, int, str]]:
    """Those that join two nodes that there are; a folder may be damaged."""
    found = []
    for one in map(sequence, sequence(graph.get("cables"))):
        ends = [end for end in one[:2] if isinstance(end, int) and 0 <= end < nodes]
        if len(ends) == 2 and ends[0] != ends[1]:
            found.append((ends[0], ends[1], str(one[2]) if len(one) > 2 else ""))
    return found


def _levels(nodes: int, hosts: int, cables: Sequence[tuple[int, int, str]]) -> list[list[int]]:
    """Nodes by their distance to the nearest host; hosts beside those of the same switch."""
    near: dict[int, list[int]] = {}
    for a, b, _ in cables:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    known = set(range(hosts))
    levels = [list(range(hosts))]
    while levels[-1]:
        ring = {other for node in levels[-1] for other in near.get(node, [])} - known
        known |= ring
        levels.append(sorted(ring))
    levels[-1:] = [[node for node in range(nodes) if node not in known]]
    levels = [level for level in levels if level]
    levels[0].sort(key=lambda host: (min(near.get(host, [host])), host))
    return levels


def _places(levels: Sequence[Sequence[int]]) -> dict[int, Place]:
    width = _WIDTH - 2 * _MARGIN
    return {
        node: (
            _MARGIN + width * (index + 0.5) / len(level),
            _MARGIN + _LEVEL * (len(levels) - 1 - depth),
        )
        for depth, level in enumerate(levels)
        for index, node in enumerate(level)
    }


def _draw_cable(root: ElementTree.Element, a: Place, b: Place, text: str) -> None:
    """A line, or an arc above others of the same level."""
    bend = min(abs(a[0] - b[0]) / 12, _LEVEL / 3) if a[1] == b[1] else 0.0
    middle = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2 - bend)
    line = f"M{a[0]:.1f} {a[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {b[0]:.1f} {b[1]:.1f}"
    ElementTree.SubElement(root, "path", {"d": line, "fill": "none", "stroke": "var(--muted)"})
    if text:
        at = {"x": f"{middle[0]:.1f}", "y": f"{middle[1] - 4:.1f}", "text-anchor": "middle"}
        label = ElementTree.SubElement(root, "text", {**at, "fill": "var(--muted)"})
        label.text = text


def _draw_node(
    root: ElementTree.Element, place: Place, name: str, *, host: bool, crowd: int
) -> None:
    x, y = place
    ink = {"stroke": "var(--ink)", "fill": "var(--series-0)" if host else "var(--series-1)"}
    if host:
        node = ElementTree.SubElement(
            root, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{_RADIUS}", **ink}
        )
    else:
        corner = {"x": f"{x - _RADIUS:.1f}", "y": f"{y - _RADIUS:.1f}"}
        size = {"width": f"{2 * _RADIUS}", "height": f"{2 * _RADIUS}"}
        node = ElementTree.SubElement(root, "rect", {**corner, **size, **ink})
    ElementTree.SubElement(node, "title").text = name
    if crowd <= _CROWDED:
        below = {"x": f"{x:.1f}", "y": f"{y + _RADIUS + 12:.1f}", "text-anchor": "middle"}
        label = ElementTree.SubElement(root, "text", {**below, "fill": "var(--ink)", **_HALO})
        label.text = name if len(name) <= _LABEL_CHARS else f"{name[: _LABEL_CHARS - 1]}…"
