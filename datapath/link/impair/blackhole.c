// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A share of flows loses every packet (the packet black holes of Pingmesh, Guo et al.,
 * SIGCOMM 2015, which drop by addresses, or by addresses and ports).  The seed decides which
 * flows: their hash is mixed with the first number of the random stream, which stays there.
 */
#include "link/impair/impair.h"
#include "wire/random.h"

static bool loses(struct dp_impaired *i, const struct dp_frame *f, uint64_t now)
{
	uint32_t draw = (uint32_t)(dp_mix64(i->random + f->flow_hash) >> 32);

	(void)now;
	return draw < i->value * 0x1p32;
}

const struct dp_impair dp_impair_blackhole = { .loses = loses, .hashes = true };
