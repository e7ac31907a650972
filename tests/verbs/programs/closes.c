/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 *   closes N
 *
 * N times, a thread asks for an event of a channel at the moment at which another one destroys it.
 * It finds the channel closed (EBADF) or waits for ever; prints how often it did each.
 */
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static struct rdma_event_channel *channel;
static atomic_bool begun, asking;
static atomic_int answer;

static void spin(int n)
{
	for (volatile int i = 0; i < n; i++)
		;
}

static void *ask(void *unused)
{
	struct rdma_event_channel copy = *channel; /* the other one frees it */
	struct rdma_cm_event *event;

	(void)unused;
	atomic_store(&begun, true);
	while (!atomic_load(&asking))
		;
	rdma_get_cm_event(&copy, &event);
	atomic_store(&answer, errno);
	return NULL;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1, closed = 0, waits = 0;

	for (int i = 0; i < n; i++) {
		pthread_t thread;

		channel = rdma_create_event_channel();
		begun = asking = false;
		answer = 0;
		if (!channel || pthread_create(&thread, NULL, ask, NULL))
			return 2;
		while (!atomic_load(&begun))
			;
		atomic_store(&asking, true);
		spin(rand() % 2000);
		rdma_destroy_event_channel(channel);
		spin(20000);
		pthread_cancel(thread);
		pthread_join(thread, NULL);
		if (answer && answer != EBADF) {
			fprintf(stderr, "round %d: errno %d\n", i, answer);
			return 1;
		}
		closed += answer == EBADF;
		waits += !answer;
	}
	printf("%d %d\n", closed, waits);
	return 0;
}
