// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requester of the extended mode: one record per PSN in flight, selective
 * acknowledgements, loss detection by order and time (RACK-TLP, RFC 8985) and
 * a measured time-out (RFC 6298).
 *
 * A record goes NONE -> FLIGHT -> DONE, over LOST and back to FLIGHT when it
 * has to be sent again.  FLIGHT records hang in a list by sending time, one
 * for each class of struct dp_rack; LOST records in one in the order in which they were
 * found.
 */
#include "core/internal.h"

/* Slack of the probe time-out beyond the receiver's delay. */
#define TLP_SLACK_NS 50000ull
/* Time-outs in a row after each of which only the oldest packet is sent again. */
#define LONE_TIMEOUTS 3

/* What one acknowledgement or response delivered. */
struct delivery {
	uint64_t bytes;
	bool any;
	uint32_t n_hops; /* of telemetry echoed */
	const uint8_t *hops;
	struct dp_rec newest; /* by sending time */
	bool echoed;	      /* the peer tells when what it answers was sent: */
	uint32_t echo_ns;     /* then, or before */
};

/* ---- records and lists -------------------------------------------------------- */

static uint32_t slot(const struct dp_qp *qp, uint32_t psn)
{
	return psn & (qp->window - 1);
}

static struct dp_rec *rec_at(const struct dp_qp *qp, uint32_t psn)
{
	return &qp->req.block->rec[slot(qp, psn)];
}

static uint32_t psn_of(const struct dp_qp *qp, uint16_t index)
{
	uint32_t una = qp->req.snd_una;

	return dp_psn_add(una, (index - una) & (qp->window - 1));
}

static void list_append(struct dp_tx_block *b, struct dp_rec_list *l, uint16_t i)
{
	b->rec[i].prev = l->tail;
	b->rec[i].next = DP_NIL;
	if (l->tail == DP_NIL)
		l->head = i;
	else
		b->rec[l->tail].next = i;
	l->tail = i;
}

static void list_remove(struct dp_tx_block *b, struct dp_rec_list *l, uint16_t i)
{
	uint16_t prev = b->rec[i].prev, next = b->rec[i].next;

	if (prev == DP_NIL)
		l->head = next;
	else
		b->rec[prev].next = next;
	if (next == DP_NIL)
		l->tail = prev;
	else
		b->rec[next].prev = prev;
}

static unsigned classes(const struct dp_tx_block *b)
{
	return b->paths + 2;
}

static unsigned class_of(const struct dp_tx_block *b, const struct dp_rec *rec)
{
	return rec->response ? b->paths + rec->resent : rec->path;
}

static struct dp_rec_list *list_of(struct dp_tx_block *b, const struct dp_rec *rec)
{
	return rec->state == DP_REC_LOST ? &b->lost : &b->rack[class_of(b, rec)].flight;
}

static bool block_get(struct dp_qp *qp)
{
	struct dp_tx_block *b = dp_pool_get(&qp->engine->store->tx);
	unsigned kind;

	if (!b)
		return false;
	b->paths = dp_paths(qp);
	b->xmit_ns = b->delivered = 0;
	b->lost.head = b->lost.tail = DP_NIL;
	for (kind = 0; kind < classes(b); kind++)
		b->rack[kind] = (struct dp_rack){ .flight = b->lost };
	qp->req.block = b;
	return true;
}

void dp_ext_start(struct dp_qp *qp, uint64_t now)
{
	uint64_t delivered = qp->flow.delivered_bytes; /* counts on from the standard mode */
	struct dp_requester *r = &qp->req;

	qp->extended = true;
	r->cum = r->snd_una;
	r->timer_ns = 0;
	r->progress_ns = now;
	dp_flow_connect(qp, now);
	qp->flow.delivered_bytes = delivered;
}

/* ---- timers ---------------------------------------------------------------------- */

/* RFC 8985, section 7.2.  An answer may have to queue behind others at the
 * responder, which the RTT leaves out. */
static uint64_t probe_timeout(const struct dp_qp *qp)
{
	const struct dp_tx_block *b = qp->req.block;
	uint64_t wait = qp->flow.srtt_ns;
	unsigned kind;

	for (kind = 0; b && kind < classes(b); kind++)
		if (b->rack[kind].rtt_ns > wait)
			wait = b->rack[kind].rtt_ns;
	return 2 * wait + DP_ACK_DELAY_NS + TLP_SLACK_NS;
}

static void arm_timers(struct dp_qp *qp, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	uint64_t rto = dp_flow_rto(qp) << (r->backoff < 6 ? r->backoff : 6);
	uint64_t pto = probe_timeout(qp);

	if (r->snd_una == r->snd_nxt) {
		r->timer_ns = r->tlp_ns = r->reorder_ns = 0;
		return;
	}
	if (rto > DP_RTO_MAX_NS)
		rto = DP_RTO_MAX_NS;
	r->timer_ns = now + rto;
	r->tlp_ns = qp->flow.srtt_ns && !r->tlp_sent && pto < rto ? now + pto : 0;
}

/* ---- transmit ------------------------------------------------------------------------ */

/* The algorithm's, or one after the other; what was lost on one path then takes
 * another. */
static void choose_path(struct dp_qp *qp)
{
	double chosen = qp->flow.record->next_path;
	uint32_t paths = dp_paths(qp);

	if (chosen >= 0 && chosen < paths)
		qp->req.path = (uint8_t)chosen;
	else
		qp->req.path = (uint8_t)((qp->req.path + 1u) % paths);
}

static void record_sent(struct dp_qp *qp, uint32_t psn, uint32_t wqe, uint16_t len, bool response,
			uint64_t now)
{
	struct dp_rec *rec = rec_at(qp, psn);
	bool resent = rec->state == DP_REC_LOST && dp_psn_diff(psn, qp->req.snd_nxt) < 0;

	*rec = (struct dp_rec){
		.sent_ns = now,
		.delivered = qp->flow.delivered_bytes,
		.delivered_ns = qp->flow.delivered_ns,
		.first_sent_ns = qp->flow.first_sent_ns,
		.wqe = wqe,
		.len = len,
		.state = DP_REC_FLIGHT,
		.response = response,
		.path = qp->req.path,
		.resent = resent,
		.app_limited = qp->flow.app_limited_at > qp->flow.delivered_bytes,
	};
	list_append(qp->req.block, list_of(qp->req.block, rec), (uint16_t)slot(qp, psn));
}

static int resend(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	struct dp_tx_block *b = qp->req.block;
	uint32_t psn = psn_of(qp, b->lost.head), n = 0, index;
	struct dp_rec *rec = &b->rec[b->lost.head];
	bool read, response = rec->response;
	uint32_t bytes = 0;
	uint16_t len;

	if (!qp->req.forced && !dp_flow_allows(qp, rec->len, now))
		return 0;
	qp->req.forced = false;
	choose_path(qp);
	if (qp->req.path == rec->path && qp->flow.record->next_path < 0)
		choose_path(qp);
	index = rec->wqe;
	read = dp_sq(qp, index)->opcode == DP_WR_RDMA_READ;
	do { /* neighbouring PSNs of a READ are asked for together */
		len = rec->len;
		bytes += len;
		list_remove(b, &b->lost, (uint16_t)slot(qp, dp_psn_add(psn, n)));
		record_sent(qp, dp_psn_add(psn, n), index, len, response, now);
		rec = rec_at(qp, dp_psn_add(psn, ++n));
	} while (read && n < DP_READ_CHUNK &&
		 dp_psn_diff(dp_psn_add(psn, n), qp->req.snd_nxt) < 0 &&
		 rec->state == DP_REC_LOST && rec->wqe == index);
	if (dp_build_request(qp, dp_sq(qp, index), psn, n, true, pkt, now)) {
		dp_fail_send(qp, index, DP_WC_LOC_PROT_ERR);
		return 0;
	}
	dp_flow_sent(qp, bytes, now);
	if (!qp->req.timer_ns)
		arm_timers(qp, now);
	qp->stats.tx_packets++;
	qp->stats.tx_bytes += read ? 0 : bytes;
	qp->stats.retransmits++;
	return 1;
}

/* How many PSNs of the request may go now: one, or a chunk of a READ. */
static uint32_t allowance(struct dp_qp *qp, const struct dp_swqe *wqe, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	uint32_t index, left, room, n = 1, bytes;

	index = (uint32_t)dp_psn_diff(r->snd_nxt, wqe->first_psn);
	if (!index && !wqe->base && !dp_may_start(qp, wqe))
		return 0;
	room = qp->window - (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una);
	left = wqe->n_psn - index;
	bytes = wqe->len - dp_offset_of(qp, wqe, r->snd_nxt);
	if (wqe->opcode == DP_WR_RDMA_READ) {
		n = left < DP_READ_CHUNK ? left : DP_READ_CHUNK;
		n = n < room ? n : room;
		while (n > DP_READ_CHUNK / 4 &&
		       (double)qp->flow.inflight_bytes + (double)n * r->segment >
			       qp->flow.record->cwnd_bytes)
			n /= 2; /* no smaller: each costs a request packet */
	}
	if (!room)
		return 0;
	if (bytes > n * r->segment)
		bytes = n * r->segment;
	return dp_flow_allows(qp, bytes, now) ? n : 0;
}

static bool wants_ack(const struct dp_qp *qp, const struct dp_swqe *wqe, uint32_t n)
{
	const struct dp_requester *r = &qp->req;
	uint32_t after = dp_psn_add(r->snd_nxt, n);

	if (after == dp_psn_add(wqe->first_psn, wqe->n_psn))
		return true;
	return r->since_ack_req + 1 >= DP_EXT_ACK_EVERY ||
	       (uint32_t)dp_psn_diff(after, r->snd_una) + 1 >= qp->window ||
	       (double)(qp->flow.inflight_bytes + 2 * r->segment) > qp->flow.record->cwnd_bytes;
}

static void account(struct dp_qp *qp, struct dp_swqe *wqe, uint32_t n, bool ack_req, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	bool response = dp_is_answered(wqe->opcode);
	uint32_t i, bytes = 0, psn;
	uint16_t len;

	if (response && !wqe->started) {
		wqe->started = true;
		r->rd_outstanding++;
	}
	for (i = 0; i < n; i++) {
		psn = dp_psn_add(r->snd_nxt, i);
		len = (uint16_t)dp_payload_of(qp, wqe, psn);
		bytes += len;
		rec_at(qp, psn)->state = DP_REC_NONE;
		record_sent(qp, psn, qp->sq_tx, len, response, now);
	}
	if (r->snd_una == r->snd_nxt)
		r->progress_ns = now;
	r->snd_nxt = r->snd_max = dp_psn_add(r->snd_nxt, n);
	if (r->snd_nxt == dp_psn_add(wqe->first_psn, wqe->n_psn))
		qp->sq_tx++;
	r->since_ack_req = ack_req ? 0 : r->since_ack_req + 1;
	dp_flow_sent(qp, bytes, now);
	if (!r->timer_ns || (!r->tlp_ns && !r->tlp_sent && qp->flow.srtt_ns))
		arm_timers(qp, now);
	qp->stats.tx_packets++;
	qp->stats.tx_bytes += response ? 0 : bytes;
}

int dp_ext_tx(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	struct dp_swqe *wqe;
	bool ack_req;
	uint32_t n;

	if (r->block && r->block->lost.head != DP_NIL)
		return resend(qp, pkt, now);
	if (qp->sq_tx == dp_send_limit(qp)) {
		qp->flow.app_limited_at = qp->flow.delivered_bytes + qp->flow.inflight_bytes + 1;
		return 0;
	}
	if (dp_is_changing(qp))
		return 0;
	wqe = dp_sq(qp, qp->sq_tx);
	n = allowance(qp, wqe, now);
	if (!n)
		return 0;
	if (!r->block && !block_get(qp)) {
		dp_fail_send(qp, qp->sq_tx, DP_WC_LOC_QP_OP_ERR);
		return 0;
	}
	choose_path(qp);
	ack_req = wants_ack(qp, wqe, n);
	if (dp_build_request(qp, wqe, r->snd_nxt, n, ack_req, pkt, now))
		return dp_local_fault(qp);
	account(qp, wqe, n, ack_req, now);
	return 1;
}

/* ---- delivery -------------------------------------------------------------------------- */

/* Of a packet sent again, whether the last copy is answered and not one before it:
 * by the peer's echo as in RFC 3522, or else because it takes an RTT. */
static bool answers_last_copy(const struct dp_qp *qp, const struct dp_rec *rec,
			      const struct delivery *d, uint64_t now)
{
	if (!rec->resent)
		return true;
	if (d->echoed)
		return (int32_t)(d->echo_ns - (uint32_t)rec->sent_ns) >= 0;
	return now - rec->sent_ns >= qp->flow.min_rtt_ns;
}

/* RFC 8985, section 6.2, steps 1 and 2: the newest delivered packet by sending
 * time. */
static void rack_update(struct dp_qp *qp, uint32_t psn, const struct dp_rec *rec, uint64_t now)
{
	struct dp_tx_block *b = qp->req.block;
	struct dp_rack *rack = &b->rack[class_of(b, rec)];

	if (rec->sent_ns < rack->xmit_ns ||
	    (rec->sent_ns == rack->xmit_ns && dp_psn_diff(psn, rack->psn) < 0 && rack->rtt_ns))
		return;
	if (!rec->response && rec->sent_ns > b->xmit_ns)
		b->xmit_ns = rec->sent_ns;
	rack->xmit_ns = rec->sent_ns;
	rack->psn = psn;
	rack->rtt_ns = now - rec->sent_ns;
}

static void note_path(struct dp_tx_block *b, const struct dp_rec *rec)
{
	struct dp_path_bytes *bytes = &b->bytes[rec->path];
	uint64_t bit = 1ull << rec->path;

	if (!(b->delivered & bit))
		*bytes = (struct dp_path_bytes){ 0 };
	b->delivered |= bit;
	bytes->acked += rec->len;
	bytes->marked += rec->marked ? rec->len : 0;
}

static void deliver(struct dp_qp *qp, uint32_t psn, struct delivery *d, uint64_t now)
{
	struct dp_rec *rec = rec_at(qp, psn);
	struct dp_tx_block *b = qp->req.block;

	list_remove(b, list_of(b, rec), (uint16_t)slot(qp, psn));
	if (rec->state == DP_REC_FLIGHT)
		qp->flow.inflight_bytes -= rec->len;
	rec->state = DP_REC_DONE;
	if (answers_last_copy(qp, rec, d, now))
		rack_update(qp, psn, rec, now);
	d->bytes += rec->len;
	if (b->paths > 1)
		note_path(b, rec);
	if (!d->any || rec->sent_ns >= d->newest.sent_ns)
		d->newest = *rec;
	d->any = true;
}

static bool outstanding(const struct dp_qp *qp, uint32_t psn, bool response)
{
	const struct dp_rec *rec;

	if (dp_psn_diff(psn, qp->req.snd_una) < 0 || dp_psn_diff(psn, qp->req.snd_nxt) >= 0)
		return false;
	rec = rec_at(qp, psn);
	return rec->response == response &&
	       (rec->state == DP_REC_FLIGHT || rec->state == DP_REC_LOST);
}

static void deliver_cumulative(struct dp_qp *qp, uint32_t upto, struct delivery *d, uint64_t now)
{
	struct dp_requester *r = &qp->req;

	if (dp_psn_diff(r->cum, r->snd_una) < 0)
		r->cum = r->snd_una;
	for (; dp_psn_diff(r->cum, upto) < 0; r->cum = dp_psn_add(r->cum, 1))
		if (outstanding(qp, r->cum, false))
			deliver(qp, r->cum, d, now);
}

static void deliver_selective(struct dp_qp *qp, const struct dp_parsed *p, const struct dp_xah *xah,
			      struct delivery *d, uint64_t now)
{
	uint32_t w, word, psn;

	for (w = 0; w < xah->words; w++) {
		for (word = dp_get32(p->sack + 4 * w); word; word &= word - 1) {
			psn = dp_psn_add(xah->sack_base, 32 * w + (uint32_t)__builtin_ctz(word));
			if (outstanding(qp, psn, false))
				deliver(qp, psn, d, now);
		}
	}
}

/* ---- loss ---------------------------------------------------------------------------------- */

static void mark_lost(struct dp_qp *qp, uint16_t i)
{
	struct dp_tx_block *b = qp->req.block;

	list_remove(b, list_of(b, &b->rec[i]), i);
	qp->flow.inflight_bytes -= b->rec[i].len;
	b->rec[i].state = DP_REC_LOST;
	list_append(b, &b->lost, i);
}

/* The same, and adds it to what is told to the algorithm. */
static void lose(struct dp_qp *qp, struct dp_cc_loss *loss, uint16_t i)
{
	const struct dp_rec *rec = &qp->req.block->rec[i];

	if (!loss->lost_bytes)
		loss->prior_delivered_bytes = (double)rec->delivered;
	loss->path = rec->path;
	loss->lost_bytes += rec->len ? rec->len : 1; /* empty messages are lost as well */
	mark_lost(qp, i);
}

static uint64_t reorder_window(const struct dp_qp *qp)
{
	uint64_t window = qp->flow.min_rtt_ns / 4 * qp->req.reo_mult;

	return window < qp->flow.srtt_ns ? window : qp->flow.srtt_ns;
}

/* When the oldest of a list counts as lost: RFC 8985, section 6.2, step 5.  What
 * was asked for again is missed after a probe time-out as well: few answers
 * come behind it that could show that it is late.  DP_NEVER: not yet known. */
static uint64_t due_ns(const struct dp_qp *qp, const struct dp_rack *rack, uint16_t i)
{
	const struct dp_tx_block *b = qp->req.block;
	const struct dp_rec *rec = &b->rec[i];
	bool overtaken =
		rec->sent_ns < rack->xmit_ns ||
		(rec->sent_ns == rack->xmit_ns && dp_psn_diff(psn_of(qp, i), rack->psn) < 0);

	if (overtaken)
		return rec->sent_ns + rack->rtt_ns + reorder_window(qp);
	if (class_of(b, rec) == b->paths + 1 && qp->flow.srtt_ns)
		return rec->sent_ns + probe_timeout(qp);
	/* Another path has gone on: this one may carry nothing any more. */
	if (b->paths > 1 && !rec->response && rec->sent_ns < b->xmit_ns)
		return rec->sent_ns + probe_timeout(qp);
	return DP_NEVER;
}

/* Takes off a list what counts as lost now. */
static struct dp_cc_loss rack_detect(struct dp_qp *qp, struct dp_rack *rack, uint64_t now)
{
	struct dp_cc_loss loss = { 0 };
	uint64_t due;
	uint16_t i;

	while ((i = rack->flight.head) != DP_NIL) {
		due = due_ns(qp, rack, i);
		if (due == DP_NEVER)
			break;
		if (due > now) {
			if (!qp->req.reorder_ns || due < qp->req.reorder_ns)
				qp->req.reorder_ns = due;
			break;
		}
		lose(qp, &loss, i);
		qp->stats.fast_retransmits++;
	}
	return loss;
}

static void detect_losses(struct dp_qp *qp, uint64_t now)
{
	struct dp_tx_block *b = qp->req.block;
	struct dp_cc_loss loss;
	unsigned kind;

	qp->req.reorder_ns = 0;
	for (kind = 0; b && kind < classes(b); kind++) {
		loss = rack_detect(qp, &b->rack[kind], now);
		if (!loss.lost_bytes)
			continue;
		dp_flow_loss(qp, &loss, now);
		dp_qp_wake(qp);
	}
}

/* A switch has cut its payload off, the peer says.  A copy that has only just left
 * is another one than it speaks of (headers travel faster than packets: an eighth of
 * the RTT); so forged reports cost one packet in that time. */
static void trimmed(struct dp_qp *qp, uint32_t psn, bool response, uint64_t now)
{
	struct dp_cc_loss loss = { .trimmed = 1 };
	const struct dp_rec *rec;

	if (!outstanding(qp, psn, response))
		return;
	rec = rec_at(qp, psn);
	if (rec->state != DP_REC_FLIGHT || now - rec->sent_ns < qp->flow.min_rtt_ns / 8)
		return;
	lose(qp, &loss, (uint16_t)slot(qp, psn));
	qp->stats.fast_retransmits++;
	dp_flow_loss(qp, &loss, now);
	dp_qp_wake(qp);
}

void dp_ext_trimmed(struct dp_qp *qp, uint32_t psn, uint64_t now)
{
	if (qp->req.block)
		trimmed(qp, psn, true, now);
}

/* ---- acknowledgements and responses ----------------------------------------------------------- */

/* draft-cheng-iccrg-delivery-rate-estimation-02, section 3.3 */
static void rate_sample(struct dp_qp *qp, const struct dp_rec *rec, struct dp_cc_ack *ack,
			uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	uint64_t send = rec->sent_ns - rec->first_sent_ns, recv = now - rec->delivered_ns;
	uint64_t interval = send > recv ? send : recv;

	f->first_sent_ns = rec->sent_ns;
	f->delivered_ns = now;
	ack->prior_delivered_bytes = (double)rec->delivered;
	ack->app_limited = rec->app_limited;
	if (interval && interval >= f->min_rtt_ns)
		ack->delivery_rate_bps =
			(double)(f->delivered_bytes - rec->delivered) * 8e9 / (double)interval;
}

static void advance(struct dp_qp *qp)
{
	struct dp_requester *r = &qp->req;

	while (r->snd_una != r->snd_nxt && rec_at(qp, r->snd_una)->state == DP_REC_DONE)
		r->snd_una = dp_psn_add(r->snd_una, 1);
	dp_retire(qp);
	if (r->snd_una == r->snd_nxt && r->block) {
		dp_pool_put(&qp->engine->store->tx, r->block);
		r->block = NULL;
	}
}

/* One call for each path, the newest packet's last and with what belongs to it. */
static void tell_paths(struct dp_qp *qp, const struct dp_cc_ack *newest, unsigned path,
		       uint64_t now)
{
	struct dp_tx_block *b = qp->req.block;
	struct dp_cc_ack ack;
	unsigned i;

	for (; b->delivered; b->delivered &= ~(1ull << i)) {
		i = (unsigned)__builtin_ctzll(b->delivered);
		if (i == path && b->delivered & (b->delivered - 1)) {
			uint64_t others = b->delivered & ~(1ull << path);

			i = (unsigned)__builtin_ctzll(others);
		}
		ack = *newest;
		ack.path = i;
		ack.acked_bytes = b->bytes[i].acked;
		ack.marked_bytes = b->bytes[i].marked;
		if (i != path)
			ack.rtt_ns = ack.delivery_rate_bps = ack.n_hops = 0;
		dp_flow_ack(qp, &ack, now);
	}
}

static void delivered(struct dp_qp *qp, const struct delivery *d, uint64_t rtt_ns,
		      uint64_t marked_bytes, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	struct dp_cc_ack ack = { .rtt_ns = (double)rtt_ns, .acked_bytes = (double)d->bytes };

	if (rtt_ns)
		dp_flow_rtt(qp, rtt_ns, now);
	if (!d->any) {
		detect_losses(qp, now);
		return;
	}
	r->backoff = 0;
	r->tlp_sent = r->forced = false;
	r->progress_ns = now;
	r->rnr_left = qp->attr.rnr_retry;
	qp->flow.delivered_bytes += d->bytes;
	rate_sample(qp, &d->newest, &ack, now);
	ack.marked_bytes = (double)(marked_bytes < d->bytes ? marked_bytes : d->bytes);
	detect_losses(qp, now);
	if (d->n_hops && qp->echo)
		dp_flow_hops(qp, &ack, d->hops, d->n_hops, now);
	if (r->block->paths > 1)
		tell_paths(qp, &ack, d->newest.path, now);
	else
		dp_flow_ack(qp, &ack, now);
	advance(qp);
	if (qp->state != DP_QPS_ERR)
		arm_timers(qp, now);
}

/* Counters that the receiver echoes: new CE marks in bytes; duplicates widen
 * the reordering window (RFC 8985, section 6.2, step 4). */
static uint64_t echoes(struct dp_qp *qp, const struct dp_xah *xah)
{
	struct dp_requester *r = &qp->req;
	uint32_t marked = xah->marked - r->peer_marked;
	uint32_t duplicates = xah->duplicates - r->peer_duplicates;

	if ((int32_t)marked < 0)
		marked = 0; /* an older acknowledgement overtaken by a newer */
	else
		r->peer_marked = xah->marked;
	if ((int32_t)duplicates > 0) {
		r->peer_duplicates = xah->duplicates;
		qp->stats.spurious += duplicates;
		if (r->reo_mult < 16)
			r->reo_mult++;
	}
	return (uint64_t)marked * qp->req.segment;
}

/* The connection ends at PSN `psn`, which the peer could not execute, whether or not it
 * told before that the packet had arrived.  What lies before it and is delivered succeeds. */
static void end_at(struct dp_qp *qp, uint32_t psn, enum dp_wc_status status)
{
	struct dp_requester *r = &qp->req;
	uint32_t index = rec_at(qp, psn)->wqe;

	while (r->snd_una != psn && rec_at(qp, r->snd_una)->state == DP_REC_DONE)
		r->snd_una = dp_psn_add(r->snd_una, 1);
	dp_retire(qp);
	dp_fail_send(qp, index, status);
}

static bool is_fatal(uint8_t syndrome)
{
	return (syndrome & DP_AETH_TYPE_MASK) == DP_AETH_NAK &&
	       (syndrome & DP_AETH_VALUE_MASK) != DP_NAK_PSN_SEQUENCE;
}

static void refused(struct dp_qp *qp, const struct dp_parsed *p, uint8_t syndrome, uint64_t now)
{
	struct dp_tx_block *b = qp->req.block;
	unsigned path;

	if ((syndrome & DP_AETH_TYPE_MASK) == DP_AETH_RNR_NAK) {
		if (!outstanding(qp, p->psn, false) || !dp_rnr_wait(qp, syndrome, now))
			return;
		/* it drops what comes behind as well */
		for (path = 0; path < b->paths; path++)
			while (b->rack[path].flight.head != DP_NIL)
				mark_lost(qp, b->rack[path].flight.head);
		qp->req.timer_ns = qp->req.tlp_ns = qp->req.reorder_ns = 0;
		return;
	}
	qp->stats.naks_rx++;
}

/* Marks by PSN, before their packets are delivered. */
static void note_marks(struct dp_qp *qp, const struct dp_parsed *p, const struct dp_xah *xah)
{
	uint32_t i, psn;

	for (i = 0; i < xah->n_marked; i++) {
		psn = dp_get32(p->marked + 4 * i) & DP_PSN_MASK;
		if (outstanding(qp, psn, false))
			rec_at(qp, psn)->marked = true;
	}
}

void dp_ext_ack(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	uint8_t syndrome = dp_aeth_syndrome(p->aeth);
	bool nak = (syndrome & DP_AETH_TYPE_MASK) != DP_AETH_ACK;
	struct dp_requester *r = &qp->req;
	struct delivery d = { 0 };
	struct dp_xah xah;
	uint64_t rtt = 0, marked;
	uint32_t upto, i;

	dp_xah_get(p->xah, &xah);
	upto = nak ? p->psn : dp_psn_add(p->psn, 1);
	if (!r->block || dp_psn_diff(upto, r->snd_nxt) > 0)
		return;
	note_marks(qp, p, &xah);
	d.echoed = xah.ack_delay_ns != UINT32_MAX;
	d.echo_ns = xah.ts_echo_ns;
	deliver_cumulative(qp, upto, &d, now);
	if (is_fatal(syndrome) && dp_psn_diff(p->psn, r->snd_una) >= 0 &&
	    dp_psn_diff(p->psn, r->snd_nxt) < 0) {
		qp->stats.naks_rx++;
		end_at(qp, p->psn, dp_nak_status(syndrome));
		return;
	}
	deliver_selective(qp, p, &xah, &d, now);
	for (i = 0; i < xah.n_trimmed; i++)
		trimmed(qp, dp_get32(p->trimmed + 4 * i) & DP_PSN_MASK, false, now);
	d.n_hops = xah.n_hops;
	d.hops = p->hops;
	marked = echoes(qp, &xah);
	if (d.any && d.echoed)
		rtt = (uint32_t)((uint32_t)now - xah.ts_echo_ns - xah.ack_delay_ns);
	if (rtt > INT32_MAX)
		rtt = 0;
	delivered(qp, &d, rtt, marked, now);
	if (nak && r->block)
		refused(qp, p, syndrome, now);
}

void dp_ext_carried_ack(struct dp_qp *qp, const struct dp_xdh *xdh, uint64_t now)
{
	uint32_t upto = dp_psn_add(xdh->ack_psn, 1), rtt;
	struct delivery d = { .echoed = true, .echo_ns = xdh->ack_ts_ns };

	if (!qp->req.block || dp_psn_diff(upto, qp->req.snd_nxt) > 0)
		return;
	deliver_cumulative(qp, upto, &d, now);
	if (!d.any)
		return;
	qp->stats.acks_rx++;
	rtt = (uint32_t)now - xdh->ack_ts_ns;
	delivered(qp, &d, rtt > INT32_MAX ? 0 : rtt, 0, now);
	dp_requester_wake(qp);
}

void dp_ext_response(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	struct delivery d = { 0 };
	struct dp_xdh xdh;
	uint64_t rtt = 0;
	uint32_t index;
	int err;

	if (!qp->req.block || !outstanding(qp, p->psn, true)) {
		qp->stats.duplicates++;
		return;
	}
	index = rec_at(qp, p->psn)->wqe;
	err = dp_place_response(qp, dp_sq(qp, index), p, p->psn);
	if (err) {
		dp_fail_send(qp, index, err == -EINVAL ? DP_WC_BAD_RESP_ERR : DP_WC_LOC_PROT_ERR);
		return;
	}
	if (p->xdh) {
		dp_xdh_get(p->xdh, &xdh);
		rtt = (uint32_t)((uint32_t)now - xdh.ts_ns - xdh.rq_seq);
		if (rtt > INT32_MAX)
			rtt = 0;
		d.echoed = true;
		d.echo_ns = xdh.ts_ns;
	}
	deliver(qp, p->psn, &d, now);
	delivered(qp, &d, rtt, 0, now);
}

/* ---- time-outs --------------------------------------------------------------------------------- */

/* All that is missing of what the oldest request packet of a list asked for: it
 * may be that packet that was lost. */
static void ask_again(struct dp_qp *qp, const struct dp_rec_list *flight)
{
	const struct dp_rec *rec = qp->req.block->rec;
	uint64_t sent_ns = rec[flight->head].sent_ns;
	uint32_t wqe = rec[flight->head].wqe;
	unsigned n = 0;

	do {
		mark_lost(qp, flight->head);
	} while (++n < DP_READ_CHUNK && flight->head != DP_NIL &&
		 rec[flight->head].sent_ns == sent_ns && rec[flight->head].wqe == wqe);
}

/* The newest packet in flight that an acknowledgement ends, of all paths. */
static uint16_t newest_acked(const struct dp_tx_block *b)
{
	uint16_t newest = DP_NIL, i;
	unsigned path;

	for (path = 0; path < b->paths; path++) {
		i = b->rack[path].flight.tail;
		if (i != DP_NIL &&
		    (newest == DP_NIL || b->rec[i].sent_ns >= b->rec[newest].sent_ns))
			newest = i;
	}
	return newest;
}

/* RFC 8985, section 7.3: the newest packet once more, to draw an acknowledgement,
 * whatever the window; where an answer is missing, the oldest, since all others
 * wait behind it. */
static void probe(struct dp_qp *qp)
{
	struct dp_tx_block *b = qp->req.block;
	uint16_t newest = newest_acked(b);
	unsigned kind = b->paths;

	qp->req.tlp_ns = 0;
	while (newest == DP_NIL && kind < classes(b) && b->rack[kind].flight.tail == DP_NIL)
		kind++;
	if (b->lost.head != DP_NIL || kind == classes(b))
		return;
	qp->req.tlp_sent = qp->req.forced = true;
	qp->stats.probes++;
	if (newest != DP_NIL)
		mark_lost(qp, newest);
	else
		ask_again(qp, &b->rack[kind].flight);
}

static bool peer_is_dead(const struct dp_qp *qp, uint64_t now)
{
	uint64_t patience = dp_ib_timeout_ns(qp) * (qp->attr.retry_cnt + 1u);

	return patience && qp->req.backoff >= qp->attr.retry_cnt &&
	       now >= qp->req.progress_ns + patience;
}

/* At first only the oldest is sent again, whatever the window, as the others still
 * count as in flight; its acknowledgement tells which of them are lost.  So
 * time-outs that were none, because a host stood still for a while, cost a packet
 * each and not a window. */
static void timeout(struct dp_qp *qp, uint64_t now)
{
	struct dp_tx_block *b = qp->req.block;
	struct dp_rec_list *flight;
	unsigned kind;

	if (peer_is_dead(qp, now)) {
		qp->stats.timeouts++;
		dp_fail_send(qp, qp->sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	for (kind = 0; kind < classes(b); kind++) {
		flight = &b->rack[kind].flight;
		if (flight->head != DP_NIL && kind < b->paths)
			mark_lost(qp, flight->head);
		else if (flight->head != DP_NIL)
			ask_again(qp, flight);
		while (flight->head != DP_NIL && qp->req.backoff >= LONE_TIMEOUTS)
			mark_lost(qp, flight->head);
	}
	qp->stats.timeouts++;
	qp->req.backoff++;
	qp->req.forced = true;
	dp_flow_timeout(qp, now);
	arm_timers(qp, now);
	qp->req.tlp_ns = 0;
}

void dp_ext_tick(struct dp_qp *qp, uint64_t now)
{
	struct dp_requester *r = &qp->req;

	if (!r->block)
		return;
	if (r->reorder_ns && now >= r->reorder_ns)
		detect_losses(qp, now);
	if (r->tlp_ns && now >= r->tlp_ns)
		probe(qp);
	if (!r->timer_ns && r->snd_una != r->snd_nxt)
		arm_timers(qp, now); /* after a receiver-not-ready wait */
	if (r->timer_ns && now >= r->timer_ns)
		timeout(qp, now);
}
