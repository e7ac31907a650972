# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From an object to a shared object that a program without Python can open.

A few lines of generated C give it the descriptor `dp_cc_algo` of engine/cc.h and
the image of a new flow.  numba's functions refer to Python on their error path
only, which no accepted algorithm takes except by an index outside `ack.hop`;
empty functions of those names, hidden in the object, stand in for Python.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datapath.cc import records, toolchain
from datapath.cc.algorithm import HOOKS, Algorithm
from datapath.cc.subset import Program
from datapath.errors import DatapathError, LocalError

HEADER = Path(__file__).parent.parent / "engine" / "cc.h"

LIBC = frozenset({"memcpy", "memmove", "memset", "__stack_chk_fail"})
LIBM = frozenset(
    """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1
    fabs floor fma fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 modf nearbyint
    nextafter pow remainder rint round sin sincos sinh sqrt tan tanh tgamma trunc""".split()  # noqa: SIM905
)
_TOOLCHAIN = frozenset(
    {"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
)
_STUB_DATA = frozenset({"PyExc_RuntimeError", "PyExc_SystemError", "PyExc_StopIteration"})
_STUB_CALLS = frozenset(
    """numba_gil_ensure numba_gil_release numba_unpickle numba_do_raise
    numba_runtime_build_excinfo_struct PyErr_Clear PyErr_SetString PyErr_SetNone PyErr_Format
    PyErr_WriteUnraisable PyErr_Occurred PyErr_SetObject PyUnicode_FromString
    PyBytes_FromStringAndSize Py_DecRef Py_IncRef NRT_Free NRT_MemInfo_call_dtor""".split()  # noqa: SIM905
)

_GLUE = """\
#include "engine/cc.h"

#define HIDDEN __attribute__((visibility("hidden")))

{stubs}
{hooks}
{images}

_Static_assert(sizeof(flow) <= DP_CC_FLOW_BYTES_MAX, "flow record too large");

__attribute__((visibility("default"))) struct dp_cc_algo dp_cc_algo = {{
	.abi = DP_CC_ABI,
	.name = "{name}",
	.by_path = {by_path},
	.flow_bytes = sizeof(flow),
	.initial = flow,
{members}
	.params = "{params}",
}};
"""

_DEFAULT_HOOKS = {
    # RFC 6928: ten packets, for algorithms that do not say where they begin
    "on_init": """static void dp_cc_on_init(void *record)
{
	struct dp_cc_flow *flow = record;

	flow->cwnd_bytes = 10 * flow->mss_bytes;
	if (flow->cwnd_bytes > flow->max_cwnd_bytes)
		flow->cwnd_bytes = flow->max_cwnd_bytes;
}
""",
    "on_loss": """static void dp_cc_on_loss(void *flow, const struct dp_cc_loss *loss)
{
	(void)flow;
	(void)loss;
}
""",
    "on_timeout": """static void dp_cc_on_timeout(void *flow, double now_ns)
{
	(void)flow;
	(void)now_ns;
}
""",
}

_PROTOTYPES = {
    "on_init": "void dp_cc_on_init(void *) HIDDEN;",
    "on_ack": "void dp_cc_on_ack(void *, const struct dp_cc_ack *) HIDDEN;",
    "on_loss": "void dp_cc_on_loss(void *, const struct dp_cc_loss *) HIDDEN;",
    "on_timeout": "void dp_cc_on_timeout(void *, double) HIDDEN;",
    "on_cnp": "void dp_cc_on_cnp(void *, double) HIDDEN;",
    "on_rtt": "void dp_cc_on_rtt(void *, const struct dp_cc_ack *) HIDDEN;",
    "on_wake": "void dp_cc_on_wake(void *, double) HIDDEN;",
    "on_request": "void dp_cc_on_request(void *, void *) HIDDEN;",
    "on_data": "void dp_cc_on_data(void *, void *, const struct dp_cc_data *) HIDDEN;",
    "on_timer": "void dp_cc_on_timer(void *, void *, uint64_t) HIDDEN;",
    "on_round": "void dp_cc_on_round(void *, void *) HIDDEN;",
}


def link(program: Program, values: Mapping[str, float], obj: bytes) -> bytes:
    """Link an object of `codegen` into a shared object.

    Args:
        values: every parameter of the algorithm.
        obj: ELF relocatable with the program's hooks.

    Raises:
        LocalError: the hooks need something that only Python has.
        CapabilityError: there is no C compiler.
    """
    algorithm = program.algorithm
    stubs = _needed_stubs(algorithm, obj)
    glue = _glue(program, values, stubs)
    with tempfile.TemporaryDirectory(prefix="datapath-cc-") as name:
        folder = Path(name)
        (folder / "hooks.o").write_bytes(obj)
        (folder / "glue.c").write_text(glue)
        if not HEADER.exists():
            raise DatapathError(f"{HEADER} is missing", hint="install the toolkit again")
        shared = toolchain.shared_object(folder, HEADER.parent.parent)
    _check_shared(algorithm, shared)
    return shared


def _glue(program: Program, values: Mapping[str, float], stubs: list[str]) -> str:
    algorithm = program.algorithm
    names = [hook for hook in HOOKS if hook in algorithm.hooks or hook in _DEFAULT_HOOKS]
    hooks = [
        _PROTOTYPES[hook] if hook in algorithm.hooks else _DEFAULT_HOOKS[hook] for hook in names
    ]
    images = [_image("flow", algorithm, values)]
    members = [f"\t.{hook} = dp_cc_{hook}," for hook in names]
    for record in ("port", "sender") if algorithm.grants else ():
        images.append(_image(record, algorithm, values))
        members += [f"\t.{record}_bytes = sizeof({record}),", f"\t.{record}_initial = {record},"]
    return _GLUE.format(
        stubs="\n".join(_stub(name) for name in stubs),
        hooks="\n".join(hooks),
        images="\n".join(images),
        name=algorithm.name,
        by_path=int("ack.path" in program.reads),
        params=" ".join(f"{key}={_plain(value)}" for key, value in values.items()),
        members="\n".join(members),
    )


def _image(record: str, algorithm: Algorithm, values: Mapping[str, float]) -> str:
    """A new record as an array in C."""
    image = algorithm.image(values, record)
    words = [
        f"0x{int.from_bytes(image[at : at + 8], sys.byteorder):016x}"
        for at in range(0, len(image), records.MEMBER_BYTES)
    ]
    return f"static const uint64_t {record}[] = {{ {', '.join(words)} }};"


def _plain(value: float) -> str:
    """A parameter as people write it: 65536, not 65536.0."""
    return str(int(value)) if value == int(value) else repr(value)


def _stub(name: str) -> str:
    if name in _STUB_DATA:
        return f"HIDDEN void *{name};"
    return f"HIDDEN void *{name}(void);\nHIDDEN void *{name}(void)\n{{\n\treturn 0;\n}}"


def _needed_stubs(algorithm: Algorithm, obj: bytes) -> list[str]:
    """Which stand-ins for Python an object needs; anything else unknown is an error."""
    stubs = []
    for name in sorted(_symbols(obj, ".symtab", defined=False) - LIBC - LIBM):
        if name not in _STUB_CALLS | _STUB_DATA:
            what = "allocates memory" if name.startswith("NRT_") else f"needs {name}"
            raise LocalError(
                f"{algorithm.file}:{algorithm.line}: compiled {algorithm.class_name} {what}, "
                "which a program without Python cannot give it",
                hint="use numbers, tuples of numbers and math's functions only",
            )
        stubs.append(name)
    return stubs


def _check_shared(algorithm: Algorithm, shared: bytes) -> None:
    """Make sure that a C program can open the result, and sees one symbol."""
    foreign = _symbols(shared, ".dynsym", defined=False) - LIBC - LIBM - _TOOLCHAIN
    if foreign:
        raise DatapathError(f"{algorithm.name} needs unknown symbols: {', '.join(sorted(foreign))}")
    exported = _symbols(shared, ".dynsym", defined=True)
    if exported != {"dp_cc_algo"}:
        raise DatapathError(f"{algorithm.name} exports {', '.join(sorted(exported))}")


def _symbols(data: bytes, section: str, *, defined: bool) -> set[str]:
    """Global symbols of an ELF file that are (or are not) defined in it."""
    from elftools.elf.elffile import ELFFile

    table: Any = ELFFile(io.BytesIO(data)).get_section_by_name(section)
    return {
        item.name
        for item in table.iter_symbols()
        if item.name
        and item["st_info"]["bind"] != "STB_LOCAL"
        and (item["st_shndx"] != "SHN_UNDEF") == defined
    }
