// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Turns events of the connection manager into events of ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "posix/clock.h"
#include "verbs/ucm/ucm.h"

static void fill_private(uint8_t *data, uint8_t *len, const struct dp_cm_event *e, uint32_t skip)
{
	if (e->private_len <= skip)
		return;
	*len = (uint8_t)(e->private_len - skip);
	memcpy(data, e->private_data + skip, *len);
}

/* Copies the peer's parameters, from this end's point of view. */
static void fill_conn(struct rdma_ucm_conn_param *out, const struct dp_cm_event *e, uint32_t skip)
{
	out->qp_num = e->param.qpn;
	out->srq = e->param.srq;
	out->responder_resources = e->param.initiator_depth;
	out->initiator_depth = e->param.responder_resources;
	out->flow_control = e->param.flow_control;
	out->retry_count = e->param.retry_count;
	out->rnr_retry_count = e->param.rnr_retry;
	out->valid = 1;
	fill_private(out->private_data, &out->private_data_len, e, skip);
}

static void fill_ud(struct rdma_ucm_ud_param *out, const struct ucm_id *id,
		    const struct dp_cm_event *e, uint32_t skip)
{
	struct dp_cm_info info;

	dp_cm_conn_info(e->conn, &info);
	out->qp_num = e->param.qpn;
	out->qkey = e->param.qkey;
	ucm_fill_address(&out->ah_attr, id, &info.peer);
	fill_private(out->private_data, &out->private_data_len, e, skip);
}

static void fill(struct ucm_event *event, const struct ucm_id *id, const struct dp_cm_event *e,
		 uint32_t skip)
{
	if (id->port_space == RDMA_PS_UDP)
		fill_ud(&event->resp.param.ud, id, e, skip);
	else
		fill_conn(&event->resp.param.conn, e, skip);
}

/* ---- a request ----------------------------------------------------------------------------- */

static int make_id(struct ucm_agent *agent, struct ucm_id *listener, const struct dp_cm_event *e,
		   struct ucm_id **out)
{
	struct dp_cm_info info;
	struct dp_cm_ip ip;
	struct ucm_id *id;
	int err;

	dp_cm_conn_info(e->conn, &info);
	if (e->private_len < DP_CM_IP_HEADER_LEN || dp_cm_ip_get(e->private_data, &ip))
		return -EPROTO;
	err = ucm_id_create(listener->file, &id);
	if (err)
		return err;
	id->port_space = listener->port_space;
	id->qp_type = listener->qp_type;
	id->state = UCM_CONNECTING;
	id->agent = agent;
	id->family = dp_addr_is_v4(&info.peer) ? AF_INET : AF_INET6;
	id->scope = listener->scope;
	id->src = agent->addr;
	id->src_port = listener->src_port;
	/* The peer is the host that sent the packets, whatever the private header says. */
	id->dst = info.peer;
	id->dst_port = ip.port;
	id->tos = info.traffic_class;
	*out = id;
	return 0;
}

static void on_request(struct ucm_agent *agent, const struct dp_cm_event *e)
{
	struct ucm_id *listener = dp_cm_service_user(e->service), *id;
	struct ucm_event *event = calloc(1, sizeof(*event));
	int err = event ? make_id(agent, listener, e, &id) : -ENOMEM;

	if (err) {
		free(event);
		dp_cm_reject(e->conn, err == -EPROTO ? DP_REJ_UNSUPPORTED : DP_REJ_NO_RESOURCES,
			     NULL, 0, dp_now_ns());
		dp_cm_release(e->conn, dp_now_ns());
		return;
	}
	id->conn = e->conn;
	dp_cm_conn_set_user(e->conn, id);
	event->arrived = id;
	event->resp.event = UCM_EVENT_CONNECT_REQUEST;
	fill(event, id, e, DP_CM_IP_HEADER_LEN);
	ucm_push(listener, event);
}

/* ---- all others -------------------------------------------------------------------------------- */

static void translate(struct ucm_id *id, const struct dp_cm_event *e, struct ucm_event *event)
{
	static const uint32_t types[] = {
		[DP_CM_REPLIED] = UCM_EVENT_CONNECT_RESPONSE,
		[DP_CM_ESTABLISHED] = UCM_EVENT_ESTABLISHED,
		[DP_CM_REJECTED] = UCM_EVENT_REJECTED,
		[DP_CM_UNREACHABLE] = UCM_EVENT_UNREACHABLE,
		[DP_CM_DISCONNECTED] = UCM_EVENT_DISCONNECTED,
		[DP_CM_TIMEWAIT_OVER] = UCM_EVENT_TIMEWAIT_EXIT,
		[DP_CM_RESOLVED] = UCM_EVENT_ESTABLISHED,
	};

	event->resp.event = types[e->type];
	event->resp.status = e->status;
	if (e->type == DP_CM_UNREACHABLE)
		event->resp.status = (uint32_t)-ETIMEDOUT;
	if (e->type == DP_CM_RESOLVED && e->status)
		event->resp.event = UCM_EVENT_UNREACHABLE;
	fill(event, id, e, 0);
	if (e->type == DP_CM_RESOLVED || e->type == DP_CM_REPLIED)
		return; /* not connected yet, or connected at once: calls of librdmacm set the state */
	id->state = e->type == DP_CM_ESTABLISHED ? UCM_CONNECTED : UCM_DISCONNECTED;
}

void ucm_deliver(struct ucm_agent *agent, const struct dp_cm_event *e)
{
	struct ucm_event *event;
	struct ucm_id *id;

	if (e->type == DP_CM_REQUESTED) {
		on_request(agent, e);
		return;
	}
	id = dp_cm_conn_user(e->conn);
	/*
	 * The program has not accepted the connection, and does not know it.  Its accept will fail.
	 */
	if (!id || !id->uid)
		return;
	event = calloc(1, sizeof(*event));
	if (!event)
		return;
	translate(id, e, event);
	ucm_push(id, event);
}
