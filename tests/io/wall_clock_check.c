// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The conversion of stamps, by clocks that the test turns: a wall clock that is slewed,
 * stepped either way, and a thread that is interrupted between two looks at them. */
#undef NDEBUG
#include <assert.h>
#include <stdlib.h>

#include "io/wall_clock.h"

#define US 1000ull
#define MS 1000000ull
#define S 1000000000ull

static uint64_t mono_ns, ahead_ns; /* the wall clock is ahead of the other by so much */
static uint64_t look_ns, interrupted_ns;
static unsigned looks;

static uint64_t turned(clockid_t clock)
{
	looks++;
	mono_ns += look_ns;
	if (clock == CLOCK_REALTIME) {
		uint64_t now = mono_ns + ahead_ns;

		mono_ns += interrupted_ns;
		return now;
	}
	return mono_ns;
}

static struct dp_wall_clock start(void)
{
	struct dp_wall_clock w;

	dp_wall_clock_init(&w);
	w.read = turned;
	mono_ns = 1000 * S;
	ahead_ns = 1700000000 * S;
	look_ns = 20;
	interrupted_ns = 0;
	return w;
}

/* Of a packet that arrives now and is read `late_ns` later. */
static void assert_right(struct dp_wall_clock *w, uint64_t late_ns)
{
	uint64_t arrived = mono_ns, stamp = arrived + ahead_ns, found;

	mono_ns += late_ns;
	found = dp_wall_to_monotonic(w, stamp);
	assert(llabs((long long)(found - arrived)) <= 2 * (long long)US);
}

static void the_real_clocks_agree(void)
{
	struct dp_wall_clock w;
	struct timespec wall, before, after;
	uint64_t found;

	dp_wall_clock_init(&w);
	clock_gettime(CLOCK_MONOTONIC, &before);
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &after);
	found = dp_wall_to_monotonic(&w, (uint64_t)wall.tv_sec * S + (uint64_t)wall.tv_nsec);
	if (!found)
		return; /* interrupted at each look */
	assert(found + 10 * US >= (uint64_t)before.tv_sec * S + (uint64_t)before.tv_nsec);
	assert(found <= (uint64_t)after.tv_sec * S + (uint64_t)after.tv_nsec + 10 * US);
}

static void a_clock_that_runs_evenly(void)
{
	struct dp_wall_clock w = start();

	for (int i = 0; i < 1000; i++) {
		mono_ns += 100 * US;
		assert_right(&w, i % 7 * 300 * US);
	}
}

static void packets_do_not_cost_looks_at_the_clock(void)
{
	struct dp_wall_clock w = start();

	looks = 0;
	for (int i = 0; i < 900; i++) {
		mono_ns += US;
		assert_right(&w, 0);
	}
	assert(looks == 3);
}

/* NTP slews by half a part in a thousand at most. */
static void a_clock_that_is_slewed(void)
{
	struct dp_wall_clock w = start();

	for (int i = 0; i < 10000; i++) {
		mono_ns += 100 * US;
		ahead_ns += i < 5000 ? 50 : -50ull;
		assert_right(&w, 0);
	}
}

static void a_clock_that_is_set(int64_t step_ns)
{
	struct dp_wall_clock w = start();
	uint64_t stamp, found;

	assert_right(&w, 0);
	stamp = mono_ns + ahead_ns;
	mono_ns += 5 * MS;
	ahead_ns += (uint64_t)step_ns;
	/* The stamp is near the last measurement, which was right then.  Once the step has been
	 * noticed, a stamp from before it is not converted, or to a time in the future. */
	found = dp_wall_to_monotonic(&w, stamp);
	assert(llabs((long long)(found - (mono_ns - 5 * MS))) <= 2 * (long long)US);
	mono_ns += 10 * MS;
	dp_wall_to_monotonic(&w, mono_ns + ahead_ns); /* now it is noticed */
	found = dp_wall_to_monotonic(&w, stamp);
	assert(!found || found > mono_ns || llabs(step_ns) < (long long)MS);
	for (int i = 0; i < 100; i++) {
		mono_ns += 100 * US;
		assert_right(&w, 300 * US);
	}
}

/* Interrupted in between at each look: nothing is told, and nothing wrong is remembered. */
static void a_thread_that_is_interrupted(void)
{
	struct dp_wall_clock w = start();

	assert_right(&w, 0);
	mono_ns += 10 * MS;
	interrupted_ns = 3 * MS;
	assert(!dp_wall_to_monotonic(&w, mono_ns + ahead_ns));
	interrupted_ns = 0;
	assert_right(&w, 0);
}

int main(void)
{
	static const int64_t steps[] = { 50 * US, 900 * US, 20 * MS, 700 * MS, 3 * S, 86400 * S };

	the_real_clocks_agree();
	a_clock_that_runs_evenly();
	packets_do_not_cost_looks_at_the_clock();
	a_clock_that_is_slewed();
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		a_clock_that_is_set(steps[i]);
		a_clock_that_is_set(-steps[i]);
	}
	a_thread_that_is_interrupted();
	return 0;
}
