/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Changes of a completion queue: its size, and how many completions an event waits for. */
#include "verbs/front.h"

#include <errno.h>

int front_resize_cq(struct ibv_cq *ibv, int entries)
{
	struct front_cq *cq = to_cq(ibv);
	int err;

	if (entries <= 0 || entries > FRONT_CQE_MAX)
		return EINVAL;
	err = dp_device_lock(cq->context->dev);
	if (err)
		return -err;
	err = dp_cq_resize(cq->cq, (uint32_t)entries);
	ibv->cqe = (int)dp_cq_entries(cq->cq);
	dp_device_unlock(cq->context->dev);
	return -err;
}

int front_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
	struct front_cq *cq = to_cq(ibv);
	int err;

	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	err = dp_device_lock(cq->context->dev);
	if (err)
		return -err;
	if (attr->attr_mask & IBV_CQ_ATTR_MODERATE)
		dp_cq_moderate(cq->cq, attr->moderate.cq_count, attr->moderate.cq_period);
	dp_device_unlock(cq->context->dev);
	return 0;
}
