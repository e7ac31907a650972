# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion control for the kernel's TCP, written in C as a BPF object (struct_ops).

A name is the kernel's own algorithm (cubic, bbr), one of the toolkit (cc/tcp/NAME.bpf.c), or a
file of the user's own.  Sources are compiled by clang against the types of one kernel (its BTF).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapath import foreign, search_path
from datapath.cc import cache, struct_ops
from datapath.cc.source import display
from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError, LocalError

SUFFIX = ".bpf.c"
_OWN = Path(__file__).with_name("tcp")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,15}")
_HEAD = re.compile(r"/\*(?P<text>.*?)\*/", re.DOTALL)
_SOURCE = "Source: "
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*\"([^\"\n]+)\"", re.MULTILINE)
_LINES_SHOWN = 6
_TIMEOUT_S = 120.0
_CHECKED = "checked"  # in the cache is what struct_ops.check() has seen
_FLAGS = ("-target", "bpf", "-D__TARGET_ARCH_x86", "-O2", "-g", "-Wall")


@dataclass(frozen=True)
class TcpAlgorithm:
    """A source of the toolkit; `doc` is the first comment after the licence."""

    name: str
    file: Path
    doc: str

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0]

    @property
    def source(self) -> str:
        """Of the idea, "" when the comment does not tell."""
        lines = [line for line in self.doc.splitlines() if line.startswith(_SOURCE)]
        return lines[0].removeprefix(_SOURCE).rstrip(".") if lines else ""


def is_file(name: str) -> bool:
    return name.endswith(SUFFIX)


def own() -> list[TcpAlgorithm]:
    """Those that come with the toolkit."""
    return [_described(path) for path in sorted(_OWN.glob(f"*{SUFFIX}"))]


def check_name(name: str) -> None:
    """ValueError when it can neither be a kernel's algorithm nor a file of C."""
    if not is_file(name) and not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a TCP congestion control (cubic, bbr, dp_copa), and no "
            f"file ./NAME{SUFFIX}"
        )


def source_of(name: str, folder: Path) -> Path | None:
    """The C file of an algorithm; None: the kernel has to know it.

    folder: where relative names begin.
    """
    if is_file(name):
        return foreign.beside(folder, name).resolve()
    mine = _OWN / f"{name}{SUFFIX}"
    return mine if mine.is_file() else None


def build(source: Path, btf_digest: str, fetch_btf: Callable[[Path], Path]) -> Path:
    """Compile a source, or find the object in the cache.

    btf_digest: of the kernel's BTF.  fetch_btf: brings the BTF into a folder, as a file.

    Raises:
        LocalError: the source is wrong, with file and line.
        CapabilityError: clang or bpftool are missing.
    """
    try:
        text = foreign.read_bytes(source)
    except OSError as error:
        raise LocalError(f"cannot read {display(str(source))}: {error.strerror}") from None
    digest = hashlib.sha256(f"{btf_digest} {_FLAGS} {_CHECKED} {source.parent}".encode() + text)
    for header in _included(source, text, set()):
        digest.update(header)
    path = cache.folder() / f"{source.name.removesuffix(SUFFIX)}-{digest.hexdigest()[:24]}.bpf.o"
    if cache.load(path) is None:
        with tempfile.TemporaryDirectory(prefix="datapath-bpf-") as name:
            folder = Path(name)
            _write_types(fetch_btf(folder), folder / "vmlinux.h")
            cache.store(path, _compiled(source, folder))
    return path


def _included(file: Path, text: bytes, seen: set[Path]) -> Iterator[bytes]:
    """Names and texts of the files beside it that it includes, and that these include."""
    for name in _INCLUDE.findall(text):
        header = (file.parent / os.fsdecode(name)).resolve()
        if header in seen or not header.is_file():
            continue
        seen.add(header)
        inner = foreign.read_bytes(header)
        yield os.fsencode(header) + b"\0" + inner
        yield from _included(header, inner, seen)


def renamed(made: Path, number: int) -> Path:
    """An object of build() whose algorithm has `.NUMBER` at the end of its name, in the cache."""
    path = made.with_name(f"{made.name.removesuffix('.bpf.o')}.{number}.bpf.o")
    if cache.load(path) is None:
        image = cache.load(made)
        if image is None:
            raise LocalError(f"{made} was removed meanwhile", hint="start the run again")
        with tempfile.TemporaryDirectory(prefix="datapath-bpf-") as name:
            types = _types(image, Path(name) / "named.o")
        cache.store(path, struct_ops.renamed(image, types, number))
    return path


def _compiled(source: Path, folder: Path) -> bytes:
    target = folder / "out.o"
    argv = ["clang", *_FLAGS, f"-I{folder}", "-c", str(source), "-o", str(target)]
    done = _run(argv, "clang")
    if done.returncode:
        text = done.stderr.decode(errors="replace").replace(str(source), display(str(source)))
        errors = [line for line in text.splitlines() if ": error: " in line or "fatal" in line]
        shown = "\n".join((errors or text.splitlines())[:_LINES_SHOWN])
        raise LocalError(shown, hint="clang compiles it; vmlinux.h has the types of the kernel")
    image = target.read_bytes()
    types = _types(image, target)
    image = struct_ops.plain(image)
    struct_ops.check(image, types, display(str(source)))
    return image


def _types(image: bytes, file: Path) -> list[dict[str, Any]]:
    """The BTF of an object, which is written to `file`."""
    file.write_bytes(image)
    done = _run(["bpftool", "-j", "btf", "dump", "file", str(file)], "bpftool")
    if done.returncode:
        words = " ".join(done.stderr.decode(errors="replace").split())
        raise CapabilityError(f"bpftool cannot read the types of the object: {words}")
    types: list[dict[str, Any]] = json.loads(done.stdout)["types"]
    return types


def _write_types(btf: Path, header: Path) -> None:
    """vmlinux.h: all types of a kernel, as C."""
    done = _run(["bpftool", "btf", "dump", "file", str(btf), "format", "c"], "bpftool")
    if done.returncode:
        raise CapabilityError(
            f"bpftool cannot read the types of the kernel: {done.stderr.decode(errors='replace')}"
        )
    header.write_bytes(done.stdout)


def _run(argv: list[str], package: str) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(argv[0], path=search_path.whole())
    if program is None:
        raise CapabilityError(
            f"program {argv[0]} is not installed, which a TCP congestion control in C needs",
            hint=install_hint(package),
        )
    try:
        return subprocess.run(
            [program, *argv[1:]], capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise DatapathError(
            f"{argv[0]} has not ended after {_TIMEOUT_S:g} s",
            hint="try again when the machine has less to do",
        ) from None


def _described(path: Path) -> TcpAlgorithm:
    comment = _HEAD.search(path.read_text())
    lines = [
        line.removeprefix(" *").strip()
        for line in (comment["text"] if comment else "").splitlines()
    ]
    return TcpAlgorithm(path.name.removesuffix(SUFFIX), path, "\n".join(lines).strip())
