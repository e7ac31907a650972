/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timer of a full lease (device.h), which the program that keeps the lease renews itself.
 *
 * Each look of the device's thread at the program takes the program's CPU for 10 to 17 us on a virtual
 * machine: an interrupt, two switches between threads, and timers that the hypervisor sets.  To set a
 * timer again before it fires takes one system call.  So a program that calls after half of the lease
 * does that, and the thread sleeps until a whole lease has passed since then.
 */
#ifndef DP_IO_LEASE_H
#define DP_IO_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dp_lease {
	int timer_fd;		   /* readable once the lease is over */
	_Atomic uint64_t renew_ns; /* when the program is to renew it; UINT64_MAX: never */
};

/* Makes the timer.  0 or -errno. */
int dp_lease_open(struct dp_lease *);
void dp_lease_close(struct dp_lease *);
/* Begins or renews a lease that lasts until until_ns, and is to be renewed length_ns / 2 before. */
void dp_lease_begin(struct dp_lease *, uint64_t until_ns, uint64_t length_ns);
/* The program has no lease to renew: before the first one, and from now on. */
void dp_lease_end(struct dp_lease *);

static inline bool dp_lease_is_half_over(const struct dp_lease *l, uint64_t now)
{
	return now >= atomic_load_explicit(&l->renew_ns, memory_order_relaxed);
}

#endif
