/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The requester, both modes; what the modes share and what each has. */
#ifndef DP_ENGINE_RC_REQUESTER_H
#define DP_ENGINE_RC_REQUESTER_H

#include "engine/rc/rc.h"

void dp_requester_start(struct dp_rc *, uint64_t now);
void dp_requester_reset(struct dp_rc *);
/* One packet, 1; nothing to send now, 0. */
int dp_requester_tx(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_requester_rx(struct dp_rc *, const struct dp_parsed *, uint64_t now);
void dp_requester_tick(struct dp_rc *, uint64_t now);
/* Gives what is left of a request its PSNs, behind those of the one before. */
void dp_number(struct dp_rc *, struct dp_swqe *);

/* A time by which the peer should have been heard has passed, and all that has arrived by
 * then is known; at_ns 0: no such time. */
static inline bool dp_has_expired(const struct dp_rc *rc, uint64_t at_ns, uint64_t now)
{
	return at_ns && now >= at_ns && rc->qp.engine->heard_ns >= at_ns;
}

/* Puts the QP in the transmit list if it has a request to send. */
void dp_requester_wake(struct dp_rc *);
/* Bytes of the request that its PSN `psn` carries. */
uint32_t dp_payload_of(const struct dp_rc *, const struct dp_swqe *, uint32_t psn);
/* May the next unsent request start now?  Fence, READ limit. */
bool dp_may_start(const struct dp_rc *, const struct dp_swqe *);
/* Mode or segment have to change: nothing new is sent until all is acknowledged. */
bool dp_is_changing(const struct dp_rc *);
/* Completes what lies below snd_una. */
void dp_retire(struct dp_rc *);
/* The first request that may not be sent now: the send queue's end, or in SQD the first
 * that had not begun. */
uint32_t dp_send_limit(const struct dp_rc *);
/* Places the answer that arrived for PSN `psn` of a READ or atomic; -EINVAL:
 * it is not the right length; -EFAULT: local memory out of reach. */
int dp_place_response(struct dp_rc *, const struct dp_swqe *, const struct dp_parsed *,
		      uint32_t psn);
/* Local memory could not be read for request sq_tx: fails it once it is the
 * oldest.  Always 0. */
int dp_local_fault(struct dp_rc *);
uint64_t dp_ib_timeout_ns(const struct dp_rc *);

/* Time-outs in a row before the peer can count as dead. */
static inline uint32_t dp_tries(const struct dp_rc *rc)
{
	return DP_TRIES * (rc->qp.attr.retry_cnt + 1u);
}

bool dp_rnr_wait(struct dp_rc *, uint8_t syndrome, uint64_t now);
enum dp_wc_status dp_nak_status(uint8_t syndrome);

/* Standard mode: go-back-N. */
int dp_std_tx(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_std_ack(struct dp_rc *, const struct dp_parsed *, uint64_t now);
void dp_std_response(struct dp_rc *, const struct dp_parsed *, uint64_t now);
void dp_std_timeout(struct dp_rc *, uint64_t now);

/* Extended mode: selective repeat. */
void dp_ext_start(struct dp_rc *, uint64_t now);
int dp_ext_tx(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_ext_ack(struct dp_rc *, const struct dp_parsed *, uint64_t now);
void dp_ext_response(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* An acknowledgement that came with a request of the peer. */
void dp_ext_carried_ack(struct dp_rc *, const struct dp_parsed *, const struct dp_xdh *,
			uint64_t now);
void dp_ext_tick(struct dp_rc *, uint64_t now);
/* RTO and tail loss probe, from now on. */
void dp_ext_arm_timers(struct dp_rc *, uint64_t now);

#endif
