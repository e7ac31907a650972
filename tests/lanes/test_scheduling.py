# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs of a live run have a CPU when they need it, and leave the machine usable."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datapath.lanes import scheduling
from datapath.lanes.base import STARVED_SHARE, CpuUse
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.processes import program
from tests.lanes.sshd import Sshd, open_folder
from tests.processes import runs
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

CPUS = sorted(os.sched_getaffinity(0))
SPIN = "while True: pass"
POLL = ("POLL\n", "0\n")
"""Name of an idle state that polls, and that it is not disabled."""
BURN = "import time\nwhile time.process_time() < {seconds}: pass"
FAMILY = """
import subprocess, threading, time
thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
thread.start()
child = subprocess.Popen(["sleep", "60"])
print(thread.native_id, child.pid, flush=True)
time.sleep(60)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def policy(pid: int) -> scheduling.Policy:
    """What a thread has."""
    if os.sched_getscheduler(pid) == os.SCHED_RR:
        assert os.sched_getparam(pid).sched_priority == 1
        return "realtime"
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    return "short-slice" if scheduling.slice_ns(pid) == scheduling.SLICE_NS else "ordinary"


def threads_of(name: str) -> list[int]:
    """All threads of the programs of a name, zombies not counted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if program(int(process.name)) != name:
                continue
            for task in (process / "task").iterdir():
                found += [int(task.name)] if runs(int(task.name)) else []
        except OSError:
            continue
    return found


def needs_short_slice() -> None:
    if scheduling.choose("short-slice").programs != "short-slice":
        pytest.skip("this kernel has no slices of a program's own (Linux 6.12)")


# --- policies --------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["realtime", "short-slice", "ordinary"])
def test_a_program_and_what_it_starts_have_the_policy_that_was_asked_for(
    wanted: scheduling.Policy, tmp_path: Path
) -> None:
    needs_short_slice()
    log = tmp_path / "numbers"
    with NetnsNetwork(Topology(scheduling=wanted)) as network:
        with network.measuring():
            host = network.hosts[0]
            family = host.popen(python(FAMILY), stdout=log)
            wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "it runs")
            # The numbers are those of the run's PID namespace.
            threads = [int(t.name) for t in Path(f"/proc/{family.pid}/task").iterdir()]
            (child,) = map(
                int, Path(f"/proc/{family.pid}/task/{family.pid}/children").read_text().split()
            )
            assert len(threads) == 2
            assert {policy(pid) for pid in [*threads, child]} == {wanted}
            bounds = resource.prlimit(family.pid, resource.RLIMIT_RTTIME)
            assert (bounds[0] == scheduling.REALTIME_LIMIT_US) == (wanted == "realtime")
            polling = host.popen(python(SPIN), busy=True)
            assert policy(polling.pid) == ("ordinary" if wanted == "ordinary" else "short-slice")
            polling.kill()
        later = network.hosts[0].popen(["sleep", "60"])
        assert policy(later.pid) == "ordinary"
        assert network.hosts[0].run(["chrt", "-p", "0"]).stdout.count("SCHED_OTHER") == 1
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize(("backend", "programs"), [("fabric", "realtime"), ("bpf", "short-slice")])
def test_real_time_priority_is_for_programs_that_wait_for_a_link(
    backend: str, programs: scheduling.Policy
) -> None:
    needs_short_slice()
    with NetnsNetwork(Topology(), backend) as network:
        cpu = network.describe()["cpu"]
    assert cpu == {
        "scheduling": programs,
        "scheduling_of_busy_programs": "short-slice",
        "kept_awake": len(CPUS),
        "idle_cpus_poll": can_poll(),
        "trouble": [],
    }


def test_what_cannot_be_had_is_told_and_the_next_one_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Neither a kernel without these nor a machine without a limit can be had at will.
    needs_short_slice()
    unlimited = tmp_path / "sched_rt_runtime_us"
    unlimited.write_text("-1\n")
    monkeypatch.setattr(scheduling, "_RT_RUNTIME", unlimited)
    second = scheduling.choose("realtime")
    assert (second.programs, second.busy) == ("short-slice", "short-slice")
    assert [str(unlimited) in text for text in second.trouble] == [True]
    monkeypatch.setattr(scheduling, "slice_ns", lambda tid: 0)
    third = scheduling.choose("realtime")
    assert (third.programs, third.busy) == ("ordinary", "ordinary")
    assert len(third.trouble) == 2
    assert "Linux 6.12" in third.trouble[1]


# --- CPUs that stay awake ---------------------------------------------------------------------


def state(cpu: int, number: int) -> Path:
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{number}")


def can_poll() -> bool:
    """Whether this machine's idle CPUs can poll."""
    first = [state(cpu, 0) for cpu in CPUS]
    polls = all(
        one.exists() and ((one / "name").read_text(), (one / "disable").read_text()) == POLL
        for one in first
    )
    return polls and os.access("/dev/cpu_dma_latency", os.W_OK)


def sleeps() -> int:
    """How often CPUs have gone to sleep: all states of cpuidle but the one that polls."""
    counts = [
        int((state(cpu, number) / "usage").read_text())
        for cpu in CPUS
        for number in range(1, 10)
        if state(cpu, number).exists()
    ]
    return sum(counts)


def idle_loops(keeper: subprocess.Popen[bytes] | None = None) -> list[int]:
    tids = threads_of("dp-cpu-keeper")
    if keeper is not None:
        tids = [int(task.name) for task in Path(f"/proc/{keeper.pid}/task").iterdir()]
    return [tid for tid in tids if os.sched_getscheduler(tid) == os.SCHED_IDLE]


@pytest.mark.san
@pytest.mark.parametrize("keep_awake", [True, False])
def test_each_cpu_is_kept_awake_while_programs_are_measured(keep_awake: bool) -> None:
    before = set(idle_loops())
    with NetnsNetwork(Topology(keep_awake=keep_awake)) as network:
        assert set(idle_loops()) <= before
        with network.measuring():
            loops = set(idle_loops()) - before
            on = sorted(cpu for tid in loops for cpu in os.sched_getaffinity(tid))
            assert on == (CPUS if keep_awake and not can_poll() else [])
            if keep_awake and can_poll():
                time.sleep(0.1)  # those that sleep have woken
                asleep = sleeps()
                time.sleep(1)
                assert sleeps() == asleep
        assert not loops & set(idle_loops())


@pytest.mark.san
def test_where_idle_cpus_cannot_poll_a_loop_on_each_keeps_them_awake() -> None:
    command = [str(paths.cpu_keeper()), "--loops"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        ready = json.loads(keeper.stdout.readline())
        assert (ready["awake"], ready["polling"]) == (len(CPUS), False)
        loops = idle_loops(keeper)
        assert sorted(cpu for tid in loops for cpu in os.sched_getaffinity(tid)) == CPUS
        keeper.communicate()
    assert keeper.returncode == 0


YIELDING = """
import os, pathlib, subprocess, sys, time
keeper = subprocess.Popen([sys.argv[1], "--loops"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
cpu = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpu})
loops = []
while not loops:
    tasks = [int(task.name) for task in pathlib.Path(f"/proc/{keeper.pid}/task").iterdir()]
    idle = [tid for tid in tasks if os.sched_getscheduler(tid) == os.SCHED_IDLE]
    loops = [tid for tid in idle if os.sched_getaffinity(tid) == {cpu}]
ran = lambda: int(open(f"/proc/{keeper.pid}/task/{loops[0]}/schedstat").read().split()[0])
before, own, until = ran(), time.thread_time_ns(), time.monotonic() + 1
while time.monotonic() < until:
    os.sched_yield()
print(time.thread_time_ns() - own, ran() - before, flush=True)
keeper.kill()
keeper.wait()
"""


def test_a_program_that_yields_does_not_wait_for_the_loop() -> None:
    """In one session, so that they share one scheduling group, as in a container."""
    command = [*python(YIELDING), str(paths.cpu_keeper())]
    done = subprocess.run(
        command, start_new_session=True, capture_output=True, text=True, timeout=60, check=True
    )
    program_ns, loop_ns = map(int, done.stdout.split())
    assert program_ns > 4 * loop_ns


OWNER = """
import sys, time
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
with NetnsNetwork(Topology(scheduling="realtime")) as network, network.measuring():
    program = network.hosts[0].popen([sys.executable, "-c", "while True: pass"])
    print(program.pid, flush=True)
    time.sleep(60)
"""


def test_kill_9_of_the_owner_leaves_no_loop_and_no_program() -> None:
    before = set(threads_of("dp-cpu-keeper"))
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        spinner = int(owner.stdout.readline())
        assert set(threads_of("dp-cpu-keeper")) - before
        owner.kill()
    wait_until(lambda: not set(threads_of("dp-cpu-keeper")) - before, "the loops are gone")
    wait_until(lambda: not runs(spinner), "the program is gone")


# --- a machine that stays usable ----------------------------------------------------------------


def test_programs_that_never_sleep_lose_their_priority(tmp_path: Path) -> None:
    """On every CPU at once; meanwhile somebody logs in."""
    needs_short_slice()
    with NetnsNetwork(Topology(scheduling="realtime")) as network, open_folder() as folder:
        sshd = Sshd(network.hosts[1], folder / "sshd").start()
        with network.measuring() as use:
            spinners = [network.hosts[0].popen(python(SPIN), cpus={cpu}) for cpu in CPUS]
            somebody = sshd.log_in()
            assert somebody.run(["echo", "in"]).stdout == "in\n"
            somebody.close()
            wait_until(
                lambda: {policy(s.pid) for s in spinners} == {"short-slice"}, "the priority is gone"
            )
            assert [spinner.poll() for spinner in spinners] == [None] * len(CPUS)
            for spinner in spinners:
                spinner.kill()
        sshd.stop()
        assert len(use.demoted) == len(CPUS)
        assert all("python" in name for name in use.demoted)


def test_a_program_that_sleeps_keeps_its_priority() -> None:
    code = """
import time
end = time.monotonic() + 2
while time.monotonic() < end:
    begin = time.process_time()
    while time.process_time() < begin + 0.02: pass
    time.sleep(0.01)
"""
    with NetnsNetwork(Topology(scheduling="realtime")) as network, network.measuring() as use:
        program = network.hosts[0].popen(python(code))
        while program.poll() is None:
            if runs(program.pid):
                assert os.sched_getscheduler(program.pid) == os.SCHED_RR
            time.sleep(0.1)
    assert use.demoted == []


def test_without_the_keeper_the_kernel_ends_what_never_sleeps() -> None:
    before = set(threads_of("dp-cpu-keeper"))
    topology = Topology(scheduling="realtime", keep_awake=False)
    with NetnsNetwork(topology) as network, network.measuring():
        (keeper,) = set(threads_of("dp-cpu-keeper")) - before
        os.kill(keeper, signal.SIGSTOP)
        spinner = network.hosts[0].popen(python(SPIN), cpus={CPUS[-1]})
        assert spinner.wait(60) in (-signal.SIGXCPU, -signal.SIGKILL)
        os.kill(keeper, signal.SIGCONT)


# --- waiting for a CPU --------------------------------------------------------------------------


@contextmanager
def busy_cpu() -> Iterator[None]:
    """A loop of ordinary priority on the first CPU; it ends with this process at the latest."""
    start = ["setpriv", "--pdeathsig=KILL", "taskset", "-c", str(CPUS[0])]
    code = f"print(flush=True)\n{SPIN}"
    with subprocess.Popen(
        [*start, *python(code)], stdout=subprocess.PIPE, start_new_session=True
    ) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"\n"  # it runs
        try:
            yield
        finally:
            loop.kill()


def measured(wanted: scheduling.Policy, code: str) -> CpuUse:
    """CPU time and waits of a program that shares its CPU with a loop.

    The network is made before the loop begins, and goes after its end: it would wait, too.
    """
    topology = Topology(scheduling=wanted)
    with NetnsNetwork(topology) as network, busy_cpu(), network.measuring() as use:
        program = network.hosts[0].popen(python(code), cpus={CPUS[0]})
        assert program.wait(60) == 0
    return use


def share(use: CpuUse) -> float:
    assert use.ran_ns
    assert use.waited_ns is not None
    return use.waited_ns / (use.waited_ns + use.ran_ns)


def test_what_programs_wait_for_a_cpu_is_counted() -> None:
    ordinary = measured("ordinary", BURN.format(seconds=0.4))
    first = measured("realtime", BURN.format(seconds=0.4))
    assert ordinary.ran_ns is not None
    assert ordinary.ran_ns >= 0.4e9
    assert share(ordinary) > STARVED_SHARE
    assert ordinary.limit().startswith("CPU-starved: the programs ran for 0.")
    assert share(first) < share(ordinary) / 2


@pytest.mark.parametrize(
    ("ran_ns", "waited_ns", "said"),
    [
        (2_000_000_000, 1_000_000_000, ""),
        (
            2_000_000_000,
            1_100_000_000,
            "CPU-starved: the programs ran for 2.00 s and waited for a CPU for 1.10 s",
        ),
        (0, 0, ""),
        (1, None, ""),
        (None, None, ""),
    ],
)
def test_a_run_is_starved_that_waited_for_more_than_a_third(
    ran_ns: int | None, waited_ns: int | None, said: str
) -> None:
    assert CpuUse(ran_ns, waited_ns).limit() == said


@pytest.mark.san
def test_threads_that_have_ended_are_counted() -> None:
    code = """
import threading, time
def burn():
    begin = time.thread_time()
    while time.thread_time() < begin + 0.2: pass
thread = threading.Thread(target=burn)
thread.start()
thread.join()
"""
    use = measured("ordinary", code)
    assert use.ran_ns is not None
    assert use.ran_ns >= 0.2e9
    assert use.waited_ns is not None
    assert use.waited_ns > 0.05e9


def test_what_ran_before_is_not_counted() -> None:
    with NetnsNetwork(Topology()) as network:
        early = network.hosts[0].popen(python(BURN.format(seconds=0.5) + "\ntime.sleep(60)"))
        wait_until(lambda: cpu_seconds(early.pid) >= 0.5, "it has burnt its time")
        with network.measuring() as use:
            pass
    assert use.ran_ns is not None
    assert use.ran_ns < 0.25e9


def cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.mark.san
@pytest.mark.parametrize("words", [["--awake", "now"], ["--watch"], ["--watch", "0"], ["-v"]])
def test_the_keeper_refuses_what_it_does_not_know(words: list[str]) -> None:
    done = subprocess.run(
        [paths.cpu_keeper(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "usage:" in done.stderr
