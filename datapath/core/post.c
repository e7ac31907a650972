// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Work requests: checked, copied into the queue, given their PSNs.
 */
#include "core/internal.h"

enum {
	POST_INLINE_OK = 1,
	POST_CONSUMES_RECV = 2,
};

static const struct {
	bool known;
	uint8_t traits;
} requests[] = {
	[DP_WR_RDMA_WRITE] = { true, POST_INLINE_OK },
	[DP_WR_RDMA_WRITE_WITH_IMM] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_SEND] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_SEND_WITH_IMM] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_SEND_WITH_INV] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_RDMA_READ] = { true, 0 },
	[DP_WR_ATOMIC_CMP_AND_SWP] = { true, 0 },
	[DP_WR_ATOMIC_FETCH_AND_ADD] = { true, 0 },
};

static bool total_length(const struct dp_sge *sge, uint32_t n, uint64_t *out)
{
	uint32_t i;

	*out = 0;
	for (i = 0; i < n; i++)
		*out += sge[i].length;
	return *out <= DP_MSG_MAX;
}

static bool send_valid(const struct dp_qp *qp, const struct dp_send_wr *wr, uint64_t *len)
{
	uint8_t traits;

	if (wr->opcode >= sizeof(requests) / sizeof(*requests) || !requests[wr->opcode].known)
		return false;
	traits = requests[wr->opcode].traits;
	/* inline data may come in any number of pieces */
	if (wr->num_sge > (wr->flags & DP_SEND_INLINE ? (uint32_t)DP_SGE_MAX : qp->max_send_sge))
		return false;
	if (!total_length(wr->sge, wr->num_sge, len))
		return false;
	if (wr->flags & DP_SEND_INLINE && (!(traits & POST_INLINE_OK) || *len > qp->max_inline))
		return false;
	if (dp_is_atomic((uint8_t)wr->opcode) && *len != 8)
		return false;
	return !dp_is_answered((uint8_t)wr->opcode) || qp->attr.max_rd_atomic ||
	       qp->state == DP_QPS_ERR;
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

void dp_number(struct dp_qp *qp, struct dp_swqe *wqe)
{
	uint32_t segment = qp->req.segment, left = wqe->len - wqe->base;

	wqe->first_psn = qp->req.post_psn;
	wqe->n_psn = dp_is_atomic(wqe->opcode) || !left ? 1 : (left + segment - 1) / segment;
	qp->req.post_psn = dp_psn_add(qp->req.post_psn, wqe->n_psn);
}

int dp_qp_post_send(struct dp_qp *qp, const struct dp_send_wr *wr)
{
	struct dp_swqe *wqe;
	uint64_t len;

	if (qp->state != DP_QPS_RTS && qp->state != DP_QPS_SQD && qp->state != DP_QPS_ERR)
		return -EINVAL;
	if (!send_valid(qp, wr, &len))
		return -EINVAL;
	if (qp->sq_pi - qp->sq_ci > qp->sq_mask)
		return -ENOMEM;
	wqe = dp_sq(qp, qp->sq_pi);
	*wqe = (struct dp_swqe){
		.wr_id = wr->wr_id,
		.remote_addr = wr->remote_addr,
		.rkey = wr->rkey,
		.compare_add = wr->compare_add,
		.swap = wr->swap,
		.imm = wr->imm,
		.len = (uint32_t)len,
		.opcode = (uint8_t)wr->opcode,
		.flags = (uint8_t)wr->flags,
		.num_sge = (uint8_t)wr->num_sge,
	};
	if (qp->state == DP_QPS_ERR) {
		dp_complete_send(qp, wqe, DP_WC_WR_FLUSH_ERR);
		return 0;
	}
	copy_data(wqe, wr);
	dp_number(qp, wqe);
	wqe->rq_seq = qp->req.post_rq_seq;
	if (requests[wqe->opcode].traits & POST_CONSUMES_RECV)
		qp->req.post_rq_seq++;
	qp->sq_pi++;
	dp_qp_wake(qp);
	return 0;
}

int dp_qp_post_recv(struct dp_qp *qp, const struct dp_recv_wr *wr)
{
	struct dp_rwqe *wqe;
	uint64_t len;

	if (qp->state == DP_QPS_RESET || wr->num_sge > qp->max_recv_sge)
		return -EINVAL;
	if (!total_length(wr->sge, wr->num_sge, &len))
		return -EINVAL;
	if (qp->state == DP_QPS_ERR) {
		struct dp_wc wc = { .wr_id = wr->wr_id,
				    .status = DP_WC_WR_FLUSH_ERR,
				    .opcode = DP_WC_RECV,
				    .qpn = qp->qpn };

		dp_cq_push(qp->recv_cq, &wc, false);
		return 0;
	}
	if (qp->rq_pi - qp->rq_ci > qp->rq_mask)
		return -ENOMEM;
	wqe = dp_rq(qp, qp->rq_pi);
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	wqe->len = (uint32_t)len;
	if (wr->num_sge)
		memcpy(wqe->sge, wr->sge, wr->num_sge * sizeof(*wr->sge));
	qp->rq_pi++;
	return 0;
}
