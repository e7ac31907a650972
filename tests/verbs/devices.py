# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The verbs device that the cases run on, and the process that runs them.

`pytest tests/verbs --verbs-device rxe` runs the cases on rxe0 of this machine
(`rdma link add rxe0 type rxe netdev ...`); siw likewise.  Without the option it
is dp0 on the loopback device, which needs neither privilege nor module.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from datapath.native import paths
from datapath.verbs.launch import device_environment
from tests.verbs.programs.capability import KINDS, missing

PYTHON = "/usr/bin/python3"  # pyverbs is a package of the system's
PROGRAMS = Path(__file__).parent / "programs"
GENERIC = ("data", "datagrams", "completions", "faults", "memory", "shared", "states")
OURS = ("device_memory", "front")
CASE_S = 120
"""Seconds that a case may take before it hangs, also on a busy machine."""

VARIANTS = {
    "dp": ("auto", "standard"),
    "rxe": ("out-of-band", "rdma-cm"),
    "siw": ("rdma-cm",),
}
"""Ways of running all cases: modes of our engine, or how QPs get connected."""


@dataclass(frozen=True)
class Case:
    name: str
    needs: tuple[str, ...]


@functools.cache
def read_cases(module: str) -> tuple[Case, ...]:
    """Cases of a module in their order; read, not imported, since that takes pyverbs."""
    tree = ast.parse((PROGRAMS / f"{module}.py").read_text())
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_"):
            needs: tuple[str, ...] = ()
            for call in node.decorator_list:
                assert isinstance(call, ast.Call)
                needs += tuple(ast.literal_eval(argument) for argument in call.args)
            found.append(Case(node.name.removeprefix("case_"), needs))
    return tuple(found)


def cases(kind: str) -> list[Case]:
    """All cases that concern a kind of device, whether it can do them or not."""
    modules = GENERIC + OURS if kind == "dp" else GENERIC
    return [case for module in modules for case in read_cases(module)]


def applicable(kind: str) -> list[str]:
    return [case.name for case in cases(kind) if not missing(kind, case.needs)]


def not_applicable(kind: str) -> dict[str, list[str]]:
    """Names of cases by the capability that a kind of device lacks."""
    found: dict[str, list[str]] = {}
    for case in cases(kind):
        for need in missing(kind, case.needs)[:1]:
            found.setdefault(need, []).append(case.name)
    return found


def ipv4_of(device: str) -> str:
    """Address of the network device beneath a device of the kernel's."""
    links = json.loads(_output("rdma", "-j", "link", "show"))
    netdev = next(link["netdev"] for link in links if link["ifname"] == device)
    (found,) = json.loads(_output("ip", "-4", "-j", "address", "show", "dev", netdev))
    address = found["addr_info"][0]["local"]
    assert isinstance(address, str)
    return address


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def sanitizer() -> dict[str, str]:
    """What a program needs to load a front built with AddressSanitizer."""
    if paths.build_name() != "build-san":
        return {}
    libasan = _output("gcc", "-print-file-name=libasan.so").strip()
    # The programs' own leaks are not ours to judge.
    return {"LD_PRELOAD": libasan, "ASAN_OPTIONS": "detect_leaks=0"}


def environment(spec: str, **options: object) -> dict[str, str]:
    """For a program with device dp0 on port `spec`."""
    base = sanitizer()
    return {**base, **device_environment("dp0", spec, options=options, base=base)}


def case_command(kind: str, variant: str) -> list[str]:
    command = [PYTHON, str(PROGRAMS / "cases.py"), "--kind", kind, "--device", f"{kind}0"]
    if variant == "rdma-cm":
        command += ["--address", ipv4_of(f"{kind}0")]
    return command


class CaseServer:
    """A process that runs cases one after another, each in a child of its own."""

    def __init__(self, kind: str, variant: str) -> None:
        assert kind in KINDS
        ours = environment("udp:127.0.0.1", mode=variant) if kind == "dp" else {}
        self._process = subprocess.Popen(
            [*case_command(kind, variant), "--serve", "--seconds", str(CASE_S)],
            env={**os.environ, **ours},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str) -> tuple[int, str]:
        """Exit status of the case, and all that it said; ends the test when nothing comes."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(name + "\n")
        stdin.flush()
        # The child has an alarm of its own; only one that hangs in the kernel outlives it.
        if not select.select([stdout], [], [], CASE_S + 30)[0]:
            self.close()
            raise AssertionError(f"case {name} hangs, and cannot even be killed")
        answer = json.loads(stdout.readline())
        assert answer["case"] == name
        return answer["status"], answer["output"]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()


def describe_missing(kind: str) -> list[str]:
    """A line for each capability that a kind of device lacks, with the cases left out."""
    return [
        f"{kind} has no {need!r}: {', '.join(names)}"
        for need, names in sorted(not_applicable(kind).items())
    ]


if __name__ == "__main__":
    print("\n".join(describe_missing(sys.argv[1])))
