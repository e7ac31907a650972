/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Chooses which packets of the extended mode are lost, where it hurts most.
 *
 * Whatever it aims at, it lets the next one through after `burst` in a row at most, and a
 * blackout ends: so a transport that goes on trying gets through.
 */
#ifndef DP_TESTS_ADVERSARY_H
#define DP_TESTS_ADVERSARY_H

#include <stdbool.h>

#include "engine/rc/received.h"
#include "engine/rc/scoreboard.h"
#include "soak.h"

enum {
	X_AT_HEAD =
		1 << 0, /* the oldest packet that is not acknowledged, for which the window waits */
	X_AT_AGAIN = 1 << 1,	/* what is sent again */
	X_AT_ACK = 1 << 2,	/* acknowledgements and answers */
	X_AT_TAIL = 1 << 3,	/* the last packet of a message */
	X_AT_RANDOM = 1 << 4,	/* three packets of ten */
	X_AT_BLACKOUT = 1 << 5, /* all, for a while */
	X_AIMS = 6,
};

struct X_adversary {
	uint64_t rng;
	uint32_t aims, burst;
	uint32_t in_row[X_AIMS];       /* packets lost since one was let through */
	uint32_t patience[X_AIMS];     /* how many more may be */
	uint8_t answers, copies[4096]; /* lost in a row: acknowledgements; by PSN */
	uint32_t highest;	       /* PSN behind the highest seen */
	bool begun, dark;
	uint64_t dark_ns, until_ns; /* mean length of a blackout; when this state ends */
};

void X_adversary_init(struct X_adversary *, const struct X_soak *, uint64_t seed);
/* sender: the QP that has sent it. */
bool X_adversary_drops(struct X_adversary *, const struct dp_packet *, const struct dp_qp *sender,
		       uint64_t now);
/* What one end believes to be delivered has arrived at the other; the first lie in words, or
 * NULL. */
const char *X_agree(const struct dp_qp *sender, const struct dp_qp *receiver);
/* Additive increase, multiplicative decrease, one packet after a time-out; no pacing. */
extern const struct dp_cc_algo X_aimd;

#endif
