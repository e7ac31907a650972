# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl collective choose | doctor`, as far as no network is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datapath.collectives import check, load, make
from tests.cli.server import Dpctl
from tests.cli.told import told

ROOMY = 8 << 30
"""For a simulation."""
NETWORK = """\
version: 1
name: few
topology: {{lane: {lane}, preset: star, hosts: 4}}
path: {{rate: 1gbit, delay: 10us}}
transport: {{device: dp, port: udp}}
cc: {{algo: fixed}}
workload: {{kind: {kind}}}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "few.yaml"
    path.write_text(NETWORK.format(lane="sim", kind="collective"))
    return path


def test_choose_tells_the_algorithm_and_the_times_of_all(
    quick_dpctl: Dpctl, experiment: Path
) -> None:
    words = ("--collective", "broadcast", "--size", "1KiB", "--size", "32MiB", "--format", "json")
    done = quick_dpctl("collective", "choose", experiment, *words, memory_bytes=ROOMY)
    assert done.code == 0, done.err
    rows = told("collective choose", done.out)
    assert [row["size"] for row in rows] == [1024, 2**25]
    for row in rows:
        times = {name: row[f"{name}_ms"] for name in ("chain", "tree")}
        assert row["algorithm"] == min(times, key=lambda name: times[name])
    assert rows[1]["chain_ms"] > 2**25 * 8 / 1e6


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (("kind: collective", "kind: stream"), (), "no point has workload: {kind: collective}"),
        (("", ""), ("--collective", "broadcasts"), "no collective 'broadcasts'"),
        (("", ""), ("--size", "many"), "many"),
        (("algo: fixed", "algo: ./mine.py"), (), "mine.py"),
    ],
)
def test_what_cannot_be_chosen_for_is_told(
    quick_dpctl: Dpctl,
    experiment: Path,
    change: tuple[str, str],
    words: tuple[str, ...],
    message: str,
) -> None:
    experiment.write_text(experiment.read_text().replace(*change))
    done = quick_dpctl("collective", "choose", experiment, *words)
    assert done.code != 0
    assert message in done.err


OWN = """\
from datapath.collectives import algorithm

@algorithm("boom", collective="allreduce")
def boom(plan):
    {}
"""


def take_own(experiment: Path, body: str) -> Path:
    """A file with an algorithm of this body, which the experiment takes from now on."""
    own = experiment.parent / "boom.py"
    own.write_text(OWN.format(body))
    text = experiment.read_text()
    experiment.write_text(
        text.replace("kind: collective", "kind: collective, algorithm: ./boom.py")
    )
    return own


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print([0, 1][plan.ranks])", "boom.py:5: IndexError: list index out of range (with "),
        ("raise SystemExit", "boom.py:5: SystemExit"),
        ("__import__('sys').exit(0)", "boom.py:5: SystemExit: 0 (with "),
        ("pass\nraise SystemExit(0)", "boom.py:6: SystemExit: 0"),
        ("pass", "boom.py:3: algorithm boom: with "),
        ("plan.chunk(0, 'data', 0.5)", "boom.py:5: TypeError: index=0.5 is not a whole number"),
        ("plan.divide(plan.ranks / 1)", "boom.py:5: TypeError: chunks="),
        ("plan.divide(2**62)", "boom.py:5: ValueError: chunks=4611686018427387904 is more than"),
    ],
)
def test_a_mistake_in_an_algorithm_of_ones_own_has_its_line(
    quick_dpctl: Dpctl, experiment: Path, tmp_path: Path, body: str, message: str
) -> None:
    """In all commands that call the algorithm; it is no mistake in dpctl."""
    own = take_own(experiment, body)
    out = tmp_path / "out"
    for words in (
        ("collective", "check", own),
        ("collective", "plan", own, "--ranks", "4"),
        ("validate", experiment),
        ("run", experiment, "--out", out),
    ):
        done = quick_dpctl(*words)
        assert done.code == 2, words
        assert message in done.err
        assert "mistake in dpctl" not in done.err
    assert not out.exists()
    done = quick_dpctl("validate", experiment, "--format", "json")
    (problem,) = told("validate", done.out)
    assert (problem["line"], problem["path"]) == (7, "workload.algorithm")


TWICE = """\
total = plan.chunk(0, "data", 0)
    for rank in (*range(1, plan.ranks), 1):
        total = total.reduce(plan.chunk(rank, "data", 0))
"""


def test_a_plan_that_is_wrong_does_not_begin_to_run(
    quick_dpctl: Dpctl, experiment: Path, tmp_path: Path
) -> None:
    take_own(experiment, TWICE)
    out = tmp_path / "out"
    for words in (("validate", experiment), ("run", experiment, "--out", out)):
        done = quick_dpctl(*words)
        assert done.code == 2, words
        assert "it reduces the input of rank 1 a second time" in done.err
    assert not out.exists()


def test_a_long_plan_is_left_to_the_run(quick_dpctl: Dpctl, experiment: Path) -> None:
    """Its steps are so many that proving them would take minutes."""
    take_own(experiment, TWICE)
    done = quick_dpctl("validate", experiment, "--set", "workload.size=16GiB")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("rnig", "no collective algorithm is called 'rnig'; did you mean ring?"),
        ("ring, params: {foo: 1}", "algorithm ring has no parameter foo"),
        ("two_level, params: {per_node: x}", "per_node='x' is not a whole number"),
    ],
)
def test_validate_knows_the_algorithms(
    quick_dpctl: Dpctl, experiment: Path, algorithm: str, message: str
) -> None:
    text = experiment.read_text()
    experiment.write_text(
        text.replace("kind: collective", f"kind: collective, algorithm: {algorithm}")
    )
    done = quick_dpctl("validate", experiment)
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plan ring --ranks 4 --rank 4", "--rank 4: there are ranks 0 to 3"),
        ("plan ring --size 4 --item 8", "--size 4: it is a positive multiple of 8 bytes"),
        ("plan ring --size 1TiB --ranks 2", "524,288 are the most"),
        ("check ring --size 1TiB --ranks 2", "make 16,777,216 steps"),
        ("check ring --size 3", "--size 3: it is a positive multiple of 4 bytes"),
        ("check ring --size 0", "--size 0: it is a positive multiple of 4 bytes"),
        ("check ring -p foo=1", "error: algorithm ring has no parameter foo"),
        ("check two_level -p per_node=x", "per_node='x' is not a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    quick_dpctl: Dpctl, words: str, message: str
) -> None:
    done = quick_dpctl("collective", *words.split())
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "numbers of ranks" not in done.err


def record(folder: Path, **changes: object) -> None:
    """A result folder with one run of two ranks, whose link from 0 to 1 is slow."""
    plan = check(make(load("ring"), 4, 4096))
    logs = folder / "logs" / "few-0"
    logs.mkdir(parents=True)
    (folder / "runs").mkdir()
    plan.write(logs / "collective.plan")
    for rank in range(4):
        mine = plan.steps[plan.steps["rank"] == rank]
        took = [9_000_000 if rank == 0 and op == 0 else 50_000 for op in mine["op"]]
        rows = [f"{n}\t1\t{ns}\t{ns}" for n, ns in zip(mine["step"], took, strict=True)]
        text = "\n".join(["busy_ns\t99\tstill_ns\t0", "step\tcount\tsum_ns\tlongest_ns", *rows])
        (logs / f"collective-{rank}.steps").write_text(text)
    spec = {
        "topology": {"preset": "star", "hosts": 4},
        "path": {"rate": "1gbit", "delay": "10us"},
        "transport": {"device": "dp"},
        "workload": {"kind": "collective"},
    }
    of_run = {"point": "few", "repetition": 0, "status": "ok", "axes": {}, "spec": spec}
    of_run |= changes
    (folder / "runs" / "few-0.json").write_text(json.dumps(of_run))


def test_doctor_reads_a_folder(quick_dpctl: Dpctl, tmp_path: Path) -> None:
    record(tmp_path / "out")
    done = quick_dpctl("collective", "doctor", tmp_path / "out", memory_bytes=ROOMY)
    assert done.code == 0, done.err
    assert "few-0: the link from rank 0 to rank 1 deviates: a transfer takes 9 ms" in done.out
    table = done.out.splitlines()[1:]
    assert table[0].split()[:3] == ["run", "from", "to"]
    assert table[1].split()[:3] == ["few-0", "0", "1"]
    assert len(table) == 5


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({}, ("--run", "many-0"), "no such run"),
        ({"status": "failed"}, (), "no live collectives that ended well"),
        ({"point": "../few"}, (), "no live collectives that ended well"),
        ({"spec": 7}, (), "has no settings"),
        ({"spec": {"cc": {"algo": "./mine.py"}}}, (), "no code is run"),
        ({"spec": {"path": {"rate": "slow"}}}, (), "no simulated twin: path"),
        ({"spec": {"topology": {"preset": "star", "hosts": 5}}}, (), "4 ranks on 5 hosts"),
    ],
)
def test_folders_that_doctor_cannot_read_are_told(
    quick_dpctl: Dpctl,
    tmp_path: Path,
    changes: dict[str, object],
    words: tuple[str, ...],
    message: str,
) -> None:
    record(tmp_path / "out", **changes)
    done = quick_dpctl("collective", "doctor", tmp_path / "out", *words)
    assert done.code != 0
    assert "error: " in done.err
    assert "internal" not in done.err
    assert message in done.err
