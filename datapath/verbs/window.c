/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory windows.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert((int)DP_MW_TYPE_1 == IBV_MW_TYPE_1 && (int)DP_MW_TYPE_2 == IBV_MW_TYPE_2 &&
		       (int)DP_ACCESS_MW_BIND == IBV_ACCESS_MW_BIND &&
		       (int)DP_ACCESS_ZERO_BASED == IBV_ACCESS_ZERO_BASED &&
		       (int)DP_WR_BIND_MW == IBV_WR_BIND_MW &&
		       (int)DP_WC_BIND_MW == IBV_WC_BIND_MW &&
		       (int)DP_WC_LOCAL_INV == IBV_WC_LOCAL_INV,
	       "types, rights and codes are passed on as they are");

struct ibv_mw *front_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct front_context *c = to_context(pd->context);
	struct front_mw *mw = calloc(1, sizeof(*mw));
	int err;

	if (!mw)
		return front_fail(ENOMEM);
	err = dp_device_lock(c->dev);
	if (!err) {
		err = dp_mw_create(front_engine_pd(pd), (enum dp_mw_type)type, &mw->mw);
		dp_device_unlock(c->dev);
	}
	if (err) {
		free(mw);
		return front_fail(-err);
	}
	mw->ibv.context = pd->context;
	mw->ibv.pd = pd;
	mw->ibv.type = type;
	mw->ibv.rkey = mw->ibv.handle = dp_mr_key(mw->mw);
	front_enter(pd->context, &c->mws, &mw->object);
	return &mw->ibv;
}

int front_dealloc_mw(struct ibv_mw *ibv)
{
	struct dp_device *dev = to_context(ibv->context)->dev;
	struct front_mw *mw = (struct front_mw *)ibv;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return -err;
	dp_mr_destroy(mw->mw);
	dp_device_unlock(dev);
	front_leave(ibv->context, &mw->object);
	free(mw);
	return 0;
}

void front_set_bind(struct dp_send_wr *wr, const struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info)
{
	wr->bind = (struct dp_bind){
		.window = ((const struct front_mw *)mw)->mw,
		.region = info->mr ? ((struct front_mr *)info->mr)->mr : NULL,
		.addr = info->addr,
		.len = info->length,
		.access = info->mw_access_flags,
		.key = rkey,
	};
}

/* Type 1: we choose the key, a new one for each bind. */
int front_bind_mw(struct ibv_qp *ibv, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct dp_device *dev = to_context(ibv->context)->dev;
	struct dp_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = DP_WR_BIND_MW,
		.flags = bind->send_flags,
	};
	int err;

	front_set_bind(&wr, mw, ibv_inc_rkey(mw->rkey), &bind->bind_info);
	err = dp_device_lock(dev);
	if (err)
		return -err;
	dp_device_posting(dev, to_qp(ibv)->qp, &wr, 1);
	err = dp_qp_post_send(to_qp(ibv)->qp, &wr);
	if (!err)
		mw->rkey = dp_mr_key(wr.bind.window);
	dp_device_posted(dev);
	dp_device_unlock(dev);
	return -err;
}
