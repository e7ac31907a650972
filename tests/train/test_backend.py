# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Backend dp of torch.distributed, among processes on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from datapath.errors import LocalError
from datapath.verbs.launch import device_environment
from tests.train.conftest import PATIENCE_S, PROGRAMS, Job, environment, settings
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


def test_who_waits_for_a_meeting_keeps_the_store_from_nobody() -> None:
    import torch.distributed as dist

    from datapath.train.meeting import follow, lead

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60))
    stays = threading.Event()
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: found.append(follow(store, "dp", 1, timedelta(seconds=60), stays))
    )
    waiting.start()
    store.set("other", "1")
    assert store.get("other") == b"1"
    assert not found
    lead(store, "dp", 2, {"address": "here", "token": "t"}, timedelta(seconds=60), stays)
    waiting.join(30)
    assert found == [{"address": "here", "token": "t"}]


def test_ranks_meet_anew_whatever_earlier_meetings_left_in_the_store() -> None:
    """Earlier ones: that was complete, that rank 2 left early, and that rank 0 left early."""
    import torch.distributed as dist

    from datapath.errors import RemoteError
    from datapath.train.meeting import follow, lead

    store, long, stays = dist.HashStore(), timedelta(seconds=60), threading.Event()

    def follower(rank: int) -> dict[str, Any]:
        return follow(store, "dp", rank, long, stays)

    for number in range(4):
        if number == 2:
            with pytest.raises(RemoteError, match=r"ranks 1, 2 did not meet rank 0 .* for 0\.1 s"):
                lead(store, "dp", 3, {"token": "early"}, timedelta(seconds=0.1), stays)
        if number == 3:
            with pytest.raises(RemoteError, match=r"rank 0 did not answer rank 1 .* for 0\.1 s"):
                follow(store, "dp", 1, timedelta(seconds=0.1), stays)
        with ThreadPoolExecutor() as pool:
            found = [pool.submit(follower, rank) for rank in (2, 1)]
            lead(store, "dp", 3, {"token": f"t{number}"}, long, stays)
            assert [one.result() for one in found] == [{"token": f"t{number}"}] * 2


def test_a_loopback_address_is_refused_when_a_rank_is_on_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By both ends; and only then."""
    import torch.distributed as dist

    from datapath.train import meeting

    store, long, stays = dist.HashStore(), timedelta(seconds=60), threading.Event()

    def machine() -> str:
        return threading.current_thread().name[:8]

    def meet(address: str) -> list[Any]:
        where = {"address": address, "token": f"of {address}"}
        with ThreadPoolExecutor(thread_name_prefix="follower") as pool:
            follower = pool.submit(meeting.follow, store, "dp", 1, long, stays)
            try:
                meeting.lead(store, "dp", 2, where, long, stays)
            except LocalError as error:
                return [error, follower.exception()]
            return [where, follower.result()]

    monkeypatch.setattr(meeting, "_machine", machine)
    assert meet("10.0.0.1") == [{"address": "10.0.0.1", "token": "of 10.0.0.1"}] * 2
    for error in meet("127.0.0.1"):
        assert "rank 0 listens at 127.0.0.1, where other machines cannot" in str(error)
        assert "set MASTER_ADDR" in error.hint
    monkeypatch.setattr(meeting, "_machine", lambda: "here")
    assert meet("127.0.0.2") == [{"address": "127.0.0.2", "token": "of 127.0.0.2"}] * 2


def test_rank_0_listens_towards_torchs_master(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    from datapath.train.meeting import master_of, own_address

    tcp = dist.TCPStore("127.0.0.7", 0, is_master=True, wait_for_workers=False)
    store = dist.PrefixStore("default_pg", dist.PrefixStore("0", tcp))
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert master_of(store) == "127.0.0.7"
    assert master_of(dist.HashStore()) == own_address(store) == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.8")
    assert master_of(store) == "127.0.0.8"
    monkeypatch.setenv("MASTER_ADDR", "::1")
    with pytest.raises(LocalError, match="leads to torch's master ::1") as caught:
        own_address(store)
    assert "the IPv4 address of rank 0" in str(caught.value.hint)


def test_callbacks_may_wait_for_later_works() -> None:
    """They do not run in inference mode, as the jobs do."""
    import torch

    from datapath.train.work import Waiter, Work

    waiter, limit = Waiter("waiter"), timedelta(seconds=60)
    works = [Work(f"work {number}", limit) for number in range(4)]
    futures = [work.get_future() for work in works]

    def callback(number: int) -> object:
        assert not torch.is_inference_mode_enabled()
        return futures[number + 1].wait() if number < 3 else 3

    derived = [
        future.then(lambda _, number=number: callback(number))
        for number, future in enumerate(futures)
    ]
    for number, work in enumerate(works):
        waiter.add(work, lambda number=number: [number, torch.is_inference_mode_enabled()])
    assert all(work.wait(limit) for work in works)
    wait_until(lambda: all(one.done() for one in derived), "the callbacks did not return")
    assert [future.value() for future in derived] == [[1, True], [2, True], [3, True], 3]
    assert waiter.close(pytest.fail, time.monotonic() + 60)


def test_a_waiter_is_closed_although_a_callback_does_not_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from datapath.train import work as module

    monkeypatch.setattr(module, "_ABORTED_S", 0.1)
    waiter, stays, told = module.Waiter("waiter"), threading.Event(), list[str]()
    work = module.Work("work", timedelta(seconds=60))
    derived = work.get_future().then(lambda _: stays.wait(60))
    waiter.add(work, lambda: None)
    work.wait()
    assert not waiter.close(told.append, time.monotonic() + 0.1)
    assert told == ["left while a callback had not returned"]
    stays.set()
    assert derived.wait()


def test_a_future_ends_with_the_time_out_and_the_work_goes_on() -> None:
    """The limit of each holds, in whichever order they are asked for."""
    from datapath.train.work import Waiter, Work

    waiter, stays = Waiter("waiter"), threading.Event()
    limits = [timedelta(days=60), timedelta(seconds=0.1), timedelta(seconds=0.2)]
    works = [waiter.add(Work(f"work {limit}", limit), lambda: stays.wait(60)) for limit in limits]
    futures = [work.get_future() for work in works]
    for future in futures[1:]:
        with pytest.raises(RuntimeError, match=r"work .* has not ended after 0\.[12] s"):
            future.wait()
    assert not futures[0].done()
    assert [work.is_stuck for work in works] == [False, True, True]
    stays.set()
    assert futures[0].wait()
    assert all(work.wait(timedelta(seconds=60)) for work in works)
    assert waiter.close(pytest.fail, time.monotonic() + 60)


def test_the_error_of_a_work_is_that_of_its_future() -> None:
    """Also for callbacks, and for a future that is asked for when the work has ended."""
    import torch.distributed as dist

    from datapath.train.work import Work

    error = dist.DistBackendError("rank 1 is gone")
    for early in (True, False):
        work = Work("work", timedelta(seconds=60))
        if early:
            work.get_future()
        work.finish(error=error)
        for future in (work.get_future(), work.get_future().then(lambda done: done.value())):
            with pytest.raises(RuntimeError, match="rank 1 is gone"):
                future.wait()
            assert future.done()


def test_leaving_ends_a_meeting_to_which_nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed as dist

    from datapath.train.apart import Direction

    monkeypatch.setenv("DATAPATH_TRAIN_DEVICE", "shm")
    direction = Direction(dist.HashStore(), 0, 1, 1, timedelta(seconds=400))
    work = direction.move(torch.zeros(1), lambda: None, "receive from rank 0")
    direction.close(time.monotonic())
    assert work.is_completed()
    with pytest.raises(dist.DistBackendError, match=r"rank 0 did not answer .* has left the group"):
        work.wait()


def test_an_algorithm_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from datapath.train.plans import named_algorithm

    for value, wanted in (("", ""), ("auto", ""), ("ring", "ring")):
        monkeypatch.setenv("DATAPATH_TRAIN_ALGORITHM", value)
        assert named_algorithm() == wanted
    for value, message in (("tree", "is tree, which is no allreduce"), ("rings", "'rings'")):
        monkeypatch.setenv("DATAPATH_TRAIN_ALGORITHM", value)
        with pytest.raises(LocalError, match=message):
            named_algorithm()


def test_plans_of_many_sizes_do_not_pile_up() -> None:
    """The one that was used last stays, and so does one that a collective still follows."""
    import numpy as np

    from datapath.collectives.communicator import Communicator
    from datapath.train.plans import Plans

    data = np.zeros(1000, np.int8)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address, port = listener.getsockname()
        communicator = Communicator(
            0, 1, device="shm", address=address, port=port, token="t", plans=[], listener=listener
        )
    with communicator:
        plans = Plans(communicator)
        running = plans.start("allgather", 1000, data.ctypes.data)
        for size in range(1, 600):
            plans.start("allgather", size, data.ctypes.data).wait()
        sizes = [key[1] for key in plans._kept]
        assert len(sizes) == 1 + 256
        assert 1000 in sizes
        assert 599 in sizes
        assert 1 not in sizes
        running.wait()
        plans.start("allgather", 1, data.ctypes.data).wait()
        assert 1000 not in [key[1] for key in plans._kept]


def test_collectives_give_what_they_should(run_job: Callable[..., Job]) -> None:
    """Each rank compares what it got."""
    job = run_job(3, "collectives.py")
    outputs = [job.output(rank) for rank in range(3)]
    assert all("done" in output for output in outputs), outputs


def test_what_torch_builds_on_a_group(run_job: Callable[..., Job]) -> None:
    job = run_job(2, "torch_parts.py")
    outputs = [job.output(rank) for rank in range(2)]
    assert all(output.endswith("done\n") for output in outputs), outputs


def exits_of_two(program: str, **changes: str) -> list[tuple[int, str]]:
    """How two ranks ended, and what they said: each a Python of its own, to its very end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"DATAPATH_TRAIN_DEVICE": "shm", "DATAPATH_TRAIN_SILENCE_MS": "20000", **changes}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", str(PROGRAMS / program)],
            env=environment({**shared, "RANK": str(rank)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, text) for rank, text in zip(ranks, said, strict=True)]


def test_a_rank_that_ends_without_leaving_neither_hangs_nor_crashes() -> None:
    (first, said), (second, told) = exits_of_two("exits.py")
    assert (first, second) == (3, 0), (said, told)
    assert "told: rank 0 has left" in told, told


def test_a_wrong_setting_ends_ranks_before_they_meet_with_the_hint() -> None:
    """libdpcoll's thread must not be there yet when Python ends."""
    wanted = "DATAPATH_TRAIN_ALGORITHM is tree, which is no allreduce\nhint: name one, such as ring"
    for code, said in exits_of_two("exits.py", DATAPATH_TRAIN_ALGORITHM="tree"):
        assert code == 1, said
        assert wanted in said


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_peer_that_is_gone_is_named(
    run_job: Callable[..., Job], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.train.conftest.settings", dict)
    told = run_job(2, "lonely.py", how).output(0)
    assert "together" in told
    assert re.search(r"told: rank 1 is gone: rank 0, .*process \d+", told), told


@pytest.mark.parametrize(("hook", "steps"), [("none", 1), ("topk", 1), ("topk", 3)])
def test_backward_ends_when_a_peer_is_gone(
    run_job: Callable[..., Job], hook: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two steps of topk are dense."""
    monkeypatch.setattr("tests.train.conftest.settings", dict)
    told = run_job(2, "backward.py", hook, "killed", str(steps)).output(0)
    assert re.search(r"together\ntold: .*rank 1 is gone: rank 0, .*process \d+", told), told


def test_backward_ends_when_a_peer_is_late(run_job: Callable[..., Job]) -> None:
    told = run_job(2, "backward.py", "none", "stands", "1").output(0)
    assert re.search(r"told: .*allreduce of 40400 bytes has not ended after 1 s", told), told


def test_leaving_does_not_wait_for_a_peer_that_stands_still(
    run_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.train.conftest.settings", dict)
    assert run_job(2, "lonely.py", "leaves").output(0).endswith("left\n")


def test_a_collective_that_nobody_joins_times_out_and_can_be_waited_for_again(
    run_job: Callable[..., Job],
) -> None:
    told = run_job(2, "lonely.py", "late").output(0)
    assert "told: rank 0: allreduce of 4000 bytes has not ended after 1 s" in told
    assert "either it is slow, or a rank has not started it" in told
    assert told.endswith("ended\n"), told


def test_a_rank_that_gives_up_ends_the_group_for_all(run_job: Callable[..., Job]) -> None:
    job = run_job(2, "lonely.py", "given-up")
    assert job.output(0).endswith("left\n"), job.output(0)
    what = "rank 0: left while a collective had not ended: rank 0: allreduce of 4000 bytes"
    assert f"told: {what}" in job.output(1)


def left_by(folder: Path, backend: str) -> list[dict[str, Any]]:
    """What two ranks of script.py have left."""
    return [json.loads((folder / f"{backend}-{rank}.json").read_text()) for rank in range(2)]


def under_torchrun(folder: Path) -> list[dict[str, Any]]:
    changes = {**device_environment("dp0", f"udp:127.0.{1 + os.getpid() % 200}.9"), **settings()}
    command = [sys.executable, "-P", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", "0", "--standalone"]
    command += [str(PROGRAMS / "script.py"), "dp", str(folder)]
    done = subprocess.run(
        command,
        env=environment(changes),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return left_by(folder, "dp")


def trained(
    run_job: Callable[..., Job], folder: Path, backend: str, *words: str
) -> list[dict[str, Any]]:
    job = run_job(2, "script.py", backend, str(folder), *words)
    outputs = [job.output(rank) for rank in range(2)]
    assert all((folder / f"{backend}-{rank}.json").exists() for rank in range(2)), outputs
    return left_by(folder, backend)


def test_ddp_under_torchrun_trains_as_over_gloo(
    run_job: Callable[..., Job], tmp_path: Path
) -> None:
    """Bit by bit: of two summands the order does not matter."""
    ours, theirs = under_torchrun(tmp_path), trained(run_job, tmp_path, "gloo")
    assert ours == theirs
    assert ours[0]["digest"] == ours[1]["digest"]
    assert ours[0]["losses"] != ours[1]["losses"]  # each rank has data of its own


def test_topk_keeps_ranks_equal_and_sends_little(
    run_job: Callable[..., Job], tmp_path: Path
) -> None:
    ours = trained(run_job, tmp_path, "dp", "topk")
    assert ours[0]["digest"] == ours[1]["digest"]
    sparse_steps = 8 - 2
    share = (ours[0]["sent"] - ours[0]["dense"] * 2 / 8) / (ours[0]["dense"] * sparse_steps / 8)
    assert share == pytest.approx(0.02, rel=0.1)  # an index beside each value
