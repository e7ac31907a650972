# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl xdp inspect: what it finds in objects, and what it says about other files."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from datapath.cli.app import app
from datapath.errors import LocalError
from datapath.native import paths
from datapath.xdp.inspect import Map, inspect
from tests.bpf import compile_bpf
from tests.cli.told import told

SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct value { __u64 packets; __u8 bytes[40]; };
typedef struct value value_t;
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, value_t);
} flows SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(key_size, 4);
    __uint(value_size, 4);
} events SEC(".maps");
const volatile int threshold = 7;

static __attribute__((noinline)) int helper(struct xdp_md *ctx)
{
    return ctx->data_end - ctx->data > threshold ? XDP_PASS : XDP_DROP;
}

SEC("xdp.frags/devmap") int jumbo(struct xdp_md *ctx) { return helper(ctx); }
SEC("xdp") int plain(struct xdp_md *ctx) { return helper(ctx) ? XDP_PASS : XDP_DROP; }
LICENCE
"""


def compiled(folder: Path, *options: str, licence: str = "GPL") -> Path:
    source = folder / "prog.c"
    line = f'char _license[] SEC("license") = "{licence}";' if licence else ""
    source.write_text(SOURCE.replace("LICENCE", line))
    return compile_bpf(source, folder, *options)


def test_programs_maps_and_licence(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, "-g"))
    programs = {program.name: program for program in found.programs}
    assert set(programs) == {"helper", "jumbo", "plain"}
    assert (programs["jumbo"].kind, programs["jumbo"].fragments) == ("xdp", True)
    assert (programs["plain"].kind, programs["plain"].fragments) == ("xdp", False)
    assert programs["helper"].kind == "subprogram"
    assert all(8 * p.instructions == p.bytes > 0 for p in found.programs)
    assert found.maps == [
        Map("flows", "lru_hash", 4, 48, 4096),
        Map("events", "perf_event_array", 4, 4, 0),
        Map(".rodata", "array", 4, 4, 1),
    ]
    assert (found.licence, found.gpl_compatible) == ("GPL", True)
    assert found.btf_bytes > 0
    assert found.line_info
    assert found.byte_order == "little"


def test_a_big_endian_object(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, "-g", "-target", "bpfeb"))
    assert found.byte_order == "big"
    assert found.maps[0] == Map("flows", "lru_hash", 4, 48, 4096)


def test_without_btf_or_licence(tmp_path: Path) -> None:
    found = inspect(compiled(tmp_path, licence=""))
    assert (found.btf_bytes, found.line_info, found.licence) == (0, False, "")
    assert not found.gpl_compatible
    assert {program.name for program in found.programs} == {"helper", "jumbo", "plain"}


def test_our_own_objects() -> None:
    impair, steer = (inspect(paths.bpf_object(name)) for name in ("impair", "steer"))
    assert [(p.name, p.kind) for p in impair.programs] == [("dp_impair", "tc")]
    assert {m.name for m in impair.maps} == {"ports", "addresses", "configs", "states", "parsed"}
    assert steer.programs[0].fragments, "veth refuses other programs at an MTU of 9000"
    assert impair.gpl_compatible
    assert steer.gpl_compatible


def test_the_table_and_the_json_say_the_same(tmp_path: Path) -> None:
    target = compiled(tmp_path, "-g", licence="Proprietary")
    found, command = inspect(target), ["xdp", "inspect", str(target)]
    text = CliRunner().invoke(app, command).output
    document = CliRunner().invoke(app, [*command, "--format", "json"]).output
    line = CliRunner().invoke(app, [*command, "--format", "ndjson"]).output
    assert json.loads(line) == json.loads(document)
    assert told("xdp inspect", document) == json.loads(json.dumps(asdict(found)))
    assert line.count("\n") == 1
    assert all(program.name in text for program in found.programs)
    assert all(found_map.name in text for found_map in found.maps)
    assert "not GPL-compatible" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a readable BPF object"),
        (b"\x7fELF", "not a readable BPF object"),
        (b"int main(void) { return 0; }", "Magic number"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "file.o"
    file.write_bytes(content)
    with pytest.raises(LocalError, match=words) as caught:
        inspect(file)
    assert "clang -target bpf" in caught.value.hint


def test_a_missing_file_and_a_program_of_this_machine() -> None:
    with pytest.raises(LocalError, match="No such file"):
        inspect(Path("/nonexistent.o"))
    with pytest.raises(LocalError, match="ELF file for"):
        inspect(Path("/bin/true"))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_objects_end_in_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    whole = paths.bpf_object("steer").read_bytes()
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)), "length")])
    for _ in range(data.draw(st.integers(0, 5), "changes") if damaged else 0):
        place = data.draw(st.integers(0, len(damaged) - 1), "place")
        damaged[place] = data.draw(st.integers(0, 255), "byte")
    file = tmp_path / "damaged.o"
    file.write_bytes(damaged)
    with contextlib.suppress(LocalError):
        inspect(file)
