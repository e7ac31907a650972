# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From an experiment file to a result folder.

document.py   YAML with the place of every part
spec.py       the format: sections, keys, types, meaning
schema.py     which keys may stand where, and which one was meant
load.py       reads a file, says everything that is wrong with it
explain.py    errors of pydantic in the words of the file
networks.py   mistakes in a point's network
report_section.py  checks plots and claims
axes.py       the axes of a sweep
resolved.py   the experiment with its defaults, in which axes and selectors stand as written
sweep.py      axes -> points -> runs in their order
estimate.py   how long they will take; deciding.py: further runs for undecided claims
preflight.py  what this machine lacks, before anything is built
machine.py    the same for `dpctl doctor`
targets.py    delays that algorithms aim at, below the RTT of the path
signals.py    telemetry and marks that algorithms read, and of which a file sets one key alone
remarks.py    what is valid and hardly meant so
trust.py      whether --resume may run code that a result folder names
runner.py     makes the runs: the live ones one by one, the simulated ones at once
open_networks.py  the networks that are up meanwhile
live.py       one live run; retakes.py: how often it is made again
simulated.py  the simulated runs, each with its record
witness.py    what devices and path counted by the end of a failed run
parallel.py   simulated runs as tasks; pools.py: in processes of this machine
cluster.py    on a cluster; travelling.py: their files
measuring.py  the code that live and simulated runs share
wakeup.py     how late programs of a live run woke; twins.py: the same in its simulated twin
collecting.py series during a run; counters.py, cputime.py: metrics of counters and CPUs
store.py      the result folder, written so that nothing half-done counts
lock.py       the lock of a result folder
manifest.py   the machine and the software; resumed.py: what of it differs where a sweep was resumed
metrics.py    names and units of metrics
claims.py     the claims that results must meet
revisions.py  one experiment with two revisions of the source tree
collectives.py  collectives in virtual time on a point's network, beside `dpctl run`
"""
