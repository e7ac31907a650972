/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* READs and atomics: executed, answered, replayed. */
#ifndef DP_ENGINE_RC_ANSWERS_H
#define DP_ENGINE_RC_ANSWERS_H

#include "engine/rc/responder.h"

enum { DP_READ_QUEUE = 1024 }; /* READs and atomics a responder has yet to answer */

/* A READ or atomic that was accepted and is not answered yet, in a FIFO. */
struct dp_answer {
	uint64_t va, value;
	uint32_t rkey, psn, n_psn, len;
	uint32_t done;	 /* PSNs of the answer that were sent */
	uint32_t offset; /* extended: offset of its first byte in the message */
	uint32_t ts_ns;
	uint32_t segment; /* payload bytes of each PSN */
	uint64_t arrived_ns;
	bool atomic, extended;
	bool replayed; /* the request came again */
};

struct dp_answers {
	void *pool_link;
	uint32_t head, tail;
	struct dp_answer ring[DP_READ_QUEUE];
};

/* A READ or atomic that was accepted, kept in case the requester asks again (the
 * responder resources of IBTA vol. 1, 9.7.7.2). */
struct dp_accepted {
	uint64_t at;	  /* its first PSN, as a 64-bit number that does not wrap */
	uint64_t n_psn;	  /* 0: the record is empty */
	uint64_t va, len; /* READ */
	uint64_t value;	  /* atomic: the result */
	uint64_t start;	  /* extended READ: address of the message's first byte */
	uint32_t rkey, segment;
	bool atomic;
	bool confirmed; /* atomic without a value: FLUSH, ATOMIC WRITE */
};

/* Executes a READ or atomic that comes for the first time.  0, the syndrome of the NAK that it
 * deserves, or -EAGAIN: the requester has to ask again. */
int dp_execute_read(struct dp_rc *, const struct dp_held *, uint32_t psn, bool extended);
int dp_execute_once(struct dp_rc *, const struct dp_held *, uint32_t psn, bool extended);
/* Answers a request again that was accepted before; drops any other. */
void dp_replay(struct dp_rc *, const struct dp_held *, uint32_t psn, bool extended);
/* Tells the requester that a READ cannot be answered again.  The QP goes on. */
void dp_refuse_replay(struct dp_rc *, uint32_t psn, uint8_t syndrome);
/* Whether [psn, psn + n_psn) of this request is part of a READ that was accepted. */
bool dp_was_accepted(const struct dp_rc *, const struct dp_held *, uint32_t psn, uint32_t n_psn);
uint32_t dp_read_psns(uint32_t len, uint32_t segment);
void dp_answers_release(struct dp_rc *);
/* Drops all answers but those to requests before PSN `psn`. */
void dp_answers_before(struct dp_rc *, uint32_t psn);

#endif
