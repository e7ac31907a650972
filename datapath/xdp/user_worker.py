# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Compiles, loads and attaches one XDP program by bcc; run by datapath.xdp.user.

    python -I user_worker.py SOURCE FUNCTION NETDEV

A process of its own, in the namespace of the device: the compiler is large,
and its messages come on standard error.  One line of JSON on standard output
says {"mode", "reason"} or {"error", "step"}.  Every line on standard input is
answered with {"maps", "notes"} as one line of JSON: the maps' values, and what
of them was left out, by map.  The end of standard input ends the process, and
with it program and maps.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
import time
from typing import Any

_BPF_PROG_TYPE_XDP = 6
_BPF_F_XDP_HAS_FRAGS = 1 << 5
_BPF_XDP = 37  # enum bpf_attach_type
_XDP_FLAGS_SKB_MODE = 1 << 1
_READABLE = {1: "HASH", 2: "ARRAY", 5: "PERCPU_HASH", 6: "PERCPU_ARRAY", 9: "LRU_HASH"}
_READABLE[10] = "LRU_PERCPU_HASH"  # enum bpf_map_type
_PADDING = "__pad_"
"""Beginning of the names that bcc gives to the gaps of a structure."""
_ENTRIES_MAX = 4096
"""Of each map that are told."""
_READING_S = 10.0
"""Time for all maps together."""


class _LinkOptions(ctypes.Structure):
    """The start of struct bpf_link_create_opts."""

    _fields_ = (("sz", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("pad", ctypes.c_uint32))


class _LoadOptions(ctypes.Structure):
    """The start of struct bpf_prog_load_opts."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("attempts", ctypes.c_int),
        ("expected_attach_type", ctypes.c_int),
        ("prog_btf_fd", ctypes.c_uint32),
        ("prog_flags", ctypes.c_uint32),
    )


def _load_with_fragments(bpf: Any, function: str) -> int:
    """The program again, declared to take packets in several fragments: fd or -errno.

    A device with an MTU above one page takes only such programs; bcc has no
    way to declare it.  data .. data_end is then the first fragment.
    """
    code = bpf.dump_func(function)
    options = _LoadOptions(sz=ctypes.sizeof(_LoadOptions), prog_flags=_BPF_F_XDP_HAS_FRAGS)
    fd: int = ctypes.CDLL("libbpf.so.1").bpf_prog_load(
        _BPF_PROG_TYPE_XDP,
        function.encode()[:15],
        b"GPL",
        code,
        ctypes.c_size_t(len(code) // 8),
        ctypes.byref(options),
    )
    return fd


def _link(program_fd: int, ifindex: int, flags: int) -> int:
    """A link's descriptor or -errno."""
    libbpf = ctypes.CDLL("libbpf.so.1")
    options = _LinkOptions(ctypes.sizeof(_LinkOptions), flags, 0)
    fd: int = libbpf.bpf_link_create(program_fd, ifindex, _BPF_XDP, ctypes.byref(options))
    return fd


def _attach(bpf: Any, function: str, netdev: str) -> dict[str, str]:
    """Native mode, or generic with the reason why not native."""
    ifindex = socket.if_nametoindex(netdev)
    program_fd = bpf.load_func(function, bpf.XDP).fd
    result = _link(program_fd, ifindex, 0)
    if result == -errno.ERANGE:
        result = _load_with_fragments(bpf, function)
        if result >= 0:
            result = _link(result, ifindex, 0)
    if result >= 0:
        return {"mode": "native", "reason": ""}
    if result == -errno.EBUSY:
        return {"error": f"{netdev} has an XDP program already", "step": "attach"}
    reason = os.strerror(-result)
    result = _link(program_fd, ifindex, _XDP_FLAGS_SKB_MODE)
    if result >= 0:
        return {"mode": "generic", "reason": reason}
    return {"error": f"{netdev}: {os.strerror(-result)}", "step": "attach"}


def _plain(value: Any, kind: Any = None) -> Any:
    """A ctypes value as numbers, texts, lists and dictionaries.

    kind: its ctypes type where it may have become a Python object already.
    """
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {
            name: _plain(getattr(value, name), of)
            for name, of, *_ in value._fields_
            if not name.startswith(_PADDING)
        }
    if isinstance(value, ctypes.Array) and value._type_ is ctypes.c_char:
        return _plain(value.value)
    if isinstance(value, (ctypes.Array, list)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value[0] if kind is ctypes.c_char else value.decode(errors="backslashreplace")
    return _plain(value.value, type(value)) if hasattr(value, "value") else value


def _key(value: Any) -> str:
    plain = _plain(value)
    return str(plain) if isinstance(plain, (int, str)) else json.dumps(plain)


def _is_zero(plain: Any) -> bool:
    if isinstance(plain, dict):
        return all(map(_is_zero, plain.values()))
    return all(map(_is_zero, plain)) if isinstance(plain, list) else not plain


def _read(table: Any, kind: str, deadline: float) -> tuple[dict[str, Any], str]:
    """{key: value}, and a note of what is left out; "": nothing.

    Of an array with too many entries, those that are not zero.
    """
    told: dict[str, Any] = {}
    large = kind.endswith("ARRAY") and len(table) > _ENTRIES_MAX
    # One by one is slow, but the only way to values of several CPUs.
    items = table.items_lookup_batch() if large and kind == "ARRAY" else table.iteritems()
    for number, (key, value) in enumerate(items):
        if time.monotonic() > deadline:
            return told, f"only its first {number} entries could be read in {_READING_S:g} s"
        plain = _plain(value)
        if large and _is_zero(plain):
            continue
        if len(told) == _ENTRIES_MAX:
            return told, f"only {_ENTRIES_MAX} of its entries are kept"
        told[_key(key)] = plain
    return told, ""


def _maps(bpf: Any) -> dict[str, dict[str, Any]]:
    """maps: map name -> {key: value}; a per-CPU value is the list over CPUs.  notes: of maps."""
    from bcc import lib

    # bcc's Python half does not declare these.
    lib.bpf_num_tables.argtypes = [ctypes.c_void_p]
    for function in (lib.bpf_table_name, lib.bpf_table_type_id):
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.bpf_table_name.restype = ctypes.c_char_p
    maps, notes = {}, {}
    deadline = time.monotonic() + _READING_S
    for number in range(lib.bpf_num_tables(bpf.module)):
        name = lib.bpf_table_name(bpf.module, number)
        kind = _READABLE.get(lib.bpf_table_type_id(bpf.module, number))
        if kind is not None:
            try:
                maps[name.decode()], note = _read(bpf[name], kind, deadline)
            except Exception as error:  # bcc raises nothing more special
                note = f"could not be read: {error or type(error).__name__}"
            if note:
                notes[name.decode()] = note
    return {"maps": maps, "notes": notes}


def _answer(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def main(argv: list[str]) -> int:
    source, function, netdev = argv[1:]
    from bcc import BPF

    step = "compile"
    try:
        bpf = BPF(src_file=source)
        step = "load"
        attached = _attach(bpf, function, netdev)
    except Exception as error:  # bcc raises nothing more special
        _answer({"error": str(error), "step": step})
        return 1
    _answer(attached)
    for _request in sys.stdin:
        _answer(_maps(bpf))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
