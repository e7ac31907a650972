#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What mpirun uses in place of ssh: agent.sh FOLDER HOST COMMAND... runs the command in the
# namespaces of the process that the folder's file of this host names.
pid=$(cat "$1/mpi-$2.pid")
shift 2
exec nsenter -t "$pid" -n -m -- sh -c "$*"
