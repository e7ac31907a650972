/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The memory that packets ahead of a gap have been placed in: for each byte, the highest PSN.
 *
 * A span is a piece of memory that one packet was placed in, or packets of consecutive PSNs, the
 * same number of bytes each, at addresses that grow by one step.  So packets of a long message share
 * a span, as do messages that go to the slots of a ring in turn; and a packet that is placed over an
 * older one takes its span.  Spans do not overlap.  They form a treap, ordered by address: look-up
 * and change take a time that grows with the logarithm of their number.  PSNs are 64-bit numbers
 * that do not wrap.
 */
#ifndef DP_ENGINE_RC_SPANS_H
#define DP_ENGINE_RC_SPANS_H

#include <stdbool.h>
#include <stdint.h>

struct dp_engine;

struct dp_span {
	struct dp_span *left, *right;
	uint64_t from, end;   /* what is left of it: addresses in this process */
	uint64_t base;	      /* where its first packet began */
	uint64_t first, last; /* PSNs */
	uint32_t step;	      /* from packet to packet; 0: there is only one */
	uint32_t body;	      /* bytes placed of each */
	uint32_t whole;	      /* bytes of a packet, with those held back; 0: they lie elsewhere */
	uint32_t priority;    /* no lower than those of left and right */
};

/* What a packet places. */
struct dp_placed {
	uint64_t psn, from, end;
	uint32_t whole; /* as in dp_span */
};

struct dp_spans {
	struct dp_span *root;
	uint32_t n;
	uint32_t most; /* with more of them, those of no more use are removed first */
	uint64_t top;  /* highest PSN of all */
};

/* Whether a packet of a higher PSN has been placed anywhere. */
static inline bool dp_spans_above(const struct dp_spans *s, uint64_t psn)
{
	return s->root && s->top > psn;
}

/* Finds the first part of [*at, end) in which no packet of a higher PSN was placed.  Moves *at to
 * its beginning, and returns its end; *at is `end` if there is none. */
uint64_t dp_spans_free(const struct dp_spans *, uint64_t psn, uint64_t *at, uint64_t end);
/* Adds what is placed where no packet of a higher PSN was.  All PSNs below `expected` are done with.
 * False: no memory. */
bool dp_spans_take(struct dp_engine *, struct dp_spans *, const struct dp_placed *,
		   uint64_t expected);
void dp_spans_clear(struct dp_engine *, struct dp_spans *);
/* The first invariant that does not hold, in words, or NULL. */
const char *dp_spans_check(const struct dp_spans *);

#endif
