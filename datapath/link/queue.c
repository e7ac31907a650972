// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Weighted classes share by start-time fair queueing (Goyal, Vin and Cheng,
 * SIGCOMM 1996): the class whose next frame has the lowest tag is served, and a
 * frame's tag is that of its predecessor plus its length over the weight.
 */
#include "link/impl.h"

#define TAG_UNIT (1ull << 24)
#define FAR (1ull << 61)

static uint64_t limit_or_none(uint64_t bytes)
{
	return bytes ? bytes : UINT64_MAX;
}

static int check_marking(const struct dp_marking *m)
{
	if (m->kind > DP_MARK_RED)
		return -EINVAL;
	if (m->kind != DP_MARK_RED)
		return 0;
	return m->kmin_bytes <= m->kmax_bytes && m->pmax >= 0 && m->pmax <= 1 ? 0 : -EINVAL;
}

static int check_classes(const struct dp_link_config *config)
{
	if (config->n_classes > DP_LINK_CLASSES)
		return -EINVAL;
	for (uint32_t c = 0; c < config->n_classes; c++)
		if (config->class[c].weight > DP_LINK_WEIGHT_MAX ||
		    !(config->class[c].jitter >= 0 && config->class[c].jitter <= 1))
			return -EINVAL;
	return 0;
}

static void configure_class(struct dp_link *l, unsigned c, const struct dp_class_config *config)
{
	struct dp_link_queue *q = &l->queue[c];

	q->limit_bytes = limit_or_none(config->limit_bytes);
	q->tag_per_byte = config->weight ? TAG_UNIT / config->weight : 0;
	if (!config->weight)
		l->strict |= 1u << c;
	dp_link_shape_configure(l, c, config->rate_bps, config->jitter);
	/* Its frames may have waited while it was closed, or strict. */
	if (q->tag_per_byte)
		dp_link_tag(l, q);
}

int dp_link_queue_configure(struct dp_link *l, const struct dp_link_config *config)
{
	const struct dp_marking *m = &config->marking;

	if (check_marking(m) || check_classes(config))
		return -EINVAL;
	l->n_classes = config->n_classes ? (uint8_t)config->n_classes : 1;
	l->limit_bytes = limit_or_none(config->limit_bytes);
	l->strict = 0;
	for (unsigned c = 0; c < l->n_classes; c++)
		configure_class(l, c, &config->class[c]);
	for (unsigned c = l->n_classes; c < DP_LINK_CLASSES; c++)
		dp_link_shape_configure(l, c, 0, 0);
	l->marking = *m;
	l->mark_slope = m->kmax_bytes > m->kmin_bytes ?
				m->pmax * 0x1p32 / (double)(m->kmax_bytes - m->kmin_bytes) :
				0;
	return 0;
}

/* ---- turns -------------------------------------------------------------------- */

unsigned dp_link_turn(const struct dp_link *l, uint32_t mask)
{
	unsigned best;

	if (mask & l->strict)
		return (unsigned)__builtin_ctz(mask & l->strict);
	best = (unsigned)__builtin_ctz(mask);
	for (mask &= mask - 1; mask; mask &= mask - 1) {
		unsigned c = (unsigned)__builtin_ctz(mask);

		if ((int64_t)(l->queue[c].start - l->queue[best].start) < 0)
			best = c;
	}
	return best;
}

/* A class has no claim to the virtual time that passed while it could not send. */
void dp_link_tag(struct dp_link *l, struct dp_link_queue *q)
{
	if ((int64_t)(l->virtual_start - q->start) > 0)
		q->start = l->virtual_start;
}

/* Tags wrap: one that is 2^63 units behind would count as ahead.  So the classes that are far
 * behind are brought up, each time that the virtual time has gone on by FAR. */
static __attribute__((noinline)) void bring_up(struct dp_link *l)
{
	for (unsigned c = 0; c < l->n_classes; c++)
		if ((int64_t)(l->virtual_start - l->queue[c].start) > (int64_t)FAR)
			l->queue[c].start = l->virtual_start;
}

void dp_link_count(struct dp_link *l, struct dp_link_queue *q, uint32_t bytes)
{
	bool far = (l->virtual_start ^ q->start) / FAR;

	l->virtual_start = q->start;
	if (far)
		bring_up(l);
	q->start += q->tag_per_byte * bytes;
}

/* ---- admission ----------------------------------------------------------------- */

static bool is_marked(struct dp_link *l, uint64_t waiting)
{
	const struct dp_marking *m = &l->marking;

	if (waiting <= m->kmin_bytes)
		return false;
	if (m->kind == DP_MARK_STEP || waiting >= m->kmax_bytes)
		return true;
	return dp_link_happens(&l->rng[DP_RNG_MARK],
			       (uint64_t)(l->mark_slope * (double)(waiting - m->kmin_bytes)));
}

bool dp_link_set_ce(struct dp_link *l, struct dp_frame *f)
{
	bool capable = f->ecn == DP_ECN_ECT0 || f->ecn == DP_ECN_ECT1;

	if (capable) {
		f->ecn = DP_ECN_CE;
		l->stats.marked++;
	}
	return f->ecn == DP_ECN_CE;
}

static void mark(struct dp_link *l, struct dp_frame *f)
{
	bool capable = f->ecn == DP_ECN_ECT0 || f->ecn == DP_ECN_ECT1;

	if (capable && is_marked(l, l->queue[f->class].bytes))
		dp_link_set_ce(l, f);
}

bool dp_link_within(uint64_t waiting, const struct dp_frame *f, uint64_t limit)
{
	return f->bytes <= limit && waiting <= limit - f->bytes;
}

/* Trimmed frames do not count towards the limit; a second limit of the same size is theirs. */
static bool fits(const struct dp_link *l, const struct dp_frame *f)
{
	const struct dp_link_queue *q = &l->queue[f->class];

	if (f->flags & DP_FRAME_TRIMMED)
		return dp_link_within(l->trimmed, f, l->limit_bytes) &&
		       dp_link_within(q->trimmed, f, q->limit_bytes);
	return dp_link_within(l->bytes - l->trimmed, f, l->limit_bytes) &&
	       dp_link_within(q->bytes - q->trimmed, f, q->limit_bytes);
}

static bool has_room(struct dp_link *l, const struct dp_frame *f, uint64_t now)
{
	return !l->buffer || dp_buffer_take(l->buffer, l, f, now);
}

/* Cuts the payload off if the frame then fits; false: the frame is unchanged. */
static bool trim(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	struct dp_frame whole = *f;

	if (!l->trims || !f->header_bytes || f->flags & DP_FRAME_TRIMMED)
		return false;
	f->bytes = f->header_bytes;
	f->class = 0;
	f->flags |= DP_FRAME_TRIMMED;
	if (!fits(l, f) || !has_room(l, f, now)) {
		*f = whole;
		return false;
	}
	l->stats.trimmed++;
	return true;
}

bool dp_link_admit(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	bool fit = fits(l, f);

	if (fit && has_room(l, f, now)) {
		if (l->marking.kind)
			mark(l, f);
		return true;
	}
	if (trim(l, f, now))
		return true;
	if (l->shaped >> f->class & 1)
		dp_link_drop(l, f, DP_DROP_SHAPED);
	else
		dp_link_drop(l, f, fit ? DP_DROP_BUFFER : DP_DROP_QUEUE);
	return false;
}
