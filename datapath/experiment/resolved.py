# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""resolved.yaml: an experiment with every default filled in, which is an experiment file again.

Records of runs name values of axes as the user wrote them (`False`, `1e-3`, `0.10`), and so do
selectors.  Therefore the sweep, and the selectors of the report, stand here as they were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from datapath.experiment.spec import SECTIONS

if TYPE_CHECKING:
    from datapath.experiment.document import Document
    from datapath.experiment.spec import Experiment
    from datapath.places import Path

_SWEEP = ("matrix", "adjust", "include", "exclude", "only", "baseline")
_SELECTORS = ("where", "ratio_to")
"""Keys of a sweep, and of plots and claims, that name values of axes."""


def resolve(document: Document, spec: Experiment, kept: Sequence[int]) -> dict[str, Any]:
    """The experiment as plain data with defaults, and Spelled in it, which store.to_yaml writes.

    A section that only points complete stays as written.  kept: which claims of the document are
    those of spec.
    """
    resolved = spec.model_dump(mode="json", exclude_none=True)
    for section in SECTIONS:
        if section in document.data and section not in spec.model_fields_set:
            resolved[section] = document.data[section]
    spell(document, resolved, kept)
    return resolved


def spell(document: Document, data: dict[str, Any], kept: Sequence[int] | None = None) -> None:
    """Put the values of axes into data that was made of a document, Spelled.

    kept: which claims of the document are those of data; None: all.
    """
    if isinstance(sweep := data.get("sweep"), dict):
        _spell(document, ("sweep",), _SWEEP, sweep)
    if not isinstance(report := data.get("report"), dict):
        return
    for part, indices in (("plots", None), ("expect", kept)):
        entries = report.get(part)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                at = index if indices is None else indices[index]
                _spell(document, ("report", part, at), _SELECTORS, entry)


def _spell(document: Document, here: Path, keys: Sequence[str], data: dict[str, Any]) -> None:
    part: Any = document.data
    for step in here:
        part = part.get(step, {}) if isinstance(part, dict) else part[step]
    for key in keys:
        if part.get(key) is not None:
            data[key] = document.spelled((*here, key))
