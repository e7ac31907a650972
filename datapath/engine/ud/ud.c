// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Unreliable datagrams as a type of QP. */
#include "engine/ud/ud.h"

#include "engine/build.h"

#define OWN_QKEY 0x80000000u /* in a Q_Key of a request: use the QP's own Q_Key (10.2.5) */

static const struct dp_qp_transition transitions[] = {
	{ DP_QPS_RESET, DP_QPS_INIT, DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_QKEY, 0 },
	{ DP_QPS_INIT, DP_QPS_INIT, 0, DP_QP_QKEY | DP_QP_PKEY_INDEX | DP_QP_PORT },
	{ DP_QPS_INIT, DP_QPS_RTR, 0, DP_QP_QKEY | DP_QP_PKEY_INDEX },
	{ DP_QPS_RTR, DP_QPS_RTS, DP_QP_SQ_PSN, DP_QP_CUR_STATE | DP_QP_QKEY },
	{ DP_QPS_RTS, DP_QPS_RTS, 0, DP_QP_CUR_STATE | DP_QP_QKEY },
	{ DP_QPS_RTS, DP_QPS_SQD, 0, DP_QP_EN_SQD_ASYNC_NOTIFY },
	{ DP_QPS_SQD, DP_QPS_SQD, 0, DP_QP_QKEY | DP_QP_PKEY_INDEX },
	{ DP_QPS_SQD, DP_QPS_RTS, 0, DP_QP_CUR_STATE | DP_QP_QKEY },
	{ DP_QPS_SQE, DP_QPS_RTS, 0, DP_QP_CUR_STATE | DP_QP_QKEY },
};

/* ---- life cycle ------------------------------------------------------------ */

static int ud_create(struct dp_qp *qp)
{
	(void)qp;
	return 0;
}

static void ud_destroy(struct dp_qp *qp)
{
	(void)qp;
}

/* Releases the address handles of requests up to `end`. */
static void release_ahs(struct dp_ud *ud, uint32_t end)
{
	for (; ud->ah_ci != end; ud->ah_ci++)
		dp_sq(&ud->qp, ud->ah_ci)->ah->users--;
}

static void ud_reset(struct dp_qp *qp)
{
	struct dp_ud *ud = dp_ud_of(qp);

	release_ahs(ud, qp->sq_pi);
	ud->ah_ci = 0;
	ud->psn = 0;
}

static void ud_stop(struct dp_qp *qp)
{
	release_ahs(dp_ud_of(qp), qp->sq_pi);
}

static int ud_modify(struct dp_qp *qp, uint32_t from, uint32_t to, uint64_t now)
{
	(void)now;
	if (from == DP_QPS_RTR && to == DP_QPS_RTS)
		dp_ud_of(qp)->psn = qp->attr.sq_psn;
	else if (from == DP_QPS_RTS && to == DP_QPS_SQD)
		qp->sq_drain = qp->sq_ci; /* a message that has begun is finished */
	return 0;
}

static void ud_query(const struct dp_qp *qp, struct dp_qp_attr *out)
{
	out->sq_psn = container_of(qp, const struct dp_ud, qp)->psn;
}

static void ud_count(const struct dp_qp *qp, struct dp_qp_stats *out)
{
	(void)qp;
	(void)out;
}

/* ---- requests posted --------------------------------------------------------- */

static bool ud_accepts(const struct dp_qp *qp, const struct dp_send_wr *wr, uint32_t len)
{
	(void)len; /* see is_too_long() */
	return (wr->opcode == DP_WR_SEND || wr->opcode == DP_WR_SEND_WITH_IMM) && wr->ah &&
	       wr->ah->pd == qp->pd;
}

static void ud_post(struct dp_qp *qp, struct dp_swqe *wqe, const struct dp_send_wr *wr)
{
	wqe->ah = wr->ah;
	wqe->remote_qpn = wr->remote_qpn;
	wqe->remote_qkey = wr->remote_qkey & OWN_QKEY ? qp->attr.qkey : wr->remote_qkey;
	wqe->ah->users++;
}

/* ---- packets ------------------------------------------------------------------- */

/* Builds one packet.  -EFAULT: local memory cannot be reached. */
static int build(struct dp_ud *ud, const struct dp_swqe *wqe, struct dp_packet *pkt)
{
	bool imm = wqe->opcode == DP_WR_SEND_WITH_IMM;
	const struct dp_ah *ah = wqe->ah;
	uint8_t *at;

	dp_packet_start(&ud->qp, pkt, &ah->addr, ah->path_id);
	if (ah->tos)
		pkt->tos = ah->tos | (pkt->tos & DP_ECN_MASK);
	dp_bth_set(dp_packet_push(pkt, DP_BTH_LEN),
		   imm ? DP_OP_UD_SEND_ONLY_IMM : DP_OP_UD_SEND_ONLY,
		   !!(wqe->flags & DP_SEND_SOLICITED), -wqe->len & 3, wqe->remote_qpn, 0, ud->psn);
	dp_deth_set(dp_packet_push(pkt, DP_DETH_LEN), wqe->remote_qkey, ud->qp.qpn);
	if (imm)
		memcpy(dp_packet_push(pkt, DP_IMM_LEN), &wqe->imm, DP_IMM_LEN);
	at = wqe->len ? dp_packet_push_payload(pkt, wqe->len) : NULL;
	if (at && dp_gather(&ud->qp, wqe, 0, at, wqe->len))
		return -EFAULT;
	dp_packet_end(&ud->qp, pkt);
	return 0;
}

static void finish(struct dp_ud *ud, enum dp_wc_status status)
{
	struct dp_qp *qp = &ud->qp;

	dp_pop_send(qp, status);
	qp->sq_tx = qp->sq_ci;
	release_ahs(ud, qp->sq_ci);
}

/* A bad request stops only the send queue (section 10.3.1.6). */
static void fail(struct dp_ud *ud)
{
	finish(ud, DP_WC_LOC_PROT_ERR);
	ud->qp.state = DP_QPS_SQE;
	dp_flush_sends(&ud->qp);
	release_ahs(ud, ud->qp.sq_pi);
}

/* A message that is too long is not sent, and that is no error (C10-93.1.1). */
static bool is_too_long(struct dp_qp *qp, const struct dp_swqe *wqe)
{
	if (wqe->len <= qp->engine->cfg.path_mtu_max)
		return false;
	qp->engine->stats.tx_too_long++;
	return true;
}

static int ud_tx(struct dp_qp *qp, struct dp_packet *out, int max, uint64_t now)
{
	struct dp_ud *ud = dp_ud_of(qp);
	const struct dp_swqe *wqe;
	int n = 0;

	(void)now;
	while (n < max && qp->state == DP_QPS_RTS && qp->sq_ci != qp->sq_pi) {
		wqe = dp_sq(qp, qp->sq_ci);
		if (is_too_long(qp, wqe)) {
			finish(ud, DP_WC_SUCCESS);
			continue;
		}
		if (build(ud, wqe, &out[n])) {
			fail(ud);
			break;
		}
		ud->psn = dp_psn_add(ud->psn, 1);
		qp->stats.tx_packets++;
		qp->stats.tx_bytes += wqe->len;
		finish(ud, DP_WC_SUCCESS);
		n++;
	}
	return n;
}

/* ---- time ------------------------------------------------------------------------ */

static void ud_tick(struct dp_qp *qp, uint64_t now)
{
	(void)qp;
	(void)now;
}

static uint64_t ud_deadline(const struct dp_qp *qp, uint64_t now)
{
	(void)qp;
	(void)now;
	return DP_NEVER;
}

const struct dp_qp_ops dp_ud_ops = {
	.bytes = sizeof(struct dp_ud),
	.transitions = transitions,
	.n_transitions = ARRAY_SIZE(transitions),
	.create = ud_create,
	.destroy = ud_destroy,
	.modify = ud_modify,
	.query = ud_query,
	.reset = ud_reset,
	.stop = ud_stop,
	.accepts = ud_accepts,
	.post = ud_post,
	.rx = dp_ud_rx,
	.tx = ud_tx,
	.tick = ud_tick,
	.deadline = ud_deadline,
	.count = ud_count,
	.check = dp_ud_check,
};
