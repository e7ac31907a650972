/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Protection domains, parent domains and thread domains.
 *
 * A parent domain is another name for its protection domain.  In addition, the memory of its QPs'
 * queues may come from an allocator of the program.  A thread domain is a promise of the program
 * that we do not rely on: each call takes the device's lock anyway.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC of newer headers: in a confidential guest the
 * allocator's memory need not be shared with a card.  We have no card. */
enum { ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2 };

struct ibv_pd *front_alloc_pd(struct ibv_context *context)
{
	struct dp_device *dev = to_context(context)->dev;
	struct front_pd *pd = calloc(1, sizeof(*pd));
	int err = -ENOMEM;

	if (!pd)
		return front_fail(ENOMEM);
	pd->ibv.context = context;
	err = dp_device_lock(dev);
	if (!err) {
		err = dp_pd_create(dp_device_engine(dev), &pd->pd);
		dp_device_unlock(dev);
	}
	if (err) {
		free(pd);
		return front_fail(-err);
	}
	front_enter(context, &to_context(context)->pds, &pd->object);
	return &pd->ibv;
}

/* Users of a domain are its parent domains, and QPs whose memory comes from a parent domain. */
static void count_user(struct front_pd *pd, int by)
{
	pthread_mutex_lock(&pd->ibv.context->mutex);
	pd->users = (unsigned)((int)pd->users + by);
	pthread_mutex_unlock(&pd->ibv.context->mutex);
}

static bool has_users(struct front_pd *pd)
{
	bool users;

	pthread_mutex_lock(&pd->ibv.context->mutex);
	users = pd->users;
	pthread_mutex_unlock(&pd->ibv.context->mutex);
	return users;
}

static int end_in_engine(struct front_pd *pd)
{
	struct dp_device *dev = to_context(pd->ibv.context)->dev;
	int err;

	err = dp_device_lock(dev);
	if (err)
		return err;
	err = dp_pd_destroy(pd->pd);
	dp_device_unlock(dev);
	return err;
}

int front_dealloc_pd(struct ibv_pd *ibv)
{
	struct front_pd *pd = (struct front_pd *)ibv;
	int err = 0;

	if (has_users(pd))
		return EBUSY;
	if (pd->plain)
		count_user(pd->plain, -1);
	else
		err = end_in_engine(pd);
	if (err)
		return -err;
	front_leave(ibv->context, &pd->object);
	free(pd);
	return 0;
}

/* ---- parent domains ------------------------------------------------------------------ */

struct ibv_pd *front_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t allocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	const uint32_t known = allocators | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			       ALLOW_CC_UNPROTECTED_ALLOC;
	struct front_pd *pd, *plain = (struct front_pd *)attr->pd;

	if (!plain || plain->ibv.context != context || plain->plain ||
	    (attr->td && attr->td->context != context))
		return front_fail(EINVAL);
	if (attr->comp_mask & ~known)
		return front_fail(EOPNOTSUPP);
	if (attr->comp_mask & allocators && (!attr->alloc || !attr->free))
		return front_fail(EINVAL);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return front_fail(ENOMEM);
	pd->ibv.context = context;
	pd->pd = plain->pd;
	pd->plain = plain;
	if (attr->comp_mask & allocators) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->alloc_context = attr->pd_context;
	count_user(plain, 1);
	front_enter(context, &to_context(context)->pds, &pd->object);
	return &pd->ibv;
}

int front_domain_alloc(struct ibv_pd *ibv, size_t bytes, void **out)
{
	struct front_pd *pd = (struct front_pd *)ibv;

	*out = NULL;
	if (!pd->alloc)
		return 0;
	*out = pd->alloc(ibv, pd->alloc_context, bytes, FRONT_QUEUE_ALIGNMENT, 0);
	if (!*out)
		return -ENOMEM;
	if (*out == IBV_ALLOCATOR_USE_DEFAULT) {
		*out = NULL;
		return 0;
	}
	memset(*out, 0, bytes);
	count_user(pd, 1);
	return 0;
}

void front_domain_free(struct ibv_pd *ibv, void *memory)
{
	struct front_pd *pd = (struct front_pd *)ibv;

	if (!memory)
		return;
	pd->free(ibv, pd->alloc_context, memory, 0);
	count_user(pd, -1);
}

/* ---- thread domains --------------------------------------------------------------------- */

struct ibv_td *front_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct ibv_td *td;

	if (attr->comp_mask)
		return front_fail(EOPNOTSUPP);
	td = calloc(1, sizeof(*td));
	if (!td)
		return front_fail(ENOMEM);
	td->context = context;
	return td;
}

int front_dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}
