# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An algorithm and its parameters in, the path of a native shared object out.

Two things are kept on disk.  The object (.o) depends on the code; the shared
object (.so) on the object and the values of the parameters, which are data in
it.  So a new value costs one link, and numba is imported only for new code.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from datapath.cc import cache, linking, records, subset
from datapath.cc.algorithm import Algorithm
from datapath.cc.loading import load

_OWN = ("codegen.py", "linking.py", "records.py", "toolchain.py")


@dataclass(frozen=True)
class CompiledAlgorithm:
    """A shared object that exports `struct dp_cc_algo dp_cc_algo`.

    params: every parameter with its value.
    from_cache: nothing was compiled or linked.
    sources: the files that the code is from.
    """

    path: Path
    name: str
    params: Mapping[str, float]
    from_cache: bool
    algorithm: Algorithm = field(repr=False)
    sources: Sequence[Path] = field(default=(), repr=False)


def compile_algorithm(
    name_or_path: str, params: Mapping[str, Any] | None = None
) -> CompiledAlgorithm:
    """Compile an algorithm with parameters, or find it in the cache.

    Args:
        name_or_path: as for `load`.
        params: values that differ from the defaults.

    Raises:
        LocalError: an unknown name or parameter, a wrong value, or code that
            cannot be compiled; with file and line where there is one.
        CapabilityError: no C compiler, or no folder for the result.
    """
    algorithm = load(name_or_path)
    values = algorithm.resolve(params or {})
    program = subset.analyse(algorithm)
    code_key = _code_key(program)
    key = _digest([code_key, *(f"{name}={value!r}" for name, value in values.items())])
    path = cache.folder() / f"{algorithm.name}-{key}.so"
    hit = cache.load(path) is not None
    if not hit:
        obj = _object(program, cache.folder() / f"{algorithm.name}-{code_key}.o")
        cache.store(path, linking.link(program, values, obj))
    sources = [Path(file) for file in program.files]
    return CompiledAlgorithm(path, algorithm.name, values, hit, algorithm, sources)


def _object(program: subset.Program, path: Path) -> bytes:
    obj = cache.load(path)
    if obj is None:
        from datapath.cc import codegen

        obj = codegen.build_object(program)
        cache.store(path, obj)
    return obj


def _code_key(program: subset.Program) -> str:
    """The inputs of the machine code: sources, the functions made of them, layout, tools.

    The text alone does not tell the code: a condition may choose among functions, and a module that
    was imported before its file changed has the old ones.
    """
    algorithm = program.algorithm
    here = Path(__file__).parent
    fields = (*algorithm.fields, *algorithm.receiver_state)
    layout = [(item.name, item.kind, item.default, item.length, item.of) for item in fields]
    constants = [(name, repr(value)) for (_, name), value in program.constants.items()]
    return _digest(
        [
            f"abi {records.CC_ABI} {platform.machine()}",
            *(f"{tool} {importlib.metadata.version(tool)}" for tool in ("numba", "llvmlite")),
            *((here / name).read_text() for name in _OWN),
            linking.HEADER.read_text(),
            json.dumps([algorithm.name, algorithm.class_name, layout, constants]),
            *(f"{name} {_code(program, hook)}" for name, hook in algorithm.hooks.items()),
            *(_code(program, helper) for helper in program.helpers),
            *program.files.values(),
        ]
    )


def _code(program: subset.Program, function: FunctionType) -> str:
    """What is compiled of a function: its code, and what its names stand for."""
    code = function.__code__
    constants = [repr(item) for item in code.co_consts if not isinstance(item, CodeType)]
    scope = vars(builtins) | function.__globals__
    named = [_meaning(program, scope[name]) for name in code.co_names if name in scope]
    names = (code.co_varnames, code.co_names)
    return json.dumps([function.__qualname__, code.co_code.hex(), *names, constants, named])


def _meaning(program: subset.Program, value: Any) -> str:
    """A number as it is written; of the helpers the position; of other functions the name."""
    if subset.is_constant(value):
        return repr(value)
    function = getattr(value, "py_func", value)
    for position, helper in enumerate(program.helpers):
        if helper is function:
            return f"helper {position}"
    return f"{getattr(value, '__module__', None)} {getattr(value, '__name__', None)}"


def _digest(parts: list[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]
