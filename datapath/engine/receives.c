// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/qp.h"

/* ---- rings -------------------------------------------------------------------------- */

static uint32_t entries(uint32_t max_wr)
{
	return dp_pow2(max_wr ? max_wr : 1);
}

static size_t stride(uint32_t max_sge)
{
	return sizeof(struct dp_rwqe) + (max_sge ? max_sge : 1) * sizeof(struct dp_sge);
}

size_t dp_receives_bytes(uint32_t max_wr, uint32_t max_sge)
{
	return entries(max_wr) * stride(max_sge);
}

int dp_receives_init(struct dp_receives *r, uint32_t max_wr, uint32_t max_sge, void *memory)
{
	r->max_sge = (uint16_t)(max_sge ? max_sge : 1);
	r->stride = (uint16_t)stride(max_sge);
	r->mask = entries(max_wr) - 1;
	r->wqes = memory ? memory : calloc(r->mask + 1, r->stride);
	return r->wqes ? 0 : -ENOMEM;
}

int dp_receives_check(const struct dp_receives *r, const struct dp_recv_wr *wr, uint32_t *len)
{
	uint64_t total;

	if (wr->num_sge > r->max_sge)
		return -EINVAL;
	dp_total_length(wr->sge, wr->num_sge, &total);
	*len = total < DP_MSG_MAX ? (uint32_t)total : DP_MSG_MAX; /* no message is longer */
	return 0;
}

void dp_receives_push(struct dp_receives *r, const struct dp_recv_wr *wr, uint32_t len)
{
	struct dp_rwqe *wqe = dp_receives_at(r, r->pi++);

	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	wqe->len = len;
	if (wr->num_sge)
		memcpy(wqe->sge, wr->sge, wr->num_sge * sizeof(*wr->sge));
}

/* ---- shared receive queues -------------------------------------------------------------- */

int dp_srq_create(struct dp_pd *pd, const struct dp_srq_attr *attr, void *user, struct dp_srq **out)
{
	struct dp_srq *srq;

	if (attr->max_wr > DP_WR_MAX || attr->max_sge > DP_SGE_MAX)
		return -EINVAL;
	srq = calloc(1, sizeof(*srq));
	if (!srq || dp_receives_init(&srq->rq, attr->max_wr, attr->max_sge, NULL)) {
		free(srq);
		return -ENOMEM;
	}
	srq->event.source = DP_SOURCE_SRQ;
	srq->pd = pd;
	srq->user = user;
	pd->users++;
	pd->engine->n_srqs++;
	*out = srq;
	return 0;
}

int dp_srq_destroy(struct dp_srq *srq)
{
	struct dp_engine *e = srq->pd->engine;

	if (srq->users)
		return -EBUSY;
	dp_unraise(e, &srq->event);
	e->n_srqs--;
	srq->pd->users--;
	free(srq->rq.wqes);
	free(srq);
	return 0;
}

int dp_srq_post_recv(struct dp_srq *srq, const struct dp_recv_wr *wr)
{
	uint32_t len;
	int err = dp_receives_check(&srq->rq, wr, &len);

	if (err)
		return err;
	if (dp_receives_count(&srq->rq) + srq->lent > srq->rq.mask)
		return -ENOMEM;
	dp_receives_push(&srq->rq, wr, len);
	return 0;
}

static void look_at_limit(struct dp_srq *srq)
{
	if (!srq->limit || dp_receives_count(&srq->rq) >= srq->limit)
		return;
	srq->limit = 0;
	dp_raise(srq->pd->engine, &srq->event, DP_EVENT_SRQ_LIMIT);
}

static int resize(struct dp_srq *srq, uint32_t max_wr)
{
	uint32_t held = dp_receives_count(&srq->rq), i;
	struct dp_receives now = { 0 };

	if (!max_wr || max_wr > DP_WR_MAX || max_wr < held + srq->lent)
		return -EINVAL;
	if (dp_receives_init(&now, max_wr, srq->rq.max_sge, NULL))
		return -ENOMEM;
	for (i = 0; i < held; i++)
		memcpy(dp_receives_at(&now, now.pi++), dp_receives_at(&srq->rq, srq->rq.ci + i),
		       now.stride);
	free(srq->rq.wqes);
	srq->rq = now;
	return 0;
}

int dp_srq_modify(struct dp_srq *srq, const struct dp_srq_attr *attr, uint32_t mask)
{
	uint32_t most = mask & DP_SRQ_MAX_WR ? attr->max_wr : srq->rq.mask + 1;
	int err = 0;

	if (mask & ~(uint32_t)(DP_SRQ_MAX_WR | DP_SRQ_LIMIT) ||
	    (mask & DP_SRQ_LIMIT && attr->limit > most))
		return -EINVAL;
	if (mask & DP_SRQ_MAX_WR)
		err = resize(srq, attr->max_wr);
	if (err || !(mask & DP_SRQ_LIMIT))
		return err;
	srq->limit = attr->limit;
	look_at_limit(srq);
	return 0;
}

void dp_srq_query(const struct dp_srq *srq, struct dp_srq_attr *out)
{
	*out = (struct dp_srq_attr){
		.max_wr = srq->rq.mask + 1,
		.max_sge = srq->rq.max_sge,
		.limit = srq->limit,
	};
}

void *dp_srq_user(const struct dp_srq *srq)
{
	return srq->user;
}

/* ---- the receives of a QP ------------------------------------------------------------------ */

/* The ring of a QP with a shared queue was made for a share.  A longer one has behind its entries
 * where that ring is, which comes back when all borrowed receives are used or returned. */
static void *behind_entries(const struct dp_receives *r)
{
	return r->wqes + (size_t)(r->mask + 1) * r->stride;
}

static bool is_long(const struct dp_qp *qp)
{
	return qp->srq && qp->rq.mask >= DP_BORROWED_SHARE;
}

static bool grow(struct dp_qp *qp)
{
	struct dp_receives now = qp->rq;
	uint32_t i;

	now.mask = 2 * now.mask + 1;
	now.wqes = malloc((size_t)(now.mask + 1) * now.stride + sizeof(qp->rq.wqes));
	if (!now.wqes)
		return false;
	for (i = now.ci; i != now.pi; i++)
		memcpy(dp_receives_at(&now, i), dp_receives_at(&qp->rq, i), now.stride);
	if (is_long(qp)) {
		memcpy(behind_entries(&now), behind_entries(&qp->rq), sizeof(qp->rq.wqes));
		free(qp->rq.wqes);
	} else {
		memcpy(behind_entries(&now), &qp->rq.wqes, sizeof(qp->rq.wqes));
	}
	qp->rq = now;
	return true;
}

static void shrink(struct dp_qp *qp)
{
	uint8_t *made;

	if (!is_long(qp))
		return;
	memcpy(&made, behind_entries(&qp->rq), sizeof(qp->rq.wqes));
	free(qp->rq.wqes);
	qp->rq.wqes = made;
	qp->rq.mask = DP_BORROWED_SHARE - 1;
}

/* Takes one more receive from the shared queue.  False: none is left for this QP, or there is no
 * memory. */
static bool borrow(struct dp_qp *qp)
{
	uint32_t has = dp_receives_count(&qp->rq), left = dp_receives_count(&qp->srq->rq);
	struct dp_srq *srq = qp->srq;

	if (left <= (has < DP_BORROWED_SHARE ? 0 : DP_BORROWED_SHARE))
		return false;
	if (has > qp->rq.mask && !grow(qp))
		return false;
	memcpy(dp_receives_at(&qp->rq, qp->rq.pi++), dp_receives_at(&srq->rq, srq->rq.ci++),
	       srq->rq.stride);
	srq->lent++;
	look_at_limit(srq);
	return true;
}

struct dp_rwqe *dp_receive(struct dp_qp *qp, uint32_t ahead)
{
	while (qp->srq && dp_receives_count(&qp->rq) <= ahead)
		if (!borrow(qp))
			return NULL;
	return ahead < dp_receives_count(&qp->rq) ? dp_receives_at(&qp->rq, qp->rq.ci + ahead) :
						    NULL;
}

const struct dp_rwqe *dp_receive_next(const struct dp_qp *qp)
{
	const struct dp_receives *rq = &qp->rq;

	if (qp->srq && !dp_receives_count(rq))
		rq = &qp->srq->rq;
	return dp_receives_count(rq) ? dp_receives_at(rq, rq->ci) : NULL;
}

uint64_t dp_receive_take(struct dp_qp *qp)
{
	uint64_t wr_id = dp_receives_at(&qp->rq, qp->rq.ci++)->wr_id;

	if (qp->srq)
		qp->srq->lent--;
	if (!dp_receives_count(&qp->rq))
		shrink(qp);
	return wr_id;
}

/* Keys in a shared queue belong to the PD of the shared queue. */
static struct dp_pd *pd_of(const struct dp_qp *qp)
{
	return qp->srq ? qp->srq->pd : qp->pd;
}

int dp_receive_fill(const struct dp_qp *qp, const struct dp_rwqe *wqe, uint32_t offset,
		    const uint8_t *from, uint32_t len, struct dp_put *put)
{
	return dp_scatter_with(put, pd_of(qp), wqe->sge, wqe->num_sge, offset, from, len);
}

int dp_receive_payload(const struct dp_qp *qp, const struct dp_rwqe *wqe, uint32_t offset,
		       const struct dp_parsed *p, uint32_t len, struct dp_put *put)
{
	return dp_scatter_payload_with(put, pd_of(qp), wqe->sge, wqe->num_sge, offset, p, len);
}

void dp_receives_flush(struct dp_qp *qp)
{
	struct dp_wc wc = { .status = DP_WC_WR_FLUSH_ERR, .opcode = DP_WC_RECV, .qpn = qp->qpn };

	while (dp_receives_count(&qp->rq)) {
		wc.wr_id = dp_receive_take(qp);
		dp_cq_push(qp->recv_cq, &wc, false);
	}
}

/* Returns borrowed, unused receives to the front of the shared queue. */
static void give_back(struct dp_qp *qp)
{
	struct dp_srq *srq = qp->srq;

	while (dp_receives_count(&qp->rq)) {
		memcpy(dp_receives_at(&srq->rq, --srq->rq.ci), dp_receives_at(&qp->rq, --qp->rq.pi),
		       srq->rq.stride);
		srq->lent--;
	}
	shrink(qp);
}

void dp_receives_reset(struct dp_qp *qp)
{
	if (qp->srq)
		give_back(qp);
	qp->rq.ci = qp->rq.pi = 0;
}
