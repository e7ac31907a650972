# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A loaded plug-in: NCCL's calls, the same for all versions of the interface.

Each call names itself to a watch, so that one that does not return can be named.  A call whose
result is not success raises CallFailed, with the plug-in's last warning.
"""

from __future__ import annotations

import ctypes as c
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from datapath.collectives.nccl.abi import (
    HANDLE_BYTES,
    LOG_WARN,
    POINTER_HOST,
    RESULTS,
    UNDEFINED,
    Config,
    Logger,
    abi,
)

_GUARD = 0xA5
_LOG_BYTES = 512
_NOT_SET = -(2**31)


class CallFailed(Exception):
    """A call of the plug-in's gave another result than success.  result: of abi.RESULTS."""

    def __init__(self, call: str, result: int, warning: str) -> None:
        said = f": {warning}" if warning else ""
        super().__init__(f"{call}() gave {RESULTS.get(result, result)}{said}")
        self.result = result


class Unset(Exception):
    """A call of the plug-in's gave success, and not what it has to give; the text says what."""


class Handle:
    """A listener's handle, with guard bytes behind it."""

    def __init__(self, data: bytes = b"") -> None:
        self._memory = (c.c_ubyte * (2 * HANDLE_BYTES))()
        c.memset(self._memory, _GUARD, 2 * HANDLE_BYTES)
        c.memmove(self._memory, data.ljust(HANDLE_BYTES, b"\0"), HANDLE_BYTES)

    @property
    def address(self) -> int:
        return c.addressof(self._memory)

    @property
    def data(self) -> bytes:
        return bytes(self._memory[:HANDLE_BYTES])

    @property
    def is_whole(self) -> bool:
        """Whether nothing was written behind the handle."""
        return set(self._memory[HANDLE_BYTES:]) == {_GUARD}


class Memory:
    """Host memory of whole pages, `size` bytes of it in use."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, max(size, 1))
        self.address = c.addressof(c.c_char.from_buffer(self._map))

    def write(self, data: bytes, at: int = 0) -> None:
        self._map[at : at + len(data)] = data

    def read(self, size: int, at: int = 0) -> bytes:
        return self._map[at : at + size]


@dataclass
class Receive:
    """A receive of a group: `size` bytes at `offset` of memory that is registered as `handle`."""

    memory: Memory
    handle: int | None
    size: int
    tag: int = 0
    offset: int = 0


@dataclass
class Network:
    """A plug-in in one version of its interface.

    watch: is told of each call, and of its end.  traffic_class: of its communicators.
    """

    path: str
    version: int
    watch: Callable[[str], None]
    traffic_class: int = UNDEFINED
    _warning: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.abi = abi(self.version)
        self.watch("dlopen")  # which runs the plug-in's constructors
        self._library = c.CDLL(self.path)
        self.watch("")
        self._net = self.abi.net.in_dll(self._library, self.abi.symbol)
        self._libc = c.CDLL(None)
        self._logger = Logger(self._log)
        self._contexts: list[c.c_void_p] = []

    @property
    def name(self) -> str:
        return (self._net.name or b"").decode(errors="replace")

    def _log(self, level: int, _flags: int, _file: bytes, _line: int, *format_: int) -> None:
        if level == LOG_WARN:
            text = c.create_string_buffer(_LOG_BYTES)
            self._libc.snprintf(text, _LOG_BYTES, *map(c.c_void_p, format_))
            self._warning = text.value.decode(errors="replace")

    def _call(self, name: str, *arguments: Any) -> None:
        self._warning = ""
        self.watch(name)
        result = getattr(self._net, name)(*arguments)
        self.watch("")
        if result:
            raise CallFailed(name, result, self._warning)

    def _context(self) -> tuple[c.c_void_p, ...]:
        return (self._contexts[-1],) if self.version >= 11 else ()

    # ---- the plug-in and its devices

    def init(self) -> None:
        """For each communicator of NCCL's since version 11, once before."""
        context, config = c.c_void_p(), c.byref(Config(self.traffic_class))
        if self.version >= 11:
            self._call("init", c.byref(context), 1, config, self._logger, None)
            self._contexts.append(context)
        elif self.version == 10:
            self._call("init", self._logger, None)
        else:
            self._call("init", self._logger)

    def finalize(self) -> None:
        """Ends what the last init() began, where the interface has it."""
        if self.version >= 11:
            self._call("finalize", self._contexts.pop())

    def devices(self) -> int:
        count = c.c_int(_NOT_SET)
        self._call("devices", c.byref(count))
        if count.value == _NOT_SET:
            raise Unset("devices() leaves the number of devices unset")
        return count.value

    def properties(self, device: int) -> dict[str, Any]:
        """By the names of abi.py."""
        out = self.abi.properties()
        self._call("properties", device, c.byref(out))
        return {name: getattr(out, name) for name, *_ in out._fields_}

    # ---- connections

    def listen(self, device: int = 0) -> tuple[Handle, int]:
        handle, listener = Handle(), c.c_void_p()
        self._call("listen", *self._context(), device, handle.address, c.byref(listener))
        if not listener.value:
            raise Unset("listen() gave no listener")
        return handle, listener.value

    def connect(self, handle: Handle, device: int = 0) -> int | None:
        """None: not yet.  Call it again with the same handle."""
        comm = c.c_void_p()
        config = (c.byref(Config(self.traffic_class)),) if self.version == 10 else ()
        tail = (*config, handle.address, c.byref(comm), None)
        self._call("connect", *self._context(), device, *tail)
        return comm.value

    def accept(self, listener: int) -> int | None:
        comm = c.c_void_p()
        self._call("accept", listener, c.byref(comm), None)
        return comm.value

    def close(self, kind: str, comm: int) -> None:
        """kind: send, receive or listen."""
        self._call(f"close_{kind}", comm)

    # ---- memory and data

    def register(self, comm: int, memory: Memory) -> int | None:
        handle = c.c_void_p()
        size = max(memory.size, 1)
        self._call("register_memory", comm, memory.address, size, POINTER_HOST, c.byref(handle))
        return handle.value

    def deregister(self, comm: int, handle: int | None) -> None:
        self._call("deregister", comm, handle)

    def isend(
        self, comm: int, memory: Memory, size: int, handle: int | None, tag: int = 0, at: int = 0
    ) -> int | None:
        """A request; None: not now."""
        request = c.c_void_p()
        event = (None,) if self.version >= 10 else ()
        address = memory.address + at
        self._call("isend", comm, address, size, tag, handle, *event, c.byref(request))
        return request.value

    def irecv(self, comm: int, receives: Sequence[Receive]) -> int | None:
        request, n = c.c_void_p(), len(receives)
        sizes = ((c.c_int if self.version == 8 else c.c_size_t) * n)(*[r.size for r in receives])
        data = (c.c_void_p * n)(*[r.memory.address + r.offset for r in receives])
        tags = (c.c_int * n)(*[r.tag for r in receives])
        handles = (c.c_void_p * n)(*[r.handle for r in receives])
        events = ((c.c_void_p * n)(),) if self.version >= 10 else ()
        tail = (data, sizes, tags, handles, *events, c.byref(request))
        self._call("irecv", comm, n, *tail)
        return request.value

    def iflush(self, comm: int, receive: Receive) -> int | None:
        request, size = c.c_void_p(), c.c_int(receive.size)
        data = c.c_void_p(receive.memory.address + receive.offset)
        handle = c.c_void_p(receive.handle)
        at = c.byref(data), c.byref(size), c.byref(handle)
        self._call("iflush", comm, 1, *at, c.byref(request))
        return request.value

    def test(self, request: int, n: int = 1, *, sizes: bool = True) -> list[int] | None:
        """None: not done.  Else what was sent or received, of each of n; [] without sizes."""
        done = c.c_int(0)
        out = (c.c_int * n)(*[UNDEFINED] * n)
        self._call("test", request, c.byref(done), out if sizes else None)
        if not done.value:
            return None
        return list(out) if sizes else []
