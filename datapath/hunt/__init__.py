# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Looks for networks that break a congestion-control algorithm, in the simulator.

    values.py    how a value of a dimension is drawn, mutated and made milder
    space.py     the dimensions, and which keys of an experiment each one sets
    case.py      a case as an experiment file
    limits.py    the limits that an algorithm should meet in a case, and its distance
    trial.py     the simulated runs of a case
    search.py    which cases are tried next: random ones, and changes of the worst
    minimise.py  from a bad case to the smallest one that is still bad
    findings.py  the findings, as files
    hunting.py   all of it, up to a time or a number of cases

The idea is that of CC-Fuzz (Ray and Seshan, HotNets 2022): a genetic search over networks and
traffic for those in which an algorithm does badly.
"""
