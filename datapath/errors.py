# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Errors that users see, with the exit code of dpctl that goes with each; how programs ended."""

from __future__ import annotations

import signal
from typing import Any


class DatapathError(Exception):
    """An error told to the user in one line, with the next step as `hint`.

    A traceback shows the hint below the error.
    """

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        """From one process to another as it is, whatever the arguments of its class are."""
        return _again, (type(self), self.args, self.__dict__)


class LocalError(DatapathError):
    """The caller asked for something that is wrong: a bad value, file or state."""

    exit_code = 2


class RemoteError(DatapathError):
    """The peer broke the protocol or went away."""

    exit_code = 1


class CapabilityError(DatapathError):
    """This machine lacks something; `hint` says how to get it."""

    exit_code = 3


class RunFailed(DatapathError):
    """One run of a sweep gave no valid result; the sweep goes on."""

    exit_code = 1


def ending(status: int | None) -> str:
    """How a program ended, in words: "ended with status 1", "was killed by signal 9 (SIGKILL)".

    status: as subprocess.Popen.returncode; None: not known.
    """
    if status is None or status >= 0:
        return f"ended with status {status}"
    known = {number.value: f" ({number.name})" for number in signal.Signals}
    return f"was killed by signal {-status}{known.get(-status, '')}"


def _again(kind: type[DatapathError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
