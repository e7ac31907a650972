# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From checked functions to a relocatable object: the only user of numba.

Each hook becomes a C function over pointers to the records.  numba types and
lowers it, llvmlite optimises all hooks as one module and writes the object.
The object is for a baseline CPU, not for this one: the guests of the `vm` lane
and the hosts of the `ssh` lane see the same file, and scalar arithmetic on a
few dozen numbers gains nothing from newer instructions.

`boundscheck` is on: an index outside `ack.hop` ends the hook instead of
reading foreign memory.
"""

from __future__ import annotations

import operator
import platform
import re
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

from datapath.cc import records
from datapath.cc.algorithm import HOOKS
from datapath.cc.source import located
from datapath.cc.subset import Program
from datapath.errors import LocalError

# Their stubs tell less than what is used here, so they are untyped, here only.
llvm: Any = import_module("llvmlite.binding")
numba: Any = import_module("numba")
ir: Any = import_module("numba.core.ir")
types: Any = numba.types

_LINE = re.compile(r"\bat (?P<file>/.+?|<.+?>) \((?P<line>\d+)\)")
_TEMPORARY = re.compile(r" for '.*?', defined at .*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""numba colours its messages where the package colorama happens to be installed."""
_SKIPPED = re.compile(r"Failed in nopython|During:|File \"|\s*$")
_OPTIONS = {
    "error_model": "numpy",
    "boundscheck": True,
    # Nobody calls a hook from Python: wrappers would take longer to compile than the hook.
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


_ARITHMETIC = (
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow),
    *(operator.lshift, operator.rshift, operator.neg, operator.pos, pow),
)


_HINT = "the algorithm must run without Python: see docs/cc.md for what it may use"
_HINTS = (
    (
        r"there is no getitem\(Tuple\(",
        "numbers of a tuple that a variable chooses among are all whole or all floats: 1.0, not 1",
    ),
    (
        r"there is no [gs]etitem\(.*, (float64|bool)[,)]",
        "an index is a whole number: write int(...) around it",
    ),
    (r"there is no log\(.*, ", "math.log takes one number here: divide by math.log(base)"),
    (
        r"Unknown attribute '.*' of type Module\(<module 'math'",
        "compiled code has not all of math: see docs/cc.md for what it lacks",
    ),
)
"""By the beginning of the reason."""


def symbol(hook: str) -> str:
    """Name of a hook's function in the object."""
    return f"dp_cc_{hook}"


def target_cpu() -> str:
    """The CPU, in LLVM's words, for which objects are made."""
    return "x86-64-v2" if platform.machine() == "x86_64" else "generic"


def build_object(program: Program) -> bytes:
    """Compile the hooks of a program to an ELF relocatable object.

    Raises:
        LocalError: numba cannot compile it; the message has file and line.
    """
    # NUMBA_DISABLE_JIT and NUMBA_BOUNDSCHECK are meant for the user's own jit functions.  What
    # changed in the environment is read first, or numba would read it while it compiles.
    numba.config.reload_config()
    numba.config.DISABLE_JIT = False
    numba.config.BOUNDSCHECK = None
    compiler = _Compiler(program)
    module = None
    for name in program.algorithm.hooks:
        part = compiler.module(name)
        if module is None:
            module = part
        else:
            module.link_in(part)
    return _emit(module)


class _Compiler:
    """Holds the numba types of the records and a dispatcher for each function."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.records = {
            **{name: numba.from_dtype(program.algorithm.dtype_of(name)) for name in records.HEADS},
            "ack": numba.from_dtype(records.ack_dtype()),
            "loss": numba.from_dtype(records.loss_dtype()),
            "data": numba.from_dtype(records.data_dtype()),
        }
        self.records["senders"] = types.Array(self.records["sender"], 1, "C")
        self.dispatchers: dict[FunctionType, Any] = {}
        self.scopes: dict[int, dict[str, Any]] = {}
        for helper in program.helpers:
            self._dispatcher(helper)
        for function in self.dispatchers:
            self._bind(function)

    def module(self, hook: str) -> Any:
        """The LLVM module of one hook; only the hook's symbol can be seen from outside."""
        function = self.program.algorithm.hooks[hook]
        dispatcher = self._dispatcher(function)
        self._bind(function)
        roles = HOOKS[hook]
        arguments = tuple(self.records.get(role, types.float64) for role in roles)
        try:
            dispatcher.compile(arguments)
            self._check_types()
            wrapper = numba.cfunc(_c_signature(arguments), nopython=True)(
                _wrapper(dispatcher, roles)
            )
        except LocalError:
            raise
        except Exception as error:
            raise self._explain(function, error) from None
        module = llvm.parse_assembly(wrapper.inspect_llvm())
        for item in [*module.functions, *module.global_variables]:
            if item.name == wrapper.native_name:
                item.name = symbol(hook)
                item.visibility = llvm.Visibility.hidden
            elif not item.is_declaration:
                item.linkage = llvm.Linkage.internal
        return module

    def _dispatcher(self, function: FunctionType) -> Any:
        """numba's compiler of a function whose globals can be replaced."""
        if function not in self.dispatchers:
            scope = self.scopes.setdefault(id(function.__globals__), dict(function.__globals__))
            clone = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
            self.dispatchers[function] = numba.njit(**_OPTIONS)(clone)
        return self.dispatchers[function]

    def _bind(self, function: FunctionType) -> None:
        """Point the names of helpers in a function's globals to their dispatchers."""
        scope = self.scopes[id(function.__globals__)]
        for name in function.__code__.co_names:
            value = scope.get(name)
            plain = getattr(value, "py_func", value)
            if isinstance(plain, FunctionType) and plain in self.dispatchers:
                scope[name] = self.dispatchers[plain]

    def _check_types(self) -> None:
        """Refuse code that numba's typing accepts and a transport cannot run."""
        for function, dispatcher in self.dispatchers.items():
            for overload in dispatcher.overloads.values():
                typed = overload.type_annotation
                for block in typed.blocks.values():
                    for statement in block.body:
                        self._check_statement(function, statement, typed.typemap)

    def _check_statement(self, function: FunctionType, statement: Any, typemap: Any) -> None:
        line = statement.loc.line
        if isinstance(statement, ir.SetAttr):
            record, value = typemap[statement.target.name], typemap[statement.value.name]
            self._check_store(function, line, record, statement.attr, value)
        elif isinstance(statement, (ir.SetItem, ir.StaticSetItem)):
            array, value = typemap[statement.target.name], typemap[statement.value.name]
            if isinstance(array.dtype, types.Integer) and isinstance(value, types.Float):
                raise located(
                    function.__code__.co_filename,
                    line,
                    "an array declared int would lose the fraction of a float",
                    hint="annotate it float, or write int(...) around the value",
                )
        elif isinstance(statement, ir.Assign):
            kind = typemap.get(statement.target.name)
            if isinstance(kind, (types.List, types.Set, types.DictType, types.UnicodeType)) or (
                isinstance(kind, types.Array)
                and not isinstance(kind, types.NestedArray)
                and kind != self.records["senders"]
            ):
                raise located(
                    function.__code__.co_filename,
                    line,
                    f"{kind} is an object, which would be allocated on every call",
                    hint="use variables, a tuple, or state(...)",
                )
            self._check_range(function, line, statement.value, typemap)
            self._check_operator(function, line, statement.value, typemap)

    def _check_operator(self, function: FunctionType, line: int, value: Any, typemap: Any) -> None:
        """Operators whose result is of another type, or another one, in Python or numpy."""
        plain, arguments = _operation(value, typemap)
        kinds = [types.unliteral(item) for item in arguments]
        file = function.__code__.co_filename
        if plain is operator.invert and isinstance(kinds[0], types.Boolean):
            raise located(file, line, "~ of true or false", hint="write not")
        if plain in _ARITHMETIC and all(kind == types.boolean for kind in kinds):
            raise located(
                file,
                line,
                "arithmetic of true and false alone, of which compiled code, Python and numpy each "
                "make something else",
                hint="write int(...) around a comparison that counts",
            )
        if plain not in (operator.pow, pow) or not all(
            isinstance(kind, types.Integer) for kind in kinds
        ):
            return
        exponent = arguments[1]
        if not isinstance(exponent, types.IntegerLiteral) or exponent.literal_value < 0:
            raise located(
                file,
                line,
                "a power of a whole number, whose exponent may be negative: the result would be 0",
                hint="make one of them a float, as in 2.0 ** n",
            )

    def _check_range(self, function: FunctionType, line: int, value: Any, typemap: Any) -> None:
        """numba cuts the fraction of a float off without a word; Python raises."""
        if not isinstance(value, ir.Expr) or value.op != "call":
            return
        if getattr(typemap[value.func.name], "typing_key", None) is not range:
            return
        if any(isinstance(typemap[item.name], types.Float) for item in value.args):
            raise located(
                function.__code__.co_filename,
                line,
                "range() takes whole numbers, and members of records are floats",
                hint="write int(...) around it; for the records of an acknowledgement "
                "range(min(int(ack.n_hops), len(ack.hop)))",
            )

    def _check_store(
        self, function: FunctionType, line: int, record: Any, name: str, value: Any
    ) -> None:
        algorithm, file = self.program.algorithm, function.__code__.co_filename
        owner = next((item for item in records.HEADS if record == self.records[item]), None)
        kept = (*algorithm.state, *algorithm.receiver_state)
        kinds = {item.name: item.kind for item in kept if item.of == owner}
        if owner is None or name not in {*kinds, *records.WRITABLE[owner]}:
            raise located(file, line, f"{name} is an input and cannot be set")
        if kinds.get(name, "float") != "float" and isinstance(value, types.Float):
            raise located(
                file,
                line,
                f"{name} is declared {kinds[name]} and would lose the fraction of a float",
                hint=f"annotate it float, or write int(...) around the value of {name}",
            )

    def _explain(self, function: FunctionType, error: Exception) -> LocalError:
        """The first useful line of numba's message, at the innermost line of the user's."""
        text = _COLOUR.sub("", str(error))
        for name, kind in self.records.items():
            text = text.replace(str(kind), name)
        lines = [item.strip() for item in text.splitlines() if not _SKIPPED.match(item)]
        reason = lines[0] if lines else type(error).__name__
        if reason.startswith("No implementation of function"):
            call = next((item[4:] for item in lines if item.startswith(">>> ")), "this call")
            reason = f"there is no {call} for these types"
        reason = _TEMPORARY.sub("", reason)
        file, line = self._where(function, error, text)
        hint = next((told for pattern, told in _HINTS if re.match(pattern, reason)), _HINT)
        return located(file, line, f"cannot be compiled: {reason}", hint=hint)

    def _where(self, function: FunctionType, error: Exception, text: str) -> tuple[str, int]:
        for match in _LINE.finditer(text):
            if match["file"] in self.program.files:
                return match["file"], int(match["line"])
        place = getattr(error, "loc", None)
        if place is not None and place.filename in self.program.files:
            return place.filename, place.line
        return function.__code__.co_filename, function.__code__.co_firstlineno


def _operation(value: Any, typemap: Any) -> tuple[Any, list[Any]]:
    """The operator, or the function that is called, of an expression, and its arguments' types."""
    operation = value.op if isinstance(value, ir.Expr) else ""
    if operation == "unary":
        return value.fn, [typemap[value.value.name]]
    if operation in ("binop", "inplace_binop"):
        plain = value.fn if operation == "binop" else value.immutable_fn
        return plain, [typemap[value.lhs.name], typemap[value.rhs.name]]
    if operation == "call":
        called = getattr(typemap[value.func.name], "typing_key", None)
        return called, [typemap[item.name] for item in value.args]
    return None, []


def _c_signature(arguments: tuple[Any, ...]) -> Any:
    """Records are passed as pointers, and an array as a pointer and a length."""
    c_types = []
    for item in arguments:
        if isinstance(item, types.Array):
            c_types += [types.CPointer(item.dtype), types.uint64]
        else:
            c_types.append(types.CPointer(item) if isinstance(item, types.Record) else item)
    return types.void(*c_types)


def _wrapper(hook: Any, roles: tuple[str, ...]) -> Callable[..., None]:
    """The C function of a hook with arguments of these roles."""
    carray = numba.carray

    def call_record(record: Any) -> None:
        hook(carray(record, 1)[0])

    def call_two(record: Any, other: Any) -> None:
        hook(carray(record, 1)[0], carray(other, 1)[0])

    def call_three(record: Any, other: Any, event: Any) -> None:
        hook(carray(record, 1)[0], carray(other, 1)[0], carray(event, 1)[0])

    def call_number(record: Any, now_ns: Any) -> None:
        hook(carray(record, 1)[0], now_ns)

    def call_array(record: Any, others: Any, n: Any) -> None:
        hook(carray(record, 1)[0], carray(others, n))

    special: dict[str, Callable[..., None]] = {"now_ns": call_number, "senders": call_array}
    plain: dict[int, Callable[..., None]] = {1: call_record, 2: call_two, 3: call_three}
    return special.get(roles[-1]) or plain[len(roles)]


def _emit(module: Any) -> bytes:
    """Optimise a module as a whole and write position-independent code."""
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=target_cpu(), opt=3, reloc="pic", codemodel="default"
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    module.verify()
    return bytes(machine.emit_object(module))
