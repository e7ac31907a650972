// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The attributes of a connection's QP in each of its states. */
#include <errno.h>
#include <string.h>

#include "verbs/ucm/ucm.h"

void ucm_fill_address(struct ib_uverbs_ah_attr *out, const struct ucm_id *id,
		      const struct dp_addr *to)
{
	memset(out, 0, sizeof(*out));
	out->is_global = 1;
	out->port_num = FRONT_PORT;
	memcpy(out->grh.dgid, to->b, sizeof(out->grh.dgid));
	out->grh.hop_limit = UCM_HOP_LIMIT;
	out->grh.traffic_class = id->tos;
}

static uint8_t capped(uint8_t n)
{
	return n < DP_RD_ATOMIC_MAX ? n : DP_RD_ATOMIC_MAX;
}

static void fill_init(struct ib_uverbs_qp_attr *a, const struct ucm_id *id,
		      const struct dp_cm_info *info)
{
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	a->port_num = FRONT_PORT;
	if (id->port_space == RDMA_PS_UDP) {
		a->qp_attr_mask |= IBV_QP_QKEY;
		a->qkey = id->qkey;
		return;
	}
	a->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
	if (id->conn)
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->conn && info->remote.initiator_depth)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

/*
 * How long the peer waits when no receive is posted.  A peer that gives up after some attempts
 * needs the long time of the kernel, or a program that is held up for milliseconds loses its
 * connection.  The passive side knows the peer's number only after it has answered; the peer's own
 * wish stands for it until then.
 */
static uint8_t rnr_timer(const struct dp_cm_info *info)
{
	uint8_t retries = info->active ? info->local.rnr_retry : info->remote.rnr_retry;

	return retries == UCM_RNR_EVER ? UCM_RNR_TIMER_EVER : UCM_RNR_TIMER;
}

static void fill_rtr(struct ib_uverbs_qp_attr *a, const struct ucm_id *id,
		     const struct dp_cm_info *info)
{
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	ucm_fill_address(&a->ah_attr, id, &info->peer);
	a->path_mtu = info->path_mtu;
	a->dest_qp_num = info->remote.qpn;
	a->rq_psn = info->local.psn;
	a->max_dest_rd_atomic = capped(info->remote.initiator_depth);
	a->min_rnr_timer = rnr_timer(info);
}

static void fill_rts(struct ib_uverbs_qp_attr *a, const struct ucm_id *id,
		     const struct dp_cm_info *info)
{
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	a->sq_psn = info->remote.psn;
	a->timeout = id->ack_timeout_set ? id->ack_timeout : info->ack_timeout;
	a->retry_cnt = info->active ? info->local.retry_count : info->remote.retry_count;
	a->rnr_retry = info->remote.rnr_retry;
	a->max_rd_atomic = capped(info->remote.responder_resources);
}

int ucm_init_qp_attr(const struct ucm_command *c)
{
	const struct rdma_ucm_init_qp_attr *in = c->in;
	struct ib_uverbs_qp_attr *out = c->out;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	struct dp_cm_info info = {};

	if (!id)
		return -ENOENT;
	if (!id->agent || in->qp_state > IBV_QPS_ERR)
		return -EINVAL;
	if (id->port_space == RDMA_PS_UDP && !id->qkey)
		id->qkey = UCM_QKEY;
	if (id->conn)
		dp_cm_conn_info(id->conn, &info);
	out->qp_state = in->qp_state;
	if (in->qp_state == IBV_QPS_INIT)
		fill_init(out, id, &info);
	else if (in->qp_state == IBV_QPS_RTR && id->conn)
		fill_rtr(out, id, &info);
	else if (in->qp_state == IBV_QPS_RTS && id->conn)
		fill_rts(out, id, &info);
	else
		return -EINVAL;
	return 0;
}
