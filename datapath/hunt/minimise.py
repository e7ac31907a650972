# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a bad case to a small one that is bad in the same way.

First each dimension is put back to its default if the case stays bad without it; then the
numbers of those that are left are brought as near to the harmless end as they can be, by
bisection.  Every step keeps a case that was tried and is bad, so it may end at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from datapath.hunt.space import Case, by_name
from datapath.hunt.trial import Trial
from datapath.hunt.values import Log, Value, part, parts_of, replaced

_BISECTIONS = 4

Try = Callable[[Sequence[Case]], list[Trial]]
"""Runs cases, several at once, and answers in their order."""


def minimise(trial: Trial, symptom: str, attempt: Try) -> Iterator[Trial]:
    """Smaller and smaller trials that show the symptom; the last one is minimal."""
    for smaller in _dropped(trial, symptom, attempt):
        trial = smaller
        yield trial
    for name in sorted(trial.case):
        values = by_name(name).values
        for at, of_part in enumerate(parts_of(values)):
            if isinstance(of_part, Log):
                for smaller in _milder(trial, symptom, attempt, name, at, of_part):
                    trial = smaller
                    yield trial


def _dropped(trial: Trial, symptom: str, attempt: Try) -> Iterator[Trial]:
    """Without one dimension after the other."""
    while trial.case:
        names = sorted(trial.case)
        tried = attempt([{n: v for n, v in trial.case.items() if n != name} for name in names])
        bad = [smaller for smaller in tried if symptom in smaller.bad()]
        if not bad:
            return
        trial = bad[0]
        yield trial


def _milder(
    trial: Trial, symptom: str, attempt: Try, name: str, at: int, values: Log
) -> Iterator[Trial]:
    """With one number nearer and nearer to its harmless end."""
    harmless = _mildest(name, values)
    bad = part(trial.case[name], at)
    for step in range(_BISECTIONS):
        tried = harmless if not step else values.between(harmless, bad)
        if tried is None or tried == bad:
            return
        value: Value = replaced(trial.case[name], at, tried)
        (milder,) = attempt([{**trial.case, name: value}])
        if symptom in milder.bad():
            trial, bad = milder, tried
            yield trial
        else:
            harmless = tried


def _mildest(name: str, values: Log) -> float:
    default = by_name(name).default
    return values.mildest if default is None else float(default)
