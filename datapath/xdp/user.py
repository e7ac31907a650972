# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A user's own XDP program in an experiment: C source for bcc, attached at a hook.

    with attach(network, Path("count.c"), "middle-forward") as program:
        ...
        counts = program.maps()["packets"]

The source is what bcc takes: one function `int NAME(struct xdp_md *ctx)`, maps
by BPF_HASH, BPF_ARRAY and the like.  It is compiled against any kernel headers
that are installed; XDP's interface does not depend on their version.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from datapath import cachedir, foreign
from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError, LocalError

_WORKER = Path(__file__).with_name("user_worker.py")
_ATTACH_TIMEOUT_S = 60.0
_READ_TIMEOUT_S = 30.0
_LINES_SHOWN = 6
_PROGRAM = re.compile(r"^\s*(?:int|__u32|u32)\s+(\w+)\s*\(\s*struct\s+xdp_md\s*\*", re.MULTILINE)
_BCC_NAME = "/virtual/main.c"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_REFUSED_MAP = re.compile(r"could not open bpf map: (?P<name>\S+), error: (?P<why>.+)")
_HEADERS_NAME = re.compile(r"linux-headers-(?P<version>.+)-common$")


class _Start(Protocol):
    def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes]
    ) -> subprocess.Popen[bytes]: ...


@dataclass(frozen=True)
class XdpHook:
    """A place for a program: a device, and how to start a process beside it.

    start(argv, env=, stderr=) gives a process in the device's namespace with
    pipes for standard input and output.
    """

    name: str
    netdev: str
    start: _Start


@runtime_checkable
class HookedNetwork(Protocol):
    """The part of a lane's network that attach() needs."""

    def xdp_hook(self, hook: str) -> XdpHook: ...


@dataclass(frozen=True)
class UserProgram:
    """An attached program.

    mode: "native" or "generic"; reason: why it is not native.
    """

    mode: str
    reason: str
    _ask: Callable[[], dict[str, Any]]

    def maps(self) -> dict[str, Any]:
        """Map name -> {key: value} now."""
        return self.read()[0]

    def read(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Map name -> {key: value} now, and map name -> what was left out.

        Keys are text; a structure is a dictionary of its fields; an array of
        char is text; a per-CPU value is the list over CPUs.  Maps without
        readable values (rings, device maps) are left out.
        """
        answer = self._ask()
        return answer["maps"], answer["notes"]


@contextlib.contextmanager
def attach(network: HookedNetwork, source: Path, hook: str) -> Iterator[UserProgram]:
    """Compile, load and attach; detached when the context ends.

    LocalError with the compiler's or verifier's last lines when the source is
    wrong; CapabilityError when bcc or kernel headers are missing.
    """
    function = entry_function(source)
    place = network.xdp_hook(hook)
    argv = [sys.executable, "-I", str(_WORKER), str(source.resolve()), function, place.netdev]
    with tempfile.TemporaryFile() as messages:
        process = place.start(argv, env=bcc_environment(), stderr=messages)
        try:
            answer = _read_line(process, _ATTACH_TIMEOUT_S, messages)
            if "error" in answer:
                raise _source_error(source, answer, messages)

            def ask() -> dict[str, Any]:
                assert process.stdin is not None
                try:
                    process.stdin.write(b"maps\n")
                    process.stdin.flush()
                except BrokenPipeError:
                    raise _worker_died(process, messages) from None
                return _read_line(process, _READ_TIMEOUT_S, messages)

            yield UserProgram(answer["mode"], answer["reason"], ask)
        finally:
            process.kill()
            process.communicate()


def entry_function(source: Path) -> str:
    """Name of the one XDP function of a source; LocalError when there is none or several."""
    try:
        text = _COMMENT.sub(" ", foreign.read_text(source))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise LocalError(f"XDP source {source}: {reason}", hint="name a C file for bcc") from None
    names = _PROGRAM.findall(text)
    if len(names) == 1:
        return str(names[0])
    found = f"{len(names)} functions ({', '.join(names)})" if names else "no function"
    raise LocalError(
        f"{source} has {found} that take struct xdp_md *",
        hint="write exactly one: int NAME(struct xdp_md *ctx) { ... }; make others static inline "
        "with other arguments",
    )


def _read_line(
    process: subprocess.Popen[bytes], timeout_s: float, messages: IO[bytes]
) -> dict[str, Any]:
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise DatapathError(f"the XDP program's process is silent for {timeout_s:g} s")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise _worker_died(process, messages)
            line += chunk
    answer: dict[str, Any] = json.loads(line)
    return answer


def _worker_died(process: subprocess.Popen[bytes], messages: IO[bytes]) -> DatapathError:
    lines = _lines(messages)
    if any("No module named 'bcc'" in line for line in lines):
        return CapabilityError("Python cannot import bcc", hint=install_hint("bcc"))
    detail = f": {lines[-1]}" if lines else f", status {process.wait()}"
    return DatapathError(f"the XDP program's process ended{detail}")


def _lines(messages: IO[bytes]) -> list[str]:
    messages.seek(0)
    text = messages.read().decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _source_error(source: Path, answer: Mapping[str, str], messages: IO[bytes]) -> DatapathError:
    """With the errors in the user's file, which bcc names /virtual/main.c, or the last lines."""
    lines = [line.replace(_BCC_NAME, source.name) for line in _lines(messages)]
    own = [line for line in lines if line.startswith(source.name) and " error: " in line]
    shown = own[:_LINES_SHOWN] if answer["step"] == "compile" and own else lines[-_LINES_SHOWN:]
    detail = "".join(f"\n  {line}" for line in shown)
    hints = {
        "compile": "bcc compiles it with clang; see the lines above",
        "load": "the kernel's verifier refused it; the lines above say at which instruction",
        "attach": "another hook, or transport: {port: udp}, leaves the device free",
    }
    what = f"{source} does not compile"  # bcc's own text says no more
    refused = next(filter(None, map(_REFUSED_MAP.search, lines)), None)
    if answer["step"] == "compile" and refused is not None and not own:
        return LocalError(
            f"{source}: the kernel refuses map {refused['name']}: {refused['why']}",
            hint="its type does not have such keys, values, flags or so many entries",
        )
    if answer["step"] != "compile":
        what = f"cannot {answer['step']} {source}: {answer['error']}"
    return LocalError(what + detail, hint=hints[answer["step"]])


def bcc_environment() -> dict[str, str]:
    """Environment in which bcc finds kernel headers; CapabilityError when there are none.

    The running kernel's own are used where /lib/modules has them.  Otherwise
    the newest installed ones: Debian splits them into two folders, of which a
    folder of links under the user's cache makes one tree.
    """
    release = os.uname().release
    if Path("/lib/modules", release, "build").is_dir():
        return {}
    packages = sorted(Path("/usr/src").glob("linux-headers-*-common"), key=_version)
    for common in reversed(packages):
        version = _HEADERS_NAME.search(common.name)
        assert version is not None
        for build in sorted(common.parent.glob(f"linux-headers-{version['version']}-*")):
            if (build / "include/generated").is_dir():
                return {"BCC_KERNEL_SOURCE": str(_merged_headers(common, build))}
    raise CapabilityError(
        "bcc needs kernel headers and none are installed",
        hint="apt-get install linux-headers-amd64 (any version; it need not be the running one)",
    )


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def _merged_headers(common: Path, build: Path) -> Path:
    """A tree of links: everything of `common`, and the generated parts of `build`."""
    cache = cachedir.make(cachedir.root())
    tree = cache / build.name
    if tree.is_dir():
        cachedir.check(tree)
        return tree
    fresh = Path(tempfile.mkdtemp(prefix=f".{build.name}.", dir=cache))
    folders = ["include"]
    folders += [f"{arch.relative_to(build)}/include" for arch in (build / "arch").iterdir()]
    for folder in folders:
        (fresh / folder).mkdir(parents=True)
        for part in (common, build):
            for entry in (part / folder).iterdir():
                (fresh / folder / entry.name).symlink_to(entry)
    with contextlib.suppress(OSError):  # another process was first: its tree is the same
        fresh.rename(tree)
    return tree
