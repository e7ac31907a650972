# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Errors come out of worker processes as they went in."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from datapath.errors import CapabilityError, DatapathError, LocalError
from datapath.experiment.document import InvalidFile
from datapath.experiment.load import load_text
from datapath.experiment.preflight import Lacking

WRONG = "{version: 1, name: x, topology: {lane: sim}, workload: {kind: bulk}, seed: no}"


def invalid() -> InvalidFile:
    with pytest.raises(InvalidFile) as caught:
        load_text(WRONG, Path("x.yaml"))
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        LocalError("a value is wrong", hint="take another"),
        invalid(),
        Lacking([CapabilityError("no perf", hint="install it"), LocalError("no file")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: DatapathError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.hint, again.args) == (str(error), error.hint, error.args)
    assert repr(vars(again)) == repr(vars(error))
