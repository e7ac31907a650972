/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The attributes of queue pairs: ibv_modify_qp() and ibv_query_qp().
 */
#include "verbs/front.h"

#include <errno.h>
#include <string.h>

static uint16_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? (uint16_t)(128u << mtu) : 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && mtu_bytes(mtu + 1) <= bytes)
		mtu++;
	return mtu;
}

static int from_ibv(struct front_qp *qp, const struct ibv_qp_attr *in, int mask,
		    struct dp_qp_attr *out)
{
	const int unknown =
		~(IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY |
		  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV |
		  IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		  IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN | IBV_QP_QKEY);

	if (mask & unknown)
		return -EOPNOTSUPP;
	if ((mask & IBV_QP_STATE && in->qp_state > IBV_QPS_ERR) ||
	    (mask & IBV_QP_CUR_STATE && in->cur_qp_state > IBV_QPS_ERR) ||
	    (mask & IBV_QP_PKEY_INDEX && in->pkey_index) ||
	    (mask & IBV_QP_PORT && in->port_num != FRONT_PORT) ||
	    (mask & IBV_QP_PATH_MTU &&
	     (!mtu_bytes(in->path_mtu) ||
	      mtu_bytes(in->path_mtu) > dp_device_path_mtu(front_context_of(qp)->dev))))
		return -EINVAL;
	*out = (struct dp_qp_attr){
		.state = (uint8_t)in->qp_state,
		.cur_state = (uint8_t)in->cur_qp_state,
		.access = (uint16_t)in->qp_access_flags &
			  (DP_ACCESS_REMOTE_WRITE | DP_ACCESS_REMOTE_READ |
			   DP_ACCESS_REMOTE_ATOMIC | DP_ACCESS_LOCAL_WRITE),
		.qkey = in->qkey,
		.path_mtu = mask & IBV_QP_PATH_MTU ? mtu_bytes(in->path_mtu) : 0,
		.tos = in->ah_attr.grh.traffic_class & ~DP_ECN_MASK,
		.dest_qpn = in->dest_qp_num,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.min_rnr_timer = in->min_rnr_timer,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.sqd_notify = in->en_sqd_async_notify,
	};
	return mask & IBV_QP_AV ? front_resolve(front_context_of(qp), &in->ah_attr, &out->raddr,
						&out->path_id) :
				  0;
}

/* Switches the QP to the new path.  Call with the device locked. */
static void take_path(struct front_qp *qp, const struct ibv_ah_attr *ah, uint32_t path_id)
{
	front_give_back_path(qp);
	qp->av = (struct front_av){
		.flow_label = ah->grh.flow_label,
		.dlid = ah->dlid,
		.sgid_index = ah->grh.sgid_index,
		.hop_limit = ah->grh.hop_limit,
		.traffic_class = ah->grh.traffic_class,
		.sl = ah->sl,
		.src_path_bits = ah->src_path_bits,
		.static_rate = ah->static_rate,
	};
	qp->path_id = path_id;
	qp->has_path = true;
}

static struct ibv_ah_attr taken_path(const struct front_qp *qp, const struct dp_addr *to)
{
	struct ibv_ah_attr ah = {
		.grh = { .flow_label = qp->av.flow_label,
			 .sgid_index = qp->av.sgid_index,
			 .hop_limit = qp->av.hop_limit,
			 .traffic_class = qp->av.traffic_class },
		.dlid = qp->av.dlid,
		.sl = qp->av.sl,
		.src_path_bits = qp->av.src_path_bits,
		.static_rate = qp->av.static_rate,
		.is_global = 1,
		.port_num = FRONT_PORT,
	};

	if (!qp->has_path)
		return (struct ibv_ah_attr){ 0 };
	memcpy(ah.grh.dgid.raw, to->b, sizeof(to->b));
	return ah;
}

int front_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct front_qp *qp = to_qp(base);
	struct dp_device *dev = front_context_of(qp)->dev;
	struct dp_qp_attr now_attr, wanted;
	int err;

	err = from_ibv(qp, attr, mask, &wanted);
	if (err)
		return -err;
	err = dp_device_lock(dev);
	if (err)
		return -err;
	dp_qp_settle(qp->qp);
	dp_device_flush(dev);
	err = dp_qp_modify(qp->qp, &wanted, (uint32_t)mask, dp_device_now_ns());
	if (!err) {
		dp_qp_query(qp->qp, &now_attr);
		base->state = (enum ibv_qp_state)now_attr.state;
		if (mask & IBV_QP_AV)
			take_path(qp, &attr->ah_attr, wanted.path_id);
		else if (base->state == IBV_QPS_RESET)
			front_give_back_path(qp);
		dp_device_posted(dev); /* the new state may allow packets */
	} else if (mask & IBV_QP_AV) {
		dp_device_release(dev, wanted.path_id);
	}
	dp_device_unlock(dev);
	return -err;
}

int front_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init)
{
	struct front_qp *qp = to_qp(base);
	struct ibv_ah_attr ah_attr;
	struct dp_qp_attr now_attr;
	int err;

	(void)mask; /* every attribute is cheap to return */
	err = dp_device_lock(front_context_of(qp)->dev);
	if (err)
		return -err;
	dp_qp_query(qp->qp, &now_attr);
	ah_attr = taken_path(qp, &now_attr.raddr);
	dp_device_unlock(front_context_of(qp)->dev);
	base->state = (enum ibv_qp_state)now_attr.state;
	*attr = (struct ibv_qp_attr){
		.qp_state = base->state,
		.cur_qp_state = base->state,
		.path_mtu = mtu_code(now_attr.path_mtu),
		.path_mig_state = IBV_MIG_MIGRATED,
		.qkey = now_attr.qkey,
		.rq_psn = now_attr.rq_psn,
		.sq_psn = now_attr.sq_psn,
		.dest_qp_num = now_attr.dest_qpn,
		.qp_access_flags = now_attr.access,
		.sq_draining = now_attr.sq_draining,
		.cap = qp->cap,
		.ah_attr = ah_attr,
		.max_rd_atomic = now_attr.max_rd_atomic,
		.max_dest_rd_atomic = now_attr.max_dest_rd_atomic,
		.min_rnr_timer = now_attr.min_rnr_timer,
		.port_num = FRONT_PORT,
		.timeout = now_attr.timeout,
		.retry_cnt = now_attr.retry_cnt,
		.rnr_retry = now_attr.rnr_retry,
	};
	*init = (struct ibv_qp_init_attr){
		.qp_context = base->qp_context,
		.send_cq = base->send_cq,
		.recv_cq = base->recv_cq,
		.srq = base->srq,
		.cap = qp->cap,
		.qp_type = base->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}
