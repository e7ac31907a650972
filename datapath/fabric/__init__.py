# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Networks made by us: traffic tables, the simulator, the emulator.

flows.py is the traffic table and its results, which the simulator and the live generator share.
"""
