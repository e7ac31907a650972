// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which threads poll through brief waits.  Time is passed in. */
#include "posix/brief.h"

#include <assert.h>
#include <stdio.h>

enum { US = 1000, MS = 1000 * US };

/* A thread that sleeps for so long, asks after so much time awake, and so on: how often in n rounds it
 * may poll, in which case it does not sleep. */
static int polls(uint64_t asleep_ns, uint64_t awake_ns, int n)
{
	struct dp_brief b = { 0 };
	uint64_t now = MS;
	int polled = 0;

	dp_brief_awake(&b, now);
	for (int i = 0; i < n; i++) {
		now += awake_ns;
		dp_brief_awake(&b, now);
		if (dp_brief_may(&b)) {
			now += asleep_ns;
			polled++;
			continue;
		}
		now += asleep_ns;
		dp_brief_slept(&b, asleep_ns, now);
	}
	return polled;
}

/* Time asleep is at least a sixth, however the thread goes on. */
static void check_share(void)
{
	enum { N = 100000 };

	for (uint64_t awake = 1 * US; awake < 60 * US; awake += 3 * US) {
		for (uint64_t asleep = 3 * US; asleep < 60 * US; asleep += 3 * US) {
			uint64_t slept = (uint64_t)(N - polls(asleep, awake, N)) * asleep;

			assert(slept * (DP_BRIEF_AWAKE + 1) >= (asleep + awake) * (N / 100 * 99) ||
			       slept == N * asleep);
		}
	}
	assert(polls(40 * US, 10 * US, N) > N / 2); /* and one that sleeps enough does poll */
}

/* A thread of which nothing is known sleeps first. */
static void check_begin(void)
{
	struct dp_brief b = { 0 };

	dp_brief_awake(&b, 5 * MS);
	assert(!dp_brief_may(&b));
	dp_brief_slept(&b, UINT64_MAX, 6 * MS);
	assert(dp_brief_may(&b));
}

/* A sleep counts for as long as it was meant to take, less the time until it began. */
static void check_late(void)
{
	struct dp_brief b = { 0 };

	dp_brief_awake(&b, MS);
	dp_brief_slept(&b, 10 * US, 2 * MS);
	assert(b.credit_ns == DP_BRIEF_AWAKE * (10 * US - DP_BRIEF_ENTRY_NS));
	dp_brief_slept(&b, 1 * US, 3 * MS);
	assert(b.credit_ns == DP_BRIEF_AWAKE * (10 * US - DP_BRIEF_ENTRY_NS));
}

/* An hour asleep is not followed by hours awake, nor one of work by hours of sleeps. */
static void check_limits(void)
{
	struct dp_brief b = { 0 };

	dp_brief_awake(&b, MS);
	dp_brief_slept(&b, UINT64_MAX, 3600000ull * MS);
	assert(b.credit_ns == DP_BRIEF_CREDIT_NS);
	dp_brief_awake(&b, 7200000ull * MS);
	assert(b.credit_ns == -DP_BRIEF_CREDIT_NS);
}

int main(void)
{
	check_share();
	check_begin();
	check_late();
	check_limits();
	printf("ok\n");
	return 0;
}
