// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* When the device's thread lingers.  Time is passed in. */
#include "io/device_impl.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>

enum { US = 1000, MS = 1000000, SECOND = 1000000000, PACKETS = 8 };

static struct dp_linger linger;
static uint64_t now;

/* Packets that come so long after the thread has nothing left to do. */
static void packets(int n, uint64_t gap_ns)
{
	for (int i = 0; i < n; i++) {
		dp_linger_drained(&linger, now);
		now += gap_ns;
		dp_linger_arrived(&linger, now);
	}
	dp_linger_drained(&linger, now);
}

static void begin(void)
{
	linger = (struct dp_linger){ 0 };
	now += 10ull * SECOND;
	dp_linger_slept(&linger, now);
}

static void check_gaps(void)
{
	begin();
	packets(PACKETS - 1, 5 * US);
	assert(!dp_linger_wanted(&linger, now));
	packets(1, 5 * US);
	assert(dp_linger_wanted(&linger, now));
	/* The next one does not come: one look in vain. */
	assert(!dp_linger_wanted(&linger, now + DP_LINGER_NS));
	packets(1, 100 * US);
	assert(!dp_linger_wanted(&linger, now));
	begin();
	packets(100, DP_LINGER_NS + 1);
	assert(!dp_linger_wanted(&linger, now));
}

/* What the thread is asked meanwhile by others must not wait for the end of the traffic. */
static void check_sleep(void)
{
	begin();
	packets(2500, 5 * US); /* 12.5 ms */
	assert(!dp_linger_wanted(&linger, now));
	dp_linger_slept(&linger, now);
	assert(dp_linger_wanted(&linger, now));
}

static bool wanted_at(uint64_t at)
{
	now = at;
	packets(PACKETS, 1 * US);
	dp_linger_slept(&linger, now);
	return dp_linger_wanted(&linger, now);
}

/* The pause after each disturbance is twice as long as that before, and at most a second. */
static void check_others(void)
{
	uint64_t pause = 10 * MS;

	begin();
	packets(PACKETS, 5 * US);
	assert(!dp_linger_disturbed(now, now + 20 * US));
	assert(dp_linger_disturbed(now - 3 * MS, now));
	for (int i = 0; i < 10; i++) {
		uint64_t disturbed = now;

		dp_linger_pause(&linger, now);
		assert(!wanted_at(disturbed + pause - 100 * US));
		assert(wanted_at(disturbed + pause));
		pause = 2 * pause < SECOND ? 2 * pause : SECOND;
	}
	now += 3ull * SECOND;
	dp_linger_pause(&linger, now);
	assert(wanted_at(now + 10 * MS));
}

/* A thread from which nobody gets the CPU does not linger. */
static void check_priority(void)
{
	static const int policies[] = { SCHED_RR, SCHED_FIFO, SCHED_RR | SCHED_RESET_ON_FORK };
	const struct sched_param first = { .sched_priority = 1 }, ordinary = { 0 };
	struct dp_device dev = { 0 };

	begin();
	packets(PACKETS, 5 * US);
	dev.linger = linger;
	dev.clock_ns = now;
	assert(dp_device_may_linger(&dev, DP_NEVER));
	assert(!dp_device_may_linger(&dev, now + DP_SHORT_NS)); /* it is due so soon */
	for (unsigned i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		if (sched_setscheduler(0, policies[i], &first)) {
			assert(errno == EPERM);
			printf("no real-time priority without CAP_SYS_NICE\n");
			return;
		}
		assert(!dp_device_may_linger(&dev, DP_NEVER));
	}
	assert(!sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &ordinary));
	assert(dp_device_may_linger(&dev, DP_NEVER));
}

int main(void)
{
	check_gaps();
	check_sleep();
	check_others();
	check_priority();
	printf("ok\n");
	return 0;
}
