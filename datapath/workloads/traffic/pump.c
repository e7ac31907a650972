// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Posting of messages at their times, and their completions.
 *
 * A heap has the instants at which something begins (the next flow of a
 * connection) or has to stop (a flow).  A completion lets its connection post
 * again.  So the program never searches all flows.
 *
 * An idle program polls for a while and then sleeps until the transport, the
 * management network or the next instant wakes it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "generator.h"

enum {
	EVENTS = 64,
	BUSY_ROUNDS = 4096, /* between two looks at the management network while polling */
	ORDER_ROUNDS = 64,  /* and at orders */
	POST_BURST = 64,
};

#define VERIFY_PATIENCE_NS 5000000000ULL

/* ---- instants -------------------------------------------------------------- */

static void heap_push(struct run *run, struct event event)
{
	uint32_t at = run->n_events++;

	while (at && run->heap[(at - 1) / 2].at_ns > event.at_ns) {
		run->heap[at] = run->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	run->heap[at] = event;
}

static struct event heap_pop(struct run *run)
{
	struct event top = run->heap[0], last = run->heap[--run->n_events];
	uint32_t at = 0, child = 1;

	while (child < run->n_events) {
		if (child + 1 < run->n_events &&
		    run->heap[child + 1].at_ns < run->heap[child].at_ns)
			child++;
		if (run->heap[child].at_ns >= last.at_ns)
			break;
		run->heap[at] = run->heap[child];
		at = child;
		child = 2 * at + 1;
	}
	run->heap[at] = last;
	return top;
}

static uint64_t next_instant(const struct run *run)
{
	uint64_t next = run->n_events ? run->heap[0].at_ns : NEVER;

	return next < run->opt.deadline_ns ? next : run->opt.deadline_ns;
}

/* ---- flows ----------------------------------------------------------------- */

static struct flow *current_flow(struct run *run, const struct conn *conn)
{
	return conn->current < conn->n_flows ? &run->mine[run->order[conn->first + conn->current]] :
					       NULL;
}

static void end_flow(struct run *run, struct flow *flow, uint64_t finish_ns)
{
	if (flow->ended)
		return;
	flow->ended = true;
	run->result[flow - run->mine].finish_ns = finish_ns;
	run->remaining--;
	for (uint32_t i = flow->waits_first; i != NONE; i = run->mine[i].waits_next) {
		run->mine[i].freed = true;
		heap_push(run, (struct event){ .at_ns = run->now_ns,
					       .index = run->mine[i].conn,
					       .freed = true });
	}
}

static bool waits(const struct flow *flow)
{
	return flow->row->after && !flow->freed;
}

static uint64_t message_bytes(const struct flow *flow)
{
	return dp_flow_next_message(flow->row, flow->row->bytes - flow->posted_bytes);
}

/* A flow that names an algorithm gives it to its connection before its first message. */
static int begin_flow(struct run *run, struct conn *conn, const struct dp_flow *row)
{
	if (!row->cc || row->cc == conn->cc || conn->cc_ordered)
		return 0;
	conn->cc = row->cc;
	return run->transport->set_cc(run, conn, run->opt.cc[row->cc - 1]);
}

static int post_message(struct run *run, struct conn *conn, struct flow *flow)
{
	struct message *message = &conn->ring[conn->head & conn->mask];
	struct dp_flow_result *result = &run->result[flow - run->mine];
	int err = flow->posted_bytes ? 0 : begin_flow(run, conn, flow->row);

	if (err)
		return err;
	*message = (struct message){ .posted_ns = dp_now_ns() - run->zero_ns,
				     .number = conn->posted,
				     .bytes = message_bytes(flow),
				     .flow = flow - run->mine };
	if (!flow->posted_bytes)
		result->posted_ns = message->posted_ns;
	flow->posted_bytes += message->bytes;
	flow->outstanding++;
	conn->posted++;
	conn->head++;
	return run->transport->post(run, conn, message);
}

/* Posts the messages that the connection's flows may post now. */
static int post_some(struct run *run, struct conn *conn)
{
	int err = 0;

	/*
	 * A post counts, for its completion calls this again.  A skipped flow does not:
	 * with nothing outstanding nobody would call again.
	 */
	for (int posted = 0; posted < POST_BURST && !err && !conn->failed;) {
		struct flow *flow = current_flow(run, conn);

		if (!flow)
			return 0;
		if (flow->ended || flow->posted_bytes == flow->row->bytes) {
			conn->current++;
			continue;
		}
		if (flow->held)
			return 0;
		if (flow->row->start_ns > run->now_ns) {
			if (!conn->waiting)
				heap_push(run, (struct event){ .at_ns = flow->row->start_ns,
							       .index = conn - run->conn });
			conn->waiting = true;
			return 0;
		}
		if (waits(flow))
			return 0;
		if (flow->outstanding >= flow->row->depth || conn_outstanding(conn) >= conn->limit)
			return 0;
		err = post_message(run, conn, flow);
		posted++;
	}
	return err;
}

static void record_latency(struct run *run, uint64_t ns)
{
	if (!run->latency_sum_ns || ns < run->latency_min_ns)
		run->latency_min_ns = ns;
	if (ns > run->latency_max_ns)
		run->latency_max_ns = ns;
	run->latency_sum_ns += ns;
	run->latency[dp_latency_bucket(ns)]++;
}

int pump_completed(struct run *run, struct conn *conn)
{
	struct message *message = &conn->ring[conn->tail & conn->mask];
	struct flow *flow = &run->mine[message->flow];
	struct dp_flow_result *result = &run->result[message->flow];
	uint64_t now = dp_now_ns() - run->zero_ns;

	conn->tail++;
	flow->outstanding--;
	if (!flow->ended && (!flow->row->stop_ns || now < flow->row->stop_ns)) {
		result->delivered_bytes += message->bytes;
		result->messages++;
		record_latency(run, now - message->posted_ns);
		if (result->delivered_bytes == flow->row->bytes)
			end_flow(run, flow, now);
	}
	run->now_ns = now;
	return post_some(run, conn);
}

bool pump_failed(struct run *run, struct conn *conn, uint32_t status)
{
	bool harm = false;

	if (conn->failed)
		return false;
	conn->failed = true;
	for (uint32_t i = 0; conn_out(run, conn) && i < conn->n_flows; i++) {
		uint32_t flow = run->order[conn->first + i];

		if (run->mine[flow].ended)
			continue;
		harm = true;
		run->result[flow].failed = status;
		end_flow(run, &run->mine[flow], 0);
	}
	return harm;
}

static void stop_flow(struct run *run, struct flow *flow)
{
	end_flow(run, flow, dp_flow_finish_at(flow->row, flow->row->stop_ns));
}

/* The flow of this host that is a row of the table; NULL: none is. */
static struct flow *flow_of_row(struct run *run, uint32_t row)
{
	uint32_t low = 0, high = run->n_mine;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (run->result[middle].flow < row)
			low = middle + 1;
		else
			high = middle;
	}
	return low < run->n_mine && run->result[low].flow == row ? &run->mine[low] : NULL;
}

int pump_order(struct run *run, const struct dp_flow_order *order)
{
	struct flow *flow = flow_of_row(run, order->row);
	struct conn *conn = flow ? &run->conn[flow->conn] : NULL;

	if (!flow || order->what >= DP_FLOW_WHATS ||
	    (order->what == DP_FLOW_CC && (!order->cc || order->cc > run->opt.n_cc)))
		return complain(EINVAL, "%s: order %u for flow %u", run->opt.orders, order->what,
				order->row);
	if (conn->failed)
		return 0;
	if (order->what == DP_FLOW_CC) {
		conn->cc_ordered = true;
		conn->cc = order->cc;
		return run->transport->set_cc(run, conn, run->opt.cc[order->cc - 1]);
	}
	/* A flow that has begun goes on: whoever wants to end it says so. */
	flow->held = order->what == DP_FLOW_HOLD && !flow->posted_bytes;
	if (order->what == DP_FLOW_END)
		end_flow(run, flow, dp_flow_finish_at(flow->row, dp_flow_finish_now(run->now_ns)));
	return post_some(run, conn);
}

static int handle_events(struct run *run)
{
	int err = 0;

	while (run->n_events && run->heap[0].at_ns <= run->now_ns && !err) {
		struct event event = heap_pop(run);
		struct conn *conn;

		if (event.stop) {
			stop_flow(run, &run->mine[event.index]);
			conn = &run->conn[run->mine[event.index].conn];
		} else {
			conn = &run->conn[event.index];
			conn->waiting = conn->waiting && event.freed;
		}
		err = post_some(run, conn);
	}
	if (run->now_ns >= run->opt.deadline_ns) {
		for (uint32_t i = 0; i < run->n_mine; i++)
			stop_flow(run, &run->mine[i]);
	}
	return err;
}

/* ---- the loop -------------------------------------------------------------- */

static int sleep_until(struct run *run, uint64_t until_ns)
{
	struct epoll_event events[EVENTS];
	uint64_t clock = dp_now_ns(), until = run->zero_ns + until_ns;
	uint64_t wait = until > clock ? until - clock : 0;
	struct timespec timeout = { wait / 1000000000, wait % 1000000000 };
	int n = run->transport->arm(run);

	/* The transport may have read from the management network, too. */
	if (n || run->all_done)
		return n < 0 ? n : 0;
	n = epoll_pwait2(run->epoll_fd, events, EVENTS, until_ns == NEVER ? NULL : &timeout, NULL);
	if (n < 0 && errno != EINTR)
		return complain(errno, "epoll: %s", strerror(errno));
	n = manage_poll(run);
	return n ? n : orders_poll(run);
}

static bool finished(struct run *run, bool *told, int *err)
{
	if (!run->remaining && !*told) {
		*told = true;
		*err = manage_done(run);
	}
	return run->all_done;
}

static void first_events(struct run *run)
{
	run->remaining = run->n_mine;
	for (uint32_t i = 0; i < run->n_conns; i++) {
		struct conn *conn = &run->conn[i];

		if (!conn_out(run, conn) || conn->failed)
			continue;
		heap_push(run, (struct event){ .at_ns = current_flow(run, conn)->row->start_ns,
					       .index = i });
		conn->waiting = true;
	}
	for (uint32_t i = 0; i < run->n_mine; i++) {
		if (run->mine[i].row->stop_ns)
			heap_push(run, (struct event){ .at_ns = run->mine[i].row->stop_ns,
						       .index = i,
						       .stop = true });
	}
}

int pump_run(struct run *run)
{
	uint64_t busy_ns = 0;
	uint32_t rounds = 0;
	bool told = false;
	int err = 0;

	first_events(run);
	while (!finished(run, &told, &err) && !err) {
		uint64_t clock = dp_now_ns(), due;
		int found;

		run->now_ns = clock > run->zero_ns ? clock - run->zero_ns : 0;
		due = told ? NEVER : next_instant(run);
		if (clock >= run->zero_ns && due <= run->now_ns) {
			err = handle_events(run);
			busy_ns = run->now_ns;
		}
		found = err ? err : run->transport->poll(run);
		if (found < 0) {
			err = found;
		} else if (found) {
			busy_ns = run->now_ns;
		} else if (clock < run->zero_ns || run->now_ns - busy_ns >= run->opt.spin_ns) {
			err = sleep_until(run, due);
			continue;
		}
		if (!err && ++rounds % BUSY_ROUNDS == 0)
			err = manage_poll(run);
		if (!err && rounds % ORDER_ROUNDS == 0)
			err = orders_poll(run);
	}
	return err;
}

/* ---- counting arrivals ------------------------------------------------- */

struct tally {
	uint64_t conn, messages;
};

static bool arrived_all(const struct run *run, const struct tally *tally, size_t n,
			const struct tally **missing)
{
	for (size_t i = 0; i < n; i++) {
		const struct conn *conn = &run->conn[tally[i].conn % run->n_conns];

		*missing = &tally[i];
		if (conn_in(run, conn) && conn->opcode != OP_READ &&
		    conn->arrived < tally[i].messages)
			return false;
	}
	return true;
}

static int await_arrivals(struct run *run, const struct tally *tally, size_t n)
{
	uint64_t until = dp_now_ns() + VERIFY_PATIENCE_NS;
	const struct tally *missing = NULL;

	while (!arrived_all(run, tally, n, &missing)) {
		int found = run->transport->poll(run);

		if (found < 0)
			return found;
		if (dp_now_ns() >= until)
			return complain(EBADMSG,
					"connection %llu: %llu messages completed, %llu arrived",
					(unsigned long long)missing->conn,
					(unsigned long long)missing->messages,
					(unsigned long long)run->conn[missing->conn].arrived);
	}
	return 0;
}

/* With --verify: every message that completed must have arrived and been compared. */
int pump_verify(struct run *run)
{
	struct tally *mine = calloc(run->n_conns + 1, sizeof(*mine)), *all = NULL;
	size_t n = 0, total = 0;
	int err;

	if (!mine)
		return complain(ENOMEM, "no memory");
	for (uint32_t i = 0; i < run->n_conns; i++) {
		if (conn_out(run, &run->conn[i]))
			mine[n++] = (struct tally){ i, run->conn[i].tail };
	}
	err = manage_gather(run, mine, n * sizeof(*mine), (void **)&all, &total);
	if (!err)
		err = await_arrivals(run, all, total / sizeof(*all));
	free(mine);
	free(all);
	return err;
}
