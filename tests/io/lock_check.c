// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The lock excludes, and a thread that takes it again and again does not keep others from it. */
#include "io/lock.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "posix/clock.h"

enum { THREADS = 4, ROUNDS = 20000, HANDOVERS = 50, MS = 1000000 };

static struct dp_lock lock;
static uint64_t count, wait_ns;
static atomic_bool had_it, ended;

static uint32_t state(void)
{
	return atomic_load(&lock.state);
}

static void pass(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* Adds to the count; every second thread gives up at times, and tries again. */
static void *add(void *number)
{
	bool patient = *(int *)number % 2;

	for (int i = 0; i < ROUNDS; i++) {
		if (patient)
			dp_lock(&lock);
		else
			while (!dp_trylock(&lock) &&
			       !dp_lock_slow(&lock, dp_now_ns() + (uint64_t)(i % 100) * 1000))
				;
		count++;
		if (i % 1000 == 0)
			pass(2 * DP_LOCK_STARVES_NS);
		dp_unlock(&lock);
	}
	return NULL;
}

static void check_exclusion(void)
{
	pthread_t threads[THREADS];
	int numbers[THREADS];

	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert(!pthread_create(&threads[i], NULL, add, &numbers[i]));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert(count == (uint64_t)THREADS * ROUNDS);
	assert(dp_trylock(&lock));
	dp_unlock(&lock);
	assert(state() == DP_LOCK_FREE);
}

static void *want(void *unused)
{
	(void)unused;
	if (dp_lock_slow(&lock, wait_ns)) {
		had_it = true;
		dp_unlock(&lock);
	}
	ended = true;
	return NULL;
}

/* Holds the lock, but for a moment now and then, until another thread, which begins, asks for it.
 * False: that one has had it before, or has given up, and the lock is not held. */
static bool is_asked_for(pthread_t *other)
{
	had_it = ended = false;
	dp_lock(&lock);
	assert(!pthread_create(other, NULL, want, NULL));
	while (state() != DP_LOCK_ASKED_FOR) {
		pass(DP_LOCK_STARVES_NS);
		dp_unlock(&lock);
		if (!dp_trylock(&lock))
			return false;
		if (ended) {
			dp_unlock(&lock);
			return false;
		}
		pass(MS / 10);
	}
	return true;
}

static void check_handover(void)
{
	pthread_t other;
	int asked = 0;
	bool got;

	wait_ns = UINT64_MAX;
	for (int i = 0; i < HANDOVERS; i++) {
		if (is_asked_for(&other)) {
			asked++;
			dp_unlock(&lock);
			got = dp_trylock(&lock);
			assert(!got || had_it);
			if (!got)
				dp_lock(&lock); /* sleeps behind the other one */
			dp_unlock(&lock);
		}
		pthread_join(other, NULL);
		assert(had_it);
	}
	assert(asked > HANDOVERS / 10);
}

/* What was left to a thread that has given up is there for others. */
static void check_nobody_takes_it(void)
{
	pthread_t other;
	int asked = 0;
	bool held;

	for (int i = 0; i < HANDOVERS; i++) {
		wait_ns = dp_now_ns() + 10 * MS;
		held = is_asked_for(&other);
		pthread_join(other, NULL);
		if (held) {
			asked++;
			dp_unlock(&lock);
		}
		dp_lock(&lock);
		dp_unlock(&lock);
	}
	assert(asked);
}

int main(void)
{
	check_exclusion();
	check_handover();
	check_nobody_takes_it();
	return EXIT_SUCCESS;
}
