// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/thinning.h"

#include <stdbool.h>

#include "wire/ext.h"

/* How long a receiver holds an acknowledgement that is not thinned. */
#define DP_ACK_DELAY_NS 50000ull

enum {
	LEAST_SAMPLES = 4, /* acknowledgements of a round: one alone may meet a short queue */
	CALM_ROUNDS = 16,  /* rounds without a queue before the sender asks for more again */
	PATIENCE_MAX = 3,  /* most doublings of CALM_ROUNDS, one after each try that made a queue */
	MANY = 6,  /* packets whose acknowledgements queue: fewer are hardly worth merging */
	SOME = 4,  /* the same, once the sender has begun */
	LASTS = 3, /* rounds with a long queue, before it counts: flows that begin make one */
};

/* A queue longer than RTT / STANDS is a standing queue; one shorter than RTT / EMPTY is none. */
enum { STANDS = 8, EMPTY = 16 };

/* A shorter queue, or one of less than twice the lowest RTT, may be made of the data of others. */
#define LONG_NS 400000ull

uint64_t dp_ack_delay_ns(unsigned level)
{
	return DP_ACK_DELAY_NS << level;
}

static void thin(struct dp_thinning *t, uint64_t srtt_ns)
{
	if (t->trying && t->patience < PATIENCE_MAX)
		t->patience++;
	t->trying = 0;
	t->calm = 0;
	if (t->level < DP_THIN_MAX && dp_ack_delay_ns(t->level + 1u) <= srtt_ns)
		t->level++;
}

static void thicken(struct dp_thinning *t)
{
	if (!t->level || ++t->calm < CALM_ROUNDS << t->patience)
		return;
	if (t->trying) /* the last try made no queue */
		t->patience = 0;
	t->calm = 0;
	t->trying = 1;
	t->level--;
}

/* Whether the queue is one that fewer acknowledgements may make shorter. */
static bool stands(struct dp_thinning *t, uint64_t min_rtt_ns, uint64_t srtt_ns, bool many)
{
	if (t->level) /* a queue that becomes shorter goes away by itself */
		return many && t->back_ns > srtt_ns / STANDS && t->back_ns >= t->last_ns;
	t->calm = many && t->back_ns > LONG_NS && t->back_ns > 2 * min_rtt_ns ? t->calm + 1 : 0;
	return t->calm == LASTS;
}

static void look(struct dp_thinning *t, uint64_t min_rtt_ns, uint64_t srtt_ns, bool many)
{
	if (stands(t, min_rtt_ns, srtt_ns, many))
		thin(t, srtt_ns);
	else if (!many || t->back_ns <= srtt_ns / EMPTY)
		thicken(t);
	t->last_ns = t->back_ns;
}

void dp_thinning_sample(struct dp_thinning *t, uint64_t back_ns, uint64_t min_rtt_ns,
			uint64_t srtt_ns, uint32_t packets, uint64_t now)
{
	uint64_t least = t->level ? SOME : MANY;

	if (!t->samples || back_ns < t->back_ns)
		t->back_ns = back_ns < UINT32_MAX ? (uint32_t)back_ns : UINT32_MAX;
	if (t->samples < LEAST_SAMPLES)
		t->samples++;
	if (now < t->look_ns || t->samples < LEAST_SAMPLES)
		return;
	look(t, min_rtt_ns, srtt_ns, (uint64_t)packets * t->back_ns > least * srtt_ns);
	t->samples = 0;
	t->look_ns = now + srtt_ns + dp_ack_delay_ns(t->level);
}
