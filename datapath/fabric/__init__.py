# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network that is made here: what is sent over it, the simulated one and the emulated one.

flows.py is the traffic table and its results, which the simulator and the live generator share.
"""
