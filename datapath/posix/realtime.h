/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads with real-time priority: the kernel takes their CPU only for others of that kind. */
#ifndef DP_POSIX_REALTIME_H
#define DP_POSIX_REALTIME_H

#include <sched.h>
#include <stdbool.h>

/* Whether the calling thread is one. */
static inline bool dp_is_realtime(void)
{
	int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;

	return policy == SCHED_RR || policy == SCHED_FIFO || policy == SCHED_DEADLINE;
}

/* For a real-time thread that polls: lets others of its priority run.  An ordinary thread does not
 * yield, since it could wait for milliseconds until it has its turn again. */
static inline void dp_yield_realtime(void)
{
	if (dp_is_realtime())
		sched_yield();
}

#endif
