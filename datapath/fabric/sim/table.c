// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The traffic table, and the channels that it needs.  A channel is a QP of the source and its peer.
 */
#include "fabric/sim/internal.h"

static bool flow_valid(const struct dp_sim *s, const struct dp_flow *f, uint64_t row,
		       uint64_t since)
{
	uint64_t largest = f->message_bytes ? f->message_bytes : f->bytes;

	if (f->src >= s->n_hosts || f->dst >= s->n_hosts || f->src == f->dst || !f->bytes ||
	    !f->depth || largest > DP_FLOW_MESSAGE_MAX || f->start_ns < since || f->after > row ||
	    f->dscp >= 64)
		return false;
	if (f->bytes == DP_FLOW_UNTIL_STOP ? !f->stop_ns : false)
		return false;
	if (f->stop_ns && f->stop_ns <= f->start_ns)
		return false;
	return f->opcode == DP_WR_RDMA_WRITE || f->opcode == DP_WR_SEND ||
	       f->opcode == DP_WR_RDMA_READ;
}

static uint64_t channel_hash(const struct dp_flow *f)
{
	return dp_mix64(((uint64_t)f->src << 32 | f->dst) ^ dp_mix64(f->qp));
}

static uint32_t find_channel(struct dp_sim *s, uint32_t *slots, uint64_t mask,
			     const struct dp_flow *f)
{
	uint64_t i = channel_hash(f) & mask;
	struct sim_channel *c;

	for (; slots[i] != SIM_NONE; i = (i + 1) & mask) {
		c = &s->channel[slots[i]];
		if (c->src == f->src && c->dst == f->dst && c->qp == f->qp)
			return slots[i];
	}
	slots[i] = s->n_channels++;
	s->channel[slots[i]] = (struct sim_channel){ .src = f->src,
						     .dst = f->dst,
						     .qp = f->qp,
						     .dscp = (uint8_t)f->dscp,
						     .head = SIM_NONE,
						     .tail = SIM_NONE };
	return slots[i];
}

static void join_channel(struct dp_sim *s, uint32_t row, uint32_t channel)
{
	const struct dp_flow *f = &s->table[row];
	struct sim_channel *c = &s->channel[channel];
	uint64_t bytes = f->message_bytes ? f->message_bytes : f->bytes;

	s->flow[row] = (struct sim_flow){
		.left = f->bytes, .channel = channel, .next = SIM_NONE, .held = f->held
	};
	s->held += f->held;
	s->result[row].flow = row;
	if (f->depth > c->depth_max)
		c->depth_max = f->depth;
	c->depth_sum = c->depth_sum + f->depth < DP_WR_MAX ? c->depth_sum + f->depth : DP_WR_MAX;
	if (bytes > c->bytes_max)
		c->bytes_max = (uint32_t)bytes;
	c->receives |= f->opcode == DP_WR_SEND;
	c->reads |= f->opcode == DP_WR_RDMA_READ;
}

static int find_channels(struct dp_sim *s)
{
	uint64_t slots_n = 64, i;
	uint32_t *slots;

	while (slots_n < 2 * s->n_flows)
		slots_n *= 2;
	slots = malloc(slots_n * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	memset(slots, 0xff, slots_n * sizeof(*slots));
	for (i = 0; i < s->n_flows; i++)
		join_channel(s, (uint32_t)i, find_channel(s, slots, slots_n - 1, &s->table[i]));
	free(slots);
	return 0;
}

struct stop {
	uint64_t at_ns, row;
};

static int compare_stops(const void *a, const void *b)
{
	const struct stop *x = a, *y = b;

	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

static int sort_stops(struct dp_sim *s)
{
	struct stop *stops = malloc((s->n_flows + 1) * sizeof(*stops));
	uint64_t i;

	s->stop = malloc((s->n_flows + 1) * sizeof(*s->stop));
	if (!stops || !s->stop) {
		free(stops);
		return -ENOMEM;
	}
	for (i = 0; i < s->n_flows; i++)
		if (s->table[i].stop_ns)
			stops[s->n_stops++] = (struct stop){ s->table[i].stop_ns, i };
	qsort(stops, s->n_stops, sizeof(*stops), compare_stops);
	for (i = 0; i < s->n_stops; i++)
		s->stop[i] = stops[i].row;
	free(stops);
	return 0;
}

int dp_sim_flows(struct dp_sim *s, const struct dp_flow *table, uint64_t n)
{
	uint64_t i;
	int err;

	if (s->n_flows || !n || n >= SIM_NONE)
		return -EINVAL;
	for (i = 0; i < n; i++)
		if (!flow_valid(s, &table[i], i, i ? table[i - 1].start_ns : 0))
			return -EINVAL;
	s->flow = malloc(n * sizeof(*s->flow));
	s->result = calloc(n, sizeof(*s->result));
	s->channel = malloc(n * sizeof(*s->channel));
	if (!s->flow || !s->result || !s->channel)
		return -ENOMEM;
	s->table = table;
	s->n_flows = n;
	err = find_channels(s);
	if (!err)
		err = sort_stops(s);
	if (!err)
		err = sim_waiting_open(s);
	if (err)
		return err;
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_STARTS), table[0].start_ns);
	if (s->n_stops)
		sim_queue_set(&s->queue, sim_clock_id(s, SIM_STOPS), table[s->stop[0]].stop_ns);
	return 0;
}

void sim_traffic_free(struct dp_sim *s)
{
	struct sim_channel *c;

	for (c = s->channel; c < s->channel + s->n_channels; c++) {
		if (c->requester)
			dp_qp_destroy(c->requester);
		if (c->responder)
			dp_qp_destroy(c->responder);
		free(c->ring);
		free(c->trace);
	}
	free(s->channel);
	free(s->waiting);
	free(s->stop);
	free(s->result);
	free(s->flow);
}
