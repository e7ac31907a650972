# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Errors that users see, and the exit code of dpctl that goes with each."""

from __future__ import annotations


class DatapathError(Exception):
    """An error told to the user in one line, with the next step as `hint`."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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
