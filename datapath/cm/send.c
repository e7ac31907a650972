// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "cm/impl.h"

enum {
	MTU_BYTES = 1,	 /* additional information of a REJ for an MTU: one byte */
	NO_LID = 0xffff, /* RoCE has none: what Linux sends */
};

static int put_private(uint8_t *mad, const void *data, uint32_t len)
{
	struct dp_cm_private p = dp_cm_private(dp_mad_attribute(mad));

	if (len > p.len)
		return -EINVAL;
	if (len)
		memcpy(mad + p.at, data, len);
	return 0;
}

static void start(struct dp_cm_conn *c, enum dp_cm_attribute attribute)
{
	dp_mad_start(c->mad, attribute, c->tid);
	dp_cm_set(c->mad, DP_CM_LOCAL_ID, c->id);
	if (attribute != DP_CM_REQ)
		dp_cm_set(c->mad, DP_CM_REMOTE_ID, c->remote_id);
}

/* ---- connections ------------------------------------------------------------------ */

int cm_make_req(struct dp_cm_conn *c, const void *private_data, uint32_t len)
{
	const struct dp_cm_param *p = &c->local;
	uint8_t *mad = c->mad;

	start(c, DP_CM_REQ);
	dp_cm_set(mad, DP_REQ_SERVICE_ID, c->service_id);
	dp_cm_set(mad, DP_REQ_GUID, c->cm->cfg.guid);
	dp_cm_set(mad, DP_REQ_QKEY, p->qkey);
	dp_cm_set(mad, DP_REQ_QPN, p->qpn);
	dp_cm_set(mad, DP_REQ_RESPONDER_RESOURCES, p->responder_resources);
	dp_cm_set(mad, DP_REQ_INITIATOR_DEPTH, p->initiator_depth);
	dp_cm_set(mad, DP_REQ_REMOTE_TIMEOUT, CM_RESPONSE_TIMEOUT);
	dp_cm_set(mad, DP_REQ_FLOW_CONTROL, p->flow_control);
	dp_cm_set(mad, DP_REQ_PSN, p->psn);
	dp_cm_set(mad, DP_REQ_LOCAL_TIMEOUT, CM_RESPONSE_TIMEOUT);
	dp_cm_set(mad, DP_REQ_RETRY_COUNT, p->retry_count);
	dp_cm_set(mad, DP_REQ_PKEY, DP_PKEY_DEFAULT);
	dp_cm_set(mad, DP_REQ_PATH_MTU, c->path_mtu);
	dp_cm_set(mad, DP_REQ_RNR_RETRY, p->rnr_retry);
	dp_cm_set(mad, DP_REQ_MAX_CM_RETRIES, CM_RETRIES);
	dp_cm_set(mad, DP_REQ_SRQ, p->srq);
	dp_cm_set(mad, DP_REQ_LOCAL_LID, NO_LID);
	dp_cm_set(mad, DP_REQ_REMOTE_LID, NO_LID);
	memcpy(mad + DP_MAD_HEADER_LEN + DP_REQ_LOCAL_GID_AT, c->cm->cfg.addr.b, 16);
	memcpy(mad + DP_MAD_HEADER_LEN + DP_REQ_REMOTE_GID_AT, c->peer.b, 16);
	dp_cm_set(mad, DP_REQ_TRAFFIC_CLASS, c->traffic_class);
	dp_cm_set(mad, DP_REQ_HOP_LIMIT, CM_HOP_LIMIT);
	dp_cm_set(mad, DP_REQ_ACK_TIMEOUT, c->ack_timeout);
	return put_private(mad, private_data, len);
}

int cm_make_rep(struct dp_cm_conn *c, const void *private_data, uint32_t len)
{
	const struct dp_cm_param *p = &c->local;

	start(c, DP_CM_REP);
	dp_cm_set(c->mad, DP_REP_QKEY, p->qkey);
	dp_cm_set(c->mad, DP_REP_QPN, p->qpn);
	dp_cm_set(c->mad, DP_REP_PSN, p->psn);
	dp_cm_set(c->mad, DP_REP_RESPONDER_RESOURCES, p->responder_resources);
	dp_cm_set(c->mad, DP_REP_INITIATOR_DEPTH, p->initiator_depth);
	dp_cm_set(c->mad, DP_REP_FLOW_CONTROL, p->flow_control);
	dp_cm_set(c->mad, DP_REP_RNR_RETRY, p->rnr_retry);
	dp_cm_set(c->mad, DP_REP_SRQ, p->srq);
	dp_cm_set(c->mad, DP_REP_GUID, c->cm->cfg.guid);
	return put_private(c->mad, private_data, len);
}

int cm_make_rej(struct dp_cm_conn *c, enum dp_cm_message about, enum dp_cm_reason reason,
		const void *private_data, uint32_t len)
{
	start(c, DP_CM_REJ);
	dp_cm_set(c->mad, DP_REJ_MESSAGE, about);
	dp_cm_set(c->mad, DP_REJ_REASON, reason);
	if (reason == DP_REJ_TIMEOUT) {
		/* The GUID: the peer finds the connection by it when it has no id. */
		dp_cm_set(c->mad, DP_REJ_INFO_LEN, sizeof(uint64_t));
		dp_put64(c->mad + DP_MAD_HEADER_LEN + DP_REJ_INFO_AT, c->cm->cfg.guid);
	}
	return put_private(c->mad, private_data, len);
}

int cm_make_sidr_req(struct dp_cm_conn *c, const void *private_data, uint32_t len)
{
	dp_mad_start(c->mad, DP_CM_SIDR_REQ, c->tid);
	dp_cm_set(c->mad, DP_SIDR_REQ_ID, c->id);
	dp_cm_set(c->mad, DP_SIDR_REQ_PKEY, DP_PKEY_DEFAULT);
	dp_cm_set(c->mad, DP_SIDR_REQ_SERVICE_ID, c->service_id);
	return put_private(c->mad, private_data, len);
}

int cm_make_sidr_rep(struct dp_cm_conn *c, enum dp_sidr_status status, const void *private_data,
		     uint32_t len)
{
	dp_mad_start(c->mad, DP_CM_SIDR_REP, c->tid);
	dp_cm_set(c->mad, DP_SIDR_REP_ID, c->remote_id);
	dp_cm_set(c->mad, DP_SIDR_REP_STATUS, status);
	dp_cm_set(c->mad, DP_SIDR_REP_QPN, c->local.qpn);
	dp_cm_set(c->mad, DP_SIDR_REP_SERVICE_ID, c->service_id);
	dp_cm_set(c->mad, DP_SIDR_REP_QKEY, c->local.qkey);
	return put_private(c->mad, private_data, len);
}

void cm_make_dreq(struct dp_cm_conn *c)
{
	c->tid = cm_random(c->cm);
	start(c, DP_CM_DREQ);
	dp_cm_set(c->mad, DP_DREQ_QPN, c->remote.qpn);
}

void cm_make_rtu(struct dp_cm_conn *c)
{
	start(c, DP_CM_RTU);
}

/* ---- sending ------------------------------------------------------------------------- */

void cm_send(struct dp_cm_conn *c)
{
	cm_queue(c->cm, &c->peer, c->mad);
}

void cm_arm_repeat(struct dp_cm_conn *c, uint64_t now)
{
	uint32_t first = c->state == CONN_DREQ_SENT ? CM_PARTING_TIMEOUT : CM_RESPONSE_TIMEOUT;
	uint32_t n = first + c->tries;

	cm_due(c, now + cm_time_ns(n < CM_REPEAT_MAX ? n : CM_REPEAT_MAX));
}

void cm_send_until_answered(struct dp_cm_conn *c, uint64_t now)
{
	c->tries = 0;
	cm_send(c);
	cm_arm_repeat(c, now);
}

/* ---- without a trace in the connection -------------------------------------------------- */

void cm_send_mra(struct dp_cm_conn *c, enum dp_cm_message about)
{
	uint32_t timeout = CM_SERVICE_FIRST + c->mras++;
	uint8_t mad[DP_MAD_LEN];

	dp_mad_start(mad, DP_CM_MRA, c->tid);
	dp_cm_set(mad, DP_CM_LOCAL_ID, c->id);
	dp_cm_set(mad, DP_CM_REMOTE_ID, c->remote_id);
	dp_cm_set(mad, DP_MRA_MESSAGE, about);
	dp_cm_set(mad, DP_MRA_TIMEOUT, timeout < CM_SERVICE_MAX ? timeout : CM_SERVICE_MAX);
	cm_queue(c->cm, &c->peer, mad);
}

void cm_send_drep(struct dp_cm *cm, const struct dp_addr *to, uint64_t tid, uint32_t local_id,
		  uint32_t remote_id)
{
	uint8_t mad[DP_MAD_LEN];

	dp_mad_start(mad, DP_CM_DREP, tid);
	dp_cm_set(mad, DP_CM_LOCAL_ID, local_id);
	dp_cm_set(mad, DP_CM_REMOTE_ID, remote_id);
	cm_queue(cm, to, mad);
}

/* Rejects a message for which no connection is made. */
static void refuse(struct dp_cm *cm, const uint8_t *message, const struct dp_addr *to,
		   enum dp_cm_message about, enum dp_cm_reason reason)
{
	uint8_t mad[DP_MAD_LEN];

	cm->stats.rejects++;
	dp_mad_start(mad, DP_CM_REJ, dp_get64(message + DP_MAD_TID_AT));
	dp_cm_set(mad, DP_CM_REMOTE_ID, dp_cm_get(message, DP_CM_LOCAL_ID));
	if (about == DP_CM_ABOUT_REP)
		dp_cm_set(mad, DP_CM_LOCAL_ID, dp_cm_get(message, DP_CM_REMOTE_ID));
	dp_cm_set(mad, DP_REJ_MESSAGE, about);
	dp_cm_set(mad, DP_REJ_REASON, reason);
	if (reason == DP_REJ_INVALID_MTU) {
		dp_cm_set(mad, DP_REJ_INFO_LEN, MTU_BYTES);
		mad[DP_MAD_HEADER_LEN + DP_REJ_INFO_AT] = (uint8_t)(cm->cfg.path_mtu << 4);
	}
	cm_queue(cm, to, mad);
}

void cm_refuse_req(struct dp_cm *cm, const uint8_t *req, const struct dp_addr *to,
		   enum dp_cm_reason reason)
{
	refuse(cm, req, to, DP_CM_ABOUT_REQ, reason);
}

void cm_refuse_rep(struct dp_cm *cm, const uint8_t *rep, const struct dp_addr *to)
{
	refuse(cm, rep, to, DP_CM_ABOUT_REP, DP_REJ_INVALID_COMM_ID);
}

void cm_refuse_sidr(struct dp_cm *cm, const uint8_t *req, const struct dp_addr *to)
{
	uint8_t mad[DP_MAD_LEN];

	cm->stats.rejects++;
	dp_mad_start(mad, DP_CM_SIDR_REP, dp_get64(req + DP_MAD_TID_AT));
	dp_cm_set(mad, DP_SIDR_REP_ID, dp_cm_get(req, DP_SIDR_REQ_ID));
	dp_cm_set(mad, DP_SIDR_REP_STATUS, DP_SIDR_UNSUPPORTED);
	dp_cm_set(mad, DP_SIDR_REP_SERVICE_ID, dp_cm_get(req, DP_SIDR_REQ_SERVICE_ID));
	cm_queue(cm, to, mad);
}
