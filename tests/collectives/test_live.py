# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libdpcoll among processes of this host: right results, and an end when a peer is gone.

They send to each other by QPs on loopback, by shared memory, or by both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from datapath.collectives import Plan, check, load, make
from datapath.collectives.plan import Op
from datapath.native import paths
from datapath.verbs.launch import device_environment
from tests.verbs.devices import sanitizer

pytestmark = pytest.mark.san

PATIENCE_S = 120
ITEM_BYTES = {"int8": 1, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2}
ITEM_BYTES |= {"float32": 4, "float64": 8, "uint8": 1}


class Job:
    """One process for each rank, each with two devices at loopback addresses of its own.

    way: names of devices, with "shm" for shared memory.  only: words of single ranks.  before: what
    strangers say who connect before the ranks.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *words: str,
        way: str = "dp0",
        ranks: int | None = None,
        only: Mapping[int, Sequence[str]] | None = None,
        before: Sequence[bytes] = (),
    ) -> None:
        self.folder = folder
        self.strangers: list[socket.socket] = []
        counts = {"DATAPATH_STATS": str(folder / "stats")}
        file, token = folder / "plan", folder / "token"
        plan.write(file)
        token.write_text("a secret of this test\n")
        base = sanitizer()
        # Leaks are looked for where nothing of others is in the process.
        base |= {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0:exitcode=99"}
        self.processes = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for said in before:
                self.strangers.append(socket.create_connection(listener.getsockname()))
                self.strangers[-1].sendall(said)
            for rank in range(plan.ranks if ranks is None else ranks):
                argv = [paths.collective_program(), "--rank", rank, "--ranks", plan.ranks]
                argv += ["--store", "127.0.0.1", "--store-port", listener.getsockname()[1]]
                argv += ["--token", token, "--plan", file, "--report", folder / f"report-{rank}"]
                argv += ["--device", way, "--node", "0" if "shm" in way else "alone"]
                argv += ["--record", folder / f"record-{rank}", *words, *(only or {}).get(rank, ())]
                if rank == 0:
                    argv += ["--store-fd", listener.fileno()]
                with (folder / f"err-{rank}").open("w") as err:
                    self.processes.append(
                        subprocess.Popen(
                            [str(word) for word in argv],
                            env={**os.environ, **base, **two_devices(rank, base), **counts},
                            stderr=err,
                            pass_fds=[listener.fileno()] if rank == 0 else [],
                        )
                    )

    def statuses(self) -> list[int]:
        """Of all ranks; one that hangs fails the test by TimeoutExpired."""
        return [process.wait(PATIENCE_S) for process in self.processes]

    def error(self, rank: int) -> str:
        return (self.folder / f"err-{rank}").read_text()

    def times(self, rank: int) -> list[int]:
        return [int(line) for line in (self.folder / f"report-{rank}").read_text().split()]

    def sent_bytes(self, rank: int, device: str) -> int:
        """By a device of a rank that has ended, in packets with their headers."""
        pid = self.processes[rank].pid
        counters = json.loads((self.folder / f"stats.{pid}.{device}.json").read_text())
        return int(counters["port_stats"]["tx_bytes"])

    def until_running(self) -> None:
        """Until each rank has ended some collectives."""
        begin = time.monotonic()
        while time.monotonic() < begin + PATIENCE_S:
            if all(self.record_grows(rank) for rank in range(len(self.processes))):
                return
            time.sleep(0.05)
        pytest.fail("the ranks do not run")

    def record_grows(self, rank: int) -> bool:
        path = self.folder / f"report-{rank}"
        return path.is_file() and path.stat().st_size > 4096

    def close(self) -> None:
        for stranger in self.strangers:
            stranger.close()
        for process in self.processes:
            process.kill()
            process.wait()


def two_devices(rank: int, base: dict[str, str]) -> dict[str, str]:
    """dp0 and dp1 of a rank."""
    net = f"127.0.{1 + os.getpid() % 200}"
    environment = device_environment("dp0", f"udp:{net}.{1 + rank}", base=base)
    environment["DATAPATH_DEVICES"] += f" dp1=udp:{net}.{101 + rank}"
    return environment


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.close()


def planned(name: str, ranks: int, items: int, type_: str = "float32", **more: object) -> Plan:
    item = ITEM_BYTES[type_]
    unit = item * ranks
    size = -(-items * item // unit) * unit
    return check(make(load(name), ranks, size, item_bytes=item, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ranks", "type_", "op", "way"),
    [
        ("ring", 4, "float32", "sum", "dp0"),
        ("ring", 7, "bfloat16", "sum", "shm"),
        ("halving_doubling", 3, "bfloat16", "max", "dp0,dp1"),
        ("halving_doubling", 5, "float64", "sum", "shm"),
        ("double_tree", 4, "float16", "sum", "dp0"),
        ("two_level", 4, "int32", "min", "shm,dp0"),
        ("ring_allgather", 3, "int64", "sum", "shm"),
        ("ring_reduce_scatter", 3, "float64", "product", "dp0"),
        ("pairwise", 3, "int8", "sum", "dp0,shm"),
        ("tree", 3, "int32", "sum", "shm"),
        ("ring", 3, "uint8", "max", "shm"),
        ("chain", 2, "float32", "sum", "dp0"),
        ("reduce_tree", 3, "int32", "sum", "dp0"),
        ("reduce_chain", 3, "float32", "max", "shm"),
        ("gather_tree", 4, "int32", "sum", "dp0"),
        ("scatter_tree", 4, "int8", "sum", "shm"),
    ],
)
def test_collectives_give_what_they_should(
    jobs: list[Job], tmp_path: Path, name: str, ranks: int, type_: str, op: str, way: str
) -> None:
    """The program compares the first one with what it should be."""
    plan = planned(name, ranks, 5000, type_, transfer_bytes=1024, channels=2)
    words = ["--type", type_, "--op", op, "--iterations", "3", "--warm-up", "1"]
    job = Job(tmp_path, plan, *words, "--silence-ms", "20000", way=way)
    jobs.append(job)
    assert job.statuses() == [0] * ranks, [job.error(rank) for rank in range(ranks)]
    for rank in range(ranks):
        times = job.times(rank)
        assert len(times) == 4
        assert times == sorted(times)


def test_a_product_of_many_ranks(jobs: list[Job], tmp_path: Path) -> None:
    """What it should be is known, however many there are."""
    plan = planned("double_tree", 64, 64, "int64")
    words = ["--type", "int64", "--op", "product", "--silence-ms", "60000"]
    job = Job(tmp_path, plan, *words, way="shm")
    jobs.append(job)
    assert job.statuses() == [0] * 64, [job.error(rank) for rank in range(64)]


def test_a_report_that_cannot_be_written_is_told(jobs: list[Job], tmp_path: Path) -> None:
    job = Job(tmp_path, planned("ring", 1, 100), "--report", "/dev/full", way="shm")
    jobs.append(job)
    assert job.statuses() == [1]
    assert "/dev/full: No space left on device" in job.error(0)


def test_a_wrong_result_is_told(jobs: list[Job], tmp_path: Path) -> None:
    """Of a plan that no checker has seen: once an item is not added, once another part is sent."""
    unreduced = planned("ring", 3, 9000, channels=1)
    row = np.flatnonzero(unreduced.steps["op"] == Op.REDUCE)[-1]
    unreduced.steps["op"][row] = Op.RECEIVE
    misplaced = planned("ring_allgather", 3, 9000, channels=1)
    sent = np.flatnonzero(misplaced.steps["op"] == Op.SEND)[-1]
    size = misplaced.data_bytes
    misplaced.steps["offset"][sent] = (misplaced.steps["offset"][sent] + size // 3) % size
    for plan, at in ((unreduced, row), (misplaced, misplaced.steps["match"][sent])):
        folder = tmp_path / plan.algorithm
        folder.mkdir()
        jobs.append(Job(folder, plan, way="shm"))
        item = plan.steps["offset"][at] // 4
        assert 1 in jobs[-1].statuses()
        told = [jobs[-1].error(rank) for rank in range(3)]
        assert any(f"item {item} is not what it should be" in one for one in told), told


LIKE_IWARP = ("--rdma-cm", "--no-immediate")


@pytest.mark.parametrize("words", [LIKE_IWARP[:1], LIKE_IWARP[1:], LIKE_IWARP])
@pytest.mark.parametrize("way", ["dp0", "dp0,dp1"])
def test_connections_of_other_kinds(
    jobs: list[Job], tmp_path: Path, words: tuple[str, ...], way: str
) -> None:
    """RDMA-CM connects the QPs; a SEND follows a WRITE where there are no immediates."""
    plan = planned("ring", 3, 5000, transfer_bytes=1024, channels=2)
    job = Job(tmp_path, plan, *words, "--iterations", "3", "--silence-ms", "20000", way=way)
    jobs.append(job)
    assert job.statuses() == [0] * 3, [job.error(rank) for rank in range(3)]


@pytest.mark.parametrize("words", LIKE_IWARP)
def test_both_ends_are_of_one_kind(jobs: list[Job], tmp_path: Path, words: str) -> None:
    job = Job(tmp_path, planned("ring", 2, 1000), only={1: [words]})
    jobs.append(job)
    assert job.statuses() == [1, 1]
    assert "cannot be joined: one is iWARP, or other flags were given" in job.error(0)


@pytest.mark.parametrize("words", [(), LIKE_IWARP[1:]])
def test_ranks_with_different_plans_are_told(
    jobs: list[Job], tmp_path: Path, words: tuple[str, ...]
) -> None:
    other = tmp_path / "other"
    planned("chain", 2, 3000, transfer_bytes=1024).write(other)
    plan = planned("chain", 2, 2000, transfer_bytes=1024)
    jobs.append(Job(tmp_path, plan, *words, only={1: ["--plan", str(other)]}))
    assert 1 in jobs[-1].statuses()
    assert "do all ranks start the same collectives" in jobs[-1].error(1)


@pytest.mark.parametrize("items", [1, 3, 7, 1001])
@pytest.mark.parametrize("ranks", [3, 5])
@pytest.mark.parametrize("name", ["ring", "halving_doubling", "double_tree", "tree", "chain"])
def test_sizes_that_ranks_do_not_divide(
    jobs: list[Job], tmp_path: Path, name: str, ranks: int, items: int
) -> None:
    plan = check(make(load(name), ranks, items, item_bytes=1, transfer_bytes=100))
    job = Job(tmp_path, plan, "--type", "int8", "--silence-ms", "20000", way="shm")
    jobs.append(job)
    assert job.statuses() == [0] * ranks, [job.error(rank) for rank in range(ranks)]


@pytest.mark.parametrize("words", [(), LIKE_IWARP], ids=["by the store", "like iWARP"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_peer_that_is_gone_ends_the_collective_everywhere(
    jobs: list[Job], tmp_path: Path, how: signal.Signals, words: tuple[str, ...]
) -> None:
    """Every rank that is left names the rank, the collective, the QP and what was seen."""
    for told in words_of_survivors(jobs, tmp_path, how, "dp0", words):
        assert re.search(r"QP 0x[0-9a-f]+", told), told
        assert re.search(r"no sign of life for \d+ ms|retry counter exceeded|Flushed", told), told


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        (signal.SIGKILL, "its process {}, which shared memory with this one, has ended"),
        (signal.SIGSTOP, r"no sign of life for \d+ ms on memory shared with process {}"),
    ],
    ids=["killed", "stopped"],
)
def test_so_does_one_that_shared_memory(
    jobs: list[Job], tmp_path: Path, how: signal.Signals, seen: str
) -> None:
    for told in words_of_survivors(jobs, tmp_path, how, "shm"):
        assert re.search(seen.format(jobs[0].processes[2].pid), told), told


def test_a_rank_that_dies_asleep_takes_nobody_along(jobs: list[Job], tmp_path: Path) -> None:
    """Others ring its bell, a pipe that nobody reads any more."""
    job = Job(tmp_path, planned("ring", 4, 1000), "--iterations", "10000000", way="shm")
    jobs.append(job)
    job.until_running()
    job.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(0.2)  # until rank 2 sleeps, for want of data from rank 1
    job.processes[2].kill()
    job.processes[1].send_signal(signal.SIGCONT)
    told = [job.processes[rank].wait(PATIENCE_S) for rank in (0, 1, 3)]
    assert told == [1, 1, 1], [job.error(rank) for rank in (0, 1, 3)]


def words_of_survivors(
    jobs: list[Job], folder: Path, how: signal.Signals, way: str, words: Sequence[str] = ()
) -> Iterator[str]:
    """What the others say when rank 2 of a ring of four gets a signal."""
    job = Job(folder, planned("ring", 4, 1000), "--iterations", "10000000", *words, way=way)
    jobs.append(job)
    job.until_running()
    job.processes[2].send_signal(how)
    for rank in (0, 1, 3):
        assert job.processes[rank].wait(PATIENCE_S) == 1
        told = job.error(rank)
        place = r"(allreduce \d+|between collectives)"
        assert re.search(rf"rank 2 is gone: rank \d, {place}, ", told), told
        if " told " in told:
            assert re.search(rf"rank \d told rank {rank}, {place}", told), told
        yield told
    assert "farewell" in (folder / "record-0").read_text()


@pytest.mark.parametrize("way", ["dp0", "shm"])
def test_a_peer_that_is_slow_is_not_gone(jobs: list[Job], tmp_path: Path, way: str) -> None:
    """It stands still again and again, each time for less than the silence that ends a job."""
    plan = planned("ring", 3, 1000)
    job = Job(tmp_path, plan, "--iterations", "2000", "--silence-ms", "20000", way=way)
    jobs.append(job)
    job.until_running()
    for _ in range(5):
        job.processes[2].send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        job.processes[2].send_signal(signal.SIGCONT)
        time.sleep(0.02)
    assert job.statuses() == [0] * 3, [job.error(rank) for rank in range(3)]


def test_strangers_keep_nobody_out(jobs: list[Job], tmp_path: Path) -> None:
    """They come before the ranks, and say nothing, something, or too much."""
    job = Job(
        tmp_path,
        planned("ring", 2, 1000),
        way="shm",
        before=[b"", b"DPCOLL2", b"GET / HTTP/1.1\r\n" * 20],
    )
    jobs.append(job)
    assert job.statuses() == [0, 0], [job.error(rank) for rank in range(2)]


def test_two_communicators_at_once(tmp_path: Path) -> None:
    """Of one process each, one of them by RDMA-CM; one rank joins late."""
    script = Path(__file__).with_name("two_jobs.py")
    base = sanitizer()
    with contextlib.ExitStack() as opened:
        listeners = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in "ab"]
        words = [str(listener.getsockname()[1]) for listener in listeners]
        words += [str(listener.fileno()) for listener in listeners]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-P", str(script), str(rank), "3", *words],
                env={**os.environ, **base, **two_devices(rank, base)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[listener.fileno() for listener in listeners] if rank == 0 else [],
            )
            for rank in range(3)
        ]
    told = [process.communicate(timeout=PATIENCE_S) for process in ranks]
    assert [out for out, _ in told] == ["done\n"] * 3, told


@pytest.mark.skipif(
    paths.build_name() != "build-san", reason="needs the sanitized build: dpctl selftest makes it"
)
def test_collectives_that_nobody_waits_for_are_let_go_of(tmp_path: Path) -> None:
    """Their memory regions would keep the protection domain."""
    script, base = Path(__file__).with_name("left_alone.py"), sanitizer()
    base["ASAN_OPTIONS"] = f"detect_leaks=1:log_path={tmp_path}/report"
    subprocess.run(
        [sys.executable, "-P", str(script)],
        env={**os.environ, **base, **two_devices(0, base)},
        timeout=PATIENCE_S,
        check=False,  # Python's own leaks make it end with an error
    )
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert texts, "LeakSanitizer has not looked"
    assert [text for text in texts if "collectives/live/" in text] == []


@pytest.mark.parametrize(
    ("case", "rates", "wanted"),
    [
        ("farewell", ("10mbit", "10gbit"), "rank 0: it has had enough; rank 0 told rank 1, .*"),
        ("silence", ("80kbit", "1mbit"), "done"),
    ],
)
def test_links_that_are_slow(root: None, case: str, rates: tuple[str, str], wanted: str) -> None:
    """Words of a rank that gives up come behind its data; any channel's data is a sign of life."""
    addresses, base = [f"127.0.0.{k}" for k in range(11, 15)], sanitizer()
    lines = ["ip link set lo up", "tc qdisc add dev lo root handle 1: htb default 9"]
    kind = "tc class add dev lo parent 1: classid"
    udp = "tc filter add dev lo parent 1: protocol ip u32 match ip protocol 17 0xff match"
    lines.append(f"{kind} 1:9 htb rate 10gbit quantum 9000")
    for k, (rate, address) in enumerate(zip(rates, addresses[2:], strict=True), 1):
        lines.append(f"{kind} 1:{k} htb rate {rate} quantum 9000")
        for opcodes in ("0x06 0x3e", "0x08 0x3c"):  # WRITEs; ACKs and the like do not wait
            lines.append(f"{udp} ip dst {address}/32 match u8 {opcodes} at 28 flowid 1:{k}")
    script = Path(__file__).with_name("slow_links.py")
    environment = device_environment(
        "dp0", f"udp:{addresses[0]}", options={"window": 64}, base=base
    )
    for k in range(1, 4):
        environment["DATAPATH_DEVICES"] += f" dp{k}=udp:{addresses[k]}"
    words = ["unshare", "--net", "sh", "-ec", "\n".join([*lines, 'exec "$@"']), "sh"]
    done = subprocess.run(
        [*words, sys.executable, "-P", str(script), case],
        env={**os.environ, **base, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert re.fullmatch(wanted, done.stdout.strip()), done


def test_the_example_of_the_page(jobs: list[Job], tmp_path: Path) -> None:
    """docs/collectives.md shows an algorithm; live ranks get what it promises."""
    page = (paths.ROOT / "docs" / "collectives.md").read_text()
    (tmp_path / "star.py").write_text(page.split("```python\n")[1].split("```")[0])
    plan = check(make(load(str(tmp_path / "star.py")), 4, 4000, transfer_bytes=512))
    job = Job(tmp_path, plan, "--silence-ms", "20000")
    jobs.append(job)
    assert job.statuses() == [0] * 4, [job.error(rank) for rank in range(4)]


def test_channels_take_devices_and_memory_in_turn(jobs: list[Job], tmp_path: Path) -> None:
    """Each device counts what its channels carry; the first of three goes by memory."""
    size, often = 3 * 64 * 1024, 4
    plan = check(make(load("chain"), 2, size, channels=3, shares=[4, 3, 1]))
    words = ["--iterations", str(often - 1)]
    job = Job(tmp_path, plan, *words, "--silence-ms", "20000", way="shm,dp0,dp1")
    jobs.append(job)
    assert job.statuses() == [0, 0], [job.error(rank) for rank in range(2)]
    more, less = job.sent_bytes(0, "dp0"), job.sent_bytes(0, "dp1")
    assert often * size * 3 / 8 <= more < often * size / 2
    assert 2 < more / less < 4


def test_what_cannot_be_joined_is_told(jobs: list[Job], tmp_path: Path) -> None:
    job = Job(tmp_path, planned("ring", 2, 1000), "--node", "alone", way="shm")
    jobs.append(job)
    assert job.statuses() == [1, 1]
    assert "shares no memory with rank" in job.error(0)


def test_ranks_that_do_not_come_are_named(jobs: list[Job], tmp_path: Path) -> None:
    job = Job(tmp_path, planned("ring", 4, 1000), "--meet-ms", "1500", ranks=2)
    jobs.append(job)
    assert job.statuses() == [1, 1]
    assert "these ranks have not come" in job.error(0)
    assert " 2 3" in job.error(0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "this is no plan"),
        (lambda data: b"x" + data[1:], "this is no plan"),
        (lambda data: data[:88] + b"\xff" * 8 + data[96:], "row 0 of the plan makes no sense"),
        (lambda data: data[:-4] + b"\xff" * 4, r"wait \d+ of the plan makes no sense"),
    ],
)
def test_plans_that_are_none_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    (tmp_path / "plan").write_bytes(damage(planned("ring", 2, 100).to_bytes()))
    (tmp_path / "token").write_text("a secret\n")
    argv = [paths.collective_program(), "--rank", 0, "--ranks", 2, "--device", "dp0"]
    argv += ["--store", "127.0.0.1", "--token", tmp_path / "token", "--plan", tmp_path / "plan"]
    argv += ["--report", tmp_path / "report"]
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert re.search(message, done.stderr), done.stderr
