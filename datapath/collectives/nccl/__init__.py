# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network plug-in for NCCL and RCCL, and what any such plug-in is checked with.

The C files here are libnccl-net-dp.so (`net.h` lists them).  The Python files are a conformance
harness that needs neither NCCL nor a GPU: two processes load a plug-in and use it as NCCL does.

    abi.py         the interface of each version, for ctypes
    network.py     a loaded plug-in, the same for all versions
    process.py     one of the two processes: a case runs in a child of its own
    side.py        what a case works with: the plug-in, the other side, patience
    cases.py       what a plug-in has to do, case by case
    departures.py  the cases about peers that leave or die
    check.py       starts the two processes and collects verdicts
"""
