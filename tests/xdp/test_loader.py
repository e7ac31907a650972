# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Loading BPF objects: maps hold what is written, and refusals are told in words."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from datapath.errors import LocalError
from datapath.native import paths
from datapath.xdp.loader import BpfObject

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
    source, target = tmp_path / "unsafe.c", tmp_path / "unsafe.o"
    source.write_text(UNSAFE)
    multiarch = subprocess.run(
        ["gcc", "-print-multiarch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    command = ["clang", "-target", "bpf", "-O2", "-g", "-idirafter", f"/usr/include/{multiarch}"]
    subprocess.run([*command, "-c", str(source), "-o", str(target)], check=True)
    with pytest.raises(LocalError) as caught:
        BpfObject(target)
    assert "invalid access to packet" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 10
