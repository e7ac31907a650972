# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Simulated sweeps: the same results in one process, in several, and on a cluster."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from datapath.errors import CapabilityError, RemoteError
from datapath.experiment import parallel
from datapath.experiment.load import load
from datapath.experiment.sweep import schedule
from tests.cli.server import dpctl
from tests.processes import alive, descendants
from tests.waiting import LIMIT_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """\
version: 1
name: simulated
topology: {lane: sim, preset: dumbbell, hosts: 4}
path: {rate: 10gbit, delay: 10us, queue: 100kB}
workload: {kind: traffic, duration: 5ms, flows: [{name: all, from: 0-1, to: 2-3}]}
cc: {algo: ./mine.py:Mine}
events:
  - {when: {delivered: 1MB}, path: {rate: 5gbit}, label: half}
  - {when: {event: half, later: 1ms}, stall: host0, lasts: 200us}
  - {when: {delivered: 1200kB}, stop: all, label: pause}
  - {when: {event: pause, later: 300us}, start: all}
  - {when: {queue: 20kB}, cc: {algo: newreno}}
collect: {series: [cwnd, queue], interval: 1ms}
sweep:
  matrix: {path.loss: [0, 1%]}
  repetitions: 2
"""
ALGORITHM = '''\
from datapath.cc import Ack, Flow, algorithm, param


@algorithm("mine", source="a test")
class Mine:
    """A window that stays."""

    window_bytes: float = param(100_000, unit="bytes", doc="Its size.")

    def on_ack(flow: Flow, ack: Ack) -> None:
        flow.cwnd_bytes = flow.window_bytes
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(ALGORITHM)
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    return path


def results(folder: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    table = pd.read_parquet(folder / "runs.parquet").drop(columns=["started", "seconds"])
    series = {p.name: pd.read_parquet(p) for p in sorted((folder / "series").glob("*.parquet"))}
    return table, series


def events(folder: Path) -> dict[str, Any]:
    """Name of a run -> its events with their times."""
    records = sorted((folder / "runs").glob("*.json"))
    return {path.name: json.loads(path.read_text())["series"]["events"] for path in records}


def assert_same(one: Path, other: Path) -> None:
    (table, series), (other_table, other_series) = results(one), results(other)
    assert len(table) > 40
    pd.testing.assert_frame_equal(table, other_table)
    assert len(series) == 4
    assert events(one) == events(other)
    assert all(len(happened) == 5 for happened in events(one).values())
    assert series.keys() == other_series.keys()
    for name, frame in series.items():
        pd.testing.assert_frame_equal(frame, other_series[name])


def test_a_sweep_is_the_same_on_one_core_and_on_several(file: Path, tmp_path: Path) -> None:
    for jobs in (1, 2):
        done = dpctl("run", "--no-report", file, "--out", tmp_path / str(jobs), "--jobs", jobs)
        assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "1", tmp_path / "2")
    manifest = json.loads((tmp_path / "1" / "manifest.json").read_text())
    assert [network["lane"] for network in manifest["networks"]] == ["sim"]


CLOUD = """\
version: 1
name: cloud
topology: {lane: sim, mtu: 1500}
path: {rate: 100mbit, delay: 1ms, queue: 1MB}
workload: {kind: stream, size: 64KiB, depth: 4, duration: 200ms}
transport: {ecn: false}
cc: {algo: newreno}
sweep:
  matrix:
    shape:
      - {label: plain, set: {}}
      - {label: policer, set: {path.policer: {rate: 50mbit, burst: 60kB}}}
      - {label: codel, set: {path.aqm: {model: codel, target: 1ms, interval: 10ms}}}
      - {label: fq-codel, set: {path.aqm: {model: fq-codel, target: 1ms, interval: 10ms}}}
      - {label: pie, set: {path.aqm: {model: pie, target: 1ms, update: 1ms, max_burst: 0}}}
      - label: bursts
        set: {path.loss: {model: gilbert-elliott-time, good_time: 9ms, bad_time: 1ms}}
  repetitions: 1
report:
  expect:
    - {metric: path_policed, where: {shape: policer}, min: 1}
    - {metric: path_aqm_dropped, where: {shape: codel}, min: 1}
    - {metric: path_aqm_dropped, where: {shape: fq-codel}, min: 1}
    - {metric: path_aqm_dropped, where: {shape: pie}, min: 1}
    - {metric: path_dropped, where: {shape: bursts}, min: 1}
    - {metric: path_policed, where: {shape: plain}, max: 0}
    - {metric: path_aqm_dropped, where: {shape: plain}, max: 0}
"""


def test_policers_aqms_and_bursts_by_time_are_part_of_an_experiment(tmp_path: Path) -> None:
    """What each of them drops is a metric, on which claims are made."""
    path = tmp_path / "cloud.yaml"
    path.write_text(CLOUD)
    done = dpctl("run", "--no-report", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    claims = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert [claim["pass"] for claim in claims] == [True] * 7


def test_a_sweep_is_the_same_on_a_cluster(file: Path, tmp_path: Path) -> None:
    """Its workers have neither the experiment's folder nor the user's algorithm."""
    distributed = importlib.import_module("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        done = dpctl("run", "--no-report", file, "--out", tmp_path / "dask", "--dask", address)
        assert done.returncode == 0, done.stderr
    assert dpctl("run", "--no-report", file, "--out", tmp_path / "here").returncode == 0
    assert_same(tmp_path / "dask", tmp_path / "here")


def certificate(folder: Path) -> dict[str, str]:
    """A certificate that signs itself, and Dask's settings by which both ends show and want it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    begin = datetime.now(UTC) - timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=3))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, keys = folder / "certificate.pem", folder / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    keys.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    start = "DASK_DISTRIBUTED__COMM__TLS"
    return {
        f"{start}__CA_FILE": str(pem),
        f"{start}__CLIENT__CERT": str(pem),
        f"{start}__CLIENT__KEY": str(keys),
    }


def test_a_cluster_with_tls_knows_its_own(file: Path, tmp_path: Path) -> None:
    """docs/simulator.md: certificates by Dask's own configuration, and a tls:// address."""
    distributed = importlib.import_module("distributed")
    (tmp_path / "other").mkdir()
    ours, others = certificate(tmp_path), certificate(tmp_path / "other")
    pem, keys = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    ends = {f"tls_{end}_cert": pem for end in ("scheduler", "worker", "client")}
    ends |= {f"tls_{end}_key": keys for end in ("scheduler", "worker", "client")}
    security = distributed.Security(tls_ca_file=pem, require_encryption=True, **ends)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls",
        security=security,
        dashboard_address=None,
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        words = ("run", "--no-report", file, "--dask", address, "--out")
        done = dpctl(*words, tmp_path / "x", env={**os.environ, **ours})
        assert done.returncode == 0, done.stderr
        for refused in (others, {}):
            done = dpctl(*words, tmp_path / "y", env={**os.environ, **refused})
            assert done.returncode == 2, done.stderr
            assert f"no Dask scheduler at {address}" in done.stderr
            assert "distributed.comm.tls" in done.stderr
            shutil.rmtree(tmp_path / "y")


def test_no_scheduler_is_told(file: Path, tmp_path: Path) -> None:
    done = dpctl("run", "--no-report", file, "--out", tmp_path / "x", "--dask", "127.0.0.1:9")
    assert done.returncode == 2
    assert "no Dask scheduler at 127.0.0.1:9" in done.stderr


def test_a_task_takes_its_files_along(file: Path) -> None:
    experiment = load(file, [])
    run = schedule(experiment.points, experiment.spec.sweep, 1)[0]
    collect = experiment.spec.collect
    task = parallel.task(run, collect, experiment.folder, 60, travels=True)
    assert task.files == {"0/mine.py": ALGORITHM.encode()}
    assert task.spec["cc"]["algo"] == "./0/mine.py:Mine"
    (file.parent / "mine.py").unlink()
    answer = parallel.measure(task)
    assert answer.error is None
    assert {metric.name for metric in answer.metrics} >= {"goodput", "fairness"}


def travelled(file: Path) -> None:
    """The run of a file gives the same on a machine that has nothing but its task."""
    experiment = load(file, [])
    (run,) = schedule(experiment.points, experiment.spec.sweep, 1)
    here, there = (
        parallel.task(run, experiment.spec.collect, file.parent, 60, travels=travels)
        for travels in (False, True)
    )
    answer = parallel.measure(here)
    shutil.rmtree(file.parent)
    other = parallel.measure(there)
    assert (answer.error, other.error) == (None, None)
    assert answer.metrics == other.metrics


def test_files_of_one_name_travel_each(tmp_path: Path) -> None:
    folder = tmp_path / "from"
    for number, size in enumerate((100, 1_000_000)):
        (folder / f"v{number}").mkdir(parents=True)
        (folder / f"v{number}" / "sizes.cdf").write_text(f"{size} 0\n{size} 100\n")
        window = ALGORITHM.replace("100_000", f"{(number + 1) * 20_000}")
        (folder / f"v{number}" / "mine.py").write_text(window)
    (folder / "two.yaml").write_text(TWO)
    travelled(folder / "two.yaml")


TWO = """\
version: 1
name: two
topology: {lane: sim, preset: dumbbell, hosts: 4}
path: {rate: 1gbit, delay: 10us, queue: 64KiB}
workload:
  kind: traffic
  duration: 5ms
  flows:
    - {name: a, from: 0, to: 2, distribution: ./v0/sizes.cdf, load: 10%, cc: {algo: ./v0/mine.py}}
    - {name: b, from: 1, to: 3, distribution: ./v1/sizes.cdf, load: 60%, cc: {algo: ./v1/mine.py}}
sweep: {repetitions: 1}
"""


def test_a_file_that_is_no_text_travels(tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    pd.DataFrame({"src": [0], "dst": [1], "bytes": [10_000]}).to_parquet(folder / "f.parquet")
    (folder / "table.yaml").write_text(TABLE)
    travelled(folder / "table.yaml")


def test_the_modules_that_a_file_imports_travel_with_it(tmp_path: Path) -> None:
    """One that the run names too, one that it does not, and one that this one imports."""
    folder = tmp_path / "from"
    for part in ("v0", "v1"):
        (folder / part).mkdir(parents=True)
        (folder / part / "sizes.cdf").write_text("1000 0\n1000 100\n")
    text = TWO.replace("./v1/mine.py", "./v0/other.py")
    (folder / "two.yaml").write_text(text)
    beside = folder / "v0"
    beside.joinpath("mine.py").write_text("WINDOW = 20_000\n" + ALGORITHM)
    beside.joinpath("other.py").write_text(
        "from half import half_of\nfrom mine import WINDOW\n"
        + ALGORITHM.replace("100_000", "half_of(WINDOW)").replace('"mine"', '"other"')
    )
    beside.joinpath("half.py").write_text(
        "import two\n\n\ndef half_of(size):\n    return size / two.TWO\n"
    )
    beside.joinpath("two.py").write_text("TWO = 2\n")
    beside.joinpath("no.py").write_text("")
    experiment = load(folder / "two.yaml", [])
    (run,) = schedule(experiment.points, experiment.spec.sweep, 1)
    collect = experiment.spec.collect
    here = parallel.measure(parallel.task(run, collect, folder, 60, travels=False))
    task = parallel.task(run, collect, folder, 60, travels=True)
    of_code = {Path(name).name for name in task.files if name.endswith(".py")}
    assert of_code == {"mine.py", "other.py", "half.py", "two.py"}
    shutil.rmtree(folder)
    # In other processes: an algorithm that is imported keeps its name for the file that had it.
    tasks = [dataclasses.replace(task, name=f"{number}") for number in range(2)]
    answers = [there for _, there in parallel.answers(tasks, jobs=2)]
    assert [there.error for there in answers] == [None, None]
    assert [there.metrics for there in answers] == [here.metrics, here.metrics]


TABLE = """\
version: 1
name: table
topology: {lane: sim}
path: {rate: 1gbit, delay: 10us}
workload: {kind: table, file: ./f.parquet}
sweep: {repetitions: 1}
"""


@pytest.fixture
def killing(file: Path) -> list[parallel.Task]:
    """Tasks, the second of which kills the process that makes it."""
    (file.parent / "kills.py").write_text(ALGORITHM)
    text = file.read_text().replace("path.loss: [0, 1%]", f"cc.algo: [{MINE}, ./kills.py:Mine]")
    file.write_text(text.replace("repetitions: 2", "repetitions: 3\n  order: sequential"))
    experiment = load(file, [])
    (file.parent / "kills.py").write_text(KILLS)
    runs = schedule(experiment.points, experiment.spec.sweep, 1)
    return [
        parallel.task(run, experiment.spec.collect, file.parent, 60, travels=True)
        for run in (runs[0], runs[1], runs[2], runs[4])
    ]


MINE = "./mine.py:Mine"
KILLS = "import os\nos.kill(os.getppid(), 9)\n"


def test_a_process_that_dies_costs_its_own_run_alone(killing: list[parallel.Task]) -> None:
    """Runs that were handed out beside it are made again, those behind it in another pool."""
    tasks = [*killing, *(dataclasses.replace(killing[0], name=f"{i}") for i in range(2))]
    answers = list(parallel.answers(tasks, jobs=2))
    errors = {task.name: answer.error for task, answer in answers}
    assert len(answers) == len(errors) == len(tasks)
    error = errors.pop(tasks[1].name)
    assert error is not None
    assert error["message"] == "a process of the simulation died"
    assert set(errors.values()) == {None}


def test_a_worker_of_a_cluster_that_dies_costs_its_own_run_alone(
    killing: list[parallel.Task],
) -> None:
    dask, distributed = importlib.import_module("dask"), importlib.import_module("distributed")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, protocol="tcp", dashboard_address=None
        ) as cluster,
    ):
        answers = list(parallel.answers(killing[:2], dask=cluster.scheduler_address))
    errors = {task.name: answer.error for task, answer in answers}
    assert errors[killing[0].name] is None
    error = errors[killing[1].name]
    assert error is not None
    assert "no answer came from its worker: KilledWorker" in error["message"]


@pytest.fixture
def task(file: Path) -> parallel.Task:
    experiment = load(file, [])
    run = schedule(experiment.points, experiment.spec.sweep, 1)[0]
    return parallel.task(run, experiment.spec.collect, file.parent, 60, travels=True)


def cluster_without_workers() -> Any:
    """Tasks stay with its scheduler."""
    distributed = importlib.import_module("distributed")
    return distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address=None
    )


def test_a_scheduler_that_is_lost_ends_the_sweep(task: parallel.Task) -> None:
    """No run has failed then, and --resume makes them all."""
    with (
        ThreadPoolExecutor(1) as beside,
        cluster_without_workers() as cluster,
    ):
        address = cluster.scheduler_address
        answers = beside.submit(list, parallel.answers([task, task], dask=address))
        wait_until(lambda: len(cluster.scheduler.tasks) == 2, "both tasks are with the scheduler")
        cluster.close()
        with pytest.raises(RemoteError, match=f"scheduler at {address} is gone") as raised:
            answers.result(LIMIT_S)
    assert "--resume" in raised.value.hint


def test_a_task_that_somebody_cancels_costs_its_own_run_alone(task: parallel.Task) -> None:
    distributed = importlib.import_module("distributed")
    with (
        ThreadPoolExecutor(1) as beside,
        cluster_without_workers() as cluster,
        distributed.Client(cluster.scheduler_address, set_as_default=False) as other,
    ):
        answers = beside.submit(list, parallel.answers([task], dask=cluster.scheduler_address))
        wait_until(lambda: cluster.scheduler.tasks, "the task is with the scheduler")
        other.cancel([distributed.Future(*cluster.scheduler.tasks, other)], force=True)
        ((_, answer),) = answers.result(LIMIT_S)
    assert answer.error is not None
    assert "no answer came from its worker: FutureCancelledError" in answer.error["message"]


def test_workers_without_the_toolkit_end_the_sweep(task: parallel.Task) -> None:
    dask, distributed = importlib.import_module("dask"), importlib.import_module("distributed")
    without = "import sys\nsys.modules['datapath'] = None"
    with (
        dask.config.set({"distributed.worker.preload": [without]}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, protocol="tcp", dashboard_address=None
        ) as cluster,
        pytest.raises(
            CapabilityError, match=r"the Dask worker tcp://\S+ cannot make runs: .*datapath"
        ) as raised,
    ):
        list(parallel.answers([task, task], dask=cluster.scheduler_address))
    assert "install datapath" in raised.value.hint


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_keeps_every_run_from_being_made_ends_the_sweep(
    task: parallel.Task, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for temporary files below which no path is short enough for those of a run."""
    folder = tmp_path
    while (left := PATH_MAX - 20 - len(str(folder))) > 1:
        folder /= "x" * min(left - 1, 200)
    folder.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(OSError, match="File name too long"):
        list(parallel.answers([task, task], jobs=jobs))


PATH_MAX = 4096


def test_what_fails_on_a_worker_is_the_runs_failure(file: Path) -> None:
    experiment = load(file, [])
    run = schedule(experiment.points, experiment.spec.sweep, 1)[0]
    task = parallel.task(run, experiment.spec.collect, experiment.folder, 60, travels=False)
    other = parallel.measure(dataclasses.replace(task, version="0"))
    assert other.error is not None
    assert "the sweep 0" in other.error["message"]
    (file.parent / "mine.py").unlink()
    gone = parallel.measure(task)
    assert gone.error is not None
    assert "mine.py" in gone.error["message"]
    assert gone.metrics == []


RING = """\
version: 1
name: ring
topology:
  lane: sim
  preset: graph
  mtu: 1500
  buffer: 400kB
  pfc: {xoff: 20kB, xon: 10kB, headroom: 20kB}
  graph:
    links: [{ends: h0--s0}, {ends: h1--s1}, {ends: h2--s2}, {ends: h3--s3}, {ends: h4--s4},
            {ends: s0--s1}, {ends: s1--s2}, {ends: s2--s3}, {ends: s3--s4}, {ends: s4--s0}]
path: {rate: 10gbit, delay: 1us}
transport: {ack_timeout: 20}
cc: {algo: newreno}
workload:
  kind: traffic
  duration: 100ms
  flows:
    - {from: [h0, h1, h2, h3, h4], to: [h2, h3, h4, h0, h1], bytes: 20MB}
"""
"""Each flow crosses two of five links in a circle, which PFC pauses one after the other."""


def test_a_deadlock_is_told_with_the_line_that_replays_it(tmp_path: Path) -> None:
    file, out = tmp_path / "ring.yaml", tmp_path / "out"
    file.write_text(RING)
    done = dpctl("run", "--no-report", file, "--out", out, "--repetitions", "1")
    assert done.returncode == 1, done.stderr
    (record,) = (json.loads(path.read_text()) for path in out.glob("runs/*.json"))
    (case,) = out.glob("logs/*/case.json")
    line = f"python -m datapath.fabric.replay {case}"
    assert record["error"]["hint"] == f"replay it: {line}"
    assert f"hint: replay it: {line}\n" in done.stderr
    again = subprocess.run(
        [sys.executable, "-P", *line.split()[1:]], capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 1, again.stderr
    assert again.stderr == f"Deadlock: {record['error']['message']}\n"


ENDLESS = """\
from datapath.cc import Ack, Flow, algorithm


@algorithm("endless", source="a test")
class Endless:
    \"\"\"Its loop does not end.\"\"\"

    def on_ack(flow: Flow, ack: Ack) -> None:
        while flow.cwnd_bytes > 0:
            flow.cwnd_bytes += 0
"""


@pytest.fixture
def endless(file: Path) -> Path:
    (file.parent / "mine.py").write_text(ENDLESS)
    file.write_text(file.read_text().replace(":Mine", "").split("events:")[0])
    return file


def test_an_algorithm_that_loops_for_ever_is_the_runs_failure(endless: Path) -> None:
    experiment = load(endless, [])
    run = schedule(experiment.points, experiment.spec.sweep, 1)[0]
    task = parallel.task(run, experiment.spec.collect, endless.parent, 0.1, travels=False)
    answer = parallel.measure(task)
    assert answer.error is not None
    assert "not come back within 5 s after its time-out" in answer.error["message"]


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_end_a_loop(endless: Path, signum: signal.Signals, jobs: str) -> None:
    """Nothing stays behind; of a command that is killed, a folder that the next one removes."""
    temporary = endless.parent / "temporary"
    temporary.mkdir()
    argv = [sys.executable, "-m", "datapath.cli", "run", "--no-report", str(endless)]
    argv += ["--out", str(endless.parent / "out"), "--jobs", jobs]
    env = {**os.environ, "TMPDIR": str(temporary)}
    started = subprocess.Popen(argv, cwd=ROOT, env=env)
    wait_until(lambda: list(temporary.glob("datapath-simulated-*/logs")), "a simulation runs")
    family = descendants(started.pid)
    started.send_signal(signum)
    assert started.wait() == (-signum if signum == signal.SIGKILL else 130)
    wait_until(lambda: not alive(family), "all have ended")
    if signum == signal.SIGKILL:
        subprocess.run([sys.executable, "-c", REMOVE], cwd=ROOT, env=env, check=True)
    assert not list(temporary.glob("datapath-simulated-*"))


REMOVE = "from datapath import scratch; scratch.remove_old('datapath-simulated-')"
