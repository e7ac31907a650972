// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Flows: posting and completions, with a check of the completions.
 *
 * The rules are those of fabric/flows.py.  Both QPs of a channel are made when the first of the
 * channel's flows starts.  The work requests of a channel are numbered,
 * so a completion that is missing, doubled or out of order is noticed at once.
 */
#include "fabric/sim/internal.h"

#define RECEIVE (1ull << 63)

/* ---- the algorithm ------------------------------------------------------------------ */

int dp_sim_set_cc(struct dp_sim *s, uint64_t flow, const struct dp_cc_algo *algo)
{
	struct sim_channel *c;

	if (flow >= s->n_flows)
		return -EINVAL;
	c = &s->channel[s->flow[flow].channel];
	c->algo = algo;
	return c->requester ? dp_qp_set_cc(c->requester, algo, s->now) : 0;
}

/* ---- posting ---------------------------------------------------------------------- */

static void set_held(struct dp_sim *s, struct sim_flow *f, bool held)
{
	s->held += held;
	s->held -= f->held;
	f->held = held;
}

static void end_flow(struct dp_sim *s, uint32_t row, uint64_t finish_ns)
{
	struct sim_flow *f = &s->flow[row];

	if (f->ended)
		return;
	f->ended = true;
	f->left = 0;
	set_held(s, f, false);
	s->result[row].finish_ns = finish_ns;
	s->ended++;
	sim_note(s, row, finish_ns);
	sim_step_sent(s, row, !finish_ns);
	sim_waiting_ended(s, row);
}

static void fail_flow(struct dp_sim *s, uint32_t row, uint32_t status)
{
	if (s->flow[row].ended)
		return;
	s->result[row].failed = status;
	s->failed++;
	end_flow(s, row, 0);
}

static uint32_t psns_of(const struct dp_sim *s, uint32_t bytes)
{
	return bytes ? (bytes + s->cfg.path_mtu - 1) / s->cfg.path_mtu : 1;
}

static bool has_room(const struct dp_sim *s, const struct sim_channel *c, uint32_t bytes)
{
	uint32_t queued = c->posted - c->completed;

	return !queued || (queued <= c->ring_mask && c->psns + psns_of(s, bytes) <= SIM_PSNS_MAX);
}

static bool post_message(struct dp_sim *s, struct sim_channel *c, uint32_t row, uint32_t bytes)
{
	const struct dp_flow *f = &s->table[row];
	struct dp_sge sge = { (uintptr_t)s->memory, bytes, dp_mr_key(s->host[c->src].mr) };
	struct dp_send_wr wr = {
		.wr_id = (uint64_t)(c - s->channel) << 32 | c->posted,
		.opcode = f->opcode,
		.flags = DP_SEND_SIGNALED,
		.num_sge = 1,
		.sge = &sge,
		.remote_addr = (uintptr_t)s->memory,
		.rkey = dp_mr_key(s->host[c->dst].mr),
	};
	int err = dp_qp_post_send(c->requester, &wr);

	if (err) {
		sim_fail(s, err, "flow %u: posting failed (errno %d)", row, -err);
		return false;
	}
	c->ring[c->posted & c->ring_mask] = (struct sim_message){ s->now, row, bytes, false };
	sim_trace(s, (uint32_t)(c - s->channel),
		  &(struct dp_sim_trace){ s->now, DP_SIM_POST, c->src, f->opcode, c->posted, bytes,
					  0 });
	c->posted++;
	c->psns += psns_of(s, bytes);
	return true;
}

/* Posts messages of the flow at the head.  True: the flow has posted all. */
static bool post_flow(struct dp_sim *s, struct sim_channel *c, uint32_t row)
{
	const struct dp_flow *f = &s->table[row];
	struct sim_flow *flow = &s->flow[row];
	uint64_t bytes;

	while (flow->left) {
		if (flow->held || sim_waits(s, f))
			return false;
		bytes = dp_flow_next_message(f, flow->left);
		if (flow->outstanding >= f->depth || !has_room(s, c, (uint32_t)bytes))
			return false;
		if (flow->left == f->bytes)
			s->result[row].posted_ns = s->now;
		if (!post_message(s, c, row, (uint32_t)bytes))
			return false;
		flow->outstanding++;
		if (f->bytes != DP_FLOW_UNTIL_STOP)
			flow->left -= bytes;
		else
			flow->left = DP_FLOW_UNTIL_STOP - 1;
	}
	return true;
}

static void post(struct dp_sim *s, struct sim_channel *c)
{
	while (c->head != SIM_NONE && !s->broken) {
		if (!post_flow(s, c, c->head))
			return;
		c->head = s->flow[c->head].next;
	}
	c->tail = SIM_NONE;
}

/* ---- starts and stops --------------------------------------------------------------- */

static int open_channel(struct dp_sim *s, struct sim_channel *c)
{
	uint32_t depth = c->depth_max, n = 1;

	if (depth < SIM_SEND_QUEUE)
		depth = c->depth_sum < SIM_SEND_QUEUE ? c->depth_sum : SIM_SEND_QUEUE;
	while (n < depth && n < DP_WR_MAX)
		n *= 2;
	c->ring_mask = n - 1;
	c->ring = calloc(n, sizeof(*c->ring));
	if (s->cfg.trace_events)
		c->trace = calloc(s->cfg.trace_events, sizeof(*c->trace));
	if (!c->ring || (s->cfg.trace_events && !c->trace))
		return -ENOMEM;
	return sim_connect(s, c);
}

void sim_start_flow(struct dp_sim *s, uint32_t row)
{
	struct sim_channel *c = &s->channel[s->flow[row].channel];
	int err = c->requester ? 0 : open_channel(s, c);

	sim_note(s, row, 0);
	if (err) {
		sim_fail(s, err, "flow %u: connecting its QPs failed (errno %d)", row, -err);
		return;
	}
	if (c->failed) {
		fail_flow(s, row, DP_WC_WR_FLUSH_ERR);
		return;
	}
	if (c->head == SIM_NONE)
		c->head = row;
	else
		s->flow[c->tail].next = row;
	c->tail = row;
	s->flow[row].queued = true;
	if (c->head == row)
		post(s, c);
	sim_host_run(s, &s->host[c->src]);
}

/* Lets the flows of a channel go on. */
static void go_on(struct dp_sim *s, struct sim_channel *c)
{
	if (!c->requester || c->failed)
		return;
	post(s, c);
	sim_host_run(s, &s->host[c->src]);
}

/* Lets the flows go on whose wait is over. */
static void free_flows(struct dp_sim *s)
{
	uint32_t row;

	while ((row = sim_waiting_take(s)) != SIM_NONE && !s->broken)
		go_on(s, &s->channel[s->flow[row].channel]);
}

void sim_start_flows(struct dp_sim *s)
{
	uint64_t next;

	free_flows(s);
	while (s->started < s->n_flows && s->table[s->started].start_ns <= s->now && !s->broken) {
		uint32_t row = (uint32_t)s->started++;

		if (!sim_step_begins(s, row) && !s->flow[row].held && !s->flow[row].ended)
			sim_start_flow(s, row);
	}
	next = s->started < s->n_flows ? s->table[s->started].start_ns : DP_NEVER;
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_STARTS), s->freed != SIM_NONE ? s->now : next);
}

static void stop_flow(struct dp_sim *s, uint32_t row, uint64_t at_ns)
{
	struct sim_channel *c = &s->channel[s->flow[row].channel];

	end_flow(s, row, dp_flow_finish_at(&s->table[row], at_ns));
	if (c->head != SIM_NONE) /* the flows behind it may post now */
		go_on(s, c);
}

void sim_stop_flows(struct dp_sim *s)
{
	while (s->stopped < s->n_stops && s->table[s->stop[s->stopped]].stop_ns <= s->now) {
		uint32_t row = (uint32_t)s->stop[s->stopped++];

		stop_flow(s, row, s->table[row].stop_ns);
	}
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_STOPS),
		      s->stopped < s->n_stops ? s->table[s->stop[s->stopped]].stop_ns : DP_NEVER);
}

int dp_sim_order(struct dp_sim *s, uint64_t row, uint32_t what)
{
	struct sim_flow *f;
	bool was_held;

	if (row >= s->n_flows || s->flow_steps)
		return -EINVAL;
	f = &s->flow[row];
	sim_note(s, row, what);
	if (f->ended)
		return 0;
	switch (what) {
	case DP_FLOW_HOLD: /* a flow that has begun goes on */
		if (f->left == s->table[row].bytes)
			set_held(s, f, true);
		return 0;
	case DP_FLOW_BEGIN:
		was_held = f->held;
		set_held(s, f, false);
		if (was_held && f->queued)
			go_on(s, &s->channel[f->channel]);
		else if (was_held && row < s->started)
			sim_start_flow(s, (uint32_t)row);
		return 0;
	case DP_FLOW_END:
		stop_flow(s, (uint32_t)row, dp_flow_finish_now(s->now));
		return 0;
	default:
		return -EINVAL;
	}
}

/* ---- completions ---------------------------------------------------------------------- */

static void count_latency(struct dp_sim *s, uint64_t ns)
{
	s->latency[dp_latency_bucket(ns)]++;
	if (ns < s->latency_min)
		s->latency_min = ns;
	if (ns > s->latency_max)
		s->latency_max = ns;
	s->latency_sum += ns;
}

static void count_message(struct dp_sim *s, uint32_t row, const struct sim_message *m)
{
	struct dp_flow_result *r = &s->result[row];
	struct sim_flow *f = &s->flow[row];

	f->outstanding--;
	s->messages++;
	s->bytes += m->bytes;
	if (f->ended)
		return;
	r->messages++;
	r->delivered_bytes += m->bytes;
	count_latency(s, s->now - m->posted_ns);
	if (!f->left && !f->outstanding)
		end_flow(s, row, dp_flow_finish_now(s->now));
}

/* Checks that every byte of every message was placed exactly once. */
static void check_bytes(struct dp_sim *s, const struct sim_channel *c)
{
	struct dp_qp_stats a, b;

	dp_qp_stats(c->requester, &a);
	dp_qp_stats(c->responder, &b);
	if (a.rx_bytes + b.rx_bytes != c->placed_bytes)
		sim_fail(s, -EPROTO,
			 "QP %u from host %u to %u: %llu bytes were placed for messages of %llu",
			 c->qp, c->src, c->dst, (unsigned long long)(a.rx_bytes + b.rx_bytes),
			 (unsigned long long)c->placed_bytes);
}

static void channel_failed(struct dp_sim *s, struct sim_channel *c)
{
	c->failed = true;
	for (; c->head != SIM_NONE; c->head = s->flow[c->head].next)
		fail_flow(s, c->head, DP_WC_WR_FLUSH_ERR);
	c->tail = SIM_NONE;
}

static void sent(struct dp_sim *s, struct sim_channel *c, const struct dp_wc *wc)
{
	uint32_t number = (uint32_t)wc->wr_id;
	struct sim_message *m = &c->ring[number & c->ring_mask];
	uint32_t opcode = s->table[m->flow].opcode;

	if (number != c->completed || c->completed == c->posted) {
		sim_fail(s, -EPROTO,
			 "QP %u from host %u to %u: request %u completed where %u of %u was next",
			 c->qp, c->src, c->dst, number, c->completed, c->posted);
		return;
	}
	c->completed++;
	c->psns -= psns_of(s, m->bytes);
	if (wc->status != DP_WC_SUCCESS) {
		fail_flow(s, m->flow, wc->status);
		channel_failed(s, c);
		return;
	}
	if (opcode == DP_WR_SEND && !m->arrived) {
		sim_fail(s, -EPROTO, "QP %u from host %u to %u: SEND %u completed, its receive not",
			 c->qp, c->src, c->dst, number);
		return;
	}
	c->received += c->received == number; /* it consumed no receive, and leaves the ring */
	c->placed_bytes += m->bytes;
	count_message(s, m->flow, m);
	if (c->completed == c->posted)
		check_bytes(s, c);
	post(s, c);
}

/* Moves `received` on to the next message that consumes a receive; false: none was posted. */
static bool next_received(const struct dp_sim *s, struct sim_channel *c)
{
	for (; c->received != c->posted; c->received++)
		if (s->table[c->ring[c->received & c->ring_mask].flow].opcode == DP_WR_SEND)
			return true;
	return false;
}

int sim_post_receive(struct dp_sim *s, struct sim_channel *c)
{
	struct dp_sge sge = { (uintptr_t)s->memory, c->bytes_max, dp_mr_key(s->host[c->dst].mr) };
	struct dp_recv_wr wr = {
		.wr_id = RECEIVE | (uint64_t)(c - s->channel) << 32 | c->receives_posted,
		.num_sge = 1,
		.sge = &sge,
	};

	c->receives_posted++;
	return dp_qp_post_recv(c->responder, &wr);
}

static void received(struct dp_sim *s, struct sim_channel *c, const struct dp_wc *wc)
{
	struct sim_message *m;
	int err;

	if (wc->status != DP_WC_SUCCESS) {
		if (wc->status != DP_WC_WR_FLUSH_ERR)
			sim_fail(s, -EPROTO, "QP %u from host %u to %u: receive failed, status %u",
				 c->qp, c->src, c->dst, wc->status);
		return;
	}
	if ((uint32_t)wc->wr_id != c->receives_done || !next_received(s, c)) {
		sim_fail(s, -EPROTO, "QP %u from host %u to %u: receive %u completed, not %u",
			 c->qp, c->src, c->dst, (uint32_t)wc->wr_id, c->receives_done);
		return;
	}
	m = &c->ring[c->received++ & c->ring_mask];
	c->receives_done++;
	m->arrived = true;
	sim_step_arrived(s, m->flow);
	if (wc->byte_len != m->bytes)
		sim_fail(s, -EPROTO, "QP %u from host %u to %u: %u bytes received of %u sent",
			 c->qp, c->src, c->dst, wc->byte_len, m->bytes);
	err = sim_post_receive(s, c);
	if (err)
		sim_fail(s, err, "posting a receive failed (errno %d)", -err);
}

void sim_completed(struct dp_sim *s, const struct dp_wc *wc)
{
	uint32_t channel = (uint32_t)(wc->wr_id >> 32) & 0x7fffffff;
	struct sim_channel *c = &s->channel[channel];
	bool is_receive = wc->wr_id & RECEIVE;

	sim_note(s, wc->wr_id, wc->status);
	sim_trace(s, channel,
		  &(struct dp_sim_trace){ s->now, is_receive ? DP_SIM_RECEIVE : DP_SIM_COMPLETE,
					  is_receive ? c->dst : c->src, wc->opcode,
					  (uint32_t)wc->wr_id, wc->byte_len, wc->status });
	if (is_receive)
		received(s, c, wc);
	else
		sent(s, c, wc);
}
