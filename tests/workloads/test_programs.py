# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is told of a program that fails."""

from __future__ import annotations

from pathlib import Path as FilePath

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
