# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""AddressSanitizer sees what C does with memory that Python gave it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from datapath.native import paths

GIVEN = ("ffi.new('uint8_t[]', {})", "testffi.new('uint8_t[]', {})", "in_c(bytes({}))")


@pytest.mark.san
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("given", GIVEN)
def test_a_read_behind_the_end_is_found(given: str, size: int) -> None:
    if paths.build_name() != "build-san":
        pytest.skip("needs AddressSanitizer: dpctl selftest --stage san")
    code = (
        "from datapath.native import ffi\nfrom tests.clib import in_c, testffi, testlib\n"
        f"testlib.X_dp_get16({given.format(size)})"
    )
    options = os.environ["ASAN_OPTIONS"].partition(":log_path")[0]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ASAN_OPTIONS": options},
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("heap-buffer-overflow" in done.stderr) == (size < 2), done.stderr
    assert (done.returncode != 0) == (size < 2)
