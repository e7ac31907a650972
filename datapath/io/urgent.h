/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The priority of a device's thread, which often shares its CPU with the program.
 *
 * A program that spins on memory until a peer's WRITE changes it never sleeps and makes no calls.
 * At the program's own priority the thread may have to wait for the end of the program's slice,
 * milliseconds, before it can write what the program waits for.
 *
 * So the thread asks to be urgent while it serves such a program: SCHED_FIFO at the lowest real-time
 * priority, where the process may have it.  A process that may not has slices of 0.1 ms in its
 * thread, with which a thread that wakes preempts a program that has longer ones (Linux 6.12).
 *
 * A thread that moves packets all the time would take the CPU from the program for good.  In
 * windows of 10 ms, one that was awake for 5 ms goes on at ordinary priority, and may be urgent
 * again after a window in which it was awake for less than 2.5 ms.
 *
 * A thread that begins with another policy than SCHED_OTHER keeps it.
 */
#ifndef DP_IO_URGENT_H
#define DP_IO_URGENT_H

#include <stdbool.h>
#include <stdint.h>

struct dp_urgent {
	bool possible; /* the process may have real-time priority */
	bool now;
	bool busy;	    /* awake too long to be urgent */
	int32_t nice;	    /* at ordinary priority */
	uint64_t window_ns; /* when the window began */
	uint64_t awake_ns;  /* in the window so far */
};

/* Both are called by the thread itself. */
void dp_urgent_begin(struct dp_urgent *, uint64_t now);
/* The thread was awake from woke_ns to now, and is going to sleep.  wanted: it should be urgent. */
void dp_urgent_note(struct dp_urgent *, bool wanted, uint64_t woke_ns, uint64_t now);

/* For a thread that sleeps until a packet comes: slices of 0.1 ms, as above, at its own nice value. */
void dp_take_short_slices(void);

/* The kernel's number of the calling thread, as dp_thread_ran_ns() wants it. */
int dp_own_thread(void);

#endif
