# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""struct dp_packet from bytes; every buffer ends where the packet ends.

So a read behind the end of a packet is a heap overflow that AddressSanitizer
reports, and one in front of it too.
"""

from __future__ import annotations

from typing import Any

from datapath.native import ffi, lib
from tests.wire.roce_layers import V4, mapped


def packet(
    data: bytes,
    *,
    addresses: tuple[str, str] = V4,
    sport: int = 0xC123,
    tos: int = 0x02,
    ip_id: int = 0,
    flags: int = 0,
    room: int = 0,
    split: int | None = None,
) -> Any:
    """A packet in one buffer, or in two when `split` bytes go into the first."""
    first = data if split is None else data[:split]
    p = ffi.new("struct dp_packet *")
    keep = ffi.new("uint8_t[]", max(len(first) + room, 1))
    ffi.memmove(keep, first, len(first))
    p.data, p.len, p.cap = keep, len(first), len(first) + room
    p.src.b, p.dst.b = (mapped(a) for a in addresses)
    p.sport, p.tos, p.ip_id, p.flags = sport, tos, ip_id, flags
    owners = [keep]
    if split is not None:
        rest = ffi.new("uint8_t[]", max(len(data) - split, 1))
        ffi.memmove(rest, data[split:], len(data) - split)
        p.frag, p.frag_len = rest, len(data) - split
        owners.append(rest)
    return Owned(p, owners)


class Owned:
    """A struct dp_packet and the buffers that it points into."""

    def __init__(self, pointer: Any, buffers: list[Any]) -> None:
        self.p = pointer
        self.buffers = buffers

    def bytes(self) -> bytes:
        return bytes(ffi.buffer(self.p.data, self.p.len))

    def icrc_ok(self) -> bool:
        return bool(lib.dp_icrc_check(self.p))

    def append_icrc(self) -> bytes:
        lib.dp_icrc_append(self.p)
        return self.bytes()

    def parse(self) -> tuple[int, Any]:
        """(0 or -errno, struct dp_parsed)."""
        out = ffi.new("struct dp_parsed *")
        return lib.dp_packet_parse(self.p, out), out


def offset(owned: Owned, pointer: Any) -> int | None:
    """Where in the first buffer a header lies; None for NULL."""
    if pointer == ffi.NULL:
        return None
    return int(ffi.cast("uintptr_t", pointer)) - int(ffi.cast("uintptr_t", owned.p.data))
