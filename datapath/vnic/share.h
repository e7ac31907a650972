/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who sends next.  Tenants share what the card may send, and the classes of a tenant share what the
 * tenant may send.  Both share by weight, with start-time fair queueing (Goyal, Vin and Cheng,
 * SIGCOMM 1996), as the classes of a link do (link/queue.c).
 *
 * A tenant or class that has sent less than its guaranteed rate goes before all others, and these
 * bytes do not count for its turns.  So it gets its guarantee or its share, whichever is more.  One
 * that has sent more than its largest rate waits.  The others may use what one of them leaves.
 *
 * Nothing here knows of frames or QPs.
 */
#ifndef DP_VNIC_SHARE_H
#define DP_VNIC_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARE_WEIGHT_MAX = 4096 };

/* A rate.  At next_ns the bytes sent so far are no more than it allows. */
struct rate {
	uint64_t bps; /* 0: none */
	uint64_t next_ns;
	uint64_t rest; /* remainder of the last division */
};

struct share {
	uint32_t weight;
	struct rate least, most; /* guaranteed, and largest */
	uint32_t ready;		 /* lines, or classes, with a frame that could be sent now */
	uint64_t start;		 /* tag */
};

/* An array of n tenants or classes; each begins with its share and is `stride` bytes long. */
struct shares {
	void *first;
	size_t stride;
	uint32_t n;
	uint64_t start;					 /* tag of the share served last */
	bool (*may)(const struct share *, uint64_t now); /* a further condition; NULL: none */
};

/* Whether the rate allows another frame now. */
bool rate_allows(const struct rate *, uint64_t now);

/* The share whose turn it is; NULL: none may send now. */
struct share *share_turn(const struct shares *, uint64_t now);
/* Counts bytes that the share sends. */
void share_spend(struct shares *, struct share *, uint32_t bytes, uint64_t now);
void rate_spend(struct rate *, uint32_t bytes, uint64_t now);
/* Adds one to the share's `ready`, or takes one off. */
void share_ready(struct share *);
void share_unready(struct share *);

#endif
