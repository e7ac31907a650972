# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Damaged and hostile files: dpctl says what is wrong, and never that it is mistaken itself.

Valid experiments and a valid result folder are changed at random: bytes, values, whole files.
Whatever comes of it, dpctl ends with exit code 0 to 3, without a traceback, and in a process
with little memory.  DATAPATH_HOSTILE is the number of examples of each test; 30 unless set.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datapath import series
from datapath.native import paths
from tests.cli.server import Done, Dpctl
from tests.experiment.conftest import GOOD
from tests.report import folders

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = int(os.environ.get("DATAPATH_HOSTILE", "30"))
hostile = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
fewer = settings(hostile, max_examples=max(1, EXAMPLES // 3))
pytestmark = pytest.mark.timeout(600 if EXAMPLES <= 30 else 0)

EXPERIMENTS = [
    GOOD,
    *(path.read_text() for path in sorted((ROOT / "experiments").rglob("*.yaml"))),
]
WORDS = [
    *("null", "~", "true", "0", "-1", "-0.0", ".nan", ".inf", "-.inf", "1e400", "1e-400"),
    *("9" * 30, "9" * 5000, "0x" + "f" * 40, "1e999999999", "1e999999999gbit", "1e-999999999s"),
    *("1/0", "1/3", "101%", "1e308%", "٣", "1_000", "0o17", "+1", "1.5KiB", "-1us", "100 h"),
    *("[]", "{}", "[[]]", "[null]", "{a: b}", "{label: x}", "{label: null, set: {}}", "''"),
    *(
        '"\\0"',
        '"./x\\0.py"',
        '"\\ud800"',
        '"\\e[31m"',
        "./none.py",
        "./none.py:A",
        '"~no-such-user/x.py"',
        f"./{'x' * 300}.py",
        "/",
        ".",
        "/dev/null",
    ),
    *(
        "!!binary aGk=",
        "!!binary x",
        "!!set {a}",
        "!!omap [a: 1]",
        "!!map x",
        "!!seq {}",
        "!!str {}",
    ),
    *("!!int x", "!!float x", "!!timestamp x", "!!python/object:os.system x", "!x y", "2001-01-01"),
    *(
        "&a",
        "*a",
        "<<: *a",
        "<<: [*a, *a]",
        "? [a]",
        "? {a: b}",
        "- ",
        ": ",
        "\t",
        "|",
        ">",
        "%YAML 9.9",
    ),
    *(
        "---",
        "...",
        "#",
        "@",
        "`",
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        ",",
        "=",
        "\n",
        "\r",
        "\x00",
        "\x1b",
    ),
    *("sweep", "matrix", "include", "exclude", "adjust", "where", "set", "label", "baseline"),
    *("path.loss", "topology.lane", "workload", "cc.algo", "cc.params", "path.faults.0.nth"),
    *("sim", "ssh", "vm", "netns", "leaf-spine", "hosts", "value", "point", "ratio_to", "min"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 2**64, 10**400, 1e308, -1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "\x1b[31m",
        "\ud800",
        "\0",
        "nan",
        "inf",
        "1e400",
        "9" * 5000,
        "../../etc",
        "~no-such-user/x.py",
        ["cc.algo=~no-such-user/x.py"],
        [f"cc.algo=./{'x' * 300}.py", "xdp.source=/", "topology={ssh_config: '\0'}"],
        "x" * 9000,
    ),
    *([], {}, [[]], [None], {"a": None}, {"": {}}, [{}] * 3, {"label": []}, {"min": "x"}),
    *("goodput", "latency_p50", "ok", "failed", "bit/s", "ns", "2026-01-01T00:00:00Z", "started"),
    *("point", "metric", "value", "unit", "status", "block", "repetition", "axes", "error"),
]

words = st.sampled_from(WORDS)
places = st.floats(0, 1, exclude_max=True)
edits = st.lists(
    st.tuples(
        st.sampled_from(["insert", "replace", "cut", "repeat", "byte", "token", "move"]),
        *(places, places, words),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)
Edit = tuple[str, float, float, str, int]


def edited(content: bytes, changes: list[Edit]) -> bytes:
    """The content after some edits at places that are shares of its length."""
    for kind, start, length, word, byte in changes:
        at, size = int(start * len(content)), 1 + int(length**4 * min(len(content), 4000))
        before, part, after = content[:at], content[at : at + size], content[at + size :]
        new = word.encode("utf-8", "surrogatepass")
        if kind == "token":
            content = _token(content, at, new)
        else:
            content = {
                "insert": before + new + part + after,
                "replace": before + new + after,
                "cut": before + after,
                "repeat": before + part * (1 + byte % 8) + after,
                "byte": before + bytes([byte]) + part[1:] + after,
                "move": before + after[: len(after) // 2] + part + after[len(after) // 2 :],
            }[kind]
    return content


def _token(content: bytes, at: int, new: bytes) -> bytes:
    """Put a word where one stands."""
    ends = b" ,:[]{}\n"
    start = end = at
    while start > 0 and content[start - 1] not in ends:
        start -= 1
    while end < len(content) and content[end] not in ends:
        end += 1
    return content[:start] + new + content[end:]


def sound(done: Done, codes: tuple[int, ...] = (0, 1, 2, 3)) -> None:
    assert done.code in codes, done.err
    assert "internal" not in done.err
    assert "Traceback" not in done.err + done.out
    assert (done.code == 0) or "error: " in done.err or done.out


@hostile
@given(st.sampled_from(EXPERIMENTS), edits)
def test_experiment_files(quick_dpctl: Dpctl, text: str, changes: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as here:
        path = Path(here, "x.yaml")
        path.write_bytes(edited(text.encode(), changes))
        sound(quick_dpctl("validate", path), (0, 2))
        sound(quick_dpctl("run", path, "--dry-run", "--format", "json"), (0, 2))


@hostile
@given(
    st.sampled_from(EXPERIMENTS),
    st.lists(st.tuples(words, words, words).map(lambda w: f"{w[0]}.{w[1]}={w[2]}"), max_size=3),
)
def test_settings(quick_dpctl: Dpctl, text: str, overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as here:
        path = Path(here, "x.yaml")
        path.write_text(text)
        asked = [f"--set={word}" for word in overrides if not set(word) & {"\0", "\ud800"}]
        sound(quick_dpctl("validate", path, *asked), (0, 2))


# --- result folders ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders with every kind of file, one for each plot, since drawing takes most of the time."""
    here = tmp_path_factory.mktemp("whole")
    return [_whole(here / f"r{index}", plot) for index, plot in enumerate(PLOTS)]


def _whole(folder: Path, plot: dict[str, Any]) -> Path:
    folders.write(folder, repetitions=1, failed=[(0, 0)], report={"plots": [plot]})
    (folder / "series").mkdir()
    for record in sorted((folder / "runs").glob("*.json"))[1:3]:
        quantities = {name: np.arange(20.0) for name in series.COLUMNS}
        flow = series.table(time_ns=np.arange(20), host="h0", qp=17, **quantities)
        link = series.table(time_ns=np.arange(20), link="up", queue_bytes=np.arange(20.0))
        both = pd.concat([flow, link]).assign(run=record.stem)
        both.to_parquet(folder / "series" / f"{record.stem}.parquet", index=False)
    return folder


PLOTS = [
    {"kind": "line", "metric": "goodput", "x": "path.loss", "series": "stack"},
    {"kind": "bar", "metric": ["latency_p50", "latency_p99"], "where": {"test": "64 B send"}},
    {"kind": "cdf", "metric": "latency"},
    {"kind": "series", "metric": ["cwnd", "rtt", "rate"], "repetition": 0, "qps": [0]},
]


def steps(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all parts of JSON data."""
    yield path
    if isinstance(data, (dict, list)):
        for key, part in data.items() if isinstance(data, dict) else enumerate(data):
            yield from steps(part, (*path, key))


def with_value(content: bytes, place: float, value: Any) -> bytes:
    """JSON with another value in one place."""
    data = json.loads(content)
    paths = list(steps(data))
    path = paths[int(place * len(paths))]
    if not path:
        return json.dumps(value).encode()
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    return json.dumps(data).encode()


def with_column(file: Path, place: float, value: Any, kind: str) -> None:
    """A table with a column that is gone, has another name or holds something else."""
    frame = pd.read_parquet(file)
    name = frame.columns[int(place * len(frame.columns))]
    if kind == "cut":
        frame = frame.drop(columns=name)
    elif kind == "move" and isinstance(value, str) and value not in frame:
        frame = frame.rename(columns={name: value.encode("utf-8", "replace").decode()})
    elif isinstance(value, str):
        frame[name] = value.encode("utf-8", "replace").decode()
    elif not isinstance(value, (list, dict)) and not _too_long(value):
        frame[name] = value
    frame.to_parquet(file)


def _too_long(value: Any) -> bool:
    """No column of a table holds it."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


changes_of_files = st.lists(
    st.tuples(
        places,
        st.sampled_from(["bytes", "value", "value", "value", "end", "gone", "folder", "loop"]),
        *(edits, places, st.sampled_from(VALUES)),
    ),
    min_size=1,
    max_size=3,
)


def spoil(folder: Path, change: tuple[float, str, list[Edit], float, Any]) -> None:
    """Change one file; those at the top, which are read always, as often as all the others."""
    which, kind, changes, place, value = change
    top = sorted(path for path in folder.iterdir() if path.is_file())
    rest = sorted(path for path in folder.rglob("*") if path.is_file() and path not in top)
    files = top if which < 0.5 else rest
    if not files:
        return
    file = files[int(which % 0.5 * 2 * len(files))]
    content = file.read_bytes()
    try:
        if kind == "value" and file.suffix == ".parquet":
            with_column(file, place, value, changes[0][0])
            return
        if kind == "value" and file.suffix == ".json":
            content = with_value(content, place, value)
        else:
            content = edited(content, changes)
    except (ValueError, OSError, IndexError):
        content = edited(content, changes)  # an earlier change has spoiled it already
    if kind == "end":
        content = content[: int(place * len(content))]
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind != "gone":
        file.write_bytes(content)


@fewer
@given(st.integers(0, len(PLOTS) - 1), changes_of_files)
def test_result_folders(
    quick_dpctl: Dpctl, whole: list[Path], which: int, changes: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as here:
        folder = Path(here, "results", "r")
        shutil.copytree(whole[which], folder)
        for change in changes:
            spoil(folder, change)
        sound(quick_dpctl("list", cwd=Path(here)), (0,))
        sound(quick_dpctl("report", folder, "--format", "json"), (0, 2))
        sound(quick_dpctl("show", folder), (0, 2))
        sound(quick_dpctl("show", folder, "--metric", "all", "--ratio"), (0, 2))
        sound(quick_dpctl("show", folder, "--format", "json"), (0, 2))
        sound(quick_dpctl("series", folder), (0, 2))
        for file in sorted((folder / "series").glob("*"))[:1]:
            sound(quick_dpctl("series", folder, file.stem), (0, 2))


@hostile
@given(
    st.sampled_from(EXPERIMENTS),
    *(
        st.sampled_from(("experiment.yaml", "manifest.json")),
        edits,
        places,
        st.sampled_from(VALUES),
    ),
    st.lists(words.map(lambda word: f"cc.algo={word}"), max_size=2),
)
def test_going_on(
    quick_dpctl: Dpctl,
    text: str,
    spoiled: str,
    changes: list[Edit],
    place: float,
    value: Any,
    overrides: list[str],
) -> None:
    """A folder to go on with, without a run; dpctl looks at it, and runs nothing."""
    with tempfile.TemporaryDirectory() as here:
        folder = Path(here, "results", "r")
        folder.mkdir(parents=True)
        (folder / "experiment.yaml").write_text(text)
        manifest = json.dumps(
            {
                "source": str(ROOT / "experiments" / "x.yaml"),
                "overrides": overrides,
                "seal": {"files": {"x": "y"}, "hmac": "z"},
            }
        ).encode()
        if spoiled == "manifest.json":
            manifest = with_value(manifest, place, value)
        else:
            (folder / spoiled).write_bytes(edited(text.encode(), changes))
        (folder / "manifest.json").write_bytes(manifest)
        sound(quick_dpctl("run", "--resume", folder, "--dry-run"), (0, 2))
        sound(quick_dpctl("run", "--resume", folder, "--dry-run", "--trust"), (0, 2))
        sound(quick_dpctl("clean", "--results", "--keep", "0", "--dry-run", cwd=Path(here)), (0,))


# --- other files -------------------------------------------------------------------------------


@fewer
@given(edits)
def test_bpf_objects(quick_dpctl: Dpctl, changes: list[Edit]) -> None:
    whole = (paths.ROOT / "build" / "datapath" / "xdp" / "steer.bpf.o").read_bytes()
    with tempfile.TemporaryDirectory() as here:
        path = Path(here, "x.o")
        path.write_bytes(edited(whole, changes))
        sound(quick_dpctl("xdp", "inspect", path), (0, 2))


@fewer
@given(edits)
def test_flow_sizes(quick_dpctl: Dpctl, changes: list[Edit]) -> None:
    sizes = paths.PACKAGE / "workloads" / "traffic" / "cdf" / "websearch.cdf"
    with tempfile.TemporaryDirectory() as here:
        path = Path(here, "x.yaml")
        path.write_text(SIZES)
        Path(here, "x.cdf").write_bytes(edited(sizes.read_bytes(), changes))
        Path(here, "x.trace").write_bytes(edited(b"1\n2\n2\n5\n", changes))
        sound(quick_dpctl("validate", path), (0, 2))


SIZES = """\
version: 1
name: sizes
topology: {lane: sim}
path: {trace: x.trace, jitter: {model: trace, samples: ./x.trace}, queue: 64KiB}
transport: {port: udp}
workload: {kind: flows, load: 50%, sizes: ./x.cdf, duration: 1ms}
"""
