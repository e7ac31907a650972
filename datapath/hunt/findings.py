# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The findings: for each a file that `dpctl run` replays, and a table of all.

Findings with the same symptom and the same causes are one; the others only
count.  A finding is on the disk from the moment at which its case turned out bad, and is
written again, whole or not at all, as it becomes smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from datapath import strict_json
from datapath.disk import disk_errors, write_atomic
from datapath.errors import LocalError
from datapath.hunt.case import Setup, text
from datapath.hunt.limits import SYMPTOMS
from datapath.hunt.space import causes, describe
from datapath.hunt.trial import Trial

TABLE = "findings.json"
ABOUT = "hunt.json"


@dataclass
class Finding:
    """A symptom, and the smallest case known that shows it.

    name: of its file.  cases: how many were bad in this way for this cause.  worst: the highest
    score of these.  minimal: whether the case cannot be made smaller.
    """

    name: str
    symptom: str
    trial: Trial
    worst: float
    cases: int = 1
    minimal: bool = False

    @property
    def score(self) -> float:
        return self.trial.scores[self.symptom]

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """Symptom and causes: one finding for each."""
        return self.symptom, causes(self.trial.case)

    def explains(self, trial: Trial, symptom: str) -> bool:
        """Whether a trial shows this symptom and has this cause, maybe among others."""
        return symptom == self.symptom and set(self.key[1]) <= set(causes(trial.case))

    def row(self) -> dict[str, Any]:
        """As the table has it; values in the units of their metrics."""
        missed = self.trial.missed(self.symptom)
        metric = missed[0].metric if missed else ""
        return {
            "file": self.name,
            "symptom": self.symptom,
            "score": round(self.score, 3),
            "cause": describe(self.trial.case),
            "case": dict(self.trial.case),
            "runs": self.trial.repetitions,
            "metric": metric,
            "measured": self.trial.metrics.get(metric),
            "min": missed[0].min if missed else None,
            "max": missed[0].max if missed else None,
            "error": self.trial.error,
            "cases": self.cases,
            "worst_score": round(self.worst, 3),
            "minimal": self.minimal,
        }


class Findings:
    """The findings of a hunt and their folder, which must be empty or not there."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.folder, self.setup = folder, setup
        self.all: list[Finding] = []
        self._named = 0
        with disk_errors(folder):
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise LocalError(
                    f"{folder} exists and is not an empty folder", hint="choose another --out"
                )
            folder.mkdir(parents=True, exist_ok=True)
        self._write_table()

    def known(self, trial: Trial, symptom: str, *, but: Finding | None = None) -> Finding | None:
        """The finding, another than `but`, that explains a bad trial."""
        others = (item for item in self.all if item is not but)
        return next((item for item in others if item.explains(trial, symptom)), None)

    def count(self, finding: Finding, trial: Trial) -> None:
        """One more case that a finding explains."""
        finding.cases += 1
        finding.worst = max(finding.worst, trial.scores[finding.symptom])

    def begin(self, trial: Trial, symptom: str) -> Finding:
        """A new finding, on the disk as it is."""
        self._named += 1
        name = f"{self._named:02}-{symptom}.yaml"
        finding = Finding(name, symptom, trial, trial.scores[symptom])
        self.all.append(finding)
        self._write(finding)
        return finding

    def shrink(self, finding: Finding, trial: Trial) -> None:
        """The finding's case has become smaller."""
        finding.trial = trial
        finding.worst = max(finding.worst, trial.scores[finding.symptom])
        self._write(finding)

    def settle(self, finding: Finding) -> bool:
        """The case is minimal; False: it is another finding, which counts it from now on."""
        twin = next((f for f in self.all if f is not finding and f.key == finding.key), None)
        if twin is not None:
            self.merge(finding, twin)
            return False
        finding.minimal = True
        self._write(finding)
        return True

    def drop(self, finding: Finding) -> None:
        """It is none: its file goes."""
        self.all.remove(finding)
        self._write_table()
        (self.folder / finding.name).unlink(missing_ok=True)

    def merge(self, finding: Finding, into: Finding) -> None:
        """A finding is the same as another one: only that one stays."""
        into.cases += finding.cases
        into.worst = max(into.worst, finding.worst)
        self.drop(finding)

    def sorted(self) -> list[Finding]:
        """By symptom, the worst first, then by score."""
        order = list(SYMPTOMS)
        return sorted(self.all, key=lambda f: (order.index(f.symptom), -f.score, f.name))

    def about(self, **facts: Any) -> None:
        """The settings of the hunt, and its progress."""
        content = {
            "algorithm": self.setup.algorithm,
            "params": dict(self.setup.params),
            "settings": dict(self.setup.settings),
            "seed": self.setup.seed,
            **facts,
        }
        write_atomic(self.folder / ABOUT, (strict_json.text(content, indent=2) + "\n").encode())
        self._write_table()

    def _write(self, finding: Finding) -> None:
        description = (
            f"{self.setup.algorithm}, {finding.symptom}: {SYMPTOMS[finding.symptom]}. "
            f"Cause: {describe(finding.trial.case)}. Score {finding.score:.3g}, above 1 is bad."
        )
        content = text(
            finding.trial.case,
            self.setup,
            finding.trial.repetitions,
            name=finding.name.removesuffix(".yaml"),
            description=description,
            limits=finding.trial.missed(finding.symptom),
        )
        write_atomic(self.folder / finding.name, content.encode())
        self._write_table()

    def _write_table(self) -> None:
        rows = [finding.row() for finding in self.sorted()]
        write_atomic(self.folder / TABLE, (strict_json.text(rows, indent=2) + "\n").encode())


def new_folder(name: str) -> Path:
    """hunts/<name>-<UTC time>, which is not there yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    numbers = ("", *(f"-{number}" for number in range(2, 1000)))
    for number in numbers:
        folder = Path("hunts") / f"{name}-{stamp}{number}"
        if not folder.exists():
            return folder
    raise LocalError(f"hunts/{name}-{stamp} and 1000 others exist")
