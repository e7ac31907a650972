// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/oneway.h"

#define LOOK_NS 250000000ull	 /* time between two looks */
#define BELIEF_NS 10000000000ull /* as long as the lowest RTT is believed (engine/rtt.c) */
#define DRIFT_PPM 200		 /* most that two clocks drift apart */

/* Whether `a` is the lower delay; they lie within 2^31 ns. */
static int lower(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static void take(struct dp_oneway_dir *d, uint32_t delay_ns)
{
	if (lower(delay_ns, d->base_ns)) {
		d->fell_ns += d->base_ns - delay_ns;
		d->base_ns = delay_ns;
	}
	if (lower(delay_ns, d->lowest_ns))
		d->lowest_ns = delay_ns;
}

/* A queue makes one direction slower.  Clocks that drift apart make one slower and the other
 * faster by the same amount: so far, the base of the slower one follows. */
static void follow(struct dp_oneway_dir *slower, struct dp_oneway_dir *faster, uint32_t most_ns)
{
	uint32_t rise = slower->lowest_ns - slower->base_ns;

	if (rise > faster->fell_ns)
		rise = faster->fell_ns;
	if (rise > most_ns)
		rise = most_ns;
	slower->base_ns += rise;
	faster->fell_ns -= rise;
}

static void begin(struct dp_oneway *o, uint32_t forward_ns, uint32_t back_ns, uint64_t now)
{
	o->forward = (struct dp_oneway_dir){ .base_ns = forward_ns, .lowest_ns = forward_ns };
	o->back = (struct dp_oneway_dir){ .base_ns = back_ns, .lowest_ns = back_ns };
	o->seen_ns = now;
}

static void look(struct dp_oneway *o, uint64_t rtt_ns, uint64_t now)
{
	uint64_t most = (now - o->look_ns + LOOK_NS) / 1000000 * DRIFT_PPM;
	uint32_t most_ns = most < INT32_MAX ? (uint32_t)most : INT32_MAX;

	follow(&o->back, &o->forward, most_ns);
	follow(&o->forward, &o->back, most_ns);
	if (o->forward.lowest_ns - o->forward.base_ns <= rtt_ns / 8)
		o->seen_ns = now;
	/* While the forward path is never empty, drift cannot be told from a queue. */
	if (now - o->seen_ns > BELIEF_NS)
		begin(o, o->forward.lowest_ns, o->back.lowest_ns, now);
}

uint64_t dp_oneway_sample(struct dp_oneway *o, uint32_t sent_ns, uint32_t arrived_ns,
			  uint64_t rtt_ns, uint64_t now)
{
	uint32_t forward_ns = arrived_ns - sent_ns, back_ns = (uint32_t)rtt_ns - forward_ns;
	uint64_t waited;

	if (!o->look_ns) {
		begin(o, forward_ns, back_ns, now);
		o->look_ns = now + LOOK_NS;
	}
	take(&o->forward, forward_ns);
	take(&o->back, back_ns);
	if (now >= o->look_ns) {
		look(o, rtt_ns, now);
		o->look_ns = now + LOOK_NS;
		o->forward.lowest_ns = forward_ns;
		o->back.lowest_ns = back_ns;
	}
	waited = back_ns - o->back.base_ns;
	return waited < rtt_ns ? waited : rtt_ns - 1;
}
