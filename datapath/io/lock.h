/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A mutex.  Without contention, lock and unlock are one atomic instruction each, inline: every verb
 * on the data path takes a lock, often for some tens of nanoseconds of work.  With contention, the
 * thread spins a little, then sleeps on the futex (Drepper, "Futexes are tricky", section 6).  Not
 * recursive.
 *
 * A thread that polls gives the lock back and takes it again before a thread that it has woken can
 * run.  So that this does not go on for seconds, a thread that has waited for DP_LOCK_STARVES_NS asks
 * for a handover: the next unlock leaves the lock to those that have slept for it, as the kernel's
 * mutexes do.
 */
#ifndef DP_IO_LOCK_H
#define DP_IO_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	DP_LOCK_FREE,
	DP_LOCK_HELD,
	DP_LOCK_WAITED_FOR, /* held, and threads may sleep */
	DP_LOCK_ASKED_FOR,  /* the same, and one of them has waited for long */
	DP_LOCK_HANDED,	    /* free for a thread that has slept */
};

enum { DP_LOCK_STARVES_NS = 1000000 };

struct dp_lock {
	_Atomic(uint32_t) state;
};

/* until_ns: CLOCK_MONOTONIC, UINT64_MAX: no limit.  False: the time is over. */
bool dp_lock_slow(struct dp_lock *, uint64_t until_ns);
void dp_unlock_slow(struct dp_lock *);

static inline bool dp_trylock(struct dp_lock *l)
{
	uint32_t free = DP_LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(&l->state, &free, DP_LOCK_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void dp_lock(struct dp_lock *l)
{
	if (__builtin_expect(!dp_trylock(l), 0))
		dp_lock_slow(l, UINT64_MAX);
}

static inline void dp_unlock(struct dp_lock *l)
{
	uint32_t held = DP_LOCK_HELD;

	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
				     &l->state, &held, DP_LOCK_FREE, memory_order_release,
				     memory_order_relaxed),
			     0))
		dp_unlock_slow(l);
}

#endif
