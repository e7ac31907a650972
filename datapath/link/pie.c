// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * PIE (RFC 8033).  The delay is that of the last frame that left the queue, measured from the
 * frame's arrival, and 0 once the queue is empty.  Of the optional elements there are ECN (section
 * 5.1), the spacing of drops (5.4) and the cap of a step (5.5).
 *
 * An update comes after turns at the same time, and before frames that arrive at that time.
 */
#include "link/impl.h"

/* Section 4.1: no frame is dropped while the probability or the queue is this small. */
#define DROP_PROB_LOW 0.2
#define SHORT_FRAMES 2
/* Section 5.4: no drop before the sum of probabilities reaches the first; a drop for certain at the
 * second. */
#define ACCU_PROB_FIRST 0.85
#define ACCU_PROB_LAST 8.5
/* Section 5.5: from this probability on, no step is larger than STEP_MAX. */
#define STEP_CAPPED_FROM 0.1
#define STEP_MAX 0.02
#define DECAY 0.98

void dp_pie_begin(struct dp_pie *p, const struct dp_aqm *config)
{
	p->burst_allowance_ns = config->max_burst_ns;
	p->update_ns = DP_NEVER;
	p->begun = false;
}

void dp_pie_sojourn(struct dp_link *l, uint64_t sojourn_ns)
{
	l->aqm->pie.qdelay_ns = l->aqm->frames ? sojourn_ns : 0;
}

/* ---- updates ----------------------------------------------------------------------- */

/* Section 4.2: the lower the probability, the smaller its steps. */
static double scale(double drop_prob)
{
	static const struct {
		double below, divisor;
	} step[] = {
		{ 0.000001, 2048 }, { 0.00001, 512 }, { 0.0001, 128 },
		{ 0.001, 32 },	    { 0.01, 8 },      { 0.1, 2 },
	};

	for (unsigned i = 0; i < sizeof(step) / sizeof(step[0]); i++)
		if (drop_prob < step[i].below)
			return step[i].divisor;
	return 1;
}

static void calculate_drop_prob(struct dp_pie *p, const struct dp_aqm *config)
{
	double qdelay = (double)p->qdelay_ns / 1e9, old = (double)p->qdelay_old_ns / 1e9;
	double step = config->alpha * (qdelay - (double)config->target_ns / 1e9) +
		      config->beta * (qdelay - old);

	step /= scale(p->drop_prob);
	if (p->drop_prob >= STEP_CAPPED_FROM && step > STEP_MAX)
		step = STEP_MAX;
	p->drop_prob += step;
	if (!p->qdelay_ns && !p->qdelay_old_ns)
		p->drop_prob *= DECAY;
	if (p->drop_prob < 0)
		p->drop_prob = 0;
	if (p->drop_prob > 1)
		p->drop_prob = 1;
	p->qdelay_old_ns = p->qdelay_ns;
}

static void use_allowance(struct dp_pie *p, uint64_t ns)
{
	p->burst_allowance_ns -= ns < p->burst_allowance_ns ? ns : p->burst_allowance_ns;
}

void dp_pie_update_before(struct dp_link *l, uint64_t time)
{
	const struct dp_aqm *config = &l->aqm->config;
	struct dp_pie *p = &l->aqm->pie;
	uint64_t n;

	while (p->update_ns < time) {
		/* The state no longer changes: count all overdue updates as one. */
		n = 1;
		if (p->drop_prob == 0 && !p->qdelay_ns && !p->qdelay_old_ns)
			n = (time - 1 - p->update_ns) / config->interval_ns + 1;
		else
			calculate_drop_prob(p, config);
		use_allowance(p, n * config->interval_ns);
		if (__builtin_add_overflow(p->update_ns, n * config->interval_ns, &p->update_ns))
			p->update_ns = DP_NEVER;
	}
}

/* ---- arrivals ---------------------------------------------------------------------- */

static bool is_short(const struct dp_pie *p, uint64_t target_ns)
{
	return p->drop_prob == 0 && p->qdelay_ns < target_ns / 2 &&
	       p->qdelay_old_ns < target_ns / 2;
}

static bool drop_early(struct dp_link *l)
{
	struct dp_pie *p = &l->aqm->pie;

	if (p->qdelay_old_ns < l->aqm->config.target_ns / 2 && p->drop_prob < DROP_PROB_LOW)
		return false;
	if (l->bytes <= SHORT_FRAMES * (uint64_t)l->aqm->frame_max)
		return false;
	if (p->drop_prob == 0)
		p->accu_prob = 0;
	p->accu_prob += p->drop_prob;
	if (p->accu_prob < ACCU_PROB_FIRST)
		return false;
	return p->accu_prob >= ACCU_PROB_LAST ||
	       dp_random32(&l->rng[DP_RNG_AQM]) * 0x1p-32 < p->drop_prob;
}

bool dp_pie_drops(struct dp_link *l, struct dp_frame *f, uint64_t now)
{
	const struct dp_aqm *config = &l->aqm->config;
	struct dp_pie *p = &l->aqm->pie;

	if (!p->begun) {
		p->begun = true;
		p->update_ns = now + config->interval_ns;
	}
	dp_pie_update_before(l, now + 1);
	if (is_short(p, config->target_ns))
		p->burst_allowance_ns = config->max_burst_ns;
	if (p->burst_allowance_ns || !drop_early(l))
		return false;
	p->accu_prob = 0;
	return !(config->ecn && p->drop_prob < config->mark_max && dp_link_set_ce(l, f));
}
