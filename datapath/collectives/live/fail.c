// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Errors, and the flight recorder: the last events of a communicator, what steps took. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "collectives/live/coll.h"

int coll_fail(struct dpcoll *comm, int error, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&comm->lock);
	if (!comm->failed) {
		comm->failed = -error;
		va_start(args, format);
		vsnprintf(comm->error, sizeof(comm->error), format, args);
		va_end(args);
	}
	pthread_mutex_unlock(&comm->lock);
	return -error;
}

int coll_refuse(struct dpcoll *comm, int error, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&comm->lock);
	va_start(args, format);
	vsnprintf(comm->refusal, sizeof(comm->refusal), format, args);
	va_end(args);
	pthread_mutex_unlock(&comm->lock);
	return -error;
}

bool coll_has_failed(struct dpcoll *comm)
{
	bool failed;

	pthread_mutex_lock(&comm->lock);
	failed = comm->failed;
	pthread_mutex_unlock(&comm->lock);
	return failed;
}

void coll_bid_farewell(struct dpcoll *comm)
{
	/* Farewells are sent from this memory: it is written once, before the first is posted. */
	if (!comm->farewell[0])
		memcpy(comm->farewell, comm->error, COLL_ERROR_BYTES);
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		struct coll_conn *conn = &comm->conn[i];

		if (coll_is_watched(comm, conn) && !conn->leaving) {
			conn->leaving = true;
			coll_tell(comm, conn, COLL_FAREWELL, 0);
		}
	}
}

void coll_end_all(struct dpcoll *comm)
{
	struct dpcoll_work *work;

	pthread_mutex_lock(&comm->lock);
	if (comm->work) {
		comm->work->next = comm->first;
		comm->first = comm->work;
		comm->work = NULL;
	}
	for (work = comm->first; work; work = work->next) {
		work->status = comm->failed;
		work->ended = true;
	}
	comm->first = comm->last = NULL;
	pthread_cond_broadcast(&comm->ended);
	pthread_mutex_unlock(&comm->lock);
}

/* ---- the flight recorder ---------------------------------------------------------- */

void coll_note(struct dpcoll *comm, const char *what, const struct coll_conn *conn, uint64_t number)
{
	struct coll_event *event = &comm->event[comm->events++ & (COLL_EVENTS - 1)];

	*event = (struct coll_event){ .at_ns = dp_now_ns(),
				      .what = what,
				      .conn = conn ? (uint32_t)(conn - comm->conn) : DP_PLAN_NONE,
				      .number = number };
}

void dpcoll_record(struct dpcoll *comm, int fd)
{
	uint64_t first = comm->events > COLL_EVENTS ? comm->events - COLL_EVENTS : 0;

	dprintf(fd, "ns\tevent\tpeer\tchannel\tnumber\n");
	for (uint64_t i = first; i < comm->events; i++) {
		const struct coll_event *e = &comm->event[i & (COLL_EVENTS - 1)];
		const struct coll_conn *conn = e->conn == DP_PLAN_NONE ? NULL :
									 &comm->conn[e->conn];

		dprintf(fd, "%llu\t%s\t%d\t%d\t%llu\n", (unsigned long long)e->at_ns, e->what,
			conn ? (int)conn->peer : -1, conn ? (int)conn->channel : -1,
			(unsigned long long)e->number);
	}
}

void dpcoll_steps(const struct dpcoll *comm, const struct dpcoll_plan *plan, int fd)
{
	dprintf(fd, "busy_ns\t%llu\tstill_ns\t%llu\n", (unsigned long long)comm->busy_ns,
		(unsigned long long)comm->still_ns);
	dprintf(fd, "step\tcount\tsum_ns\tlongest_ns\n");
	for (uint32_t i = 0; i < plan->n; i++) {
		const struct coll_time *time = &plan->step[i].time;

		dprintf(fd, "%u\t%llu\t%llu\t%llu\n", plan->step[i].row.step,
			(unsigned long long)time->count, (unsigned long long)time->sum_ns,
			(unsigned long long)time->longest_ns);
	}
}
