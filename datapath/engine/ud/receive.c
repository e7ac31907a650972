// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Receives datagrams.  A datagram that does not fit is dropped and counted, and its sender is not
 * told.  So nobody without the Q_Key can write a byte, take a receive, or stop the QP.
 */
#include "engine/ud/ud.h"
#include "wire/grh.h"
#include "wire/headers.h"

/* 0, or why the packet is dropped. */
static int refuse(const struct dp_qp *qp, const struct dp_parsed *p, uint32_t len)
{
	const struct dp_rwqe *wqe;

	if (dp_deth_qkey(p->deth) != qp->attr.qkey) {
		qp->engine->stats.drop_qkey++;
		return -EACCES;
	}
	wqe = dp_receive_next(qp);
	if (!wqe) {
		qp->engine->stats.drop_no_receive++;
		return -ENOBUFS;
	}
	if (DP_GRH_LEN + len > wqe->len) {
		qp->engine->stats.drop_too_long++;
		return -EMSGSIZE;
	}
	return 0;
}

/* Places the IP header, and the payload behind it.  If the packet has no payload (in a simulation),
 * it only checks the receive's memory. */
static int place(struct dp_qp *qp, const struct dp_packet *pkt, const struct dp_parsed *p,
		 uint32_t len)
{
	const struct dp_rwqe *wqe = dp_receive(qp, 0);
	uint8_t grh[DP_GRH_LEN];
	int err;

	dp_grh_set(grh, pkt);
	err = dp_receive_fill(qp, wqe, 0, qp->engine->cfg.no_payload ? NULL : grh, DP_GRH_LEN,
			      NULL);
	if (err)
		return err;
	return dp_receive_payload(qp, wqe, DP_GRH_LEN, p, len, NULL);
}

int dp_ud_rx(struct dp_qp *qp, const struct dp_packet *pkt, const struct dp_parsed *p, uint64_t now)
{
	uint32_t len = p->payload_len + p->payload2_len;
	struct dp_wc wc = {
		.opcode = DP_WC_RECV,
		.byte_len = DP_GRH_LEN + len,
		.flags = DP_WC_GRH,
		.qpn = qp->qpn,
		.src_qpn = dp_deth_src_qpn(p->deth),
	};
	int err = refuse(qp, p, len);

	(void)now;
	if (err)
		return err;
	if (place(qp, pkt, p, len))
		wc.status = DP_WC_LOC_PROT_ERR;
	if (p->imm) {
		memcpy(&wc.imm, p->imm, sizeof(wc.imm));
		wc.flags |= DP_WC_WITH_IMM;
	}
	wc.wr_id = dp_receive_take(qp);
	qp->stats.rx_bytes += len;
	dp_cq_push(qp->recv_cq, &wc, p->solicited);
	if (wc.status)
		dp_qp_to_error(qp, DP_EVENT_QP_FAILED);
	return 0;
}
