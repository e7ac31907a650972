# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Small files that stand for gigabytes are refused, in a process that could not hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.server import Dpctl
from tests.cli.told import told
from tests.report import folders

HEAD = "version: 1\nname: big\nworkload: {kind: perftest, test: write_bw}\n"
SIM = """\
version: 1
name: big
topology: {lane: sim}
path: {delay: 1us, rate: 1gbit, queue: 64KiB<path>}
transport: {port: udp}
workload: {kind: flows, load: 50%, sizes: <sizes>, duration: 1ms}
"""


def alias_bomb() -> str:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    return "\n".join(["a0: &a0 [lol]", *levels])


def merge_bomb() -> str:
    levels = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 9)]
    return "\n".join(["a0: &a0 {x: 1}", *levels])


def axes(count: int, values: int) -> str:
    listed = ", ".join(map(str, range(1, values + 1)))
    names = ("size", "iterations", "qps", "tx_depth", "rx_depth", "outstanding")
    lines = "".join(f"    workload.{name}: [{listed}]\n" for name in names[:count])
    return f"{HEAD}sweep:\n  repetitions: 1\n  matrix:\n{lines}"


FAULT = "{direction: forward, opcode: any, action: drop, nth: 1}"
FILES = {
    "aliases": (alias_bomb(), "more than 10,000 values, with a copy for each alias (*)\n"),
    "merges": (merge_bomb(), "more than 10,000 values"),
    "list": (f"{HEAD}x: [{'1,' * 400_000}]", "more than 10,000 values\n"),
    "size": (f"{HEAD}description: {'x' * 2_000_000}", "larger than 1,048,576 bytes"),
    "flow nesting": (f"{HEAD}x: {'[' * 5000}{']' * 5000}", "nested more than 50 deep"),
    "block nesting": (f"{HEAD}x:\n {'- ' * 5000}", "nested more than 50 deep"),
    "product": (axes(3, 1000), "1,000,000,000 points x 1 repetitions are 1,000,000,000 runs"),
    "excluded": (
        f"{axes(3, 1000)}  exclude: [{{workload.size: 1}}]",
        "1,000,000,000 combinations of axis values are too many to exclude some",
    ),
    "points": (
        f"{axes(2, 200)}path: {{faults: [{', '.join([FAULT] * 200)}]}}",
        "the most in all is 10,000,000",
    ),
    "number": (f"{HEAD}seed: 0x{'f' * 10_000}", "seed: a whole number has at most 64 bits"),
    "infinity": (f"{HEAD}seed: .inf", "seed: .inf is not a finite number"),
}


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_that_explodes_is_refused(
    quick_dpctl: Dpctl, tmp_path: Path, name: str
) -> None:
    text, said = FILES[name]
    path = tmp_path / "x.yaml"
    path.write_text(text)
    done = quick_dpctl("validate", path, memory_bytes=256 * 2**20)
    assert done.code == 2, done.err
    assert said in done.err
    assert done.err.count("error: ") <= 101


def test_a_thousand_mistakes_are_not_all_told(quick_dpctl: Dpctl, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + "".join(f"key{i}: 1\n" for i in range(1000)))
    done = quick_dpctl("validate", path)
    assert done.code == 2
    assert done.err.count("error: ") == 101
    assert "and 900 more problems" in done.err


@pytest.mark.parametrize(
    ("path", "sizes", "said"),
    [
        (", trace: /dev/zero", "websearch", "larger than 8,388,608 bytes"),
        (", jitter: {model: trace, samples: /dev/zero}", "websearch", "larger than 8,388,608"),
        ("", "/dev/zero", "larger than"),
    ],
)
def test_a_file_without_an_end_is_refused(
    quick_dpctl: Dpctl, tmp_path: Path, path: str, sizes: str, said: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(SIM.replace("<path>", path).replace("<sizes>", sizes))
    done = quick_dpctl("validate", file, memory_bytes=256 * 2**20)
    assert done.code == 2, done.err
    assert said in done.err


# --- result folders ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folders.write(tmp_path / "results" / "r", repetitions=1, samples=False)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def repeated_rows(path: Path) -> None:
    """A hundred million rows of three columns in less than a megabyte."""
    zeros = pa.array(np.zeros(1_000_000, np.int32))  # dictionaries: written without a look at texts
    part = pa.table(
        {
            "point": pa.DictionaryArray.from_arrays(zeros, ["x"]),
            "metric": pa.DictionaryArray.from_arrays(zeros, ["goodput"]),
            "value": pa.DictionaryArray.from_arrays(zeros, [1.0]),
        }
    )
    with pq.ParquetWriter(path, part.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(100):
            writer.write_table(part, row_group_size=1_000_000)


def repeated_text(path: Path) -> None:
    """One text of a megabyte, in a million rows."""
    column = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, np.int32), ["x" * 1_000_000])
    pq.write_table(pa.table({"point": column}), path, store_schema=False)


def nested_column(path: Path) -> None:
    pd.DataFrame({"point": [[["x"] * 100]] * 100}).to_parquet(path)


def aliases(path: Path) -> None:
    path.write_text(alias_bomb())


def deep_json(path: Path) -> None:
    path.write_text(nested(900))


def deeper_json(path: Path) -> None:
    path.write_text(nested(200_000))


def long_json(path: Path) -> None:
    path.write_text(f"[{','.join(['{}'] * 4_000_000)}]")


HOSTILE = [
    ("runs.parquet", repeated_rows, "300,000,000 values"),
    ("runs.parquet", repeated_text, "1,000,000,000,000 bytes of text"),
    ("runs.parquet", nested_column, "something else than numbers"),
    ("resolved.yaml", aliases, "more than 10,000 values"),
    *((name, deep_json, "nested more than 50") for name in ("claims.json", "manifest.json")),
    *((name, deeper_json, "nested more than 50") for name in ("claims.json", "manifest.json")),
    *((name, long_json, "the most is 2,000,000") for name in ("claims.json", "manifest.json")),
]


@pytest.mark.parametrize(("name", "write", "said"), HOSTILE)
def test_a_result_folder_that_explodes_is_reported_without_that_file(
    quick_dpctl: Dpctl, folder: Path, name: str, write: object, said: str
) -> None:
    assert callable(write)
    write(folder / name)
    done = quick_dpctl("show", folder)
    assert (done.code, done.err) == (0, "")
    text = " ".join(done.out.split())  # lines end at the terminal's width
    assert f"note: {name} cannot be read: " in text
    assert said in text
    listed = quick_dpctl("list", "--format", "json", cwd=folder.parent.parent)
    assert listed.code == 0, listed.err
    assert len(told("list", listed.out)) == 1


@pytest.mark.parametrize("write", [deep_json, deeper_json, long_json])
def test_a_run_that_explodes_is_named(quick_dpctl: Dpctl, folder: Path, write: object) -> None:
    assert callable(write)
    write(folder / "runs" / "0-0.json")
    done = quick_dpctl("show", folder)
    assert (done.code, done.err) == (0, "")
    assert "note: 0-0.json cannot be read: " in done.out
