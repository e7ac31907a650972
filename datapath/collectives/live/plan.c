// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Plans: what C relies on, and the steps of this rank. */
#include <sys/mman.h>

#include "collectives/live/coll.h"

const struct dp_plan_step *coll_plan_steps(const struct dp_plan_head *head)
{
	return (const struct dp_plan_step *)(head + 1);
}

static const struct dp_plan_wait *waits_of(const struct dp_plan_head *head)
{
	return (const struct dp_plan_wait *)(coll_plan_steps(head) + head->steps);
}

static bool within(uint64_t offset, uint64_t bytes, uint64_t size)
{
	return offset <= size && bytes <= size - offset;
}

/* Checks a row by itself; the Python side has proved more. */
static bool step_valid(const struct dp_plan_head *h, const struct dp_plan_step *s)
{
	const uint64_t size[DP_PLAN_BUFFERS] = { h->data_bytes, h->input_bytes, h->scratch_bytes };
	bool local = s->op >= DP_PLAN_COPY_LOCAL;

	if (s->rank >= h->ranks || s->peer >= h->ranks || s->channel >= h->channels ||
	    s->op > DP_PLAN_REDUCE_LOCAL || s->buffer >= DP_PLAN_BUFFERS ||
	    s->from_buffer >= DP_PLAN_BUFFERS || local != (s->peer == s->rank) || !s->bytes)
		return false;
	if (!local && (s->match >= h->steps || s->bytes > h->slot_bytes))
		return false;
	return within(s->offset, s->bytes, size[s->buffer]) &&
	       (!local || within(s->from_offset, s->bytes, size[s->from_buffer]));
}

static bool head_valid(const struct dp_plan_head *h, size_t bytes)
{
	uint64_t room = bytes - sizeof(*h);

	if (memcmp(h->magic, DP_PLAN_MAGIC, sizeof(DP_PLAN_MAGIC)) || h->abi != DP_PLAN_ABI ||
	    h->step_bytes != sizeof(struct dp_plan_step) || h->steps >= DP_PLAN_NONE)
		return false;
	if (h->steps > room / sizeof(struct dp_plan_step))
		return false;
	room -= h->steps * sizeof(struct dp_plan_step);
	return h->waits <= room / sizeof(struct dp_plan_wait) &&
	       h->waits * sizeof(struct dp_plan_wait) == room && h->item_bytes &&
	       h->collective < DP_PLAN_COLLECTIVES;
}

const struct dp_plan_head *coll_plan_head(struct dpcoll *comm, const void *plan, size_t bytes)
{
	const struct dp_plan_head *h = plan;
	const struct dp_plan_step *step;
	const struct dp_plan_wait *wait;

	if (bytes < sizeof(*h) || !head_valid(h, bytes)) {
		coll_refuse(comm, EINVAL, "this is no plan of version %d", DP_PLAN_ABI);
		return NULL;
	}
	if (h->ranks != comm->cfg.ranks) {
		coll_refuse(comm, EINVAL, "the plan is for %u ranks, and there are %u", h->ranks,
			    comm->cfg.ranks);
		return NULL;
	}
	step = coll_plan_steps(h);
	wait = waits_of(h);
	for (uint64_t i = 0; i < h->steps; i++)
		if (!step_valid(h, &step[i]) || (i && step[i].rank < step[i - 1].rank)) {
			coll_refuse(comm, EINVAL, "row %llu of the plan makes no sense",
				    (unsigned long long)i);
			return NULL;
		}
	for (uint64_t i = 0; i < h->waits; i++)
		if (wait[i].step >= h->steps || wait[i].on >= h->steps ||
		    step[wait[i].step].rank != step[wait[i].on].rank) {
			coll_refuse(comm, EINVAL, "wait %llu of the plan makes no sense",
				    (unsigned long long)i);
			return NULL;
		}
	return h;
}

/* Finds this rank's rows: the first, and their number. */
static uint32_t own_rows(const struct dpcoll *comm, const struct dp_plan_head *h, uint32_t *first)
{
	const struct dp_plan_step *step = coll_plan_steps(h);
	uint32_t n = 0;

	*first = 0;
	for (uint32_t i = 0; i < h->steps; i++) {
		if (step[i].rank < comm->cfg.rank)
			*first = i + 1;
		n += step[i].rank == comm->cfg.rank;
	}
	return n;
}

static int take_steps(struct dpcoll *comm, struct dpcoll_plan *p, const struct dp_plan_step *step,
		      uint32_t first)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct coll_step *s = &p->step[i];
		struct coll_conn *conn = NULL;

		s->row = step[first + i];
		s->conn = DP_PLAN_NONE;
		if (s->row.op >= DP_PLAN_COPY_LOCAL)
			continue;
		s->sender_step = step[s->row.match].step;
		conn = coll_conn_of(comm, s->row.peer, s->row.channel);
		if (!conn)
			return coll_refuse(comm, EINVAL,
					   "the plan needs rank %u on channel %u, which no plan "
					   "named when the communicator was opened",
					   s->row.peer, s->row.channel);
		s->conn = (uint32_t)(conn - comm->conn);
		if (s->row.op == DP_PLAN_SEND)
			p->lane[s->conn].sends++;
		else
			p->lane[s->conn].takes++;
	}
	return 0;
}

static int fill_lanes(struct dpcoll *comm, struct dpcoll_plan *p)
{
	for (uint32_t c = 0; c < comm->n_conns; c++) {
		struct coll_lane *lane = &p->lane[c];

		lane->send = malloc((lane->sends + 1) * sizeof(*lane->send));
		lane->take = malloc((lane->takes + 1) * sizeof(*lane->take));
		if (!lane->send || !lane->take)
			return coll_refuse(comm, ENOMEM, "no memory for a plan");
		lane->sends = lane->takes = 0;
	}
	for (uint32_t i = 0; i < p->n; i++) {
		struct coll_lane *lane;

		if (p->step[i].conn == DP_PLAN_NONE)
			continue;
		lane = &p->lane[p->step[i].conn];
		if (p->step[i].row.op == DP_PLAN_SEND)
			lane->send[lane->sends++] = i;
		else
			lane->take[lane->takes++] = i;
	}
	return 0;
}

/* Lists for each step the steps that wait for it. */
static void fill_waits(struct dpcoll_plan *p, const struct dp_plan_head *h, uint32_t first)
{
	const struct dp_plan_wait *wait = waits_of(h);
	uint32_t sum = 0;

	for (uint64_t i = 0; i < h->waits; i++)
		if (wait[i].step - first < p->n) {
			p->step[wait[i].step - first].waits++;
			p->step[wait[i].on - first].first_after++;
		}
	for (uint32_t i = 0; i <= p->n; i++) {
		sum += p->step[i].first_after;
		p->step[i].first_after = sum;
	}
	for (uint64_t i = 0; i < h->waits; i++)
		if (wait[i].step - first < p->n)
			p->after[--p->step[wait[i].on - first].first_after] = wait[i].step - first;
}

static int own_waits(const struct dp_plan_head *h, uint32_t first, uint32_t n)
{
	const struct dp_plan_wait *wait = waits_of(h);
	int count = 0;

	for (uint64_t i = 0; i < h->waits; i++)
		count += wait[i].step - first < n;
	return count;
}

static int make_scratch(struct dpcoll *comm, struct dpcoll_plan *p)
{
	size_t bytes = p->head.scratch_bytes;
	int err;

	if (!bytes)
		return 0;
	p->scratch = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->scratch == MAP_FAILED) {
		p->scratch = NULL;
		return coll_refuse(comm, ENOMEM, "no memory for %zu bytes of scratch", bytes);
	}
	err = coll_register(comm, p->scratch, bytes, p->scratch_mr);
	return err ? coll_refuse(comm, -err, "registering scratch: %s", strerror(-err)) : 0;
}

int coll_plan_make(struct dpcoll *comm, const struct dp_plan_head *h, struct dpcoll_plan **out)
{
	struct dpcoll_plan *p = calloc(1, sizeof(*p));
	uint32_t first;
	int err;

	if (!p)
		return coll_refuse(comm, ENOMEM, "no memory for a plan");
	p->head = *h;
	p->n = own_rows(comm, h, &first);
	p->step = calloc(p->n + 1, sizeof(*p->step));
	p->after = malloc((size_t)(own_waits(h, first, p->n) + 1) * sizeof(*p->after));
	p->lane = calloc(comm->n_conns + 1, sizeof(*p->lane));
	p->lanes = comm->n_conns;
	err = p->step && p->after && p->lane ? 0 :
					       coll_refuse(comm, ENOMEM, "no memory for a plan");
	if (!err && h->slot_bytes > comm->slot_bytes)
		err = coll_refuse(comm, EINVAL,
				  "the plan has transfers of %u bytes, and the "
				  "communicator was opened for %u",
				  h->slot_bytes, comm->slot_bytes);
	if (!err)
		err = take_steps(comm, p, coll_plan_steps(h), first);
	if (!err)
		err = fill_lanes(comm, p);
	if (!err) {
		fill_waits(p, h, first);
		err = make_scratch(comm, p);
	}
	if (err) {
		coll_plan_free(p);
		return err;
	}
	*out = p;
	return 0;
}

void coll_plan_free(struct dpcoll_plan *p)
{
	for (uint32_t c = 0; p->lane && c < p->lanes; c++) {
		free(p->lane[c].send);
		free(p->lane[c].take);
	}
	coll_deregister(p->scratch_mr);
	if (p->scratch)
		munmap(p->scratch, p->head.scratch_bytes);
	free(p->lane);
	free(p->after);
	free(p->step);
	free(p);
}
