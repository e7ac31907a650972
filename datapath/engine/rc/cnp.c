// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/cnp.h"

#include "engine/build.h"
#include "engine/rc/packets.h"
#include "engine/rc/requester.h"

void dp_cnp_marked(struct dp_rc *rc, uint64_t now)
{
	uint64_t gap_ns = rc->qp.engine->cfg.cnp_ns;
	struct dp_responder *r = &rc->resp;

	if (!gap_ns || r->cnp_due || (r->cnp_ns && now < r->cnp_ns + gap_ns))
		return;
	r->cnp_ns = now;
	r->cnp_due = true;
	dp_qp_wake(&rc->qp);
}

int dp_cnp_tx(struct dp_rc *rc, struct dp_packet *pkt)
{
	if (!rc->resp.cnp_due)
		return 0;
	rc->resp.cnp_due = false;
	dp_build_start(rc, pkt, DP_OP_CNP, 0, 0, 0, 0);
	dp_bth_set_becn(pkt->data);
	memset(dp_packet_push(pkt, DP_CNP_RESV_LEN), 0, DP_CNP_RESV_LEN);
	dp_packet_end(&rc->qp, pkt);
	rc->qp.stats.cnp_tx++;
	return 1;
}

void dp_cnp_rx(struct dp_rc *rc, uint64_t now)
{
	rc->qp.stats.cnp_rx++;
	if (!rc->flow)
		return;
	dp_flow_notified(rc->flow, now);
	dp_requester_wake(rc);
}
