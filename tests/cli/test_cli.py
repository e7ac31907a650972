# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command line: help, exit codes, one-line errors, data apart from progress."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from datapath.cli import completion
from datapath.cli.app import app
from tests.cli import server
from tests.cli.told import told

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "experiments" / "quickstart.yaml"
NOBODY = 65534
HEAVY = (
    *("numpy", "pandas", "numba", "matplotlib", "pyarrow", "scipy", "scapy", "pyroute2"),
    *("ruamel.yaml", "rich"),
)
LIST_HEAVY = (
    "import sys; from datapath.cli import main; main(sys.argv[2:]); "
    "print([m for m in sys.argv[1].split(',') if m in sys.modules], file=sys.stderr)"
)


def dpctl(
    *arguments: object, cwd: Path = ROOT, user: int | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **env}
    if user is None:
        return server.dpctl(*arguments, cwd=cwd, env=environment)
    return subprocess.run(
        [sys.executable, "-m", "datapath.cli", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        user=user,
        check=False,
    )


@pytest.mark.parametrize(
    "command", list(completion.commands(app)), ids=lambda command: command.name
)
def test_every_command_has_help_with_examples(command: completion.Command) -> None:
    """On a terminal of 80 columns; it names no types of Python, and no bracket twice."""
    done = dpctl(*command.words, "--help", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: {command.name} ")
    if not command.commands:
        assert command.name in done.stdout.partition("\n\n")[2]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert re.findall(r"<(?:int|str|float|list|path)\b|\[\[|\bTEXT\b|x>=|<=x", done.stdout) == []
    assert not {"{", "}"} & set(done.stdout.partition("\n")[0])
    assert re.findall(r"\w-$", done.stdout, re.MULTILINE) == []  # no line ends in a word
    assert done.stderr == ""


@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (140, 140), (300, 140)])
def test_help_takes_the_width_that_there_is(columns: int, widest: int) -> None:
    """Up to what can be read; the same words at any width."""
    done = dpctl("run", "--help", COLUMNS=str(columns))
    lines = done.stdout.splitlines()
    assert widest - 15 <= max(map(len, lines)) <= widest
    assert done.stdout.split() == dpctl("run", "--help", COLUMNS="100").stdout.split()


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("capture host0 -w", "dpctl capture"),
        ("cc hunt --out", "dpctl cc hunt"),
        ("run --nonsense", "dpctl run"),
        ("--nonsense", "dpctl"),
    ],
)
def test_a_wrong_option_names_the_help_of_its_command(words: str, command: str) -> None:
    done = dpctl(*words.split())
    assert done.returncode == 2
    assert f"hint: {command} --help\n" in done.stderr


def test_examples_fit_eighty_columns() -> None:
    """They are printed as they stand, two columns in; all other help is wrapped."""
    wide = [
        line
        for command in completion.commands(app)
        for block in command.help.split("\n\n")
        if block.startswith("\b\n")
        for line in block.splitlines()
        if len(line) > 78
    ]
    assert wide == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    argv = [sys.executable, "-c", LIST_HEAVY, ",".join(HEAVY), *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]"


def test_validate_loads_no_table_or_plot_library() -> None:
    argv = [sys.executable, "-c", LIST_HEAVY, "pandas,numba,matplotlib,pyarrow,scipy,rich"]
    argv += ["validate", str(QUICKSTART)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        (["runn"], 2, "No such command 'runn'. Did you mean 'run'?", "dpctl --help"),
        (["run", "--repetitions", "x", "f"], 2, "--repetitions x is not a number", "auto:MOST"),
        (["run", "--repetitions", "auto:0", "f"], 2, "auto:0: there is at least one", ""),
        (["run", "--repetitions", "0", "f"], 2, "0: there is at least one", ""),
        (["run", "--repetitions", "auto:1001", "f"], 2, "auto makes at most 1000", ""),
        (["run"], 2, "which experiment?", "dpctl run FILE"),
        (["run", "none.yaml"], 2, "none.yaml: no such file", "name an experiment file"),
        (["run", "/tmp"], 2, "/tmp is a folder", "goes on with --resume /tmp"),
        (["run", "--resume", "/tmp"], 2, "/tmp is not a result folder that can be resumed", ""),
        (["report", "/nowhere"], 2, "/nowhere is not a folder", ""),
        (["run", "--dask", "here", "f"], 2, "--dask here is not HOST:PORT", "127.0.0.1:8786"),
        (["run", "--jobs", "0", "f"], 2, "'--jobs': it should be at least 1", "dpctl run --help"),
        (["run", "--jobs", "x", "f"], 2, "'--jobs': it should be a whole number", ""),
        (["metrics", "--port", "65536"], 2, "'--port': it should be at most 65535", ""),
        (["list", "--format", "yaml"], 2, "'--format': 'yaml' is not one of 'table', 'json'", ""),
        (["exec", "--", "true"], 2, "Missing option '--device'", "dpctl exec --help"),
        (["exec", "--device", "dp0=xdp:lo", "--", "true"], 2, "is not a port", "ports are"),
        (["exec", "--device", "dp0=udp:nope", "--", "true"], 2, "no network device 'nope'", ""),
        (["exec", "--device", "dp0=udp:lo", "--", "no-such"], 2, "'no-such' not found", ""),
        (["exec", "--device", "dp0=udp:lo", "--cc", "swif", "--", "true"], 2, "swif", "swift"),
        (
            ["exec", "--device", "dp0=udp:lo", "-p", "a=1", "--", "true"],
            2,
            "an algorithm",
            "--cc ALGO",
        ),
        (["xdp", "inspect", "/etc/hostname"], 2, "/etc/hostname", ""),
    ],
)
def test_errors_are_one_line_with_a_hint(
    arguments: list[str], code: int, error: str, hint: str
) -> None:
    done = dpctl(*arguments)
    assert done.returncode == code
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert all(line.startswith("hint: ") for line in rest)
    assert hint in "".join(rest)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        *("run NAME", "show NAME", "compare NAME NAME", "cc show NAME", "top NAME", "NAME"),
        *("run FILE --set name=NAME", "run FILE --set NAME=1", "run FILE --repetitions NAME"),
        *("run --NAME", "exec --device dp0=udp:NAME -- true", "cc hunt vpc --time NAME"),
    ],
)
def test_a_name_without_end_is_not_told_whole(words: str) -> None:
    named = words.replace("NAME", "x" * 5000).replace("FILE", str(QUICKSTART))
    done = dpctl(*named.split())
    assert done.returncode in (2, 3)  # 3: the file system has no room for it
    assert "error: " in done.stderr
    assert len(done.stderr) < 1000


def test_validate_tells_the_place_in_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(QUICKSTART.read_text().replace("mtu: 9000", "mtu: 99999"))
    done = dpctl("validate", path)
    assert done.returncode == 2
    assert f"error: {path}:" in done.stderr
    assert "topology.mtu: 99999" in done.stderr
    done = dpctl("validate", path, "--format", "json")
    assert done.returncode == 2
    assert [row["path"] for row in told("validate", done.stdout)] == ["topology.mtu"]


def test_validate_of_several_files(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(QUICKSTART.read_text().replace("mtu: 9000", "mtu: 99999"))
    done = dpctl("validate", QUICKSTART, wrong, tmp_path / "none.yaml", QUICKSTART)
    assert done.returncode == 2
    assert done.stdout.count(": valid: ") == 2
    assert f"error: {wrong}:" in done.stderr
    assert "none.yaml: no such file" in done.stderr
    done = dpctl("validate", QUICKSTART, wrong, "--format", "json")
    assert done.returncode == 2
    assert [row["file"] for row in told("validate", done.stdout)] == [str(wrong)]


def test_validate_of_a_right_file() -> None:
    done = dpctl("validate", QUICKSTART)
    assert (done.returncode, done.stderr) == (0, "")
    assert "valid: " in done.stdout


def test_dry_run_prints_points_and_builds_nothing(tmp_path: Path) -> None:
    done = dpctl("run", QUICKSTART, "--dry-run", "--format", "ndjson", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    points = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({point["point"] for point in points}) == len(points) > 4
    whole = dpctl("run", QUICKSTART, "--dry-run", "--format", "json", cwd=tmp_path)
    assert [{"version": 1, **row} for row in told("run --dry-run", whole.stdout)] == points
    only = ("--only", "test=64 B latency")
    some = dpctl("run", QUICKSTART, "--dry-run", "--format", "ndjson", *only)
    chosen = [json.loads(line) for line in some.stdout.splitlines()]
    assert chosen == [point for point in points if point["test"] == "64 B latency"] != []
    wrong = dpctl("run", QUICKSTART, "--dry-run", "--only", "test")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--only test names no value" in wrong.stderr
    assert list(tmp_path.iterdir()) == []


def test_schema_is_json() -> None:
    assert json.loads(dpctl("schema").stdout)["title"] == "datapath experiment"


def test_list_of_nothing_and_of_experiments(tmp_path: Path) -> None:
    assert dpctl("list", cwd=tmp_path).stdout == ""
    (tmp_path / "experiments").mkdir()
    shutil.copy(QUICKSTART, tmp_path / "experiments")
    (tmp_path / "experiments" / "wrong.yaml").write_text("version: 1")
    rows = told("list", dpctl("list", "--format", "json", cwd=tmp_path).stdout)
    assert [row["valid"] for row in rows] == [True, False]


@pytest.mark.parametrize("words", ["schema", "cc list", "cc list --format json", "run --help"])
def test_a_reader_that_leaves_is_no_error(words: str) -> None:
    """`dpctl ... | true`: nothing is told, and the exit code is that of other programs."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "datapath.cli", *words.split()]
    done = subprocess.run(
        command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_what_the_caller_has_closed_leads_nowhere(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """`dpctl run ... >&-`: no file of the run gets its number, and what others print."""
    path = tmp_path / "x.yaml"
    path.write_text(
        "version: 1\nname: x\ntopology: {lane: sim}\npath: {rate: 1gbit, delay: 1us}\n"
        "workload: {kind: stream, duration: 1ms}\nsweep: {repetitions: 1}\n"
    )

    def close() -> None:
        for number in closed:
            os.close(number)

    argv = [sys.executable, "-m", "datapath.cli", "run", str(path), "--out", str(tmp_path / "r")]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, preexec_fn=close
    )
    assert done.returncode == 0, done.stderr
    assert bool(done.stdout) == (1 not in closed)
    assert bool(done.stderr) == (2 not in closed)
    assert (tmp_path / "r" / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "r" / "experiment.yaml").read_text() == path.read_text()


def test_an_interrupt_before_anything_runs_is_told(tmp_path: Path) -> None:
    pipe = tmp_path / "experiment.yaml"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "datapath.cli", "validate", pipe]
    started = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    with started, pipe.open("w"):  # which waits until dpctl reads
        started.send_signal(signal.SIGINT)
        _, told = started.communicate(timeout=60)
    assert (started.returncode, told) == (130, "error: interrupted\n")


@pytest.mark.usefixtures("root")
def test_without_root_the_run_says_what_it_needs(tmp_path: Path) -> None:
    if subprocess.run(["test", "-x", sys.executable], user=NOBODY, check=False).returncode:
        pytest.skip("the tree cannot be read by other users, so nobody can run dpctl")
    done = dpctl("run", QUICKSTART, "--out", tmp_path / "out", user=NOBODY)
    assert done.returncode == 3
    assert "error: the netns lane needs root" in done.stderr
    assert not (tmp_path / "out").exists()
    assert dpctl("validate", QUICKSTART, user=NOBODY).returncode == 0


@pytest.mark.usefixtures("root")
def test_a_missing_program_is_named_before_anything_is_built(tmp_path: Path) -> None:
    done = dpctl("run", QUICKSTART, "--out", tmp_path / "out", PATH="/nowhere")
    assert done.returncode == 3
    assert "error: program ib_write_bw is not installed" in done.stderr
    assert "error: program iperf3 is not installed" in done.stderr
    assert "hint: apt-get install perftest" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_cc_file_that_does_not_compile_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from datapath.cc import algorithm\n\n\n@algorithm('mine', source='none')\nclass Mine:\n"
        "    '''Opens a file, which no compiled code can.'''\n\n"
        "    def on_ack(flow, ack):\n        open('/tmp/x')\n"
    )
    path = tmp_path / "x.yaml"
    path.write_text(QUICKSTART.read_text().replace("algo: fixed", "algo: './mine.py:Mine'"))
    done = dpctl("run", "--no-report", path, "--out", tmp_path / "out")
    assert done.returncode in (2, 3)
    if os.geteuid() == 0:
        assert done.returncode == 2
        assert "mine.py:9" in done.stderr
