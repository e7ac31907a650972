# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Loading BPF objects: maps hold what is written, and refusals are told in words."""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path

import pytest

from datapath.errors import LocalError
from datapath.native import paths
from datapath.xdp.loader import BpfObject
from tests.bpf import compile_bpf

pytestmark = pytest.mark.usefixtures("root")

UNSAFE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int unsafe(struct xdp_md *ctx)
{
    return *(volatile char *)(long)ctx->data;
}
char _license[] SEC("license") = "GPL";
"""


def test_map_entries_can_be_written_and_read() -> None:
    with BpfObject(paths.bpf_object("impair")) as bpf:
        ports = bpf.map("ports")
        key, value = struct.pack("=I", 7), struct.pack("=IHH", 1, 2, 3)
        assert ports.lookup(key) is None
        ports.update(key, value)
        assert ports.lookup(key) == value


def test_unknown_names_are_refused() -> None:
    with BpfObject(paths.bpf_object("impair")) as bpf:
        with pytest.raises(LocalError, match="no map nothing"):
            bpf.map("nothing")
        with pytest.raises(LocalError, match="no program nothing"):
            bpf.attach_tc_ingress("nothing", 1)


def test_an_unknown_device_is_refused() -> None:
    with BpfObject(paths.bpf_object("impair")) as bpf, pytest.raises(LocalError, match="999999"):
        bpf.attach_tc_ingress("dp_impair", 999999)


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file") as caught:
        BpfObject(tmp_path / "none.o")
    assert "build" in caught.value.hint
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(paths.bpf_object("impair").read_bytes()[:2000])
    with pytest.raises(LocalError, match="open"):
        BpfObject(damaged)


def test_the_verifier_speaks_for_itself(tmp_path: Path) -> None:
    source = tmp_path / "unsafe.c"
    source.write_text(UNSAFE)
    target = compile_bpf(source, tmp_path, "-g")
    with pytest.raises(LocalError) as caught:
        BpfObject(target)
    assert "invalid access to packet" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 10


def test_programs_are_far_from_the_verifiers_limit() -> None:
    """Another kernel's verifier may walk a program by more steps; it refuses after a million."""
    library = ctypes.CDLL("libbpf.so.1")
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, [ctypes.c_char_p, pointer]),
        ("bpf_object__next_program", pointer, [pointer, pointer]),
        ("bpf_program__set_log_level", ctypes.c_int, [pointer, ctypes.c_uint32]),
        ("bpf_program__set_log_buf", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.c_size_t]),
        ("bpf_object__load", ctypes.c_int, [pointer]),
        ("bpf_object__close", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for name in ("impair", "steer"):
        bpf = library.bpf_object__open_file(bytes(paths.bpf_object(name)), None)
        program = library.bpf_object__next_program(bpf, None)
        log = ctypes.create_string_buffer(1 << 16)
        library.bpf_program__set_log_level(program, 4)  # counts alone
        library.bpf_program__set_log_buf(program, log, len(log))
        try:
            assert library.bpf_object__load(bpf) == 0
        finally:
            library.bpf_object__close(bpf)
        found = re.search(rb"processed (\d+) insns", log.value)
        assert found, log.value
        assert int(found[1]) < 250_000, name
