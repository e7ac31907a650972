/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared receive queues.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert((int)DP_SRQ_MAX_WR == IBV_SRQ_MAX_WR && (int)DP_SRQ_LIMIT == IBV_SRQ_LIMIT,
	       "masks are passed on as they are");

static int create_in_engine(struct front_srq *srq, const struct ibv_srq_attr *attr)
{
	struct dp_srq_attr wanted = { .max_wr = attr->max_wr, .max_sge = attr->max_sge };
	struct dp_device *dev = srq->context->dev;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return err;
	err = dp_srq_create(front_engine_pd(srq->ibv.pd), &wanted, srq, &srq->srq);
	dp_device_unlock(dev);
	return err;
}

struct ibv_srq *front_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	struct front_srq *srq;
	int err;

	if (attr->comp_mask & ~known ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC))
		return front_fail(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != context || !attr->attr.max_wr)
		return front_fail(EINVAL);
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return front_fail(ENOMEM);
	srq->context = to_context(context);
	srq->ibv.context = context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = attr->pd;
	err = create_in_engine(srq, &attr->attr);
	if (err) {
		free(srq);
		return front_fail(-err);
	}
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	front_enter(context, &srq->context->srqs, &srq->object);
	front_query_srq(&srq->ibv, &attr->attr);
	return &srq->ibv;
}

struct ibv_srq *front_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_srq *srq = front_create_srq_ex(pd->context, &ex);

	if (srq)
		attr->attr = ex.attr;
	return srq;
}

int front_modify_srq(struct ibv_srq *ibv, const struct ibv_srq_attr *attr, int mask)
{
	struct front_srq *srq = (struct front_srq *)ibv;
	struct dp_srq_attr wanted = { .max_wr = attr->max_wr, .limit = attr->srq_limit };
	int err;

	err = dp_device_lock(srq->context->dev);
	if (err)
		return -err;
	err = dp_srq_modify(srq->srq, &wanted, (uint32_t)mask);
	dp_device_unlock(srq->context->dev);
	return -err;
}

int front_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *out)
{
	struct front_srq *srq = (struct front_srq *)ibv;
	struct dp_srq_attr attr;
	int err;

	err = dp_device_lock(srq->context->dev);
	if (err)
		return -err;
	dp_srq_query(srq->srq, &attr);
	dp_device_unlock(srq->context->dev);
	*out = (struct ibv_srq_attr){
		.max_wr = attr.max_wr,
		.max_sge = attr.max_sge,
		.srq_limit = attr.limit,
	};
	return 0;
}

void front_free_srq(struct front_srq *srq)
{
	pthread_mutex_destroy(&srq->ibv.mutex);
	pthread_cond_destroy(&srq->ibv.cond);
	free(srq);
}

int front_destroy_srq(struct ibv_srq *ibv)
{
	struct front_srq *srq = (struct front_srq *)ibv;
	int err;

	err = dp_device_lock(srq->context->dev);
	if (err)
		return -err;
	err = dp_srq_destroy(srq->srq);
	dp_device_unlock(srq->context->dev);
	if (err)
		return -err;
	front_leave(ibv->context, &srq->object);
	front_queue_purge(&srq->context->async, srq);
	front_wait_acked(&ibv->mutex, &ibv->cond, &ibv->events_completed, &srq->events_popped);
	front_free_srq(srq);
	return 0;
}

int front_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct front_srq *srq = (struct front_srq *)ibv;
	struct dp_recv_wr one;
	int err;

	err = dp_device_lock(srq->context->dev);
	for (; wr && !err; wr = err ? wr : wr->next) {
		one = front_recv_wr(wr);
		err = dp_srq_post_recv(srq->srq, &one);
	}
	if (err)
		*bad = wr;
	if (err != -EIO)
		dp_device_unlock(srq->context->dev);
	return -err;
}
