/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A channel in virtual time that loses, duplicates, delays and corrupts. */
#ifndef DP_TESTS_CHANNEL_H
#define DP_TESTS_CHANNEL_H

#include <stdint.h>

#include "adversary.h"
#include "engine/engine.h"
#include "soak.h"

/* A packet on its way. */
struct X_flight {
	uint64_t at, order;
	int to;
	struct dp_packet packet; /* its data points at bytes[] */
	uint8_t bytes[];
};

struct X_channel {
	const struct X_soak *p;
	uint64_t rng, order, trace;
	uint64_t free_at[2]; /* when the link towards A, B is idle again */
	uint64_t packets, lost;
	struct X_adversary adversary[2]; /* towards A, B */
	struct X_flight **heap;		 /* earliest first */
	uint32_t n, cap;
};

/* xorshift64*, seeded with anything. */
uint64_t X_random(uint64_t *state);
struct dp_addr X_address(int ipv6, int index);

void X_channel_init(struct X_channel *, const struct X_soak *);
void X_channel_free(struct X_channel *);
/* Takes all that the engine sends now, of its one QP, and puts it on its way to side `to`. */
void X_channel_collect(struct X_channel *, struct dp_engine *, const struct dp_qp *, int to,
		       uint64_t now);
/* When the next packet arrives; DP_NEVER: none is on its way. */
uint64_t X_channel_next(const struct X_channel *);
/* The next packet that has arrived; the caller frees it. */
struct X_flight *X_channel_take(struct X_channel *, uint64_t now);
void X_flight_give(struct X_flight *, struct dp_engine *, uint64_t now);

#endif
