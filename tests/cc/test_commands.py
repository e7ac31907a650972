# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl cc`: output, and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from datapath.cc import compile_algorithm, exercise, registry
from datapath.cc.doubts import doubts
from datapath.cc.drivers import NativeAlgorithm
from datapath.cli import algorithms
from datapath.cli.algorithms import app
from datapath.errors import LocalError, RunFailed
from tests.cli.told import told

from .conftest import WriteAlgorithm


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_list() -> None:
    assert run("list").exit_code == 0
    rows = told("cc list", run("list", "--format", "json").output)
    assert {"dctcp", "fixed", "swift"} <= {row["name"] for row in rows}
    assert {"name": "dp_copa", "key": "cc.tcp"}.items() <= rows[-1].items()
    lines = run("list", "--format", "ndjson").output.splitlines()
    assert [json.loads(line) for line in lines] == [{"version": 1, **row} for row in rows]


def test_show() -> None:
    text = run("show", "swift").output
    assert "SIGCOMM 2020" in text
    assert "base_target_ns" in text
    record = told("cc show", run("show", "swift", "--format", "json").output)
    assert record["flow_bytes"] == 272
    assert not record["grants"]
    assert "gives grants" not in text
    assert "gives grants; state: least_rtt_ns (port)" in run("show", "homa").output
    assert record["params"][0]["unit"] == "ns"


def test_show_for_tcp() -> None:
    assert "NSDI 2018" in run("show", "dp_copa").output
    record = told("cc show", run("show", "dp_copa", "--format", "json").output)
    assert Path(record["file"]).name == "dp_copa.bpf.c"
    assert record["source"].startswith("Arun and Balakrishnan")


def test_compile() -> None:
    done = run("compile", "fixed", "-p", "window_bytes=65536", "-p", "rate_bps=1e9")
    assert Path(done.output.strip()).is_file()
    made = told("cc compile", run("compile", "fixed", "--format", "json").output)
    assert made["algorithm"] == "fixed"


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("window", "is not NAME=VALUE"),
        ("window_bytes=big", "parameter window_bytes: .*'big'"),
        ("window_bytes=5us", "parameter window_bytes: .*'5us'"),
        ("windw=1", "no parameter 'windw'"),
        ("window_byte=64KiB", "no parameter 'window_byte'"),
    ],
)
def test_wrong_parameters(pair: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        run("compile", "fixed", "-p", pair)


def test_a_parameter_may_have_the_unit_of_its_name() -> None:
    """As in files."""
    pairs = ["window_bytes=64KiB", "rate_bps=2.5gbit"]
    assert algorithms.parameters("fixed", pairs) == {"window_bytes": 65536, "rate_bps": 25 * 10**8}
    assert algorithms.parameters("dctcp", ["g=25%"]) == {"g": 0.25}


def test_a_parameter_is_given_once() -> None:
    with pytest.raises(LocalError, match="window_bytes is given twice"):
        run("compile", "fixed", "-p", "window_bytes=5000", "-p", "window_bytes=6000")


def test_an_algorithm_in_c_is_for_tcp() -> None:
    with pytest.raises(LocalError, match="dp_copa is C for the kernel's TCP") as caught:
        run("check", "dp_copa")
    assert caught.value.hint == "in an experiment it is cc: {tcp: dp_copa}"


def test_check() -> None:
    done = run("check", "dctcp", "--events", "500", "--seed", "3")
    assert "500 events" in done.output


def test_check_finds_an_escape(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("greedy")
        class Greedy:
            def on_ack(flow, ack):
                flow.cwnd_bytes += ack.acked_bytes
        """
    )
    with pytest.raises(RunFailed, match=r"greedy after event \d+ \(ack\): cwnd_bytes is") as caught:
        run("check", path)
    assert "--seed 1 --events" in caught.value.hint


DOUBTFUL = {
    "reads ack.hop, and nowhere ack.n_hops": """
        def on_ack(flow, ack):
            if ack.hop[0].queue_bytes > 1000:
                flow.cwnd_bytes = flow.mss_bytes
    """,
    "cwnd_bytes is .*, less than a packet": """
        def on_ack(flow, ack):
            pass

        def on_loss(flow, loss):
            flow.cwnd_bytes = flow.cwnd_bytes / 2
    """,
    "pacing_rate_bps is 1, less than a packet in 1000 RTTs": """
        def on_ack(flow, ack):
            pass

        def on_loss(flow, loss):
            flow.pacing_rate_bps = 1
    """,
    "where line_rate_bps is 0 as on veth, cwnd_bytes is 1, less than a packet": """
        def on_ack(flow, ack):
            flow.cwnd_bytes = max(flow.line_rate_bps * flow.min_rtt_ns / 8e9, 1)
    """,
    "on_wake asked 100 times in a row to be called at once": """
        def on_ack(flow, ack):
            flow.wake_ns = ack.now_ns

        def on_wake(flow, now_ns):
            flow.wake_ns = now_ns
    """,
}


@pytest.mark.parametrize(("doubt", "hooks"), DOUBTFUL.items())
def test_check_notes_what_is_hardly_meant(write: WriteAlgorithm, doubt: str, hooks: str) -> None:
    path = write('@algorithm("doubtful")\nclass Doubtful:' + hooks)
    done = run("check", path, "--events", "300", "--format", "json")
    (found,) = told("cc check", done.stdout)["doubts"]
    assert re.match(f".*{doubt}", found)
    assert done.stderr == f"note: doubtful: {found}\n"


@pytest.mark.parametrize("name", registry())
def test_the_included_algorithms_raise_no_doubts(name: str) -> None:
    compiled = compile_algorithm(name)
    assert doubts(lambda: NativeAlgorithm(compiled), 1) == []


def test_check_tells_the_bounds_of_the_window(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("closed")
        class Closed:
            def on_ack(flow, ack):
                flow.cwnd_bytes = 0
        """
    )
    message = r"cwnd_bytes is 0; it must be above 0 and at most 8388608\n"
    with pytest.raises(RunFailed, match=message):
        run("check", path)


UNKNOWN_RATE = {
    r"blind after event 0 \(on_init\), where line_rate_bps is 0 as on veth: cwnd_bytes is 0": """
        @algorithm("blind")
        class Blind:
            def on_init(flow):
                flow.cwnd_bytes = flow.line_rate_bps * 50e-6 / 8

            def on_ack(flow, ack):
                pass
        """,
    r"blind after event \d+ at the receiver \(request\), where .* as on veth: timer_ns is inf": """
        @algorithm("blind")
        class Blind:
            def on_ack(flow, ack):
                pass

            def on_request(port, sender):
                sender.granted_bytes = sender.wanted_bytes
                port.timer_ns = port.now_ns + 8e9 * sender.mss_bytes / port.line_rate_bps

            def on_data(port, sender, data):
                pass

            def on_timer(port, senders):
                pass
        """,
}


@pytest.mark.parametrize(("message", "text"), UNKNOWN_RATE.items(), ids=["sender", "receiver"])
def test_check_tries_a_port_that_does_not_tell_its_rate(
    write: WriteAlgorithm, message: str, text: str
) -> None:
    with pytest.raises(RunFailed, match=message):
        run("check", write(text))


STUCK = {
    "stuck after event \\d+ \\(ack\\)": """
        @algorithm("stuck")
        class Stuck:
            def on_ack(flow, ack):
                while flow.cwnd_bytes > 0:
                    flow.cwnd_bytes += 1
        """,
    "stuck after event \\d+ at the receiver \\(\\w+\\)": """
        @algorithm("stuck")
        class Stuck:
            def on_ack(flow, ack):
                pass

            def on_request(port, sender):
                while port.n_senders > 2:
                    sender.granted_bytes += 1

            def on_data(port, sender, data):
                pass

            def on_timer(port, senders):
                pass
        """,
}


@pytest.mark.parametrize(("where", "text"), STUCK.items(), ids=["sender", "receiver"])
def test_check_tells_a_loop_without_end(
    write: WriteAlgorithm, monkeypatch: pytest.MonkeyPatch, where: str, text: str
) -> None:
    path = write(text)
    monkeypatch.setattr(algorithms, "_EVENT_S", 0.2)
    with pytest.raises(RunFailed, match=f"{where}: it has not returned"):
        run("check", path)


RAISES = {
    "total = 0\n        flow.kept = 1500 / total": "division by zero; compiled code goes on",
    "flow.kept = flow.last[4]": r"index 4 is out of bounds .*; compiled code ends the call",
    "flow.kept = ack.hop[8].queue_bytes": "list index out of range; compiled code ends the call",
    "flow.kept = math.log(0 * ack.now_ns)": ".*; compiled code goes on, with infinity or NaN",
    "flow.kept = math.exp(ack.now_ns)": ".*; compiled code goes on, with infinity or NaN",
    "flow.kept = int(ack.now_ns / 0)": ".*integer; compiled code goes on, with any whole number",
    "flow.kept = positive(-1.0)": "kept is set to None; compiled code ends the call",
    "flow.kept = positive(-1.0) + 1": ".*NoneType.*; compiled code ends the call",
    "if ack.now_ns < 0:\n            x = 3.0\n        flow.kept = x": ".*'x'.*, with any value",
}


@pytest.mark.parametrize(("lines", "reason"), RAISES.items())
def test_check_names_the_line_that_raises(write: WriteAlgorithm, lines: str, reason: str) -> None:
    path = write(
        """
        @algorithm("raising")
        class Raising:
            kept: float = state()
            last: list[float] = state(0, length=4)

            def on_ack(flow, ack):
                BODY


        def positive(x):
            if x > 0:
                return x
        """
    )
    Path(path).write_text(Path(path).read_text().replace("BODY", lines))
    line = 12 + lines.count("\n")
    message = rf"^raising after event 1 \(ack\): \S*mine.py:{line}: on_ack: {reason}"
    with pytest.raises(RunFailed, match=message) as caught:
        run("check", path)
    assert caught.value.hint == "repeat with --seed 1 --events 1"


def test_check_names_the_line_of_a_helper_and_its_hook(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("helped")
        class Helped:
            last: list[float] = state(0, length=4)

            def on_init(flow):
                keep(flow, 4)

            def on_ack(flow, ack):
                pass


        def keep(flow, at):
            flow.last[at] = 1
        """
    )
    with pytest.raises(
        RunFailed, match=r"helped after event 0 \(on_init\): \S*:18: on_init: index"
    ):
        run("check", path)


def test_check_names_the_line_that_raises_at_the_receiver(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("granting")
        class Granting:
            def on_ack(flow, ack):
                pass

            def on_request(port, sender):
                port.timer_ns = port.now_ns

            def on_data(port, sender, data):
                pass

            def on_timer(port, senders):
                senders[len(senders)].granted_bytes = 1
        """
    )
    with pytest.raises(
        RunFailed,
        match=r"after event \d+ at the receiver \(\w+\): \S*:18: on_timer: list index out of range",
    ) as caught:
        run("check", path)
    assert "--seed 1 --events" in caught.value.hint


def test_what_no_hook_raised_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(exercise, "violations", broken)
    with pytest.raises(ZeroDivisionError):
        run("check", "fixed")
