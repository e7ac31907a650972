# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a sweep was resumed with, in its manifest, and what of that was something else before.

The runs of a folder are compared with each other, so a reader has to know if they were not made
by one toolkit on one machine.  A manifest may be that of a stranger, or an old one: what it does
not tell is no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any


def added(about: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with one more resumption in it, as datapath.experiment.manifest tells it."""
    return {**about, "resumed": [*_earlier(about), dict(entry)]}


def differences(about: Mapping[str, Any]) -> list[str]:
    """A remark for each fact that was not the same in all parts of a sweep."""
    found = []
    for what, fact in _FACTS.items():
        told = map(fact, (about, *_earlier(about)))
        values = [value for value, _ in groupby(value for value in told if value)]
        if len(values) > 1:
            then = ", then ".join(values)
            found.append(f"The sweep was resumed, and its runs differ in {what}: {then}.")
    return found


def _earlier(about: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    entries = about.get("resumed")
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _value(part: Mapping[str, Any], section: str, key: str) -> Any:
    inside = part.get(section)
    return inside.get(key) if isinstance(inside, Mapping) else None


def _revision(part: Mapping[str, Any]) -> str:
    commit = _value(part, "git", "commit")
    if not commit:
        return ""
    return str(commit)[:12] + (" with changes" if _value(part, "git", "dirty") else "")


def _fact(section: str, key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda part: str(_value(part, section, key) or "")


_FACTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "the revision of the toolkit": _revision,
    "the version of the toolkit": _fact("packages", "datapath-rdma"),
    "the kernel": _fact("machine", "kernel"),
    "the CPU": _fact("machine", "cpu_model"),
    "the number of CPUs": _fact("machine", "cores_usable"),
}
