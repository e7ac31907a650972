/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queue pairs and their attributes.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- making and ending ------------------------------------------------------- */

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static int check_cap(const struct ibv_qp_cap *cap)
{
	return cap->max_send_wr > DP_WR_MAX || cap->max_recv_wr > DP_WR_MAX ||
			       cap->max_send_sge > DP_SGE_MAX || cap->max_recv_sge > DP_SGE_MAX ||
			       cap->max_inline_data > DP_INLINE_MAX ?
		       -EINVAL :
		       0;
}

/* What a program may rely on: at least what it asked for. */
static struct ibv_qp_cap granted(const struct ibv_qp_cap *asked)
{
	struct ibv_qp_cap cap = *asked;

	cap.max_send_wr = power_of_two(cap.max_send_wr);
	cap.max_recv_wr = power_of_two(cap.max_recv_wr);
	if (!cap.max_send_sge)
		cap.max_send_sge = 1;
	if (!cap.max_recv_sge)
		cap.max_recv_sge = 1;
	return cap;
}

static int check_init_attr(const struct ibv_context *context,
			   const struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type != IBV_QPT_RC || attr->srq)
		return -EOPNOTSUPP;
	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
					  IBV_QP_INIT_ATTR_CREATE_FLAGS))
		return -EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags)
		return -EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    attr->send_ops_flags &
		    ~(uint64_t)(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
				IBV_QP_EX_WITH_SEND_WITH_INV))
		return -EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !attr->send_cq ||
	    !attr->recv_cq)
		return -EINVAL;
	/* Each context ends its objects by itself, so they do not use one another's. */
	if (attr->pd->context != context || attr->send_cq->context != context ||
	    attr->recv_cq->context != context)
		return -EINVAL;
	return check_cap(&attr->cap);
}

/* List, counters and series, all under the device's lock. */
static void track(struct front_qp *qp)
{
	struct front_device *device = qp->context->device;

	front_qps_add(qp);
	front_stats_add_qp(device->stats, qp);
	if (device->series)
		front_series_add_qp(device->series, qp);
}

static void untrack(struct front_qp *qp)
{
	struct front_device *device = qp->context->device;

	front_qps_remove(qp);
	front_stats_remove_qp(device->stats, qp);
	if (device->series)
		front_series_remove_qp(device->series, qp);
}

static int create_in_engine(struct front_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	struct dp_device *dev = qp->context->dev;
	struct dp_qp_config config = {
		.pd = ((struct front_pd *)attr->pd)->pd,
		.send_cq = to_cq(attr->send_cq)->cq,
		.recv_cq = to_cq(attr->recv_cq)->cq,
		.max_send_wr = qp->cap.max_send_wr,
		.max_recv_wr = qp->cap.max_recv_wr,
		.max_send_sge = qp->cap.max_send_sge,
		.max_recv_sge = qp->cap.max_recv_sge,
		.max_inline = qp->cap.max_inline_data,
		.sq_sig_all = attr->sq_sig_all,
		.user = qp,
	};
	int err;

	err = dp_device_lock(dev);
	if (err)
		return err;
	err = dp_qp_create(dp_device_engine(dev), &config, &qp->qp);
	if (err)
		goto unlock;
	err = front_cc_begin(qp);
	if (err)
		dp_qp_destroy(qp->qp);
	else
		track(qp);
unlock:
	dp_device_unlock(dev);
	return err;
}

struct ibv_qp *front_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *base;
	struct front_qp *qp;
	int err;

	err = check_init_attr(context, attr);
	if (err)
		return front_fail(-err);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return front_fail(ENOMEM);
	qp->context = to_context(context);
	qp->cap = granted(&attr->cap);
	qp->sq_sig_all = attr->sq_sig_all;
	err = front_batch_init(qp);
	if (err)
		goto free_qp;
	err = create_in_engine(qp, attr);
	if (err)
		goto free_batch;

	base = &qp->ex.qp_base;
	base->context = context;
	base->qp_context = attr->qp_context;
	base->pd = attr->pd;
	base->send_cq = attr->send_cq;
	base->recv_cq = attr->recv_cq;
	base->qp_num = dp_qp_qpn(qp->qp);
	base->handle = base->qp_num;
	base->state = IBV_QPS_RESET;
	base->qp_type = attr->qp_type;
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		front_set_wr_ops(qp);
	attr->cap = qp->cap;
	front_enter(context, &qp->context->qps, &qp->object);
	return base;

free_batch:
	front_batch_destroy(qp);
free_qp:
	free(qp);
	return front_fail(-err);
}

struct ibv_qp *front_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = front_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

void front_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked,
		      const uint32_t *popped)
{
	pthread_mutex_lock(mutex);
	while (*acked != *popped)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

static void give_back_path(struct front_qp *qp)
{
	if (qp->has_path)
		dp_device_release(qp->context->dev, qp->path_id);
	qp->has_path = false;
}

void front_end_qp(struct front_qp *qp)
{
	dp_device_flush(qp->context->dev);
	untrack(qp);
	dp_qp_destroy(qp->qp);
	give_back_path(qp);
}

void front_free_qp(struct front_qp *qp)
{
	front_cc_put(qp->cc);
	pthread_mutex_destroy(&qp->ex.qp_base.mutex);
	pthread_cond_destroy(&qp->ex.qp_base.cond);
	front_batch_destroy(qp);
	free(qp);
}

int front_destroy_qp(struct ibv_qp *base)
{
	struct front_qp *qp = to_qp(base);
	struct dp_device *dev = qp->context->dev;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return -err;
	front_end_qp(qp);
	dp_device_unlock(dev);
	front_leave(base->context, &qp->object);
	front_queue_purge(&qp->context->async, qp);
	front_wait_acked(&base->mutex, &base->cond, &base->events_completed, &qp->events_popped);
	front_free_qp(qp);
	front_cc_sweep();
	return 0;
}

/* ---- attributes --------------------------------------------------------------- */

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && mtu_bytes(mtu + 1) <= bytes)
		mtu++;
	return mtu;
}

/* The peer's address, from the GID, and the port's way to it, to be given back. */
static int set_path(struct front_qp *qp, const struct ibv_ah_attr *ah, struct dp_qp_attr *out)
{
	if (!ah->is_global || ah->port_num != FRONT_PORT || ah->grh.sgid_index >= FRONT_GIDS)
		return -EINVAL;
	memcpy(out->raddr.b, ah->grh.dgid.raw, sizeof(out->raddr.b));
	return dp_device_resolve(qp->context->dev, &out->raddr, FRONT_RESOLVE_MS, &out->path_id);
}

static int from_ibv(struct front_qp *qp, const struct ibv_qp_attr *in, int mask,
		    struct dp_qp_attr *out)
{
	const int unknown = ~(
		IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS |
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
		IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN);

	if (mask & unknown)
		return -EOPNOTSUPP;
	if ((mask & IBV_QP_PKEY_INDEX && in->pkey_index) ||
	    (mask & IBV_QP_PORT && in->port_num != FRONT_PORT) ||
	    (mask & IBV_QP_PATH_MTU &&
	     (!mtu_bytes(in->path_mtu) ||
	      mtu_bytes(in->path_mtu) > dp_device_path_mtu(qp->context->dev))))
		return -EINVAL;
	if (mask & IBV_QP_CUR_STATE && in->cur_qp_state != qp->ex.qp_base.state)
		return -EINVAL;
	*out = (struct dp_qp_attr){
		.state = in->qp_state,
		.access = (uint32_t)in->qp_access_flags &
			  (DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ |
			   DP_ACCESS_REMOTE_ATOMIC | DP_ACCESS_LOCAL_WRITE),
		.path_mtu = mask & IBV_QP_PATH_MTU ? mtu_bytes(in->path_mtu) : 0,
		.dest_qpn = in->dest_qp_num,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.min_rnr_timer = in->min_rnr_timer,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.sqd_notify = in->en_sqd_async_notify,
	};
	return mask & IBV_QP_AV ? set_path(qp, &in->ah_attr, out) : 0;
}

/* Under the device's lock: the QP goes the new way from now on. */
static void take_path(struct front_qp *qp, const struct ibv_ah_attr *ah, uint32_t path_id)
{
	give_back_path(qp);
	qp->ah_attr = *ah;
	qp->path_id = path_id;
	qp->has_path = true;
}

int front_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct front_qp *qp = to_qp(base);
	struct dp_device *dev = qp->context->dev;
	struct dp_qp_attr now_attr, wanted;
	int err;

	err = from_ibv(qp, attr, mask, &wanted);
	if (err)
		return -err;
	err = dp_device_lock(dev);
	if (err)
		return -err;
	dp_device_flush(dev);
	err = dp_qp_modify(qp->qp, &wanted, (uint32_t)mask, dp_device_now_ns());
	if (!err) {
		dp_qp_query(qp->qp, &now_attr);
		base->state = (enum ibv_qp_state)now_attr.state;
		if (mask & IBV_QP_AV)
			take_path(qp, &attr->ah_attr, wanted.path_id);
		dp_device_posted(dev); /* the new state may have something to send */
	} else if (mask & IBV_QP_AV) {
		dp_device_release(dev, wanted.path_id);
	}
	dp_device_unlock(dev);
	return -err;
}

int front_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init)
{
	struct front_qp *qp = to_qp(base);
	struct dp_qp_attr now_attr;
	int err;

	(void)mask; /* all are cheap */
	err = dp_device_lock(qp->context->dev);
	if (err)
		return -err;
	dp_qp_query(qp->qp, &now_attr);
	dp_device_unlock(qp->context->dev);
	base->state = (enum ibv_qp_state)now_attr.state;
	*attr = (struct ibv_qp_attr){
		.qp_state = base->state,
		.cur_qp_state = base->state,
		.path_mtu = mtu_code(now_attr.path_mtu),
		.path_mig_state = IBV_MIG_MIGRATED,
		.rq_psn = now_attr.rq_psn,
		.sq_psn = now_attr.sq_psn,
		.dest_qp_num = now_attr.dest_qpn,
		.qp_access_flags = now_attr.access,
		.sq_draining = now_attr.sq_draining,
		.cap = qp->cap,
		.ah_attr = qp->ah_attr,
		.max_rd_atomic = now_attr.max_rd_atomic,
		.max_dest_rd_atomic = now_attr.max_dest_rd_atomic,
		.min_rnr_timer = now_attr.min_rnr_timer,
		.port_num = FRONT_PORT,
		.timeout = now_attr.timeout,
		.retry_cnt = now_attr.retry_cnt,
		.rnr_retry = now_attr.rnr_retry,
	};
	*init = (struct ibv_qp_init_attr){
		.qp_context = base->qp_context,
		.send_cq = base->send_cq,
		.recv_cq = base->recv_cq,
		.cap = qp->cap,
		.qp_type = base->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}
