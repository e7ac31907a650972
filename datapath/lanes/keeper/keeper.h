/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parts of dp-cpu-keeper; main.c tells its purpose.
 *
 *   poll.c, loops.c   two ways to keep CPUs from going to sleep
 *   waits.c           how long programs waited for a CPU; threads.c: who they are
 *   watch.c           takes real-time priority from programs that never sleep
 */
#ifndef DP_LANES_KEEPER_H
#define DP_LANES_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum { COMM_MAX = 16 };

/* Since a thread began, as /proc/PID/task/TID/schedstat has it; nanoseconds. */
struct cpu_time {
	uint64_t ran_ns;
	uint64_t waited_ns; /* ready to run, without a CPU */
};

/* ---- threads.c: the threads of the programs of this PID namespace ------------------ */

/* Calls visit() for each, this program's and its init's left out. */
void threads_visit(void (*visit)(pid_t tid, const struct cpu_time *, void *arg), void *arg);
/* The name of a thread; "?" when it has ended. */
void thread_name(pid_t tid, char name[COMM_MAX]);

/* ---- poll.c and loops.c: two ways to keep CPUs from going to sleep ------------------- */

/* Each keeps those that this program may use awake, and returns their number, or -errno.
 * poll_begin(): idle ones poll in the kernel, where it can do that (-ENOTSUP).
 * loops_begin(): a thread on each is never idle. */
int poll_begin(void);
void poll_end(void);
int loops_begin(void);
void loops_end(void);

/* ---- waits.c: how long all programs, also ended ones, waited for a CPU ----------- */

/* 0 or -errno; why (of room bytes) says which step failed. */
int waits_begin(char *why, size_t room);
/* Since waits_begin(). */
struct cpu_time waits_total(void);
void waits_end(void);

/* ---- watch.c: no program has a CPU at real-time priority for ever -------------------- */

enum { WATCH_NS = 100000000 };

/* Looks once; those that never sleep go on with ordinary priority and slices of
 * slice_ns.  To be called every WATCH_NS. */
void watch_look(uint64_t slice_ns);
/* The names of those, as a JSON list. */
void watch_print(FILE *);

#endif
