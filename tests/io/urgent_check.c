// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* When a thread is urgent, against the kernel's own word on its policy.  Time is passed in. */
#include "io/urgent.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>

#include "posix/clock.h"

enum { MS = 1000000 };

static struct dp_urgent urgent;
static uint64_t now;

static bool may_be_urgent(void)
{
	struct sched_param first = { .sched_priority = 1 }, none = {};

	if (sched_setscheduler(0, SCHED_FIFO, &first))
		return false;
	assert(!sched_setscheduler(0, SCHED_OTHER, &none));
	return true;
}

/* Sleeps, then is awake: both in ns. */
static void step(bool wanted, uint64_t asleep, uint64_t awake)
{
	now += asleep;
	dp_urgent_note(&urgent, wanted, now, now + awake);
	now += awake;
}

static void expect(int policy)
{
	assert(sched_getscheduler(0) == policy);
}

static void check_wanted(int fifo)
{
	dp_urgent_begin(&urgent, now);
	expect(SCHED_OTHER);
	step(false, 1 * MS, MS / 10);
	expect(SCHED_OTHER);
	step(true, 1 * MS, MS / 10);
	expect(fifo);
	step(false, 1 * MS, MS / 10);
	expect(SCHED_OTHER);
}

/* Awake for half of a window: ordinary, until a window has gone by in which it slept. */
static void check_busy(int fifo)
{
	dp_urgent_begin(&urgent, now);
	step(true, 0, 3 * MS);
	expect(fifo);
	step(true, 0, 3 * MS);
	expect(SCHED_OTHER);
	for (int i = 0; i < 50; i++) {
		step(true, MS / 10, 1 * MS);
		expect(SCHED_OTHER);
	}
	for (int i = 0; i < 21; i++)
		step(true, 1 * MS, MS / 10);
	expect(fifo);
	/* A sleep over many windows counts as sleep. */
	step(true, 1000ull * MS, 1 * MS);
	expect(fifo);
	step(false, 0, 0);
}

static void check_niceness(int fifo)
{
	assert(!setpriority(PRIO_PROCESS, 0, 5));
	dp_urgent_begin(&urgent, now);
	step(true, 1 * MS, MS / 10);
	expect(fifo);
	step(false, 1 * MS, MS / 10);
	expect(SCHED_OTHER);
	assert(getpriority(PRIO_PROCESS, 0) == 5);
}

static void check_other_policy(void)
{
	struct sched_param none = {};

	assert(!sched_setscheduler(0, SCHED_BATCH, &none));
	dp_urgent_begin(&urgent, now);
	step(true, 1 * MS, MS / 10);
	expect(SCHED_BATCH);
}

static void check_clock(void)
{
	uint64_t before = dp_thread_ran_ns(dp_own_thread()), after = before;

	assert(before > 0);
	while (after == before)
		after = dp_thread_ran_ns(dp_own_thread());
	assert(after > before);
	assert(dp_thread_ran_ns(0x3ffffffe) == 0); /* no such thread */
}

int main(void)
{
	int fifo = may_be_urgent() ? SCHED_FIFO : SCHED_OTHER;

	check_wanted(fifo);
	check_busy(fifo);
	check_niceness(fifo);
	check_other_policy();
	check_clock();
	printf("urgent: %s\n", fifo == SCHED_FIFO ? "real-time" : "not permitted");
	return 0;
}
