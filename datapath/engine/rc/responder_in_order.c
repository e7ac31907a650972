// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The responder (IBTA vol. 1, section 9.7.4): requests in PSN order, their
 * acknowledgements, READ and atomic answers, replays.  This file is the whole
 * of the standard mode and what the extended mode (responder_out_of_order.c) shares with it.
 *
 * Executing functions return 0, or the AETH syndrome of the NAK that the
 * request deserves.
 */
#include "engine/rc/answers.h"
#include "engine/rc/negotiate.h"
#include "engine/rc/packets.h"
#include "engine/rc/received.h"

enum message { MSG_NONE, MSG_SEND, MSG_WRITE };

void dp_responder_start(struct dp_rc *rc)
{
	struct dp_responder *r = &rc->resp;

	memset(r, 0, sizeof(*r));
	r->epsn = r->highest = rc->qp.attr.rq_psn;
	r->expected = 1ull << 32 | r->epsn;
	r->newest = dp_psn_add(rc->qp.attr.rq_psn, DP_PSN_MASK);
	r->syndrome = DP_AETH_ACK | DP_AETH_CREDIT_INVALID;
}

void dp_responder_reset(struct dp_rc *rc)
{
	dp_answers_release(rc);
	dp_rx_release(rc);
	free(rc->resp.accepted);
	memset(&rc->resp, 0, sizeof(rc->resp));
}

/* ---- acknowledgements ----------------------------------------------------------- */

void dp_ack_soon(struct dp_rc *rc)
{
	rc->resp.ack_now = true;
	dp_qp_wake(&rc->qp);
}

void dp_responder_advance(struct dp_responder *r, uint32_t n_psn)
{
	r->epsn = dp_psn_add(r->epsn, n_psn);
	r->expected += n_psn;
	if (dp_psn_diff(r->highest, r->epsn) < 0)
		r->highest = r->epsn;
}

void dp_responder_nak(struct dp_rc *rc, uint32_t psn, uint8_t syndrome)
{
	struct dp_responder *r = &rc->resp;

	r->syndrome = syndrome;
	r->nak_psn = psn;
	r->nak_sent = true;
	dp_ack_soon(rc);
	if ((syndrome & DP_AETH_TYPE_MASK) == DP_AETH_RNR_NAK) {
		rc->qp.stats.rnr_tx++;
		return;
	}
	rc->qp.stats.naks_tx++;
	if (syndrome == DP_NAK(DP_NAK_PSN_SEQUENCE))
		return;
	rc->qp.refusing = true;
	dp_answers_before(rc, psn);
	dp_qp_to_error(&rc->qp, syndrome == DP_NAK(DP_NAK_INVALID_REQUEST) ? DP_EVENT_QP_REQUEST :
									     DP_EVENT_QP_ACCESS);
}

void dp_responder_tick(struct dp_rc *rc, uint64_t now)
{
	if (!rc->resp.ack_ns || now < rc->resp.ack_ns)
		return;
	rc->resp.ack_ns = 0;
	dp_unreplied(&rc->resp);
	dp_ack_soon(rc);
}

/* ---- receives ------------------------------------------------------------------------- */

void dp_fail_recv(struct dp_rc *rc, enum dp_wc_status status)
{
	struct dp_wc wc = { .wr_id = dp_receive_take(&rc->qp),
			    .status = status,
			    .opcode = DP_WC_RECV,
			    .qpn = rc->qp.qpn,
			    .src_qpn = rc->qp.attr.dest_qpn };

	dp_cq_push(rc->qp.recv_cq, &wc, true);
	dp_qp_to_error(&rc->qp, DP_EVENT_QP_FAILED);
}

int dp_finish_message(struct dp_rc *rc, const struct dp_held *h)
{
	uint32_t mask = dp_opcodes[h->opcode].mask;
	struct dp_wc wc = {
		.opcode = mask & DP_IS_WRITE ? DP_WC_RECV_RDMA_WITH_IMM : DP_WC_RECV,
		.byte_len = h->len,
		.qpn = rc->qp.qpn,
		.src_qpn = rc->qp.attr.dest_qpn,
	};

	if (mask & DP_HAS_IETH && dp_mr_invalidate(&rc->qp, h->invalidate_rkey))
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	rc->resp.msn = (rc->resp.msn + 1) & 0xffffff;
	if (!(mask & (DP_IS_SEND | DP_HAS_IMM)))
		return 0;
	if (mask & DP_HAS_IMM) {
		wc.imm = h->imm;
		wc.flags = DP_WC_WITH_IMM;
	} else if (mask & DP_HAS_IETH) {
		wc.invalidated_rkey = h->invalidate_rkey;
		wc.flags = DP_WC_WITH_INV;
	}
	wc.wr_id = dp_receive_take(&rc->qp);
	rc->resp.rq_seq++;
	dp_cq_push(rc->qp.recv_cq, &wc, h->solicited);
	return 0;
}

void dp_held_from(const struct dp_parsed *p, struct dp_held *h, uint64_t now)
{
	struct dp_xdh xdh = { 0 };

	if (p->xdh)
		dp_xdh_get(p->xdh, &xdh);
	*h = (struct dp_held){ .opcode = p->opcode,
			       .solicited = p->solicited,
			       .rq_seq = xdh.rq_seq, /* or the segment of a READ */
			       .offset = xdh.offset,
			       .ts_ns = xdh.ts_ns,
			       .arrived_ns = dp_arrived(p, now) };
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
	if (p->feth) {
		h->placement = dp_feth_placement(p->feth);
		h->selectivity = dp_feth_selectivity(p->feth);
	}
	if ((p->opcode & ~DP_OP_EXT) == DP_OP_ATOMIC_WRITE) {
		h->whole = p->payload_len + p->payload2_len == 8 && h->len == 8;
		dp_copy_payload((uint8_t *)&h->swap_add, p, 0, h->whole ? 8 : 0);
	}
	if (p->imm)
		memcpy(&h->imm, p->imm, 4);
	if (p->ieth)
		h->invalidate_rkey = dp_get32(p->ieth);
}

/* ---- requests in order, standard mode ------------------------------------------------- */

/* FIRST and MIDDLE carry exactly one path MTU, LAST is not empty, and packets of two messages do
 * not mix. */
static bool well_formed(const struct dp_rc *rc, const struct dp_parsed *p, uint32_t len)
{
	bool starts = p->mask & DP_IS_FIRST, ends = p->mask & DP_IS_LAST;
	uint8_t kind = p->mask & DP_IS_SEND  ? MSG_SEND :
		       p->mask & DP_IS_WRITE ? MSG_WRITE :
					       MSG_NONE;

	if (kind == MSG_NONE)
		return rc->resp.message == MSG_NONE;
	if (starts ? rc->resp.message != MSG_NONE : rc->resp.message != kind)
		return false;
	if (!ends)
		return len == rc->qp.attr.path_mtu;
	return len <= rc->qp.attr.path_mtu && (starts || len);
}

static int execute_send(struct dp_rc *rc, const struct dp_parsed *p, uint32_t len)
{
	struct dp_responder *r = &rc->resp;
	struct dp_rwqe *wqe = dp_receive(&rc->qp, 0);

	if (!wqe)
		return dp_rnr_syndrome(rc);
	if (p->mask & DP_IS_FIRST)
		r->offset = 0;
	if (len > wqe->len - r->offset) {
		dp_fail_recv(rc, DP_WC_LOC_LEN_ERR);
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	}
	if (dp_receive_payload(&rc->qp, wqe, r->offset, p, len, NULL)) {
		dp_fail_recv(rc, DP_WC_LOC_PROT_ERR);
		return DP_NAK(DP_NAK_REMOTE_OPERATION);
	}
	r->offset += len;
	return 0;
}

static int execute_write(struct dp_rc *rc, const struct dp_parsed *p, uint32_t len)
{
	struct dp_responder *r = &rc->resp;
	bool last = p->mask & DP_IS_LAST;
	uint8_t *to;

	if (!(rc->qp.attr.access & DP_ACCESS_REMOTE_WRITE))
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (p->imm && !dp_receive(&rc->qp, 0))
		return dp_rnr_syndrome(rc);
	if (p->mask & DP_IS_FIRST) {
		r->va = dp_reth_va(p->reth);
		r->rkey = dp_reth_rkey(p->reth);
		r->left = dp_reth_len(p->reth);
		r->offset = 0;
		if (r->left > DP_MSG_MAX)
			return DP_NAK(DP_NAK_INVALID_REQUEST);
		if (!dp_remote_reach(&rc->qp, r->rkey, r->va, r->left, DP_ACCESS_REMOTE_WRITE))
			return DP_NAK(DP_NAK_REMOTE_ACCESS);
	}
	if (last ? len != r->left : len >= r->left)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	to = dp_remote_reach(&rc->qp, r->rkey, r->va, len, DP_ACCESS_REMOTE_WRITE);
	if (!to)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	dp_copy_payload(to, p, 0, len);
	r->va += len;
	r->left -= len;
	r->offset += len;
	return 0;
}

static int execute(struct dp_rc *rc, const struct dp_parsed *p, uint32_t *n_psn, uint64_t now)
{
	uint32_t len = p->payload_len + p->payload2_len;
	struct dp_responder *r = &rc->resp;
	struct dp_held held;
	int err;

	if (!well_formed(rc, p, len))
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	dp_held_from(p, &held, now);
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC)) {
		if (p->mask & DP_IS_READ)
			*n_psn = dp_read_psns(held.len, rc->qp.attr.path_mtu);
		r->msn = (r->msn + 1) & 0xffffff;
		err = p->mask & DP_IS_READ ? dp_execute_read(rc, &held, p->psn, false) :
					     dp_execute_once(rc, &held, p->psn, false);
		if (err)
			r->msn = (r->msn - 1) & 0xffffff;
		return err;
	}
	err = p->mask & DP_IS_SEND ? execute_send(rc, p, len) : execute_write(rc, p, len);
	if (err)
		return err;
	rc->qp.stats.rx_bytes += len;
	r->message = p->mask & DP_IS_LAST ? MSG_NONE : p->mask & DP_IS_SEND ? MSG_SEND : MSG_WRITE;
	if (!(p->mask & DP_IS_LAST))
		return 0;
	held.len = r->offset;
	return dp_finish_message(rc, &held);
}

static void duplicate(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	struct dp_held held;

	rc->qp.stats.duplicates++;
	if (!(p->mask & (DP_IS_READ | DP_IS_ATOMIC))) {
		dp_ack_soon(rc);
		return;
	}
	dp_held_from(p, &held, now);
	dp_replay(rc, &held, p->psn, false);
}

void dp_responder_rx(struct dp_rc *rc, const struct dp_packet *pkt, const struct dp_parsed *p,
		     uint64_t now)
{
	int32_t ahead = dp_psn_diff(p->psn, rc->resp.epsn);
	struct dp_responder *r = &rc->resp;
	uint32_t n_psn = 1;
	int err;

	if ((pkt->tos & DP_ECN_MASK) == DP_ECN_CE)
		r->marked++;
	if (ahead < 0) {
		duplicate(rc, p, now);
		return;
	}
	/* A requester changes its mode only when nothing is under way: this one breaks the
	 * protocol. */
	if (r->block && r->block->count) {
		rc->qp.stats.dropped_ooo++;
		return;
	}
	if (ahead > 0) {
		rc->qp.stats.dropped_ooo++;
		if (!r->nak_sent)
			dp_responder_nak(rc, r->epsn, DP_NAK(DP_NAK_PSN_SEQUENCE));
		return;
	}
	err = execute(rc, p, &n_psn, now);
	if (err == -EAGAIN)
		return; /* no room to keep the answer: the requester will ask again */
	if (err) {
		dp_responder_nak(rc, r->epsn, (uint8_t)err);
		return;
	}
	dp_responder_advance(r, n_psn);
	r->nak_sent = false;
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC))
		return;
	r->newest = p->psn;
	if (p->ack_req)
		dp_ack_soon(rc);
}

/* ---- transmit ------------------------------------------------------------------------------ */

/* The memory was deregistered after the request was accepted. */
static void cannot_answer(struct dp_rc *rc, const struct dp_answer *a)
{
	uint32_t psn = dp_psn_add(a->psn, a->done);

	if (a->replayed) {
		rc->resp.answers->head++;
		dp_refuse_replay(rc, psn, DP_NAK(DP_NAK_REMOTE_ACCESS));
	} else {
		dp_responder_nak(rc, psn, DP_NAK(DP_NAK_REMOTE_ACCESS));
	}
}

static int send_answer(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_answers *q = rc->resp.answers;
	struct dp_answer *a;

	if (!q)
		return 0;
	if (q->head == q->tail) {
		dp_answers_release(rc);
		return 0;
	}
	a = &q->ring[q->head % DP_READ_QUEUE];
	if (dp_build_answer(rc, a, pkt, now)) {
		cannot_answer(rc, a);
		return 0;
	}
	if (++a->done == a->n_psn)
		q->head++;
	rc->qp.stats.tx_packets++;
	return 1;
}

static int send_ack(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_responder *r = &rc->resp;

	if (!r->ack_now)
		return 0;
	dp_build_ack(rc, pkt, now);
	r->ack_now = false;
	r->unacked = 0;
	r->ack_ns = 0;
	if (!rc->qp.refusing)
		r->syndrome = DP_AETH_ACK | DP_AETH_CREDIT_INVALID;
	rc->qp.stats.acks_tx++;
	return 1;
}

/* A standard requester takes an ACK that overtakes READ responses for a loss.  The peer is one as
 * long as it waits for answers that it has asked for in standard mode.  A requester of any mode
 * takes a fatal NAK for the end of all that it has no answer to. */
static bool answers_first(const struct dp_rc *rc)
{
	const struct dp_answers *q = rc->resp.answers;

	if (!rc->hello_done || rc->qp.refusing)
		return true;
	return q && q->head != q->tail && !q->ring[q->head % DP_READ_QUEUE].extended;
}

int dp_responder_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	if (answers_first(rc))
		return send_answer(rc, pkt, now) || send_ack(rc, pkt, now);
	return send_ack(rc, pkt, now) || send_answer(rc, pkt, now);
}
