// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Connections: the commands of programs. */
#include <errno.h>
#include <string.h>

#include "posix/clock.h"
#include "verbs/ucm/ucm.h"

static struct dp_cm_param read_param(const struct rdma_ucm_conn_param *in)
{
	return (struct dp_cm_param){
		.qpn = in->qp_num,
		.responder_resources = in->responder_resources,
		.initiator_depth = in->initiator_depth,
		.retry_count = in->retry_count & 7,
		.rnr_retry = in->rnr_retry_count & 7,
		.flow_control = in->flow_control,
		.srq = in->srq,
	};
}

/* ---- the active end ------------------------------------------------------------------------ */

int ucm_connect(const struct ucm_command *c)
{
	const struct rdma_ucm_connect *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	uint8_t data[DP_CM_IP_HEADER_LEN + RDMA_MAX_PRIVATE_DATA];
	struct dp_cm_request r = {};
	int err;

	if (!id)
		return -ENOENT;
	if (id->state != UCM_ROUTE_RESOLVED || !in->conn_param.valid)
		return -EINVAL;
	dp_cm_ip_set(data, &(struct dp_cm_ip){ id->src, id->dst, id->src_port });
	memcpy(data + DP_CM_IP_HEADER_LEN, in->conn_param.private_data,
	       in->conn_param.private_data_len);
	r.to = id->dst;
	r.service_id = dp_cm_service_id(id->port_space, id->dst_port);
	r.datagram = id->port_space == RDMA_PS_UDP;
	r.param = read_param(&in->conn_param);
	r.param.path_mtu = id->agent->path_mtu;
	/* For the peer's QP, too: that this one waits for ever is no reason for the peer to do
	 * so. */
	r.param.ack_timeout = id->ack_timeout ? id->ack_timeout : UCM_ACK_TIMEOUT;
	r.param.traffic_class = id->tos;
	r.private_data = data;
	r.private_len = DP_CM_IP_HEADER_LEN + in->conn_param.private_data_len;
	err = dp_cm_connect(id->agent->cm, &r, id, dp_now_ns(), &id->conn);
	if (err)
		return err;
	id->state = UCM_CONNECTING;
	ucm_agent_flush(id->agent);
	return 0;
}

/* ---- both ends ------------------------------------------------------------------------------ */

/* The program of the active end has brought its QP to RTS, so the peer gets its RTU. */
static int make_ready(struct ucm_id *id)
{
	int err = dp_cm_ready(id->conn, dp_now_ns());

	return err == -ENOTCONN ? -EINVAL : err;
}

static int answer(struct ucm_id *id, const struct rdma_ucm_conn_param *in)
{
	struct dp_cm_param param = read_param(in);

	if (id->port_space == RDMA_PS_UDP) {
		if (!id->qkey)
			id->qkey = in->qkey ? in->qkey : UCM_QKEY;
		param.qkey = id->qkey;
	}
	return dp_cm_accept(id->conn, &param, in->private_data, in->private_data_len, dp_now_ns());
}

int ucm_accept(const struct ucm_command *c)
{
	const struct rdma_ucm_accept *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	struct dp_cm_info info;
	uint64_t uid;
	int err;

	if (!id)
		return -ENOENT;
	if (!id->conn)
		return -EINVAL;
	dp_cm_conn_info(id->conn, &info);
	uid = id->uid;
	if (in->conn_param.valid)
		id->uid = in->uid;
	err = info.active ? make_ready(id) : answer(id, &in->conn_param);
	if (err) {
		id->uid = uid;
		return err;
	}
	id->state = UCM_CONNECTED;
	ucm_agent_flush(id->agent);
	return 0;
}

int ucm_reject(const struct ucm_command *c)
{
	const struct rdma_ucm_reject *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	int err;

	if (!id)
		return -ENOENT;
	if (!id->conn)
		return -EINVAL;
	err = dp_cm_reject(id->conn, in->reason ? in->reason : DP_REJ_CONSUMER, in->private_data,
			   in->private_data_len, dp_now_ns());
	ucm_agent_flush(id->agent);
	return err == -ENOTCONN ? -EINVAL : err;
}

int ucm_disconnect(const struct ucm_command *c)
{
	const struct rdma_ucm_disconnect *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);

	if (!id)
		return -ENOENT;
	if (!id->conn)
		return -EINVAL;
	/* Fails if the peer disconnected first: then there is nothing left to do. */
	dp_cm_disconnect(id->conn, dp_now_ns());
	ucm_agent_flush(id->agent);
	return 0;
}

/* A packet of the peer's QP may overtake its RTU: then the packet establishes the connection. */
int ucm_notify(const struct ucm_command *c)
{
	const struct rdma_ucm_notify *in = c->in;
	struct ucm_id *id = ucm_id_find(c->file, in->id);
	struct dp_cm_info info;

	if (!id)
		return -ENOENT;
	if (!id->conn || in->event != IBV_EVENT_COMM_EST)
		return -EINVAL;
	dp_cm_conn_info(id->conn, &info);
	if (!info.active && !dp_cm_ready(id->conn, dp_now_ns()))
		return ucm_raise(id, UCM_EVENT_ESTABLISHED, 0);
	return 0;
}
