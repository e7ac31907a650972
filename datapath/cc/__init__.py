# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Congestion control: algorithms in short Python files, compiled to native code.

`algorithm`, `param` and `state` declare one; `Flow`, `Ack`, `Loss` and `Hop`,
and at the receiver `Port`, `Sender` and `Data`, are what its functions see;
`load` and `registry` find it; `compile_algorithm` makes the shared object that
the transport opens.  docs/cc.md tells how to write one.

    algorithm.py   a name, parameters and state (fields.py), hooks; records.py: what these get
    loading.py     finds an algorithm; source.py: places in the user's files
    subset.py      the part of Python that an algorithm may use; constructs.py: its statements
    compiler.py    compiles: codegen.py (numba), linking.py and toolchain.py (C), cache.py
    drivers.py     one flow as Python or compiled; receiving.py: the receiver's side
    exercise.py    legal but unkind events, and rules; raised.py: what a hook raises in Python
    doubts.py      what is legal and hardly meant
    simulate.py    a few flows, one queue
    spec.py        the `cc` section of files
    bpf.py         algorithms for the kernel's TCP (tcp/), in C; struct_ops.py: in object files
    algorithms/    those that come with the toolkit, one in a file
"""

from datapath.cc.algorithm import Algorithm, algorithm
from datapath.cc.compiler import CompiledAlgorithm, compile_algorithm
from datapath.cc.fields import Field, param, state
from datapath.cc.loading import load, registry
from datapath.cc.records import Ack, Data, Flow, Hop, Loss, Port, Sender

__all__ = [
    "Ack",
    "Algorithm",
    "CompiledAlgorithm",
    "Data",
    "Field",
    "Flow",
    "Hop",
    "Loss",
    "Port",
    "Sender",
    "algorithm",
    "compile_algorithm",
    "load",
    "param",
    "registry",
    "state",
]
