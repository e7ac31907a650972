# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every input of the fuzzer's corpus, and random ones, through the same target."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clib import testlib

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())


@pytest.mark.san
def test_the_corpus_is_small() -> None:
    assert 20 < len(CORPUS) < 300
    assert all(path.stat().st_size <= 512 for path in CORPUS)


@pytest.mark.san
def test_the_corpus_passes() -> None:
    for path in CORPUS:
        data = path.read_bytes()
        print(path.name)  # the last name told is the one that crashed
        assert testlib.X_fuzz_packet(data, len(data)) == 0


@pytest.mark.san
@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400))
def test_random_inputs_pass(data: bytes) -> None:
    assert testlib.X_fuzz_packet(data, len(data)) == 0


def test_the_fuzzer_builds_and_runs() -> None:
    """It names its sources itself, and nothing else would notice one that it lacks."""
    script = Path(__file__).parent / "run.sh"
    done = subprocess.run([script, "1"], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DONE" in done.stderr
