// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Messages that come in.  One is believed only if it names the connection by our id and the
 * peer's and comes from the peer's address; a DREQ must also name our QPN.
 */
#include "cm/impl.h"

static bool is_from(const struct cm_message *m, const struct dp_cm_conn *c)
{
	return !memcmp(m->from, &c->peer, sizeof(c->peer));
}

/* Finds the connection that both ids of a message name. */
static struct dp_cm_conn *find(struct dp_cm *cm, const struct cm_message *m)
{
	struct dp_cm_conn *c = cm_find(cm, cm_get(m, DP_CM_REMOTE_ID));

	if (c && !c->datagram && c->known && c->remote_id == cm_get(m, DP_CM_LOCAL_ID) &&
	    is_from(m, c))
		return c;
	cm->stats.drop_unknown_id++;
	return NULL;
}

/* The same, but the peer's id may be new if our request had no answer yet. */
static struct dp_cm_conn *find_answered(struct dp_cm *cm, const struct cm_message *m)
{
	struct dp_cm_conn *c = cm_find(cm, cm_get(m, DP_CM_REMOTE_ID));

	if (c && c->state == CONN_REQ_SENT && is_from(m, c))
		return c;
	return find(cm, m);
}

void cm_copy_private(struct dp_cm_event *out, const struct cm_message *m)
{
	struct dp_cm_private p = dp_cm_private(dp_mad_attribute(m->mad));

	out->private_len = p.len;
	memcpy(out->private_data, m->mad + p.at, p.len);
}

static bool no_use(struct dp_cm *cm)
{
	cm->stats.drop_state++;
	return false;
}

/* ---- REP, RTU ---------------------------------------------------------------------------- */

static void read_rep(struct dp_cm_conn *c, const struct cm_message *m)
{
	c->remote = (struct dp_cm_param){
		.qpn = cm_get(m, DP_REP_QPN),
		.qkey = cm_get(m, DP_REP_QKEY),
		.psn = cm_get(m, DP_REP_PSN),
		.responder_resources = cm_get8(m, DP_REP_RESPONDER_RESOURCES),
		.initiator_depth = cm_get8(m, DP_REP_INITIATOR_DEPTH),
		.rnr_retry = cm_get8(m, DP_REP_RNR_RETRY),
		.flow_control = cm_get8(m, DP_REP_FLOW_CONTROL),
		.srq = cm_get8(m, DP_REP_SRQ),
	};
}

static bool rx_rep_again(struct dp_cm *cm, const struct cm_message *m)
{
	struct dp_cm_conn *c = find(cm, m);

	if (!c) {
		cm_refuse_rep(cm, m->mad, m->from);
		return false;
	}
	cm->stats.duplicates++;
	if (c->state == CONN_REPLIED)
		cm_send_mra(c, DP_CM_ABOUT_REP);
	else if (c->active && (c->state == CONN_ESTABLISHED || c->state == CONN_REJECTED))
		cm_send(c);
	else
		return no_use(cm);
	return false;
}

static bool rx_rep(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	struct dp_cm_conn *c = cm_find(cm, cm_get(m, DP_CM_REMOTE_ID));
	uint32_t remote_id = cm_get(m, DP_CM_LOCAL_ID);

	if (!remote_id || !cm_get(m, DP_REP_QPN)) {
		cm->stats.drop_malformed++;
		return false;
	}
	if (!c || c->state != CONN_REQ_SENT || !is_from(m, c) || c->tid != m->tid)
		return rx_rep_again(cm, m);
	read_rep(c, m);
	cm_set_remote(c, remote_id);
	c->state = CONN_REPLIED;
	cm_due(c, DP_NEVER);
	out->param = c->remote;
	cm_copy_private(out, m);
	return cm_raise(out, c, DP_CM_REPLIED);
}

static bool rx_rtu(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	struct dp_cm_conn *c = find(cm, m);

	if (!c)
		return false;
	if (c->state != CONN_REP_SENT)
		return no_use(cm);
	c->state = CONN_ESTABLISHED;
	cm_due(c, DP_NEVER);
	cm_copy_private(out, m);
	return cm_raise(out, c, DP_CM_ESTABLISHED);
}

/* ---- REJ, MRA ------------------------------------------------------------------------------ */

/* A peer that gives up a request of its own may not know our id. */
static struct dp_cm_conn *find_rejected(struct dp_cm *cm, const struct cm_message *m)
{
	struct dp_cm_conn *c;

	if (cm_get(m, DP_CM_REMOTE_ID))
		return find_answered(cm, m);
	c = cm_find_remote(cm, m->from, cm_get(m, DP_CM_LOCAL_ID), false);
	if (c && c->tid == m->tid)
		return c;
	cm->stats.drop_unknown_id++;
	return NULL;
}

static bool rx_rej(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	struct dp_cm_conn *c = find_rejected(cm, m);
	enum dp_cm_event_type type = DP_CM_REJECTED;
	bool held;

	if (!c)
		return false;
	switch (c->state) {
	case CONN_ESTABLISHED:
	case CONN_DREQ_SENT:
		type = DP_CM_DISCONNECTED;
		break;
	case CONN_REQ_SENT:
	case CONN_REPLIED:
	case CONN_REQUESTED:
	case CONN_REP_SENT:
		break;
	default:
		return no_use(cm);
	}
	out->status = cm_get(m, DP_REJ_REASON);
	cm_copy_private(out, m);
	held = cm_raise(out, c, type);
	cm_close(c);
	return held;
}

static bool rx_mra(struct dp_cm *cm, const struct cm_message *m)
{
	struct dp_cm_conn *c = find_answered(cm, m);
	uint32_t about = cm_get(m, DP_MRA_MESSAGE);

	if (!c)
		return false;
	if (!(c->state == CONN_REQ_SENT && about == DP_CM_ABOUT_REQ) &&
	    !(c->state == CONN_REP_SENT && about == DP_CM_ABOUT_REP))
		return no_use(cm);
	c->tries = 0;
	cm_due(c, m->now + cm_time_ns(cm_get(m, DP_MRA_TIMEOUT)) + cm_time_ns(CM_RESPONSE_TIMEOUT));
	return false;
}

/* ---- DREQ, DREP ------------------------------------------------------------------------------ */

static void send_drep(struct dp_cm *cm, const struct cm_message *m)
{
	cm_send_drep(cm, m->from, m->tid, cm_get(m, DP_CM_REMOTE_ID), cm_get(m, DP_CM_LOCAL_ID));
}

static bool rx_dreq(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	struct dp_cm_conn *c = find(cm, m);

	/* The connection has ended here: tell the peer, so that it stops asking. */
	if (!c) {
		send_drep(cm, m);
		return false;
	}
	if (cm_get(m, DP_DREQ_QPN) != c->local.qpn) {
		cm->stats.drop_malformed++;
		return false;
	}
	c->parted_ns = m->now;
	switch (c->state) {
	case CONN_REP_SENT:
		/* The RTU is lost or late; the peer had established the connection. */
		send_drep(cm, m);
		c->state = CONN_ESTABLISHED;
		c->leaving = true;
		cm_due(c, m->now);
		return cm_raise(out, c, DP_CM_ESTABLISHED);
	case CONN_REPLIED:
	case CONN_ESTABLISHED:
	case CONN_DREQ_SENT:
		send_drep(cm, m);
		if (c->leaving)
			return false;
		cm_enter_timewait(c, m->now);
		return cm_raise(out, c, DP_CM_DISCONNECTED);
	case CONN_TIMEWAIT:
	case CONN_CLOSED:
		cm->stats.duplicates++;
		send_drep(cm, m);
		return false;
	default:
		return no_use(cm);
	}
}

static bool rx_drep(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	struct dp_cm_conn *c = find(cm, m);

	if (!c)
		return false;
	if (c->state != CONN_DREQ_SENT || c->tid != m->tid)
		return no_use(cm);
	cm_enter_timewait(c, m->now);
	return cm_raise(out, c, DP_CM_DISCONNECTED);
}

/* ---- datagrams --------------------------------------------------------------------------------- */

static bool rx_sidr_rep(struct dp_cm *cm, const struct cm_message *m, struct dp_cm_event *out)
{
	struct dp_cm_conn *c = cm_find(cm, cm_get(m, DP_SIDR_REP_ID));

	if (!c || !c->datagram || !is_from(m, c)) {
		cm->stats.drop_unknown_id++;
		return false;
	}
	if (c->state != CONN_SIDR_SENT || c->tid != m->tid ||
	    c->service_id != dp_cm_get(m->mad, DP_SIDR_REP_SERVICE_ID))
		return no_use(cm);
	c->remote.qpn = cm_get(m, DP_SIDR_REP_QPN);
	c->remote.qkey = cm_get(m, DP_SIDR_REP_QKEY);
	out->status = cm_get(m, DP_SIDR_REP_STATUS);
	out->param = c->remote;
	cm_copy_private(out, m);
	cm_close(c);
	return cm_raise(out, c, DP_CM_RESOLVED);
}

bool dp_cm_rx(struct dp_cm *cm, const uint8_t *mad, size_t len, const struct dp_addr *from,
	      uint64_t now, struct dp_cm_event *out)
{
	struct cm_message m = { .mad = mad, .from = from, .now = now };

	cm->stats.rx_mads++;
	if (dp_mad_check(mad, len)) {
		cm->stats.drop_malformed++;
		return false;
	}
	cm_count(cm, mad, true, 1);
	m.tid = dp_get64(mad + DP_MAD_TID_AT);
	memset(out, 0, offsetof(struct dp_cm_event, private_data));
	switch (dp_mad_attribute(mad)) {
	case DP_CM_REQ:
		return cm_rx_req(cm, &m, out);
	case DP_CM_REP:
		return rx_rep(cm, &m, out);
	case DP_CM_RTU:
		return rx_rtu(cm, &m, out);
	case DP_CM_REJ:
		return rx_rej(cm, &m, out);
	case DP_CM_MRA:
		return rx_mra(cm, &m);
	case DP_CM_DREQ:
		return rx_dreq(cm, &m, out);
	case DP_CM_DREP:
		return rx_drep(cm, &m, out);
	case DP_CM_SIDR_REQ:
		return cm_rx_sidr_req(cm, &m, out);
	default:
		return rx_sidr_rep(cm, &m, out);
	}
}
