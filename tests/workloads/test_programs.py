# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is told of a program that fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.cc.spec import HostCc
from datapath.errors import RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.verbs.spec import Transport
from datapath.workloads.base import RunContext
from datapath.workloads.programs import Programs

pytestmark = pytest.mark.usefixtures("root")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo it waits; echo '*****'; kill -9 $$", "it was killed by signal 9 (SIGKILL)"),
        (
            "echo Unable to go on; kill -SEGV $$",
            "it was killed by signal 11 (SIGSEGV): Unable to go on",
        ),
        ("echo it waits; kill -40 $$", "it was killed by signal 40"),
        ("echo no idea; echo '** --'; echo ====; exit 3", "it ended with status 3: no idea"),
        ("echo '*****'; exit 3", "it ended with status 3: no output"),
    ],
)
def test_how_a_program_ended(
    network: NetnsNetwork, tmp_path: FilePath, script: str, said: str
) -> None:
    context = RunContext(network, Transport(), HostCc(), [{}, {}], tmp_path, 1, 60)
    with Programs(context, ()) as programs:
        program = programs.start(network.hosts[0], "it", ["sh", "-c", script])
        with pytest.raises(RunFailed) as caught:
            programs.finish(program)
    assert str(caught.value) == said


OWN = "echo error: no memory >&2; touch {0}/gone; exit 2"
SEES = "while [ ! -e {0}/gone ]; do sleep 0.05; done; sleep 0.05; echo error: {1} >&2; exit 2"


def told_of(network: NetnsNetwork, logs: FilePath, scripts: Sequence[str], **rule: Any) -> str:
    """What is told of a job of several programs, which so ends badly."""
    context = RunContext(network, Transport(), HostCc(), [{}, {}], logs, 1, 5)
    with Programs(context, ()) as programs:
        started = [
            programs.start(network.hosts[0], f"p{number}", ["sh", "-c", script])
            for number, script in enumerate(scripts)
        ]
        with pytest.raises(RunFailed) as caught:
            programs.finish_all(started, **rule)
    return str(caught.value)


def test_of_a_job_the_program_that_failed_first_is_told(
    network: NetnsNetwork, tmp_path: FilePath
) -> None:
    """Wherever it stands, and although another one waits for it until the time is over."""
    own, sees = OWN.format(tmp_path), SEES.format(tmp_path, "the peer is gone")
    wanted = "ended with status 2: error: no memory"
    for scripts in ([sees, own], [own, sees], ["exit 0", "sleep 60", own]):
        told = told_of(network, tmp_path, scripts)
        (tmp_path / "gone").unlink()
        assert told == f"p{scripts.index(own)} {wanted}"
        for log in tmp_path.glob("p*"):
            log.unlink()


def test_of_a_job_hearsay_and_good_ends_are_not_told(
    network: NetnsNetwork, tmp_path: FilePath
) -> None:
    hears = OWN.format(tmp_path).replace("no memory", "p1 told p0 that")
    fine, own = "echo error: a report; exit 1", SEES.format(tmp_path, "it knows")
    told = told_of(network, tmp_path, [fine, hears, own], well=(0, 1), hearsay=" told p")
    assert told == "p2 ended with status 2: error: it knows"
    assert "p0 not done after 5 s" in told_of(network, tmp_path, ["sleep 60", "sleep 60"])
