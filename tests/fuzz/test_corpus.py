# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every input of the fuzzers' corpora, and random ones, through the same targets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clib import in_c, testlib

HERE = Path(__file__).parent
TARGETS = {
    "corpus": testlib.X_fuzz_packet,
    "corpus_cm": testlib.X_fuzz_cm,
    "corpus_vnic": testlib.X_fuzz_vnic,
}
every_target = pytest.mark.parametrize("corpus", TARGETS)


def inputs(corpus: str) -> list[Path]:
    return sorted((HERE / corpus).iterdir())


@pytest.mark.san
@every_target
def test_the_corpus_is_small(corpus: str) -> None:
    assert 20 < len(inputs(corpus)) < 300
    assert all(path.stat().st_size <= 512 for path in inputs(corpus))


@pytest.mark.san
@every_target
def test_the_corpus_passes(corpus: str) -> None:
    for path in inputs(corpus):
        data = path.read_bytes()
        print(path.name)  # the last name told is the one that crashed
        assert TARGETS[corpus](in_c(data), len(data)) == 0


@pytest.mark.san
@every_target
@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400))
def test_random_inputs_pass(corpus: str, data: bytes) -> None:
    assert TARGETS[corpus](in_c(data), len(data)) == 0


def test_the_fuzzer_builds_and_runs() -> None:
    """It names its sources itself, and nothing else would notice one that it lacks."""
    script = Path(__file__).parent / "run.sh"
    done = subprocess.run(
        [script, "1"],
        env={**os.environ, "FUZZ_LEVEL": "-O0"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("DONE") == len(TARGETS)
