// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "cm/impl.h"

/* ---- the end of a connection -------------------------------------------------------- */

void cm_close(struct dp_cm_conn *c)
{
	cm_due(c, DP_NEVER);
	c->state = CONN_CLOSED;
	c->leaving = false;
	cm_leave_backlog(c);
	if (!c->held)
		cm_conn_free(c);
}

/* After this time no packet of the QPs is in the network (section 12.9.8.4). */
void cm_enter_timewait(struct dp_cm_conn *c, uint64_t now)
{
	c->state = CONN_TIMEWAIT;
	c->leaving = false;
	cm_due(c, now + cm_time_ns(c->ack_timeout < CM_TIMEWAIT_MAX ? c->ack_timeout :
								      CM_TIMEWAIT_MAX));
}

void cm_send_dreq(struct dp_cm_conn *c, uint64_t now)
{
	c->state = CONN_DREQ_SENT;
	c->leaving = false;
	cm_make_dreq(c);
	cm_send_until_answered(c, now);
}

static void linger(struct dp_cm_conn *c, enum conn_state state, uint64_t now)
{
	cm_leave_backlog(c);
	c->state = state;
	cm_send(c);
	cm_due(c, now + cm_time_ns(CM_LINGER));
}

/* ---- calls of the program -------------------------------------------------------------- */

static void fill(struct dp_cm_conn *c, const struct dp_cm_request *r, void *user)
{
	uint32_t psn = c->local.psn;

	c->user = user;
	c->held = c->active = true;
	c->datagram = r->datagram;
	c->peer = r->to;
	c->tid = cm_random(c->cm);
	c->service_id = r->service_id;
	c->local = r->param;
	c->local.psn = psn;
	c->path_mtu = r->param.path_mtu;
	c->ack_timeout = r->param.ack_timeout;
	c->traffic_class = r->param.traffic_class;
}

int dp_cm_connect(struct dp_cm *cm, const struct dp_cm_request *r, void *user, uint64_t now,
		  struct dp_cm_conn **out)
{
	struct dp_cm_conn *c;
	int err = cm_conn_create(cm, &c);

	if (err)
		return err;
	fill(c, r, user);
	err = r->datagram ? cm_make_sidr_req(c, r->private_data, r->private_len) :
			    cm_make_req(c, r->private_data, r->private_len);
	if (err) {
		cm_conn_free(c);
		return err;
	}
	c->state = r->datagram ? CONN_SIDR_SENT : CONN_REQ_SENT;
	cm_send_until_answered(c, now);
	*out = c;
	return 0;
}

int dp_cm_accept(struct dp_cm_conn *c, const struct dp_cm_param *param, const void *private_data,
		 uint32_t private_len, uint64_t now)
{
	uint32_t psn = c->local.psn;
	int err;

	if (c->state != CONN_REQUESTED && c->state != CONN_SIDR_REQUESTED)
		return -ENOTCONN;
	c->local = *param;
	c->local.psn = psn;
	if (c->datagram) {
		err = cm_make_sidr_rep(c, DP_SIDR_VALID, private_data, private_len);
		if (!err)
			linger(c, CONN_SIDR_ANSWERED, now);
		return err;
	}
	err = cm_make_rep(c, private_data, private_len);
	if (err)
		return err;
	cm_leave_backlog(c);
	c->state = CONN_REP_SENT;
	cm_send_until_answered(c, now);
	return 0;
}

int dp_cm_reject(struct dp_cm_conn *c, enum dp_cm_reason reason, const void *private_data,
		 uint32_t private_len, uint64_t now)
{
	int err;

	switch (c->state) {
	case CONN_REQUESTED:
		err = cm_make_rej(c, DP_CM_ABOUT_REQ, reason, private_data, private_len);
		if (!err)
			linger(c, CONN_REJECTED, now);
		return err;
	case CONN_SIDR_REQUESTED:
		c->local.qpn = c->local.qkey = 0;
		err = cm_make_sidr_rep(c, DP_SIDR_REJECTED, private_data, private_len);
		if (!err)
			linger(c, CONN_SIDR_ANSWERED, now);
		return err;
	case CONN_REPLIED:
		err = cm_make_rej(c, DP_CM_ABOUT_REP, reason, private_data, private_len);
		if (!err)
			linger(c, CONN_REJECTED, now);
		return err;
	default:
		return -ENOTCONN;
	}
}

int dp_cm_ready(struct dp_cm_conn *c, uint64_t now)
{
	(void)now;
	if (c->state == CONN_REPLIED) {
		cm_make_rtu(c);
		cm_send(c);
	} else if (c->state == CONN_REP_SENT) {
		cm_due(c, DP_NEVER);
	} else {
		return -ENOTCONN;
	}
	c->state = CONN_ESTABLISHED;
	return 0;
}

int dp_cm_disconnect(struct dp_cm_conn *c, uint64_t now)
{
	if (c->state != CONN_ESTABLISHED && c->state != CONN_REP_SENT)
		return -ENOTCONN;
	cm_send_dreq(c, now);
	return 0;
}

/* Sends a REJ once, and keeps no state. */
static void give_up(struct dp_cm_conn *c, enum dp_cm_message about, enum dp_cm_reason reason)
{
	cm_make_rej(c, about, reason, NULL, 0);
	cm_send(c);
	cm_close(c);
}

void dp_cm_release(struct dp_cm_conn *c, uint64_t now)
{
	c->held = false;
	c->user = NULL;
	switch (c->state) {
	case CONN_REQ_SENT:
		give_up(c, DP_CM_ABOUT_REQ, DP_REJ_TIMEOUT);
		break;
	case CONN_REP_SENT:
		give_up(c, DP_CM_ABOUT_OTHER, DP_REJ_CONSUMER);
		break;
	case CONN_REPLIED:
	case CONN_REQUESTED:
	case CONN_SIDR_REQUESTED:
		dp_cm_reject(c, DP_REJ_CONSUMER, NULL, 0, now);
		break;
	case CONN_ESTABLISHED:
		cm_send_dreq(c, now);
		break;
	case CONN_CLOSED:
	case CONN_SIDR_SENT:
		cm_close(c);
		break;
	default: /* it ends by itself */
		break;
	}
}

void *dp_cm_conn_user(const struct dp_cm_conn *c)
{
	return c->user;
}

void dp_cm_conn_set_user(struct dp_cm_conn *c, void *user)
{
	c->user = user;
}

void dp_cm_conn_info(const struct dp_cm_conn *c, struct dp_cm_info *out)
{
	*out = (struct dp_cm_info){
		.peer = c->peer,
		.local = c->local,
		.remote = c->remote,
		.path_mtu = c->path_mtu,
		.ack_timeout = c->ack_timeout,
		.traffic_class = c->traffic_class,
		.active = c->active,
	};
}

/* ---- time -------------------------------------------------------------------------------- */

/* No repeat was answered. */
static void expire(struct dp_cm_conn *c, uint64_t now, struct dp_cm_event *out)
{
	bool held = c->held;

	c->cm->stats.timeouts++;
	out->conn = c;
	out->type = DP_CM_UNREACHABLE;
	switch (c->state) {
	case CONN_DREQ_SENT:
		out->type = DP_CM_DISCONNECTED;
		cm_enter_timewait(c, now);
		break;
	case CONN_REQ_SENT:
	case CONN_REP_SENT:
		give_up(c, c->state == CONN_REQ_SENT ? DP_CM_ABOUT_REQ : DP_CM_ABOUT_OTHER,
			DP_REJ_TIMEOUT);
		break;
	default: /* SIDR_SENT */
		cm_close(c);
	}
	if (!held)
		out->type = 0;
}

static void fire(struct dp_cm_conn *c, uint64_t now, struct dp_cm_event *out)
{
	switch (c->state) {
	case CONN_ESTABLISHED: /* leaving */
		cm_enter_timewait(c, now);
		out->type = c->held ? DP_CM_DISCONNECTED : 0;
		out->conn = c;
		return;
	case CONN_TIMEWAIT:
		out->type = c->held ? DP_CM_TIMEWAIT_OVER : 0;
		out->conn = c;
		cm_close(c);
		return;
	case CONN_REJECTED:
	case CONN_SIDR_ANSWERED:
		cm_close(c);
		return;
	case CONN_UNSERVED:
		if (!cm_serve_late(c, now, out))
			out->type = 0;
		return;
	default:
		break;
	}
	if (c->tries == (c->state == CONN_DREQ_SENT ? CM_PARTING_RETRIES : CM_RETRIES)) {
		expire(c, now, out);
		return;
	}
	c->tries++;
	c->cm->stats.retransmits++;
	cm_send(c);
	cm_arm_repeat(c, now);
}

bool dp_cm_tick(struct dp_cm *cm, uint64_t now, struct dp_cm_event *out)
{
	if (dp_cm_deadline(cm) > now)
		return false;
	memset(out, 0, offsetof(struct dp_cm_event, private_data));
	fire(cm->heap[0], now, out);
	return true;
}
