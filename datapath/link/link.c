// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "link/impl.h"

/* ---- the transmitter and the wire ------------------------------------------ */

static void stamp(struct dp_link *l, struct dp_frame *f)
{
	struct dp_telemetry *hop;

	if (!f->hop || f->n_hops >= DP_HOPS_MAX)
		return;
	hop = &f->hop[f->n_hops++];
	hop->queue_bytes = l->bytes;
	hop->tx_bytes = l->tx_bytes;
	hop->ts_ns = dp_link_idle_ns(l);
	hop->rate_mbps = l->rate_mbps;
}

/* Transmits the frame, which is in no queue, from `busy` on. */
static void transmit(struct dp_link *l, struct dp_frame *f)
{
	uint64_t at;

	if (l->telemetry)
		stamp(l, f);
	l->tx_bytes += f->bytes;
	if (l->traced)
		dp_link_trace_transmit(l, f->bytes);
	else
		dp_link_serialize(l, f->bytes);
	at = dp_link_idle_ns(l) + l->delay_ns;
	f->next = NULL;
	if (l->spoils) {
		dp_link_spoil(l, f, at);
		return;
	}
	if (at < l->wire_last_ns)
		at = l->wire_last_ns;
	l->wire_last_ns = at;
	f->at_ns = at;
	f->order = l->order++;
	*l->wire_tail = f;
	l->wire_tail = &f->next;
}

static struct dp_frame *dequeue(struct dp_link *l, unsigned class)
{
	struct dp_link_queue *q = &l->queue[class];
	struct dp_frame *f = q->head;

	q->head = f->next;
	__builtin_prefetch(q->head); /* the next frame to be sent */
	if (!q->head) {
		q->tail = &q->head;
		l->ready &= ~(1u << class);
	}
	q->bytes -= f->bytes;
	l->bytes -= f->bytes;
	if (f->flags & DP_FRAME_TRIMMED) {
		q->trimmed -= f->bytes;
		l->trimmed -= f->bytes;
	}
	if (q->tag_per_byte)
		dp_link_count(l, q, f->bytes);
	if (l->buffer)
		dp_buffer_give(l->buffer, f, dp_link_idle_ns(l));
	if (l->shaped >> class & 1)
		dp_link_shape_close(l, class, f);
	return f;
}

static __attribute__((noinline)) void advance_managed(struct dp_link *l, uint64_t now)
{
	struct dp_frame *f;

	while (dp_link_eligible(l) && !dp_link_busy(l, now)) {
		f = dp_aqm_dequeue(l, dp_link_idle_ns(l));
		if (f)
			transmit(l, f);
	}
}

/* One transmission at a time, since it may close a class; and closed classes open between two
 * transmissions, each at its time. */
static __attribute__((noinline)) void advance_shaped(struct dp_link *l, uint64_t now)
{
	uint64_t opens, until;
	uint32_t mask;

	for (;;) {
		opens = dp_link_shape_next(l);
		until = opens < now ? opens : now;
		mask = dp_link_eligible(l);
		if (mask && !dp_link_busy(l, until))
			transmit(l, dequeue(l, dp_link_next_class(l, mask)));
		else if (opens <= now)
			dp_link_shape_open(l, opens);
		else
			return;
	}
}

void dp_link_advance(struct dp_link *l, uint64_t now)
{
	uint32_t mask;

	if (l->shaped) {
		advance_shaped(l, now);
		return;
	}
	while ((mask = dp_link_eligible(l)) && !dp_link_busy(l, now)) {
		if (l->managed) {
			advance_managed(l, now);
			return;
		}
		transmit(l, dequeue(l, dp_link_next_class(l, mask)));
	}
}

/* ---- in and out --------------------------------------------------------------- */

void dp_link_drop(struct dp_link *l, struct dp_frame *f, enum dp_drop why)
{
	switch (why) {
	case DP_DROP_LOSS:
		l->stats.lost++;
		break;
	case DP_DROP_POLICER:
		l->stats.policed++;
		break;
	case DP_DROP_AQM:
		l->stats.aqm_dropped++;
		break;
	case DP_DROP_SHAPED:
		l->stats.shaped++;
		break;
	case DP_DROP_QUEUE:
	case DP_DROP_BUFFER:
		l->stats.overflowed++;
		break;
	default:
		break;
	}
	l->ops.drop(l->user, f, why);
}

static void enqueue(struct dp_link *l, struct dp_frame *f)
{
	struct dp_link_queue *q = &l->queue[f->class];

	if (!q->head) {
		if (l->shaped >> f->class & 1)
			l->closed |= (uint8_t)(1u << f->class);
		else
			l->ready |= 1u << f->class;
		if (q->tag_per_byte)
			dp_link_tag(l, q);
	}
	f->next = NULL;
	*q->tail = f;
	q->tail = &f->next;
	q->bytes += f->bytes;
	l->bytes += f->bytes;
	if (f->flags & DP_FRAME_TRIMMED) {
		q->trimmed += f->bytes;
		l->trimmed += f->bytes;
	}
	if (l->bytes > l->stats.queue_max_bytes)
		l->stats.queue_max_bytes = l->bytes;
}

/* Transmits a frame now; no other frame waits before it. */
static void pass(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	struct dp_link_queue *q = &l->queue[f->class];

	dp_link_not_before(l, now);
	if (q->tag_per_byte) {
		dp_link_tag(l, q);
		dp_link_count(l, q, f->bytes);
	}
	transmit(l, f);
}

/* With an AQM every frame goes through the queue, even if it does not have to wait. */
static void offer_managed(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	f->class = 0;
	dp_link_advance(l, now);
	if (!dp_aqm_enqueue(l, f, now))
		return;
	if (!dp_link_eligible(l))
		dp_link_not_before(l, now);
	l->ready = 1;
	dp_link_advance(l, now);
	dp_aqm_confine(l, now);
	if (l->bytes > l->stats.queue_max_bytes)
		l->stats.queue_max_bytes = l->bytes;
}

/* Whether a frame on a guarded link still has to go through an ordinary queue.  A function of its
 * own, so that the path of plain links stays short. */
static __attribute__((noinline)) bool passes_guard(struct dp_link *l, struct dp_frame *f,
						   uint64_t now)
{
	if (dp_link_loses(l, f, now)) {
		dp_link_drop(l, f, DP_DROP_LOSS);
		return false;
	}
	if (!dp_link_conforms(l, f, now)) {
		dp_link_drop(l, f, DP_DROP_POLICER);
		return false;
	}
	if (l->managed)
		offer_managed(l, f, now);
	return !l->managed;
}

void dp_link_offer(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	l->stats.offered++;
	l->stats.offered_bytes += f->bytes;
	if (l->guarded && !passes_guard(l, f, now))
		return;
	if (f->class >= l->n_classes)
		f->class = (uint8_t)(l->n_classes - 1);
	dp_link_advance(l, now);
	if (!dp_link_eligible(l) && !dp_link_busy(l, now) &&
	    !((l->paused | l->shaped) >> f->class & 1)) {
		pass(l, f, now);
		return;
	}
	if (!dp_link_admit(l, f, now))
		return;
	if (!dp_link_eligible(l))
		dp_link_not_before(l, now);
	enqueue(l, f);
	/* Trimming may have moved the frame to a class that is not paused. */
	dp_link_advance(l, now);
}

static bool held_first(const struct dp_link *l)
{
	const struct dp_frame *held = l->held, *first = l->wire;

	if (!held || !first)
		return held;
	if (held->at_ns != first->at_ns)
		return held->at_ns < first->at_ns;
	return (int32_t)(held->order - first->order) < 0;
}

static struct dp_frame *next_arrival(const struct dp_link *l)
{
	return held_first(l) ? l->held : l->wire;
}

void dp_link_prefetch(const struct dp_link *l)
{
	__builtin_prefetch(l);
	__builtin_prefetch(&l->wire_last_ns);
	__builtin_prefetch(l->queue);
	__builtin_prefetch(l->wire);
}

static struct dp_frame *pop_arrival(struct dp_link *l)
{
	struct dp_frame *f = l->wire;

	if (l->held && held_first(l))
		return dp_link_held_pop(l);
	l->wire = f->next;
	__builtin_prefetch(l->wire);
	if (!l->wire)
		l->wire_tail = &l->wire;
	return f;
}

const struct dp_frame *dp_link_coming(struct dp_link *l, uint64_t now)
{
	dp_link_advance(l, now);
	return next_arrival(l);
}

struct dp_frame *dp_link_take(struct dp_link *l, uint64_t now)
{
	const struct dp_frame *f = dp_link_coming(l, now);

	return f && f->at_ns <= now ? dp_link_take_coming(l) : NULL;
}

struct dp_frame *dp_link_take_coming(struct dp_link *l)
{
	struct dp_frame *f = pop_arrival(l);

	l->stats.delivered++;
	l->stats.delivered_bytes += f->bytes;
	return f;
}

/* When the next frame of the queue arrives, if no other frame comes before.  With an AQM: the
 * earliest such time. */
static uint64_t next_queued(const struct dp_link *l, uint32_t mask)
{
	const struct dp_frame *f;
	dp_u128 t;

	if (l->managed)
		return dp_link_idle_ns(l) + l->delay_ns;
	f = l->queue[dp_link_next_class(l, mask)].head;
	t = (dp_u128)l->byte_frac * f->bytes + l->busy_frac;
	return l->busy_ns + l->byte_ns * f->bytes + (uint64_t)(t >> 64) + ((uint64_t)t != 0) +
	       l->delay_ns;
}

uint64_t dp_link_deadline(const struct dp_link *l)
{
	const struct dp_frame *f = next_arrival(l);
	uint32_t mask = dp_link_eligible(l);
	uint64_t at = f ? f->at_ns : DP_NEVER;
	uint64_t turn;

	if (l->wire && !l->eager)
		return at;
	if (l->closed) {
		turn = dp_link_shape_next(l);
		at = turn < at ? turn : at;
	}
	if (!mask)
		return at;
	turn = l->eager ? dp_link_idle_ns(l) : next_queued(l, mask);
	return turn < at ? turn : at;
}

/* ---- pause --------------------------------------------------------------------- */

static void resume(struct dp_link *l, unsigned class, uint64_t now)
{
	struct dp_link_queue *q = &l->queue[class];

	l->stats.paused_ns += now - q->paused_since_ns;
	if (q->tag_per_byte)
		dp_link_tag(l, q);
}

void dp_link_pause(struct dp_link *l, uint32_t mask, bool paused, uint64_t now)
{
	dp_link_advance(l, now);
	mask &= (1u << l->n_classes) - 1;
	for (unsigned c = 0; c < l->n_classes; c++) {
		if (!(mask >> c & 1) || (l->paused >> c & 1) == paused)
			continue;
		if (paused)
			l->queue[c].paused_since_ns = now;
		else
			resume(l, c, now);
	}
	if (!dp_link_eligible(l))
		dp_link_not_before(l, now);
	if (paused)
		l->paused |= mask;
	else
		l->paused &= ~mask;
	dp_link_advance(l, now);
}

/* ---- life ---------------------------------------------------------------------- */

static int configure(struct dp_link *l, const struct dp_link_config *config)
{
	int err = dp_aqm_configure(l, config);

	if (err)
		return err;
	l->guarded = l->managed;
	err = dp_link_queue_configure(l, config);
	if (!err)
		err = dp_link_rate_configure(l, config);
	if (!err)
		err = dp_link_police_configure(l, &config->policer);
	if (!err)
		err = dp_link_spoil_configure(l, config);
	if (err)
		return err;
	l->delay_ns = config->delay_ns;
	l->telemetry = config->telemetry;
	l->trims = config->trim;
	l->eager = l->traced || l->jitter.kind != DP_JITTER_NONE ||
		   (l->buffer && dp_buffer_has_pfc(l->buffer));
	return 0;
}

int dp_link_create(const struct dp_link_config *config, const struct dp_link_ops *ops, void *user,
		   struct dp_link **out)
{
	struct dp_link *l = aligned_alloc(DP_LINK_ALIGN, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	memset(l, 0, sizeof(*l));
	l->wire_tail = &l->wire;
	for (unsigned c = 0; c < DP_LINK_CLASSES; c++)
		l->queue[c].tail = &l->queue[c].head;
	l->ops = *ops;
	l->user = user;
	dp_link_seed(l, config->seed);
	err = configure(l, config);
	if (err) {
		free(l->aqm);
		free(l);
		return err;
	}
	*out = l;
	return 0;
}

int dp_link_configure(struct dp_link *l, const struct dp_link_config *config, uint64_t now)
{
	struct dp_link *trial;
	int err;

	/* Tried on a temporary link first, so that an error changes nothing. */
	err = dp_link_create(config, &l->ops, NULL, &trial);
	if (err)
		return err;
	dp_link_destroy(trial);
	if (l->buffer && config->aqm.kind != DP_AQM_NONE)
		return -EINVAL;
	dp_link_advance(l, now);
	if ((l->ready | l->closed) &&
	    (l->n_classes != (config->n_classes ? config->n_classes : 1) ||
	     dp_aqm_differs(l, &config->aqm)))
		return -EBUSY;
	dp_link_refill(l, now);
	if (config->seed != l->seed)
		dp_link_seed(l, config->seed);
	if (!dp_link_eligible(l)) /* a class that opens now sends from now on */
		dp_link_not_before(l, now);
	err = configure(l, config);
	dp_link_advance(l, now);
	return err;
}

void dp_link_destroy(struct dp_link *l)
{
	struct dp_frame *f;

	while (l->managed && (f = dp_aqm_flush(l)))
		dp_link_drop(l, f, DP_DROP_SHUTDOWN);
	for (unsigned c = 0; c < l->n_classes; c++)
		while (l->queue[c].head)
			dp_link_drop(l, dequeue(l, c), DP_DROP_SHUTDOWN);
	while (next_arrival(l)) {
		f = pop_arrival(l);
		dp_link_drop(l, f, DP_DROP_SHUTDOWN);
	}
	if (l->buffer)
		dp_buffer_leave(l->buffer, l);
	free(l->aqm);
	free(l);
}

int dp_link_share(struct dp_link *l, struct dp_buffer *buffer, uint32_t port)
{
	int err = l->managed ? -EINVAL : dp_buffer_join(buffer, l);

	if (err)
		return err;
	l->buffer = buffer;
	l->port = port;
	l->eager |= dp_buffer_has_pfc(buffer);
	return 0;
}

uint64_t dp_link_queue_bytes(const struct dp_link *l)
{
	return l->bytes;
}

uint64_t dp_link_turn_ns(const struct dp_link *l)
{
	if (!l->ready)
		return 0;
	return dp_link_eligible(l) ? dp_link_idle_ns(l) : DP_NEVER;
}

void dp_link_stats(const struct dp_link *l, uint64_t now, struct dp_link_stats *out)
{
	*out = l->stats;
	for (unsigned c = 0; c < l->n_classes; c++)
		if (l->paused >> c & 1)
			out->paused_ns += now - l->queue[c].paused_since_ns;
}
