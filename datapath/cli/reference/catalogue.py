# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables of the programs: metrics, device keys, algorithms and the records that they see."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, get_args, get_origin, get_type_hints

from datapath.cc import bpf, load, registry
from datapath.cc import records as cc_records
from datapath.cli.reference import markdown
from datapath.experiment.metrics import METRICS
from datapath.verbs.device_keys import DEVICE_KEYS

_RECORDS = ("Flow", "Ack", "Hop", "Loss", "Port", "Sender", "Data")


def metrics() -> Iterator[str]:
    yield from ("# Metrics", "")
    yield "What a run may have; [results](../docs/results.md) tells how each is made."
    yield ""
    rows = [
        [markdown.code(kind.name), markdown.text(kind.title), markdown.code(kind.unit), kind.better]
        for kind in METRICS.values()
    ]
    yield from markdown.table(["metric", "title", "unit", "better"], rows)


def device_keys() -> Iterator[str]:
    yield from ("# Keys of a device", "")
    yield "`NAME=PORT[;KEY=VALUE...]`; [verbs](../docs/verbs.md#device-keys) explains them."
    yield ""
    rows = [[markdown.code(key.name), markdown.text(key.expected)] for key in DEVICE_KEYS.values()]
    yield from markdown.table(["key", "value"], rows)


def algorithms() -> Iterator[str]:
    yield from ("# Algorithms", "")
    yield "Those that come with the toolkit: docstring and parameters of each."
    yield "[The included algorithms](../docs/included-algorithms.md)"
    yield "tells what they do in the simulator."
    yield ""
    for name in registry():
        made = load(name)
        yield from (f"## {name}", "", f"Source: {markdown.text(made.source)}", "")
        yield from markdown.doc(made.doc)
        rows = [
            [
                markdown.code(item.name),
                f"{item.default:g}",
                item.unit,
                markdown.text(item.range_text()),
                markdown.text(item.doc),
            ]
            for item in made.params
        ]
        yield from markdown.table(["parameter", "default", "unit", "range", "meaning"], rows)
    yield from ("## For the kernel's TCP", "")
    yield from markdown.table(
        ["algorithm", "source", "what it does"],
        [
            [markdown.code(item.name), markdown.text(item.source), markdown.text(item.doc)]
            for item in bpf.own()
        ],
    )


def records() -> Iterator[str]:
    """The arguments of an algorithm's hooks, from the classes that the compiler reads."""
    yield from ("# What an algorithm sees", "")
    yield "Members of the records that hooks get; [cc](../docs/cc.md) tells when each hook runs."
    yield ""
    for name in _RECORDS:
        record = getattr(cc_records, name)
        yield from (f"## {name}", "")
        yield from markdown.doc(inspect.getdoc(record) or "")
        rows = [
            [markdown.code(member), markdown.text(get_args(hint)[1])]
            for member, hint in get_type_hints(record, include_extras=True).items()
            if get_origin(hint) is Annotated
        ]
        yield from markdown.table(["member", "meaning"], rows)
