# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An algorithm: a name, parameters, state and hooks.

`@algorithm` reads them from a class body.  The class is never instantiated;
its functions take the flow record in the place of `self`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from datapath.cc import records, source
from datapath.cc.fields import KINDS, Field, Param, State
from datapath.errors import LocalError
from datapath.spelling import did_you_mean

HOOKS = {
    "on_init": ("flow",),
    "on_ack": ("flow", "ack"),
    "on_loss": ("flow", "loss"),
    "on_timeout": ("flow", "now_ns"),
    "on_cnp": ("flow", "now_ns"),
    "on_rtt": ("flow", "ack"),
    "on_wake": ("flow", "now_ns"),
    "on_request": ("port", "sender"),
    "on_data": ("port", "sender", "data"),
    "on_timer": ("port", "senders"),
    "on_round": ("port", "sender"),
}
"""Name of each hook, and its arguments in order."""

RECEIVER_HOOKS = ("on_request", "on_data", "on_timer")
"""The hooks of a receiver's side; an algorithm has all of them or none.  on_round may be added."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_C = TypeVar("_C", bound=type)


@dataclass(frozen=True)
class Algorithm:
    """A congestion-control algorithm, read from its class.

    file, line: where the class stands.  hooks: name to plain function.  state: of the flow;
    receiver_state: of the port and of the senders.
    """

    name: str
    class_name: str
    source: str
    doc: str
    file: str
    line: int
    params: tuple[Field, ...]
    state: tuple[Field, ...]
    receiver_state: tuple[Field, ...]
    hooks: Mapping[str, FunctionType]

    @property
    def grants(self) -> bool:
        """Whether it has a receiver's side."""
        return RECEIVER_HOOKS[0] in self.hooks

    @property
    def fields(self) -> tuple[Field, ...]:
        """Parameters and state, in their order behind the head of the flow record."""
        return self.fields_of("flow")

    def fields_of(self, record: str) -> tuple[Field, ...]:
        """Those behind the head of a "flow", "port" or "sender" record, in their order."""
        params = () if record == "sender" else self.params
        kept = (*self.state, *self.receiver_state)
        return (*params, *(item for item in kept if item.of == record))

    def bytes_of(self, record: str) -> int:
        members = sum(item.length or 1 for item in self.fields_of(record))
        return records.MEMBER_BYTES * (len(records.HEADS[record]) + members)

    @property
    def flow_bytes(self) -> int:
        return self.bytes_of("flow")

    def dtype_of(self, record: str) -> Any:
        """numpy dtype of a whole "flow", "port" or "sender" record."""
        return records.head_dtype(
            record,
            (
                (item.name, KINDS[item.kind], (item.length,))
                if item.length
                else (item.name, KINDS[item.kind])
                for item in self.fields_of(record)
            ),
        )

    def flow_dtype(self) -> Any:
        """numpy dtype of the whole flow record."""
        return self.dtype_of("flow")

    def resolve(self, params: Mapping[str, Any]) -> dict[str, float]:
        """All parameters with `params` over the defaults.

        Raises:
            LocalError: unknown name (with the closest one), wrong type, out of range.
        """
        known = {field.name: field for field in self.params}
        values = {field.name: field.default for field in self.params}
        for name, value in params.items():
            if name not in known:
                raise LocalError(
                    f"algorithm {self.name} has no parameter {name!r}",
                    hint=did_you_mean(name, sorted(known), "there are")
                    or f"{self.name} has no parameters",
                )
            values[name] = known[name].checked(value, f"parameter {name} of {self.name}")
        return values

    def image(self, values: Mapping[str, float], record: str = "flow") -> bytes:
        """A new "flow", "port" or "sender" record, given the values of all parameters."""
        head = bytes(records.MEMBER_BYTES * len(records.HEADS[record]))
        fields = self.fields_of(record)
        body = [field.image(values.get(field.name, field.default)) for field in fields]
        return head + b"".join(body)


registered: dict[str, Algorithm] = {}
"""Algorithms by name, filled by `@algorithm` as modules are imported."""


class Collector:
    """Takes the algorithms of one file in place of the registry, while it is loaded.

    Those of its neighbours, which are forgotten afterwards (loading.py), are in neither: another
    folder may have algorithms of the same names.
    """

    active: Collector | None = None

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Algorithm] = []

    def takes(self, file: str) -> bool:
        """Whether what that file declares is kept out of the registry."""
        return source.is_neighbour(file, Path(self.file).parent)

    def __enter__(self) -> Collector:
        self.outer, Collector.active = Collector.active, self
        return self

    def __exit__(self, *exc: object) -> None:
        Collector.active = self.outer


def algorithm(name: str, *, source: str = "") -> Callable[[_C], _C]:
    """Make a class an algorithm and register it under `name`.

    Args:
        name: lower case letters, digits, "_" and "-"; begins with a letter, at most 31.
        source: the paper or RFC, with the section.

    Raises:
        LocalError: the class is not an algorithm; the message has file and line.
    """
    file = sys._getframe(1).f_code.co_filename

    def register(cls: _C) -> _C:
        made = _read_class(cls, name, source, file)
        _classes.add(cls)
        collector = Collector.active
        if collector is not None and collector.takes(file):
            if collector.file == file:
                collector.found.append(made)
            return cls
        other = registered.get(name)
        if other is not None and other.file != file:
            raise _error(made, made.line, f"name {name!r} is taken by {other.file}")
        registered[name] = made
        return cls

    return register


_classes: set[type] = set()
"""Classes that are algorithms; others may inherit from them."""

_Fail = Callable[..., LocalError]


def _read_class(cls: type, name: str, origin: str, file: str) -> Algorithm:
    lines = source.class_lines(file, cls.__name__)
    line = lines.get("", 1)

    def fail(member: str, message: str, hint: str = "") -> LocalError:
        return source.located(file, lines.get(member, line), message, hint=hint)

    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise fail("", f"{name!r} is not a name for an algorithm", "use a-z, 0-9, _ and -")
    if any(base not in (object, records.Flow) and base not in _classes for base in cls.__bases__):
        raise fail("", f"{cls.__name__} may inherit from datapath.cc.Flow or an algorithm only")
    hooks: dict[str, FunctionType] = {}
    params: list[Field] = []
    states: list[Field] = []
    members, annotations = _members(cls)
    for member, value in members.items():
        if isinstance(value, staticmethod):
            value = value.__func__
        if isinstance(value, (Param, State)):
            field = _read_field(member, value, annotations.get(member), fail, lines)
            (params if isinstance(value, Param) else states).append(field)
        elif isinstance(value, FunctionType):
            _check_hook(member, value, fail)
            hooks[member] = value
        elif not member.startswith("__"):
            raise fail(
                member,
                f"{member} is neither param(...) nor state(...)",
                "put constants and imports at the top of the file",
            )
    for member in annotations:
        if member not in members:
            raise fail(member, f"{member} has no value", "give it param(...) or state(...)")
    _check_hooks(cls, hooks, states, fail)
    made = Algorithm(
        name,
        cls.__name__,
        origin,
        _doc(cls),
        file,
        line,
        tuple(params),
        tuple(item for item in states if item.of == "flow"),
        tuple(item for item in states if item.of != "flow"),
        hooks,
    )
    for record in records.HEADS:
        _check_size(made, record, fail)
    return made


def _members(cls: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Members of the class and of the algorithms that it inherits from, and their annotations."""
    members: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    for part in reversed(cls.__mro__):
        if part is cls or part in _classes:
            members |= vars(part)
            annotations |= inspect.get_annotations(part)
    return members, annotations


def _check_hooks(
    cls: type, hooks: Mapping[str, FunctionType], states: list[Field], fail: _Fail
) -> None:
    """LocalError when a hook is missing, or state belongs to a record without hooks."""
    if "on_ack" not in hooks:
        raise fail("", f"{cls.__name__} has no on_ack(flow, ack)", "every algorithm needs one")
    missing = [name for name in RECEIVER_HOOKS if name not in hooks]
    if missing and len(missing) < len(RECEIVER_HOOKS):
        raise fail(
            "",
            f"{cls.__name__} has no {missing[0]}({', '.join(HOOKS[missing[0]])})",
            f"a receiver's side has {', '.join(RECEIVER_HOOKS)}; one that does nothing is `pass`",
        )
    if "on_round" in hooks and missing:
        raise fail(
            "on_round",
            f"on_round runs at the receiver, and {cls.__name__} has no receiver's side",
            f"add {', '.join(RECEIVER_HOOKS)}",
        )
    for field in states:
        if field.of != "flow" and missing:
            raise fail(
                field.name,
                f"{field.name} is state of the {field.of}, and {cls.__name__} has no receiver's "
                "side",
                f"add {', '.join(RECEIVER_HOOKS)}",
            )


def _check_size(made: Algorithm, record: str, fail: _Fail) -> None:
    """LocalError at the first parameter or state that a record has no room for."""
    size = records.MEMBER_BYTES * len(records.HEADS[record])
    for field in made.fields_of(record):
        size += records.MEMBER_BYTES * (field.length or 1)
        if size > records.FLOW_BYTES_MAX:
            need = made.bytes_of(record)
            over = need - records.FLOW_BYTES_MAX
            raise fail(
                field.name,
                f"{made.class_name} needs {need} bytes per {record}, {over} more than the "
                f"limit of {records.FLOW_BYTES_MAX}: {field.name} is the first without room",
                "every number of param(...) and state(...) takes 8 bytes: make arrays shorter",
            )


def _read_field(
    name: str, value: Param | State, annotation: Any, fail: _Fail, lines: Mapping[str, int]
) -> Field:
    kind = _kind(annotation)
    if isinstance(value, State) and value.length:
        element = re.fullmatch(r"list\[(\w+)\]", kind)
        if annotation is not None and (not element or element[1] not in KINDS):
            raise fail(name, f"{name} is annotated {kind}", "use list[float] or list[int]")
        kind = element[1] if element else "float"
    elif isinstance(value, State) and kind.startswith("list["):
        raise fail(name, f"length of {name} is 0", "a whole number, 1 or more: state(length=4)")
    if kind not in KINDS:
        raise fail(name, f"{name} is annotated {kind}", "use float, int or bool")
    of = value.of if isinstance(value, State) else "flow"
    if of not in records.HEADS:
        raise fail(name, f"{name} is state of {of!r}", f"use {', '.join(records.HEADS)}")
    for record in (of,) if isinstance(value, State) else ("flow", "port"):
        if name in records.HEADS[record]:
            raise fail(name, f"every {record} has {name} already", "choose another name")
    if name.startswith("_"):
        raise fail(name, f"{name} begins with an underscore", "choose another name")
    line = lines.get(name, 1)
    if isinstance(value, State):
        if type(value.length) is not int or value.length < 0:
            raise fail(name, f"length of {name} is {value.length!r}", "a whole number, 1 or more")
        field = Field(name, kind, value.default, line, length=value.length, of=of)
    else:
        field = Field(name=name, kind=kind, line=line, **vars(value))
    try:
        default = field.checked(value.default, f"the default of {name}")
    except LocalError as error:
        raise fail(name, str(error)) from None
    return Field(**{**vars(field), "default": default})


def _kind(annotation: Any) -> str:
    """An annotation as it is written; float when there is none."""
    if annotation is None:
        return "float"
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__name__
    return str(annotation)


def _check_hook(name: str, function: FunctionType, fail: _Fail) -> None:
    if name not in HOOKS:
        hint = did_you_mean(name, list(HOOKS)) or "put helper functions outside the class"
        raise fail(name, f"{name} is not one of {', '.join(HOOKS)}", hint)
    code, want = function.__code__, HOOKS[name]
    extra = code.co_kwonlyargcount or code.co_flags & 0x0C or function.__defaults__
    if code.co_argcount != len(want) or extra:
        raise fail(
            name, f"{name} must take ({', '.join(want)})", "there is no self, and no default"
        )


def _doc(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def _error(made: Algorithm, line: int, message: str) -> LocalError:
    return source.located(made.file, line, message)
