# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who is believed to be a card, and how long one may take to answer."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pydantic
import pytest

from datapath.cli.app import run
from datapath.cli.documents.devices import Card
from datapath.vnic import watching
from datapath.vnic.service import SOCKET_PREFIX
from datapath.vnic.watching import running

NOBODY = 65534
CARD = {"host": "impostor"}
ANSWERING = f"""
import socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(chr(0) + sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    with listener.accept()[0] as caller:
        caller.sendall({json.dumps(CARD).encode()!r})
"""


@pytest.mark.parametrize(("user", "shown"), [(0, [CARD]), (NOBODY, [])])
def test_another_users_process_is_no_card(
    root: None, user: int, shown: list[dict[str, str]]
) -> None:
    argv = [sys.executable, "-c", ANSWERING, f"{SOCKET_PREFIX}impostor/1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, user=user, cwd="/") as impostor:
        assert impostor.stdout
        assert impostor.stdout.readline() == b"ready\n"
        assert running("impostor") == shown
        impostor.kill()


@pytest.fixture
def slow() -> Iterator[None]:
    """Answers as a card, with so many spaces before that it takes a second."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{SOCKET_PREFIX}slow/1")
        listener.listen()

        def answer() -> None:
            caller, _ = listener.accept()
            with caller, contextlib.suppress(BrokenPipeError):
                for _ in range(100):
                    caller.sendall(b" ")
                    threading.Event().wait(0.01)
                caller.sendall(json.dumps(CARD).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


@pytest.mark.usefixtures("slow")
def test_an_answer_that_comes_in_drops_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_ANSWER_S", 0.3)
    why = "the card does not answer within 0.3 s"
    card = {"host": "slow", "state": "no answer", "reason": why}
    assert running("slow") == [card]
    pydantic.TypeAdapter(Card).validate_python(card)


@pytest.mark.usefixtures("slow")
def test_a_card_that_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "_ANSWER_S", 0.3)
    assert run(["vnic", "show", "slow"]) == 0
    told = "slow: no answer: the card does not answer within 0.3 s\n\n"
    assert capfd.readouterr().out == told


@pytest.mark.usefixtures("slow")
def test_a_slow_answer_is_awaited() -> None:
    assert running("slow") == [CARD]
