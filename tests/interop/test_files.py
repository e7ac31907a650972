# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Capture files and the frames in them: all that tcpdump and Wireshark write, and damaged ones."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from datapath.cli import main
from datapath.errors import LocalError
from datapath.interop import files, flows, trace
from datapath.interop.capture import read
from tests.cli.server import shared
from tests.interop.scribe import Scribe

HEAD = 24  # bytes of a pcap file before its first packet


def conversation(folder: Path) -> bytes:
    """A capture file with a request and its answer."""
    talk = Scribe()
    talk.a("SEND ONLY", 100, 64, ack=True)
    talk.b("ACK", 100, msn=1)
    return talk.write(folder / "capture.pcap").read_bytes()


def packets(folder: Path) -> list[bytes]:
    conversation(folder)
    return [record.data for record in files.records(folder / "capture.pcap")]


def pcap(frames: list[bytes], link: int = 1, order: str = "<", magic: int = 0xA1B2C3D4) -> bytes:
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for at, frame in enumerate(frames):
        data += struct.pack(order + "IIII", 7, at, len(frame), len(frame)) + frame
    return data


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    return (
        struct.pack(order + "II", kind, len(body) + 12)
        + body
        + struct.pack(order + "I", len(body) + 12)
    )


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(options: bytes = b"", order: str = "<", link: int = 1) -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, 0) + options, order)


def packet(
    frame: bytes, order: str = "<", *, ticks: int = 0, which: int = 0, more: int = 0
) -> bytes:
    size = len(frame)
    head = struct.pack(
        order + "IIIII", which, ticks >> 32, ticks & 0xFFFFFFFF, size + more, size + more
    )
    return block(6, head + frame, order)


def records(folder: Path, data: bytes) -> list[files.Record]:
    path = folder / "file"
    path.write_bytes(data)
    return list(files.records(path))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
@pytest.mark.parametrize("zipped", [False, True])
def test_pcap(tmp_path: Path, order: str, magic: int, unit: int, zipped: bool) -> None:
    data = pcap([b"one", b"two."], 1, order, magic)
    found = records(tmp_path, gzip.compress(data) if zipped else data)
    assert [(r.number, r.time_ns, r.data) for r in found] == [
        (1, 7 * 10**9, b"one"),
        (2, 7 * 10**9 + unit, b"two."),
    ]


@pytest.mark.parametrize("order", "<>")
def test_pcapng(tmp_path: Path, order: str) -> None:
    """Two sections, each with devices and times of its own; blocks of other kinds between."""
    nanoseconds = struct.pack(order + "HHB3xHHqHH", 9, 1, 9, 14, 8, 5, 0, 0)
    data = section(order) + interface(order=order) + interface(nanoseconds, order, 113)
    data += packet(b"one", order, ticks=3) + block(5, b"statistics", order)
    data += packet(b"two", order, ticks=4, which=1)
    old = struct.pack(order + "HHIIII", 0, 0, 0, 6, 4, 9) + b"four"
    data += section("<") + interface() + packet(b"three") + section(order) + interface(order=order)
    data += block(2, old, order)
    assert [
        (r.number, r.time_ns, r.link, r.data, r.wire_bytes) for r in records(tmp_path, data)
    ] == [
        (1, 3000, 1, b"one", 3),
        (2, 5 * 10**9 + 4, 113, b"two", 3),
        (3, 0, 1, b"three", 5),
        (4, 6000, 1, b"four", 9),
    ]


NG = section() + interface()
WHOLE = packet(bytes(60))
DAMAGES: dict[str, tuple[bytes, int, int]] = {
    "pcap: head": (pcap([])[:10], 0, 0),
    "pcap: a packet's head": (pcap([bytes(60)]) + bytes(9), 100, 1),
    "pcap: a packet": (pcap([bytes(60)])[:-1], HEAD, 0),
    "pcap: a length": (pcap([]) + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 60) + bytes(60), HEAD, 0),
    "gzip": (gzip.compress(pcap([bytes(60)]))[:-9], 100, 1),
    "no device": (section() + WHOLE, 28, 0),
    "another device": (NG + packet(bytes(60), which=7), 48, 0),
    "a block without length": (NG + WHOLE + struct.pack("<II", 6, 0) + bytes(4), 140, 1),
    "a block without end": (NG + struct.pack("<II", 6, 0x7FFFFFF0) + bytes(40), 48, 0),
    "two lengths": (NG + WHOLE[:-4] + struct.pack("<I", 96), 48, 0),
    "half a block": (NG + WHOLE + WHOLE[:-7], 140, 1),
    "a packet beyond its block": (NG + packet(bytes(60), more=8), 48, 0),
    "a short packet block": (NG + block(6, bytes(4)), 48, 0),
    "a short device block": (section() + block(1, bytes(4)), 28, 0),
    "an option beyond its block": (
        section() + interface(struct.pack("<HHB3x", 9, 9, 0)) + WHOLE,
        28,
        0,
    ),
    "no byte order": (block(0x0A0D0D0A, bytes(16)), 0, 0),
    "a time that no clock has": (
        section() + interface(struct.pack("<HHB3x", 9, 1, 0)) + packet(b"", ticks=1 << 63),
        56,
        0,
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By all commands, with the place."""
    data, at, after = DAMAGES[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    for command in (["trace"], ["flows", "-o", str(tmp_path / "flows.csv")]):
        assert main([*command, str(path)]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert f"error: {path} is damaged at byte {at}, after packet {after}\n" in told.err


def test_a_packet_without_a_time(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"packet 2 of .* has no time"):
        records(tmp_path, NG + WHOLE + block(3, struct.pack("<I", 4) + b"data"))


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "is no capture"), (b"not a capture", "is no capture"), (None, "No such file")],
)
def test_a_file_that_is_no_capture(
    data: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    if data is not None:
        path.write_bytes(data)
    assert main(["trace", str(path)]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count(str(path)) == 1
    assert ("hint:" in told) == (data is not None)


# ---- frames ----


def tagged(*kinds: int) -> Callable[[bytes], bytes]:
    tags = b"".join(struct.pack("!HH", kind, 5) for kind in kinds)
    return lambda frame: frame[:12] + tags + frame[12:]


def sll(frame: bytes, kind: int = 4, device: int = 1, version: int = 2) -> bytes:
    """As on the device `any`; kind: 0 received, 4 sent."""
    if version == 1:
        return struct.pack("!HHH8s", kind, 1, 6, b"address") + frame[12:]
    return frame[12:14] + struct.pack("!HIHBB8s", 0, device, 1, kind, 6, b"address") + frame[14:]


LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "VLAN": (1, tagged(0x8100)),
    "QinQ": (1, tagged(0x88A8, 0x8100)),
    "raw": (101, lambda frame: frame[14:]),
    "any, version 1": (113, lambda frame: sll(frame, version=1)),
    "any": (276, sll),
}


@pytest.mark.parametrize("name", LINKS)
def test_frames_of_all_kinds(name: str, tmp_path: Path) -> None:
    link, wrapped = LINKS[name]
    path = tmp_path / "file"
    path.write_bytes(pcap([wrapped(frame) for frame in packets(tmp_path)], link))
    report = trace.check(read(path))
    assert (report.packets, report.connections, report.violations) == (2, 1, [])
    assert flows.read(path, gap_ns=1).flows["bytes"].tolist() == [64]


def test_bits_beside_the_link_type(tmp_path: Path) -> None:
    """They say that frames end with an FCS of 4 bytes."""
    path = tmp_path / "file"
    path.write_bytes(pcap(packets(tmp_path), 0x44000001))
    assert trace.check(read(path)).packets == 2


def test_a_header_that_is_too_short_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    frames = packets(tmp_path)
    short = [
        frame[:14] + bytes([0x40 | words]) + frame[15:] for frame in frames for words in (0, 4)
    ]
    path.write_bytes(pcap([*frames, *short], 1))
    assert trace.check(read(path)).packets == 2


@pytest.mark.parametrize("version", [1, 2])
def test_what_any_shows_twice_counts_once(version: int, tmp_path: Path) -> None:
    """A packet that is forwarded: received by one device, and sent by the other."""
    path = tmp_path / "file"
    seen = [
        sll(frame, kind, device, version)
        for number, frame in enumerate(packets(tmp_path))
        for kind, device in ((0, 1 + number), (4, 2 - number))
    ]
    path.write_bytes(pcap(seen, 113 if version == 1 else 276))
    report = trace.check(read(path))
    assert (report.packets, report.violations) == (2, [])


def test_other_frames_are_refused_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(pcap([bytes(60)], 127))
    assert main(["trace", str(path)]) == 2
    told = capsys.readouterr().err
    assert "LINKTYPE 127" in told
    assert "tcpdump -i DEV" in told


def test_stdin(tmp_path: Path) -> None:
    conversation(tmp_path)
    streams = {0: str(tmp_path / "capture.pcap")}
    done = shared()("trace", "-", streams=streams)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("2 packets of 1 connection, 0 violations\n")
    done = shared()("flows", "-", "-o", tmp_path / "flows.csv", streams=streams)
    assert done.out.split() == ["number", "address", "0", "10.0.0.1", "1", "10.0.0.2"]
    assert done.err.startswith("1 flow, 64 bytes of payload: ")
