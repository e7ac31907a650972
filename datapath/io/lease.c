// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/lease.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

int dp_lease_open(struct dp_lease *l)
{
	l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return l->timer_fd < 0 ? -errno : 0;
}

void dp_lease_close(struct dp_lease *l)
{
	close(l->timer_fd);
}

void dp_lease_begin(struct dp_lease *l, uint64_t until_ns, uint64_t length_ns)
{
	const struct itimerspec at = {
		.it_value = { .tv_sec = (time_t)(until_ns / 1000000000),
			      .tv_nsec = (long)(until_ns % 1000000000) },
	};

	timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
	atomic_store_explicit(&l->renew_ns, until_ns - length_ns / 2, memory_order_relaxed);
}

void dp_lease_end(struct dp_lease *l)
{
	atomic_store_explicit(&l->renew_ns, UINT64_MAX, memory_order_relaxed);
}
