/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who sends next: tenants share what the card may send, and the classes of a tenant share
 * what is the tenant's.  Both by weight, with start-time fair queueing (Goyal, Vin and Cheng,
 * SIGCOMM 1996), as the classes of a link do (link/queue.c).
 *
 * Who has sent less than its guaranteed rate goes before everybody else, and that costs it
 * nothing of its turn; so it has the greater one of guarantee and share.  Who has sent more
 * than its largest rate waits.  What nobody of them uses, the others have.
 *
 * Nothing here knows of frames or QPs.
 */
#ifndef DP_VNIC_SHARE_H
#define DP_VNIC_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARE_WEIGHT_MAX = 4096 };

/* A rate, and when as much as it allows has been sent. */
struct rate {
	uint64_t bps; /* 0: none */
	uint64_t next_ns;
	uint64_t rest; /* of a division */
};

struct share {
	uint32_t weight;
	struct rate least, most; /* guaranteed, and largest */
	uint32_t ready;		 /* how many have something that could be sent now */
	uint64_t start;		 /* tag */
};

/* Those among whom something is shared: n shares, each at the beginning of `stride` bytes. */
struct shares {
	void *first;
	size_t stride;
	uint32_t n;
	uint64_t start;					 /* tag of the one that was served last */
	bool (*may)(const struct share *, uint64_t now); /* beside ready and rate; NULL: yes */
};

/* Whether the rate allows to send something now. */
bool rate_allows(const struct rate *, uint64_t now);

/* The one whose turn it is; NULL: nobody may send now. */
struct share *share_turn(const struct shares *, uint64_t now);
/* It sends so many bytes. */
void share_spend(struct shares *, struct share *, uint32_t bytes, uint64_t now);
void rate_spend(struct rate *, uint32_t bytes, uint64_t now);
/* One more, or one less, has something that could be sent. */
void share_ready(const struct shares *, struct share *);
void share_unready(struct share *);

#endif
