// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The collective that runs: steps begin when those that they wait for are done.
 *
 * Each connection sends and takes its steps in the order of the plan.  A step that is done stirs
 * the connections of those that waited for it; coll_run_on() goes on until nothing is stirred.
 */
#include <stdio.h>

#include "collectives/live/coll.h"

/* After so long a rank with work of its own looks at its peers, who else would hear nothing of it. */
#define RUN_NS 2000000ull

static const char *const collectives[DP_PLAN_COLLECTIVES] = {
	[DP_PLAN_ALLREDUCE] = "allreduce", [DP_PLAN_REDUCE_SCATTER] = "reduce_scatter",
	[DP_PLAN_ALLGATHER] = "allgather", [DP_PLAN_BROADCAST] = "broadcast",
	[DP_PLAN_ALLTOALL] = "alltoall",   [DP_PLAN_REDUCE_TO_ROOT] = "reduce",
	[DP_PLAN_GATHER] = "gather",	   [DP_PLAN_SCATTER] = "scatter",
};

/* The first step with a peer that is not done; NULL: all are. */
static const struct coll_step *first_step(const struct dpcoll_plan *plan,
					  const struct coll_lane *lane,
					  const struct coll_conn *conn, bool sends)
{
	if (sends && conn->next_sent < lane->sends)
		return &plan->step[lane->send[conn->next_sent]];
	if (!sends && conn->next_take < lane->takes)
		return &plan->step[lane->take[conn->next_take]];
	return NULL;
}

void coll_step_name(const struct dpcoll *comm, const struct coll_conn *conn, bool sends, char *out,
		    size_t bytes)
{
	const struct dpcoll_work *work = comm->work;
	const struct coll_step *step = NULL;
	const struct coll_lane *lane;
	int used;

	if (!work) {
		snprintf(out, bytes, "rank %u, between collectives", comm->cfg.rank);
		return;
	}
	lane = &work->plan->lane[conn - comm->conn];
	step = first_step(work->plan, lane, conn, sends);
	if (!step)
		step = first_step(work->plan, lane, conn, !sends);
	used = snprintf(out, bytes, "rank %u, %s %llu", comm->cfg.rank,
			collectives[work->plan->head.collective], (unsigned long long)work->number);
	if (step && used > 0 && (size_t)used < bytes)
		snprintf(out + used, bytes - (size_t)used, ", step %u", step->row.step);
	else if (used > 0 && (size_t)used < bytes)
		snprintf(out + used, bytes - (size_t)used, ", steps with this rank done");
}

/* ---- messages --------------------------------------------------------------------- */

/* The same by shared memory: what is copied has been delivered. */
static void tell_near(struct dpcoll *comm, struct coll_conn *conn, enum coll_message kind,
		      uint64_t number)
{
	if (kind == COLL_ALIVE) {
		__atomic_store_n(&conn->far->alive, *comm->alive, __ATOMIC_RELAXED);
		return;
	}
	if (kind == COLL_FAREWELL)
		memcpy(conn->far->mailbox, comm->farewell, COLL_ERROR_BYTES);
	coll_shared_message(conn, coll_with_length(coll_imm(kind, number), 0));
}

static void send_near(struct dpcoll *comm, struct coll_conn *conn, const struct coll_step *step)
{
	uint64_t slot = conn->posted++ % COLL_SLOTS;

	memcpy(conn->far_slots + slot * comm->slot_bytes,
	       comm->work->buffer[step->row.buffer] + step->row.offset, step->row.bytes);
	coll_shared_message(
		conn, coll_with_length(coll_imm(COLL_DATA, coll_data_number(comm, step->row.step)),
				       (uint32_t)step->row.bytes));
	comm->now_ns = dp_now_ns();
	coll_run_sent(comm, conn);
}

/* A credit, a farewell, a greeting or a sign of life. */
int coll_tell(struct dpcoll *comm, struct coll_conn *conn, enum coll_message kind, uint64_t number)
{
	if (!conn->neighbour)
		return coll_post_message(comm, conn, kind, number);
	tell_near(comm, conn, kind, number);
	return 0;
}

/* ---- steps ------------------------------------------------------------------------ */

static void later_from(struct coll_time *time, uint64_t at_ns)
{
	if (time->from_ns < at_ns)
		time->from_ns = at_ns;
}

static void done(struct dpcoll *comm, uint32_t number, uint64_t at_ns)
{
	struct dpcoll_plan *plan = comm->work->plan;
	struct coll_time *time = &plan->step[number].time;
	uint64_t took_ns = at_ns > time->from_ns ? at_ns - time->from_ns : 0;

	time->count++;
	time->sum_ns += took_ns;
	if (time->longest_ns < took_ns)
		time->longest_ns = took_ns;
	comm->left--;
	for (uint32_t i = plan->step[number].first_after; i < plan->step[number + 1].first_after;
	     i++) {
		uint32_t other = plan->after[i];

		if (--comm->waits[other])
			continue;
		later_from(&plan->step[other].time, at_ns);
		if (plan->step[other].conn == DP_PLAN_NONE)
			comm->todo[comm->n_todo++] = other;
		else
			comm->stirred[plan->step[other].conn] = true;
	}
}

static void put(struct dpcoll *comm, const struct coll_step *step, const void *from)
{
	const struct dpcoll_work *work = comm->work;
	void *to = work->buffer[step->row.buffer] + step->row.offset;

	if (step->row.op == DP_PLAN_REDUCE || step->row.op == DP_PLAN_REDUCE_LOCAL)
		coll_combine(work->type, work->op, to, from, step->row.bytes);
	else
		memcpy(to, from, step->row.bytes);
}

static int send_on(struct dpcoll *comm, struct coll_conn *conn, const struct coll_lane *lane)
{
	int err = 0;

	/* The other half is for credits, signs of life and a farewell. */
	while (!err && conn->next_send < lane->sends && conn->posted < conn->credits &&
	       conn->outstanding < COLL_SENDS / 2) {
		uint32_t number = lane->send[conn->next_send];

		if (comm->waits[number])
			break;
		conn->next_send++;
		later_from(&comm->work->plan->step[number].time, dp_now_ns());
		if (conn->neighbour)
			send_near(comm, conn, &comm->work->plan->step[number]);
		else
			err = coll_post_step(comm, conn, &comm->work->plan->step[number]);
	}
	return err;
}

static int came_unlike(struct dpcoll *comm, const struct coll_conn *conn,
		       const struct coll_step *step, const struct coll_arrival *arrival)
{
	const struct dpcoll_work *work = comm->work;
	bool other = arrival->number >> 16 != comm->digest;

	return coll_fail(comm, EPROTO,
			 "rank %u, %s %llu: rank %u sent step %u%s with %u bytes, where step %u "
			 "with %llu is due: do all ranks start the same collectives, with the "
			 "same sizes, types, roots and tags?",
			 comm->cfg.rank, collectives[work->plan->head.collective],
			 (unsigned long long)work->number, conn->peer, arrival->number & 0xffff,
			 other ? " of another collective" : "", arrival->bytes,
			 step->sender_step & 0xffff, (unsigned long long)step->row.bytes);
}

static int take(struct dpcoll *comm, struct coll_conn *conn, uint32_t number)
{
	struct coll_step *step = &comm->work->plan->step[number];
	uint64_t slot = conn->taken % COLL_SLOTS;
	const struct coll_arrival *arrival = &conn->arrival[slot];

	if (arrival->number != coll_data_number(comm, step->sender_step) ||
	    arrival->bytes != step->row.bytes)
		return came_unlike(comm, conn, step, arrival);
	later_from(&step->time, arrival->at_ns);
	later_from(&step->time, conn->taken_ns);
	put(comm, step, conn->slots + slot * comm->slot_bytes);
	conn->taken++;
	conn->taken_ns = comm->now_ns = dp_now_ns();
	done(comm, number, conn->taken_ns);
	if (conn->taken - conn->told < COLL_CREDIT_EVERY)
		return 0;
	conn->told = conn->taken;
	return coll_tell(comm, conn, COLL_CREDIT, conn->taken);
}

static int take_on(struct dpcoll *comm, struct coll_conn *conn, const struct coll_lane *lane)
{
	int err = 0;

	while (!err && conn->next_take < lane->takes && conn->taken < conn->arrived) {
		uint32_t number = lane->take[conn->next_take];

		if (comm->waits[number])
			break;
		conn->next_take++;
		err = take(comm, conn, number);
	}
	return err;
}

static void run_local(struct dpcoll *comm, uint64_t until_ns)
{
	while (comm->n_todo && comm->now_ns < until_ns) {
		uint32_t number = comm->todo[--comm->n_todo];
		const struct coll_step *step = &comm->work->plan->step[number];

		put(comm, step, comm->work->buffer[step->row.from_buffer] + step->row.from_offset);
		comm->now_ns = dp_now_ns();
		done(comm, number, comm->now_ns);
	}
}

int coll_run_on(struct dpcoll *comm)
{
	uint64_t until_ns;
	bool again = true;
	int err = 0;

	if (!comm->work)
		return 0;
	comm->now_ns = dp_now_ns();
	until_ns = comm->now_ns + RUN_NS;
	while (again && comm->work && !err) {
		if (comm->now_ns >= until_ns)
			return 1;
		run_local(comm, until_ns);
		again = comm->n_todo;
		for (uint32_t i = 0; i < comm->n_conns && !err; i++) {
			struct coll_lane *lane = &comm->work->plan->lane[i];

			if (!comm->stirred[i])
				continue;
			comm->stirred[i] = false;
			again = true;
			err = take_on(comm, &comm->conn[i], lane);
			if (!err)
				err = send_on(comm, &comm->conn[i], lane);
		}
		if (!err && !comm->left)
			coll_run_end(comm, 0);
	}
	return err;
}

void coll_run_sent(struct dpcoll *comm, struct coll_conn *conn)
{
	uint32_t i = (uint32_t)(conn - comm->conn);

	if (!comm->work)
		return;
	done(comm, comm->work->plan->lane[i].send[conn->next_sent++], comm->now_ns);
	comm->stirred[i] = true;
}

/* ---- begin and end ---------------------------------------------------------------- */

static int make_room(struct dpcoll *comm, uint32_t steps)
{
	if (steps > comm->waits_room) {
		free(comm->waits);
		free(comm->todo);
		comm->waits = malloc(steps * sizeof(*comm->waits));
		comm->todo = malloc(steps * sizeof(*comm->todo));
		comm->waits_room = steps;
	}
	if (steps && (!comm->waits || !comm->todo))
		return coll_fail(comm, ENOMEM, "no memory for a collective");
	return 0;
}

/* Neighbours of a kind never have the same one, nor do two of which one byte of type, operation or
 * tag differs. */
static uint8_t digest_of(const struct dpcoll_work *work)
{
	const uint32_t rest[] = { work->type, work->op, work->tag };
	uint64_t digest =
		coll_digest(COLL_DIGEST_OF_NOTHING, &work->plan->head, sizeof(work->plan->head));

	return (uint8_t)(coll_digest(digest >> 56, rest, sizeof(rest)) + work->number);
}

int coll_run_begin(struct dpcoll *comm, struct dpcoll_work *work)
{
	struct dpcoll_plan *plan = work->plan;
	uint64_t now_ns = dp_now_ns();
	int err = make_room(comm, plan->n);

	comm->work = work;
	comm->digest = digest_of(work);
	comm->begun_ns = now_ns;
	comm->left = plan->n;
	comm->n_todo = 0;
	coll_note(comm, "begin", NULL, work->number);
	for (uint32_t i = 0; i < plan->n && !err; i++) {
		comm->waits[i] = plan->step[i].waits;
		plan->step[i].time.from_ns = now_ns;
		if (!comm->waits[i] && plan->step[i].conn == DP_PLAN_NONE)
			comm->todo[comm->n_todo++] = i;
	}
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		comm->conn[i].next_send = comm->conn[i].next_sent = comm->conn[i].next_take = 0;
		comm->stirred[i] = true;
	}
	if (!err && !comm->left)
		coll_run_end(comm, 0);
	return err;
}

void coll_run_end(struct dpcoll *comm, int status)
{
	struct dpcoll_work *work = comm->work;

	coll_note(comm, "end", NULL, work->number);
	comm->busy_ns += dp_now_ns() - comm->begun_ns;
	comm->work = NULL;
	pthread_mutex_lock(&comm->lock);
	work->status = status;
	work->ended = true;
	pthread_cond_broadcast(&comm->ended);
	pthread_mutex_unlock(&comm->lock);
}
