// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which programs are hot.  Time is passed in. */
#include "io/heat.h"

#include <assert.h>

enum { US = 1000, MANY = 1000 };

static struct dp_heat heat;

/* Rows of `posts` calls within a microsecond, with `gaps` gaps after each row.  Returns whether the
 * program is hot in the end. */
static bool rows(int n, int posts, int gaps, uint64_t gap_ns)
{
	while (n--) {
		for (int i = 0; i < posts; i++)
			dp_heat_called(&heat, 1 * US, 0);
		for (int i = 0; i < gaps; i++)
			dp_heat_called(&heat, gap_ns, 0);
	}
	return dp_heat_hot(&heat);
}

static bool begins(int n, int posts, int gaps, uint64_t gap_ns)
{
	heat = (struct dp_heat){ 0 };
	return rows(n, posts, gaps, gap_ns);
}

static void check_patterns(void)
{
	assert(begins(1, DP_HOT_CALLS, 0, 0));
	assert(!begins(1, DP_HOT_CALLS - 1, 0, 0));
	/* A loop over 10,000 QPs, of which 20 have room, on a slow and on a quick machine. */
	assert(begins(MANY, 20, 3, 50 * US));
	assert(begins(MANY, 20, 3, 8 * US));
	/* One message at a time, and the program computes in between. */
	assert(!begins(MANY, 2, 1, 40 * US));
	assert(!begins(MANY, 3, 1, 1000 * US));
	assert(begins(MANY, 2, 1, DP_QUICK_NS - 1));
}

/* A program that turns to something else. */
static void check_cooling(void)
{
	assert(begins(MANY, 100, 0, 0));
	assert(!rows(1 + (DP_HOT_MAX - DP_HOT_CALLS) / (DP_SLOW_CALLS - 1), 1, 1, 40 * US));
	assert(begins(1, DP_HOT_CALLS, 0, 0));
	dp_heat_failed(&heat);
	assert(!dp_heat_hot(&heat));
}

/* Requests that were delayed take their time, and count. */
static void check_delayed(void)
{
	heat = (struct dp_heat){ 0 };
	dp_heat_called(&heat, DP_QUICK_NS + 31 * US, 32);
	dp_heat_called(&heat, DP_QUICK_NS + 31 * US, 32);
	assert(dp_heat_hot(&heat));
	dp_heat_called(&heat, DP_QUICK_NS + 32 * US, 32);
	assert(!dp_heat_hot(&heat));
}

int main(void)
{
	check_patterns();
	check_cooling();
	check_delayed();
	return 0;
}
