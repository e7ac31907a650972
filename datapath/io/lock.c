/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "io/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 100 };

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

bool dp_lock_slow(struct dp_lock *l, uint64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / 1000000000),
		.tv_nsec = (long)(until_ns % 1000000000),
	};
	int i;

	for (i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(&l->state, memory_order_relaxed) == DP_LOCK_FREE &&
		    dp_trylock(l))
			return true;
		pause_cpu();
	}
	/* A thread that has slept takes the lock as "waited for", since others may still sleep. */
	while (atomic_exchange_explicit(&l->state, DP_LOCK_WAITED_FOR, memory_order_acquire) !=
	       DP_LOCK_FREE)
		/* WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. */
		if (syscall(SYS_futex, &l->state, FUTEX_WAIT_BITSET_PRIVATE, DP_LOCK_WAITED_FOR,
			    until_ns == UINT64_MAX ? NULL : &until, NULL,
			    FUTEX_BITSET_MATCH_ANY) < 0 &&
		    errno == ETIMEDOUT)
			return false;
	return true;
}

void dp_lock_wake(struct dp_lock *l)
{
	syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
