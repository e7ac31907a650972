# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl metrics`: what `dpctl top` shows, as Prometheus reads it; also of one run or program.

The format is that of Prometheus' text exposition, version 0.0.4.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer

from datapath.cli.output import until_interrupted
from datapath.cli.top import DROP_CAUSES, Sample, sample
from datapath.errors import DatapathError, LocalError
from datapath.terminal import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_SCRAPE_S = 10.0
"""Most time that a client may take for its request."""


@dataclass(frozen=True)
class Metric:
    """One metric of a kind of row: the row's key, and what its number is multiplied by."""

    name: str
    kind: str
    key: str
    help: str
    factor: float = 1.0


_QP = (
    Metric("datapath_qp_delivered_bytes_total", "counter", "delivered_bytes",
           "Payload that the peer has acknowledged."),
    Metric("datapath_qp_sent_packets_total", "counter", "sent_packets", "Packets sent."),
    Metric("datapath_qp_retransmitted_packets_total", "counter", "retransmitted_packets",
           "Packets sent again."),
    Metric("datapath_qp_marked_packets_total", "counter", "marked_packets",
           "Packets that reached the peer with ECN's CE."),
    Metric("datapath_qp_cwnd_bytes", "gauge", "cwnd_bytes", "Congestion window."),
    Metric("datapath_qp_pacing_rate_bits_per_second", "gauge", "pacing_rate_bps",
           "Rate that the algorithm has set; 0: not paced."),
    Metric("datapath_qp_rtt_seconds", "gauge", "srtt_ns", "Smoothed RTT; 0: none yet.", 1e-9),
    Metric("datapath_qp_min_rtt_seconds", "gauge", "min_rtt_ns", "Lowest RTT; 0: none yet.", 1e-9),
    Metric("datapath_qp_inflight_bytes", "gauge", "inflight_bytes",
           "Sent, and neither acknowledged nor declared lost."),
)  # fmt: skip
_LINK = (
    Metric("datapath_link_passed_packets_total", "counter", "passed", "Packets carried."),
    Metric("datapath_link_marked_packets_total", "counter", "marked", "Packets marked with CE."),
    Metric("datapath_link_queue_bytes", "gauge", "queue_bytes", "Bytes that wait in the queue."),
)
_DROPPED = Metric(
    "datapath_link_dropped_packets_total", "counter", "", "Packets dropped, by cause."
)
_INFO = Metric("datapath_qp_info", "gauge", "", "1; its labels tell the algorithm of the QP.")


def register(app: typer.Typer) -> None:
    app.command(short_help="Print or serve counters for Prometheus.")(metrics)


def metrics(
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="PID|PROGRAM",
            help="Only this program; of a name, all that have it.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve them on this TCP port.", show_default=False),
    ] = None,
    address: Annotated[str, typer.Option(help="Address to serve them on.")] = "127.0.0.1",
    socket_: Annotated[int | None, typer.Option("--socket", hidden=True)] = None,
) -> None:
    """Print the counters of QPs and links as Prometheus reads them, or serve them by HTTP.

    They are those of `dpctl top`: all programs with a device of ours, and the links of the
    experiments that run on this machine. With --port they are served at /metrics until ^C;
    while PROGRAM is not there, the answer is 503 with the reason.
    docs/grafana.json is a dashboard for Grafana.

    \b
    dpctl metrics
    dpctl metrics ib_write_bw
    dpctl metrics --port 9400
    """
    if socket_ is not None:
        _serve_for(socket.socket(fileno=socket_), int(program or 0))
    elif port is None:
        sys.stdout.write(text(sample(program)))
    else:
        listening = listen(address, port)
        host = f"[{address}]" if ":" in address else address
        where = f"http://{host}:{listening.getsockname()[1]}/metrics"
        print(where, file=sys.stderr, flush=True)
        with until_interrupted(), _server(listening, lambda: sample(program)) as server:
            server.serve_forever()


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens; LocalError when somebody else has the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LocalError(
            f"cannot serve metrics on {address} port {port}: {why}", hint="choose another port"
        ) from None


MetricsOption = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        metavar="PORT",
        min=1,
        max=65535,
        help="Serve the counters for Prometheus, on this TCP port of 127.0.0.1.",
        show_default=False,
    ),
]


def serve_beside(port: int) -> None:
    """Serve the metrics of this process and what it starts, from a process that ends with it.

    This process may become another program by exec meanwhile.
    """
    with listen("127.0.0.1", port) as listening:
        _start_server(listening.fileno())


def _start_server(fd: int) -> None:
    argv = [sys.executable, "-P", "-m", "datapath.cli", "metrics", "--socket", str(fd)]
    nowhere = subprocess.DEVNULL
    pid = os.getpid()
    # By a process that ends at once: the program's children stay those that it has started.
    between = os.fork()
    if between == 0:
        try:
            subprocess.Popen(
                [*argv, str(pid)],
                pass_fds=[fd],
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
                start_new_session=True,
            )
        finally:
            os._exit(0)
    os.waitpid(between, 0)


def _serve_for(listening: socket.socket, pid: int) -> None:
    """Serve the metrics of a process and those that it has started, until it ends."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with _server(listening, lambda: sample(family=pid)) as server:

        def end() -> None:
            select.select([watched], [], [])
            server.shutdown()

        threading.Thread(target=end, daemon=True).start()
        server.serve_forever()


@contextlib.contextmanager
def _server(listening: socket.socket, take: Callable[[], Sample]) -> Iterator[ThreadingHTTPServer]:
    class Answer(BaseHTTPRequestHandler):
        timeout = _SCRAPE_S

        def do_GET(self) -> None:
            if self.path.split("?")[0] not in ("/metrics", "/"):
                self.send_error(404, "look at /metrics")
                return
            status, kind = HTTPStatus.OK, CONTENT_TYPE
            try:
                told = text(take())
            except (DatapathError, OSError) as error:  # the program is not there, say
                status, kind = HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN
                told = f"{printable(error)}\n"
            body = told.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads a log."""

    where = listening.getsockname()[:2]
    with ThreadingHTTPServer(where, Answer, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listening
        yield server


# ---- the format ----------------------------------------------------------------------


def text(taken: Sample) -> str:
    """The sample in Prometheus' format; metrics that no row has are left out."""
    qps = [({name: row[name] for name in ("pid", "program", "device", "qpn")}, row)
           for row in taken.qps.values()]  # fmt: skip
    links = [({"run": pid, "link": name}, row) for (pid, name), row in taken.links.items()]
    lines = [
        *_lines(_INFO, [({**labels, "cc": row["cc"]}, 1) for labels, row in qps]),
        *(line for metric in _QP for line in _lines(metric, _values(metric, qps))),
        *(line for metric in _LINK for line in _lines(metric, _values(metric, links))),
        *_lines(_DROPPED, _drops(links)),
    ]
    return "".join(f"{line}\n" for line in lines)


_Rows = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def _values(metric: Metric, rows: _Rows) -> list[tuple[Mapping[str, Any], float]]:
    return [(labels, row[metric.key] * metric.factor) for labels, row in rows if metric.key in row]


def _drops(links: _Rows) -> list[tuple[Mapping[str, Any], float]]:
    return [
        ({**labels, "cause": cause}, row[key])
        for labels, row in links
        for key, cause in DROP_CAUSES.items()
        if key in row
    ]


def _lines(metric: Metric, values: Sequence[tuple[Mapping[str, Any], float]]) -> Iterator[str]:
    if values:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in values:
        told = ",".join(f'{name}="{_escaped(str(label))}"' for name, label in labels.items())
        yield f"{metric.name}{{{told}}} {value!r}"


def _escaped(label: str) -> str:
    label = printable(label, keep="\n")
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
