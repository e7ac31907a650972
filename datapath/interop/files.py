# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Capture files, pcap and pcapng, also compressed by gzip, read to their end.

A file that cannot be read to its end is refused: of the packets behind the damage nothing is
known.  Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from datapath.errors import LocalError

_PCAP = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
"""First word of a pcap file -> ns in a unit of the fractions of its seconds."""
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_BYTE_ORDER = 0x1A2B3C4D
_LINKTYPE = 0x03FFFFFF
"""Of the word in a pcap file; the bits above tell whether frames end with an FCS, and how long."""
_END, _RESOLUTION, _OFFSET = 0, 9, 14  # options of an interface
_BLOCK_MAX = 1 << 24  # bytes; a packet has at most 2^18
_TIME_MAX_NS = 1 << 63
_PACKET_HEAD = 20  # bytes of its block before the packet
_GZIP = b"\x1f\x8b"
_STDIN = Path("-")


@dataclass(frozen=True)
class Record:
    """A packet of a capture: number from 1, as Wireshark counts; link: its LINKTYPE."""

    number: int
    time_ns: int
    link: int
    data: bytes
    wire_bytes: int


class _Damaged(Exception):
    """The file is not as its format says."""


def name_of(path: Path) -> str:
    """As messages name it."""
    return "stdin" if path == _STDIN else str(path)


def records(path: Path) -> Iterator[Record]:
    """The packets of a capture; `-` is stdin.

    LocalError when the file is none, is damaged, or has a packet without a time.
    """
    name = name_of(path)
    try:
        with _opened(path) as stream:
            source = _Source(stream, name)
            try:
                yield from source.records()
            except (_Damaged, EOFError, zlib.error, gzip.BadGzipFile):
                raise LocalError(
                    f"{name} is damaged at byte {source.begin}, after packet {source.packets}",
                    hint="tcpdump -r FILE -w WHOLE keeps the packets before",
                ) from None
    except OSError as error:
        raise LocalError(f"cannot read {name}: {error.strerror or error}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedIOBase]:
    with contextlib.ExitStack() as stack:
        if path == _STDIN:
            plain: io.BufferedReader = sys.stdin.buffer  # type: ignore[assignment]
        else:
            plain = stack.enter_context(path.open("rb"))
        zipped = plain.peek(2)[:2] == _GZIP
        yield stack.enter_context(gzip.open(plain)) if zipped else plain


@dataclass
class _Interface:
    """Of a section of pcapng: ticks in a second, and what is added to each time."""

    link: int
    ticks: int = 1_000_000
    offset_s: int = 0


@dataclass
class _Source:
    """begin: where the record or block begins that is being read."""

    stream: io.BufferedIOBase
    name: str
    at: int = 0
    begin: int = 0
    packets: int = 0
    order: str = "<"
    interfaces: list[_Interface] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        first = self.stream.read(4)
        self.at = len(first)
        for self.order in "<>":
            word = self._word(first) if len(first) == 4 else 0
            if word in _PCAP:
                yield from self._pcap(_PCAP[word])
                return
        if first != struct.pack("<I", _SECTION):
            raise LocalError(
                f"{self.name} is no capture", hint="it should be one by tcpdump or Wireshark"
            )
        yield from self._pcapng(first)

    def _take(self, count: int) -> bytes:
        data = self.stream.read(count) if 0 <= count <= _BLOCK_MAX else b""
        self.at += len(data)
        if len(data) != count:
            raise _Damaged
        return data

    def _word(self, data: bytes) -> int:
        return int(struct.unpack_from(self.order + "I", data)[0])

    def _unpack(self, form: str, data: bytes) -> tuple[int, ...]:
        if len(data) < struct.calcsize(self.order + form):
            raise _Damaged
        return struct.unpack_from(self.order + form, data)

    def _pcap(self, unit_ns: int) -> Iterator[Record]:
        link = self._word(self._take(20)[16:]) & _LINKTYPE
        while True:
            self.begin = self.at
            head = self.stream.read(16)
            self.at += len(head)
            if not head:
                return
            seconds, part, kept, wire = self._unpack("IIII", head)
            data = self._take(kept)
            self.packets += 1
            yield Record(self.packets, seconds * 10**9 + part * unit_ns, link, data, wire)

    def _pcapng(self, head: bytes) -> Iterator[Record]:
        while head:
            body = self._block(head)
            kind = self._word(head)
            if kind == _SECTION:
                self.interfaces = []
            elif kind == _INTERFACE:
                self.interfaces.append(self._interface(body))
            elif kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
                yield self._packet(kind, body)
            self.begin = self.at
            head = self.stream.read(4)
            self.at += len(head)

    def _block(self, head: bytes) -> bytes:
        """What stands between the lengths of a block, whose kind has been read."""
        if len(head) < 4:
            raise _Damaged
        length = self._take(4)
        body = b""
        if self._word(head) == _SECTION:  # equal in both orders
            body = self._take(4)
            self.order = "<" if struct.unpack("<I", body)[0] == _BYTE_ORDER else ">"
            if self._word(body) != _BYTE_ORDER:
                raise _Damaged
        size = self._word(length)
        if size % 4:
            raise _Damaged
        body += self._take(size - 12 - len(body))
        if self._take(4) != length:
            raise _Damaged
        return body

    def _interface(self, body: bytes) -> _Interface:
        found = _Interface(self._unpack("HHI", body)[0])
        options = body[8:]
        while options:
            code, size = self._unpack("HH", options)
            value, options = options[4 : 4 + size], options[4 + (size + 3) // 4 * 4 :]
            if code == _END:
                break
            if len(value) < size:
                raise _Damaged
            if code == _RESOLUTION:
                (exponent,) = self._unpack("B", value)
                found.ticks = 2 ** (exponent & 127) if exponent & 128 else 10**exponent
            elif code == _OFFSET:
                (found.offset_s,) = self._unpack("q", value)
        return found

    def _packet(self, kind: int, body: bytes) -> Record:
        if kind == _SIMPLE_PACKET:
            raise LocalError(
                f"packet {self.packets + 1} of {self.name} has no time",
                hint="it stands in a Simple Packet Block, as tcpdump and Wireshark write none",
            )
        fields = self._unpack("IIIII" if kind == _PACKET else "HHIIII", body)
        index, (high, low, kept, wire) = fields[0], fields[-4:]
        data = body[_PACKET_HEAD : _PACKET_HEAD + kept]
        if len(data) < kept or index >= len(self.interfaces):
            raise _Damaged
        interface = self.interfaces[index]
        time_ns = (high << 32 | low) * 10**9 // interface.ticks + interface.offset_s * 10**9
        if not 0 <= time_ns < _TIME_MAX_NS:
            raise _Damaged
        self.packets += 1
        return Record(self.packets, time_ns, interface.link, data, wire)
