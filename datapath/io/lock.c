// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "posix/clock.h"

enum { SPINS = 100 };

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool change(struct dp_lock *l, uint32_t from, uint32_t to)
{
	return atomic_compare_exchange_strong_explicit(&l->state, &from, to, memory_order_acq_rel,
						       memory_order_relaxed);
}

/* While the state is `seen`, until woken or the time has come (CLOCK_MONOTONIC).  False: it did not
 * sleep, for the state was another one. */
static bool sleep_on(struct dp_lock *l, uint32_t seen, uint64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / 1000000000),
		.tv_nsec = (long)(until_ns % 1000000000),
	};

	/* WAIT_BITSET takes an absolute time. */
	return !syscall(SYS_futex, &l->state, FUTEX_WAIT_BITSET_PRIVATE, seen,
			until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY) ||
	       errno != EAGAIN;
}

/* A thread that has slept takes the lock as "waited for", since others may still sleep. */
static bool take(struct dp_lock *l, uint32_t seen, bool slept)
{
	return (seen == DP_LOCK_FREE || (seen == DP_LOCK_HANDED && slept)) &&
	       change(l, seen, DP_LOCK_WAITED_FOR);
}

bool dp_lock_slow(struct dp_lock *l, uint64_t until_ns)
{
	uint64_t now, begun, most;
	bool slept = false;
	uint32_t seen, wanted;
	int i;

	for (i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(&l->state, memory_order_relaxed) == DP_LOCK_FREE &&
		    dp_trylock(l))
			return true;
		pause_cpu();
	}
	begun = dp_now_ns();
	for (;;) {
		seen = atomic_load_explicit(&l->state, memory_order_relaxed);
		if (take(l, seen, slept))
			return true;
		if (seen == DP_LOCK_FREE)
			continue;
		now = dp_now_ns();
		wanted = slept && now - begun >= DP_LOCK_STARVES_NS ? DP_LOCK_ASKED_FOR :
								      DP_LOCK_WAITED_FOR;
		if (seen < wanted) {
			if (!change(l, seen, wanted))
				continue;
			seen = wanted;
		}
		if (slept && now >= until_ns)
			return false; /* others may sleep: the state says so */
		/* Those that a lock was handed to may all have given up. */
		most = seen == DP_LOCK_HANDED ? now + DP_LOCK_STARVES_NS : until_ns;
		slept |= sleep_on(l, seen, most < until_ns ? most : until_ns);
	}
}

void dp_unlock_slow(struct dp_lock *l)
{
	uint32_t seen, left;

	/* Meanwhile a thread may ask for it. */
	do {
		seen = atomic_load_explicit(&l->state, memory_order_relaxed);
		left = seen == DP_LOCK_ASKED_FOR ? DP_LOCK_HANDED : DP_LOCK_FREE;
	} while (!change(l, seen, left));
	syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
