# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two cards know each other by their key, and nobody else gets anywhere."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.errors import RemoteError
from datapath.vnic.handshake import Answerer, Caller, Offer
from datapath.vnic.program import PipeEnd

pytestmark = pytest.mark.compute

KEY, OTHER = bytes(range(32)), bytes(32)
OURS = Offer(1500, [PipeEnd(17, 4), PipeEnd(18, 0xFFFFFF)])
THEIRS = Offer(1500, [PipeEnd(400, 5), PipeEnd(401, 6)])


def nothing() -> NoReturn:
    pytest.fail("something was made for a peer that has proven nothing")


def lines(key: bytes = KEY) -> list[bytes]:
    """hello, challenge, offer, accept of a handshake that succeeds."""
    caller, answerer = Caller(key, "a", "b"), Answerer(key, "b")
    hello = caller.hello()
    challenge = answerer.challenge(hello)
    offer = caller.offer(challenge, lambda: OURS)
    _, accept = answerer.accept(offer, lambda: THEIRS)
    return [hello, challenge, offer, accept]


def test_both_learn_the_others_ends() -> None:
    caller, answerer = Caller(KEY, "a", "b"), Answerer(KEY, "b")
    challenge = answerer.challenge(caller.hello())
    assert answerer.peer == "a"
    theirs, accept = answerer.accept(caller.offer(challenge, lambda: OURS), lambda: THEIRS)
    assert theirs == OURS
    assert caller.accept(accept) == THEIRS


def test_a_caller_gives_an_answerer_without_the_key_nothing() -> None:
    caller = Caller(KEY, "a", "b")
    with pytest.raises(RemoteError, match="not proven"):
        caller.offer(Answerer(OTHER, "b").challenge(caller.hello()), nothing)


def test_an_answerer_gives_a_caller_without_the_key_nothing() -> None:
    caller, answerer = Caller(OTHER, "a", "b"), Answerer(KEY, "b")
    challenge = answerer.challenge(caller.hello())
    caller._transcript.hear("challenge", challenge, proven=False)  # it does not care
    forged = caller._transcript.say("offer", {"mtu": 1500, "ends": ["17:4"]})
    with pytest.raises(RemoteError, match="not proven"):
        answerer.accept(forged, nothing)


def test_an_offer_of_an_earlier_handshake_proves_nothing() -> None:
    hello, _, offer, _ = lines()
    answerer = Answerer(KEY, "b")
    answerer.challenge(hello)
    with pytest.raises(RemoteError, match="not proven"):
        answerer.accept(offer, nothing)


def test_a_challenge_of_an_earlier_handshake_proves_nothing() -> None:
    caller = Caller(KEY, "a", "b")
    caller.hello()
    with pytest.raises(RemoteError, match="not proven"):
        caller.offer(lines()[1], nothing)


def test_a_callers_own_line_sent_back_proves_nothing() -> None:
    caller, answerer = Caller(KEY, "a", "b"), Answerer(KEY, "b")
    offer = caller.offer(answerer.challenge(caller.hello()), lambda: OURS)
    with pytest.raises(RemoteError, match="not proven"):
        caller.accept(offer)


def spoilt(line: bytes) -> bytes:
    """With another QPN in place of the first."""
    content = json.loads(line)
    content["ends"][0] = "666:6"
    return json.dumps(content, sort_keys=True).encode() + b"\n"


def test_ends_cannot_be_changed_under_way() -> None:
    caller, answerer = Caller(KEY, "a", "b"), Answerer(KEY, "b")
    offer = caller.offer(answerer.challenge(caller.hello()), lambda: OURS)
    with pytest.raises(RemoteError, match="not proven"):
        answerer.accept(spoilt(offer), nothing)
    _, accept = answerer.accept(offer, lambda: THEIRS)
    with pytest.raises(RemoteError, match="not proven"):
        caller.accept(spoilt(accept))


def test_a_name_cannot_be_changed_under_way() -> None:
    caller, answerer = Caller(KEY, "a", "b"), Answerer(KEY, "b")
    hello = json.loads(caller.hello()) | {"from": "c"}
    challenge = answerer.challenge(json.dumps(hello, sort_keys=True).encode() + b"\n")
    with pytest.raises(RemoteError, match="not proven"):
        caller.offer(challenge, nothing)


def test_a_caller_for_another_host_is_refused() -> None:
    with pytest.raises(RemoteError, match="another host"):
        Answerer(KEY, "b").challenge(Caller(KEY, "a", "c").hello())


junk = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
).map(lambda line: line + b"\n")


@given(junk)
def test_junk_is_refused_and_makes_nothing(line: bytes) -> None:
    caller = Caller(KEY, "a", "b")
    hello = caller.hello()
    answerer = Answerer(KEY, "b")
    for refused in (
        lambda: Answerer(KEY, "b").challenge(line),
        lambda: caller.offer(line, nothing),
        lambda: (answerer.challenge(hello), answerer.accept(line, nothing)),
    ):
        with pytest.raises(RemoteError):
            refused()
