/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a packet is put together, for all QP types. */
#ifndef DP_ENGINE_BUILD_H
#define DP_ENGINE_BUILD_H

#include <assert.h>

#include "engine/qp.h"
#include "wire/headers.h"
#include "wire/icrc.h"

/* Starts an empty packet from the QP to an address, along the port's route to it. */
static inline void dp_packet_start(const struct dp_qp *qp, struct dp_packet *pkt,
				   const struct dp_addr *to, uint32_t path_id)
{
	const struct dp_engine_config *cfg = &qp->engine->cfg;

	pkt->src = cfg->addr;
	pkt->dst = *to;
	pkt->sport = qp->sport;
	pkt->ip_id = 0;
	pkt->tos = dp_qp_tos(qp) | (cfg->ecn ? DP_ECN_ECT0 : 0);
	pkt->flags = cfg->no_payload ? DP_PKT_NO_PAYLOAD : 0;
	pkt->path_id = path_id;
	pkt->frag = NULL;
	pkt->frag_len = 0;
	pkt->pay_len = 0;
	pkt->arrived_ns = 0;
	pkt->late_ns = 0;
	pkt->len = 0;
}

/* Appends len bytes to the packet; returns where they begin. */
static inline uint8_t *dp_packet_push(struct dp_packet *pkt, uint32_t len)
{
	uint8_t *at = pkt->data + pkt->len;

	pkt->len += len;
	assert(pkt->len + DP_ICRC_LEN <= pkt->cap);
	return at;
}

/* Appends room for payload and pad; NULL when the simulator carries lengths only. */
static inline uint8_t *dp_packet_push_payload(struct dp_packet *pkt, uint32_t len)
{
	uint32_t pad = -len & 3;
	uint8_t *at;

	if (pkt->flags & DP_PKT_NO_PAYLOAD) {
		pkt->pay_len = len;
		return NULL;
	}
	at = dp_packet_push(pkt, len + pad);
	memset(at + len, 0, pad);
	return at;
}

static inline void dp_packet_end(const struct dp_qp *qp, struct dp_packet *pkt)
{
	if (!qp->engine->cfg.no_payload)
		dp_icrc_append(pkt);
}

#endif
