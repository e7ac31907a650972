# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which packets of RoCEv2 are payload in a table that is made of a capture, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.cli import main
from datapath.interop import flows
from tests.cli.told import told
from tests.interop.scribe import Scribe

S = 10**9


def sizes(talk: Scribe, folder: Path) -> list[tuple[int, int]]:
    """(sender, bytes) of each flow."""
    rows = flows.read(talk.write(folder / "capture.pcap"), gap_ns=10 * S).flows
    return list(zip(rows["src"].tolist(), rows["bytes"].tolist(), strict=True))


def test_what_is_sent_again_counts_once(tmp_path: Path) -> None:
    """Also where PSNs begin again at 0; an answer has the PSN of the other end's request."""
    talk = Scribe()
    first = (1 << 24) - 2
    for psn in (0, 1, 0, 2, 3, 1, 0):
        talk.a("WRITE ONLY", first + psn, 100 + psn, length=100 + psn)
    talk.a("READ REQUEST", first + 4, length=50)
    for _ in range(2):
        talk.b("READ RESPONSE ONLY", first + 4, 50)
        talk.b("SEND ONLY", first + 4, 7)
    assert sizes(talk, tmp_path) == [(0, 406), (1, 57)]


def test_another_connection_may_have_the_same_psns(tmp_path: Path) -> None:
    talk = Scribe()
    for silence_s in (0.5, 1.5, 0):
        talk.a("SEND ONLY", 100, 10)
        talk.wait(silence_s)
    assert sizes(talk, tmp_path) == [(0, 20)]


def test_datagrams_are_payload_and_messages_of_the_connection_manager_are_none(
    tmp_path: Path,
) -> None:
    """PSNs of datagrams are those of any sender to the QP."""
    talk = Scribe()
    for qpn in (0x33, 0x34):
        talk.a("UD SEND", 100, 11, src_qpn=qpn)
    talk.a("UD SEND", 100, 256, qpn=1, src_qpn=1)
    assert sizes(talk, tmp_path) == [(0, 22)]


def test_what_the_protocol_says_for_itself_is_no_payload(tmp_path: Path) -> None:
    """In both modes; a trimmed packet has lost its payload."""

    def trimmed(raw: bytes) -> bytes:
        return raw[:15] + bytes([43 << 2]) + raw[16:]

    talk = Scribe()
    talk.a("SEND ONLY", 99, 5)
    for number, code in enumerate((0xCC, 0xD1, 0xD2, 0xD3, 0xD4, 0xDC, *range(0xE0, 0xE7), 0xFF)):
        talk.a(code, 100 + number, bytes(1000))
    talk.a(0xC4, 150, bytes(20 + 64), spoil=trimmed)
    for name in ("ACK", "ATOMIC ACK", "COMPARE SWAP", "READ REQUEST", "CNP"):
        talk.a(name, 200, length=0, more=bytes(16) if name == "CNP" else b"")
    assert sizes(talk, tmp_path) == [(0, 5)]


@pytest.mark.parametrize("parts", [65, 1 << 31])
def test_a_bundle_that_none_is_has_no_payload(tmp_path: Path, parts: int) -> None:
    talk = Scribe()
    talk.a("SEND ONLY", 99, 5)
    talk.a(0xE8, 100, bytes(8) + parts.to_bytes(4, "big") + bytes(8) + bytes(300))
    talk.a(0xE8, 200, bytes(8) + (2).to_bytes(4, "big") + bytes(8) + b"\xff" * 300)
    assert sizes(talk, tmp_path) == [(0, 5)]


def test_the_hosts_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = Scribe()
    talk.a("SEND ONLY", 100, 1)
    path = str(talk.write(tmp_path / "capture.pcap"))
    argv = ["flows", path, "-o", str(tmp_path / "flows.csv"), "--format", "json"]
    assert main(argv) == 0
    written = capsys.readouterr()
    assert told("flows", written.out) == [
        {"number": 0, "address": "10.0.0.1"},
        {"number": 1, "address": "10.0.0.2"},
    ]
    assert written.err == f"1 flow, 1 byte of payload: {tmp_path / 'flows.csv'}\n"
