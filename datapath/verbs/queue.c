/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An event queue is a ring and an eventfd in semaphore mode, which counts the events in the ring.
 * So programs can poll() the descriptor, make it non-blocking, or wait in the verb.
 *
 * A thread that serves the device while it waits for the queue takes the first event that it adds
 * itself.  Such events are not counted by the descriptor before the thread leaves others behind.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

static _Thread_local struct front_queue *served; /* by this thread */

int front_queue_init(struct front_queue *q)
{
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (q->fd < 0)
		return -errno;
	pthread_mutex_init(&q->lock, NULL);
	q->ring = NULL;
	q->head = q->count = q->size = q->hidden = 0;
	return 0;
}

void front_queue_destroy(struct front_queue *q)
{
	close(q->fd);
	free(q->ring);
	pthread_mutex_destroy(&q->lock);
}

static bool grow(struct front_queue *q)
{
	unsigned size = q->size ? 2 * q->size : 16, i;
	struct front_event *ring;

	ring = malloc(size * sizeof(*ring));
	if (!ring)
		return false;
	for (i = 0; i < q->count; i++)
		ring[i] = q->ring[(q->head + i) & (q->size - 1)];
	free(q->ring);
	q->ring = ring;
	q->head = 0;
	q->size = size;
	return true;
}

void front_queue_push(struct front_queue *q, const struct front_event *event)
{
	uint64_t one = 1;

	pthread_mutex_lock(&q->lock);
	/* Without memory the event is lost, as on a CQ that overruns. */
	if (q->count < q->size || grow(q)) {
		q->ring[(q->head + q->count) & (q->size - 1)] = *event;
		q->count++;
		if (served == q)
			q->hidden++;
		else if (write(q->fd, &one, sizeof(one)) < 0)
			q->count--;
	}
	pthread_mutex_unlock(&q->lock);
}

void front_queue_serve(struct front_queue *q)
{
	served = q;
}

/* Under the lock of the queue, which has an event. */
static void take(struct front_queue *q, struct front_event *out)
{
	*out = q->ring[q->head];
	q->head = (q->head + 1) & (q->size - 1);
	q->count--;
	/* Count under the lock.  Then a thread that destroys the object either purges the event or
	 * waits until it is acknowledged. */
	(*out->popped)++;
}

static bool take_hidden(struct front_queue *q, struct front_event *out)
{
	uint64_t others;
	bool found;

	pthread_mutex_lock(&q->lock);
	found = q->hidden > 0;
	if (found) {
		take(q, out);
		others = q->hidden - 1;
		q->hidden = 0;
		if (others && write(q->fd, &others, sizeof(others)) < 0) {
			/* The counter is full: poll() tells that there are events. */
		}
	}
	pthread_mutex_unlock(&q->lock);
	return found;
}

int front_queue_pop(struct front_queue *q, struct front_event *out)
{
	uint64_t one;
	bool found;

	if (take_hidden(q, out))
		return 0;
	do {
		if (read(q->fd, &one, sizeof(one)) < 0)
			return -1;
		pthread_mutex_lock(&q->lock);
		found = q->count > 0; /* false: purged since read() */
		if (found)
			take(q, out);
		pthread_mutex_unlock(&q->lock);
	} while (!found);
	return 0;
}

bool front_queue_has(struct front_queue *q)
{
	bool has;

	pthread_mutex_lock(&q->lock);
	has = q->count > 0;
	pthread_mutex_unlock(&q->lock);
	return has;
}

void front_queue_purge(struct front_queue *q, const void *object)
{
	unsigned i, kept = 0;
	uint64_t one;
	struct iovec iov = { &one, sizeof(one) };

	pthread_mutex_lock(&q->lock);
	for (i = 0; i < q->count; i++) {
		struct front_event e = q->ring[(q->head + i) & (q->size - 1)];

		if (e.object != object)
			q->ring[(q->head + kept++) & (q->size - 1)] = e;
	}
	/*
	 * Do not block: a reader may already have taken the count.  It finds no event and waits
	 * again.
	 */
	for (i = kept; i < q->count; i++)
		if (q->hidden)
			q->hidden--;
		else if (preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) < 0)
			break;
	q->count = kept;
	pthread_mutex_unlock(&q->lock);
}
