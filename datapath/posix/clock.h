/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's clocks, in nanoseconds. */
#ifndef DP_POSIX_CLOCK_H
#define DP_POSIX_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t dp_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* CLOCK_MONOTONIC: the clock of deadlines, pacing and samples. */
static inline uint64_t dp_now_ns(void)
{
	return dp_clock_ns(CLOCK_MONOTONIC);
}

/* How long a thread of this process has run; 0: it has ended.  The clock is that of
 * pthread_getcpuclockid(), which may not be asked about a thread that has ended. */
static inline uint64_t dp_thread_ran_ns(int thread)
{
	enum { PER_THREAD = 4, SCHEDULER = 2 }; /* of the kernel's CPU clocks */
	struct timespec ts;

	if (clock_gettime((clockid_t)(~(unsigned)thread << 3 | PER_THREAD | SCHEDULER), &ts))
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

#endif
