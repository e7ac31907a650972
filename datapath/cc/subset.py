# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The part of Python that an algorithm may use, checked before it is compiled.

A hook runs inside a transport: nothing can be allocated there, nobody catches
an exception, and there is no interpreter.  What is left is arithmetic on
numbers and tuples of numbers, `if`, loops, the members of the records, the
functions of `math`, numpy's ufuncs, and helper functions of the same kind.

One walk over the hooks and the helpers that they call checks this, with file
and line of every mistake, and collects what the compiled object depends on:
the functions, the text of their files and the constants.  It needs neither
numpy nor numba, so a file can be validated and the cache be searched quickly.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from datapath.cc import records
from datapath.cc.algorithm import HOOKS, Algorithm
from datapath.cc.constructs import ALLOWED, FORBIDDEN
from datapath.cc.source import function_node, located, text_of
from datapath.errors import LocalError
from datapath.spelling import did_you_mean

BUILTINS = frozenset(
    {"abs", "bool", "divmod", "float", "int", "len", "max", "min", "pow", "range", "round"}
)
MODULES = frozenset({"math", "numpy"})
NUMPY_TYPES = frozenset({"float64", "int64"})
_NOT_THERE = (
    "there is no clock but now_ns, and no random numbers: mprdma has a generator of its own"
)
_MATH_LISTS = frozenset({"fsum", "prod", "dist", "sumprod"})

_ELEMENTS = {"hops": "hop", "senders": "sender", "array": "number"}

_ROLE_MEMBERS: dict[str, Mapping[str, str]] = {
    "ack": records.ACK_MEMBERS,
    "loss": records.LOSS_MEMBERS,
    "hop": records.HOP_MEMBERS,
    "data": records.DATA_MEMBERS,
}


@dataclass
class Program:
    """The hooks of an algorithm, and their helpers and constants.

    helpers: every plain function that the hooks reach.
    files: name to text, of the files in which hooks and helpers stand.
    constants: (file, name) to value, of the globals that they read; with NAME() for the name, of
        the defaults of a function's arguments.
    reads: members of ack, loss, hop and data that they may read, as "ack.hop".
    """

    algorithm: Algorithm
    helpers: list[FunctionType] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    constants: dict[tuple[str, str], Any] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)


def analyse(algorithm: Algorithm) -> Program:
    """Check the hooks and helpers of an algorithm, and list their helpers and constants.

    Raises:
        LocalError: something that cannot be compiled, with file and line.
    """
    program = Program(algorithm)
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for name, function in algorithm.hooks.items():
        _Checker(program, seen, function, HOOKS[name]).run()
    return program


def is_constant(value: object) -> bool:
    """Whether a global is a number, or a tuple of numbers."""
    if isinstance(value, tuple):
        return all(is_constant(item) for item in value)
    return isinstance(value, (bool, int, float))


class _Checker:
    """Checks one function, called with arguments of the given roles.

    A role is that of a hook's argument (HOOKS), "hop", "hops", "array", "number", or "" when
    unknown.
    """

    def __init__(
        self,
        program: Program,
        seen: set[tuple[int, tuple[str, ...]]],
        function: FunctionType,
        roles: tuple[str, ...],
        callers: tuple[FunctionType, ...] = (),
    ) -> None:
        self.program, self.seen, self.function = program, seen, function
        self.callers = (*callers, function)
        self.file = function.__code__.co_filename
        self.key = (id(function), roles)
        if self.key in seen:
            return
        self.node = function_node(function)
        names = [item.arg for item in self.node.args.args]
        self.roles = dict(zip(names, roles, strict=False))
        self.locals = set(names)

    def run(self) -> None:
        if self.key in self.seen:
            return
        self.seen.add(self.key)
        self.program.files[self.file] = text_of(self.file)
        self._check_signature()
        if self.function.__defaults__:
            name = f"{self.function.__name__}()"
            self.program.constants[(self.file, name)] = self.function.__defaults__
        nodes = [node for statement in self.node.body for node in self._walk(statement)]
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.locals.add(node.id)
        for node in nodes:
            self._note_alias(node)
        for node in nodes:
            self._check(node)

    def _walk(self, statement: ast.AST) -> Iterator[ast.AST]:
        """All nodes in source order, without annotations; stops below a forbidden one."""
        yield statement
        if isinstance(statement, ALLOWED):
            for name, value in ast.iter_fields(statement):
                if name == "annotation":
                    continue
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self._walk(child)

    def _fail(self, node: ast.AST, message: str, hint: str = "") -> LocalError:
        line = getattr(node, "lineno", self.function.__code__.co_firstlineno)
        return located(self.file, line, message, hint=hint)

    def _check_signature(self) -> None:
        arguments, name = self.node.args, self.node.name
        if arguments.vararg or arguments.kwarg:
            raise self._fail(self.node, f"{name} takes a variable number of arguments")
        if arguments.posonlyargs or arguments.kwonlyargs:
            raise self._fail(
                self.node, f"{name} has / or * among its arguments", "write them without"
            )
        if self.function.__closure__:
            free = ", ".join(self.function.__code__.co_freevars)
            raise self._fail(
                self.node, f"{name} uses {free} of an enclosing function", "make it a global"
            )
        for decorator in self.node.decorator_list:
            if isinstance(decorator, ast.Name) and decorator.id == "staticmethod":
                continue
            raise self._fail(decorator, f"{name} must be a plain function, without decorator")

    def _note_alias(self, node: ast.AST) -> None:
        """Follow `hop = ack.hop[i]`, `f = g = flow` and `a: Ack = ack`."""
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            role = self._role(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and role:
                    self.roles[target.id] = role

    def _role(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return self.roles.get(node.id, "")
        if isinstance(node, ast.Attribute):
            record = self._role(node.value)
            if record in ("ack", "data") and node.attr == "hop":
                return "hops"
            if record in records.HEADS and node.attr in self._arrays(record):
                return "array"
            return "number" if record in records.HEADS or record in _ROLE_MEMBERS else ""
        if isinstance(node, ast.Subscript):
            return _ELEMENTS.get(self._role(node.value), "")
        if isinstance(node, ast.IfExp):
            role = self._role(node.body)
            return role if role == self._role(node.orelse) else ""
        return ""

    def _arrays(self, record: str) -> set[str]:
        return {item.name for item in self.program.algorithm.fields_of(record) if item.length}

    def _check(self, node: ast.AST) -> None:
        if not isinstance(node, ALLOWED):
            default = (f"{type(node).__name__} cannot be compiled", "")
            message, hint = FORBIDDEN.get(type(node), default)
            raise self._fail(node, message, hint)
        if isinstance(node, ast.Constant):
            self._check_constant(node)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load) and node.id not in self.locals:
                self._check_global(node)
        elif isinstance(node, ast.Attribute):
            self._check_attribute(node)
        elif isinstance(node, ast.Subscript):
            if not isinstance(node.ctx, ast.Load) and self._role(node.value) != "array":
                raise self._fail(node, "records and tuples cannot be changed by index")
        elif isinstance(node, ast.Call):
            self._check_call(node)
        elif isinstance(node, ast.Compare):
            self._check_identity(node)
        elif isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Call, ast.Constant)):
            raise self._fail(node, "this statement has no effect")

    def _check_identity(self, node: ast.Compare) -> None:
        """Compiled code has values and no objects: only None is the same thing everywhere."""
        sides = [node.left, *node.comparators]
        for index, operator in enumerate(node.ops):
            if isinstance(operator, (ast.Is, ast.IsNot)) and not any(
                isinstance(side, ast.Constant) and side.value is None
                for side in sides[index : index + 2]
            ):
                raise self._fail(node, "`is` compares objects, not numbers", "write == or !=")

    def _check_constant(self, node: ast.Constant) -> None:
        if node.value is None or isinstance(node.value, (bool, int, float)):
            return
        if isinstance(node.value, str) and any(
            isinstance(item, ast.Expr) and item.value is node for item in self.node.body
        ):
            return
        raise self._fail(node, f"{node.value!r} is not a number", "numbers only")

    def _global(self, node: ast.Name) -> Any:
        """The value of a global name; LocalError when there is none."""
        scope = self.function.__globals__
        if node.id in scope:
            return scope[node.id]
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        fields = {item.name for item in self.program.algorithm.fields}
        if node.id in fields:
            hint = f"write flow.{node.id}"
        else:
            known = self.locals | {name for name in scope if not name.startswith("_")} | BUILTINS
            hint = did_you_mean(node.id, sorted(known))
        raise self._fail(node, f"name {node.id!r} is not defined", hint)

    def _check_global(self, node: ast.Name) -> None:
        value = self._global(node)
        value = getattr(value, "py_func", value)
        if isinstance(value, FunctionType):
            if value not in self.program.helpers:
                self.program.helpers.append(value)
        elif isinstance(value, ModuleType):
            if value.__name__ not in MODULES:
                raise self._fail(node, f"module {value.__name__} cannot be used here")
        elif is_constant(value):
            self.program.constants[(self.file, node.id)] = value
        elif not self._is_native(node.id, value):
            raise self._fail(
                node,
                f"{node.id} is {_a(type(value).__name__)}",
                "globals may be numbers, tuples of numbers, and functions",
            )

    def _is_native(self, name: str, value: Any) -> bool:
        """Whether a callable has a compiled form: a builtin, math's, a ufunc."""
        if getattr(builtins, name, None) is value:
            return name in BUILTINS
        kind = type(value).__name__
        if kind == "ufunc" or (kind == "type" and value.__module__ == "numpy"):
            return kind == "ufunc" or value.__name__ in NUMPY_TYPES
        return isinstance(value, BuiltinFunctionType) and _is_math(value)

    def _check_attribute(self, node: ast.Attribute) -> None:
        role = self._role(node.value)
        if role:
            self._check_member(node, role)
            return
        if isinstance(node.value, ast.Name) and node.value.id not in self.locals:
            module = self._global(node.value)
            if isinstance(module, ModuleType):
                self._check_module_member(node, module)
                return
        if isinstance(node.ctx, ast.Store):
            raise self._fail(node, "only members of flow can be set")
        # Of a record that came some other way: of each that it may be.
        reads = (f"{role}.{node.attr}" for role, own in _ROLE_MEMBERS.items() if node.attr in own)
        self.program.reads.update(reads)

    def _check_module_member(self, node: ast.Attribute, module: ModuleType) -> None:
        name = f"{module.__name__}.{node.attr}"
        if not hasattr(module, node.attr):
            raise self._fail(node, f"there is no {name}", did_you_mean(node.attr, dir(module)))
        value = getattr(module, node.attr)
        if module.__name__ not in MODULES:
            by_name = isinstance(value, FunctionType) or is_constant(value)
            hint = f"from {module.__name__} import {node.attr}" if by_name else _NOT_THERE
            raise self._fail(node, f"module {module.__name__} cannot be used here", hint)
        if not is_constant(value) and not self._is_native("", value):
            raise self._fail(
                node, f"{name} cannot be used here", "math's functions and numpy's ufuncs can"
            )

    def _check_member(self, node: ast.Attribute, role: str) -> None:
        name, store = node.attr, not isinstance(node.ctx, ast.Load)
        if role == "hops":
            whole = ast.unparse(node.value)
            raise self._fail(node, f"hop has no member {name}", f"write {whole}[i].{name}")
        if role == "senders":
            raise self._fail(node, f"senders has no member {name}", "write senders[i]." + name)
        if role == "array":
            raise self._fail(
                node, f"{ast.unparse(node.value)} is an array and has no member {name}"
            )
        if role in _ROLE_MEMBERS:
            members = _ROLE_MEMBERS[role]
            if name not in members:
                raise self._fail(
                    node,
                    f"{role} has no member {name}",
                    did_you_mean(name, sorted(members), "there are"),
                )
            if store:
                raise self._fail(node, f"{role}.{name} is an input and cannot be set")
            self.program.reads.add(f"{role}.{name}")
        elif role in records.HEADS:
            self._check_record_member(node, role, name, store)
        else:
            raise self._fail(
                node, f"{ast.unparse(node.value)} is a number and has no member {name}"
            )

    def _check_record_member(
        self, node: ast.Attribute, record: str, name: str, store: bool
    ) -> None:
        algorithm = self.program.algorithm
        fields = {item.name for item in algorithm.fields_of(record)}
        params = fields & {item.name for item in algorithm.params}
        if name not in records.HEADS[record] and name not in fields:
            known = [*records.HEADS[record], *fields]
            raise self._fail(
                node,
                f"{record} has no member {name}",
                did_you_mean(name, sorted(known), "there are"),
            )
        if store and name in params:
            raise self._fail(
                node,
                f"{name} is a parameter and cannot be set",
                "keep what changes in state(...)",
            )
        if store and name in self._arrays(record):
            raise self._fail(node, f"{record}.{name} is an array", f"set {record}.{name}[i]")
        if store and name not in fields and name not in records.WRITABLE[record]:
            raise self._fail(
                node,
                f"{record}.{name} is set by the transport",
                f"an algorithm sets {' and '.join(records.WRITABLE[record])} and its own state",
            )

    def _check_call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Name) or node.func.id in self.locals:
            if not isinstance(node.func, ast.Attribute):
                raise self._fail(node, f"{ast.unparse(node.func)} is not a function")
            return
        value = self._global(node.func)
        value = getattr(value, "py_func", value)
        if not isinstance(value, FunctionType):
            return
        if value in self.callers:
            way = [item.__name__ for item in self.callers[self.callers.index(value) + 1 :]]
            by = f" by way of {', '.join(way)}" if way else ""
            raise self._fail(node, f"{value.__name__} calls itself{by}", "write a loop")
        roles = self._call_roles(node, value)
        _Checker(self.program, self.seen, value, roles, self.callers).run()

    def _call_roles(self, node: ast.Call, function: FunctionType) -> tuple[str, ...]:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        roles = dict.fromkeys(names, "")
        for name, argument in zip(names, node.args, strict=False):
            roles[name] = self._role(argument)
        for keyword in node.keywords:
            if keyword.arg is not None:
                roles[keyword.arg] = self._role(keyword.value)
        return tuple(roles[name] for name in names)


def _is_math(value: Any) -> bool:
    name = getattr(value, "__name__", "")
    return getattr(math, name, None) is value and name not in _MATH_LISTS


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
