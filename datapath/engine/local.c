// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests that send nothing: binding a memory window, invalidating a key.
 *
 * They change what the peer may do, and no other request of their send queue depends on them.  So
 * they are executed when they are posted.  Their completions keep the order of the queue: each
 * waits until the requests before it have completed.
 */
#include "engine/qp.h"

struct dp_local {
	uint64_t wr_id;
	uint32_t after; /* it completes when sq_ci reaches this */
	uint8_t opcode; /* enum dp_wc_opcode */
	bool signaled;
};

struct dp_locals {
	uint32_t ci, pi;
	struct dp_local at[]; /* one for each place of the send queue */
};

static struct dp_local *local(const struct dp_qp *qp, uint32_t i)
{
	return &qp->locals->at[i & qp->sq_mask];
}

static void complete(struct dp_qp *qp, const struct dp_local *l, enum dp_wc_status status)
{
	struct dp_wc wc = {
		.wr_id = l->wr_id, .status = status, .opcode = l->opcode, .qpn = qp->qpn
	};

	if (status != DP_WC_SUCCESS || l->signaled)
		dp_cq_push(qp->send_cq, &wc, false);
}

uint32_t dp_locals_waiting(const struct dp_qp *qp)
{
	return qp->locals ? qp->locals->pi - qp->locals->ci : 0;
}

void dp_locals_complete(struct dp_qp *qp, enum dp_wc_status status)
{
	struct dp_locals *all = qp->locals;

	for (; all && all->ci != all->pi && local(qp, all->ci)->after == qp->sq_ci; all->ci++)
		complete(qp, local(qp, all->ci), status);
}

void dp_locals_reset(struct dp_qp *qp)
{
	if (qp->locals)
		qp->locals->ci = qp->locals->pi;
}

static int run(struct dp_qp *qp, const struct dp_send_wr *wr)
{
	return wr->opcode == DP_WR_BIND_MW ? dp_window_bind(qp, &wr->bind) :
					     dp_mr_invalidate(qp, wr->invalidate_rkey);
}

int dp_post_local(struct dp_qp *qp, const struct dp_send_wr *wr)
{
	struct dp_local l = {
		.wr_id = wr->wr_id,
		.after = qp->sq_pi,
		.opcode = wr->opcode == DP_WR_BIND_MW ? DP_WC_BIND_MW : DP_WC_LOCAL_INV,
		.signaled = qp->sq_sig_all || wr->flags & DP_SEND_SIGNALED,
	};
	int err;

	if (dp_qp_flushes(qp)) {
		complete(qp, &l, DP_WC_WR_FLUSH_ERR);
		return 0;
	}
	if (!qp->locals) {
		qp->locals = calloc(1, sizeof(*qp->locals) +
					       (qp->sq_mask + 1) * sizeof(qp->locals->at[0]));
		if (!qp->locals)
			return -ENOMEM;
	}
	err = run(qp, wr);
	if (err)
		return err;
	if (qp->sq_ci == qp->sq_pi)
		complete(qp, &l, DP_WC_SUCCESS);
	else
		*local(qp, qp->locals->pi++) = l;
	return 0;
}
