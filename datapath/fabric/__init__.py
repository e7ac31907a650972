# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Networks made by us: traffic tables, the simulator, the emulator.

flows.py           the traffic table and its results, of the simulator and the live generator
topology.py        hosts, switches, and cables between them; links.py: settings of links
ways.py            shortest paths between hosts
simulator.py       flows over a simulated network, with the real engine (sim/, C)
engine_options.py  options of the engines of its hosts
members.py         whole numbers among settings; refusals.py: which of them C refuses
changes.py         changes while it runs; running.py: from one to the next
steps.py           work that begins flows; wakeup.py: late programs
sim_result.py      its samples and its result; failures.py: how it fails
replay.py          a failed simulation once more
emulation.py       the emulator: links in real time (emulator/, C)
"""
