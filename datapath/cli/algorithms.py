# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl cc`: list, show, compile and check congestion-control algorithms.

`of` and `set`, which reach into running programs, are in running.py; `hunt` is in hunting.py.
"""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli.output import (
    Format,
    FormatOption,
    print_record,
    print_told,
    print_wrapped,
    tell,
    tell_note,
)
from datapath.errors import LocalError, RunFailed

if TYPE_CHECKING:
    from datapath.cc import CompiledAlgorithm

app = typer.Typer(
    name="cc",
    help="Congestion-control algorithms: list, show, compile, check, hunt; of and set for running "
    "programs.",
    no_args_is_help=True,
)


def names() -> list[str]:
    """Of the algorithms there are, for shells to complete."""
    from datapath.cc import registry

    return list(registry())


_Name = Annotated[
    str,
    typer.Argument(metavar="NAME|./FILE.py:CLASS", show_default=False, autocompletion=names),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param", "-p", metavar="NAME=VALUE", help="Set a parameter (target_ns=50us); repeatable."
    ),
]


_EVENT_S = 5.0
"""CPU time that one event may take in Python."""


@app.command("list")
def list_algorithms(fmt: FormatOption = Format.table) -> None:
    """List the algorithms that experiments and programs can use.

    cc.algo: for devices dp and rxe, and for programs.  cc.tcp: C for the kernel's TCP, beside what
    kernels have themselves (cubic, bbr).

    \b
    dpctl cc list
    dpctl cc list --format json
    """
    from datapath.cc import bpf, registry

    rows = [
        {
            "name": item.name,
            "key": key,
            "summary": item.doc.partition("\n")[0],
            "source": item.source,
        }
        for key, items in (("cc.algo", registry().values()), ("cc.tcp", bpf.own()))
        for item in items
    ]
    print_wrapped(rows, fmt)


@app.command()
def show(name: _Name, fmt: FormatOption = Format.table) -> None:
    """Describe an algorithm: source, parameters, state.

    \b
    dpctl cc show swift
    dpctl cc show ./my_cc.py:MyCC
    """
    from datapath.cc import bpf, load

    for tcp in bpf.own():
        if tcp.name == name:
            if fmt is Format.table:
                typer.echo(f"{tcp.name}: {tcp.source}\n{tcp.file}\n\n{tcp.doc}")
            else:
                facts = {"name": tcp.name, "source": tcp.source, "file": str(tcp.file)}
                print_record({**facts, "doc": tcp.doc}, fmt)
            return
    made = load(name)
    rows = [
        {
            "parameter": item.name,
            "default": _value(item.kind, item.default),
            "unit": item.unit,
            "range": item.range_text(),
            "meaning": item.doc,
        }
        for item in made.params
    ]
    if fmt is not Format.table:
        record = {
            "name": made.name,
            "source": made.source,
            "file": made.file,
            "doc": made.doc,
            "flow_bytes": made.flow_bytes,
            "params": rows,
            "state": [item.name for item in made.state],
            "grants": made.grants,
            "receiver_state": {item.name: item.of for item in made.receiver_state},
        }
        print_record(record, fmt)
        return
    typer.echo(f"{made.name}: {made.source}\n{made.file}:{made.line}\n\n{made.doc}\n")
    print_wrapped(rows, fmt)
    state = ", ".join(item.name for item in made.state) or "none"
    print()
    tell(f"State: {state}")
    tell(f"Record: {made.flow_bytes} bytes per flow")
    if made.grants:
        kept = ", ".join(f"{item.name} ({item.of})" for item in made.receiver_state) or "none"
        tell(f"At the receiver: it gives grants; state: {kept}")


@app.command("compile")
def compile_(name: _Name, param: Params = None, fmt: FormatOption = Format.table) -> None:
    """Compile an algorithm and print the path of its shared object.

    \b
    dpctl cc compile swift
    dpctl cc compile ./my_cc.py:MyCC -p gain=0.5
    """
    from datapath.cc import compile_algorithm

    made = compile_algorithm(name, parameters(name, param))
    record = {"algorithm": made.name, "path": str(made.path)}
    print_told(str(made.path), record, fmt)


@app.command()
def check(
    name: _Name,
    param: Params = None,
    events: Annotated[int, typer.Option(min=1, max=1_000_000, help="Events to try.")] = 5000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same events.")] = 1,
    fmt: FormatOption = Format.table,
) -> None:
    """Compile an algorithm, then try it with random legal events.

    After each event the window and rate must be within bounds and the state
    finite, and the compiled code must agree with the Python code, which must not
    raise: it does so where it divides by zero, or leaves an array.  All of this
    twice: on a port that tells its rate, and on one that does not.  Notes tell
    what is within bounds and hardly meant, such as a window that never recovers.

    \b
    dpctl cc check ./my_cc.py
    dpctl cc check swift --events 100000 --seed 2
    """
    from datapath.cc import compile_algorithm
    from datapath.cc.doubts import doubts
    from datapath.cc.drivers import NativeAlgorithm
    from datapath.cc.exercise import LINE_RATES_BPS

    values = parameters(name, param)
    compiled = compile_algorithm(name, values)
    for line_rate_bps in LINE_RATES_BPS:
        _check_sender(name, compiled, values, events, seed, line_rate_bps)
        if compiled.algorithm.grants:
            _check_receiver(name, compiled, values, events, seed, line_rate_bps)
    found = doubts(lambda: NativeAlgorithm(compiled), seed)
    for doubt in found:
        tell_note(f"{compiled.name}: {doubt}")
    told = f"{compiled.name}: {events} events, window, rate and state within bounds"
    print_told(told, {"algorithm": compiled.name, "events": events, "doubts": found}, fmt)


def _check_sender(
    name: str,
    compiled: CompiledAlgorithm,
    values: dict[str, Any],
    events: int,
    seed: int,
    line_rate_bps: float,
) -> None:
    from datapath.cc.drivers import NativeAlgorithm, PythonAlgorithm
    from datapath.cc.exercise import difference, patient, port_in_words, random_steps, replay

    native, python = NativeAlgorithm(compiled), PythonAlgorithm(name, values)
    steps = list(random_steps(seed, events))
    compiled_run = replay(native, steps, line_rate_bps=line_rate_bps)
    run = replay(python, steps, line_rate_bps=line_rate_bps)
    for number, found in enumerate(patient(run, python.algorithm, _EVENT_S)):
        if not found:  # so the compiled code ends, too
            found = next(compiled_run)
            found += [
                f"compiled and Python differ in {item}" for item in difference(native, python, 16)
            ]
        if found:
            event = steps[number - 1].kind if number else "on_init"
            where = f"after event {number} ({event}){port_in_words(line_rate_bps)}"
            raise RunFailed(
                f"{compiled.name} {where}: {'; '.join(found)}",
                hint=f"repeat with --seed {seed} --events {max(number, 1)}",
            )


def _check_receiver(
    name: str,
    compiled: CompiledAlgorithm,
    values: dict[str, Any],
    events: int,
    seed: int,
    line_rate_bps: float,
) -> None:
    """The same for the hooks at the receiver; every demand must be granted in the end."""
    from datapath.cc import receiving
    from datapath.cc.exercise import patient, port_in_words

    native = receiving.NativeReceiver(compiled)
    python = receiving.PythonReceiver(name, values)
    as_compiled = receiving.Arrivals(native, line_rate_bps=line_rate_bps)
    as_python = receiving.Arrivals(python, line_rate_bps=line_rate_bps)
    port = port_in_words(line_rate_bps)
    tried = list(receiving.random_events(seed, events))
    run = map(as_python.happen, tried)
    for number, found in enumerate(patient(run, python.algorithm, _EVENT_S), 1):
        event = tried[number - 1]
        if not found:  # so the compiled code ends, too
            found = as_compiled.happen(event) + receiving.receiver_differences(native, python)
        if found:
            raise RunFailed(
                f"{compiled.name} after event {number} at the receiver ({event.kind}){port}: "
                f"{'; '.join(found)}",
                hint=f"repeat with --seed {seed} --events {number}",
            )
    drained = chain(as_python.drain(), as_compiled.drain())
    for found in patient(drained, python.algorithm, _EVENT_S):
        if found:
            raise RunFailed(f"{compiled.name} at the receiver{port}: {'; '.join(found)}")


def parameters(name: str, pairs: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs as numbers, read as in files; the algorithm checks names and ranges."""
    from datapath.cc import load

    kinds = {item.name: item.kind for item in load(name).params}
    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals:
            raise LocalError(f"{pair!r} is not NAME=VALUE", hint="for example -p gain=0.5")
        if key in values:
            raise LocalError(f"parameter {key} is given twice")
        try:
            values[key] = _number(key, text, kinds[key]) if key in kinds else text
        except ValueError as error:
            problem = str(error).removeprefix(f"{key}: ")
            raise LocalError(f"parameter {key}: {problem}") from None
    return values


def _number(name: str, text: str, kind: str) -> object:
    from datapath.cc.spec import cc_number

    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return cc_number(name, text)


def _value(kind: str, value: float) -> object:
    return bool(value) if kind == "bool" else value
