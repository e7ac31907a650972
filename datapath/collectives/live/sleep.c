// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The sleep of the communicator's thread: until a device has completions, a rank of this host rings
 * the bell or ends, a caller has work, or a sign of life is due.
 */
#include <unistd.h>

#include "collectives/live/coll.h"

enum {
	LOOK_MS = 20,  /* while a collective runs the thread sleeps no longer, */
	STILL_MS = 10, /* and stood still if it wakes so much later */
	MS_NS = 1000000,
};

/* The last look at CQs comes after they are armed, so that no completion is missed. */
static int arm(struct dpcoll *comm)
{
	for (uint32_t i = 0; i < comm->n_devices; i++)
		if (ibv_req_notify_cq(comm->device[i].cq, 0))
			return coll_fail(comm, EIO, "arming the CQ of %s failed",
					 comm->device[i].name);
	return 0;
}

static uint32_t fill(struct dpcoll *comm, struct pollfd *wait)
{
	uint32_t n = 0;

	wait[n++] = (struct pollfd){ .fd = comm->wake_fd, .events = POLLIN };
	wait[n++] = (struct pollfd){ .fd = comm->bell[0], .events = POLLIN };
	for (uint32_t i = 0; i < comm->n_devices; i++)
		wait[n++] = (struct pollfd){ .fd = comm->device[i].channel->fd, .events = POLLIN };
	/* poll() reports a bell without a reader as POLLERR, which needs no flag. */
	for (uint32_t i = 0; i < comm->n_neighbours; i++)
		wait[n++] = (struct pollfd){ .fd = comm->neighbour[i].gone ?
							   -1 :
							   comm->neighbour[i].bell };
	return n;
}

static void look_for_dead(struct dpcoll *comm, const struct pollfd *wait)
{
	bool leaving;

	pthread_mutex_lock(&comm->lock);
	leaving = comm->leaving;
	pthread_mutex_unlock(&comm->lock);
	for (uint32_t i = 0; i < comm->n_neighbours && !leaving; i++)
		comm->neighbour[i].gone |= wait[i].revents & POLLERR;
}

/* A process that was stopped, or had no CPU, sleeps longer than it asked. */
static void wait_on(struct dpcoll *comm)
{
	uint32_t n = fill(comm, comm->wait);
	uint64_t from_ns = comm->now_ns, asked_ms = (comm->beat_ns - from_ns) / MS_NS + 1, took_ns;

	if (comm->work && asked_ms > LOOK_MS)
		asked_ms = LOOK_MS;
	if (poll(comm->wait, n, (int)asked_ms) > 0)
		look_for_dead(comm, comm->wait + n - comm->n_neighbours);
	took_ns = dp_now_ns() - from_ns;
	if (comm->work && took_ns > (asked_ms + STILL_MS) * MS_NS)
		comm->still_ns += took_ns - asked_ms * MS_NS;
}

static int take_events(struct dpcoll *comm)
{
	struct ibv_cq *cq;
	void *context;
	uint64_t count;

	for (uint32_t i = 0; i < comm->n_devices; i++)
		while (!ibv_get_cq_event(comm->device[i].channel, &cq, &context))
			comm->device[i].unacked_events++;
	if (read(comm->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return coll_fail(comm, errno, "eventfd: %s", strerror(errno));
	return 0;
}

int coll_sleep(struct dpcoll *comm)
{
	int n = arm(comm);

	if (!n)
		n = coll_poll(comm);
	if (n)
		return n;
	comm->now_ns = dp_now_ns();
	if (coll_shared_doze(comm) && comm->now_ns < comm->beat_ns)
		wait_on(comm);
	coll_shared_wake(comm);
	n = take_events(comm);
	comm->now_ns = dp_now_ns();
	return n;
}
