// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The queue of a link with an AQM.  CoDel and PIE have one queue.  FQ-CoDel (RFC 8290) has a queue
 * for each hash value of a flow; the queues take turns by deficit round robin, new flows before old
 * ones.
 */
#include "link/impl.h"

#include <math.h>

enum {
	DROP_BATCH = 64, /* RFC 8290, section 4.1 */
};

/* Upper limit of all times and intervals: 18 minutes. */
#define TIME_MAX_NS (1ull << 40)

/* ---- configuration ------------------------------------------------------------- */

/* With a smaller product of alpha and target the probability would hardly ever return to 0. */
static bool valid_pie(const struct dp_aqm *a)
{
	return a->alpha >= 0.001 && a->target_ns >= 1000 && a->beta >= 0 && isfinite(a->alpha) &&
	       isfinite(a->beta) && a->max_burst_ns < TIME_MAX_NS && a->mark_max >= 0 &&
	       a->mark_max <= 1;
}

static bool valid_flows(const struct dp_aqm *a)
{
	return a->flows && a->flows <= DP_AQM_FLOWS_MAX && a->quantum_bytes >= DP_AQM_QUANTUM_MIN &&
	       a->quantum_bytes <= DP_AQM_QUANTUM_MAX;
}

static bool is_valid(const struct dp_link_config *c)
{
	const struct dp_aqm *a = &c->aqm;

	if (a->kind == DP_AQM_NONE)
		return true;
	if (a->kind > DP_AQM_PIE || c->n_classes > 1 || c->class[0].rate_bps || c->trim ||
	    c->marking.kind != DP_MARK_NONE)
		return false;
	if (!a->interval_ns || a->interval_ns >= TIME_MAX_NS || a->target_ns >= TIME_MAX_NS)
		return false;
	if (a->kind == DP_AQM_PIE)
		return valid_pie(a);
	return a->kind != DP_AQM_FQ_CODEL || valid_flows(a);
}

static uint32_t queues_of(const struct dp_aqm *a)
{
	return a->kind == DP_AQM_FQ_CODEL ? a->flows : 1;
}

bool dp_aqm_differs(const struct dp_link *l, const struct dp_aqm *config)
{
	if (!l->managed)
		return config->kind != DP_AQM_NONE;
	return config->kind != l->aqm->config.kind || queues_of(config) != l->aqm->n_queues;
}

static int renew(struct dp_link *l, const struct dp_aqm *config)
{
	struct dp_aqm_state *a = NULL;

	if (config->kind != DP_AQM_NONE) {
		a = calloc(1, sizeof(*a) + queues_of(config) * sizeof(a->queue[0]));
		if (!a)
			return -ENOMEM;
		a->n_queues = queues_of(config);
		dp_pie_begin(&a->pie, config);
	}
	free(l->aqm);
	l->aqm = a;
	l->managed = a;
	return 0;
}

int dp_aqm_configure(struct dp_link *l, const struct dp_link_config *config)
{
	int err;

	if (!is_valid(config))
		return -EINVAL;
	if (dp_aqm_differs(l, &config->aqm)) {
		err = renew(l, &config->aqm);
		if (err)
			return err;
	}
	if (l->managed)
		l->aqm->config = config->aqm;
	return 0;
}

/* ---- queues ---------------------------------------------------------------------- */

static void push(struct dp_link *l, struct dp_aqm_queue *q, struct dp_frame *f)
{
	f->next = NULL;
	if (q->head)
		q->tail->next = f;
	else
		q->head = f;
	q->tail = f;
	q->frames++;
	q->bytes += f->bytes;
	l->bytes += f->bytes;
	l->aqm->frames++;
}

struct dp_frame *dp_aqm_pop(struct dp_link *l, struct dp_aqm_queue *q)
{
	struct dp_frame *f = q->head;

	if (!f)
		return NULL;
	q->head = f->next;
	__builtin_prefetch(q->head);
	q->frames--;
	q->bytes -= f->bytes;
	l->bytes -= f->bytes;
	if (!--l->aqm->frames)
		l->ready = 0;
	return f;
}

void dp_aqm_drop(struct dp_link *l, struct dp_frame *f, enum dp_drop why, uint64_t now)
{
	f->at_ns = now;
	dp_link_drop(l, f, why);
}

struct dp_frame *dp_aqm_flush(struct dp_link *l)
{
	struct dp_aqm_state *a = l->aqm;
	uint32_t i = 0;

	if (!a->frames)
		return NULL;
	while (!a->queue[i].head)
		i++;
	return dp_aqm_pop(l, &a->queue[i]);
}

/* ---- FQ-CoDel -------------------------------------------------------------------- */

static void append(struct dp_aqm_list *list, struct dp_aqm_queue *q)
{
	q->next = NULL;
	if (list->head)
		list->tail->next = q;
	else
		list->head = q;
	list->tail = q;
}

static struct dp_aqm_queue *remove_first(struct dp_aqm_list *list)
{
	struct dp_aqm_queue *q = list->head;

	list->head = q->next;
	return q;
}

static struct dp_aqm_queue *queue_of(struct dp_link *l, const struct dp_frame *f)
{
	struct dp_aqm_state *a = l->aqm;

	if (a->n_queues == 1)
		return a->queue;
	return &a->queue[dp_ecmp(f->flow_hash, l->seed, a->n_queues)];
}

static void enlist(struct dp_aqm_state *a, struct dp_aqm_queue *q)
{
	if (q->listed)
		return;
	q->listed = true;
	q->credit = a->config.quantum_bytes;
	append(&a->fresh, q);
}

/* RFC 8290, section 4.2. */
static struct dp_frame *dequeue_fair(struct dp_link *l, uint64_t now)
{
	struct dp_aqm_state *a = l->aqm;
	struct dp_aqm_list *list;
	struct dp_aqm_queue *q;
	struct dp_frame *f;

	while ((list = a->fresh.head ? &a->fresh : &a->old)->head) {
		q = list->head;
		if (q->credit <= 0) {
			q->credit += a->config.quantum_bytes;
			append(&a->old, remove_first(list));
			continue;
		}
		f = dp_codel_dequeue(l, q, now);
		if (f) {
			q->credit -= f->bytes;
			return f;
		}
		/* A new queue that becomes empty joins the end of the list of old queues. */
		remove_first(list);
		if (list == &a->fresh)
			append(&a->old, q);
		else
			q->listed = false;
	}
	return NULL;
}

/* Called when the transmitter finds all queues empty. */
static void rest(struct dp_aqm_state *a)
{
	struct dp_aqm_queue *q;

	dp_codel_rest(&a->queue[0].codel);
	while (a->fresh.head || a->old.head) {
		q = remove_first(a->fresh.head ? &a->fresh : &a->old);
		q->listed = false;
		dp_codel_rest(&q->codel);
	}
}

static struct dp_aqm_queue *fattest(struct dp_aqm_state *a)
{
	struct dp_aqm_queue *most = a->queue;

	for (uint32_t i = 1; i < a->n_queues; i++)
		if (a->queue[i].bytes > most->bytes)
			most = &a->queue[i];
	return most;
}

/* Drops from the head of the queue with the most bytes: half of its packets, at most 64. */
void dp_aqm_confine(struct dp_link *l, uint64_t now)
{
	struct dp_aqm_state *a = l->aqm;
	struct dp_aqm_queue *q;
	uint32_t n;

	while (a->config.kind == DP_AQM_FQ_CODEL && l->bytes > l->limit_bytes) {
		q = fattest(a);
		n = (q->frames + 1) / 2;
		for (n = n < DROP_BATCH ? n : DROP_BATCH; n; n--)
			dp_aqm_drop(l, dp_aqm_pop(l, q), DP_DROP_QUEUE, now);
	}
}

/* ---- in and out -------------------------------------------------------------------- */

bool dp_aqm_enqueue(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	struct dp_aqm_state *a = l->aqm;
	bool waits = l->ready || dp_link_busy(l, now) || l->paused & 1;
	struct dp_aqm_queue *q = queue_of(l, f);

	if (!l->ready && !dp_link_busy(l, now))
		rest(a);
	if (f->bytes > a->frame_max)
		a->frame_max = f->bytes;
	if (waits && a->config.kind != DP_AQM_FQ_CODEL &&
	    !dp_link_within(l->bytes, f, l->limit_bytes)) {
		dp_aqm_drop(l, f, DP_DROP_QUEUE, now);
		return false;
	}
	if (a->config.kind == DP_AQM_PIE && dp_pie_drops(l, f, now)) {
		dp_aqm_drop(l, f, DP_DROP_AQM, now);
		return false;
	}
	f->at_ns = now;
	push(l, q, f);
	if (a->config.kind == DP_AQM_FQ_CODEL)
		enlist(a, q);
	return true;
}

struct dp_frame *dp_aqm_dequeue(struct dp_link *l, uint64_t now)
{
	struct dp_aqm_state *a = l->aqm;
	struct dp_frame *f;

	if (a->config.kind == DP_AQM_FQ_CODEL)
		return dequeue_fair(l, now);
	if (a->config.kind == DP_AQM_CODEL)
		return dp_codel_dequeue(l, a->queue, now);
	dp_pie_update_before(l, now);
	f = dp_aqm_pop(l, a->queue);
	dp_pie_sojourn(l, now - f->at_ns);
	return f;
}
