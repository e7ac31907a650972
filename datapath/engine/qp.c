// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Queue pairs of all types: the state machine of IBTA vol. 1, section 10.3.1, driven by the
 * table of the type.
 *
 *   RESET -> INIT -> RTR -> RTS <-> SQD
 *   RTS -> SQE -> RTS, UD alone
 *     any -> ERR, any -> RESET
 *
 * A fault takes a QP to ERR by itself; its requests are then flushed, oldest first.
 */
#include "engine/multicast.h"
#include "engine/qp.h"
#include "wire/trim.h"

#include <assert.h>

#include "engine/rc/rc.h"
#include "engine/ud/ud.h"

static const struct dp_qp_ops *const types[] = {
	[DP_QPT_RC] = &dp_rc_ops,
	[DP_QPT_UD] = &dp_ud_ops,
};

/* ---- life cycle ------------------------------------------------------------ */

static bool config_valid(const struct dp_qp_config *c)
{
	return c->type < ARRAY_SIZE(types) && c->pd && c->send_cq && c->recv_cq &&
	       c->max_send_wr <= DP_WR_MAX && c->max_recv_wr <= DP_WR_MAX &&
	       c->max_send_sge <= DP_SGE_MAX && c->max_recv_sge <= DP_SGE_MAX &&
	       c->max_inline <= DP_INLINE_MAX;
}

static uint32_t sq_entries(const struct dp_qp_config *c)
{
	return dp_pow2(c->max_send_wr ? c->max_send_wr : 1);
}

static uint16_t sq_stride(const struct dp_qp_config *c)
{
	uint32_t behind = (c->max_send_sge ? c->max_send_sge : 1) * (uint32_t)sizeof(struct dp_sge);

	if (c->max_inline > behind)
		behind = (c->max_inline + 7) & ~7u;
	return (uint16_t)(sizeof(struct dp_swqe) + behind);
}

static uint32_t rq_entries(const struct dp_qp_config *c)
{
	return c->srq ? (uint32_t)DP_BORROWED_SHARE : c->max_recv_wr;
}

static uint32_t rq_sges(const struct dp_qp_config *c)
{
	return c->srq ? c->srq->rq.max_sge : c->max_recv_sge;
}

int dp_qp_queue_bytes(const struct dp_qp_config *c, size_t *sq, size_t *rq)
{
	if (!config_valid(c))
		return -EINVAL;
	*sq = (size_t)sq_entries(c) * sq_stride(c);
	*rq = dp_receives_bytes(rq_entries(c), rq_sges(c));
	return 0;
}

static int alloc_queues(struct dp_qp *qp, const struct dp_qp_config *c)
{
	qp->max_send_sge = (uint16_t)(c->max_send_sge ? c->max_send_sge : 1);
	qp->max_inline = (uint16_t)c->max_inline;
	qp->sq_stride = sq_stride(c);
	qp->sq_mask = sq_entries(c) - 1;
	qp->sq_lent = c->sq_memory;
	qp->rq_lent = c->rq_memory;
	qp->sq = c->sq_memory ? c->sq_memory : calloc(qp->sq_mask + 1, qp->sq_stride);
	if (!qp->sq)
		return -ENOMEM;
	return dp_receives_init(&qp->rq, rq_entries(c), rq_sges(c), c->rq_memory);
}

static int enter_qpn(struct dp_engine *e, struct dp_qp *qp, uint32_t low)
{
	struct dp_qp ***page = &e->qps[low / DP_QP_PAGE];

	if (!*page)
		*page = calloc(DP_QP_PAGE, sizeof(**page));
	if (!*page)
		return -ENOMEM;
	(*page)[low % DP_QP_PAGE] = qp;
	return 0;
}

/* QPNs run through all values of the low 16 bits, so that a QPN is not reused soon.  0 and 1 are
 * reserved (IBTA vol. 1, section 3.5.10). */
static int take_qpn(struct dp_engine *e, struct dp_qp *qp)
{
	uint32_t i, low;

	for (i = 0; i < DP_QPN_SPACE; i++) {
		low = (e->qpn_next + i) & 0xffff;
		if (low < 2 || dp_find_qp(e, low))
			continue;
		e->qpn_next = low + 1;
		qp->qpn = e->cfg.qpn_prefix << 16 | low;
		return enter_qpn(e, qp, low);
	}
	return -ENOMEM;
}

static int take_given_qpn(struct dp_engine *e, struct dp_qp *qp, uint32_t qpn)
{
	if (qpn != DP_QPN_GSI)
		return -EINVAL;
	if (dp_find_qp(e, qpn))
		return -EBUSY;
	qp->qpn = qpn;
	return enter_qpn(e, qp, qpn);
}

static void drop_qpn(struct dp_qp *qp)
{
	qp->engine->qps[(qp->qpn & 0xffff) / DP_QP_PAGE][qp->qpn % DP_QP_PAGE] = NULL;
}

static void free_qp(struct dp_qp *qp)
{
	if (!qp->sq_lent)
		free(qp->sq);
	if (!qp->rq_lent)
		free(qp->rq.wqes);
	free(qp->locals);
	free(qp);
}

int dp_qp_create(struct dp_engine *e, const struct dp_qp_config *c, struct dp_qp **out)
{
	struct dp_qp *qp;
	int err;

	if (!config_valid(c))
		return -EINVAL;
	qp = calloc(1, types[c->type]->bytes);
	if (!qp)
		return -ENOMEM;
	qp->ops = types[c->type];
	qp->engine = e;
	qp->pd = c->pd;
	qp->send_cq = c->send_cq;
	qp->recv_cq = c->recv_cq;
	qp->srq = c->srq;
	qp->sq_sig_all = c->sq_sig_all;
	qp->user = c->user;
	err = alloc_queues(qp, c);
	if (!err)
		err = c->qpn ? take_given_qpn(e, qp, c->qpn) : take_qpn(e, qp);
	if (!err) {
		err = qp->ops->create(qp);
		if (err)
			drop_qpn(qp);
	}
	if (err) {
		free_qp(qp);
		return err;
	}
	qp->sport = e->cfg.udp_sport ? e->cfg.udp_sport :
				       dp_roce_sport(qp->qpn * 0x9e3779b1u >> 18);
	e->n_qps++;
	qp->pd->users++;
	qp->send_cq->users++;
	qp->recv_cq->users++;
	if (qp->srq)
		qp->srq->users++;
	*out = qp;
	return 0;
}

void dp_qp_next_sport(struct dp_qp *qp)
{
	/* A congruential generator, which comes to each of the 2^14 ports. */
	if (!qp->engine->cfg.udp_sport)
		qp->sport = dp_roce_sport(qp->sport * 2637u + 6699);
}

static void qp_reset(struct dp_qp *qp)
{
	qp->ops->reset(qp);
	dp_wheel_cancel(&qp->engine->wheel, &qp->timer);
	dp_qp_unwake(qp);
	dp_locals_reset(qp);
	qp->sq_ci = qp->sq_tx = qp->sq_pi = qp->sq_drain = 0;
	qp->rd_outstanding = 0;
	qp->drain_notify = qp->refusing = false;
	dp_receives_reset(qp);
	memset(&qp->attr, 0, sizeof(qp->attr));
}

void dp_qp_settle(struct dp_qp *qp)
{
	if (qp->ops->settle)
		qp->ops->settle(qp);
}

int dp_qp_destroy(struct dp_qp *qp)
{
	struct dp_engine *e = qp->engine;

	qp_reset(qp);
	dp_unraise(e, &qp->event);
	dp_windows_forget(e, qp->qpn);
	dp_multicast_forget(qp);
	drop_qpn(qp);
	qp->ops->destroy(qp);
	e->n_qps--;
	qp->pd->users--;
	qp->send_cq->users--;
	qp->recv_cq->users--;
	if (qp->srq)
		qp->srq->users--;
	free_qp(qp);
	return 0;
}

/* ---- completions and errors -------------------------------------------------- */

static uint32_t wc_opcode(uint8_t wr_opcode)
{
	switch (wr_opcode) {
	case DP_WR_RDMA_WRITE:
	case DP_WR_RDMA_WRITE_WITH_IMM:
		return DP_WC_RDMA_WRITE;
	case DP_WR_RDMA_READ:
		return DP_WC_RDMA_READ;
	case DP_WR_ATOMIC_CMP_AND_SWP:
		return DP_WC_COMP_SWAP;
	case DP_WR_ATOMIC_FETCH_AND_ADD:
		return DP_WC_FETCH_ADD;
	case DP_WR_FLUSH:
		return DP_WC_FLUSH;
	case DP_WR_ATOMIC_WRITE:
		return DP_WC_ATOMIC_WRITE;
	default:
		return DP_WC_SEND;
	}
}

void dp_complete_send(struct dp_qp *qp, const struct dp_swqe *wqe, enum dp_wc_status status)
{
	struct dp_wc wc = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = wc_opcode(wqe->opcode),
		.byte_len = wqe->len,
		.packets = wqe->packets,
		.resent = wqe->resent,
		.qpn = qp->qpn,
	};

	if (wqe->started)
		qp->rd_outstanding--;
	if (status == DP_WC_SUCCESS && !qp->sq_sig_all && !(wqe->flags & DP_SEND_SIGNALED))
		return;
	dp_cq_push(qp->send_cq, &wc, false);
}

void dp_pop_send(struct dp_qp *qp, enum dp_wc_status status)
{
	dp_complete_send(qp, dp_sq(qp, qp->sq_ci++), status);
	dp_locals_complete(qp, status == DP_WC_SUCCESS ? status : DP_WC_WR_FLUSH_ERR);
}

void dp_flush_sends(struct dp_qp *qp)
{
	while (qp->sq_ci != qp->sq_pi)
		dp_pop_send(qp, DP_WC_WR_FLUSH_ERR);
	qp->sq_tx = qp->sq_ci;
}

uint32_t dp_qp_unsent(const struct dp_qp *qp)
{
	return qp->sq_pi - qp->sq_tx;
}

static void enter_error(struct dp_qp *qp)
{
	qp->state = DP_QPS_ERR;
	qp->drain_notify = false;
	assert(qp->sq_pi - qp->sq_ci <= qp->sq_mask + 1);
	dp_flush_sends(qp);
	dp_receives_flush(qp);
	if (qp->srq)
		dp_raise(qp->engine, &qp->event, DP_EVENT_LAST_WQE);
	qp->ops->stop(qp);
	dp_qp_wake(qp); /* the QP may have to send a last NAK */
}

void dp_qp_to_error(struct dp_qp *qp, enum dp_event_type why)
{
	if (qp->state == DP_QPS_ERR)
		return;
	enter_error(qp);
	dp_raise(qp->engine, &qp->event, why);
}

void dp_fail_send(struct dp_qp *qp, uint32_t index, enum dp_wc_status status)
{
	while (qp->sq_ci != index)
		dp_pop_send(qp, DP_WC_WR_FLUSH_ERR);
	if (qp->sq_ci != qp->sq_pi)
		dp_pop_send(qp, status);
	dp_qp_to_error(qp, DP_EVENT_QP_FAILED);
}

/* ---- modify ----------------------------------------------------------------- */

static const struct dp_qp_transition *find_transition(const struct dp_qp_ops *ops, uint32_t from,
						      uint32_t to)
{
	uint32_t i;

	for (i = 0; i < ops->n_transitions; i++)
		if (ops->transitions[i].from == from && ops->transitions[i].to == to)
			return &ops->transitions[i];
	return NULL;
}

static bool mtu_valid(uint32_t mtu, uint32_t max)
{
	return mtu >= 256 && mtu <= max && !(mtu & (mtu - 1));
}

static bool holds_answered(const struct dp_qp *qp)
{
	uint32_t i = qp->sq_ci;

	while (i != qp->sq_pi && !dp_is_answered(dp_sq(qp, i)->opcode))
		i++;
	return i != qp->sq_pi;
}

static bool values_valid(const struct dp_qp *qp, const struct dp_qp_attr *a, uint32_t mask)
{
	if (mask & DP_QP_PATH_MTU && !mtu_valid(a->path_mtu, qp->engine->cfg.path_mtu_max))
		return false;
	if (mask & DP_QP_AV && (a->tos & DP_ECN_MASK || a->tos >> 2 == DP_DSCP_TRIMMED))
		return false;
	if (mask & DP_QP_TIMEOUT && a->timeout > 31)
		return false;
	if (mask & DP_QP_RETRY_CNT && a->retry_cnt > 7)
		return false;
	if (mask & DP_QP_RNR_RETRY && a->rnr_retry > 7)
		return false;
	if (mask & DP_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31)
		return false;
	if (mask & DP_QP_MAX_QP_RD_ATOMIC &&
	    (a->max_rd_atomic > DP_RD_ATOMIC_MAX || (!a->max_rd_atomic && holds_answered(qp))))
		return false;
	return !(mask & DP_QP_MAX_DEST_RD_ATOMIC) || a->max_dest_rd_atomic <= DP_RD_ATOMIC_MAX;
}

static void copy_attrs(struct dp_qp_attr *to, const struct dp_qp_attr *a, uint32_t mask)
{
	if (mask & DP_QP_ACCESS_FLAGS)
		to->access = a->access;
	if (mask & DP_QP_QKEY)
		to->qkey = a->qkey;
	if (mask & DP_QP_AV) {
		to->raddr = a->raddr;
		to->path_id = a->path_id;
		to->tos = a->tos;
	}
	if (mask & DP_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & DP_QP_DEST_QPN)
		to->dest_qpn = a->dest_qpn & 0xffffff;
	if (mask & DP_QP_RQ_PSN)
		to->rq_psn = a->rq_psn & DP_PSN_MASK;
	if (mask & DP_QP_SQ_PSN)
		to->sq_psn = a->sq_psn & DP_PSN_MASK;
	if (mask & DP_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & DP_QP_RETRY_CNT)
		to->retry_cnt = a->retry_cnt;
	if (mask & DP_QP_RNR_RETRY)
		to->rnr_retry = a->rnr_retry;
	if (mask & DP_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & DP_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & DP_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
}

/* Attributes of messages under way: they change once the send queue is drained. */
#define OF_MESSAGES (DP_QP_AV | DP_QP_MAX_QP_RD_ATOMIC)

/* ---- send queue drained (IBTA vol. 1, 10.3.1.5) ------------------------------------ */

static bool draining(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_SQD && qp->sq_ci != qp->sq_drain;
}

void dp_qp_drained(struct dp_qp *qp)
{
	if (!qp->drain_notify || draining(qp))
		return;
	qp->drain_notify = false;
	dp_raise(qp->engine, &qp->event, DP_EVENT_SQ_DRAINED);
}

int dp_qp_modify(struct dp_qp *qp, const struct dp_qp_attr *a, uint32_t mask, uint64_t now)
{
	uint32_t to = mask & DP_QP_STATE ? a->state : qp->state, from = qp->state;
	const struct dp_qp_transition *t;
	int err;

	qp->engine->now_ns = now;
	if (mask & DP_QP_CUR_STATE && a->cur_state != from)
		return -EINVAL;
	mask &= ~(uint32_t)DP_QP_STATE;
	if (to == DP_QPS_ERR) {
		if (mask)
			return -EINVAL;
		if (from != DP_QPS_ERR)
			enter_error(qp);
		return 0;
	}
	if (to == DP_QPS_RESET) {
		if (mask)
			return -EINVAL;
		qp_reset(qp);
		/* The program wants no completions from before the reset. */
		dp_cq_forget(qp->send_cq, qp->qpn);
		dp_cq_forget(qp->recv_cq, qp->qpn);
		qp->state = DP_QPS_RESET;
		return 0;
	}
	t = find_transition(qp->ops, from, to);
	if (!t || (mask & t->required) != t->required || mask & ~(t->required | t->optional))
		return -EINVAL;
	if (!values_valid(qp, a, mask) || (mask & OF_MESSAGES && draining(qp)))
		return -EINVAL;
	copy_attrs(&qp->attr, a, mask);
	err = qp->ops->modify(qp, from, to, now);
	if (err)
		return err;
	qp->state = to;
	qp->drain_notify = qp->drain_notify && to == DP_QPS_SQD;
	dp_qp_wake(qp);
	qp->drain_notify = qp->drain_notify || (mask & DP_QP_EN_SQD_ASYNC_NOTIFY && a->sqd_notify);
	dp_qp_drained(qp);
	return 0;
}

void dp_qp_query(const struct dp_qp *qp, struct dp_qp_attr *out)
{
	*out = qp->attr;
	out->state = qp->state;
	out->sq_draining = draining(qp);
	qp->ops->query(qp, out);
}

uint32_t dp_qp_qpn(const struct dp_qp *qp)
{
	return qp->qpn;
}

void *dp_qp_user(const struct dp_qp *qp)
{
	return qp->user;
}

void dp_qp_stats(const struct dp_qp *qp, struct dp_qp_stats *out)
{
	*out = (struct dp_qp_stats){
#define X(name) .name = qp->stats.name,
		DP_QP_TRAFFIC_COUNTERS(X)
#undef X
	};
	qp->ops->count(qp, out);
}
