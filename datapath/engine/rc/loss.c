// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/loss.h"

uint8_t dp_caution(const struct dp_rc *rc)
{
	return rc->sender->judged ? rc->sender->caution : rc->qp.engine->caution;
}

static uint8_t revised(uint8_t caution, bool in_vain)
{
	if (in_vain)
		return caution < DP_CAUTION_MOST ? caution + 1 : caution;
	return caution ? caution - 1 : 0;
}

void dp_note_copy(struct dp_rc *rc, uint64_t now)
{
	if (!rc->sender->asked_ns)
		rc->sender->asked_ns = now;
}

void dp_judge_copies(struct dp_rc *rc, bool in_vain)
{
	struct dp_sender *s = rc->sender;
	struct dp_engine *e = rc->qp.engine;

	s->caution = revised(dp_caution(rc), in_vain);
	s->judged = true;
	e->caution = revised(e->caution, in_vain);
}

/* How long nothing may come before it tells of a loss. */
static uint64_t silence_ns(const struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;
	uint64_t slowest = 0;
	uint64_t held = dp_ack_delay_ns(rc->flow->thinning.level);
	unsigned kind;

	if (rc->sender->peer_replies && held < DP_REPLY_HOLD_NS)
		held = DP_REPLY_HOLD_NS;
	for (kind = 0; b && kind < dp_classes(b); kind++)
		if (b->class[kind].rack.rtt_ns > slowest)
			slowest = b->class[kind].rack.rtt_ns;
	if (dp_caution(rc) && rc->flow->rtt.peak_ns > slowest)
		slowest = rc->flow->rtt.peak_ns;
	return dp_tlp_timeout(&rc->flow->rtt, slowest, held);
}

uint64_t dp_probe_timeout(const struct dp_rc *rc)
{
	unsigned caution = dp_caution(rc);

	return silence_ns(rc) << (caution > DP_CAUTION_LOSS ? caution - DP_CAUTION_LOSS : 0);
}

/* ---- RACK ---- */

void dp_rack_update(struct dp_rc *rc, uint32_t psn, const struct dp_rec *rec, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;

	if (!rec->response && rec->sent_ns > b->xmit_ns)
		b->xmit_ns = rec->sent_ns;
	dp_rack_delivered(&b->class[dp_class_of(b, rec)].rack, psn, rec->sent_ns, now);
}

void dp_mark_lost(struct dp_rc *rc, uint32_t i)
{
	struct dp_tx_block *b = rc->req.block;
	struct dp_rec *rec = dp_rec(b, i);

	dp_rec_remove(b, dp_rec_list_of(b, rec), i);
	rc->flow->inflight_bytes -= rec->len;
	rec->state = DP_REC_LOST;
	dp_rec_append(b, &b->lost, i);
}

/* Marks record `i` as lost, and adds it to the loss that the algorithm is told. */
static void lose(struct dp_rc *rc, struct dp_cc_loss *loss, uint32_t i)
{
	const struct dp_rec *rec = dp_rec(rc->req.block, i);

	if (!loss->lost_bytes)
		loss->prior_delivered_bytes = (double)rec->delivered;
	loss->path = rec->path;
	loss->lost_bytes += rec->len ? rec->len : 1; /* an empty message is a loss as well */
	dp_mark_lost(rc, i);
}

/* Whether the request for a response has not arrived, while a packet that left later on its path has.
 * The acknowledgement that it has may come late, behind answers. */
static bool request_overtaken(const struct dp_rc *rc, const struct dp_rec *rec, uint32_t psn)
{
	return rec->response && !rec->arrived && dp_psn_diff(psn, rc->req.cum) >= 0 &&
	       dp_rack_overtook(&rc->req.block->class[rec->path].rack, psn, rec->sent_ns);
}

/* When the oldest packet of a class counts as lost; DP_NEVER: not known yet.  A READ that was asked
 * for again counts as lost after a probe time-out, too: few answers come behind it that could show
 * that it is late.  In a row of time-outs these alone ask again, ever more rarely. */
static uint64_t due_ns(const struct dp_rc *rc, const struct dp_class *c, uint32_t i)
{
	const struct dp_tx_block *b = rc->req.block;
	const struct dp_rec *rec = dp_rec(b, i);
	uint32_t psn = dp_rec_psn(rc, i);

	if (request_overtaken(rc, rec, psn))
		return dp_rack_due(&b->class[rec->path].rack, rec->sent_ns,
				   rc->flow->rtt.srtt_ns + 4 * rc->flow->rtt.rttvar_ns);
	if (dp_rack_overtook(&c->rack, psn, rec->sent_ns))
		return dp_rack_due(&c->rack, rec->sent_ns,
				   dp_reordering_window(&rc->sender->reordering, &rc->flow->rtt));
	if (dp_class_of(b, rec) == b->paths + 1 && rc->flow->rtt.srtt_ns && !rc->req.backoff)
		return rec->sent_ns + dp_probe_timeout(rc);
	/* Another path has made progress since: this one may be dead. */
	if (b->paths > 1 && !rec->response && rec->sent_ns < b->xmit_ns)
		return rec->sent_ns + silence_ns(rc);
	return DP_NEVER;
}

/* Takes off a class the packets that count as lost now. */
static struct dp_cc_loss detect(struct dp_rc *rc, struct dp_class *c, uint64_t now)
{
	struct dp_cc_loss loss = { 0 };
	uint64_t due;
	uint32_t i;

	while ((i = c->flight.head) != DP_NIL) {
		due = due_ns(rc, c, i);
		if (due == DP_NEVER)
			break;
		if (due > now) {
			if (!rc->sender->reorder_ns || due < rc->sender->reorder_ns)
				rc->sender->reorder_ns = due;
			break;
		}
		lose(rc, &loss, i);
		rc->sender->stats.fast_retransmits++;
	}
	return loss;
}

/* A QP that has sent no copies knows now that its path loses packets. */
static void learn_of_loss(struct dp_rc *rc)
{
	if (rc->sender->judged || dp_caution(rc) <= DP_CAUTION_LOSS)
		return;
	rc->sender->judged = true;
	rc->sender->caution = DP_CAUTION_LOSS;
}

void dp_detect_losses(struct dp_rc *rc, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	struct dp_cc_loss loss;
	unsigned kind;

	rc->sender->reorder_ns = 0;
	for (kind = 0; b && kind < dp_classes(b); kind++) {
		loss = detect(rc, &b->class[kind], now);
		if (!loss.lost_bytes)
			continue;
		learn_of_loss(rc);
		dp_reordering_narrow(&rc->sender->reordering, &rc->flow->rtt, now);
		dp_flow_loss(rc->flow, &loss, now);
		dp_qp_wake(&rc->qp);
	}
}

void dp_lose_trimmed(struct dp_rc *rc, uint32_t psn, bool response, uint64_t now)
{
	struct dp_cc_loss loss = { .trimmed = 1 };
	const struct dp_rec *rec;

	if (!dp_is_outstanding(rc, psn, response))
		return;
	rec = dp_rec_at(rc, psn);
	if (rec->state != DP_REC_FLIGHT || now - rec->sent_ns < rc->flow->rtt.min_rtt_ns / 8)
		return;
	lose(rc, &loss, dp_rec_slot(rc, psn));
	rc->sender->stats.fast_retransmits++;
	dp_flow_loss(rc->flow, &loss, now);
	dp_qp_wake(&rc->qp);
}

void dp_ext_trimmed(struct dp_rc *rc, uint32_t psn, uint64_t now)
{
	if (rc->req.block)
		dp_lose_trimmed(rc, psn, true, now);
}

/* ---- tail loss probes ---- */

uint32_t dp_oldest_answer(const struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;
	uint32_t una = rc->req.snd_una, asked_once;
	const struct dp_rec *oldest;

	if (una == rc->req.snd_nxt)
		return DP_NIL;
	oldest = dp_rec_at(rc, una);
	if (oldest->response)
		return oldest->state == DP_REC_FLIGHT ? dp_rec_slot(rc, una) : DP_NIL;
	asked_once = b->class[b->paths].flight.head;
	return asked_once != DP_NIL ? asked_once : b->class[b->paths + 1].flight.head;
}

/* Whether the answer for a PSN is missing that the same request packet asked for. */
static bool asked_with(const struct dp_rc *rc, uint32_t psn, uint64_t sent_ns, uint32_t wqe)
{
	const struct dp_rec *rec;

	if (psn == rc->req.snd_nxt)
		return false;
	rec = dp_rec_at(rc, psn);
	return rec->state == DP_REC_FLIGHT && rec->sent_ns == sent_ns && rec->wqe == wqe;
}

void dp_ask_again(struct dp_rc *rc, uint32_t i)
{
	const struct dp_rec *rec = dp_rec(rc->req.block, i);
	uint32_t psn = dp_rec_psn(rc, i), wqe = rec->wqe;
	uint64_t sent_ns = rec->sent_ns;
	unsigned n = 0;

	do {
		dp_mark_lost(rc, dp_rec_slot(rc, psn));
		psn = dp_psn_add(psn, 1);
	} while (++n < DP_READ_CHUNK && asked_with(rc, psn, sent_ns, wqe));
}

/* The newest packet in flight, over all paths, that an acknowledgement confirms. */
static uint32_t newest_acked(const struct dp_tx_block *b)
{
	uint32_t newest = DP_NIL, i;
	unsigned path;

	for (path = 0; path < b->paths; path++) {
		i = b->class[path].flight.tail;
		if (i != DP_NIL &&
		    (newest == DP_NIL || dp_rec(b, i)->sent_ns >= dp_rec(b, newest)->sent_ns))
			newest = i;
	}
	return newest;
}

void dp_probe(struct dp_rc *rc, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t newest = newest_acked(b), oldest = dp_oldest_answer(rc);
	uint64_t next;

	rc->sender->tlp_ns = 0;
	if (b->lost.head != DP_NIL || (newest == DP_NIL && oldest == DP_NIL))
		return;
	rc->req.probes++;
	rc->req.forced = true;
	rc->sender->stats.probes++;
	dp_note_copy(rc, now);
	if (newest == DP_NIL) {
		dp_ask_again(rc, oldest);
		return;
	}
	next = now + (dp_probe_timeout(rc) << rc->req.probes);
	if (!dp_caution(rc) && next < rc->req.timer_ns &&
	    DP_PROBED_PART * dp_rec(b, newest)->len <= dp_flow_cwnd_bytes(rc->flow))
		rc->sender->tlp_ns = next;
	dp_mark_lost(rc, newest);
}
