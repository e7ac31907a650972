/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ibv_post_send() and ibv_post_recv().  The engine's constants have the values of verbs.h, so there
 * is little to translate.
 */
#include "verbs/front.h"

#include <errno.h>

_Static_assert(sizeof(struct dp_sge) == sizeof(struct ibv_sge) &&
		       offsetof(struct dp_sge, length) == offsetof(struct ibv_sge, length) &&
		       offsetof(struct dp_sge, lkey) == offsetof(struct ibv_sge, lkey),
	       "scatter lists are passed on as they are");
_Static_assert((int)DP_WR_SEND_WITH_INV == IBV_WR_SEND_WITH_INV &&
		       (int)DP_WR_RDMA_READ == IBV_WR_RDMA_READ &&
		       (int)DP_WR_LOCAL_INV == IBV_WR_LOCAL_INV &&
		       (int)DP_SEND_INLINE == IBV_SEND_INLINE &&
		       (int)DP_WC_RECV_RDMA_WITH_IMM == IBV_WC_RECV_RDMA_WITH_IMM &&
		       (int)DP_WC_RNR_RETRY_EXC_ERR == IBV_WC_RNR_RETRY_EXC_ERR &&
		       (int)DP_WR_ATOMIC_WRITE == IBV_WR_ATOMIC_WRITE &&
		       (int)DP_WC_ATOMIC_WRITE == IBV_WC_ATOMIC_WRITE &&
		       (int)DP_WC_WITH_INV == IBV_WC_WITH_INV && (int)DP_WC_GRH == IBV_WC_GRH,
	       "so are codes and flags");

void front_set_receiver(struct dp_send_wr *wr, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	wr->ah = ah ? ((struct front_ah *)ah)->ah : NULL;
	wr->remote_qpn = qpn;
	wr->remote_qkey = qkey;
}

static int translate(enum ibv_qp_type type, const struct ibv_send_wr *in, struct dp_send_wr *out)
{
	if (in->send_flags & ~(unsigned)FRONT_SEND_FLAGS)
		return -EOPNOTSUPP;
	*out = (struct dp_send_wr){
		.wr_id = in->wr_id,
		.opcode = in->opcode,
		.flags = in->send_flags,
		.num_sge = (uint32_t)in->num_sge,
		.sge = (const struct dp_sge *)in->sg_list,
		.imm = in->imm_data,
	};
	switch (in->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		out->remote_addr = in->wr.rdma.remote_addr;
		out->rkey = in->wr.rdma.rkey;
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		out->remote_addr = in->wr.atomic.remote_addr;
		out->rkey = in->wr.atomic.rkey;
		out->compare_add = in->wr.atomic.compare_add;
		out->swap = in->wr.atomic.swap;
		return 0;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		if (type == IBV_QPT_UD)
			front_set_receiver(out, in->wr.ud.ah, in->wr.ud.remote_qpn,
					   in->wr.ud.remote_qkey);
		return 0;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		return 0;
	case IBV_WR_BIND_MW:
		front_set_bind(out, in->bind_mw.mw, in->bind_mw.rkey, &in->bind_mw.bind_info);
		return in->bind_mw.mw->type == IBV_MW_TYPE_2 ? 0 : -EINVAL;
	default:
		return -EOPNOTSUPP;
	}
}

int front_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct front_qp *qp = to_qp(ibv);
	struct dp_device *dev = front_context_of(qp)->dev;
	struct dp_send_wr one;
	int err;

	err = dp_device_lock(dev);
	if (err)
		goto out;
	for (; wr; wr = wr->next) {
		err = translate(ibv->qp_type, wr, &one);
		if (err)
			break;
		dp_device_posting(dev, qp->qp, &one, 1);
		err = dp_qp_post_send(qp->qp, &one);
		if (err)
			break;
	}
	dp_device_posted(dev);
	dp_device_unlock(dev);
out:
	if (err)
		*bad = wr;
	return -err;
}

struct dp_recv_wr front_recv_wr(const struct ibv_recv_wr *wr)
{
	return (struct dp_recv_wr){
		.wr_id = wr->wr_id,
		.num_sge = (uint32_t)wr->num_sge,
		.sge = (const struct dp_sge *)wr->sg_list,
	};
}

int front_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct front_qp *qp = to_qp(ibv);
	struct dp_device *dev = front_context_of(qp)->dev;
	struct dp_recv_wr one;
	int err;

	err = dp_device_lock(dev);
	if (err)
		goto out;
	dp_device_posting(dev, qp->qp, NULL, 0);
	for (; wr; wr = wr->next) {
		one = front_recv_wr(wr);
		err = dp_qp_post_recv(qp->qp, &one);
		if (err)
			break;
	}
	dp_device_unlock(dev);
out:
	if (err)
		*bad = wr;
	return -err;
}
