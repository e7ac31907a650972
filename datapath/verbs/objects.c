/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The objects of a context.  ibv_close_device() ends them all, as the kernel does when a file is
 * closed.  The device goes on for other contexts, and must not meet an object that has ended.
 */
#include "verbs/channel.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

void *front_fail(int err)
{
	errno = err;
	return NULL;
}

void front_enter(struct ibv_context *context, struct front_object **list, struct front_object *o)
{
	pthread_mutex_lock(&context->mutex);
	o->next = *list;
	o->at = list;
	if (o->next)
		o->next->at = &o->next;
	*list = o;
	pthread_mutex_unlock(&context->mutex);
}

void front_leave(struct ibv_context *context, struct front_object *o)
{
	pthread_mutex_lock(&context->mutex);
	*o->at = o->next;
	if (o->next)
		o->next->at = o->at;
	pthread_mutex_unlock(&context->mutex);
}

static void *first(struct front_object **list, size_t offset)
{
	struct front_object *o = *list;

	if (!o)
		return NULL;
	*list = o->next;
	return (char *)o - offset;
}

#define FIRST(list, type) ((type *)first((list), offsetof(type, object)))

/* An object ends before the objects that it uses. */
static void end_all(struct front_context *c, bool in_engine)
{
	struct front_channel *channel;
	struct front_srq *srq;
	struct front_qp *qp;
	struct front_ah *ah;
	struct front_mr *mr;
	struct front_mw *mw;
	struct front_dm *dm;
	struct front_pd *pd;
	struct front_cq *cq;

	while ((qp = FIRST(&c->qps, struct front_qp))) {
		if (in_engine)
			front_end_qp(qp);
		front_free_qp(qp);
	}
	while ((srq = FIRST(&c->srqs, struct front_srq))) {
		if (in_engine)
			dp_srq_destroy(srq->srq);
		front_free_srq(srq);
	}
	while ((ah = FIRST(&c->ahs, struct front_ah))) {
		if (in_engine)
			front_end_ah(ah);
		free(ah);
	}
	while ((mw = FIRST(&c->mws, struct front_mw))) {
		if (in_engine)
			dp_mr_destroy(mw->mw);
		free(mw);
	}
	while ((mr = FIRST(&c->mrs, struct front_mr))) {
		if (in_engine)
			dp_mr_destroy(mr->mr);
		front_free_mr(mr);
	}
	while ((dm = FIRST(&c->dms, struct front_dm)))
		front_dm_put(dm);
	while ((pd = FIRST(&c->pds, struct front_pd))) {
		if (in_engine && !pd->plain)
			dp_pd_destroy(pd->pd);
		free(pd);
	}
	while ((cq = FIRST(&c->cqs, struct front_cq))) {
		if (in_engine)
			dp_cq_destroy(cq->cq);
		front_free_cq(cq);
	}
	while ((channel = FIRST(&c->channels, struct front_channel)))
		front_free_channel(channel);
}

void front_end_objects(struct front_context *c)
{
	/* In a child after fork(), the engine belongs to the parent. */
	bool in_engine = !dp_device_lock(c->dev);

	end_all(c, in_engine);
	if (in_engine)
		dp_device_unlock(c->dev);
	front_cc_sweep();
}
