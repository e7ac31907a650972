# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The traffic table: the same in Python and C, whole in files, and refused when it is wrong."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.errors import LocalError
from datapath.fabric import flows as ft
from datapath.native import paths
from datapath.quantiles import nearest_rank

HEADER = paths.PACKAGE / "fabric" / "flows.h"


def table(rows: int = 4) -> Any:
    flows = ft.empty(rows)
    flows["start_ns"] = np.arange(rows) * 1000
    flows["dst"] = 1
    flows["bytes"] = 5000
    return flows


# --- layout ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told_by_c(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Offsets, sizes, constants and buckets, printed by a C program that includes the header."""
    folder = tmp_path_factory.mktemp("flows")
    structs = {
        "dp_flow": ft.FLOW_DTYPE,
        "dp_flow_result": ft.RESULT_DTYPE,
        "dp_flow_table": ft.TABLE_DTYPE,
        "dp_flow_report": ft.REPORT_DTYPE,
    }
    lines = []
    for struct, dtype in structs.items():
        lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
        for name in dtype.names or ():
            member = f"(size_t)&((struct {struct} *)0)->{name}"
            size = f"sizeof(((struct {struct} *)0)->{name})"
            lines.append(f'printf("{struct}.{name} %zu\\n", {member});')
            lines.append(f'printf("{struct}.{name}.size %zu\\n", {size});')
    for constant in (
        "DP_LATENCY_BUCKETS",
        "DP_LATENCY_SUB_BITS",
        "DP_FLOW_ABI",
        "DP_FLOW_DEPTH_MAX",
    ):
        lines.append(f'printf("{constant} %d\\n", (int){constant});')
    for constant in ("DP_FLOW_UNTIL_STOP", "DP_FLOW_MESSAGE_MAX"):
        lines.append(f'printf("{constant} %llu\\n", (unsigned long long){constant});')
    for value in BUCKET_EXAMPLES:
        lines.append(f'printf("bucket.{value} %u\\n", dp_latency_bucket({value}ull));')
    source = folder / "told.c"
    body = "\n".join(lines)
    source.write_text(
        '#include <stdio.h>\n#include "fabric/flows.h"\n'
        f"int main(void)\n{{\n{body}\nreturn 0;\n}}\n"
    )
    program = folder / "told"
    build = ["gcc", "-Wall", "-Werror", "-I", str(paths.include_dir()), "-o", str(program)]
    subprocess.run([*build, str(source)], check=True)
    out = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: int(line.split()[1]) for line in out.splitlines()}


BUCKET_EXAMPLES = sorted(
    {0, 1, 127, 128, 255, 256, 257, 999, 10**6, 123_456_789_012, 2**63, 2**64 - 1}
    | {2**k + d for k in range(8, 64) for d in (-1, 0, 1)}
)


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [
        ("dp_flow", ft.FLOW_DTYPE),
        ("dp_flow_result", ft.RESULT_DTYPE),
        ("dp_flow_table", ft.TABLE_DTYPE),
        ("dp_flow_report", ft.REPORT_DTYPE),
    ],
)
def test_layout_is_that_of_c(told_by_c: dict[str, int], struct: str, dtype: Any) -> None:
    assert told_by_c[struct] == dtype.itemsize
    for name in dtype.names:
        assert told_by_c[f"{struct}.{name}"] == dtype.fields[name][1], name
        assert told_by_c[f"{struct}.{name}.size"] == dtype[name].itemsize, name
    text = HEADER.read_text()
    found = re.search(rf"^struct {struct} \{{(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert found
    declared = re.sub(r"/\*.*?\*/|\[\d+\]", "", found[1], flags=re.DOTALL)
    members = re.findall(r"(\w+)\s*[,;]", declared)
    assert members == list(dtype.names)  # and C has no member that Python has not


def test_constants_are_those_of_c(told_by_c: dict[str, int]) -> None:
    assert told_by_c["DP_LATENCY_BUCKETS"] == ft.LATENCY_BUCKETS
    assert told_by_c["DP_LATENCY_SUB_BITS"] == ft.LATENCY_SUB_BITS
    assert told_by_c["DP_FLOW_ABI"] == ft.ABI
    assert told_by_c["DP_FLOW_UNTIL_STOP"] == ft.UNTIL_STOP
    assert told_by_c["DP_FLOW_MESSAGE_MAX"] == ft.MESSAGE_MAX
    assert told_by_c["DP_FLOW_DEPTH_MAX"] == ft.DEPTH_MAX
    for name, magic in [("TABLE", ft.TABLE_MAGIC), ("REPORT", ft.REPORT_MAGIC)]:
        assert re.search(rf'#define DP_FLOW_{name}_MAGIC\s+"{magic.decode()}"', HEADER.read_text())


def test_buckets_are_those_of_c(told_by_c: dict[str, int]) -> None:
    ours = ft.bucket_of(BUCKET_EXAMPLES)
    assert ours.tolist() == [told_by_c[f"bucket.{value}"] for value in BUCKET_EXAMPLES]
    assert ours.min() == 0
    assert ours.max() == ft.LATENCY_BUCKETS - 1


# --- files -----------------------------------------------------------------------------------


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    flows = table()
    ft.write(tmp_path / "flows", flows, 2, seed=7)
    back, hosts = ft.read(tmp_path / "flows")
    assert np.array_equal(back, flows)
    assert hosts == 2


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "flows"
    ft.write(path, table(), 2)
    whole = path.read_bytes()
    for damaged, what in [
        (whole[:10], "less than its head"),
        (whole[:-1], "bytes of rows"),
        (whole + b"\0", "bytes of rows"),
        (b"x" + whole[1:], "begins with"),
        (whole[:8] + b"\x09" + whole[9:], "version 9"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(LocalError, match=what):
            ft.read(path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"src": 2}, "src is not one of the 2 hosts"),
        ({"dst": 9}, "dst is not one"),
        ({"dst": 0}, "same host"),
        ({"bytes": 0}, "at least one"),
        ({"depth": 0}, "depth is 0"),
        ({"depth": 2**20 + 1}, r"at most 2\^20 messages"),
        ({"bytes": ft.UNTIL_STOP, "message_bytes": 1}, "has no end"),
        ({"bytes": ft.UNTIL_STOP, "stop_ns": 10**9}, "needs message_bytes"),
        ({"stop_ns": 1}, "not after start_ns"),
        ({"bytes": 2**31}, "1 GiB"),
        ({"message_bytes": 2**31}, "1 GiB"),
        ({"opcode": 5}, "opcode"),
        ({"start_ns": 0}, "before the row above"),
    ],
)
def test_rows_without_sense_are_refused(change: dict[str, int], what: str) -> None:
    flows = table()
    for name, value in change.items():
        flows[name][2] = value
    with pytest.raises(LocalError, match=f"flow 2: .*{what}"):
        ft.check(flows, 2)


def test_join_orders_by_start() -> None:
    first, second = table(3), table(3)
    second["start_ns"] += 500
    second["tag"] = 1
    both = ft.join([first, second])
    assert both["start_ns"].tolist() == [0, 500, 1000, 1500, 2000, 2500]
    assert both["tag"].tolist() == [0, 1, 0, 1, 0, 1]


# --- results ---------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=50))
def test_quantiles_are_near_the_exact_ones(values: list[int]) -> None:
    latencies = ft.Latencies()
    latencies.add(values)
    assert latencies.count == len(values)
    assert (latencies.min_ns, latencies.max_ns) == (min(values), max(values))
    assert latencies.sum_ns == sum(values)
    ranked = sorted(values)
    for share in (0.0, 0.5, 0.9, 0.99, 1.0):
        exact = nearest_rank(ranked, share)
        assert latencies.quantile(share) == pytest.approx(exact, rel=1 / 128, abs=0.5)


def test_a_quantile_is_the_nearest_rank() -> None:
    """ceil(share * n), counted from 1; shares of a hundred are no binary fractions."""
    hundred = ft.Latencies()
    hundred.add(range(1, 101))
    for of_hundred in (1, 7, 29, 50, 58, 99, 100):
        share = of_hundred / 100
        assert hundred.quantile(share) == nearest_rank(range(1, 101), share) == of_hundred
    assert nearest_rank([10, 20], 0.5) == 10
    assert nearest_rank([10, 20], 0.51) == 20
    assert nearest_rank([10, 20], 0.0) == 10


def test_merged_latencies_are_those_of_all_values() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 10**9, 1000)
    whole, parts = ft.Latencies(), ft.Latencies()
    whole.add(values)
    for part in np.split(values, 4):
        one = ft.Latencies()
        one.add(part)
        parts.merge(one)
    parts.merge(ft.Latencies())
    assert np.array_equal(parts.counts, whole.counts)
    assert (parts.min_ns, parts.max_ns, parts.sum_ns) == (whole.min_ns, whole.max_ns, whole.sum_ns)
    samples = whole.samples(100)
    assert len(samples) == 100
    assert np.quantile(samples, 0.5) == pytest.approx(whole.quantile(0.5), rel=0.02)


def test_no_latencies_have_no_quantile() -> None:
    assert np.isnan(ft.Latencies().quantile(0.5))
    assert np.isnan(ft.Latencies().mean_ns)
    assert ft.Latencies().samples() == []


def result(first: int, count: int, host: int) -> ft.FlowResults:
    rows = np.zeros(count, ft.RESULT_DTYPE)
    rows["flow"] = np.arange(first, first + count)
    rows["finish_ns"] = 10 + rows["flow"]
    latencies = ft.Latencies()
    latencies.add([100 * (host + 1)] * count)
    return ft.FlowResults(rows, latencies, 10, 1, host)


def test_results_survive_their_file_and_merge(tmp_path: Path) -> None:
    for host, first in [(0, 2), (1, 0)]:
        result(first, 2, host).write(tmp_path / str(host))
    parts = [ft.FlowResults.read(tmp_path / str(host)) for host in (0, 1)]
    assert parts[0].host == 0
    whole = ft.FlowResults.merge(parts, table(4))
    assert whole.rows["flow"].tolist() == [0, 1, 2, 3]
    assert whole.rows["finish_ns"].tolist() == [10, 11, 12, 13]
    assert (whole.latencies.min_ns, whole.latencies.max_ns) == (100, 200)
    assert (whole.data_packets, whole.retransmitted_packets) == (20, 2)


def test_a_missing_or_doubled_row_is_an_error() -> None:
    with pytest.raises(LocalError, match="one to one"):
        ft.FlowResults.merge([result(0, 2, 0)], table(4))
    with pytest.raises(LocalError, match="one to one"):
        ft.FlowResults.merge([result(0, 4, 0), result(1, 1, 1)], table(4))


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result"
    result(0, 2, 0).write(path)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:50], whole + b"\0" * 8, b"y" + whole[1:]):
        path.write_bytes(damaged)
        with pytest.raises(LocalError):
            ft.FlowResults.read(path)
