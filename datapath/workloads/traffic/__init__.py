# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Traffic of many flows: schedules, the generator that runs them on live hosts, and metrics.

sizes.py      distributions of flow sizes, published ones among them (cdf/)
groups.py     groups of flows of an experiment file, as rows; rows_file.py: a table of the user's
schedules.py  traffic tables from a seed: Poisson arrivals, incast, permutation, streams
qps.py        which QPs the flows of a pair of hosts take
live.py       the generator (C, in this folder) on the hosts of a network
simulated.py  the same table in a simulated network
stalls.py     live hosts that stand still for a while; watching.py: events on a condition
orders.py     groups that stop, start or change their algorithm on a condition
ideal.py      how long a flow takes on an idle path
measure.py    metrics of the results of flows; busiest.py: how full the busiest link was
base.py       the code that workloads of traffic share
"""
