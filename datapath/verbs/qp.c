/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queue pairs: how they are made and destroyed. */
#include "verbs/front.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

enum { FAREWELLS = 3 };

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

/* Returns capacities that are at least what the program asked for. */
static struct ibv_qp_cap granted(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	cap.max_send_wr = power_of_two(cap.max_send_wr);
	cap.max_recv_wr = power_of_two(cap.max_recv_wr);
	if (!cap.max_send_sge)
		cap.max_send_sge = 1;
	if (!cap.max_recv_sge)
		cap.max_recv_sge = 1;
	/* Inline data lies where the SGEs would, so that much costs nothing. */
	if (cap.max_inline_data < cap.max_send_sge * sizeof(struct ibv_sge))
		cap.max_inline_data = (uint32_t)(cap.max_send_sge * sizeof(struct ibv_sge));
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    attr->send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE && cap.max_inline_data < 8)
		cap.max_inline_data = 8; /* the call brings its value */
	return cap;
}

#define WITH_FLUSH (1 << 11) /* IBV_QP_EX_WITH_FLUSH of newer headers */

static const struct {
	enum ibv_qp_type type;
	enum dp_qp_type engine_type;
	uint64_t send_ops;
} types[] = {
	{ IBV_QPT_RC, DP_QPT_RC,
	  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		  IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
		  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		  IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |
		  IBV_QP_EX_WITH_ATOMIC_WRITE | WITH_FLUSH },
	{ IBV_QPT_UD, DP_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM },
};

/* Returns an index into `types`, or -EOPNOTSUPP. */
static int find_type(enum ibv_qp_type type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].type == type)
			return (int)i;
	return -EOPNOTSUPP;
}

static int check_init_attr(const struct ibv_context *context,
			   const struct ibv_qp_init_attr_ex *attr)
{
	int type = find_type(attr->qp_type);

	if (type < 0)
		return -EOPNOTSUPP;
	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
					  IBV_QP_INIT_ATTR_CREATE_FLAGS))
		return -EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags)
		return -EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    attr->send_ops_flags & ~types[type].send_ops)
		return -EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !attr->send_cq ||
	    !attr->recv_cq)
		return -EINVAL;
	/* Each context ends its own objects, so objects must not use those of another context. */
	if (attr->pd->context != context || attr->send_cq->context != context ||
	    attr->recv_cq->context != context || (attr->srq && attr->srq->context != context))
		return -EINVAL;
	return check_cap(&attr->cap);
}

/* Adds the QP to the device's list, counters and series.  Call with the device locked. */
static void track(struct front_qp *qp)
{
	struct front_device *device = front_context_of(qp)->device;

	front_qps_add(qp);
	front_stats_add_qp(device->stats, qp);
	if (device->series)
		front_series_add_qp(device->series, qp);
}

static void untrack(struct front_qp *qp)
{
	struct front_device *device = front_context_of(qp)->device;

	front_qps_remove(qp);
	front_stats_remove_qp(device->stats, qp);
	if (device->series)
		front_series_remove_qp(device->series, qp);
}

static int make_queues(struct front_qp *qp, struct ibv_pd *pd, struct dp_qp_config *config)
{
	size_t sq, rq;
	int err = dp_qp_queue_bytes(config, &sq, &rq);

	if (err)
		return err;
	sq = (sq + FRONT_QUEUE_ALIGNMENT - 1) & ~(size_t)(FRONT_QUEUE_ALIGNMENT - 1);
	err = front_domain_alloc(pd, sq + rq, &qp->queues);
	if (!err && qp->queues) {
		config->sq_memory = qp->queues;
		config->rq_memory = (char *)qp->queues + sq;
	}
	return err;
}

static int create_in_engine(struct front_qp *qp, const struct ibv_qp_init_attr_ex *attr,
			    uint32_t qpn)
{
	struct dp_device *dev = front_context_of(qp)->dev;
	struct dp_qp_config config = {
		.type = types[find_type(attr->qp_type)].engine_type,
		.qpn = qpn,
		.pd = front_engine_pd(attr->pd),
		.send_cq = to_cq(attr->send_cq)->cq,
		.recv_cq = to_cq(attr->recv_cq)->cq,
		.srq = attr->srq ? ((struct front_srq *)attr->srq)->srq : NULL,
		.max_send_wr = qp->cap.max_send_wr,
		.max_recv_wr = qp->cap.max_recv_wr,
		.max_send_sge = qp->cap.max_send_sge,
		.max_recv_sge = qp->cap.max_recv_sge,
		.max_inline = qp->cap.max_inline_data,
		.sq_sig_all = attr->sq_sig_all,
		.user = qp,
	};
	int err = make_queues(qp, attr->pd, &config);

	if (!err)
		err = dp_device_lock(dev);
	if (err)
		goto free_memory;
	err = dp_qp_create(dp_device_engine(dev), &config, &qp->qp);
	if (!err) {
		err = front_cc_begin(qp);
		if (err)
			dp_qp_destroy(qp->qp);
		else
			track(qp);
	}
	dp_device_unlock(dev);
free_memory:
	if (err)
		front_domain_free(attr->pd, qp->queues);
	return err;
}

/* qpn: as in struct dp_qp_config. */
static struct ibv_qp *create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
			     uint32_t qpn)
{
	struct ibv_qp *base;
	struct front_qp *qp;
	bool with_wr_ops;
	int err;

	err = check_init_attr(context, attr);
	if (err)
		return front_fail(-err);
	with_wr_ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	qp = calloc(1, with_wr_ops ? sizeof(*qp) :
				     offsetof(struct front_qp, ex) + sizeof(struct ibv_qp));
	if (!qp)
		return front_fail(ENOMEM);
	base = &qp->ex.qp_base;
	base->context = context;
	base->qp_type = attr->qp_type;
	qp->has_wr_ops = with_wr_ops;
	qp->cap = granted(attr);
	if (attr->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	qp->sq_sig_all = attr->sq_sig_all;
	err = create_in_engine(qp, attr, qpn);
	if (err) {
		free(qp);
		return front_fail(-err);
	}

	base->qp_context = attr->qp_context;
	base->pd = attr->pd;
	base->send_cq = attr->send_cq;
	base->recv_cq = attr->recv_cq;
	base->srq = attr->srq;
	base->qp_num = dp_qp_qpn(qp->qp);
	base->handle = base->qp_num;
	base->state = IBV_QPS_RESET;
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
	if (with_wr_ops)
		front_set_wr_ops(qp);
	attr->cap = qp->cap;
	front_enter(context, &front_context_of(qp)->qps, &qp->object);
	return base;
}

struct ibv_qp *front_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	return create(context, attr, 0);
}

static struct ibv_qp *create_plain(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t qpn)
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
	struct ibv_qp *qp = create(pd->context, &ex, qpn);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

struct ibv_qp *front_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return create_plain(pd, attr, 0);
}

struct ibv_qp *front_create_gsi_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return create_plain(pd, attr, DP_QPN_GSI);
}

void front_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked,
		      const uint32_t *popped)
{
	pthread_mutex_lock(mutex);
	while (*acked != *popped)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

void front_give_back_path(struct front_qp *qp)
{
	if (qp->has_path)
		dp_device_release(front_context_of(qp)->dev, qp->path_id);
	qp->has_path = false;
}

/* A program that has its last message ends its QP, and nobody acknowledges the message any more.  A
 * peer whose acknowledgement is lost would fail with "retry exceeded". */
static void say_farewell(struct front_qp *qp)
{
	for (int i = 0; i < FAREWELLS; i++) {
		dp_qp_settle(qp->qp);
		dp_device_flush(front_context_of(qp)->dev);
	}
}

void front_end_qp(struct front_qp *qp)
{
	say_farewell(qp);
	front_leave_groups(qp);
	untrack(qp);
	dp_qp_destroy(qp->qp);
	front_give_back_path(qp);
}

void front_free_qp(struct front_qp *qp)
{
	front_cc_put(qp->cc);
	front_domain_free(qp->ex.qp_base.pd, qp->queues);
	pthread_mutex_destroy(&qp->ex.qp_base.mutex);
	pthread_cond_destroy(&qp->ex.qp_base.cond);
	front_batch_destroy(qp);
	free(qp);
}

int front_destroy_qp(struct ibv_qp *base)
{
	struct front_qp *qp = to_qp(base);
	struct dp_device *dev = front_context_of(qp)->dev;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return -err;
	if (qp->groups) { /* the program has to detach it first */
		dp_device_unlock(dev);
		return EBUSY;
	}
	front_end_qp(qp);
	dp_device_unlock(dev);
	front_leave(base->context, &qp->object);
	front_queue_purge(&front_context_of(qp)->async, qp);
	front_wait_acked(&base->mutex, &base->cond, &base->events_completed, &qp->events_popped);
	front_free_qp(qp);
	front_cc_sweep();
	return 0;
}
