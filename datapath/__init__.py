# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A laboratory for datacentre transports; the folders are its layers (ARCHITECTURE.md).

The modules here lie below all folders:

    errors.py          errors that users see, and their exit codes
    units.py           quantities as people write them and as programs count them
    places.py          places in a file, and errors about two of them
    names.py           names from outside, before they become part of a path
    foreign.py         reads files from outside, within bounds
    disk.py            writes files whole or not at all
    strict_json.py     JSON that every reader takes: no NaN
    terminal.py        text from outside, made fit for a terminal
    spelling.py        the name that was meant in place of an unknown one
    interrupts.py      SIGINT, SIGTERM and SIGHUP end a command once
    asking.py          asks many others at the same time
    own_thread.py      calls a function in a thread of its own, to its end also when interrupted
    scratch.py         temporary folders, also of processes that were killed
    forked.py          calls a function in a fork, which can be ended also in a loop in C
    privileges.py      whether this process may make network namespaces
    processes.py       programs of ours that run, found by their sockets
    search_path.py     where programs are found
    dialogue.py        a program of ours that answers in lines, over pipes
    cachedir.py        the cache folder
    debian.py          the Debian package of a program (packages.txt)
    extras.py          PyTorch, installed at first use
    stats.py           medians, ratios, intervals; quantiles.py: the quantile of all metrics
    metric_kind.py     the facts of a metric
    series.py          the table of samples over time; series_metrics.py, change_metrics.py and
                       card_metrics.py: metrics that follow from one
"""

__version__ = "0.1.0"
