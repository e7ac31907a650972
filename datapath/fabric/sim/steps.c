// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Steps: work of hosts that begins when other steps are done, such as that of a collective.
 *
 * A step sends a flow, takes a flow that has arrived, or does neither.  Steps become ready while
 * completions are handled, and run behind the turn of the event loop that made them ready.  A
 * host has one worker, which does the work of its steps in the order in which they became ready.
 */
#include "fabric/sim/internal.h"

static bool step_valid(const struct dp_sim *s, const struct dp_sim_step *step, uint64_t n)
{
	if (step->host >= s->n_hosts || step->kind > DP_SIM_STEP_TAKE || step->waits > n + 2)
		return false;
	if (step->next != DP_SIM_NONE && step->next >= n)
		return false;
	if (step->kind == DP_SIM_STEP_WORK)
		return true;
	return step->flow < s->n_flows && !s->table[step->flow].message_bytes &&
	       !s->table[step->flow].stop_ns &&
	       (step->kind == DP_SIM_STEP_SEND || s->table[step->flow].opcode == DP_WR_SEND);
}

/* The flows know their steps. */
static int tie_flows(struct dp_sim *s, const struct dp_sim_step *step, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct sim_flow_steps *f;

		if (!step_valid(s, &step[i], n))
			return -EINVAL;
		if (step[i].kind == DP_SIM_STEP_WORK)
			continue;
		f = &s->flow_steps[step[i].flow];
		if ((step[i].kind == DP_SIM_STEP_SEND ? f->send : f->take) != SIM_NONE)
			return -EINVAL;
		if (step[i].kind == DP_SIM_STEP_SEND)
			f->send = i;
		else
			f->take = i;
	}
	return 0;
}

static int valid_edges(const uint32_t *after, const uint64_t *first, uint32_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++)
		if (first[i] > first[i + 1])
			return -EINVAL;
	for (i = first[0]; i < first[n]; i++)
		if (after[i] >= n)
			return -EINVAL;
	return 0;
}

int dp_sim_steps(struct dp_sim *s, const struct dp_sim_step *step, uint32_t n,
		 const uint32_t *after, const uint64_t *first)
{
	uint32_t i;
	int err;

	if (!s->cfg.workers || !s->n_flows || s->n_steps || !n || n >= SIM_NONE)
		return -EINVAL;
	s->flow_steps = malloc(s->n_flows * sizeof(*s->flow_steps));
	s->step = malloc(n * sizeof(*s->step));
	s->step_done = calloc(n, sizeof(*s->step_done));
	s->worker = calloc(s->n_hosts, sizeof(*s->worker));
	if (!s->flow_steps || !s->step || !s->step_done || !s->worker)
		return -ENOMEM;
	memset(s->flow_steps, 0xff, s->n_flows * sizeof(*s->flow_steps));
	err = valid_edges(after, first, n);
	if (!err)
		err = tie_flows(s, step, n);
	if (err)
		return err;
	s->steps = step;
	s->after = after;
	s->first_after = first;
	s->n_steps = n;
	s->ready_head = s->ready_tail = SIM_NONE;
	for (i = 0; i < s->n_hosts; i++)
		s->worker[i] = (struct sim_worker){ SIM_NONE, SIM_NONE, 0 };
	for (i = 0; i < n; i++)
		s->step[i] = (struct sim_step){ step[i].waits, SIM_NONE };
	for (i = 0; i < n; i++)
		if (!step[i].waits)
			sim_step_free(s, i);
	return 0;
}

const uint64_t *dp_sim_step_times(const struct dp_sim *s)
{
	return s->step_done;
}

void sim_steps_free(struct dp_sim *s)
{
	free(s->flow_steps);
	free(s->step);
	free(s->step_done);
	free(s->worker);
}

/* Puts a step behind the others of a list. */
static void append(struct dp_sim *s, uint32_t *head, uint32_t *tail, uint32_t step)
{
	if (*head == SIM_NONE)
		*head = step;
	else
		s->step[*tail].next = step;
	*tail = step;
	s->step[step].next = SIM_NONE;
}

void sim_step_free(struct dp_sim *s, uint32_t step)
{
	append(s, &s->ready_head, &s->ready_tail, step);
}

static void less(struct dp_sim *s, uint32_t step)
{
	if (!--s->step[step].waits)
		sim_step_free(s, step);
}

static void done(struct dp_sim *s, uint32_t step)
{
	uint64_t i;

	s->step_done[step] = s->now;
	s->steps_ended++;
	sim_note(s, step, s->steps_ended);
	for (i = s->first_after[step]; i < s->first_after[step + 1]; i++)
		less(s, s->after[i]);
}

static void worker_begin(struct dp_sim *s, uint32_t host)
{
	struct sim_worker *w = &s->worker[host];

	w->until_ns = s->now + s->steps[w->head].work_ns;
	sim_queue_set(&s->queue, sim_worker_id(s, host), w->until_ns);
}

static void work(struct dp_sim *s, uint32_t step)
{
	struct sim_worker *w = &s->worker[s->steps[step].host];
	bool idle = w->head == SIM_NONE;

	if (idle && !s->steps[step].work_ns) {
		done(s, step);
		return;
	}
	append(s, &w->head, &w->tail, step);
	if (idle)
		worker_begin(s, s->steps[step].host);
}

void sim_worker_act(struct dp_sim *s, uint32_t host)
{
	struct sim_worker *w = &s->worker[host];
	uint32_t step = w->head;

	w->head = s->step[step].next;
	sim_queue_set(&s->queue, sim_worker_id(s, host), DP_NEVER);
	done(s, step);
	if (w->head != SIM_NONE)
		worker_begin(s, host);
}

void sim_run_steps(struct dp_sim *s)
{
	while (s->ready_head != SIM_NONE && !s->broken) {
		uint32_t step = s->ready_head;
		const struct dp_sim_step *what = &s->steps[step];

		s->ready_head = s->step[step].next;
		if (what->kind != DP_SIM_STEP_SEND) {
			work(s, step);
			continue;
		}
		sim_start_flow(s, what->flow);
		if (what->next != DP_SIM_NONE)
			less(s, what->next);
	}
}

bool sim_step_begins(const struct dp_sim *s, uint64_t flow)
{
	return s->steps && s->flow_steps[flow].send != SIM_NONE;
}

void sim_step_sent(struct dp_sim *s, uint32_t flow, bool failed)
{
	uint32_t step = s->steps ? s->flow_steps[flow].send : SIM_NONE;

	if (step == SIM_NONE)
		return;
	if (failed)
		sim_fail(s, -ECONNABORTED,
			 "flow %u from host %u to %u failed, and steps wait for it", flow,
			 s->table[flow].src, s->table[flow].dst);
	else
		done(s, step);
}

void sim_step_arrived(struct dp_sim *s, uint32_t flow)
{
	uint32_t step = s->steps ? s->flow_steps[flow].take : SIM_NONE;

	if (step != SIM_NONE)
		less(s, step);
}
