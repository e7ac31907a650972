/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For programs that stand in for a device: they sleep most of the time, and are late if they do
 * not get the CPU when they wake. */
#ifndef DP_POSIX_PRIORITY_H
#define DP_POSIX_PRIORITY_H

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum {
	DP_PRIORITY = 1, /* of the real-time ones: before everything that shares the CPU */
	DP_NICE = -20,
};

/* Returns what it came to: "fifo", "nice" or "ordinary". */
static inline const char *dp_take_priority(void)
{
	const struct sched_param param = { .sched_priority = DP_PRIORITY };

	prctl(PR_SET_TIMERSLACK, 1);
	mlockall(MCL_CURRENT);
	if (!sched_setscheduler(0, SCHED_FIFO, &param))
		return "fifo";
	return setpriority(PRIO_PROCESS, 0, DP_NICE) ? "ordinary" : "nice";
}

#endif
