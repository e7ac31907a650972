// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Requests that come in, of which connections are made. */
#include "cm/impl.h"

/* ---- REQ ------------------------------------------------------------------------------ */

/* Returns 0, or the reason of the REJ. */
static uint32_t refusal(struct dp_cm *cm, const struct cm_message *m)
{
	uint32_t mtu = cm_get(m, DP_REQ_PATH_MTU);

	if (cm_get(m, DP_REQ_TRANSPORT))
		return DP_REJ_INVALID_TRANSPORT;
	if (memcmp(m->mad + DP_MAD_HEADER_LEN + DP_REQ_LOCAL_GID_AT, m->from, 16) ||
	    memcmp(m->mad + DP_MAD_HEADER_LEN + DP_REQ_REMOTE_GID_AT, &cm->cfg.addr, 16))
		return DP_REJ_INVALID_GID;
	if (mtu > cm->cfg.path_mtu)
		return DP_REJ_INVALID_MTU;
	return 0;
}

/* Answers a repeated request. */
static void answer_again(struct dp_cm_conn *c, const struct cm_message *m)
{
	struct dp_cm *cm = c->cm;

	cm->stats.duplicates++;
	if (c->state == CONN_UNSERVED)
		return;
	if (c->active || c->tid != m->tid || c->remote.qpn != cm_get(m, DP_REQ_QPN)) {
		cm_refuse_req(cm, m->mad, m->from, DP_REJ_STALE);
		return;
	}
	switch (c->state) {
	case CONN_REQUESTED:
		cm_send_mra(c, DP_CM_ABOUT_REQ);
		break;
	case CONN_REP_SENT:
	case CONN_REJECTED:
		cm_send(c);
		break;
	default:
		cm->stats.drop_state++;
	}
}

static void read_req(struct dp_cm_conn *c, const struct cm_message *m)
{
	c->remote = (struct dp_cm_param){
		.qpn = cm_get(m, DP_REQ_QPN),
		.qkey = cm_get(m, DP_REQ_QKEY),
		.psn = cm_get(m, DP_REQ_PSN),
		.responder_resources = cm_get8(m, DP_REQ_RESPONDER_RESOURCES),
		.initiator_depth = cm_get8(m, DP_REQ_INITIATOR_DEPTH),
		.retry_count = cm_get8(m, DP_REQ_RETRY_COUNT),
		.rnr_retry = cm_get8(m, DP_REQ_RNR_RETRY),
		.flow_control = cm_get8(m, DP_REQ_FLOW_CONTROL),
		.srq = cm_get8(m, DP_REQ_SRQ),
		.path_mtu = cm_get8(m, DP_REQ_PATH_MTU),
		.ack_timeout = cm_get8(m, DP_REQ_ACK_TIMEOUT),
		.traffic_class = cm_get8(m, DP_REQ_TRAFFIC_CLASS),
	};
	c->path_mtu = c->remote.path_mtu;
	c->ack_timeout = c->remote.ack_timeout;
	c->traffic_class = c->remote.traffic_class;
}

/* Makes a connection that waits for the service's program; NULL: there is no room. */
static struct dp_cm_conn *make_requested(struct dp_cm_service *s, const struct cm_message *m)
{
	struct dp_cm_conn *c;

	if (s->waiting == s->backlog || cm_conn_create(s->cm, &c)) {
		s->cm->stats.drop_backlog++;
		return NULL;
	}
	c->held = true;
	c->service = s;
	s->waiting++;
	c->service_id = s->service_id;
	c->peer = *m->from;
	c->tid = m->tid;
	return c;
}

/* True: the request waits for its service. */
static bool wait_for_service(struct dp_cm *cm, const struct cm_message *m, uint64_t service_id,
			     uint32_t remote_id, bool datagram)
{
	struct dp_cm_conn *c;

	if (m->late || cm->n_unserved == CM_UNSERVED_MAX || cm_conn_create(cm, &c))
		return false;
	c->state = CONN_UNSERVED;
	cm->n_unserved++;
	c->datagram = datagram;
	c->peer = *m->from;
	c->service_id = service_id;
	memcpy(c->mad, m->mad, DP_MAD_LEN);
	cm_set_remote(c, remote_id);
	cm_due(c, m->now + cm_time_ns(CM_GRACE));
	return true;
}

bool cm_rx_req(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	uint64_t service_id = dp_cm_get(m->mad, DP_REQ_SERVICE_ID);
	uint32_t remote_id = cm_get(m, DP_CM_LOCAL_ID), mtu = cm_get(m, DP_REQ_PATH_MTU), reason;
	struct dp_cm_conn *c = cm_find_remote(cm, m->from, remote_id, false);
	struct dp_cm_service *s;

	if (c) {
		answer_again(c, m);
		return false;
	}
	if (!remote_id || !cm_get(m, DP_REQ_QPN) || !mtu) {
		cm->stats.drop_malformed++;
		return false;
	}
	s = cm_find_service(cm, service_id);
	if (!s && wait_for_service(cm, m, service_id, remote_id, false))
		return false;
	reason = s ? refusal(cm, m) : DP_REJ_INVALID_SERVICE_ID;
	if (reason) {
		cm_refuse_req(cm, m->mad, m->from, (enum dp_cm_reason)reason);
		return false;
	}
	/* The peer uses the QP for something new, so the old connection has ended there. */
	c = cm_find_qp(cm, m->from, cm_get(m, DP_REQ_QPN));
	if (c) {
		cm_refuse_req(cm, m->mad, m->from, DP_REJ_STALE);
		cm_send_dreq(c, m->now);
		return false;
	}
	c = make_requested(s, m);
	if (!c)
		return false;
	c->state = CONN_REQUESTED;
	read_req(c, m);
	cm_set_remote(c, remote_id);
	out->service = s;
	out->param = c->remote;
	cm_copy_private(out, m);
	return cm_raise(out, c, DP_CM_REQUESTED);
}

/* ---- SIDR_REQ -------------------------------------------------------------------------- */

bool cm_rx_sidr_req(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	uint64_t service_id = dp_cm_get(m->mad, DP_SIDR_REQ_SERVICE_ID);
	uint32_t remote_id = cm_get(m, DP_SIDR_REQ_ID);
	struct dp_cm_conn *c = cm_find_remote(cm, m->from, remote_id, true);
	struct dp_cm_service *s;

	if (c) {
		cm->stats.duplicates++;
		if (c->state == CONN_SIDR_ANSWERED && c->tid == m->tid)
			cm_send(c);
		return false;
	}
	s = cm_find_service(cm, service_id);
	if (!s && wait_for_service(cm, m, service_id, remote_id, true))
		return false;
	if (!s) {
		cm_refuse_sidr(cm, m->mad, m->from);
		return false;
	}
	c = make_requested(s, m);
	if (!c)
		return false;
	c->datagram = true;
	c->state = CONN_SIDR_REQUESTED;
	cm_set_remote(c, remote_id);
	out->service = s;
	cm_copy_private(out, m);
	return cm_raise(out, c, DP_CM_REQUESTED);
}

/* ---- a request that has waited ------------------------------------------------------------- */

bool cm_serve_late(struct dp_cm_conn *c, uint64_t now, struct dp_cm_event *out)
{
	struct dp_addr from = c->peer;
	struct dp_cm *cm = c->cm;
	uint8_t mad[DP_MAD_LEN];
	struct cm_message m = { .mad = mad, .from = &from, .now = now, .late = true };
	bool datagram = c->datagram;

	memcpy(mad, c->mad, sizeof(mad));
	m.tid = dp_get64(mad + DP_MAD_TID_AT);
	cm_conn_free(c);
	return datagram ? cm_rx_sidr_req(cm, &m, out) : cm_rx_req(cm, &m, out);
}
