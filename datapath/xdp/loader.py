# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Loads BPF objects and attaches their programs to devices, by libbpf.

    with BpfObject(paths.bpf_object("impair")) as bpf:
        bpf.map("ports").update(key, value)
        bpf.attach_tc_ingress("dp_impair", ifindex)

Nothing is pinned: objects, maps and XDP links exist as long as this process
keeps them open, and a tc filter as long as its device, so that a killed
process leaves no program behind.  Devices are looked up in the network
namespace of the calling thread.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError, LocalError

_LINES_SHOWN = 6
_PRINT_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


_TC_INGRESS = 1  # enum bpf_tc_attach_point
_BPF_XDP = 37  # enum bpf_attach_type


class _TcHook(ctypes.Structure):
    """struct bpf_tc_hook of libbpf 1.x."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("ifindex", ctypes.c_int),
        ("attach_point", ctypes.c_int),
        ("parent", ctypes.c_uint32),
    )


class _TcOptions(ctypes.Structure):
    """struct bpf_tc_opts of libbpf 1.x."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("prog_fd", ctypes.c_int),
        ("flags", ctypes.c_uint32),
        ("prog_id", ctypes.c_uint32),
        ("handle", ctypes.c_uint32),
        ("priority", ctypes.c_uint32),
    )


class _Messages:
    """The output of libbpf in this thread; it has one print function for the whole process."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._local = threading.local()
        self._libc = libc
        self.function = _PRINT_FUNCTION(self._print)

    def _print(self, level: int, text_format: int, arguments: int) -> int:
        buffer = ctypes.create_string_buffer(1 << 16)
        self._libc.vsnprintf(
            buffer,
            ctypes.c_size_t(len(buffer)),
            ctypes.c_void_p(text_format),
            ctypes.c_void_p(arguments),
        )
        if level <= 1:  # warnings and notes; the rest is libbpf's debugging
            self._lines().extend(buffer.value.decode(errors="replace").splitlines())
        return 0

    def _lines(self) -> list[str]:
        if not hasattr(self._local, "lines"):
            self._local.lines = []
        lines: list[str] = self._local.lines
        return lines

    def take(self) -> list[str]:
        lines = [line.strip() for line in self._lines() if line.strip()]
        self._lines().clear()
        return lines


@functools.cache
def _libbpf() -> tuple[ctypes.CDLL, _Messages]:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise CapabilityError(
            f"libbpf cannot be loaded: {error}", hint=install_hint("libbpf.so.1")
        ) from None
    pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, [text, pointer]),
        ("bpf_object__load", integer, [pointer]),
        ("bpf_object__close", None, [pointer]),
        ("bpf_object__find_program_by_name", pointer, [pointer, text]),
        ("bpf_object__find_map_by_name", pointer, [pointer, text]),
        ("bpf_map__fd", integer, [pointer]),
        ("bpf_map__key_size", ctypes.c_uint32, [pointer]),
        ("bpf_map__value_size", ctypes.c_uint32, [pointer]),
        ("bpf_map_update_elem", integer, [integer, text, text, ctypes.c_uint64]),
        ("bpf_map_lookup_elem", integer, [integer, text, text]),
        ("bpf_map_get_next_key", integer, [integer, text, text]),
        ("bpf_program__fd", integer, [pointer]),
        ("bpf_link_create", integer, [integer, integer, integer, pointer]),
        ("bpf_tc_hook_create", integer, [ctypes.POINTER(_TcHook)]),
        ("bpf_tc_attach", integer, [ctypes.POINTER(_TcHook), ctypes.POINTER(_TcOptions)]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    messages = _Messages(ctypes.CDLL(None))
    library.libbpf_set_print.restype = pointer
    library.libbpf_set_print.argtypes = [_PRINT_FUNCTION]
    library.libbpf_set_print(messages.function)
    return library, messages


_HINTS = {
    errno.EPERM: "loading BPF programs needs root (CAP_BPF and CAP_NET_ADMIN)",
    errno.ENOENT: "build it first: run dpctl once, or meson compile -C build",
    errno.EBUSY: "another XDP program is attached to this device; see bpftool net",
    errno.ERANGE: "the device's MTU is too large for a program without fragments (xdp.frags)",
    errno.EOPNOTSUPP: "the driver of this device has no XDP",
    errno.EINVAL: "the kernel refused it; the lines above say why",
}


def failure(step: str, code: int, lines: list[str]) -> DatapathError:
    """The error for a failed libbpf call: the last lines that it or the verifier printed."""
    kind = CapabilityError if code in (errno.EPERM, errno.EOPNOTSUPP) else LocalError
    useful = [line for line in lines if not _is_noise(line)][-_LINES_SHOWN:]
    detail = "".join(f"\n  {line}" for line in useful)
    return kind(f"{step}: {os.strerror(code)}{detail}", hint=_HINTS.get(code, ""))


def _is_noise(line: str) -> bool:
    """Frames around the verifier's log, its statistics, and repetitions of the error."""
    return (
        line.startswith(("-- BEGIN", "-- END", "processed ", "verification time", "stack depth"))
        or "failed to load object" in line
        or "-- BEGIN PROG LOAD LOG --" in line
        or "-- END PROG LOAD LOG --" in line
    )


def attach_xdp(program_fd: int, ifindex: int) -> int:
    """Attach an XDP program, in native mode where the driver has it.

    Returns the descriptor of the link; closing it detaches the program.
    """
    library, messages = _libbpf()
    messages.take()
    link: int = library.bpf_link_create(program_fd, ifindex, _BPF_XDP, None)
    if link < 0:
        raise failure(f"attach XDP to device number {ifindex}", -link, messages.take())
    return link


class BpfMap:
    """A map of a loaded object; keys and values are bytes of exactly the declared sizes."""

    def __init__(self, name: str, fd: int, key_size: int, value_size: int) -> None:
        self.name = name
        self.key_size = key_size
        self.value_size = value_size
        self._fd = fd

    def update(self, key: bytes, value: bytes) -> None:
        """Set one entry.  Array maps are given and read by little-endian u32 index."""
        assert len(key) == self.key_size, f"{self.name}: key of {len(key)} bytes"
        assert len(value) == self.value_size, f"{self.name}: value of {len(value)} bytes"
        library, _ = _libbpf()
        result = library.bpf_map_update_elem(self._fd, key, value, 0)
        if result != 0:
            raise failure(f"write to BPF map {self.name}", -result, [])

    def lookup(self, key: bytes) -> bytes | None:
        """The value of one entry, None when there is none."""
        assert len(key) == self.key_size, f"{self.name}: key of {len(key)} bytes"
        library, _ = _libbpf()
        value = ctypes.create_string_buffer(self.value_size)
        result = library.bpf_map_lookup_elem(self._fd, key, value)
        if result == -errno.ENOENT:
            return None
        if result != 0:
            raise failure(f"read BPF map {self.name}", -result, [])
        return value.raw

    def keys(self) -> Iterator[bytes]:
        library, _ = _libbpf()
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_size)
        while library.bpf_map_get_next_key(self._fd, key, following) == 0:
            key = following.raw
            yield key


class BpfObject:
    """An ELF file of BPF programs, loaded into the kernel until close()."""

    def __init__(self, path: Path) -> None:
        """LocalError or CapabilityError with the verifier's last lines when it does not load."""
        self._library, self._messages = _libbpf()
        self._messages.take()
        ctypes.set_errno(0)
        self._object: int | None = self._library.bpf_object__open_file(os.fsencode(path), None)
        if not self._object:
            raise failure(f"open {path}", ctypes.get_errno(), self._messages.take())
        result = self._library.bpf_object__load(self._object)
        if result != 0:
            lines = self._messages.take()
            self.close()
            raise failure(f"load {path.name}", -result, lines)

    def map(self, name: str) -> BpfMap:
        """LocalError when the object has no such map."""
        found = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        if not found:
            raise LocalError(f"the BPF object has no map {name}")
        return BpfMap(
            name,
            self._library.bpf_map__fd(found),
            self._library.bpf_map__key_size(found),
            self._library.bpf_map__value_size(found),
        )

    def program_fd(self, name: str) -> int:
        """LocalError when the object has no such program."""
        found = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        if not found:
            raise LocalError(f"the BPF object has no program {name}")
        fd: int = self._library.bpf_program__fd(found)
        return fd

    def attach_tc_ingress(self, program: str, ifindex: int) -> None:
        """As a direct-action classifier at a device's ingress; it goes with the device."""
        hook = _TcHook(sz=ctypes.sizeof(_TcHook), ifindex=ifindex, attach_point=_TC_INGRESS)
        options = _TcOptions(sz=ctypes.sizeof(_TcOptions), prog_fd=self.program_fd(program))
        self._messages.take()
        result = self._library.bpf_tc_hook_create(ctypes.byref(hook))
        if result in (0, -errno.EEXIST):
            result = self._library.bpf_tc_attach(ctypes.byref(hook), ctypes.byref(options))
        if result != 0:
            step = f"attach {program} to the ingress of device number {ifindex}"
            raise failure(step, -result, self._messages.take())

    def close(self) -> None:
        """Let go of programs and maps; safe to call twice."""
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None

    def __enter__(self) -> BpfObject:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
