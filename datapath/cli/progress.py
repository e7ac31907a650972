# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Progress of a sweep on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from datapath.cli.screen import obeys
from datapath.spelling import in_a_line
from datapath.terminal import printable, raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from datapath.cli.intervals import Intervals
    from datapath.experiment.runner import Observer
    from datapath.experiment.store import RunRecord
    from datapath.experiment.sweep import Run

_WIDTH_OF_BAR = 72
"""Columns of the narrowest terminal on which a bar leaves room for the description."""

_HEADLINES = ("goodput", "latency_p50", "message_rate")


def make_observer(*, quiet: bool) -> Observer:
    """The observer that suits stderr."""
    if quiet:
        return Silent()
    return Live() if obeys(sys.stderr) else Lines()


class Silent:
    """Shows nothing."""

    def begin(self, total: int, done: int) -> None: ...
    def started(self, run: Run) -> None: ...
    def finished(self, run: Run, record: RunRecord) -> None: ...
    def told(self, text: str) -> None: ...
    def more(self, count: int) -> None: ...
    def close(self) -> None: ...


class _Watching:
    """A single live run says each second how it goes."""

    intervals: Intervals | None = None
    single = False

    def watch(self, run: Run, say: Callable[[str], None]) -> None:
        """Begin, if this run is the only one."""
        from datapath.experiment.parallel import is_simulated

        if self.single and not is_simulated(run):
            from datapath.cli.intervals import Intervals

            self.intervals = Intervals(say)

    def watched(self) -> None:
        """End; safe to call twice."""
        if self.intervals is not None:
            self.intervals.close()
            self.intervals = None


class Lines(_Watching):
    """One line for each finished run."""

    def begin(self, total: int, done: int) -> None:
        self.total, self.done = total, done
        self.single = total == 1
        self.digits = len(str(total))
        if done:
            print(f"{done} of {total} runs are there already", file=sys.stderr, flush=True)

    def started(self, run: Run) -> None:
        self.watch(run, lambda text: print(text, file=sys.stderr, flush=True))

    def finished(self, run: Run, record: RunRecord) -> None:
        self.watched()
        self.done += 1
        count = f"[{self.done:{self.digits}}/{self.total}]"
        print(f"{count} {_outcome(run, record)}", file=sys.stderr, flush=True)

    def told(self, text: str) -> None:
        print(f"note: {printable(text)}", file=sys.stderr, flush=True)

    def more(self, count: int) -> None:
        self.total += count
        self.digits = len(str(self.total))

    def close(self) -> None:
        self.watched()


class Live(_Watching):
    """A bar with what is being measured; failures and remarks stay as lines above it."""

    def begin(self, total: int, done: int) -> None:
        from rich.console import Console

        self.failed = 0
        self.single = total == 1
        console = Console(file=raw(sys.stderr), markup=False, emoji=False)
        self.progress = _bar(console)
        self.task: TaskID = self.progress.add_task("", total=total, completed=done)
        self.progress.start()

    def started(self, run: Run) -> None:
        failed = f"{self.failed} failed · " if self.failed else ""
        text = f"{failed}block {run.repetition} · {run.point.label}"
        self.progress.update(self.task, description=printable(text))
        self.watch(run, self._say)

    def finished(self, run: Run, record: RunRecord) -> None:
        self.watched()
        if record.status != "ok":
            self.failed += 1
        if record.status != "ok" or record.cpu_limit:
            self._say(_outcome(run, record))
        self.progress.advance(self.task)

    def told(self, text: str) -> None:
        self._say(f"note: {printable(text)}")

    def _say(self, line: str) -> None:
        self.progress.console.print(line, markup=False, highlight=False)

    def more(self, count: int) -> None:
        total = self.progress.tasks[self.task].total or 0
        self.progress.update(self.task, total=total + count)

    def close(self) -> None:
        self.watched()
        if hasattr(self, "progress"):
            self.progress.stop()


def _bar(console: Console) -> Progress:
    """Count and remaining time first, whole at any width; the description has what is left."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    whole, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1)
    shown: list[ProgressColumn] = [
        MofNCompleteColumn(table_column=whole),
        TimeRemainingColumn(table_column=whole),
    ]
    if console.width >= _WIDTH_OF_BAR:
        shown.insert(1, BarColumn(bar_width=24, table_column=whole))
    shown.append(TextColumn("{task.description}", markup=False, table_column=rest))
    return Progress(*shown, console=console, transient=True, expand=True)


def _outcome(run: Run, record: RunRecord) -> str:
    from datapath.report import display

    if record.error is not None:
        result = f"FAILED: {in_a_line(record.error['message'])}"
    else:
        values = {entry["name"]: entry for entry in record.metrics}
        shown = [values[name] for name in _HEADLINES if name in values][:1]
        result = " ".join(
            f"{m['name']} {display.quantity(m['value'], m['unit'], m['name'])}" for m in shown
        )
        # The CPUs did not suffice, so the numbers are worth less.
        result = "; ".join(filter(None, (result, record.cpu_limit)))
    lines = [f"block {run.repetition}  {run.point.label}: {result} ({record.seconds:.1f} s)"]
    if record.error is not None and record.error["hint"]:
        lines.append(f"hint: {record.error['hint']}")
    return "\n".join(map(printable, lines))
