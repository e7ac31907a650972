/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An impairment whose setting is one number: a rule for the frames of a link.  Each has a file
 * here, which defines `dp_impair_<name>`, and a row in ../impairments.py.
 */
#ifndef DP_LINK_IMPAIR_H
#define DP_LINK_IMPAIR_H

#include "link/link.h"

/* An impairment of a link. */
struct dp_impaired {
	double value;	 /* the setting; 0: off */
	uint64_t random; /* a random stream of its own, seeded with the link */
};

/* A call that is NULL does nothing.  None is called while the setting is 0. */
struct dp_impair {
	/* Whether a frame is lost before it reaches the queue. */
	bool (*loses)(struct dp_impaired *, const struct dp_frame *, uint64_t now);
	/* On the wire: when a frame arrives that would arrive at `at`, no earlier than that.  It
	 * may change flags and ECN of the frame. */
	uint64_t (*arrives)(struct dp_impaired *, struct dp_frame *, uint64_t at);
	bool hashes; /* it reads frame->flow_hash */
};

#define DP_IMPAIR_DECLARE(name, ...) extern const struct dp_impair dp_impair_##name;
DP_IMPAIRMENTS(DP_IMPAIR_DECLARE)
#undef DP_IMPAIR_DECLARE

#endif
