/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The responder: functions that both modes share, and those of each mode. */
#ifndef DP_ENGINE_RC_RESPONDER_H
#define DP_ENGINE_RC_RESPONDER_H

#include "engine/rc/rc.h"

/* Extended mode: a packet that arrived ahead of a gap and still has something to do. */
enum {
	DP_TAIL_HELD = 16
}; /* bytes of a message's end that are held back until the message is complete */

/* REST: of the READ that is held at a PSN before, which has all that there is to do. */
enum dp_held_kind {
	DP_HELD_NOTHING,
	DP_HELD_LAST,
	DP_HELD_READ,
	DP_HELD_REST,
	DP_HELD_ATOMIC,
};

struct dp_held {
	uint64_t va;		    /* WRITE: of the tail; READ, atomic: of the request */
	uint64_t swap_add, compare; /* ATOMIC WRITE: swap_add, in the order of memory */
	uint32_t rkey;
	union {
		uint32_t imm, invalidate_rkey;
	};
	union {
		uint32_t rq_seq;
		uint32_t segment; /* READ: payload bytes of each PSN of the answer */
	};
	uint32_t len;	 /* LAST: bytes of the message; READ: bytes asked for */
	uint32_t offset; /* LAST: of the tail in the message; READ: of the answer */
	uint32_t ts_ns;
	uint64_t arrived_ns;
	uint8_t opcode;
	uint8_t kind;
	bool solicited;
	bool whole;			/* ATOMIC WRITE: it carries 8 bytes */
	uint8_t placement, selectivity; /* FLUSH */
	uint8_t tail_len;
	uint8_t tail[DP_TAIL_HELD];
};

/* Syndromes of refusals. */
#define DP_NAK(code) (DP_AETH_NAK | (code))

static inline uint8_t dp_rnr_syndrome(const struct dp_rc *rc)
{
	return DP_AETH_RNR_NAK | rc->qp.attr.min_rnr_timer;
}

void dp_responder_start(struct dp_rc *);
void dp_responder_reset(struct dp_rc *);
void dp_responder_rx(struct dp_rc *, const struct dp_packet *, const struct dp_parsed *,
		     uint64_t now);
int dp_responder_tx(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_responder_tick(struct dp_rc *, uint64_t now);
/* Sends an acknowledgement as soon as the QP may send. */
void dp_ack_soon(struct dp_rc *);
/* The program did not reply to a message, or late. */
static inline void dp_unreplied(struct dp_responder *r)
{
	r->replies -= r->replies < DP_UNREPLIED ? r->replies : DP_UNREPLIED;
}
/* Refuses PSN `psn`.  Invalid requests and access faults are fatal: the QP goes to error, and
 * repeats the NAK to every request that still comes. */
void dp_responder_nak(struct dp_rc *, uint32_t psn, uint8_t syndrome);
/* Moves the expected PSN on by n_psn. */
void dp_responder_advance(struct dp_responder *, uint32_t n_psn);
/* The last packet of a message is in place: completes a receive if the message consumes one.  0, or
 * the syndrome of a NAK. */
int dp_finish_message(struct dp_rc *, const struct dp_held *);
/* Fails the current receive, which cannot take the message. */
void dp_fail_recv(struct dp_rc *, enum dp_wc_status);
/* Copies what a packet asks for, for as long as the packet has to wait. */
void dp_held_from(const struct dp_parsed *, struct dp_held *, uint64_t now);

/* Extended mode: packets ahead of a gap. */
void dp_reorder_rx(struct dp_rc *, const struct dp_packet *, const struct dp_parsed *,
		   uint64_t now);
/* Fills in the SACK bitmap; returns the number of words. */
unsigned dp_reorder_sack(struct dp_rc *, uint32_t *base, uint8_t *words);
/* Returns the memory for packets ahead of a gap. */
void dp_rx_release(struct dp_rc *);
/* A request arrived without its payload. */
void dp_reorder_trimmed(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* The lists of PSNs went out with an acknowledgement. */
void dp_reorder_told(struct dp_rc *);

#endif
