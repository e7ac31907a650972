/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What counts as lost: by order and time (RACK), and what draws an acknowledgement out of a
 * silent peer (TLP); RFC 8985. */
#ifndef DP_ENGINE_RC_LOSS_H
#define DP_ENGINE_RC_LOSS_H

#include "engine/rc/scoreboard.h"

/* RFC 8985, section 6.2, steps 1 and 2: the newest delivered packet by sending
 * time. */
void dp_rack_update(struct dp_rc *, uint32_t psn, const struct dp_rec *, uint64_t now);
/* Record `i`, in flight, is to be sent again. */
void dp_mark_lost(struct dp_rc *, uint32_t i);
/* Marks what counts as lost now, tells the algorithm, and sets reorder_ns to the time of the
 * next look. */
void dp_detect_losses(struct dp_rc *, uint64_t now);
/* A switch has cut its payload off, the peer says.  A copy that has only just left
 * is another one than it speaks of (headers travel faster than packets: an eighth of
 * the RTT); so forged reports cost one packet in that time. */
void dp_lose_trimmed(struct dp_rc *, uint32_t psn, bool response, uint64_t now);
/* RFC 8985, section 7.2.  An answer may have to queue behind others at the
 * responder, which the RTT leaves out. */
uint64_t dp_probe_timeout(const struct dp_rc *);
/* RFC 8985, section 7.3: the newest packet once more, to draw an acknowledgement,
 * whatever the window; where an answer is missing, the oldest, since all others
 * wait behind it. */
void dp_probe(struct dp_rc *);
/* All that is missing of what the oldest request packet of a list asked for: it
 * may be that packet that was lost. */
void dp_ask_again(struct dp_rc *, const struct dp_rec_list *flight);

/* The answer for PSN `psn` came without its payload. */
void dp_ext_trimmed(struct dp_rc *, uint32_t psn, uint64_t now);

#endif
