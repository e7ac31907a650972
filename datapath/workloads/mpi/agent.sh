#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What mpirun uses in place of ssh: agent.sh PID_FILE HOST COMMAND... runs the command in the
# namespaces of the process that the file names.
pid=$(cat "$1")
shift 2
exec nsenter -t "$pid" -n -m -- sh -c "$*"
