/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The requester: functions that both modes share, and those of each mode. */
#ifndef DP_ENGINE_RC_REQUESTER_H
#define DP_ENGINE_RC_REQUESTER_H

#include "engine/rc/rc.h"

void dp_requester_start(struct dp_rc *, uint64_t now);
void dp_requester_reset(struct dp_rc *);
/* The flow of a QP that has sent nothing, as its record would have it.  0 or -ENOMEM. */
int dp_first_flow(const struct dp_rc *, struct dp_cc_flow *out);
/* Builds packets, `max` at most.  Returns how many; 0: nothing to send now. */
int dp_requester_tx(struct dp_rc *, struct dp_packet *, int max, uint64_t now);
/* marked: the packet came with CE. */
void dp_requester_rx(struct dp_rc *, const struct dp_parsed *, bool marked, uint64_t now);
void dp_requester_tick(struct dp_rc *, uint64_t now);
/* Gives the unsent part of a request its PSNs, behind those of the request before. */
void dp_number(struct dp_rc *, struct dp_swqe *);

/* Whether a time has passed by which the peer should have answered, and all packets that had
 * arrived by then are known.  at_ns 0: no such time. */
static inline bool dp_has_expired(const struct dp_rc *rc, uint64_t at_ns, uint64_t now)
{
	return at_ns && now >= at_ns && rc->qp.engine->heard_ns >= at_ns;
}

/* Puts the QP in the transmit list if it has a request to send. */
void dp_requester_wake(struct dp_rc *);
/* Payload bytes that PSN `psn` of the request carries. */
uint32_t dp_payload_of(const struct dp_rc *, const struct dp_swqe *, uint32_t psn);
/* Whether the next unsent request may start now: fence and READ limit. */
bool dp_may_start(const struct dp_rc *, const struct dp_swqe *);
/* Whether mode or segment have to change.  Until then nothing new is sent. */
bool dp_is_changing(const struct dp_rc *);
/* Completes the requests below snd_una. */
void dp_retire(struct dp_rc *);
/* Index of the first request that may not be sent now: the end of the send queue, or in SQD the
 * first request that has not begun. */
uint32_t dp_send_limit(const struct dp_rc *);
/* Places the answer to PSN `psn` of a READ or atomic.  -EINVAL: the answer has the wrong length;
 * -EFAULT: local memory cannot be reached. */
int dp_place_response(struct dp_rc *, const struct dp_swqe *, const struct dp_parsed *,
		      uint32_t psn);
/* Request `index` cannot go on: fails it once it is the oldest, for those before it may still succeed.
 * Always returns 0. */
int dp_fail_in_turn(struct dp_rc *, uint32_t index, enum dp_wc_status);
uint64_t dp_ib_timeout_ns(const struct dp_rc *);

/* Time-outs in a row before the peer may count as dead. */
static inline uint32_t dp_tries(const struct dp_rc *rc)
{
	return DP_TRIES * (rc->qp.attr.retry_cnt + 1u);
}

/* An RNR NAK has come for PSN `psn`: the peer had no receive posted.  sent_ns: when the copy that it
 * refuses was sent, or later.  True: a wait begins. */
bool dp_rnr_wait(struct dp_rc *, uint32_t psn, uint8_t syndrome, uint64_t sent_ns, uint64_t now);
/* The peer expects PSN `psn`, or a later one. */
void dp_rnr_passed(struct dp_rc *, uint32_t psn);
enum dp_wc_status dp_nak_status(uint8_t syndrome);

/* Standard mode: go-back-N. */
int dp_std_tx(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_std_ack(struct dp_rc *, const struct dp_parsed *, uint64_t now);
void dp_std_response(struct dp_rc *, const struct dp_parsed *, bool marked, uint64_t now);
void dp_std_timeout(struct dp_rc *, uint64_t now);

/* Extended mode: selective repeat. */
void dp_ext_start(struct dp_rc *, uint64_t now);
int dp_ext_tx(struct dp_rc *, struct dp_packet *, int max, uint64_t now);
void dp_ext_ack(struct dp_rc *, const struct dp_parsed *, uint64_t now);
void dp_ext_response(struct dp_rc *, const struct dp_parsed *, bool marked, uint64_t now);
/* Handles an acknowledgement that came with a request of the peer. */
void dp_ext_carried_ack(struct dp_rc *, const struct dp_parsed *, const struct dp_xdh *,
			uint64_t now);
void dp_ext_tick(struct dp_rc *, uint64_t now);
/* Restarts RTO and tail loss probe. */
void dp_ext_arm_timers(struct dp_rc *, uint64_t now);
/* Starts these timers for a packet that was sent.  Returns whether they need no change for others that
 * leave at the same time. */
bool dp_ext_time_sent(struct dp_rc *, bool response, uint64_t now);

#endif
