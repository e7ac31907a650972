# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The interface of network plug-ins in versions 8 to 12, for ctypes.

Names and order of the members are those of abi.h, which names the source.
"""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass

VERSIONS = (8, 9, 10, 11, 12)
HANDLE_BYTES = 128
REQUESTS = 32
"""Requests of a communicator that may be under way; of a sender, times the largest group."""
POINTER_HOST = 1
UNDEFINED = -1

RESULTS = {
    0: "success",
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
    7: "in progress",
}

# Levels and arguments of the logger; its format's arguments as far as registers and stack go.
LOG_WARN = 2
LOG_ARGUMENTS = 8
Logger = c.CFUNCTYPE(
    None, c.c_int, c.c_ulong, c.c_char_p, c.c_int, c.c_void_p, *[c.c_void_p] * LOG_ARGUMENTS
)


class Config(c.Structure):
    """Of a communicator: its traffic class."""

    _fields_ = (("traffic_class", c.c_int),)


def _call(*arguments: type) -> type:
    return c.CFUNCTYPE(c.c_int, *arguments)


_int, _ptr, _size = c.c_int, c.c_void_p, c.c_size_t
_out = c.POINTER(c.c_void_p)
_ints, _sizes = c.POINTER(c.c_int), c.POINTER(c.c_size_t)
_config = c.POINTER(Config)

_PROPERTIES_8 = (
    ("name", c.c_char_p),
    ("pci_path", c.c_char_p),
    ("guid", c.c_uint64),
    ("pointers", _int),
    ("registration_is_global", _int),
    ("speed_mbps", _int),
    ("port", _int),
    ("latency_us", c.c_float),
    ("max_comms", _int),
    ("max_receives", _int),
    ("offload", _int),
    ("offload_version", _int),
)


def _properties(version: int) -> type[c.Structure]:
    fields = list(_PROPERTIES_8)
    if version >= 9:
        at = [name for name, _ in fields].index("speed_mbps")
        fields.insert(at, ("force_flush", _int))
        devices = 8 if version >= 12 else 4
        fields += [("parts", _int), ("part", _int * devices)]
        fields += [("max_p2p_bytes", _size), ("max_collective_bytes", _size)]
    if version >= 11:
        fields += [("max_requests_at_once", _int)]
    if version >= 12:
        fields += [("rail", c.c_int16), ("plane", c.c_int16)]
    return type(f"Properties{version}", (c.Structure,), {"_fields_": fields})


def _init(version: int) -> type:
    if version >= 11:
        return _call(_out, c.c_uint64, _config, Logger, _ptr)
    return _call(Logger, _ptr) if version == 10 else _call(Logger)


def _members(version: int, properties: type[c.Structure]) -> list[tuple[str, type]]:
    context = (_ptr,) if version >= 11 else ()
    config = (_config,) if version == 10 else ()
    event = (_ptr,) if version >= 10 else ()
    one, many = (_int, _ints) if version == 8 else (_size, _sizes)
    members: list[tuple[str, type]] = [
        ("name", c.c_char_p),
        ("init", _init(version)),
        ("devices", _call(_ints)),
        ("properties", _call(_int, c.POINTER(properties))),
        ("listen", _call(*context, _int, _ptr, _out)),
        ("connect", _call(*context, _int, *config, _ptr, _out, _ptr)),
        ("accept", _call(_ptr, _out, _ptr)),
        ("register_memory", _call(_ptr, _ptr, _size, _int, _out)),
        ("register_dmabuf", _ptr),
        ("deregister", _call(_ptr, _ptr)),
        ("isend", _call(_ptr, _ptr, one, _int, _ptr, *event, _out)),
        ("irecv", _call(_ptr, _int, _out, many, _ints, _out, *event, _out)),
        ("iflush", _call(_ptr, _int, _out, _ints, _out, _out)),
        ("test", _call(_ptr, _ints, _ints)),
        ("close_send", _call(_ptr)),
        ("close_receive", _call(_ptr)),
        ("close_listen", _call(_ptr)),
        ("device_memory", _ptr),
        ("receive_consumed", _ptr),
    ]
    if version >= 9:
        members += [("merge", _ptr)]
    if version >= 11:
        members += [("finalize", _call(_ptr)), ("set_attributes", _ptr)]
    return members


@dataclass(frozen=True)
class Abi:
    """One version: the exported symbol, the struct behind it, and that of properties."""

    version: int
    symbol: str
    net: type[c.Structure]
    properties: type[c.Structure]


def abi(version: int) -> Abi:
    """The interface of a version, one of VERSIONS."""
    properties = _properties(version)
    net = type(f"Net{version}", (c.Structure,), {"_fields_": _members(version, properties)})
    return Abi(version, f"ncclNetPlugin_v{version}", net, properties)
