# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Python records are the C structs of engine/cc.h, byte for byte."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import cffi
import pytest

from datapath.cc import linking, load, records
from datapath.cc.algorithm import HOOKS


@pytest.fixture(scope="module")
def ffi() -> Any:
    """cffi over the header itself."""
    text = "".join(
        line
        for line in linking.HEADER.read_text().splitlines(keepends=True)
        if not line.startswith("#include")
    )
    command = ["gcc", "-E", "-P", "-x", "c", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    made = cffi.FFI()
    made.cdef(done.stdout)
    return made


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [
        ("dp_cc_flow", records.head_dtype("flow")),
        ("dp_cc_ack", records.ack_dtype()),
        ("dp_cc_loss", records.loss_dtype()),
        ("dp_cc_hop", records.hop_dtype()),
        ("dp_cc_port", records.head_dtype("port")),
        ("dp_cc_sender", records.head_dtype("sender")),
        ("dp_cc_data", records.data_dtype()),
    ],
)
def test_offsets_and_sizes(ffi: Any, struct: str, dtype: Any) -> None:
    in_c = [
        (name, field.offset, ffi.sizeof(field.type))
        for name, field in ffi.typeof(f"struct {struct}").fields
    ]
    in_python = [(name, dtype.fields[name][1], dtype[name].itemsize) for name in dtype.names]
    assert in_python == in_c
    assert dtype.itemsize == ffi.sizeof(f"struct {struct}")


def test_constants_and_hooks(ffi: Any) -> None:
    header = linking.HEADER.read_text()
    for name, value in [
        ("DP_CC_ABI", records.CC_ABI),
        ("DP_CC_HOPS_MAX", records.HOPS_MAX),
        ("DP_CC_FLOW_BYTES_MAX", records.FLOW_BYTES_MAX),
    ]:
        found = re.search(rf"#define {name} (\d+)", header)
        assert found
        assert int(found[1]) == value
    members = [name for name, _ in ffi.typeof("struct dp_cc_algo").fields]
    assert members[:5] == ["abi", "name", "by_path", "flow_bytes", "initial"]
    assert members[5:9] == ["port_bytes", "port_initial", "sender_bytes", "sender_initial"]
    assert members[9:] == [*HOOKS, "params"]


def test_parameters_and_state_follow_the_head() -> None:
    dctcp = load("dctcp")
    dtype = dctcp.flow_dtype()
    head = records.head_dtype("flow")
    assert list(dtype.names) == [*list(head.names or ()), *(item.name for item in dctcp.fields)]
    assert dtype.fields[dctcp.params[0].name][1] == head.itemsize
    assert dtype.itemsize == dctcp.flow_bytes <= records.FLOW_BYTES_MAX
    assert len(dctcp.image(dctcp.resolve({}))) == dctcp.flow_bytes
