// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "link/impl.h"

#include <math.h>

/* ---- configuration ------------------------------------------------------------- */

void dp_link_seed(struct dp_link *l, uint64_t seed)
{
	l->seed = seed;
	l->bad = false;
	l->ge_state.begun = 0;
	l->has_normal_spare = false;
	l->jitter_next = 0;
	/* Stream i begins with draws 2i and 2i + 1 of the seed's own sequence. */
	for (unsigned i = 0; i < DP_RNGS; i++) {
		uint64_t high = dp_random32(&seed);

		l->rng[i] = high << 32 | dp_random32(&seed);
	}
	l->ge_state.rng = l->rng[DP_RNG_GE_TIME];
	dp_link_impair_seed(l, l->seed);
}

/* Converts a probability to fixed point; -EINVAL: it is none, or would become 0. */
static int fixed_point(double probability, uint64_t *out)
{
	if (!(probability >= 0 && probability <= 1))
		return -EINVAL;
	*out = (uint64_t)(probability * 0x1p32 + 0.5);
	return probability > 0 && !*out ? -EINVAL : 0;
}

static int check_ge_time(const struct dp_loss *loss)
{
	if (!loss->good_ns && !loss->bad_ns)
		return 0;
	if (!loss->good_ns || !loss->bad_ns || loss->p != 0 || loss->r != 0)
		return -EINVAL;
	return loss->good_ns <= DP_GE_TIME_MEAN_MAX && loss->bad_ns <= DP_GE_TIME_MEAN_MAX ?
		       0 :
		       -EINVAL;
}

static bool samples_finite(const struct dp_jitter *j)
{
	for (uint32_t i = 0; i < j->n_samples; i++)
		if (!isfinite(j->sample[i]))
			return false;
	return true;
}

static int check_jitter(const struct dp_jitter *j)
{
	switch (j->kind) {
	case DP_JITTER_NONE:
		return 0;
	case DP_JITTER_NORMAL:
		return j->scale_ns >= 0 && !isinf(j->scale_ns) ? 0 : -EINVAL;
	case DP_JITTER_PARETO:
		return j->scale_ns >= 0 && !isinf(j->scale_ns) && j->shape > 1 ? 0 : -EINVAL;
	case DP_JITTER_TRACE:
		return j->sample && j->n_samples && samples_finite(j) ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

static int read_odds(const struct dp_link_config *c, struct dp_link_odds *odds)
{
	int err = 0;

	err |= fixed_point(c->loss.p, &odds->to_bad);
	err |= fixed_point(c->loss.r, &odds->to_good);
	err |= fixed_point(c->loss.good, &odds->good);
	err |= fixed_point(c->loss.bad, &odds->bad);
	err |= fixed_point(c->corrupt, &odds->corrupt);
	err |= fixed_point(c->reorder, &odds->reorder);
	err |= fixed_point(c->duplicate, &odds->duplicate);
	return err ? -EINVAL : 0;
}

/* Draws the state anew if the mean times have changed. */
static void set_ge_time(struct dp_link *l, const struct dp_loss *loss)
{
	if (l->ge_time.good_ns == loss->good_ns && l->ge_time.bad_ns == loss->bad_ns)
		return;
	l->ge_time = (struct dp_ge_time){ loss->good_ns, loss->bad_ns };
	l->ge_state.begun = 0;
}

int dp_link_spoil_configure(struct dp_link *l, const struct dp_link_config *config)
{
	struct dp_link_odds odds;

	if (read_odds(config, &odds) || check_ge_time(&config->loss) ||
	    check_jitter(&config->jitter) || dp_link_impair_configure(l, config))
		return -EINVAL;
	l->odds = odds;
	set_ge_time(l, &config->loss);
	l->jitter = config->jitter;
	if (l->jitter_next >= l->jitter.n_samples)
		l->jitter_next = 0;
	l->reorder_ns = config->reorder_ns;
	l->guarded |= odds.good || odds.to_bad || l->ge_time.good_ns || l->losing;
	if (!odds.to_bad)
		l->bad = false;
	l->spoils = odds.corrupt || odds.reorder || odds.duplicate || l->delaying ||
		    l->jitter.kind != DP_JITTER_NONE;
	return 0;
}

/* ---- loss ------------------------------------------------------------------------ */

bool dp_link_loses(struct dp_link *l, const struct dp_frame *f, uint64_t now)
{
	uint64_t *rng = &l->rng[DP_RNG_LOSS];
	bool lost;

	if (dp_link_impair_loses(l, f, now))
		return true;
	if (l->ge_time.good_ns)
		return dp_link_happens(rng, dp_ge_time_is_bad(&l->ge_time, &l->ge_state, now) ?
						    l->odds.bad :
						    l->odds.good);
	lost = dp_link_happens(rng, l->bad ? l->odds.bad : l->odds.good);
	if (dp_link_happens(rng, l->bad ? l->odds.to_good : l->odds.to_bad))
		l->bad = !l->bad;
	return lost;
}

/* ---- jitter ---------------------------------------------------------------------- */

/* A random number between 0 and 1, without both. */
static double uniform(uint64_t *rng)
{
	return (dp_random32(rng) + 0.5) * 0x1p-32;
}

/* Marsaglia's polar method.  It gives two numbers at a time. */
static double normal(struct dp_link *l)
{
	uint64_t *rng = &l->rng[DP_RNG_JITTER];
	double x, y, s, scale;

	if (l->has_normal_spare) {
		l->has_normal_spare = false;
		return l->normal_spare;
	}
	do {
		x = 2 * uniform(rng) - 1;
		y = 2 * uniform(rng) - 1;
		s = x * x + y * y;
	} while (s >= 1 || s == 0);
	scale = sqrt(-2 * log(s) / s);
	l->normal_spare = y * scale;
	l->has_normal_spare = true;
	return x * scale;
}

static double jitter_ns(struct dp_link *l)
{
	const struct dp_jitter *j = &l->jitter;
	double u, sample;

	switch (j->kind) {
	case DP_JITTER_NORMAL:
		return j->scale_ns * normal(l);
	case DP_JITTER_PARETO:
		u = uniform(&l->rng[DP_RNG_JITTER]);
		return j->scale_ns * (j->shape - 1) * (pow(u, -1 / j->shape) - 1);
	default:
		sample = j->sample[l->jitter_next++];
		if (l->jitter_next == j->n_samples)
			l->jitter_next = 0;
		return sample;
	}
}

/* The time of arrival of a frame that would arrive at `at` without jitter. */
static uint64_t with_jitter(struct dp_link *l, uint64_t at)
{
	double extra = jitter_ns(l);

	if (extra < -(double)l->delay_ns)
		return at - l->delay_ns;
	/* No frame arrives beyond the range of the clock. */
	if (!(extra < 0x1p62))
		extra = 0x1p62;
	return at + (uint64_t)(int64_t)extra;
}

/* ---- the heap ---------------------------------------------------------------------- */

static bool before(const struct dp_frame *a, const struct dp_frame *b)
{
	if (a->at_ns != b->at_ns)
		return a->at_ns < b->at_ns;
	return (int32_t)(a->order - b->order) < 0;
}

/* Joins two heaps, given by their roots; NULL: the empty heap. */
static struct dp_frame *meld(struct dp_frame *a, struct dp_frame *b)
{
	struct dp_frame *t;

	if (!a || !b)
		return a ? a : b;
	if (before(b, a)) {
		t = a;
		a = b;
		b = t;
	}
	b->next = a->child;
	a->child = b;
	return a;
}

/* Joins children in pairs from the first one on, then these pairs from the last one back. */
static struct dp_frame *meld_children(struct dp_frame *first)
{
	struct dp_frame *pairs = NULL, *root = NULL, *a, *b, *pair;

	while (first) {
		a = first;
		b = a->next;
		first = b ? b->next : NULL;
		a->next = NULL;
		if (b)
			b->next = NULL;
		pair = meld(a, b);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		pair = pairs;
		pairs = pair->next;
		pair->next = NULL;
		root = meld(root, pair);
	}
	return root;
}

struct dp_frame *dp_link_held_pop(struct dp_link *l)
{
	struct dp_frame *f = l->held;

	l->held = meld_children(f->child);
	return f;
}

static void hold(struct dp_link *l, struct dp_frame *f, uint64_t at)
{
	f->at_ns = at;
	f->order = l->order++;
	f->next = NULL;
	f->child = NULL;
	l->held = meld(l->held, f);
}

/* ---- the wire ---------------------------------------------------------------------- */

static void append(struct dp_link *l, struct dp_frame *f, uint64_t at)
{
	l->wire_last_ns = at;
	f->at_ns = at;
	f->order = l->order++;
	f->next = NULL;
	*l->wire_tail = f;
	l->wire_tail = &f->next;
}

static void put(struct dp_link *l, struct dp_frame *f, uint64_t at)
{
	if (at >= l->wire_last_ns)
		append(l, f, at);
	else if (!l->jitter.reorders)
		append(l, f, l->wire_last_ns);
	else {
		l->stats.reordered++;
		hold(l, f, at);
	}
}

/* Keeps a frame back.  It does not overtake what was sent before it over a link that was longer
 * then: dp_link_deadline() relies on that. */
static void put_late(struct dp_link *l, struct dp_frame *f, uint64_t at)
{
	l->stats.reordered++;
	if (at < l->wire_last_ns && !l->jitter.reorders)
		at = l->wire_last_ns;
	hold(l, f, at);
}

void dp_link_spoil(struct dp_link *l, struct dp_frame *f, uint64_t at)
{
	struct dp_frame *copy = NULL;

	if (l->jitter.kind != DP_JITTER_NONE)
		at = with_jitter(l, at);
	if (dp_link_happens(&l->rng[DP_RNG_CORRUPT], l->odds.corrupt)) {
		f->flags |= DP_FRAME_CORRUPT;
		l->stats.corrupted++;
	}
	if (dp_link_happens(&l->rng[DP_RNG_DUPLICATE], l->odds.duplicate) && l->ops.clone)
		copy = l->ops.clone(l->user, f);
	if (dp_link_happens(&l->rng[DP_RNG_REORDER], l->odds.reorder))
		put_late(l, f, dp_link_impair_arrives(l, f, at + l->reorder_ns));
	else
		put(l, f, dp_link_impair_arrives(l, f, at));
	if (copy) {
		copy->flags |= DP_FRAME_COPY;
		l->stats.duplicated++;
		put(l, copy, dp_link_impair_arrives(l, copy, at));
	}
}
