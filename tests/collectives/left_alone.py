# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collectives that nobody waits for, of a communicator that is closed, with a device `dp0`."""

import numpy as np

import datapath.verbs  # noqa: F401  (our devices are there before libibverbs is)
from datapath.collectives import check, load, make
from datapath.collectives.communicator import Communicator

plan = check(make(load("ring"), 1, 1024))
data = np.zeros(256, np.float32)
place = {"address": "127.0.0.1", "port": 1, "token": "no other rank comes"}
for _ in range(10):
    with Communicator(0, 1, device="dp0", **place, plans=[plan]) as comm:
        taken = comm.take(plan)
        for _ in range(10):
            comm.start(taken, data.ctypes.data, items="float32")
