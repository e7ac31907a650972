/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which packets count as lost, by order and time (RACK), and the probe that makes a silent peer
 * answer (TLP); RFC 8985. */
#ifndef DP_ENGINE_RC_LOSS_H
#define DP_ENGINE_RC_LOSS_H

#include "engine/rc/scoreboard.h"

/* RFC 8985, section 6.2, steps 1 and 2: the newest delivered packet by sending
 * time. */
void dp_rack_update(struct dp_rc *, uint32_t psn, const struct dp_rec *, uint64_t now);
/* Marks record `i`, which is in flight, to be sent again. */
void dp_mark_lost(struct dp_rc *, uint32_t i);
/* Marks the packets that count as lost now, tells the algorithm, and sets reorder_ns to the time of
 * the next look. */
void dp_detect_losses(struct dp_rc *, uint64_t now);
/* The peer reports that a switch cut off the payload of `psn`.  If our last copy has only just left
 * (less than an eighth of the RTT ago), the report is about an earlier copy, since headers travel
 * faster than packets.  So forged reports cost at most one packet in that time. */
void dp_lose_trimmed(struct dp_rc *, uint32_t psn, bool response, uint64_t now);
/* What is at most one in so many parts of the window may be sent often.  More than that may have been
 * lost in a queue that many flows with small windows fill, and copies add to it. */
#define DP_PROBED_PART 4
/* How little the copies that timers send, probes and those of time-outs, have been worth.  Where a
 * queue is longer than the timers nothing is lost, and copies make the queue longer still.  So each
 * copy in vain adds one, up to DP_CAUTION_MOST, and each that was needed takes one off.  0: copies
 * were needed; probes are repeated, and a thin flow does not double its time-outs.  Otherwise probes
 * count on the longest RTT of late; above DP_CAUTION_LOSS they wait for twice as long with each
 * step.  A QP that has seen neither copies nor losses believes what the engine's QPs have learnt, at
 * first DP_CAUTION_FIRST. */
uint8_t dp_caution(const struct dp_rc *);
/* A timer has sent a copy. */
void dp_note_copy(struct dp_rc *, uint64_t now);
/* Something was delivered after such copies.  in_vain: an answer to what was sent before them.  An
 * answer without an echo, as that of an atomic, tells nothing of them. */
void dp_judge_copies(struct dp_rc *, bool in_vain);
/* RFC 8985, section 7.2, and dp_caution().  Longer while answers queue behind others at the
 * responder, a delay that the RTT does not contain. */
uint64_t dp_probe_timeout(const struct dp_rc *);
/* RFC 8985, section 7.3: sends the newest packet once more, whatever the window, to draw an
 * acknowledgement; where copies are worth it again after twice, four times ... as long, until the
 * time-out, since a probe is lost as easily as any other packet.  Where only a READ's answer is
 * missing it sends the oldest request instead, since all other answers wait behind it, and this
 * once. */
void dp_probe(struct dp_rc *, uint64_t now);
/* The record of the oldest missing answer that was asked for, not known to be lost; DP_NIL: none.  The
 * peer answers in order, so asking for a younger one gets nothing. */
uint32_t dp_oldest_answer(const struct dp_rc *);
/* Asks again for all missing answers to the request packet of record `i`: that request packet itself
 * may be lost. */
void dp_ask_again(struct dp_rc *, uint32_t i);

/* The answer for PSN `psn` arrived without its payload. */
void dp_ext_trimmed(struct dp_rc *, uint32_t psn, uint64_t now);

#endif
