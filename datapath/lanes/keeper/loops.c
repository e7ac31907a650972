/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An idle CPU goes to sleep, and wakes slowly: a virtual one gives itself back to the
 * hypervisor.  A thread of policy SCHED_IDLE on each CPU keeps it busy, and gives way
 * at once to every other thread.  It yields all the time.  Else a program that yields while it
 * polls, as NCCL does, would wait for the end of this thread's slice, 3 ms and more.
 */
#include "lanes/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static pthread_t thread[CPU_SETSIZE];
static int threads;
static atomic_bool stop;

static void *stay_awake(void *arg)
{
	(void)arg;
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		sched_yield();
	return NULL;
}

/* With autogroups (sched(7)) a session has a share of the CPU that does not depend on the
 * policies of its threads.  This session gets the smallest share. */
static void shrink_autogroup(void)
{
	static const char nice[] = "19";
	int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, nice, strlen(nice)) < 0) {
		/* Without autogroups there is nothing to shrink. */
	}
	close(fd);
}

static int begin_on(int cpu)
{
	const struct sched_param param = { .sched_priority = 0 };
	pthread_attr_t attr;
	cpu_set_t set;
	int err;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	err = pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	if (!err) /* else it would be the caller's */
		err = pthread_attr_setschedparam(&attr, &param);
	if (!err)
		err = pthread_create(&thread[threads], &attr, stay_awake, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return -err;
	err = pthread_setschedparam(thread[threads++], SCHED_IDLE, &param);
	return -err;
}

int loops_begin(void)
{
	cpu_set_t allowed;
	int cpu, err;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return -errno;
	shrink_autogroup();
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		err = CPU_ISSET(cpu, &allowed) ? begin_on(cpu) : 0;
		if (err) {
			loops_end();
			return err;
		}
	}
	return threads;
}

/* With any other policy the threads notice the end at once, however busy the CPU is. */
static void hurry(pthread_t one)
{
	const struct sched_param first = { .sched_priority = 1 },
				 ordinary = { .sched_priority = 0 };

	if (pthread_setschedparam(one, SCHED_RR, &first))
		pthread_setschedparam(one, SCHED_OTHER, &ordinary);
}

void loops_end(void)
{
	int i;

	atomic_store(&stop, true);
	for (i = 0; i < threads; i++)
		hurry(thread[i]);
	while (threads)
		pthread_join(thread[--threads], NULL);
}
