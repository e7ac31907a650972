// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Memory windows (IBTA vol. 1, section 10.6.7.2): keys for a part of a region, which can be granted
 * and revoked while the region stays registered.
 *
 * Like a region, a window is an entry in the table of keys.  A bound window has the host address of
 * its part of the region; an unbound one has no bytes and no rights.  A window of type 2 belongs to
 * the QP on which it was bound.  The program chooses bits 0-7 of its key.
 */
#include "engine/qp.h"

#define KEY_OWN_BITS 0xffu /* the bits of a key that the program chooses */

int dp_mw_create(struct dp_pd *pd, enum dp_mw_type type, struct dp_mr **out)
{
	struct dp_mr *w;
	int err;

	if (type != DP_MW_TYPE_1 && type != DP_MW_TYPE_2)
		return -EINVAL;
	err = dp_mr_create(pd, NULL, 0, 0, 0, &w);
	if (err)
		return err;
	w->window = type;
	*out = w;
	return 0;
}

void dp_window_unbind(struct dp_mr *w)
{
	if (w->region) {
		w->region->windows--;
		w->pd->engine->n_bound--;
	}
	w->region = NULL;
	w->addr = NULL;
	w->len = w->iova = 0;
	w->access = w->qpn = 0;
}

static bool part_valid(const struct dp_bind *b)
{
	const struct dp_mr *r = b->region;
	const uint32_t rights = DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ |
				DP_ACCESS_REMOTE_ATOMIC | DP_ACCESS_ZERO_BASED |
				DP_ACCESS_LOCAL_WRITE;

	if (!(r->access & DP_ACCESS_MW_BIND) || r->window || b->access & ~rights)
		return false;
	if (b->access & (DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_ATOMIC) &&
	    !(r->access & DP_ACCESS_LOCAL_WRITE))
		return false;
	return b->addr >= r->iova && b->addr - r->iova <= r->len &&
	       b->len <= r->len - (b->addr - r->iova);
}

static bool bind_valid(const struct dp_qp *qp, const struct dp_bind *b)
{
	const struct dp_mr *w = b->window;

	if (!w || !w->window || w->pd != qp->pd || (b->key ^ w->key) & ~KEY_OWN_BITS)
		return false;
	if (w->window == DP_MW_TYPE_2 && (w->region || !b->len))
		return false;
	return !b->len || (b->region && b->region->pd == qp->pd && part_valid(b));
}

int dp_window_bind(struct dp_qp *qp, const struct dp_bind *b)
{
	struct dp_mr *w = b->window;

	if (!bind_valid(qp, b))
		return -EINVAL;
	dp_window_unbind(w);
	w->key = b->key;
	if (!b->len)
		return 0;
	w->region = b->region;
	w->region->windows++;
	qp->engine->n_bound++;
	w->addr = b->region->addr + (b->addr - b->region->iova);
	w->len = b->len;
	w->iova = b->access & DP_ACCESS_ZERO_BASED ? 0 : b->addr;
	w->access = b->access;
	w->qpn = w->window == DP_MW_TYPE_2 ? qp->qpn : 0;
	return 0;
}

void dp_mr_restore(struct dp_mr *mr, const struct dp_mr *before)
{
	dp_window_unbind(mr);
	*mr = *before;
	if (mr->region) {
		mr->region->windows++;
		mr->pd->engine->n_bound++;
	}
}

void dp_windows_forget(struct dp_engine *e, uint32_t qpn)
{
	uint32_t i;

	for (i = 0; i < e->mr_cap && e->n_bound; i++)
		if (e->mrs[i] && e->mrs[i]->region && e->mrs[i]->qpn == qpn)
			dp_window_unbind(e->mrs[i]);
}
