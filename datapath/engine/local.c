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

/* What it changes; NULL: nothing, since it is refused. */
static struct dp_mr *object_of(const struct dp_qp *qp, const struct dp_send_wr *wr)
{
	return wr->opcode == DP_WR_BIND_MW ? wr->bind.window :
					     dp_mr_find(qp->pd, wr->invalidate_rkey);
}

static int make_room(struct dp_qp *qp)
{
	if (!qp->locals)
		qp->locals = calloc(1, sizeof(*qp->locals) +
					       (qp->sq_mask + 1) * sizeof(qp->locals->at[0]));
	return qp->locals ? 0 : -ENOMEM;
}

struct change {
	struct dp_mr *mr, before;
};

/* Those behind the first one depend on it: it may invalidate the window that they bind.  So they are
 * tried in their order, and taken back when one is refused. */
static int run_several(struct dp_qp *qp, const struct dp_send_wr *wrs, uint32_t n, uint32_t locals)
{
	struct change *changes = calloc(locals, sizeof(*changes));
	uint32_t done = 0, i;
	int err = changes ? 0 : -ENOMEM;

	for (i = 0; i < n && !err; i++) {
		if (!dp_is_local(wrs[i].opcode))
			continue;
		changes[done].mr = object_of(qp, &wrs[i]);
		if (changes[done].mr)
			changes[done].before = *changes[done].mr;
		err = run(qp, &wrs[i]);
		done += !err;
	}
	while (err && done--)
		dp_mr_restore(changes[done].mr, &changes[done].before);
	free(changes);
	return err;
}

int dp_locals_run(struct dp_qp *qp, const struct dp_send_wr *wrs, uint32_t n)
{
	uint32_t locals = 0, first = 0, i;
	int err;

	for (i = n; i-- > 0;) {
		if (dp_is_local(wrs[i].opcode)) {
			locals++;
			first = i;
		}
	}
	if (!locals || dp_qp_flushes(qp))
		return 0;
	err = make_room(qp);
	if (err)
		return err;
	return locals == 1 ? run(qp, &wrs[first]) : run_several(qp, wrs, n, locals);
}

void dp_locals_post(struct dp_qp *qp, const struct dp_send_wr *wr)
{
	struct dp_local l = {
		.wr_id = wr->wr_id,
		.after = qp->sq_pi,
		.opcode = wr->opcode == DP_WR_BIND_MW ? DP_WC_BIND_MW : DP_WC_LOCAL_INV,
		.signaled = qp->sq_sig_all || wr->flags & DP_SEND_SIGNALED,
	};

	if (dp_qp_flushes(qp))
		complete(qp, &l, DP_WC_WR_FLUSH_ERR);
	else if (qp->sq_ci == qp->sq_pi)
		complete(qp, &l, DP_WC_SUCCESS);
	else
		*local(qp, qp->locals->pi++) = l;
}
