/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ibv_wr_* calls.  A batch of the QP collects the requests, and ibv_wr_complete() hands them to
 * the engine together.
 *
 * ibv_wr_complete() returns the first error of a batch.  Such a batch posts nothing.
 */
#include "verbs/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct front_qp *of_ex(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct front_qp, ex);
}

static int reserve(struct front_batch *b, uint32_t room)
{
	struct dp_send_wr *wrs;
	struct dp_sge *sges;
	uint8_t *data;

	wrs = reallocarray(b->wrs, room, sizeof(*wrs));
	if (!wrs)
		return ENOMEM;
	b->wrs = wrs;
	sges = reallocarray(b->sges, (size_t)room * b->max_sge, sizeof(*sges));
	if (!sges)
		return ENOMEM;
	b->sges = sges;
	data = b->max_inline ? reallocarray(b->inline_data, room, b->max_inline) : NULL;
	if (b->max_inline && !data)
		return ENOMEM;
	b->inline_data = data;
	b->room = room;
	return 0;
}

void front_batch_destroy(struct front_qp *qp)
{
	struct front_batch *b = &qp->batch;

	if (!qp->has_wr_ops)
		return;
	free(b->wrs);
	free(b->sges);
	free(b->inline_data);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct front_batch *b = &of_ex(ex)->batch;

	dp_lock(&b->lock);
	b->count = 0;
	b->err = 0;
}

/* Begins a request.  Returns a request to write to, even after an error. */
static struct dp_send_wr *next_wr(struct ibv_qp_ex *ex, enum dp_wr_opcode opcode)
{
	static __thread struct dp_send_wr nowhere;
	struct front_batch *b = &of_ex(ex)->batch;
	struct dp_send_wr *wr;

	if (!b->err && b->count == b->room)
		b->err = b->room < of_ex(ex)->cap.max_send_wr ?
				 reserve(b, b->room ? 2 * b->room : 1) :
				 ENOMEM;
	if (!b->err && ex->wr_flags & ~(unsigned)FRONT_SEND_FLAGS)
		b->err = EOPNOTSUPP;
	wr = b->err ? &nowhere : &b->wrs[b->count++];
	*wr = (struct dp_send_wr){
		.wr_id = ex->wr_id,
		.opcode = opcode,
		.flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE,
	};
	return wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	next_wr(ex, DP_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	next_wr(ex, DP_WR_SEND_WITH_IMM)->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	next_wr(ex, DP_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	next_wr(ex, DP_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static struct dp_send_wr *next_remote(struct ibv_qp_ex *ex, enum dp_wr_opcode opcode, uint32_t rkey,
				      uint64_t addr)
{
	struct dp_send_wr *wr = next_wr(ex, opcode);

	wr->rkey = rkey;
	wr->remote_addr = addr;
	return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	next_remote(ex, DP_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	next_remote(ex, DP_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	next_remote(ex, DP_WR_RDMA_READ, rkey, addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
			      uint64_t swap)
{
	struct dp_send_wr *wr = next_remote(ex, DP_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	wr->compare_add = compare;
	wr->swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	next_remote(ex, DP_WR_ATOMIC_FETCH_AND_ADD, rkey, addr)->compare_add = add;
}

static void unsupported(struct ibv_qp_ex *ex)
{
	of_ex(ex)->batch.err = EOPNOTSUPP;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	front_set_bind(next_wr(ex, DP_WR_BIND_MW), mw, rkey, info);
	if (mw->type != IBV_MW_TYPE_2)
		of_ex(ex)->batch.err = EINVAL;
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t len, uint16_t mss)
{
	(void)hdr, (void)len, (void)mss;
	unsupported(ex);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct front_batch *b = &of_ex(ex)->batch;

	if (!b->err && !b->count)
		b->err = EINVAL;
	if (!b->err)
		front_set_receiver(&b->wrs[b->count - 1], ah, qpn, qkey);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	(void)srqn;
	unsupported(ex);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct front_batch *b = &of_ex(ex)->batch;

	if (!b->err && (!b->count || n > b->max_sge))
		b->err = EINVAL;
	if (b->err)
		return;
	memcpy(&b->sges[(size_t)(b->count - 1) * b->max_sge], list, n * sizeof(*list));
	b->wrs[b->count - 1].num_sge = (uint32_t)n;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

/* Copies the data at once, because the program may reuse its buffer. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct front_batch *b = &of_ex(ex)->batch;
	size_t len = 0, i;
	uint8_t *to;

	if (!b->err && !b->count)
		b->err = EINVAL;
	if (b->err)
		return;
	to = b->max_inline ? b->inline_data + (size_t)(b->count - 1) * b->max_inline : NULL;
	for (i = 0; i < n; i++) {
		if (list[i].length > b->max_inline - len) {
			b->err = EINVAL;
			return;
		}
		if (list[i].length)
			memcpy(to + len, list[i].addr, list[i].length);
		len += list[i].length;
	}
	b->sges[(size_t)(b->count - 1) * b->max_sge] = (struct dp_sge){ .length = (uint32_t)len };
	b->wrs[b->count - 1].num_sge = 1;
	b->wrs[b->count - 1].flags |= DP_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *value)
{
	struct ibv_data_buf buf = { .addr = (void *)(uintptr_t)value, .length = 8 };

	next_remote(ex, DP_WR_ATOMIC_WRITE, rkey, addr);
	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		     uint8_t level)
{
	struct dp_send_wr *wr = next_remote(ex, DP_WR_FLUSH, rkey, addr);

	wr->placement = type;
	wr->selectivity = level;
	wr->flush_len = (uint32_t)len;
	if (len > UINT32_MAX)
		of_ex(ex)->batch.err = EINVAL;
}

/* Sets the pointers into the batch's arrays, which do not move any more. */
static void settle(struct front_batch *b)
{
	uint32_t i;

	for (i = 0; i < b->count; i++) {
		struct dp_sge *sge = &b->sges[(size_t)i * b->max_sge];

		if (b->wrs[i].flags & DP_SEND_INLINE)
			sge->addr = (uintptr_t)(b->inline_data + (size_t)i * b->max_inline);
		b->wrs[i].sge = sge;
	}
}

static int post_batch(struct front_qp *qp)
{
	struct dp_device *dev = front_context_of(qp)->dev;
	struct front_batch *b = &qp->batch;
	int err;

	settle(b);
	err = dp_device_lock(dev);
	if (err)
		return -err;
	dp_device_posting(dev, qp->qp, b->wrs, b->count);
	err = dp_qp_post_sends(qp->qp, b->wrs, b->count);
	dp_device_posted(dev);
	dp_device_unlock(dev);
	return -err;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct front_qp *qp = of_ex(ex);
	int err = qp->batch.err;

	if (!err && qp->batch.count)
		err = post_batch(qp);
	dp_unlock(&qp->batch.lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	dp_unlock(&of_ex(ex)->batch.lock);
}

void front_set_wr_ops(struct front_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->batch.max_sge = qp->cap.max_send_sge;
	qp->batch.max_inline = qp->cap.max_inline_data;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
#if DP_HAS_WR_FLUSH
	ex->wr_flush = wr_flush;
#else
	qp->wr_flush = wr_flush; /* where newer programs expect it in struct ibv_qp_ex */
#endif
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}
