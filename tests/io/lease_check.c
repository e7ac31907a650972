// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The lease that a program renews itself. */
#include "io/lease.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>

#include "posix/clock.h"

#define MS 1000000ull
#define SECOND (1000 * MS)

static struct dp_lease lease;

static bool is_over(int timeout_ms)
{
	struct pollfd timer = { .fd = lease.timer_fd, .events = POLLIN };

	return poll(&timer, 1, timeout_ms) == 1;
}

static void check_when_to_renew(void)
{
	uint64_t now = dp_now_ns();

	assert(!dp_lease_is_half_over(&lease, now + 1000 * SECOND)); /* there is none */
	dp_lease_begin(&lease, now + 10 * SECOND, 10 * SECOND);
	assert(!dp_lease_is_half_over(&lease, now + 5 * SECOND - 1));
	assert(dp_lease_is_half_over(&lease, now + 5 * SECOND));
	dp_lease_begin(&lease, now + 15 * SECOND, 10 * SECOND);
	assert(!dp_lease_is_half_over(&lease, now + 10 * SECOND - 1));
	assert(dp_lease_is_half_over(&lease, now + 10 * SECOND));
	dp_lease_end(&lease);
	assert(!dp_lease_is_half_over(&lease, now + 1000 * SECOND));
}

static void check_timer(void)
{
	dp_lease_begin(&lease, dp_now_ns() + MS, MS);
	assert(is_over(10000));
	/* The program was only late: the timer of the renewed lease has not fired. */
	dp_lease_begin(&lease, dp_now_ns() + 1000 * SECOND, SECOND);
	assert(!is_over(10));
	/* A time that has passed. */
	dp_lease_begin(&lease, dp_now_ns() - MS, SECOND);
	assert(is_over(10000));
}

int main(void)
{
	dp_lease_end(&lease);
	assert(!dp_lease_open(&lease));
	check_when_to_renew();
	check_timer();
	dp_lease_close(&lease);
	puts("ok");
	return 0;
}
