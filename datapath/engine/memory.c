// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/place.h"
#include "engine/qp.h"

int dp_pd_create(struct dp_engine *e, struct dp_pd **out)
{
	struct dp_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->engine = e;
	e->n_pds++;
	*out = pd;
	return 0;
}

int dp_pd_destroy(struct dp_pd *pd)
{
	if (pd->users)
		return -EBUSY;
	pd->engine->n_pds--;
	free(pd);
	return 0;
}

/* Finds a free slot of the key table, beginning behind the slot used last.  Slot 0 stays empty so
 * that key 0 is never valid. */
static int key_slot(struct dp_engine *e, uint32_t *out)
{
	uint32_t cap = e->mr_cap, i, slot;
	struct dp_mr **mrs;

	for (i = 0; i < cap; i++) {
		slot = (e->mr_next + i) % cap;
		if (slot && !e->mrs[slot]) {
			e->mr_next = slot + 1;
			*out = slot;
			return 0;
		}
	}
	if (cap > DP_KEYS_MAX)
		return -ENOMEM;
	cap = cap ? cap * 2 : 64;
	mrs = realloc(e->mrs, cap * sizeof(*mrs));
	if (!mrs)
		return -ENOMEM;
	memset(mrs + e->mr_cap, 0, (cap - e->mr_cap) * sizeof(*mrs));
	*out = e->mr_cap ? e->mr_cap : 1;
	e->mr_next = *out + 1;
	e->mrs = mrs;
	e->mr_cap = cap;
	return 0;
}

static bool range_valid(const struct dp_range *r)
{
	return r->iova + r->len >= r->iova && (uintptr_t)r->addr + r->len >= (uintptr_t)r->addr;
}

static bool access_valid(uint32_t access)
{
	return !(access & (DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_ATOMIC)) ||
	       access & DP_ACCESS_LOCAL_WRITE;
}

int dp_mr_create(struct dp_pd *pd, void *addr, uint64_t len, uint64_t iova, uint32_t access,
		 struct dp_mr **out)
{
	struct dp_range range = { addr, len, iova };
	struct dp_engine *e = pd->engine;
	struct dp_mr *mr;
	uint32_t slot;
	int err;

	if (!range_valid(&range) || !access_valid(access))
		return -EINVAL;
	err = key_slot(e, &slot);
	if (err)
		return err;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	*mr = (struct dp_mr){
		.pd = pd,
		.addr = addr,
		.len = len,
		.iova = iova,
		.access = access,
		.key = slot << 16 | (dp_random(e) & 0xffff),
	};
	e->mrs[slot] = mr;
	pd->users++;
	*out = mr;
	return 0;
}

int dp_mr_change(struct dp_mr *mr, struct dp_pd *pd, const struct dp_range *range,
		 const uint32_t *access)
{
	if ((range && !range_valid(range)) || (access && !access_valid(*access)))
		return -EINVAL;
	if (mr->windows)
		return -EBUSY;
	if (pd) {
		mr->pd->users--;
		mr->pd = pd;
		pd->users++;
	}
	if (range) {
		mr->addr = range->addr;
		mr->len = range->len;
		mr->iova = range->iova;
	}
	if (access)
		mr->access = *access;
	return 0;
}

int dp_mr_destroy(struct dp_mr *mr)
{
	if (mr->windows)
		return -EBUSY;
	dp_window_unbind(mr);
	mr->pd->engine->mrs[mr->key >> 16] = NULL;
	mr->pd->users--;
	free(mr);
	return 0;
}

uint32_t dp_mr_key(const struct dp_mr *mr)
{
	return mr->key;
}

struct dp_mr *dp_mr_find(struct dp_pd *pd, uint32_t key)
{
	struct dp_engine *e = pd->engine;
	uint32_t slot = key >> 16;
	struct dp_mr *mr;

	if (slot >= e->mr_cap)
		return NULL;
	mr = e->mrs[slot];
	return mr && mr->key == key && mr->pd == pd ? mr : NULL;
}

/* Host address of [va, va+len). */
static uint8_t *reach(struct dp_mr *mr, uint64_t va, uint64_t len, uint32_t access)
{
	uint64_t off;

	if (!mr || (mr->access & access) != access)
		return NULL;
	off = va - mr->iova;
	if (va < mr->iova || off > mr->len || len > mr->len - off)
		return NULL;
	return mr->addr + off;
}

static uint8_t nothing;

/* The region or window that the QP's peer names by a key. */
static struct dp_mr *find_remote(const struct dp_qp *qp, uint32_t key)
{
	struct dp_mr *mr = dp_mr_find(qp->pd, key);

	if (mr && (mr->invalidated || (mr->window == DP_MW_TYPE_2 && mr->qpn != qp->qpn)))
		return NULL;
	return mr;
}

uint8_t *dp_remote_reach(const struct dp_qp *qp, uint32_t key, uint64_t va, uint64_t len,
			 uint32_t access)
{
	return len ? reach(find_remote(qp, key), va, len, access) : &nothing;
}

bool dp_remote_allows(const struct dp_qp *qp, uint32_t key, uint32_t access)
{
	const struct dp_mr *mr = find_remote(qp, key);

	return mr && (mr->access & access) == access;
}

static uint8_t *local_reach(struct dp_pd *pd, uint32_t key, uint64_t va, uint64_t len,
			    uint32_t access)
{
	struct dp_mr *mr = len ? dp_mr_find(pd, key) : NULL;

	if (!len)
		return &nothing;
	return mr && !mr->window ? reach(mr, va, len, access) : NULL;
}

int dp_mr_invalidate(const struct dp_qp *qp, uint32_t key)
{
	struct dp_mr *mr = dp_mr_find(qp->pd, key);

	if (mr && mr->window == DP_MW_TYPE_2 && mr->region && mr->qpn == qp->qpn) {
		dp_window_unbind(mr);
		return 0;
	}
	if (!mr || !(mr->access & DP_ACCESS_INVALIDATE))
		return -EINVAL;
	mr->invalidated = true;
	return 0;
}

/* A piece of memory within one SGE. */
struct run {
	uint8_t *at;
	uint32_t len;
};

/* Finds the next piece of an SGE list, which begins `*offset` bytes into entry `*i`, and moves both
 * on. */
static int next_run(struct dp_pd *pd, const struct dp_sge *sge, uint32_t num_sge, uint32_t *i,
		    uint32_t *offset, uint32_t want, uint32_t access, struct run *out)
{
	while (*i < num_sge && *offset >= sge[*i].length) {
		*offset -= sge[*i].length;
		(*i)++;
	}
	if (*i == num_sge)
		return -EFAULT;
	out->len = sge[*i].length - *offset;
	if (out->len > want)
		out->len = want;
	out->at = local_reach(pd, sge[*i].lkey, sge[*i].addr + *offset, out->len, access);
	*offset += out->len;
	return out->at ? 0 : -EFAULT;
}

int dp_gather(struct dp_qp *qp, const struct dp_swqe *wqe, uint32_t offset, uint8_t *to,
	      uint32_t len)
{
	uint32_t i = 0;
	struct run run;

	if (wqe->flags & DP_SEND_INLINE) {
		memcpy(to, (const uint8_t *)wqe->sge + offset, len);
		return 0;
	}
	for (; len; to += run.len, len -= run.len) {
		if (next_run(qp->pd, wqe->sge, wqe->num_sge, &i, &offset, len, 0, &run))
			return -EFAULT;
		memcpy(to, run.at, run.len);
	}
	return 0;
}

int dp_scatter_with(struct dp_put *put, struct dp_pd *pd, const struct dp_sge *sge,
		    uint32_t num_sge, uint32_t offset, const uint8_t *from, uint32_t len)
{
	uint32_t i = 0;
	struct run run;

	for (; len; from += from ? run.len : 0, len -= run.len) {
		if (next_run(pd, sge, num_sge, &i, &offset, len, DP_ACCESS_LOCAL_WRITE, &run))
			return -EFAULT;
		if (!from) /* the packet carries its length only */
			continue;
		if (put)
			put->piece(put, run.at, from, run.len);
		else
			dp_place(run.at, from, run.len);
	}
	return 0;
}

int dp_scatter_payload_with(struct dp_put *put, struct dp_pd *pd, const struct dp_sge *sge,
			    uint32_t num_sge, uint32_t offset, const struct dp_parsed *p,
			    uint32_t len)
{
	uint32_t first = len < p->payload_len ? len : p->payload_len;
	int err = dp_scatter_with(put, pd, sge, num_sge, offset, p->payload, first);

	if (err || len == first)
		return err;
	return dp_scatter_with(put, pd, sge, num_sge, offset + first, p->payload2, len - first);
}

void dp_copy_payload(uint8_t *to, const struct dp_parsed *p, uint32_t from, uint32_t len)
{
	uint32_t first = 0;

	if (!p->payload)
		return;
	if (from < p->payload_len) {
		first = p->payload_len - from < len ? p->payload_len - from : len;
		dp_place(to, p->payload + from, first);
	}
	if (len > first)
		dp_place(to + first, p->payload2 + (from + first - p->payload_len), len - first);
}
