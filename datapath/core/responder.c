// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The responder (IBTA vol. 1, section 9.7.4): requests in PSN order, their
 * acknowledgements, READ and atomic answers, replays.  This file is the whole
 * of the standard mode and what the extended mode (reorder.c) shares with it.
 *
 * Executing functions return 0, or the AETH syndrome of the NAK that the
 * request deserves.
 */
#include "core/internal.h"

enum message { MSG_NONE, MSG_SEND, MSG_WRITE };

int dp_responder_start(struct dp_qp *qp)
{
	struct dp_responder *r = &qp->resp;
	unsigned n = qp->attr.max_dest_rd_atomic;

	memset(r, 0, sizeof(*r));
	if (n) {
		r->accepted = calloc(n, sizeof(*r->accepted));
		if (!r->accepted)
			return -ENOMEM;
	}
	r->epsn = r->highest = qp->attr.rq_psn;
	r->expected = 1ull << 32 | r->epsn;
	r->newest = dp_psn_add(qp->attr.rq_psn, DP_PSN_MASK);
	r->syndrome = DP_AETH_ACK | DP_AETH_CREDIT_INVALID;
	return 0;
}

void dp_answers_release(struct dp_qp *qp)
{
	if (qp->resp.answers)
		dp_pool_put(&qp->engine->store->answers, qp->resp.answers);
	qp->resp.answers = NULL;
}

void dp_responder_reset(struct dp_qp *qp)
{
	dp_answers_release(qp);
	if (qp->resp.block)
		dp_pool_put(&qp->engine->store->rx, qp->resp.block);
	free(qp->resp.accepted);
	memset(&qp->resp, 0, sizeof(qp->resp));
}

/* ---- acknowledgements ----------------------------------------------------------- */

static void ack_soon(struct dp_qp *qp)
{
	qp->resp.ack_now = true;
	dp_qp_wake(qp);
}

void dp_responder_advance(struct dp_responder *r, uint32_t n_psn)
{
	r->epsn = dp_psn_add(r->epsn, n_psn);
	r->expected += n_psn;
}

void dp_responder_nak(struct dp_qp *qp, uint32_t psn, uint8_t syndrome)
{
	struct dp_responder *r = &qp->resp;

	r->syndrome = syndrome;
	r->nak_psn = psn;
	r->nak_sent = true;
	ack_soon(qp);
	if ((syndrome & DP_AETH_TYPE_MASK) == DP_AETH_RNR_NAK) {
		qp->stats.rnr_tx++;
		return;
	}
	qp->stats.naks_tx++;
	if (syndrome == DP_NAK(DP_NAK_PSN_SEQUENCE))
		return;
	r->fatal = true;
	dp_answers_release(qp);
	dp_qp_to_error(qp, DP_EVENT_QP_ACCESS);
}

void dp_responder_tick(struct dp_qp *qp, uint64_t now)
{
	if (!qp->resp.ack_ns || now < qp->resp.ack_ns)
		return;
	qp->resp.ack_ns = 0;
	ack_soon(qp);
}

/* ---- answers ------------------------------------------------------------------------ */

uint32_t dp_read_psns(uint32_t len, uint32_t segment)
{
	return len ? (len + segment - 1) / segment : 1;
}

static bool may_answer(struct dp_qp *qp)
{
	struct dp_answers *q = qp->resp.answers;

	if (!q) {
		q = dp_pool_get(&qp->engine->store->answers);
		if (!q)
			return false;
		q->head = q->tail = 0;
		qp->resp.answers = q;
	}
	return q->tail - q->head < DP_READ_QUEUE;
}

/* A standard requester takes answers in the order of PSNs.  What it asks for
 * again goes before those that wait, or takes the place of the one that waits
 * and holds its PSN: a requester that goes back has what lies before that.  The
 * one behind it may have begun: then it begins anew. */
static struct dp_answer *insert(struct dp_answers *q, uint32_t psn)
{
	struct dp_answer *a;
	uint32_t at = q->tail, i;

	for (; at != q->head; at--) {
		a = &q->ring[(at - 1) % DP_READ_QUEUE];
		if (dp_psn_diff(psn, a->psn) >= (int32_t)a->n_psn)
			break;
	}
	a = &q->ring[at % DP_READ_QUEUE];
	if (at != q->tail && dp_psn_diff(psn, a->psn) >= 0)
		return a;
	for (i = q->tail++; i != at; i--) {
		q->ring[i % DP_READ_QUEUE] = q->ring[(i - 1) % DP_READ_QUEUE];
		q->ring[i % DP_READ_QUEUE].done = 0;
	}
	return a;
}

static struct dp_answer *new_answer(struct dp_qp *qp, uint32_t psn, bool extended)
{
	struct dp_answers *q;

	if (!may_answer(qp))
		return NULL;
	q = qp->resp.answers;
	return extended ? &q->ring[q->tail++ % DP_READ_QUEUE] : insert(q, psn);
}

/* ---- requests that were accepted ----------------------------------------------------- */

static uint32_t segment_of(const struct dp_qp *qp, const struct dp_held *h, bool extended)
{
	return extended ? h->rq_seq : qp->attr.path_mtu;
}

/* A PSN near the expected one, unwrapped. */
static uint64_t unwrapped(const struct dp_responder *r, uint32_t psn)
{
	return r->expected + (uint64_t)(int64_t)dp_psn_diff(psn, r->epsn);
}

/* `read` may be a part of the READ `e`, `bytes` behind its beginning. */
static bool continues(const struct dp_accepted *e, const struct dp_accepted *read, uint64_t bytes)
{
	return !e->atomic && read->rkey == e->rkey && read->segment == e->segment &&
	       read->start == e->start && read->va == e->va + bytes;
}

/* A long READ of extended mode is asked for in parts, which count as one. */
static void accept(struct dp_qp *qp, const struct dp_accepted *new)
{
	struct dp_responder *r = &qp->resp;
	uint32_t max = qp->attr.max_dest_rd_atomic;
	struct dp_accepted *last = &r->accepted[(r->n_accepted - 1) % max];
	uint64_t psns = new->at - last->at, bytes = psns *new->segment;

	if (!new->atomic && r->n_accepted &&new->at >= last->at &&psns <= last->n_psn &&bytes <=
				    last->len &&continues(last, new, bytes)) {
		last->n_psn = psns + new->n_psn;
		last->len = bytes + new->len;
		return;
	}
	r->accepted[r->n_accepted++ % max] = *new;
}

static struct dp_accepted read_as_accepted(const struct dp_qp *qp, const struct dp_held *h,
					   uint32_t psn, bool extended)
{
	uint32_t segment = segment_of(qp, h, extended);

	return (struct dp_accepted){ .at = unwrapped(&qp->resp, psn),
				     .n_psn = dp_read_psns(h->len, segment),
				     .va = h->va,
				     .len = h->len,
				     .start = extended ? h->va - h->offset : 0,
				     .rkey = h->rkey,
				     .segment = segment };
}

static uint32_t accepted_count(const struct dp_qp *qp)
{
	uint32_t n = qp->resp.n_accepted, max = qp->attr.max_dest_rd_atomic;

	return n < max ? n : max;
}

static bool covers(const struct dp_accepted *e, const struct dp_accepted *read)
{
	uint64_t bytes = (read->at - e->at) * read->segment;

	return read->at >= e->at && read->at + read->n_psn <= e->at + e->n_psn &&
	       bytes + read->len <= e->len && continues(e, read, bytes);
}

static bool was_accepted(const struct dp_qp *qp, const struct dp_accepted *read)
{
	uint32_t i;

	for (i = 0; i < accepted_count(qp); i++)
		if (covers(&qp->resp.accepted[i], read))
			return true;
	return false;
}

bool dp_was_accepted(const struct dp_qp *qp, const struct dp_held *h, uint32_t psn, uint32_t n_psn)
{
	struct dp_accepted part = read_as_accepted(qp, h, psn, true);

	if (part.n_psn > n_psn) {
		part.n_psn = n_psn;
		part.len = (uint64_t)n_psn * part.segment;
	}
	return was_accepted(qp, &part);
}

/* ---- READs and atomics -------------------------------------------------------------- */

static int answer_read(struct dp_qp *qp, const struct dp_held *h, uint32_t psn, bool extended)
{
	uint32_t segment = segment_of(qp, h, extended);
	struct dp_answer *a;

	if (!(qp->attr.access & DP_ACCESS_REMOTE_READ) || !qp->attr.max_dest_rd_atomic ||
	    h->len > DP_MSG_MAX)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (!dp_mr_reach(qp->pd, h->rkey, h->va, h->len, DP_ACCESS_REMOTE_READ))
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	a = new_answer(qp, psn, extended);
	if (!a)
		return -EAGAIN;
	*a = (struct dp_answer){
		.va = h->va,
		.rkey = h->rkey,
		.psn = psn,
		.n_psn = dp_read_psns(h->len, segment),
		.segment = segment,
		.len = h->len,
		.offset = h->offset,
		.ts_ns = h->ts_ns,
		.arrived_ns = h->arrived_ns,
		.extended = extended,
	};
	dp_qp_wake(qp);
	return 0;
}

int dp_execute_read(struct dp_qp *qp, const struct dp_held *h, uint32_t psn, bool extended)
{
	struct dp_accepted read = read_as_accepted(qp, h, psn, extended);
	int err = answer_read(qp, h, psn, extended);

	if (!err)
		accept(qp, &read);
	return err;
}

static int answer_atomic(struct dp_qp *qp, uint32_t psn, uint64_t value, bool extended)
{
	struct dp_answer *a = new_answer(qp, psn, extended);

	if (!a)
		return -EAGAIN;
	*a = (struct dp_answer){
		.psn = psn, .n_psn = 1, .value = value, .atomic = true, .extended = extended
	};
	dp_qp_wake(qp);
	return 0;
}

static uint64_t perform(const struct dp_held *h, uint64_t *at)
{
	uint64_t value = h->compare;

	if ((h->opcode & ~DP_OP_EXT) == DP_OP_FETCH_ADD)
		return __atomic_fetch_add(at, h->swap_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(at, &value, h->swap_add, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return value;
}

int dp_execute_atomic(struct dp_qp *qp, const struct dp_held *h, uint32_t psn, bool extended)
{
	struct dp_accepted atomic = { .n_psn = 1, .atomic = true };
	uint8_t *at;

	if (!(qp->attr.access & DP_ACCESS_REMOTE_ATOMIC) || !qp->attr.max_dest_rd_atomic ||
	    h->va & 7)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	at = dp_mr_reach(qp->pd, h->rkey, h->va, 8, DP_ACCESS_REMOTE_ATOMIC);
	if (!at)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	if ((uintptr_t)at & 7)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (!may_answer(qp))
		return -EAGAIN;
	if (!qp->engine->cfg.no_payload)
		atomic.value = perform(h, (uint64_t *)(void *)at);
	atomic.at = unwrapped(&qp->resp, psn);
	accept(qp, &atomic);
	return answer_atomic(qp, psn, atomic.value, extended);
}

/* The saved value; an atomic is never executed twice. */
static void replay_atomic(struct dp_qp *qp, uint32_t psn, bool extended)
{
	const struct dp_accepted *e = qp->resp.accepted;
	uint64_t at = unwrapped(&qp->resp, psn);
	uint32_t i;

	for (i = 0; i < accepted_count(qp); i++)
		if (e[i].atomic && e[i].at == at) {
			answer_atomic(qp, psn, e[i].value, extended);
			return;
		}
}

/* A request that comes again proves nothing, so it ends nothing here.  A requester that
 * still waits for the answer learns that the memory is gone. */
static void replay_read(struct dp_qp *qp, const struct dp_held *h, uint32_t psn, bool extended)
{
	struct dp_accepted read = read_as_accepted(qp, h, psn, extended);
	struct dp_responder *r = &qp->resp;
	int err;

	if (!was_accepted(qp, &read))
		return;
	err = answer_read(qp, h, psn, extended);
	if (err <= 0 || (r->syndrome & DP_AETH_TYPE_MASK) != DP_AETH_ACK)
		return;
	r->syndrome = (uint8_t)err;
	r->nak_psn = psn;
	ack_soon(qp);
}

void dp_replay(struct dp_qp *qp, const struct dp_held *h, uint32_t psn, bool extended)
{
	if (dp_opcodes[h->opcode].mask & DP_IS_READ)
		replay_read(qp, h, psn, extended);
	else
		replay_atomic(qp, psn, extended);
}

/* ---- receives ------------------------------------------------------------------------- */

void dp_fail_recv(struct dp_qp *qp, enum dp_wc_status status)
{
	struct dp_wc wc = { .wr_id = dp_rq(qp, qp->rq_ci)->wr_id,
			    .status = status,
			    .opcode = DP_WC_RECV,
			    .qpn = qp->qpn,
			    .src_qpn = qp->attr.dest_qpn };

	qp->rq_ci++;
	dp_cq_push(qp->recv_cq, &wc, true);
}

int dp_finish_message(struct dp_qp *qp, const struct dp_held *h)
{
	uint32_t mask = dp_opcodes[h->opcode].mask;
	struct dp_wc wc = {
		.opcode = mask & DP_IS_WRITE ? DP_WC_RECV_RDMA_WITH_IMM : DP_WC_RECV,
		.byte_len = h->len,
		.qpn = qp->qpn,
		.src_qpn = qp->attr.dest_qpn,
	};

	if (mask & DP_HAS_IETH && dp_mr_invalidate(qp->pd, h->imm))
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	qp->resp.msn = (qp->resp.msn + 1) & 0xffffff;
	if (!(mask & (DP_IS_SEND | DP_HAS_IMM)))
		return 0;
	if (mask & (DP_HAS_IMM | DP_HAS_IETH)) {
		wc.imm = h->imm;
		wc.flags = mask & DP_HAS_IMM ? DP_WC_WITH_IMM : DP_WC_WITH_INV;
	}
	wc.wr_id = dp_rq(qp, qp->rq_ci++)->wr_id;
	qp->resp.rq_seq++;
	dp_cq_push(qp->recv_cq, &wc, h->solicited);
	return 0;
}

void dp_held_from(const struct dp_parsed *p, struct dp_held *h, uint64_t now)
{
	struct dp_xdh xdh = { 0 };

	if (p->xdh)
		dp_xdh_get(p->xdh, &xdh);
	*h = (struct dp_held){ .opcode = p->opcode,
			       .solicited = p->solicited,
			       .rq_seq = xdh.rq_seq,
			       .offset = xdh.offset,
			       .ts_ns = xdh.ts_ns,
			       .arrived_ns = now };
	if (p->reth) {
		h->va = dp_reth_va(p->reth);
		h->rkey = dp_reth_rkey(p->reth);
		h->len = dp_reth_len(p->reth);
	}
	if (p->atomic) {
		h->va = dp_atomic_va(p->atomic);
		h->rkey = dp_atomic_rkey(p->atomic);
		h->swap_add = dp_atomic_swap_add(p->atomic);
		h->compare = dp_atomic_compare(p->atomic);
	}
	if (p->imm)
		memcpy(&h->imm, p->imm, 4);
	if (p->ieth)
		h->imm = dp_get32(p->ieth);
}

/* ---- requests in order, standard mode ------------------------------------------------- */

/* FIRST and MIDDLE carry exactly one path MTU, LAST is not empty, and a message
 * is not mixed with another. */
static bool well_formed(const struct dp_qp *qp, const struct dp_parsed *p, uint32_t len)
{
	bool starts = p->mask & DP_IS_FIRST, ends = p->mask & DP_IS_LAST;
	uint8_t kind = p->mask & DP_IS_SEND  ? MSG_SEND :
		       p->mask & DP_IS_WRITE ? MSG_WRITE :
					       MSG_NONE;

	if (kind == MSG_NONE)
		return qp->resp.message == MSG_NONE;
	if (starts ? qp->resp.message != MSG_NONE : qp->resp.message != kind)
		return false;
	if (!ends)
		return len == qp->attr.path_mtu;
	return len <= qp->attr.path_mtu && (starts || len);
}

static int execute_send(struct dp_qp *qp, const struct dp_parsed *p, uint32_t len)
{
	struct dp_responder *r = &qp->resp;
	struct dp_rwqe *wqe = dp_rq(qp, qp->rq_ci);

	if (qp->rq_ci == qp->rq_pi)
		return dp_rnr_syndrome(qp);
	if (p->mask & DP_IS_FIRST)
		r->offset = 0;
	if (len > wqe->len - r->offset) {
		dp_fail_recv(qp, DP_WC_LOC_LEN_ERR);
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	}
	if (dp_scatter_payload(qp->pd, wqe->sge, wqe->num_sge, r->offset, p, len)) {
		dp_fail_recv(qp, DP_WC_LOC_PROT_ERR);
		return DP_NAK(DP_NAK_REMOTE_OPERATION);
	}
	r->offset += len;
	return 0;
}

static int execute_write(struct dp_qp *qp, const struct dp_parsed *p, uint32_t len)
{
	struct dp_responder *r = &qp->resp;
	bool last = p->mask & DP_IS_LAST;
	uint8_t *to;

	if (!(qp->attr.access & DP_ACCESS_REMOTE_WRITE))
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (p->imm && qp->rq_ci == qp->rq_pi)
		return dp_rnr_syndrome(qp);
	if (p->mask & DP_IS_FIRST) {
		r->va = dp_reth_va(p->reth);
		r->rkey = dp_reth_rkey(p->reth);
		r->left = dp_reth_len(p->reth);
		r->offset = 0;
		if (r->left > DP_MSG_MAX)
			return DP_NAK(DP_NAK_INVALID_REQUEST);
		if (!dp_mr_reach(qp->pd, r->rkey, r->va, r->left, DP_ACCESS_REMOTE_WRITE))
			return DP_NAK(DP_NAK_REMOTE_ACCESS);
	}
	if (last ? len != r->left : len >= r->left)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	to = dp_mr_reach(qp->pd, r->rkey, r->va, len, DP_ACCESS_REMOTE_WRITE);
	if (!to)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	dp_copy_payload(to, p, 0, len);
	r->va += len;
	r->left -= len;
	r->offset += len;
	return 0;
}

static int execute(struct dp_qp *qp, const struct dp_parsed *p, uint32_t *n_psn, uint64_t now)
{
	uint32_t len = p->payload_len + p->payload2_len;
	struct dp_responder *r = &qp->resp;
	struct dp_held held;
	int err;

	if (!well_formed(qp, p, len))
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	dp_held_from(p, &held, now);
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC)) {
		if (p->mask & DP_IS_READ)
			*n_psn = dp_read_psns(held.len, qp->attr.path_mtu);
		r->msn = (r->msn + 1) & 0xffffff;
		err = p->mask & DP_IS_READ ? dp_execute_read(qp, &held, p->psn, false) :
					     dp_execute_atomic(qp, &held, p->psn, false);
		if (err)
			r->msn = (r->msn - 1) & 0xffffff;
		return err;
	}
	err = p->mask & DP_IS_SEND ? execute_send(qp, p, len) : execute_write(qp, p, len);
	if (err)
		return err;
	qp->stats.rx_bytes += len;
	r->message = p->mask & DP_IS_LAST ? MSG_NONE : p->mask & DP_IS_SEND ? MSG_SEND : MSG_WRITE;
	if (!(p->mask & DP_IS_LAST))
		return 0;
	held.len = r->offset;
	return dp_finish_message(qp, &held);
}

static void duplicate(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	struct dp_held held;

	qp->stats.duplicates++;
	if (!(p->mask & (DP_IS_READ | DP_IS_ATOMIC))) {
		ack_soon(qp);
		return;
	}
	dp_held_from(p, &held, now);
	dp_replay(qp, &held, p->psn, false);
}

void dp_responder_rx(struct dp_qp *qp, const struct dp_packet *pkt, const struct dp_parsed *p,
		     uint64_t now)
{
	int32_t ahead = dp_psn_diff(p->psn, qp->resp.epsn);
	struct dp_responder *r = &qp->resp;
	uint32_t n_psn = 1;
	int err;

	if ((pkt->tos & DP_ECN_MASK) == DP_ECN_CE)
		r->marked++;
	if (ahead < 0) {
		duplicate(qp, p, now);
		return;
	}
	/* A requester changes mode when nothing is under way: this one follows no protocol. */
	if (r->block && r->block->count) {
		qp->stats.dropped_ooo++;
		return;
	}
	if (ahead > 0) {
		qp->stats.dropped_ooo++;
		if (!r->nak_sent)
			dp_responder_nak(qp, r->epsn, DP_NAK(DP_NAK_PSN_SEQUENCE));
		return;
	}
	err = execute(qp, p, &n_psn, now);
	if (err == -EAGAIN)
		return; /* no room for the answer: the requester asks again */
	if (err) {
		dp_responder_nak(qp, r->epsn, (uint8_t)err);
		return;
	}
	dp_responder_advance(r, n_psn);
	r->nak_sent = false;
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC))
		return;
	r->newest = p->psn;
	if (p->ack_req)
		ack_soon(qp);
}

/* ---- transmit ------------------------------------------------------------------------------ */

static int send_answer(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	struct dp_answers *q = qp->resp.answers;
	struct dp_answer *a;

	if (!q)
		return 0;
	if (q->head == q->tail) {
		dp_answers_release(qp);
		return 0;
	}
	a = &q->ring[q->head % DP_READ_QUEUE];
	if (dp_build_answer(qp, a, pkt, now)) {
		/* the memory was taken away after the request was accepted */
		dp_responder_nak(qp, dp_psn_add(a->psn, a->done), DP_NAK(DP_NAK_REMOTE_ACCESS));
		return 0;
	}
	if (++a->done == a->n_psn)
		q->head++;
	qp->stats.tx_packets++;
	return 1;
}

static int send_ack(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	struct dp_responder *r = &qp->resp;

	if (!r->ack_now)
		return 0;
	dp_build_ack(qp, pkt, now);
	r->ack_now = false;
	r->unacked = 0;
	r->ack_ns = 0;
	if (!r->fatal)
		r->syndrome = DP_AETH_ACK | DP_AETH_CREDIT_INVALID;
	qp->stats.acks_tx++;
	return 1;
}

/* A standard requester takes an ACK that overtakes READ responses for a loss. */
int dp_responder_tx(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	if (qp->peer_extended)
		return send_ack(qp, pkt, now) || send_answer(qp, pkt, now);
	return send_answer(qp, pkt, now) || send_ack(qp, pkt, now);
}
