/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Waits that are too brief for a sleep.
 *
 * A sleep until a time can cost its thread 14 to 20 us of CPU time on a virtual machine, where the
 * hypervisor has to set the timer (docs/fabric.md, "How exact it is").  So a shorter wait is polled
 * through.
 *
 * But a real-time thread that is never asleep keeps all ordinary threads from its CPU, and in a live
 * run it loses its priority (lanes/keeper/).  So a thread polls only while it has been asleep for a
 * sixth of the time.
 */
#ifndef DP_POSIX_BRIEF_H
#define DP_POSIX_BRIEF_H

#include <stdbool.h>
#include <stdint.h>

enum {
	DP_BRIEF_NS = 12000,	      /* shorter waits are brief */
	DP_BRIEF_ENTRY_NS = 2000,     /* until a thread that goes to sleep is asleep */
	DP_BRIEF_AWAKE = 5,	      /* for each ns asleep, so many may be spent awake */
	DP_BRIEF_CREDIT_NS = 5000000, /* most of them that is saved up, or owed */
};

struct dp_brief {
	uint64_t since_ns; /* until when time is accounted for; 0: not begun */
	int64_t credit_ns; /* time that may be spent awake; below 0: time that is owed */
};

static inline void dp_brief_add(struct dp_brief *b, int64_t ns)
{
	b->credit_ns += ns;
	if (b->credit_ns > DP_BRIEF_CREDIT_NS)
		b->credit_ns = DP_BRIEF_CREDIT_NS;
	if (b->credit_ns < -DP_BRIEF_CREDIT_NS)
		b->credit_ns = -DP_BRIEF_CREDIT_NS;
}

/* The thread has been awake until now. */
static inline void dp_brief_awake(struct dp_brief *b, uint64_t now)
{
	if (b->since_ns)
		dp_brief_add(b, -(int64_t)(now - b->since_ns));
	b->since_ns = now;
}

/* Whether it may poll through a brief wait. */
static inline bool dp_brief_may(const struct dp_brief *b)
{
	return b->credit_ns > 0;
}

/* It slept instead, for wait_ns at most, and is running again now. */
static inline void dp_brief_slept(struct dp_brief *b, uint64_t wait_ns, uint64_t now)
{
	uint64_t took = now - b->since_ns, asleep = wait_ns < took ? wait_ns : took;

	if (asleep > DP_BRIEF_ENTRY_NS)
		dp_brief_add(b, DP_BRIEF_AWAKE * (int64_t)(asleep - DP_BRIEF_ENTRY_NS));
	b->since_ns = now;
}

#endif
