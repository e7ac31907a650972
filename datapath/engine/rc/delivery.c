// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What acknowledgements and responses tell a selective-repeat requester: which packets were
 * delivered, RTT, rate, marks and telemetry for the algorithm, and refusals.
 */
#include "engine/rc/credit.h"
#include "engine/rc/loss.h"
#include "engine/rc/paths.h"
#include "engine/rc/requester.h"
#include "engine/rc/stray.h"

/* A READ may wait at the peer behind others, for any time. */
#define ANY_TIME UINT32_MAX
/* An echo has 32 bits.  If the RTT is longer than this, they do not tell which copy of a packet is
 * answered: the first one is sent again after two RTTs, and may be answered later still. */
#define UNSURE_RTT_NS (1u << 30)
/* Timers are so coarse. */
#define TICK_NS (1u << DP_WHEEL_SHIFT)

/* The delivery of packets by one acknowledgement or response. */
struct delivery {
	uint64_t bytes;
	bool any;
	uint32_t n_hops; /* number of telemetry records that were echoed */
	const uint8_t *hops;
	struct dp_rec newest; /* the delivered packet that was sent last */
	bool sure;	      /* a packet among them was sent but once, or its last copy echoed, */
	uint64_t near_ns;     /* at this time, of the newest; else: as the RTT would have it */
	bool echoed;	      /* the peer echoed when the packet that it answers was sent: */
	uint64_t echo_ns;     /* at this time, or before */
	uint64_t rtt_ns;      /* RTT of the network; 0: no sample */
	uint64_t back_ns;     /* its part in queues on the return path */
	uint64_t host_ns;     /* time that both hosts added... */
	uint64_t held_ns;     /* ...and its part in which a READ waited... */
	uint64_t late_ns;     /* ...and its part in which they were late */
	uint32_t prompt;      /* packets that the peer should have acknowledged at once... */
	uint64_t prompt_ns;   /* ...and how long ago they were sent, in sum */
};

/* ---- delivery -------------------------------------------------------------------------- */

/* The full time of an echo: of the times up to now that have these low bits, the one nearest to
 * `near_ns`.  One that is a little ahead is of now: with a request comes our time plus how long the
 * peer held it by its own clock. */
static uint64_t full_echo(uint32_t echo_ns, uint64_t near_ns, uint64_t now)
{
	uint64_t latest = now + DP_ECHO_AHEAD_NS;
	uint64_t echo = latest - (uint32_t)((uint32_t)latest - echo_ns), back;

	if (echo <= latest && echo > near_ns) {
		back = (echo - near_ns + (1u << 31)) >> 32 << 32;
		if (back <= echo)
			echo -= back;
	}
	return echo < now ? echo : now;
}

/* When the packet was sent that is answered now, if its RTT is as the others'. */
static uint64_t expected_ns(const struct dp_rc *rc, uint32_t hold_ns, uint64_t now)
{
	uint64_t ago = rc->flow->rtt.srtt_ns + hold_ns;

	return ago < now ? now - ago : 0;
}

static void note_sent(struct delivery *d, const struct dp_rec *rec)
{
	if (rec->resent && (uint32_t)rec->sent_ns != (uint32_t)d->echo_ns)
		return;
	if (d->sure && rec->sent_ns <= d->near_ns)
		return;
	d->sure = true;
	d->near_ns = rec->sent_ns;
}

/* Whether the last copy of a retransmitted packet is answered, and not an earlier one.  The peer's
 * echo tells (as in RFC 3522).  Without an echo, an answer within less than an RTT is one to an
 * earlier copy. */
static bool answers_last_copy(const struct dp_rc *rc, const struct dp_rec *rec,
			      const struct delivery *d, uint64_t now)
{
	if (!rec->resent)
		return true;
	if (d->echoed)
		return d->echo_ns >= rec->sent_ns;
	return now - rec->sent_ns >= rc->flow->rtt.min_rtt_ns;
}

static void deliver(struct dp_rc *rc, uint32_t psn, struct delivery *d, uint64_t now)
{
	struct dp_rec *rec = dp_rec_at(rc, psn);
	struct dp_tx_block *b = rc->req.block;

	dp_rec_remove(b, dp_rec_list_of(b, rec), dp_rec_slot(rc, psn));
	if (rec->state == DP_REC_FLIGHT)
		rc->flow->inflight_bytes -= rec->len;
	if (rec->prompt) {
		d->prompt++;
		d->prompt_ns += now - rec->sent_ns;
	}
	rec->state = DP_REC_DONE;
	if (answers_last_copy(rc, rec, d, now))
		dp_rack_update(rc, psn, rec, now);
	note_sent(d, rec);
	d->bytes += rec->len;
	if (b->paths > 1)
		dp_path_delivered(b, rec);
	if (!d->any || rec->sent_ns >= d->newest.sent_ns)
		d->newest = *rec;
	d->any = true;
}

/* The request for a response has arrived: what was sent before it on the path, and has not, is lost. */
static void note_arrived(struct dp_rc *rc, uint32_t psn, struct delivery *d, uint64_t now)
{
	struct dp_rec *rec = dp_rec_at(rc, psn);

	if (rec->state != DP_REC_FLIGHT || rec->arrived || !answers_last_copy(rc, rec, d, now))
		return;
	rec->arrived = true;
	note_sent(d, rec);
	dp_rack_delivered(&rc->req.block->class[rec->path].rack, psn, rec->sent_ns, now);
}

/* Returns whether requests are acknowledged that were not before, even if none is delivered by it:
 * READs and atomics still wait for their answers. */
static bool deliver_cumulative(struct dp_rc *rc, uint32_t upto, struct delivery *d, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	bool news;

	dp_rnr_passed(rc, upto);
	if (dp_psn_diff(r->cum, r->snd_una) < 0)
		r->cum = r->snd_una;
	news = dp_psn_diff(r->cum, upto) < 0;
	for (; dp_psn_diff(r->cum, upto) < 0; r->cum = dp_psn_add(r->cum, 1))
		if (dp_is_outstanding(rc, r->cum, false))
			deliver(rc, r->cum, d, now);
		else if (dp_is_outstanding(rc, r->cum, true))
			note_arrived(rc, r->cum, d, now);
	return news;
}

static void deliver_selective(struct dp_rc *rc, const struct dp_parsed *p, const struct dp_xah *xah,
			      struct delivery *d, uint64_t now)
{
	uint32_t w, word, psn;

	for (w = 0; w < xah->words; w++) {
		for (word = dp_get32(p->sack + 4 * w); word; word &= word - 1) {
			psn = dp_psn_add(xah->sack_base, 32 * w + (uint32_t)__builtin_ctz(word));
			if (dp_is_outstanding(rc, psn, false))
				deliver(rc, psn, d, now);
			else if (dp_is_outstanding(rc, psn, true))
				note_arrived(rc, psn, d, now);
		}
	}
}

/* ---- acknowledgements and responses ----------------------------------------------------------- */

/* draft-cheng-iccrg-delivery-rate-estimation-02, section 3.3 */
static void rate_sample(struct dp_rc *rc, const struct dp_rec *rec, struct dp_cc_ack *ack,
			uint64_t now)
{
	struct dp_flow *f = rc->flow;
	uint64_t send = rec->sent_ns - rec->first_sent_ns, recv = now - rec->delivered_ns;
	uint64_t interval = send > recv ? send : recv;

	f->first_sent_ns = rec->sent_ns;
	f->delivered_ns = now;
	ack->prior_delivered_bytes = (double)rec->delivered;
	ack->app_limited = rec->app_limited;
	if (interval && interval >= f->rtt.min_rtt_ns)
		ack->delivery_rate_bps =
			(double)(f->delivered_bytes - rec->delivered) * 8e9 / (double)interval;
}

/* Moves over delivered packets, up to `end`, and returns the pages behind. */
static void pass_done(struct dp_rc *rc, uint32_t end)
{
	struct dp_requester *r = &rc->req;
	uint32_t passed;

	while (r->snd_una != end && dp_rec_at(rc, r->snd_una)->state == DP_REC_DONE) {
		passed = r->snd_una;
		r->snd_una = dp_psn_add(passed, 1);
		/* in a full window the newest PSNs may lie in the page of the oldest */
		if (dp_rec_slot(rc, r->snd_una) % DP_PAGE_PSNS == 0 &&
		    (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una) + DP_PAGE_PSNS <= rc->window)
			dp_tx_page_put(rc, passed);
	}
}

static void advance(struct dp_rc *rc)
{
	struct dp_requester *r = &rc->req;

	pass_done(rc, r->snd_nxt);
	dp_retire(rc);
	if (r->snd_una == r->snd_nxt)
		dp_tx_release(rc);
}

/* If this answers a packet that was sent before the first time-out of a row, the time-outs were
 * spurious (RFC 3522; RFC 4015 for what follows). */
static void judge_timeouts(struct dp_rc *rc, const struct delivery *d)
{
	if (d->echoed && d->echo_ns < rc->sender->timeout_ns)
		dp_flow_undo_timeout(rc->flow);
	else
		dp_flow_keep_timeout(rc->flow);
	rc->sender->timeout_ns = 0;
}

/* How long a peer that is not late may hold an acknowledgement. */
static uint32_t may_hold_ns(const struct dp_rc *rc)
{
	return (uint32_t)dp_ack_delay_ns(rc->flow->thinning.level) + TICK_NS;
}

/* Takes an RTT sample of the packet that was echoed.  The peer held its answer for `hold_ns` (all
 * ones: that long or longer); it may hold it for `may_ns` and not be late.  An answer cannot arrive
 * before the packet that it answers was sent. */
static void sample_rtt(const struct dp_rc *rc, struct delivery *d, const struct dp_parsed *p,
		       uint32_t hold_ns, uint32_t may_ns, uint64_t now)
{
	uint64_t arrived = dp_arrived(p, now), answered_ns = d->echo_ns + hold_ns;

	if (hold_ns == UINT32_MAX || (!d->sure && rc->flow->rtt.srtt_ns > UNSURE_RTT_NS))
		return;
	if (arrived < answered_ns)
		arrived = now;
	if (arrived <= answered_ns)
		return;
	d->rtt_ns = arrived - answered_ns;
	d->host_ns = now - arrived + hold_ns;
	d->late_ns = now - arrived + (hold_ns > may_ns ? hold_ns - may_ns : 0);
}

/* What is answered waited at the peer for so long, behind others or for a host that stands still. */
static void note_held(struct dp_rc *rc, struct delivery *d, uint32_t hold_ns, uint64_t now)
{
	if (!d->rtt_ns && hold_ns != UINT32_MAX)
		return;
	d->held_ns = hold_ns;
	dp_rtt_held(&rc->flow->rtt, hold_ns, now);
}

/* Cuts the RTT sample in two, if there is one and it is not too long for that: the packet arrived at
 * arrived_ns of the peer's clock. */
static bool cut_rtt(struct dp_rc *rc, struct delivery *d, uint32_t sent_ns, uint32_t arrived_ns,
		    uint64_t now)
{
	if (!d->rtt_ns || d->rtt_ns > INT32_MAX)
		return false;
	d->back_ns = dp_oneway_sample(&rc->flow->oneway, sent_ns, arrived_ns, d->rtt_ns, now);
	return true;
}

/* How late the hosts were, for the average packet that should have been acknowledged at once: a late
 * host reads several at a time, of which the newest has waited least.  Without such a packet, for
 * the newest. */
static uint64_t lateness_ns(const struct delivery *d)
{
	uint64_t under_way = d->rtt_ns + TICK_NS, age;

	if (!d->prompt)
		return d->late_ns;
	age = d->prompt_ns / d->prompt;
	return age > under_way ? age - under_way : 0;
}

static void delivered(struct dp_rc *rc, const struct delivery *d, uint64_t marked_bytes,
		      uint64_t now)
{
	struct dp_requester *r = &rc->req;
	struct dp_cc_ack ack = {
		.rtt_ns = (double)d->rtt_ns,
		.host_ns = (double)d->host_ns,
		.back_ns = (double)d->back_ns,
		.acked_bytes = (double)d->bytes,
		.credit_bytes = dp_credit_left(rc),
	};

	if (d->rtt_ns)
		dp_rtt_sample(&rc->flow->rtt, d->rtt_ns, d->host_ns - d->held_ns, lateness_ns(d),
			      now);
	if (!d->any) {
		dp_detect_losses(rc, now);
		return;
	}
	if (rc->sender->timeout_ns)
		judge_timeouts(rc, d);
	if (rc->sender->asked_ns && d->echoed)
		dp_judge_copies(rc, d->echo_ns < rc->sender->asked_ns);
	rc->sender->asked_ns = 0;
	r->backoff = 0;
	r->probes = 0;
	r->forced = false;
	r->progress_ns = now;
	rc->flow->delivered_bytes += d->bytes;
	rate_sample(rc, &d->newest, &ack, now);
	ack.marked_bytes = (double)(marked_bytes < d->bytes ? marked_bytes : d->bytes);
	dp_detect_losses(rc, now);
	if (d->n_hops && rc->echo) {
		ack.n_hops = d->n_hops;
		dp_flow_hops(&rc->echo->echoed, ack.hop, d->hops, d->n_hops, now);
	}
	if (r->block->paths > 1)
		dp_paths_tell(rc, &ack, d->newest.path, now);
	else
		dp_flow_ack(rc->flow, &ack, now);
	advance(rc);
	if (rc->qp.state != DP_QPS_ERR)
		dp_ext_arm_timers(rc, now);
}

/* Counters that the receiver echoes: new CE marks in bytes; duplicates widen
 * the reordering window (RFC 8985, section 6.2, step 4). */
static uint64_t echoes(struct dp_rc *rc, const struct dp_xah *xah, uint64_t now)
{
	struct dp_sender *s = rc->sender;
	uint32_t marked = xah->marked - s->peer_marked;
	uint32_t duplicates = xah->duplicates - s->peer_duplicates;

	if ((int32_t)marked < 0)
		marked = 0; /* an older acknowledgement overtaken by a newer */
	else
		s->peer_marked = xah->marked;
	if ((int32_t)duplicates > 0) {
		s->peer_duplicates = xah->duplicates;
		s->stats.spurious += duplicates;
		dp_reordering_widen(&s->reordering, &s->flow.rtt, now);
	}
	return (uint64_t)marked * rc->req.segment;
}

/* The connection fails at PSN `psn`, which the peer could not execute, even if the peer told before
 * that the packet had arrived.  Requests before it that are delivered succeed. */
static void end_at(struct dp_rc *rc, uint32_t psn, enum dp_wc_status status)
{
	uint32_t index = dp_rec_at(rc, psn)->wqe;

	pass_done(rc, psn);
	dp_retire(rc);
	dp_fail_send(&rc->qp, index, status);
}

static bool is_fatal(uint8_t syndrome)
{
	return (syndrome & DP_AETH_TYPE_MASK) == DP_AETH_NAK &&
	       (syndrome & DP_AETH_VALUE_MASK) != DP_NAK_PSN_SEQUENCE;
}

/* sent_ns: when the copy that the NAK refuses was sent, or later. */
static void refused(struct dp_rc *rc, const struct dp_parsed *p, uint8_t syndrome, uint64_t sent_ns,
		    uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	unsigned path;

	if ((syndrome & DP_AETH_TYPE_MASK) == DP_AETH_RNR_NAK) {
		if (!dp_is_outstanding(rc, p->psn, false) ||
		    !dp_rnr_wait(rc, p->psn, syndrome, sent_ns, now))
			return;
		/* the peer drops the packets behind it as well */
		for (path = 0; path < b->paths; path++)
			while (b->class[path].flight.head != DP_NIL)
				dp_mark_lost(rc, b->class[path].flight.head);
		rc->req.timer_ns = 0;
		dp_loss_timers_off(rc);
		return;
	}
	rc->sender->stats.naks_rx++;
}

/* Notes the marks by PSN, before the packets count as delivered. */
static void note_marks(struct dp_rc *rc, const struct dp_parsed *p, const struct dp_xah *xah)
{
	uint32_t i, psn;

	for (i = 0; i < xah->n_marked; i++) {
		psn = dp_get32(p->marked + 4 * i) & DP_PSN_MASK;
		if (dp_is_outstanding(rc, psn, false))
			dp_rec_at(rc, psn)->marked = true;
	}
}

void dp_ext_ack(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	uint8_t syndrome = dp_aeth_syndrome(p->aeth);
	bool nak = (syndrome & DP_AETH_TYPE_MASK) != DP_AETH_ACK;
	struct dp_requester *r = &rc->req;
	struct delivery d = { 0 };
	struct dp_xah xah;
	uint64_t marked;
	uint32_t in_flight, upto, i;
	bool news;

	dp_xah_get(p->xah, &xah);
	upto = nak ? p->psn : dp_psn_add(p->psn, 1);
	if (!r->block || dp_psn_diff(upto, r->snd_nxt) > 0)
		return;
	in_flight = r->block->listed;
	note_marks(rc, p, &xah);
	d.echoed = xah.ack_delay_ns != UINT32_MAX;
	d.near_ns = expected_ns(rc, xah.ack_delay_ns, now);
	d.echo_ns = full_echo(xah.ts_echo_ns, d.near_ns, now);
	news = deliver_cumulative(rc, upto, &d, now);
	if (is_fatal(syndrome) && dp_psn_diff(p->psn, r->snd_una) >= 0 &&
	    dp_psn_diff(p->psn, r->snd_nxt) < 0) {
		rc->sender->stats.naks_rx++;
		end_at(rc, p->psn, dp_nak_status(syndrome));
		return;
	}
	deliver_selective(rc, p, &xah, &d, now);
	for (i = 0; i < xah.n_trimmed; i++)
		dp_lose_trimmed(rc, dp_get32(p->trimmed + 4 * i) & DP_PSN_MASK, false, now);
	d.n_hops = xah.n_hops;
	d.hops = p->hops;
	marked = echoes(rc, &xah, now);
	d.echo_ns = full_echo(xah.ts_echo_ns, d.near_ns, now);
	if ((d.any || news) && d.echoed) { /* atomics alone: their answers tell no RTT */
		sample_rtt(rc, &d, p, xah.ack_delay_ns, d.any ? may_hold_ns(rc) : ANY_TIME, now);
		if (!d.any)
			note_held(rc, &d, xah.ack_delay_ns, now);
		if (cut_rtt(rc, &d, xah.ts_echo_ns, xah.arrived_ns, now) && rc->flow->rtt.srtt_ns)
			dp_thinning_sample(&rc->flow->thinning, d.back_ns, rc->flow->rtt.min_rtt_ns,
					   rc->flow->rtt.srtt_ns, in_flight, now);
	}
	delivered(rc, &d, marked, now);
	if (nak && r->block)
		refused(rc, p, syndrome, d.echoed ? d.echo_ns : now, now);
}

void dp_ext_carried_ack(struct dp_rc *rc, const struct dp_parsed *p, const struct dp_xdh *xdh,
			uint64_t now)
{
	uint32_t upto = dp_psn_add(xdh->ack_psn, 1), hold;
	struct delivery d = { .echoed = true };

	if (!rc->req.block || dp_psn_diff(upto, rc->req.snd_nxt) > 0 ||
	    dp_is_stray_echo(rc, xdh->ack_ts_ns, now))
		return;
	d.near_ns = expected_ns(rc, 0, now);
	d.echo_ns = full_echo(xdh->ack_ts_ns, d.near_ns, now);
	deliver_cumulative(rc, upto, &d, now);
	if (!d.any)
		return;
	rc->qp.stats.acks_rx++;
	rc->sender->peer_replies = true;
	/* The echo is of ack_ts_ns, which is the sum of sending time and hold time. */
	hold = xdh->ack_ts_ns - (uint32_t)d.newest.sent_ns;
	if (hold > INT32_MAX)
		hold = 0;
	d.echo_ns = full_echo(xdh->ack_ts_ns - hold, d.near_ns, now);
	sample_rtt(rc, &d, p, hold, may_hold_ns(rc), now);
	cut_rtt(rc, &d, xdh->ack_ts_ns - hold, xdh->ts_ns - hold, now);
	delivered(rc, &d, 0, now);
	dp_requester_wake(rc);
}

void dp_ext_response(struct dp_rc *rc, const struct dp_parsed *p, bool marked, uint64_t now)
{
	struct delivery d = { 0 };
	struct dp_xdh xdh;
	uint32_t index;
	int err;

	if (!rc->req.block || !dp_is_outstanding(rc, p->psn, true)) {
		rc->qp.stats.duplicates++;
		return;
	}
	index = dp_rec_at(rc, p->psn)->wqe;
	err = dp_place_response(rc, dp_sq(&rc->qp, index), p, p->psn);
	if (err) {
		dp_fail_in_turn(rc, index,
				err == -EINVAL ? DP_WC_BAD_RESP_ERR : DP_WC_LOC_PROT_ERR);
		return;
	}
	if (p->xdh) {
		dp_xdh_get(p->xdh, &xdh);
		d.near_ns = expected_ns(rc, xdh.held_ns, now);
		d.echoed = true;
		d.echo_ns = full_echo(xdh.ts_ns, d.near_ns, now);
		note_sent(&d, dp_rec_at(rc, p->psn));
		d.echo_ns = full_echo(xdh.ts_ns, d.near_ns, now);
		sample_rtt(rc, &d, p, xdh.held_ns, ANY_TIME, now);
		note_held(rc, &d, xdh.held_ns, now);
	}
	dp_rec_at(rc, p->psn)->marked = marked;
	deliver(rc, p->psn, &d, now);
	delivered(rc, &d, marked ? d.bytes : 0, now);
}
