# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""setup/cdef.py: C headers become what cffi reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cffi
import pytest

from datapath.native import ffi, lib, paths

HEADER = """
#include <stdbool.h>
#include <stdint.h>
#include "second.h"
#define DP_SIZE (1u << 4)
#define DP_BIG UINT64_MAX
#define DP_HEX 0x10UL
#define DP_NAME "text"
#define DP_CALL(x) (x)
#define OTHER 5
#define LIST(X) X(one) X(two)
_Static_assert(sizeof(int) == 4, "a { in a string is no brace");
struct counters {
#define X(name) uint64_t name;
	LIST(X)
#undef X
} __attribute__((aligned(64)));
static inline int twice(int x)
{
	if (x) { return 2 * x; }
	return 0;
}
/* bool is a macro of a system header, which leaves line markers behind */
bool is_even(int x);
int after(struct second *, unsigned a[DP_HEX]);
"""


@pytest.fixture
def cdef(tmp_path: Path) -> tuple[str, str]:
    """(declarations, dependencies) made from HEADER."""
    (tmp_path / "first.h").write_text(HEADER)
    (tmp_path / "second.h").write_text("struct second { int8_t x; };\n")
    output, depfile = tmp_path / "out.cdef", tmp_path / "out.d"
    command: list[str | Path] = [
        sys.executable,
        paths.ROOT / "setup" / "cdef.py",
        "--output",
        output,
    ]
    command += ["--depfile", depfile, "--include", tmp_path, tmp_path / "first.h"]
    subprocess.run([*command, "--compiler", "cc"], check=True)
    return output.read_text(), depfile.read_text()


def test_cffi_reads_it(cdef: tuple[str, str]) -> None:
    own = cffi.FFI()
    own.cdef(cdef[0])
    assert own.sizeof("struct counters") == 16
    assert own.sizeof("struct second") == 1
    assert str(own.typeof("int(*)(struct second *, unsigned *)"))


def test_numbers_only(cdef: tuple[str, str]) -> None:
    text = cdef[0]
    assert "#define DP_BIG 18446744073709551615" in text
    assert "#define DP_HEX 0x10" in text
    for absent in ("DP_NAME", "DP_CALL", "DP_SIZE", "OTHER", "twice", "aligned", "_Static_assert"):
        assert absent not in text
    assert "is_even" in text
    assert "after" in text


def test_a_changed_header_is_a_reason_to_build(cdef: tuple[str, str]) -> None:
    assert "second.h" in cdef[1]
    assert "stdint.h" not in cdef[1]


@pytest.mark.san
def test_the_library_answers() -> None:
    assert ffi.sizeof("struct dp_sge") == 16
    assert ffi.string(lib.dp_opcodes[lib.DP_OP_SEND_ONLY].name) == b"SEND_ONLY"
    assert lib.DP_NEVER == 2**64 - 1
