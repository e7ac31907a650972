// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Work requests: checked and copied into their queues.
 */
#include "engine/qp.h"

bool dp_total_length(const struct dp_sge *sge, uint32_t n, uint64_t *out)
{
	uint32_t i;

	*out = 0;
	for (i = 0; i < n; i++)
		*out += sge[i].length;
	return *out <= DP_MSG_MAX;
}

static bool send_valid(const struct dp_qp *qp, const struct dp_send_wr *wr, uint64_t *len)
{
	bool in_line = wr->flags & DP_SEND_INLINE;

	/* inline data may come in any number of pieces */
	if (wr->num_sge > (in_line ? (uint32_t)DP_SGE_MAX : qp->max_send_sge))
		return false;
	if (!dp_total_length(wr->sge, wr->num_sge, len) || (in_line && *len > qp->max_inline))
		return false;
	return qp->ops->accepts(qp, wr, (uint32_t)*len);
}

static void copy_data(struct dp_swqe *wqe, const struct dp_send_wr *wr)
{
	uint8_t *to = (uint8_t *)wqe->sge;
	uint32_t i;

	if (!(wr->flags & DP_SEND_INLINE)) {
		if (wr->num_sge)
			memcpy(wqe->sge, wr->sge, wr->num_sge * sizeof(*wr->sge));
		return;
	}
	for (i = 0; i < wr->num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)wr->sge[i].addr, wr->sge[i].length);
		to += wr->sge[i].length;
	}
}

static uint32_t send_room(const struct dp_qp *qp)
{
	return qp->sq_mask + 1 - (qp->sq_pi - qp->sq_ci) - dp_locals_waiting(qp);
}

bool dp_qp_completes_posts(const struct dp_qp *qp, const struct dp_send_wr *wrs, uint32_t n)
{
	uint32_t i;

	if (dp_qp_flushes(qp))
		return true;
	for (i = 0; i < n && !dp_is_local(wrs[i].opcode); i++)
		;
	return i < n;
}

/* A request that is valid, has room, and has been executed if it is local. */
static void post(struct dp_qp *qp, const struct dp_send_wr *wr, uint32_t len)
{
	struct dp_swqe *wqe;

	if (dp_is_local(wr->opcode)) {
		dp_locals_post(qp, wr);
		return;
	}
	wqe = dp_sq(qp, qp->sq_pi);
	*wqe = (struct dp_swqe){
		.wr_id = wr->wr_id,
		.rkey = wr->rkey,
		.imm = wr->imm,
		.len = len,
		.opcode = (uint8_t)wr->opcode,
		.flags = (uint8_t)wr->flags,
		.num_sge = (uint8_t)wr->num_sge,
	};
	if (dp_qp_flushes(qp)) {
		dp_complete_send(qp, wqe, DP_WC_WR_FLUSH_ERR);
		return;
	}
	copy_data(wqe, wr);
	qp->ops->post(qp, wqe, wr);
	qp->sq_pi++;
	dp_qp_wake(qp);
}

int dp_qp_post_sends(struct dp_qp *qp, const struct dp_send_wr *wrs, uint32_t n)
{
	uint64_t len;
	uint32_t i;
	int err;

	if (!dp_qp_sends(qp) && !dp_qp_flushes(qp))
		return -EINVAL;
	for (i = 0; i < n; i++)
		if (!send_valid(qp, &wrs[i], &len))
			return -EINVAL;
	if (!dp_qp_flushes(qp) && n > send_room(qp))
		return -ENOMEM;
	err = dp_locals_run(qp, wrs, n);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		dp_total_length(wrs[i].sge, wrs[i].num_sge, &len);
		post(qp, &wrs[i], (uint32_t)len);
	}
	return 0;
}

int dp_qp_post_send(struct dp_qp *qp, const struct dp_send_wr *wr)
{
	uint64_t len;
	int err;

	if (!dp_qp_sends(qp) && !dp_qp_flushes(qp))
		return -EINVAL;
	if (!send_valid(qp, wr, &len))
		return -EINVAL;
	if (!send_room(qp))
		return -ENOMEM;
	err = dp_is_local(wr->opcode) ? dp_locals_run(qp, wr, 1) : 0;
	if (!err)
		post(qp, wr, (uint32_t)len);
	return err;
}

int dp_qp_post_recv(struct dp_qp *qp, const struct dp_recv_wr *wr)
{
	uint32_t len;

	if (qp->state == DP_QPS_RESET || qp->srq || dp_receives_check(&qp->rq, wr, &len))
		return -EINVAL;
	if (qp->state == DP_QPS_ERR) {
		struct dp_wc wc = { .wr_id = wr->wr_id,
				    .status = DP_WC_WR_FLUSH_ERR,
				    .opcode = DP_WC_RECV,
				    .qpn = qp->qpn };

		dp_cq_push(qp->recv_cq, &wc, false);
		return 0;
	}
	if (dp_receives_count(&qp->rq) > qp->rq.mask)
		return -ENOMEM;
	dp_receives_push(&qp->rq, wr, len);
	return 0;
}
