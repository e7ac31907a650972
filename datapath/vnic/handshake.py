# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How two cards know each other by a secret: four lines, without sockets.

    caller    hello      who calls whom, and a random number of the caller
    answerer  challenge  a random number of the answerer, and a proof
    caller    offer      the caller's ends of the pipes, and a proof
    answerer  accept     the answerer's ends of the pipes, and a proof

A proof is HMAC-SHA256 by the secret over its kind and all lines so far, its own without the proof
included.  So it cannot be replayed (both random numbers are in it), used in the other direction
(the kind is), or put under other names or QPs.  Nothing is made or changed before a proof of the
peer was right.  What is said is not secret, the key never leaves the host.

Lines are JSON objects of at most LINE_MAX bytes.  RemoteError tells what was wrong with a peer's
line; nothing of it is echoed to the peer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datapath.errors import RemoteError
from datapath.vnic.program import PipeEnd, parse_ends

VERSION = 1
LINE_MAX = 4096
_NONCE_BYTES = 32


@dataclass(frozen=True)
class Offer:
    """A card's description for its peer: its ends of the pipes, and its guests' MTU."""

    mtu: int
    ends: Sequence[PipeEnd]


class _Transcript:
    """The lines so far, and proofs over them."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._lines: list[bytes] = []

    def say(self, kind: str, content: dict[str, Any], *, prove: bool = True) -> bytes:
        """A line of ours; it is part of all later proofs."""
        if prove:
            content = content | {"proof": self._proof(kind, content)}
        line = json.dumps(content, sort_keys=True).encode()
        self._lines.append(line)
        return line + b"\n"

    def hear(self, kind: str, line: bytes, *, proven: bool = True) -> dict[str, Any]:
        """The content of a peer's line; RemoteError when it is none, or not proven."""
        content = _read(kind, line)
        if proven:
            proof = content.pop("proof", None)
            right = self._proof(kind, content)
            if not isinstance(proof, str) or not proof.isascii():
                raise RemoteError(f"{kind} has no proof")
            if not hmac.compare_digest(proof, right):
                raise RemoteError(f"{kind} is not proven", hint="do the hosts have the same key?")
        self._lines.append(line.rstrip(b"\n"))
        return content

    def _proof(self, kind: str, content: dict[str, Any]) -> str:
        parts = [kind.encode(), *self._lines, json.dumps(content, sort_keys=True).encode()]
        return hmac.new(self._key, b"\n".join(parts), hashlib.sha256).hexdigest()


def _read(kind: str, line: bytes) -> dict[str, Any]:
    if len(line) > LINE_MAX or not line.endswith(b"\n"):
        raise RemoteError(f"{kind} is cut short or too long")
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise RemoteError(f"{kind} is not JSON") from None
    if not isinstance(content, dict):
        raise RemoteError(f"{kind} is not an object")
    return content


def _nonce(content: dict[str, Any], kind: str) -> None:
    nonce = content.get("nonce")
    if not isinstance(nonce, str) or len(nonce) != 2 * _NONCE_BYTES:
        raise RemoteError(f"{kind} has no random number")


def _offer_content(offer: Offer) -> dict[str, Any]:
    return {"mtu": offer.mtu, "ends": [f"{end.qpn}:{end.psn}" for end in offer.ends]}


def _offer(content: dict[str, Any], kind: str) -> Offer:
    ends, mtu = content.get("ends"), content.get("mtu")
    if not isinstance(ends, list) or not isinstance(mtu, int):
        raise RemoteError(f"{kind} offers no pipes")
    try:
        return Offer(mtu, parse_ends(ends))
    except ValueError as error:
        raise RemoteError(f"{kind}: {error}") from None


class Caller:
    """The side that opens the connection: hello(), then offer() with the answer, then accept()."""

    def __init__(self, key: bytes, me: str, peer: str) -> None:
        self._transcript = _Transcript(key)
        self._names = {"from": me, "to": peer}

    def hello(self) -> bytes:
        content = {"vnic": VERSION, "nonce": secrets.token_hex(_NONCE_BYTES), **self._names}
        return self._transcript.say("hello", content, prove=False)

    def offer(self, challenge: bytes, make: Callable[[], Offer]) -> bytes:
        """make: called once the peer has proven that it has the key."""
        _nonce(self._transcript.hear("challenge", challenge), "challenge")
        return self._transcript.say("offer", _offer_content(make()))

    def accept(self, line: bytes) -> Offer:
        """The peer's ends."""
        return _offer(self._transcript.hear("accept", line), "accept")


class Answerer:
    """The side that was called: challenge(), then accept() with the answer."""

    def __init__(self, key: bytes, me: str) -> None:
        self._transcript = _Transcript(key)
        self._me = me
        self.peer = ""

    def challenge(self, hello: bytes) -> bytes:
        """Sets `peer` to the name that the caller gives itself, which is not proven yet."""
        content = self._transcript.hear("hello", hello, proven=False)
        _nonce(content, "hello")
        if content.get("vnic") != VERSION:
            raise RemoteError("the caller speaks another version")
        if content.get("to") != self._me or not isinstance(content.get("from"), str):
            raise RemoteError("the caller wants another host")
        self.peer = content["from"]
        return self._transcript.say("challenge", {"nonce": secrets.token_hex(_NONCE_BYTES)})

    def accept(self, line: bytes, make: Callable[[], Offer]) -> tuple[Offer, bytes]:
        """(the caller's ends, the line with ours).  make: called once the caller is proven."""
        theirs = _offer(self._transcript.hear("offer", line), "offer")
        return theirs, self._transcript.say("accept", _offer_content(make()))
