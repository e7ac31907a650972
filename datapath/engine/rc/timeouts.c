// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Time-outs of the extended mode: the measured RTO (RFC 6298), when a silent peer counts as dead,
 * and the timer of the tail loss probe.
 */
#include "engine/rc/loss.h"
#include "engine/rc/negotiate.h"
#include "engine/rc/requester.h"
#include "wire/random.h"

/* Doubling stops at this time-out. */
#define BACKOFF_MAX_NS 1000000000ull
#define STALL_MAX_NS 1500000000ull
/* Time-outs in a row of a thin flow that are not doubled, as Linux has it for TCP. */
#define THIN_TRIES 6
#define DOUBLINGS_MOST 8
/* A READ's wait at the peer adds so many time-outs to the time-out at most. */
#define HELD_MOST 7
/* Times the time-out of a READ.  When nothing has come for so long, an expiry counts as a try although
 * the READ was asked for again: a peer may acknowledge it each time and never answer. */
#define PUT_OFF_MOST 2

/* How long the peer may be silent; 0: without limit. */
static uint64_t patience_ns(const struct dp_rc *rc)
{
	return dp_ib_timeout_ns(rc) * (rc->qp.attr.retry_cnt + 1u);
}

/* The RTO of packets that are acknowledged, before it is doubled. */
static uint64_t first_rto(const struct dp_rc *rc)
{
	return dp_flow_rto(rc->flow, rc->hello_rtt_ns) + dp_flow_thinned_ns(rc->flow);
}

/* The RTO of READs and atomics, which also wait at the peer: behind others, or for a host that
 * stands still.  The hold time counts up to a limit: behind a gap it contains our own time-out. */
static uint64_t first_answer_rto(const struct dp_rc *rc)
{
	uint64_t rto = first_rto(rc), held = rc->flow->rtt.held_ns;

	return rto + (held < HELD_MOST * rto ? held : HELD_MOST * rto);
}

/* Whether all packets in flight are READs and atomics. */
static bool only_answers(const struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;
	unsigned path;

	for (path = 0; b && path < b->paths; path++)
		if (b->class[path].flight.head != DP_NIL)
			return false;
	return b && b->lost.head == DP_NIL;
}

/* Up to a quarter less, different for each QP and each expiry in a row.  QPs whose packets were lost
 * together must not send them again together: where a queue is full, it has room for one. */
static uint64_t scattered(const struct dp_rc *rc, uint64_t rto)
{
	uint64_t any =
		dp_mix64(rc->qp.engine->cfg.seed ^ (uint64_t)rc->qp.qpn << 32 ^ rc->req.backoff);

	return rto - (rto / 4 * (any >> 48) >> 16);
}

/* Whether copies are worth it, and so little is in flight beside the packet that timed out, which
 * is marked as lost by now, a packet's worth and a small part of the window, that to send it again
 * soon is no load.  Requests of READs and atomics are, for they ask for more than they are. */
static bool is_thin(const struct dp_rc *rc)
{
	const struct dp_flow *f = rc->flow;

	return !dp_caution(rc) && f->rtt.srtt_ns && !rc->qp.rd_outstanding &&
	       f->inflight_bytes <= f->mss_bytes &&
	       DP_PROBED_PART * (double)f->inflight_bytes <= dp_flow_cwnd_bytes(f);
}

/* After copies in vain, `first` grows to the probe time-out, at most to `longest`. */
static uint64_t cautious(const struct dp_rc *rc, uint64_t first, uint64_t longest)
{
	uint64_t pto;

	if (dp_caution(rc) <= DP_CAUTION_FIRST)
		return first;
	pto = dp_probe_timeout(rc);
	if (pto > longest)
		pto = longest;
	return pto > first ? pto : first;
}

/* The RTO, doubled with each expiry in a row; of a thin flow not with the first ones.  The doubling
 * stops early enough for dp_tries() time-outs within the time that the QP's attributes grant.  While
 * the RTT is not known, the second half of these time-outs may grow to the IB time-out: the path may
 * be so long that all of them would fit into a few round trips. */
static uint64_t time_out(const struct dp_rc *rc)
{
	bool long_path = !rc->flow->rtt.srtt_ns && !rc->hello_rtt_ns &&
			 rc->req.backoff >= dp_tries(rc) / 2;
	uint64_t first = only_answers(rc) ? first_answer_rto(rc) : first_rto(rc),
		 longest = long_path ? dp_ib_timeout_ns(rc) : patience_ns(rc) / dp_tries(rc), rto;
	uint32_t doublings;

	if (!longest || longest > BACKOFF_MAX_NS)
		longest = BACKOFF_MAX_NS;
	first = cautious(rc, first, longest);
	doublings = rc->req.backoff;
	if (doublings && is_thin(rc))
		doublings = doublings > THIN_TRIES ? doublings - THIN_TRIES : 0;
	rto = first << (doublings < DOUBLINGS_MOST ? doublings : DOUBLINGS_MOST);
	if (rto > longest)
		rto = first > longest ? first : longest;
	return rc->req.backoff ? scattered(rc, rto) : rto;
}

void dp_ext_arm_timers(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint64_t rto = time_out(rc), pto = dp_probe_timeout(rc);

	if (r->snd_una == r->snd_nxt) {
		r->timer_ns = 0;
		dp_loss_timers_off(rc);
		return;
	}
	r->timer_ns = now + rto;
	rc->sender->tlp_ns = rc->flow->rtt.srtt_ns && !r->probes && pto < rto ? now + pto : 0;
}

bool dp_ext_time_sent(struct dp_rc *rc, bool response, uint64_t now)
{
	/* The first packet that is acknowledged does not wait for as long as the READs before. */
	if (!rc->req.timer_ns || (!response && rc->req.timer_ns > now + time_out(rc))) {
		dp_ext_arm_timers(rc, now);
		return false;
	}
	if (!rc->req.probes && rc->flow->rtt.srtt_ns)
		rc->sender->tlp_ns = now + dp_probe_timeout(rc); /* RFC 8985, section 7.2 */
	return !response;
}

/* A host of virtual CPUs stands still now and then.  So the peer gets more time than the attributes
 * grant; the standard allows four times as much (IBTA vol. 1, section 9.7.6.1.3). */
static uint64_t stall_ns(uint64_t patience)
{
	return 3 * patience < STALL_MAX_NS ? 3 * patience : STALL_MAX_NS;
}

/* Whether the peer counts as dead: nothing has come through for the time that the attributes grant
 * and that of a stall, in any number of tries.  The tries allow for loss: with retry_cnt 7 and 30 %
 * loss in each direction, all of 32 round trips fail once in 2 * 10^9 times.  A peer that replies to
 * HELLOs lives: other flows may keep a queue so full that it takes only small packets.  Such a peer
 * counts as dead much later, for the path may have got a smaller MTU. */
static bool peer_is_dead(const struct dp_rc *rc, uint64_t now)
{
	uint64_t patience = patience_ns(rc), progress = rc->req.progress_ns,
		 heard = rc->sender->heard_ns;

	if (!patience || rc->req.backoff < dp_tries(rc) ||
	    now < progress + patience + stall_ns(patience))
		return false;
	if (heard > progress && now < heard + patience)
		return now >= progress + DP_STARVED * patience;
	return true;
}

/* Sends only the oldest packet again, whatever the window; the others still count as in flight.
 * Its acknowledgement tells which of them are lost.  So a spurious time-out, because a host stood
 * still or a queue is long, costs a packet and not a window. */
static void timeout(struct dp_rc *rc, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t oldest = dp_oldest_answer(rc);
	uint64_t due = 0;
	bool first = !rc->req.backoff;
	unsigned path;

	if (oldest != DP_NIL)
		due = dp_rec(b, oldest)->sent_ns + first_answer_rto(rc);
	if (now < due && only_answers(rc) &&
	    now < rc->req.progress_ns + PUT_OFF_MOST * first_answer_rto(rc)) {
		rc->req.timer_ns = due; /* asked for again a short time ago: no try yet */
		return;
	}
	if (peer_is_dead(rc, now)) {
		rc->sender->stats.timeouts++;
		dp_fail_send(&rc->qp, rc->qp.sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	for (path = 0; path < b->paths; path++)
		if (b->class[path].flight.head != DP_NIL)
			dp_mark_lost(rc, b->class[path].flight.head);
	if (oldest != DP_NIL && now >= due)
		dp_ask_again(rc, oldest);
	rc->sender->stats.timeouts++;
	if (first)
		rc->sender->timeout_ns = now;
	dp_note_copy(rc, now);
	if (rc->req.backoff < UINT16_MAX)
		rc->req.backoff++;
	if (rc->req.backoff > dp_tries(rc) / 2)
		dp_hello_once(rc, now);
	rc->req.forced = true;
	dp_flow_timeout(rc->flow, first, now);
	dp_ext_arm_timers(rc, now);
	rc->sender->tlp_ns = 0;
}

void dp_ext_tick(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;

	if (!r->block || !rc->sender)
		return;
	if (dp_has_expired(rc, rc->sender->reorder_ns, now))
		dp_detect_losses(rc, now);
	if (dp_has_expired(rc, rc->sender->tlp_ns, now))
		dp_probe(rc, now);
	if (!r->timer_ns && r->snd_una != r->snd_nxt)
		dp_ext_arm_timers(rc, now); /* after the wait for a receiver that was not ready */
	if (dp_has_expired(rc, r->timer_ns, now))
		timeout(rc, now);
}
