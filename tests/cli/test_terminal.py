# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whatever stands in files, names and the words of programs: a terminal is never told to obey."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.cli.server import Done, Dpctl, dpctl, shared
from tests.report import folders

ROOT = Path(__file__).resolve().parents[2]
CONTROLS = "\x1b\x07\x08\r\n\t\x0b\x00\x7f\x80\x85\x9b\x9d\u2028\u202e\u2066\udcff"
SEQUENCES = ("\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\x1bPq", "\r\x1b[2K")
nasty = st.lists(
    st.sampled_from([*SEQUENCES, *CONTROLS, "a", "=", "é"]), min_size=1, max_size=6
).map("".join)

EXPERIMENT = """\
version: 1
name: <name>
description: <text>
workload: {kind: perftest, test: send_lat, size: 64<key>}
sweep:
  repetitions: 1
  matrix:
    <axis>:
      - {label: <text>, set: {path.loss: 0}}
      - {label: other, set: {path.loss: <loss>}}
report:
  expect:
    - {metric: latency_p50, where: {<axis>: <text>}, max: 1s, title: <text>}
"""


def harmless(done: Done) -> None:
    """Nothing but printed characters and the layout of lines, whatever dpctl made of it."""
    assert done.code in (0, 1, 2, 3), done.err
    left = {c for c in done.out + done.err if not c.isprintable()}
    assert left <= {"\n", "\t", "\N{NO-BREAK SPACE}"}


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def quoted(text: str) -> str:
    """As YAML has it; its escapes are those of JSON, but it has no halves of characters."""
    return json.dumps(text.encode("utf-8", "replace").decode())


def experiment(text: str, *, name: str = "good", key: str = "", loss: str = "1%") -> str:
    filled = EXPERIMENT.replace("<name>", name).replace("<key>", key).replace("<loss>", loss)
    return filled.replace("<axis>", quoted(text)).replace("<text>", quoted(text))


def file_name(text: str) -> str:
    return text.replace("/", "").replace("\0", "") or "x"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nasty)
@example("\x1b]0;title\x07")
@example("\udcff")
def test_experiment_files(quick_dpctl: Dpctl, text: str) -> None:
    with workplace() as here:
        path = here / f"{file_name(text)}.yaml"
        for content in (
            experiment(text),
            experiment(text, name=quoted(text)),
            experiment(text, key=f", {quoted(text)}: 1"),
            experiment(text, loss=quoted(text)),
        ):
            path.write_text(content)
            harmless(quick_dpctl("validate", path))
        path.write_text(experiment(text))
        harmless(quick_dpctl("run", path, "--dry-run"))
        harmless(quick_dpctl("run", path, "--dry-run", "--set", f"path.{file_name(text)}=1"))
        harmless(quick_dpctl("validate", here / file_name(text)))
        harmless(quick_dpctl(file_name(text)))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nasty)
@example("\x1b]0;title\x07")
@example("\udcff")
def test_result_folders(quick_dpctl: Dpctl, text: str) -> None:
    with workplace() as here:
        folder = here / "results" / file_name(text)
        claim = {
            "title": text,
            "metric": text,
            "pass": False,
            "reason": text,
            "where": {text: text},
        }
        folders.write(here / "r", repetitions=1, samples=False, failed=[(0, 0)], claims=[claim])
        (here / "r" / "runs.parquet").unlink()
        folder.parent.mkdir()
        (here / "r").rename(folder)
        for file in (folder / "runs").glob("*.json"):
            record = json.loads(file.read_text())
            record["axes"] |= {"stack": text, text: text}
            record["error"] = record.get("error") and {"message": text, "hint": text}
            folders.dump(file, record)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest |= {"started": text, "runs_planned": text}
        manifest |= {"source": f"{text}/x.yaml", "overrides": [f"cc.algo=./{text}.py"]}
        folders.dump(folder / "manifest.json", manifest)
        (folder / "experiment.yaml").write_text(f"cc: {{algo: {quoted(f'./{text}.py')}}}\n")
        (folder / "series").mkdir()
        (folder / "series" / f"{file_name(text)}.parquet").write_text("no table")
        harmless(quick_dpctl("show", folder))
        harmless(quick_dpctl("show", folder, "--metric", "all", "--pivot", "stack"))
        harmless(quick_dpctl("show", folder, "--where", f"stack={file_name(text)}"))
        harmless(quick_dpctl("list", cwd=here))
        harmless(quick_dpctl("series", folder))
        harmless(quick_dpctl("series", folder, file_name(text)))
        harmless(quick_dpctl("run", "--resume", folder))
        harmless(quick_dpctl("run", "--resume", folder, "--trust"))


# --- a program of the run says it, and rich tells of it ---------------------------------------

RUN = """\
version: 1
name: short
transport: {port: udp}
workload: {kind: perftest, test: send_lat, size: 64, iterations: 50}
sweep:
  repetitions: 1
  matrix:
    path: [{label: "\\e]0;label\\a", set: {path.loss: 0}}]
"""
PROGRAM = """\
#!/bin/sh
printf 'error: \\033]0;program\\007 \\302\\2332J\\n' >&2
exit 1
"""


def on_a_terminal(*words: str, env: dict[str, str]) -> tuple[int, str]:
    """(exit code, all that dpctl writes) when stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while part := os.read(ours, 65536):
                seen.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        name = os.ttyname(theirs)
        done = shared()(*words, memory_bytes=None, env=env, streams={1: name, 2: name})
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return done.code, b"".join(seen).decode()


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_the_other_screen_is_a_screen(kind: str) -> None:
    """`dpctl top` gives orders to a terminal that obeys, and takes them back at ^C."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "datapath.cli", "top", "--interval", "100ms"]
    env = {**os.environ, "TERM": kind}
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            seen = os.read(ours, 65536)
            while seen.count(b"\n") + seen.count(b"\x1b[J") < 3:
                seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):
                while part := os.read(ours, 65536):
                    seen += part
            process.wait()
        finally:
            process.kill()  # of one that does not end: Popen would wait for it without limit
    os.close(ours)
    assert process.returncode == 130
    if kind == "dumb":
        assert b"\x1b" not in seen
    else:
        assert seen.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H\x1b[J")
        assert seen.endswith(b"\x1b[?25h\x1b[?1049l")
        assert b"\\x1b" not in seen


def test_a_number_of_samples_stays_on_the_screen() -> None:
    words = ("top", "-n", "2", "--interval", "100ms")
    code, seen = on_a_terminal(*words, env={**os.environ, "TERM": "xterm"})
    assert code == 0, seen
    assert "\x1b" not in seen
    assert seen.strip()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("terminal", [False, True])
def test_last_words_of_a_program(tmp_path: Path, terminal: bool) -> None:
    path, programs = tmp_path / "x.yaml", tmp_path / "bin"
    path.write_text(RUN)
    programs.mkdir()
    (programs / "ib_send_lat").write_text(PROGRAM)
    (programs / "ib_send_lat").chmod(0o755)
    words = ("run", str(path), "--out", str(tmp_path / "r"))
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "xterm"}
    if terminal:
        code, seen = on_a_terminal(*words, env=env)
    else:
        done = dpctl(*words, env=env)
        code, seen = done.returncode, done.stdout + done.stderr
        assert all(c.isprintable() or c in "\n\N{NO-BREAK SPACE}" for c in seen)
    assert code == 1, seen
    assert r"\x1b]0;program\x07" in seen
    assert r"\x9b2J" in seen
    assert r"\x1b]0;label\x07" in seen
    assert "\x1b]" not in seen
    assert "\x9b" not in seen
